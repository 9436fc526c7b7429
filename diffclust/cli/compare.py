"""`diffclust compare`: several runs in one table, and as a page, a picture or a file."""

import dataclasses
import itertools
import json
import math
import os
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from diffclust import metrics
from diffclust._renamed import current_settings
from diffclust.cli.options import Compare
from diffclust.cli.runs import SavedRun, after_writing, read_run, refuse_read, write_table
from diffclust.cli.summary import console, text_table
from diffclust.data.source import MADE_SETS
from diffclust.models import Training
from diffclust.models.kmeans import AbstractLloydModel
from diffclust.report.page import data_uri, document, section, shaded_cell, shaded_table, svg_icon
from diffclust.report.page import table as html_table
from diffclust.report.text import SCORES, count, escape, plain
from diffclust.storage.staging import staged_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ICON = svg_icon("0 0 4 4", '<path fill="#2f6690" d="M0 0h2v2H0zM2 2h2v2H2z"/>')

_SEARCH = {*AbstractLloydModel.__annotations__, *Training.__annotations__, "seeding"}
_SEARCH |= {"refine_steps", "align_steps", "backbone", "initial_variance", "variance_curriculum"}
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
        options: The command's options.

    Raises:
        ValueError: If it cannot be done.
        OSError: If something cannot be read or written.
    """
    if len(options.runs) < 2:
        raise ValueError("a comparison needs at least two runs; give the folders of more")
    if len({os.path.realpath(run) for run in options.runs}) < len(options.runs):
        raise ValueError("a run was given twice; give each of them once")
    ending = "" if options.out is None else Path(options.out).suffix.lower()
    if options.out is not None and ending not in (".html", ".png", ".csv"):
        raise ValueError(f"--out must end in .html, .png or .csv, not {options.out!r}")
    runs = [read_run(run) for run in options.runs]
    comparison = compare_runs(runs)
    if options.out is None:
        _print(comparison)
        return
    refuse_read(options.out, itertools.chain.from_iterable(run.inputs() for run in runs))
    with staged_file(options.out, overwrite=options.overwrite) as path:
        if ending == ".html":
            path.write_text(comparison_page(comparison), "utf-8")
        elif ending == ".png":
            comparison_figure(comparison).savefig(path, format="png", dpi=150)
        else:
            _write_csv(path, comparison)
    with after_writing(options.out):
        _print(comparison)
        print(f"comparison: {plain(options.out)}")


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
    for j, i in itertools.combinations_with_replacement(range(len(runs)), 2):
        second = positions[j]
        pairs = [(row, second[sample]) for sample, row in positions[i].items() if sample in second]
        shared[i, j] = shared[j, i] = len(pairs)
        if len(pairs) >= 2:
            rows, others = np.array(pairs).T
            value = metrics.adjusted_rand_index(runs[i].clusters[rows], runs[j].clusters[others])
            similarity[i, j] = similarity[j, i] = value
    meanings = [_loss_meaning(run, own) for run, own in zip(runs, positions, strict=True)]
    # Of what was larger than memory no checksum is known.
    sums = [run.summary["source"].get("crc32") for run in runs]
    for meaning in dict.fromkeys(meanings):
        own = {s for m, s in zip(meanings, sums, strict=True) if m == meaning and s is not None}
        if meaning is not None and len(own) > 1:
            pairs = zip(meanings, sums, strict=True)
            meanings = [f"{m}{s}" if m == meaning else m for m, s in pairs]
    repeated = [m for m in dict.fromkeys(meanings) if m is not None and meanings.count(m) > 1]
    every_letter = [*string.ascii_uppercase, *map(str, range(27, len(repeated) + 1))]
    letters: dict[str | None, str] = dict(zip(repeated, every_letter, strict=False))
    losses = [(run.summary["loss"], m) for run, m in zip(runs, meanings, strict=True)]
    least = {m: min(loss for loss, own in losses if own == m) for m in repeated}
    groups = tuple(letters.get(m, "") for m in meanings)
    best = tuple(m in least and loss == least[m] for loss, m in losses)
    return Comparison(_names(runs), tuple(runs), similarity, shared, groups, best)


def _positions(run: SavedRun) -> dict[str, int]:
    """The row of each sample by what it is: its file, or its place in its source."""
    if run.column == "path" and all(run.places):
        return {os.path.realpath(run.located(place)): row for row, place in enumerate(run.places)}
    source = run.summary["source"]
    name = run.located(source["source"])
    name = os.path.realpath(name) if os.path.exists(name) else name
    where = f"{name}\n{source['split']}"
    if source["source"] in MADE_SETS:  # other images with another seed
        where += f"\n{run.summary['seed']}"
    return {f"{where}\n{index}": row for row, index in enumerate(run.indices.tolist())}


def _loss_meaning(run: SavedRun, samples: dict[str, int]) -> str | None:
    """Says what a run's loss means: the same for runs whose losses can be compared."""
    summary = run.summary
    settings = current_settings(summary["settings"])
    settings = {n: v for n, v in settings.items() if n not in _SEARCH}
    # Weights that a fit learns itself make every run's loss its own; predictions sum distances.
    if settings.get("penalty_rounds") or summary["status"] == "predicted":
        return None
    source = summary["source"]
    read = ("sample_shape", "given_shape", "pad", "rate", "seconds", "weights", "weights_crc32")
    unscaled = source.get("no_scale", False)  # which earlier runs do not have
    about = [summary["method"], settings, unscaled, *map(source.get, read)]
    return json.dumps([*about, sorted(samples)], sort_keys=True)


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


