"""What a sweep tries, what is known of each trial without labels, and which is chosen."""

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from diffclust import metrics
from diffclust.analysis import clusters_of_leading, evidence_of
from diffclust.cli.commands import make_model
from diffclust.cli.options import Fit
from diffclust.cli.runs import checksum, partial_folder, refuse_broken_off
from diffclust.cli.samples import sample_arguments
from diffclust.data import Collection
from diffclust.methods import METHODS
from diffclust.models import Result
from diffclust.plotting import elbow
from diffclust.progress_bar import ProgressBar
from diffclust.solvers import PointClusters
from diffclust.storage import checkpoint
from diffclust.storage.staging import read_object

_CLEAR_GAP = 1.5
"""How many times as wide as the second widest gap one must be that is chosen."""

_ABOUT = "about.json"
"""What says which sweep the kept fits are of."""


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One setting.

    Attributes:
        name: Number of clusters, or the grid as rows × columns.
        position: Where it stands along the curve.
        options: The options of a fit of it.
        value: What the criterion looks at: the loss, the eigengap, or the evidence of an image.
        result: Its fit; None where only its eigengap was needed.
        clusters: Of a graph that was fitted for more clusters, its own; None where they are the
            fit's, or not known.
        scores: Scores against the labels, where there are any; they play no part in the choice.
        stability: The adjusted Rand index between the fit and another one, from another seed; of
            spectral methods, between the graphs that were averaged. NaN where it is not known.
    """

    name: str
    position: float
    options: Fit
    value: float
    result: Result | None = None
    clusters: PointClusters | None = None
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stability: float = math.nan

    @property
    def silhouette(self) -> float:
        """The mean of 1 - a / b, a and b the distances to the nearest and second-best cluster.

        The simplified silhouette (Hruschka, de Castro and Campello, 2004); NaN where the method
        has no distances, or one cluster. Of a graph, distances are those in its embedding.
        """
        if self.result is not None and self.result.model.words.is_density:
            return math.nan
        clusters = self.result or self.clusters
        if clusters is None:
            return math.nan
        nearest, second = clusters.distances, clusters.distances + clusters.margins
        if not np.isfinite(second).all():
            return math.nan
        return float(np.mean(1.0 - nearest / np.maximum(second, np.finfo(second.dtype).tiny)))


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


class Fitter:
    """Fits trials, and keeps what was fitted beside the sweep until that is written."""

    def __init__(self, fits: Sequence[Fit], dataset: Collection, bar: ProgressBar) -> None:
        """Looks for the fits of a sweep that was broken off.

        Args:
            fits: What is tried.
            dataset: The samples.
            bar: Shows the progress.

        Raises:
            ValueError: If fits are there and neither `--resume` nor `--overwrite` was given, or
                they are of other samples or settings.
        """
        self.dataset, self._bar, options = dataset, bar, fits[0]
        self._weights: dict[str, Any] = sample_arguments(options, dataset)
        self.folder = partial_folder(Path(options.out).absolute())
        about = {name: getattr(options, name) for name in ("method", "seed", "chunk_size", "mask")}
        about["settings"] = {n: v for n, v in options.settings.items() if n != "landmarks"}
        about["samples"] = [*dataset.samples.shape, checksum(dataset.samples)]
        about |= {name: checksum(array) for name, array in self._weights.items()}
        about, shown = json.loads(json.dumps(about)), repr(str(self.folder))
        if self.folder.exists() and not options.resume:
            refuse_broken_off(self.folder, "fits of a sweep", allowed=options.overwrite)
            shutil.rmtree(self.folder)
        if self.folder.exists() and read_object(self.folder / _ABOUT) != about:
            raise ValueError(f"{shown} holds fits of other samples or settings; remove it")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / _ABOUT).write_text(json.dumps(about), "utf-8")

    def fit(self, options: Fit, name: str, number: int, total: int, **changed: Any) -> Result:
        """Fits a trial, or finds it done.

        Args:
            options: The options of the fit.
            name: What it is called, without characters that no file has.
            number: Its position among the fits.
            total: How many there are.
            **changed: Settings of the model that are others.

        Returns:
            The fit.
        """
        kept, place = self.folder / name.replace(" ", ""), f"({number + 1} of {total})"
        if kept.exists():
            return checkpoint.load(kept)
        model, key = make_model(options), jax.random.key(options.seed)
        if changed:
            model = model.from_settings({**model.settings(), **changed})
            key = jax.random.fold_in(key, 1)
        size, show = options.chunk_size, self._bar.following(f"{name} {place}, ")
        samples = self.dataset.samples
        result = model.fit(samples, key=key, chunk_size=size, callback=show, **self._weights)
        checkpoint.save(kept, result)
        if not sys.stderr.isatty() and not changed:
            done = f"{name} done, {model.criterion} {result.loss:.6g} {place}"
            print(done, file=sys.stderr, flush=True)
        return result

    def stability(self, options: Fit, result: Result, name: str, number: int, total: int) -> float:
        """How much a second fit agrees, from another seed and of one run.

        Args:
            options: The options of the fit.
            result: The fit.
            name: What it is called.
            number: Its position among the fits.
            total: How many there are.

        Returns:
            The adjusted Rand index; of spectral methods their own stability; NaN for methods of
            gradient steps, where another fit would take as long as the first.
        """
        if result.model.descriptor.solver != "lloyd":
            return result.outcome.figures.get("stability", math.nan)
        other = self.fit(options, f"{name}, again", number, total, num_restarts=1)
        return metrics.adjusted_rand_index(result.assignments, other.assignments)


def choose(fits: Sequence[Fit], fitter: Fitter, *, by_grid: bool) -> Choice:
    """Fits what has to be fitted, and chooses where there are grounds to.

    Args:
        fits: What is tried.
        fitter: Fits it.
        by_grid: Whether landmark grids are tried, not numbers of clusters.

    Returns:
        The choice.

    Raises:
        ValueError: If a setting cannot be fitted.
        FitError: If a fit breaks down.
    """
    if by_grid:
        return _by_evidence(fits, fitter)
    if METHODS[fits[0].method].selection == "eigengap":
        return _by_eigengap(fits, fitter)
    return _by_elbow(fits, fitter)


def _by_elbow(fits: Sequence[Fit], fitter: Fitter) -> Choice:
    trials = []
    for place, options in enumerate(fits):
        about = f"K = {options.clusters}", place, len(fits)
        result = fitter.fit(options, *about)
        trial = _trial(options, result.loss, fitter.dataset, result)
        stability = fitter.stability(options, result, *about)
        trials.append(dataclasses.replace(trial, stability=stability))
    chosen = elbow([t.options.clusters for t in trials], [t.value for t in trials])
    if chosen is None:
        reason = (
            "No clear choice: the loss has no elbow over these K, of which it takes at least "
            "three. Try other numbers of clusters, or choose by eye."
        )
        return Choice("elbow", "clusters", "loss", trials, None, reason)
    (best,) = (trial for trial in trials if trial.options.clusters == chosen)
    counts = np.array([trial.position for trial in trials])
    depth, smooth = _depth(counts, [trial.value for trial in trials]), _depth(counts, 1.0 / counts)
    reason = (
        f"At K = {chosen} the loss lies farthest below the straight line between its ends (its "
        f"elbow), by {depth:.0%} of its fall; over this range data without any clusters "
        f"reach {smooth:.0%}, where they are flat, and less in more dimensions"
    )
    if depth <= smooth:
        reason = f"No clear choice. {reason}. Look at the curve, the silhouette and the stability."
        return Choice("elbow", "clusters", "loss", trials, None, reason)
    reason += ". The choice depends on the range of K that was tried."
    return Choice("elbow", "clusters", "loss", trials, best, reason)


def _depth(counts: np.ndarray, losses: Sequence[float] | np.ndarray) -> float:
    """How far losses lie below the chord at most, as a share of their fall.

    Without clusters losses go like K^(-2/d) in d dimensions (Zador, 1982), which is deepest in the
    plane, where it is 1 / K.
    """
    values = np.minimum.accumulate(np.asarray(losses, np.float64))
    fall, share = values[0] - values[-1], (counts - counts[0]) / (counts[-1] - counts[0])
    return float(np.max((values[0] - values) / fall - share)) if fall > 0.0 else 0.0


def fits_of_graphs(fits: Sequence[Fit]) -> list[list[Fit]]:
    """Fits whose graphs are equal, in the order of their first ones.

    Args:
        fits: Fits of a method with graphs, in ascending order of K.

    Returns:
        For each graph its fits; all their eigengaps follow from the last one.
    """
    graphs: dict[tuple[int, ...], list[Fit]] = {}
    for options in fits:
        graphs.setdefault(make_model(options).removed, []).append(options)
    return list(graphs.values())


def _by_eigengap(fits: Sequence[Fit], fitter: Fitter) -> Choice:
    """For each graph, all gaps follow from the eigenvalues of its fit of most clusters."""
    dataset, graphs = fitter.dataset, fits_of_graphs(fits)
    trials, total = [], len(graphs) + 1
    for number, of in enumerate(graphs):
        result = fitter.fit(of[-1], f"K = {of[-1].clusters}", number, total)
        eigenvalues = np.asarray(result.outcome.extras["eigenvalues"], np.float64)
        gaps = dict(enumerate(-np.diff(eigenvalues), start=1))
        for options in of:
            key = jax.random.key(options.seed)
            clusters = clusters_of_leading(result, options.clusters, key=key)
            trials.append(_trial(options, gaps.get(options.clusters, 0.0), dataset, clusters))
    # One part is what every connected graph has; its gap says nothing of clusters.
    best = max((t for t in trials if t.options.clusters > 1), key=lambda trial: trial.value)
    others = (t.value for t in trials if t is not best and t.options.clusters > 1)
    second = max(others, default=0.0)
    reason = (
        f"The widest gap between eigenvalues of the graph, {best.value:.4g}, lies between number "
        f"{best.name} and the next, and the second widest is {second:.4g}"
    )
    if best is trials[-1] or best.value < _CLEAR_GAP * second:
        reason = (
            f"No clear choice. {reason}. A clear one is {_CLEAR_GAP:g} times as wide, and does not "
            "stand at the end of the range; try other numbers of clusters, or choose by eye."
        )
        return Choice("eigengap", "clusters", "eigengap", trials, None, reason)
    place = f"K = {best.name}", len(graphs), total
    result = fitter.fit(best.options, *place)
    chosen = _trial(best.options, best.value, dataset, result)
    stability = fitter.stability(best.options, result, *place)
    chosen = dataclasses.replace(chosen, stability=stability)
    trials = [chosen if trial is best else trial for trial in trials]
    reason += (
        f": the graph falls into {best.name} parts more clearly than into another number that was "
        "tried."
    )
    return Choice("eigengap", "clusters", "eigengap", trials, chosen, reason)


def _by_evidence(fits: Sequence[Fit], fitter: Fitter) -> Choice:
    trials, pixels, dataset = [], None, fitter.dataset
    for place, options in enumerate(fits):
        rows, columns = options.settings["landmarks"]
        result = fitter.fit(options, f"grid {rows}x{columns}", place, len(fits))
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
    if best is trials[-1]:
        reason += " It stands at the end of the range: try finer grids."
    return Choice("evidence", "landmarks", "log-evidence of an image", trials, best, reason)


def _trial(
    options: Fit, value: float, dataset: Collection, clusters: Result | PointClusters | None
) -> Trial:
    scores, count = {}, options.clusters
    if clusters is not None and dataset.labels is not None:
        scores = metrics.scores(dataset.labels, clusters.assignments)
    fitted = isinstance(clusters, Result)
    own = {"result" if fitted else "clusters": clusters, "scores": scores}
    return Trial(str(count), float(count), options, float(value), **own)
