"""What a run found, as a table on the terminal."""

from pathlib import Path
from typing import Any

import numpy as np

from diffclust.data import Collection
from diffclust.models import Result

_MOST_ROWS = 20

_STEADY = 0.8
"""A mean adjusted Rand index; of plain groups it is above 0.9."""


def counted(number: int, noun: str) -> str:
    """How many there are of something.

    Args:
        number: The number.
        noun: What there are, in the singular; its plural ends in s.

    Returns:
        For example `1 shape` or `2 shapes`.
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def show_findings(out: str, result: Result, dataset: Collection, summary: dict[str, Any]) -> None:
    """Prints the clusters, the loss, the scores where there are labels, and where the files lie.

    Args:
        out: The run's folder.
        result: The result, assigned to these samples.
        dataset: The samples.
        summary: The run's figures.
    """
    from rich.console import Console

    console = Console(highlight=False)
    # Not every terminal has a proper minus sign.
    distance = result.model.words.distance_short.replace("−", "-")
    console.print(_table(result, dataset, distance))
    predicted = summary["status"] == "predicted"
    name = f"summed {distance}" if predicted else result.model.criterion
    console.print(
        f"{summary['method']}: {counted(summary['n'], dataset.noun)} in "
        f"{counted(summary['k'], 'cluster')}, {name} "
        f"{summary['loss']:.6g}{'' if predicted else _work(result)}, {summary['seconds']:.1f} s"
    )
    if not predicted and (changes := _changes(result)):
        console.print(", ".join(changes))
    if not predicted and "stability" in summary:
        console.print(_steadiness(summary["stability"]))
    if "acc" in summary:
        console.print(
            f"accuracy {summary['acc']:.3f}, NMI {summary['nmi']:.3f}, ARI {summary['ari']:.3f} "
            "(the fit never saw the labels)"
        )
    report = Path(out) / "report.html"
    place, what = (report, "report") if report.exists() else (Path(out), "files")
    # No markup and no wrapping: a path is printed as it is.
    console.print(f"{what}: {place}", markup=False, soft_wrap=True)


def _work(result: Result) -> str:
    """How much was done, where something was repeated."""
    from diffclust.plotting import loss_history

    course = loss_history(result)
    if course is None:
        passes = result.outcome.num_passes
        return f" after {passes} passes" if passes > 1 else ""
    return f" after {course.total} {course.unit}s"


def _changes(result: Result) -> list[str]:
    """How often clusters were given something else to do, in a fit by gradient steps."""
    figures = result.outcome.figures
    told = {"refills": "tiny clusters refilled", "moves": "clusters split and others removed"}
    counts = {words: round(figures.get(name, 0)) for name, words in told.items()}
    return [
        f"{words} {'once' if times == 1 else f'{times} times'}"
        for words, times in counts.items()
        if times
    ]


def _steadiness(stability: float) -> str:
    """How much the graphs agree whose mean was cut."""
    told = f"stability {stability:.2f}"
    if stability < _STEADY:
        told += ": single graphs group these samples otherwise; look at the margins and the bridges"
    return told


def _table(result: Result, dataset: Collection, distance: str) -> Any:
    from rich.table import Table

    table = Table("cluster", f"{dataset.noun}s", f"mean {distance}", box=None, header_style="bold")
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
