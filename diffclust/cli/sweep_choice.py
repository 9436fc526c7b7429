"""Fits for several numbers of clusters or landmark grids, and the choice among them."""

import dataclasses
import re
import sys
from collections.abc import Sequence
from typing import Any, Literal

import jax
import numpy as np

from diffclust import metrics
from diffclust.analysis import evidence_of
from diffclust.cli.commands import make_model
from diffclust.cli.options import Fit, Sweep, parse_grid
from diffclust.cli.progress_bar import ProgressBar
from diffclust.data import Collection
from diffclust.methods import METHODS
from diffclust.models import Result
from diffclust.plotting import elbow
from diffclust.solvers import Progress

_MOST_TRIALS = 100


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
    result: Result | None
    scores: dict[str, float]


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
    trials: tuple[Trial, ...]
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
    base: dict[str, Any] = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(Sweep)
        if field.name not in ("clusters", "grids")
    }
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
    for number, options in enumerate(fits):
        result = _fit(options, dataset, bar, f"K = {options.clusters}", number, len(fits))
        trials.append(_trial(options, result.loss, result, dataset))
    chosen = elbow([t.options.clusters for t in trials], [t.value for t in trials])
    if chosen is None:
        reason = (
            "The loss has no elbow over these K: it takes at least three, and a bend. Nothing was "
            "chosen; try other numbers of clusters, or choose by eye."
        )
        return Choice("elbow", "clusters", "loss", tuple(trials), None, reason)
    (best,) = (trial for trial in trials if trial.options.clusters == chosen)
    reason = (
        f"At K = {chosen} the loss lies farthest below the straight line between its ends (its "
        f"elbow), by {_depth(trials, best):.0%} of its whole fall: up to there each cluster more "
        "gains much, from there on little. Data without any clusters reach 25 to 45 % too, so look "
        "at the curve. The choice depends on the range of K that was tried."
    )
    if chosen in (trials[0].options.clusters, trials[-1].options.clusters):
        reason += " It stands at the end of the range: try a wider one."
    return Choice("elbow", "clusters", "loss", tuple(trials), best, reason)


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
    gaps = -np.diff(np.asarray(result.outcome.extras["eigenvalues"], np.float64))
    trials = []
    for options in fits:
        gap = gaps[options.clusters - 1] if options.clusters <= len(gaps) else 0.0
        trials.append(_trial(options, gap, None, dataset))
    # One part is what every connected graph has; its gap says nothing of clusters.
    several = [trial for trial in trials if trial.options.clusters > 1]
    best = max(several, key=lambda trial: trial.value)
    if best.options != fits[-1]:
        result = _fit(best.options, dataset, bar, f"K = {best.name}", 1, 2)
    chosen = _trial(best.options, best.value, result, dataset)
    trials = [chosen if trial is best else trial for trial in trials]
    reason = (
        f"The widest gap between eigenvalues of the graph, {chosen.value:.4g}, lies between number "
        f"{chosen.name} and the next: the graph falls into {chosen.name} parts more clearly than "
        "into another number that was tried."
    )
    return Choice("eigengap", "clusters", "eigengap", tuple(trials), chosen, reason)


def _by_evidence(fits: Sequence[Fit], dataset: Collection, bar: ProgressBar) -> Choice:
    trials, pixels = [], None
    for number, options in enumerate(fits):
        rows, columns = options.settings["landmarks"]
        result = _fit(options, dataset, bar, f"grid {rows}x{columns}", number, len(fits))
        value, pixels = evidence_of(result, dataset.samples, pixels=pixels)
        trial = _trial(options, value, result, dataset)
        trials.append(dataclasses.replace(trial, name=f"{rows}×{columns}", position=number + 1.0))
    best = max(trials, key=lambda trial: trial.value)
    reason = (
        f"The log-evidence of an image is greatest for a grid of {best.name}, {best.value:.4g}. It "
        "weighs how well the warps fit against how much they could fit; the loss alone falls with "
        "every landmark more, and cannot choose. Where it is nearly flat, the smaller grid is the "
        "quicker one."
    )
    measure = "log-evidence of an image"
    return Choice("evidence", "landmarks", measure, tuple(trials), best, reason)


def _fit(
    options: Fit, dataset: Collection, bar: ProgressBar, name: str, number: int, total: int
) -> Result:
    model = make_model(options)

    def show(progress: Progress) -> None:
        text = f"{name} ({number + 1} of {total}), {bar.describe(progress)}"
        bar.show(text, progress.done, progress.total)

    key, chunk_size = jax.random.key(options.seed), options.chunk_size
    result = model.fit(dataset.samples, key=key, chunk_size=chunk_size, callback=show)
    if not sys.stderr.isatty():
        done = f"{name} done, {model.criterion} {result.loss:.6g}"
        print(f"{done} ({number + 1} of {total})", file=sys.stderr, flush=True)
    return result


def _trial(options: Fit, value: float, result: Result | None, dataset: Collection) -> Trial:
    scores = {}
    if result is not None and dataset.labels is not None:
        scores = metrics.scores(dataset.labels, result.assignments)
    count = options.clusters
    return Trial(str(count), float(count), options, float(value), result, scores)