def _has_stability(summary: Mapping[str, Any]) -> bool:
    """Whether a run has a stability of its own; predictions have none."""
    return "stability" in summary and summary["status"] != "predicted"


def _columns(comparison: Comparison) -> dict[str, list[str]]:
    """The columns of the table of runs, as texts by their names."""
    runs = [run.summary for run in comparison.runs]
    names = {"method": "method", "k": "k", "samples": "n"}
    columns = {"run": list(comparison.names)}
    columns |= {name: [str(run[key]) for run in runs] for name, key in names.items()}
    columns["loss"] = [f"{run['loss']:.6g}" for run in runs]
    if any(comparison.groups):
        groups = zip(comparison.groups, comparison.best, strict=True)
        columns["comparable"] = [f"{group}{', least' if best else ''}" for group, best in groups]
    if any(map(_has_stability, runs)):
        columns["stability"] = [f"{r['stability']:.3f}" if _has_stability(r) else "" for r in runs]
    columns["time"] = [f"{run['seconds']:.1f} s" for run in runs]
    for score in _scores(comparison):
        columns[SCORES[score]] = [f"{run[score]:.3f}" if score in run else "" for run in runs]
    return columns


def _notes(comparison: Comparison) -> list[str]:
    """Returns sentences on what the reader must know of the figures."""
    notes = [
        "Losses are compared within a letter only: there the method, its settings, K and the "
        "samples are the same."
        if any(comparison.groups)
        else "No two losses can be compared: that takes fits by the same method, settings and K of "
        "the same samples."
    ]
    if any(_has_stability(run.summary) for run in comparison.runs):
        notes.append(
            "The stability is how alike these clusters and those of single graphs are. Below 0.8 "
            "clusters are uncertain; among runs of one method, prefer the highest."
        )
    sizes = np.array([len(run.indices) for run in comparison.runs])
    if np.isnan(comparison.similarity).any():
        notes.append("Runs that share no samples have no adjusted Rand index.")
    elif (comparison.shared < np.maximum.outer(sizes, sizes)).any():
        notes.append("The adjusted Rand index is that over the samples which two runs share.")
    return notes


def _print(comparison: Comparison) -> None:
    screen, names = console(), _numbered(comparison)
    screen.print(text_table(_columns(comparison), left=2))
    matrix = {"adjusted Rand index": names}
    for number, values in enumerate(comparison.similarity.tolist(), start=1):
        matrix[str(number)] = ["-" if math.isnan(value) else f"{value:.3f}" for value in values]
    screen.print(text_table(matrix, left=1))
    for note in _notes(comparison):
        screen.print(note, style="dim")


