"""`diffclust compare`: several runs in one table and one picture."""

import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diffclust.cli.agreement import Comparison, compare_runs
from diffclust.cli.comparison_table import SCORES, comparison_rows, notes
from diffclust.cli.run_options import Compare
from diffclust.cli.runs import read_run
from diffclust.storage.staging import staged_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ENDINGS = (".html", ".png", ".csv")


def compare(options: Compare) -> None:
    """Compares runs, prints a table and writes it where that was asked for.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    if len(options.runs) < 2:
        raise ValueError("a comparison needs at least two runs; give the folders of more")
    if len({Path(run).resolve() for run in options.runs}) < len(options.runs):
        raise ValueError("a run was given twice; give each of them once")
    ending = "" if options.out is None else Path(options.out).suffix.lower()
    if options.out is not None and ending not in _ENDINGS:
        raise ValueError(
            f"--out must end in {', '.join(_ENDINGS[:-1])} or {_ENDINGS[-1]}, not {options.out!r}"
        )
    found = compare_runs([read_run(run) for run in options.runs])
    if options.out is not None:
        with staged_file(options.out, overwrite=options.overwrite) as path:
            if ending == ".html":
                from diffclust.cli.compare_page import comparison_page

                path.write_text(comparison_page(found), "utf-8")
            elif ending == ".png":
                agreement_figure(found).savefig(path, format="png", dpi=150)
            else:
                _write_table(path, found)
    _show(found)
    if options.out is not None:
        print(f"comparison: {options.out}")


def _show(found: Comparison) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    head, rows = comparison_rows(found)
    table = Table(*head, box=None, header_style="bold")
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(_plain, row))
    console.print(table)
    matrix = Table("agreement (ARI)", *map(str, range(1, len(rows) + 1)), box=None)
    for column in matrix.columns[1:]:
        column.justify = "right"
    for number, name in enumerate(found.names):
        cells = [_cell(value) for value in found.agreement[number].tolist()]
        matrix.add_row(_plain(f"{number + 1} {name}"), *cells)
    console.print(matrix)
    for note in notes(found):
        console.print(note, style="dim")


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def _plain(text: str) -> Any:
    from rich.text import Text

    # No markup: a folder may be called [bold].
    return Text(text)


def _write_table(path: Path, found: Comparison) -> None:
    head, rows = comparison_rows(found)
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*head, *(f"ARI with {name}" for name in found.names)])
        for row, agreement in zip(rows, found.agreement.tolist(), strict=True):
            cells = ["" if math.isnan(value) else f"{value:.6g}" for value in agreement]
            writer.writerow([*row, *cells])


def agreement_figure(found: Comparison) -> "Figure":
    """How runs agree, and how they score.

    Args:
        found: The comparison.

    Returns:
        A matplotlib figure: the matrix of agreement, and bars of the scores where there are any.
    """
    from matplotlib.figure import Figure

    scores = [name for name in SCORES if any(name in run.summary for run in found.runs)]
    count, panels = len(found.runs), 2 if scores else 1
    figure = Figure(figsize=(1.6 + 4.6 * panels, 1.6 + 0.5 * max(4, count)), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    names = [name.replace("$", r"\$") for name in found.names]
    axes[0].imshow(found.agreement, vmin=0.0, vmax=1.0, cmap="Blues")
    for i in range(count):
        for j in range(count):
            value = float(found.agreement[i, j])
            colour = "white" if value > 0.6 else "black"
            axes[0].text(j, i, _cell(value), ha="center", va="center", fontsize=8, color=colour)
    axes[0].set_xticks(range(count), [str(i + 1) for i in range(count)])
    axes[0].set_yticks(range(count), [f"{i + 1} {name}" for i, name in enumerate(names)])
    axes[0].set_title("agreement (adjusted Rand index)", fontsize=10)
    if scores:
        height = 0.8 / len(scores)
        for number, score in enumerate(scores):
            values = [run.summary.get(score, math.nan) for run in found.runs]
            places = [i + (number - (len(scores) - 1) / 2) * height for i in range(count)]
            axes[1].barh(places, values, height, label=SCORES[score])
        axes[1].set_yticks(range(count), [str(i + 1) for i in range(count)])
        axes[1].invert_yaxis()
        axes[1].set_xlim(0.0, 1.0)
        axes[1].set_title("scores against the labels", fontsize=10)
        axes[1].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3)
    return figure
