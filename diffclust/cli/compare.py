"""`diffclust compare`: several runs in one table, and as a page, a picture or a file."""

import base64
import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffclust import metrics
from diffclust.cli.options import Compare
from diffclust.cli.runs import SavedRun, read_run, write_table
from diffclust.cli.summary import text_table
from diffclust.report.page import document
from diffclust.report.text import count, escape
from diffclust.storage.staging import staged_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = {"acc": "accuracy", "nmi": "NMI", "ari": "ARI"}
"""Scores against labels, by their names in a summary."""

_ENDINGS = (".html", ".png", ".csv")


def svg_icon(drawing: str) -> str:
    """A small picture that stands for a page.

    Args:
        drawing: The SVG, from its `viewBox` to its last shape.

    Returns:
        A `data:` URI.
    """
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {drawing}</svg>'
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


_ICON = svg_icon('viewBox="0 0 4 4"><path fill="#2f6690" d="M0 0h2v2H0zM2 2h2v2H2z"/>')

_SEARCH = {
    "num_restarts",
    "max_passes",
    "tolerance",
    "split_merge",
    "seeding",
    "steps",
    "max_steps",
    "curriculum",
    "batch_size",
    "learning_rate",
    "shortlist",
    "least_share",
    "refine_steps",
    "align_steps",
    "backbone",
    "initial_variance",
}
"""Settings of how a fit searches; all others are part of what its loss means."""


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs side by side.

    Attributes:
        names: What the runs are called: their folders, as short as tells them apart.
        runs: The runs.
        similarity: Adjusted Rand index of each two over the samples that both have; NaN where they
            share too few.
        shared: How many samples each two share.
        groups: For each run the letter of those with which its loss can be compared; empty where
            there are none.
        best: Whether a run's loss is the least of its group.
    """

    names: tuple[str, ...]
    runs: tuple[SavedRun, ...]
    similarity: np.ndarray
    shared: np.ndarray
    groups: tuple[str, ...]
    best: tuple[bool, ...]


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
    comparison = compare_runs([read_run(run) for run in options.runs])
    if options.out is not None:
        with staged_file(options.out, overwrite=options.overwrite) as path:
            if ending == ".html":
                path.write_text(comparison_page(comparison), "utf-8")
            elif ending == ".png":
                comparison_figure(comparison).savefig(path, format="png", dpi=150)
            else:
                _write_csv(path, comparison)
    _print(comparison)
    if options.out is not None:
        print(f"comparison: {options.out}")


def compare_runs(runs: Sequence[SavedRun]) -> Comparison:
    """Compares runs.

    Args:
        runs: At least two.

    Returns:
        The comparison.
    """
    positions = [_positions(run) for run in runs]
    similarity = np.full((len(runs), len(runs)), np.nan)
    shared = np.zeros((len(runs), len(runs)), int)
    for i, first in enumerate(positions):
        for j, second in enumerate(positions[: i + 1]):
            both = [(row, second[sample]) for sample, row in first.items() if sample in second]
            shared[i, j] = shared[j, i] = len(both)
            if len(both) >= 2:
                rows, others = np.array(both).T
                value = metrics.adjusted_rand_index(
                    runs[i].clusters[rows], runs[j].clusters[others]
                )
                similarity[i, j] = similarity[j, i] = value
    meanings = [_loss_meaning(run, own) for run, own in zip(runs, positions, strict=True)]
    repeated = [m for m in dict.fromkeys(meanings) if m is not None and meanings.count(m) > 1]
    letters: dict[str | None, str] = {m: _letter(number) for number, m in enumerate(repeated)}
    least = {
        m: min(run.summary["loss"] for run, own in zip(runs, meanings, strict=True) if own == m)
        for m in repeated
    }
    pairs = zip(runs, meanings, strict=True)
    return Comparison(
        _names(runs),
        tuple(runs),
        similarity,
        shared,
        tuple(letters.get(m, "") for m in meanings),
        tuple(m in least and run.summary["loss"] == least[m] for run, m in pairs),
    )


def _positions(run: SavedRun) -> dict[str, int]:
    """The row of each sample by what it is: its file, or its place in its source."""
    if run.column == "path" and all(run.places):
        return {os.path.realpath(place): row for row, place in enumerate(run.places)}
    source = run.summary["source"]
    name = source["source"]
    name = os.path.realpath(name) if os.path.exists(name) else name
    where = f"{name}\n{source['split']}"
    return {f"{where}\n{index}": row for row, index in enumerate(run.indices.tolist())}


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else f"{number + 1}"


def _loss_meaning(run: SavedRun, samples: dict[str, int]) -> str | None:
    """What the loss of a run means: the same for runs whose losses can be compared."""
    summary = run.summary
    settings = {n: v for n, v in summary["settings"].items() if n not in _SEARCH}
    # Weights that a fit learns itself make every run's loss its own; predictions sum distances.
    if settings.get("weight_rounds") or summary["status"] == "predicted":
        return None
    source = summary["source"]
    about: list[Any] = [
        summary["method"],
        settings,
        source["sample_shape"],
        source.get("weights"),
        sorted(samples),
    ]
    return json.dumps(about, sort_keys=True)


def _names(runs: Sequence[SavedRun]) -> tuple[str, ...]:
    """The last part of each folder, or as many parts as tell them apart."""
    parts = [run.folder.absolute().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = tuple("/".join(part[-length:]) for part in parts)
        if len(set(names)) == len(names):
            return names
    return tuple(str(run.folder) for run in runs)


def _scores(comparison: Comparison) -> list[str]:
    return [name for name in SCORES if any(name in run.summary for run in comparison.runs)]


def _table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The heads of the columns, and the rows as texts."""
    scores, comparable = _scores(comparison), any(comparison.groups)
    header = ["run", "method", "k", "samples", "loss", *(["comparable"] if comparable else [])]
    header += ["time", *(SCORES[name] for name in scores)]
    rows = []
    for name, run, group, best in zip(
        comparison.names, comparison.runs, comparison.groups, comparison.best, strict=True
    ):
        summary = run.summary
        row = [name, summary["method"], str(summary["k"]), str(summary["n"])]
        row.append(f"{summary['loss']:.6g}")
        if comparable:
            row.append(f"{group}{', least' if best else ''}")
        row.append(f"{summary['seconds']:.1f} s")
        row += [f"{summary[score]:.3f}" if score in summary else "" for score in scores]
        rows.append(row)
    return header, rows


