"""What a run found, as a table on the terminal."""

from pathlib import Path
from typing import Any

import numpy as np

from diffclust.data import Dataset
from diffclust.models import Result

_MOST_ROWS = 20


def show_findings(out: str, result: Result, dataset: Dataset, summary: dict[str, Any]) -> None:
    """Prints the clusters, the loss, the scores where there are labels, and where the files lie.

    Args:
        out: The run's folder.
        result: The result, assigned to these images.
        dataset: The images.
        summary: The run's figures.
    """
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_table(result, dataset))
    passes = f" after {summary['iterations']} passes" if summary["iterations"] > 1 else ""
    predicted = summary["status"] == "predicted"
    name = "summed distance" if predicted else result.model.criterion
    console.print(
        f"{summary['method']}: {summary['n']} images in {summary['k']} clusters, {name} "
        f"{summary['loss']:.6g}{passes}, {summary['seconds']:.1f} s"
    )
    if "acc" in summary:
        console.print(
            f"accuracy {summary['acc']:.3f}, NMI {summary['nmi']:.3f}, ARI {summary['ari']:.3f} "
            "(the fit never saw the labels)"
        )
    report = Path(out) / "report.html"
    place, what = (report, "report") if report.exists() else (Path(out), "files")
    # No markup and no wrapping: a path is printed as it is.
    console.print(f"{what}: {place}", markup=False, soft_wrap=True)


def _table(result: Result, dataset: Dataset) -> Any:
    from rich.table import Table

    table = Table("cluster", "images", "mean distance", box=None, header_style="bold")
    for column in table.columns:
        column.justify = "right"
    names = dataset.label_names
    if dataset.labels is not None and names is not None:
        table.add_column("mostly", justify="right")
        table.add_column("share", justify="right")
    counts = result.counts
    for cluster in range(min(len(counts), _MOST_ROWS)):
        members = result.assignments == cluster
        row = [str(cluster), str(counts[cluster])]
        row.append(f"{result.distances[members].mean():.4g}" if counts[cluster] else "")
        if dataset.labels is not None and names is not None and counts[cluster]:
            classes = np.bincount(dataset.labels[members], minlength=len(names))
            row += [names[int(classes.argmax())], f"{classes.max() / counts[cluster]:.0%}"]
        table.add_row(*row)
    if len(counts) > _MOST_ROWS:
        table.add_row("...", f"{counts[_MOST_ROWS:].sum()}")
    return table
