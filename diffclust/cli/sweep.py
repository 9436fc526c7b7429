"""`diffclust sweep`: tries settings, chooses one without labels, and writes why."""

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from diffclust import metrics
from diffclust.analysis import evidence_of
from diffclust.cli.commands import check_options, make_model, write_run
from diffclust.cli.options import Fit, Sweep, parse_grid
from diffclust.cli.progress_bar import ProgressBar
from diffclust.cli.runs import environment, new_run, peak_memory_mb, write_summary, write_table
from diffclust.cli.samples import check_samples, inputs_of, load_samples
from diffclust.cli.summary import console, text_table
from diffclust.data import Collection
from diffclust.methods import METHODS
from diffclust.models import Result
from diffclust.plotting import criterion_chart, criterion_curve, elbow
from diffclust.report.page import document, section, svg_icon, table
from diffclust.report.sections import prototype_row
from diffclust.report.text import SCORES, count, duration, escape, number, whole
from diffclust.solvers import Progress
from diffclust.storage import checkpoint

CHOSEN = "chosen"
"""Folder of the run that was chosen, within that of the sweep."""

_ICON = svg_icon("0 0 8 8", '<path fill="none" stroke="#2f6690" d="M1 1Q2 6 7 7"/>')

_MOST_PROTOTYPES = 40

_MOST_ROWS = 30

_MOST_TRIALS = 100