def _notes(comparison: Comparison) -> list[str]:
    """What the reader must know of the figures, in sentences."""
    notes = [
        "Losses are compared within a letter only: there the method, its settings, K and the "
        "samples are the same."
        if any(comparison.groups)
        else "No two losses can be compared: that takes the same method, settings, K and samples."
    ]
    sizes = np.array([len(run.indices) for run in comparison.runs])
    if np.isnan(comparison.similarity).any():
        notes.append("Runs that share no samples have no agreement.")
    elif (comparison.shared < np.maximum.outer(sizes, sizes)).any():
        notes.append("Agreement is that over the samples which two runs share.")
    return notes


def _number(value: float, missing: str) -> str:
    return missing if math.isnan(value) else f"{value:.3f}"


def _print(comparison: Comparison) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    header, rows = _table(comparison)
    console.print(text_table(header, rows, left=2))
    numbers = map(str, range(1, len(rows) + 1))
    matrix = [
        [f"{number} {name}", *(_number(value, "-") for value in values)]
        for number, (name, values) in enumerate(_similarities(comparison), start=1)
    ]
    console.print(text_table(["agreement (ARI)", *numbers], matrix, left=1))
    for note in _notes(comparison):
        console.print(note, style="dim")


def _similarities(comparison: Comparison) -> list[tuple[str, list[float]]]:
    return list(zip(comparison.names, comparison.similarity.tolist(), strict=True))


def _write_csv(path: Path, comparison: Comparison) -> None:
    header, rows = _table(comparison)
    similarities = [
        ["" if math.isnan(value) else f"{value:.6g}" for value in values]
        for _, values in _similarities(comparison)
    ]
    write_table(
        path,
        [*header, *(f"ARI with {name}" for name in comparison.names)],
        (row + more for row, more in zip(rows, similarities, strict=True)),
    )