def _numbered(comparison: Comparison) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(comparison.names, start=1)]


def _write_csv(path: Path, comparison: Comparison) -> None:
    columns = _columns(comparison)
    for name, values in zip(comparison.names, comparison.similarity.tolist(), strict=True):
        texts = ["" if math.isnan(value) else f"{value:.6g}" for value in values]
        columns[f"ARI with {name}"] = texts
    write_table(path, columns, zip(*columns.values(), strict=True))


def comparison_figure(comparison: Comparison) -> "Figure":
    """Draws the agreement between the clusters of runs, and their scores.

    Args:
        comparison: The comparison.

    Returns:
        A matplotlib figure: the matrix of adjusted Rand indices, and bars of the scores where there
        are any.
    """
    from matplotlib.figure import Figure

    scores, size = _scores(comparison), len(comparison.runs)
    panels = 2 if scores else 1
    figure = Figure(figsize=(1.6 + 4.6 * panels, 1.6 + 0.5 * max(4, size)), layout="constrained")
    matrix, *others = figure.subplots(1, panels, squeeze=False)[0]
    matrix.imshow(comparison.similarity, vmin=0.0, vmax=1.0, cmap="Blues")
    for (i, j), value in np.ndenumerate(comparison.similarity):
        text = "-" if math.isnan(value) else f"{value:.3f}"
        colour = "white" if value > 0.6 else "black"
        matrix.text(j, i, text, color=colour, ha="center", va="center", fontsize=8)
    numbers = [str(i + 1) for i in range(size)]
    matrix.set_xticks(range(size), numbers)
    names = [plain(name).replace("$", r"\$") for name in _numbered(comparison)]
    matrix.set_yticks(range(size), names)
    matrix.set_title("adjusted Rand index", fontsize=10)
    for panel in others:
        height = 0.8 / len(scores)
        for number, score in enumerate(scores):
            values = [run.summary.get(score, math.nan) for run in comparison.runs]
            places = np.arange(size) + (number - (len(scores) - 1) / 2) * height
            panel.barh(places, values, height, label=SCORES[score])
        panel.set_yticks(range(size), numbers)
        panel.invert_yaxis()
        panel.set_xlim(0.0, 1.0)
        panel.set_title("scores against the labels", fontsize=10)
        panel.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3)
    return figure


def comparison_page(comparison: Comparison) -> str:
    """A comparison as one self-contained HTML page.

    Args:
        comparison: The comparison.

    Returns:
        A complete HTML document.
    """
    runs, names = count(len(comparison.runs), "run"), _numbered(comparison)
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in _notes(comparison))
    cells = [
        ["<td>–</td>" if math.isnan(v) else shaded_cell(max(v, 0.0), f"{v:.3f}") for v in values]
        for values in comparison.similarity.tolist()
    ]
    numbers = map(str, range(1, len(names) + 1))
    matrix = shaded_table(numbers, zip(names, cells, strict=True), ("run", "run"))
    about = (
        '<p class="note">The adjusted Rand index between the clusters of two runs: 1 where they '
        "are the same, about 0 where they are independent. Labels play no part in it.</p>"
    )
    sheets = "".join(
        f'<figure><figcaption>{escape(name)}</figcaption><img src="'
        f'{data_uri(sheet.read_bytes(), "image/png")}" alt="Prototypes of {escape(run)}"></figure>'
        for name, run, saved in zip(names, comparison.names, comparison.runs, strict=True)
        if (sheet := saved.folder / "prototypes.png").exists()
    )
    sections = [
        section("figures", "Figures", f"{html_table(_columns(comparison))}{notes}"),
        section("ari", "Adjusted Rand index", matrix + about),
        section("sheets", "Prototypes", f'<div class="sheets">{sheets}</div>'),
    ]
    title = f"{runs} compared"
    return document("comparison", title, f"<h1>{title}</h1>", sections, icon=_ICON)