_OWN = ("clusters", "grids")
"""Options that say what is tried; all others are those of the fits."""


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One setting.

    Attributes:
        name: Number of clusters, or the grid as rows × columns.
        position: Where it stands along the curve.
        options: The options of a fit of it.
        value: What the criterion looks at: the loss, the eigengap, or the evidence of an image.
        result: Its fit; None where only its eigengap was needed.
        scores: Scores against the labels, where there are any; they play no part in the choice.
    """

    name: str
    position: float
    options: Fit
    value: float
    result: Result | None = None
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Choice:
    """All trials, and which was chosen.

    Attributes:
        criterion: What was looked at.
        swept: What was varied: `"clusters"` or `"landmarks"`.
        measure: What the values are.
        trials: The trials, in order.
        chosen: The one that was chosen, fitted; None where nothing speaks for any.
        reason: Why, in a sentence or two.
    """

    criterion: Literal["elbow", "eigengap", "evidence"]
    swept: str
    measure: str
    trials: Sequence[Trial]
    chosen: Trial | None
    reason: str

    def curve(self) -> dict[str, Any]:
        """What a drawing of the values needs: positions, values, names, and which was chosen."""
        return {
            "positions": [trial.position for trial in self.trials],
            "values": [trial.value for trial in self.trials],
            "names": [trial.name for trial in self.trials],
            "chosen": None if self.chosen is None else self.chosen.position,
            "axis": self.swept,
        }


def fits_of(options: Sweep) -> list[Fit]:
    """What is tried: a fit each.

    Args:
        options: What was asked for.

    Returns:
        At least two, in ascending order.

    Raises:
        ValueError: If they are none, too few or too many, or not for this method.
    """
    counts = _counts(options.clusters)
    base = {name: value for name, value in vars(options).items() if name not in _OWN}
    if options.grids is None:
        if len(counts) < 2:
            raise ValueError(
                f"-k must be at least two numbers, such as 2-12 or 2,4,8, not {options.clusters!r};"
                " for one use 'diffclust fit'"
            )
        return [Fit(clusters=count, **base) for count in counts]
    if not METHODS[options.method].has_evidence:
        raise ValueError(f"{options.method} has no landmark grids; leave out --grids")
    if "landmarks" in options.settings:
        raise ValueError("give either --grids or --landmarks, not both")
    if len(counts) != 1:
        raise ValueError(f"with --grids, -k must be one number, not {options.clusters!r}")
    texts = options.grids.split(",")
    grids = {parse_grid(text, "grids", "3,5,7x5 (rows x columns)") for text in texts}
    if len(grids) < 2:
        raise ValueError(
            f"--grids must be at least two grids, such as 3,5,7, not {options.grids!r}"
        )
    fit = Fit(clusters=counts[0], **base)
    return [
        dataclasses.replace(fit, settings={**options.settings, "landmarks": grid})
        for grid in sorted(grids, key=lambda grid: (grid[0] * grid[1], grid))
    ]


def _counts(text: str) -> list[int]:
    """Reads `"2-12"`, `"2,4,8"` or `"2-4,8"`."""
    matches = [re.fullmatch("([0-9]{1,6})(?:-([0-9]{1,6}))?", p.strip()) for p in text.split(",")]
    counts: set[int] = set()
    for match in matches:
        if None in matches or match is None:
            raise ValueError(f"-k must be like 2-12 or 2,4,8, not {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"-k must go up, as in {last}-{first}, not {match[0]!r}")
        counts |= {*range(first, last + 1)[: _MOST_TRIALS + 1]}
    if len(counts) > _MOST_TRIALS:
        raise ValueError(f"-k must be at most {_MOST_TRIALS} numbers; give fewer, as in 2,4,8")
    return sorted(counts)


def choose(fits: Sequence[Fit], dataset: Collection, bar: ProgressBar, *, by_grid: bool) -> Choice:
    """Fits what has to be fitted, and chooses.

    Args:
        fits: What is tried.
        dataset: The samples.
        bar: Shows the progress.
        by_grid: Whether landmark grids are tried, not numbers of clusters.

    Returns:
        The choice.

    Raises:
        ValueError: If a setting cannot be fitted.
        FitError: If a fit breaks down.
    """
    if by_grid:
        return _by_evidence(fits, dataset, bar)
    if METHODS[fits[0].method].selection == "eigengap":
        return _by_eigengap(fits, dataset, bar)
    return _by_elbow(fits, dataset, bar)


def _by_elbow(fits: Sequence[Fit], dataset: Collection, bar: ProgressBar) -> Choice:
    trials = []
    for place, options in enumerate(fits):
        result = _fit(options, dataset, bar, f"K = {options.clusters}", place, len(fits))
        trials.append(_trial(options, result.loss, dataset, result))
    chosen = elbow([t.options.clusters for t in trials], [t.value for t in trials])
    if chosen is None:
        reason = (
            "The loss has no elbow over these K: it takes at least three, and a bend. Nothing was "
            "chosen; try other numbers of clusters, or choose by eye."
        )
        return Choice("elbow", "clusters", "loss", trials, None, reason)
    (best,) = (trial for trial in trials if trial.options.clusters == chosen)
    reason = (
        f"At K = {chosen} the loss lies farthest below the straight line between its ends (its "
        f"elbow), by {_depth(trials, best):.0%} of its whole fall: up to there each cluster more "
        "gains much, from there on little. Data without any clusters reach 25 to 45 % too, so look "
        "at the curve. The choice depends on the range of K that was tried."
    )
    if best in (trials[0], trials[-1]):
        reason += " It stands at the end of the range: try a wider one."
    return Choice("elbow", "clusters", "loss", trials, best, reason)


def _depth(trials: Sequence[Trial], elbow: Trial) -> float:
    """How far a loss lies below the chord, as a share of the whole fall.

    Without clusters losses go like K^(-2/d) in d dimensions (Zador, 1982): for K from 2 to 14 that
    reaches 0.45 in the plane and 0.24 in very many dimensions.
    """
    first, last = trials[0], trials[-1]
    share = (elbow.position - first.position) / (last.position - first.position)
    fall = first.value - last.value
    return (first.value - elbow.value) / fall - share if fall > 0.0 else 0.0


def _by_eigengap(fits: Sequence[Fit], dataset: Collection, bar: ProgressBar) -> Choice:
    """All gaps follow from the eigenvalues of the fit of most clusters."""
    result = _fit(fits[-1], dataset, bar, f"K = {fits[-1].clusters}", 0, 2)
    eigenvalues = np.asarray(result.outcome.extras["eigenvalues"], np.float64)
    gaps = dict(enumerate(-np.diff(eigenvalues), start=1))
    trials = [_trial(options, gaps.get(options.clusters, 0.0), dataset) for options in fits]
    # One part is what every connected graph has; its gap says nothing of clusters.
    best = max((t for t in trials if t.options.clusters > 1), key=lambda trial: trial.value)
    if best is not trials[-1]:
        result = _fit(best.options, dataset, bar, f"K = {best.name}", 1, 2)
    chosen = _trial(best.options, best.value, dataset, result)
    trials = [chosen if trial is best else trial for trial in trials]
    reason = (
        f"The widest gap between eigenvalues of the graph, {chosen.value:.4g}, lies between number "
        f"{chosen.name} and the next: the graph falls into {chosen.name} parts more clearly than "
        "into another number that was tried."
    )
    return Choice("eigengap", "clusters", "eigengap", trials, chosen, reason)


def _by_evidence(fits: Sequence[Fit], dataset: Collection, bar: ProgressBar) -> Choice:
    trials, pixels = [], None
    for place, options in enumerate(fits):
        rows, columns = options.settings["landmarks"]
        result = _fit(options, dataset, bar, f"grid {rows}x{columns}", place, len(fits))
        value, pixels = evidence_of(result, dataset.samples, pixels=pixels)
        trial = _trial(options, value, dataset, result)
        trials.append(dataclasses.replace(trial, name=f"{rows}×{columns}", position=place + 1.0))
    best = max(trials, key=lambda trial: trial.value)
    reason = (
        f"The log-evidence of an image is greatest for a grid of {best.name}, {best.value:.4g}. It "
        "weighs how well the warps fit against how much they could fit; the loss alone falls with "
        "every landmark more, and cannot choose. Where it is nearly flat, the smaller grid is the "
        "quicker one."
    )
    return Choice("evidence", "landmarks", "log-evidence of an image", trials, best, reason)


def _fit(
    options: Fit, dataset: Collection, bar: ProgressBar, name: str, number: int, total: int
) -> Result:
    model, place = make_model(options), f"({number + 1} of {total})"

    def show(progress: Progress) -> None:
        bar.show(f"{name} {place}, {bar.describe(progress)}", progress.done, progress.total)

    key, chunk_size = jax.random.key(options.seed), options.chunk_size
    result = model.fit(dataset.samples, key=key, chunk_size=chunk_size, callback=show)
    if not sys.stderr.isatty():
        done = f"{name} done, {model.criterion} {result.loss:.6g} {place}"
        print(done, file=sys.stderr, flush=True)
    return result


def _trial(options: Fit, value: float, dataset: Collection, result: Result | None = None) -> Trial:
    scores = {}
    if result is not None and dataset.labels is not None:
        scores = metrics.scores(dataset.labels, result.assignments)
    count = options.clusters
    return Trial(str(count), float(count), options, float(value), result, scores)


def sweep(options: Sweep) -> None:
    """Tries settings and writes a folder with a report, a curve, a table and the chosen run.

    Args:
        options: What was asked for.

    Raises:
        ValueError: If it cannot be done.
        FitError: If a fit breaks down.
        OSError: If something cannot be read or written.
    """
    check_options(options)
    fits = fits_of(options)
    models = [make_model(fit) for fit in fits]
    by_grid = options.grids is not None
    inputs, replace = inputs_of(fits[0]), options.overwrite
    with (
        new_run(options.out, overwrite=replace, inputs=inputs, command="sweep") as folder,
        ProgressBar(models[0].num_restarts) as bar,
    ):
        dataset = load_samples(fits[0], models[0], bar)
        # Before hours are spent on the small ones.
        for model in models if by_grid else models[-1:]:
            check_samples(model, dataset)
        choice = choose(fits, dataset, bar, by_grid=by_grid)
        bar.show("writing")
        _write(folder, choice, dataset, options)
    _print(options, choice)


def _write(folder: Path, choice: Choice, dataset: Collection, options: Sweep) -> None:
    figure = criterion_curve(**choice.curve(), label=choice.measure)
    figure.savefig(folder / "curve.png", format="png", dpi=150)
    columns, scores = _columns(choice, str, "{:.3f}".format, str)
    columns["chosen"] = [str(int(trial is choice.chosen)) for trial in choice.trials]
    columns |= scores
    write_table(folder / "sweep.csv", columns, zip(*columns.values(), strict=True))
    if choice.chosen is not None:
        result, chosen = choice.chosen.result, folder / CHOSEN
        assert result is not None
        chosen.mkdir()
        checkpoint.save(chosen / "model", result)
        write_run(chosen, result, dataset, choice.chosen.options)
    (folder / "report.html").write_text(sweep_page(choice, dataset, options), "utf-8")
    summary = {
        "method": options.method,
        "command": "sweep",
        "n": len(dataset),
        "swept": choice.swept,
        "criterion": choice.criterion,
        "values": {trial.name: trial.value for trial in choice.trials},
        "chosen": None if choice.chosen is None else choice.chosen.name,
        "reason": choice.reason,
        "seed": options.seed,
        "source": {name: getattr(options, name) for name in ("source", "split", "limit")},
        "peak_memory_mb": peak_memory_mb(),
        **environment(),
    }
    write_summary(folder, summary)


Columns = dict[str, list[str]]


def _columns(
    choice: Choice,
    value: Callable[[float], str],
    seconds: Callable[[float], str] = str,
    score: Callable[[float], str] = "{:.3f}".format,
) -> tuple[Columns, Columns]:
    """Columns of texts by their names, and those of the scores, if there are any."""
    trials = choice.trials
    outcomes = [trial.result and trial.result.outcome for trial in trials]
    columns = {
        choice.swept: [trial.name for trial in trials],
        choice.measure: [value(trial.value) for trial in trials],
        "loss": [value(outcome.loss) if outcome else "" for outcome in outcomes],
        "seconds": [seconds(outcome.seconds) if outcome else "" for outcome in outcomes],
    }
    names = next((trial.scores for trial in trials if trial.scores), ())
    scores = {n: [score(t.scores[n]) if t.scores else "" for t in trials] for n in names}
    return columns, scores


def _marked(choice: Choice, *columns: Columns) -> Columns:
    """Columns for readers: the chosen trial is marked in the last one."""
    marks = {"": ["chosen" if trial is choice.chosen else "" for trial in choice.trials]}
    return functools.reduce(dict.__or__, [*columns, marks])


def _print(options: Sweep, choice: Choice) -> None:
    screen = console()
    columns, scores = _columns(choice, "{:.6g}".format)
    shown = {name: columns[name] for name in (choice.swept, choice.measure)}
    screen.print(text_table(_marked(choice, shown, scores)))
    screen.print(choice.reason)
    if scores:
        screen.print("(the choice never saw the labels)")
    places = {"report": "report.html", "run": CHOSEN if choice.chosen else ""}
    for what, name in places.items():
        if name:
            screen.print(f"{what}: {Path(options.out) / name}", markup=False, soft_wrap=True)


def sweep_page(choice: Choice, dataset: Collection, options: Sweep) -> str:
    """A sweep as one self-contained HTML page: the curve, the choice and why, all prototypes.

    Args:
        choice: What was tried and chosen.
        dataset: The samples.
        options: What was asked for.

    Returns:
        A whole HTML document.
    """
    by_clusters, chosen = choice.swept == "clusters", choice.chosen
    what = "numbers of clusters" if by_clusters else "landmark grids"
    heading, link = "Nothing was chosen", ""
    if chosen is not None:
        named = f"{escape(chosen.name)} landmarks"
        heading = f"Chosen: {count(chosen.options.clusters, 'cluster') if by_clusters else named}"
        link = (
            f'<p class="note"><a href="{CHOSEN}/report.html">The report of the chosen run</a></p>'
        )
    chart = criterion_chart(**choice.curve(), measure=choice.measure)
    reason = f"<p>{escape(choice.reason)}</p>{link}"
    columns, scores = _columns(choice, functools.partial(number, digits=5), duration)
    shown = {{"seconds": "time"}.get(name, name): texts for name, texts in columns.items()}
    named = {SCORES.get(name, name): texts for name, texts in scores.items()}
    note = '<p class="note">The choice never saw the labels.</p>' if scores else ""
    rows = _prototype_rows(choice)
    sections = [
        section("choice", heading, f'<div class="run"><div>{chart}</div><div>{reason}</div></div>'),
        section("trials", "All that was tried", table(_marked(choice, shown, named)) + note),
        *[section("prototypes", "Prototypes", f'<div class="starts">{rows}</div>')] * bool(rows),
    ]
    header = (
        f'<h1>{escape(dataset.name)}</h1><p class="lead">{whole(len(choice.trials))} {what} tried '
        f"with {escape(METHODS[options.method].title)} on {count(len(dataset), dataset.noun)}, "
        f"seed {options.seed}.</p>"
    )
    small = dataset.samples.ndim == 4 and dataset.samples.shape[1] <= 64
    classes = ["pixels"] * small
    title = f"{dataset.name}, {what}"
    return document("sweep", title, header, sections, icon=_ICON, css_classes=classes)


def _prototype_rows(choice: Choice) -> str:
    """The prototypes of the trials, where they are images and not too many."""
    rows = []
    for trial in choice.trials:
        prototypes = np.zeros(0) if trial.result is None else trial.result.prototypes
        if prototypes.ndim == 4 and len(prototypes) <= _MOST_PROTOTYPES:
            mark = "chosen" if trial is choice.chosen else ""
            rows.append(prototype_row(f"{choice.swept}: {trial.name}", mark, prototypes))
    return "".join(rows[:_MOST_ROWS])