def comparison_figure(comparison: Comparison) -> "Figure":
    """How alike the clusters of runs are, and how they score.

    Args:
        comparison: The comparison.

    Returns:
        A matplotlib figure: the matrix of adjusted Rand indices, and bars of the scores where there
        are any.
    """
    from matplotlib.figure import Figure

    scores = _scores(comparison)
    size, panels = len(comparison.runs), 2 if scores else 1
    figure = Figure(figsize=(1.6 + 4.6 * panels, 1.6 + 0.5 * max(4, size)), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    axes[0].imshow(comparison.similarity, vmin=0.0, vmax=1.0, cmap="Blues")
    for (i, j), value in np.ndenumerate(comparison.similarity):
        style = {"ha": "center", "va": "center", "fontsize": 8}
        axes[0].text(j, i, _number(value, "-"), color="white" if value > 0.6 else "black", **style)
    numbers = [str(i + 1) for i in range(size)]
    names = [name.replace("$", r"\$") for name in comparison.names]
    axes[0].set_xticks(range(size), numbers)
    axes[0].set_yticks(range(size), [f"{i} {name}" for i, name in zip(numbers, names, strict=True)])
    axes[0].set_title("agreement (adjusted Rand index)", fontsize=10)
    for number, score in enumerate(scores):
        height = 0.8 / len(scores)
        values = [run.summary.get(score, math.nan) for run in comparison.runs]
        places = np.arange(size) + (number - (len(scores) - 1) / 2) * height
        axes[1].barh(places, values, height, label=SCORES[score])
    if scores:
        axes[1].set_yticks(range(size), numbers)
        axes[1].invert_yaxis()
        axes[1].set_xlim(0.0, 1.0)
        axes[1].set_title("scores against the labels", fontsize=10)
        axes[1].legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3)
    return figure


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for a page.

    Args:
        header: Names of the columns, any text.
        rows: Any texts.

    Returns:
        HTML.
    """
    heads = "".join(f"<th>{escape(name)}</th>" for name in header)
    listed = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows
    )
    return (
        f'<div class="across"><table class="table"><thead><tr>{heads}</tr></thead>'
        f"<tbody>\n{listed}</tbody></table></div>"
    )


def comparison_page(comparison: Comparison) -> str:
    """A comparison as one self-contained HTML page.

    Args:
        comparison: The comparison.

    Returns:
        A whole HTML document.
    """
    runs = count(len(comparison.runs), "run")
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in _notes(comparison))
    sheets = "".join(
        f"<figure><figcaption>{i} {escape(name)}</figcaption>{sheet}</figure>"
        for i, (name, run) in enumerate(zip(comparison.names, comparison.runs, strict=True), 1)
        if (sheet := _sheet(run.folder, name))
    )
    body = (
        f'<header><p class="eyebrow">diffclust comparison</p><h1>{runs} compared</h1></header>\n'
        '<main>\n<section id="figures"><div class="bar"><h2>Figures</h2></div>'
        f"{html_table(*_table(comparison))}"
        f'{notes}</section>\n<section id="agreement"><div class="bar"><h2>Agreement</h2></div>'
        f"{_html_matrix(comparison)}</section>\n"
        f'<section id="sheets"><div class="bar"><h2>Prototypes</h2></div><div class="sheets">'
        f"{sheets}</div></section>\n</main>"
    )
    return document(f"{runs} compared", body, icon=_ICON)


def _html_matrix(comparison: Comparison) -> str:
    heads = "".join(f"<th>{i}</th>" for i in range(1, len(comparison.names) + 1))
    rows = "".join(
        f"<tr><th>{i} {escape(name)}</th>{''.join(map(_html_cell, values))}</tr>\n"
        for i, (name, values) in enumerate(_similarities(comparison), start=1)
    )
    return (
        f'<div class="across"><table class="confusion"><thead><tr><td></td>{heads}</tr></thead>'
        f'<tbody>\n{rows}</tbody></table></div><p class="note">The adjusted Rand index between the '
        "clusters of two runs: 1 where they are the same, about 0 where they are independent. "
        "Labels play no part in it.</p>"
    )


def _html_cell(value: float) -> str:
    if math.isnan(value):
        return "<td>–</td>"
    dark = ' class="dark"' if value > 0.55 else ""
    return f'<td{dark} style="--share:{100 * max(value, 0.0):.0f}%">{value:.3f}</td>'


def _sheet(folder: Path, name: str) -> str:
    try:
        picture = (folder / "prototypes.png").read_bytes()
    except OSError:
        return ""
    uri = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    return f'<img src="{uri}" alt="Prototypes of {escape(name)}">'
