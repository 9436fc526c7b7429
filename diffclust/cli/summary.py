"""A run in short, as a table and a few lines on the terminal."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from diffclust import methods
from diffclust._validation import some
from diffclust.analysis import describe_movement
from diffclust.data import Collection
from diffclust.models import Result
from diffclust.plotting import loss_history
from diffclust.report.text import CHANGES, SCORES, describe_empty, describe_frames, plain, unsteady
from diffclust.solvers.result import Status

_MOST_ROWS = 20

_MANY_FAR = 4
"""Where so many times more new samples than usual are far from their cluster, they are of another
kind."""


def plural(number: int, noun: str) -> str:
    """A count with its noun, such as "3 images".

    Args:
        number: The number.
        noun: What there are, in the singular.

    Returns:
        For example `1 shape` or `2 shapes`.
    """
    return f"{number} {noun if number == 1 else methods.plural(noun)}"


_WIDE = 10_000
"""Columns of what is written to a file."""


def console() -> Any:
    """The terminal's standard output as `rich` prints on it, without colours of its own choice."""
    from rich.console import Console

    # A file is as wide as it need be, and a terminal that is too narrow folds what it cannot hold.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None where it is closed
    return Console(highlight=False, width=None if is_terminal else _WIDE)


def text_table(columns: Mapping[str, Iterable[str]], *, left: int = 0) -> Any:
    """A table for the terminal.

    Args:
        columns: Texts, by the name of the column.
        left: How many columns, the first ones, are flush left; the others are flush right.

    Returns:
        What `rich` prints.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, header_style="bold")
    for place, column in enumerate(table.columns):
        column.overflow, column.justify = "fold", "right" if place >= left else "left"
    for row in zip(*columns.values(), strict=True):
        # No markup: a folder may be called [bold].
        table.add_row(*(Text(plain(text)) for text in row))
    return table


def print_summary(out: str, result: Result, dataset: Collection, summary: dict[str, Any]) -> None:
    """Prints the clusters, the loss, the scores where there are labels, and where the files lie.

    Files of the source that were left out are named on stderr.

    Args:
        out: The run's folder.
        result: The result, assigned to these samples.
        dataset: The samples.
        summary: The run's figures.
    """
    if dataset.skipped:
        names = some(map(repr, dataset.skipped))
        print(f"skipped {len(dataset.skipped)} unreadable or blank: {names}", file=sys.stderr)
    screen = console()
    # Not every terminal has a proper minus sign.
    distance = result.model.words.distance_short.replace("−", "-")
    screen.print(_clusters(result, dataset, distance))
    predicted = result.outcome.status is Status.PREDICTED
    name = f"summed {distance}" if predicted else result.model.criterion
    screen.print(
        f"{summary['method']}: {plural(summary['n'], dataset.noun)} in "
        f"{plural(summary['k'], 'cluster')}, {name} "
        f"{summary['loss']:.6g}{'' if predicted else _work(result)}, {summary['seconds']:.1f} s"
    )
    if not predicted and (changes := _changes(result)):
        screen.print(changes)
    if not predicted and (empty := describe_empty(result.counts, dataset.noun)):
        screen.print(empty)
    if registration := result.model.describe().get("Registration"):
        screen.print(f"registration: {registration}")
    if tried := describe_frames(result.outcome.figures):
        screen.print(tried)
    if moved := describe_movement(summary, dataset.noun):
        screen.print(moved)
    if not predicted and "stability" in summary:
        # How much the graphs agree whose mean was cut.
        warning = unsteady(summary["stability"])
        screen.print(f"stability {summary['stability']:.2f}{f'. {warning}' if warning else ''}")
    if summary.get("far", 0) > max(1, _MANY_FAR * summary.get("far_usual", 0)):
        share = summary["far_usual"] / summary["n"]
        screen.print(
            f"{summary['far']:.0f} of {plural(summary['n'], dataset.noun)} are farther from their "
            f"cluster than {1 - share:.0%} of those that were fitted to it ({share:.0%} would be "
            "usual): they may belong to none; see p_value in assignments.csv"
        )
    if "acc" in summary:
        scores = ", ".join(f"{title} {summary[name]:.3f}" for name, title in SCORES.items())
        screen.print(f"{scores} (the fit never saw the labels)")
    report = Path(out) / "report.html"
    place, what = (report, "report") if report.exists() else (Path(out), "files")
    # No markup and no wrapping: a path is printed as it is.
    screen.print(f"{what}: {plain(place)}", markup=False, soft_wrap=True)


def _work(result: Result) -> str:
    """How much was done, where something was repeated."""
    history, passes = loss_history(result), result.outcome.num_passes
    if history is not None:
        return f" after {history.total} {history.unit}s"
    return f" after {passes} passes" if passes > 1 else ""


def _changes(result: Result) -> str:
    """Counts refills and splits of clusters in a fit by gradient steps, in words."""
    counts = {what: round(result.outcome.figures.get(name, 0)) for name, what in CHANGES.items()}
    return ", ".join(
        f"{what} {'once' if times == 1 else f'{times} times'}"
        for what, times in counts.items()
        if times
    )


def _clusters(result: Result, dataset: Collection, distance: str) -> Any:
    counts, names, labels = result.counts, dataset.label_names, dataset.labels
    members = [result.assignments == cluster for cluster in range(min(len(counts), _MOST_ROWS))]
    means = [f"{result.distances[own].mean():.4g}" if own.any() else "" for own in members]
    columns = {
        "cluster": [str(cluster) for cluster in range(len(members))],
        methods.plural(dataset.noun): [str(counts[cluster]) for cluster in range(len(members))],
        f"mean {distance}": means,
    }
    if labels is not None and names:
        classes = [np.bincount(labels[own], minlength=len(names)) for own in members]
        columns["mostly"] = [names[int(c.argmax())] if c.any() else "" for c in classes]
        columns["share"] = [f"{c.max() / c.sum():.0%}" if c.any() else "" for c in classes]
    if len(counts) > _MOST_ROWS:
        rest = ["...", str(counts[_MOST_ROWS:].sum()), *[""] * len(columns)]
        columns = {name: [*c, text] for (name, c), text in zip(columns.items(), rest, strict=False)}
    return text_table(columns)
