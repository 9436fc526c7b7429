"""What a sweep tries, what is known of each trial without labels, and which is chosen."""

import contextlib
import dataclasses
import hashlib
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from diffclust import analysis, metrics
from diffclust.analysis import Grounds
from diffclust.cli.commands import make_model
from diffclust.cli.options import Fit
from diffclust.cli.runs import SWEEP_METADATA, partial_folder, refuse_unfinished
from diffclust.cli.samples import sample_arguments
from diffclust.data import Collection
from diffclust.image_source import checksum
from diffclust.methods import METHODS
from diffclust.models import AbstractModel, Result
from diffclust.models.selection import IS_POSITIVE, counted
from diffclust.parallel import Data
from diffclust.progress_bar import ProgressBar, is_on_terminal
from diffclust.solvers import PointClusters
from diffclust.storage import checkpoint
from diffclust.storage.snapshots import locked
from diffclust.storage.staging import read_object, staged_file

Criterion = Literal["elbow", "eigengap", "evidence"]
Clusters = Result | PointClusters | None

_STEADY, _UNSTEADY = 0.95, 0.8
"""Stabilities from which fits agree, and below which they differ."""


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """A fit of one of the settings that are compared.

    Attributes:
        name: Number of clusters, or the grid as rows × columns.
        position: Where it stands along the curve.
        options: The options of a fit of it.
        value: What the criterion looks at: the loss, the eigengap, or the evidence of an image.
        clusters: Its fit; or its clusters alone, of a graph that was fitted for more of them; None
            where these are not known.
        scores: Scores against the labels, where there are any; they play no part in the choice.
        stability: The adjusted Rand index between the fit and another one, from another seed; of
            spectral methods, between the graphs that were averaged. NaN where it is not known.
    """

    name: str
    position: float
    options: Fit
    value: float
    clusters: Clusters
    scores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    stability: float = math.nan

    @property
    def result(self) -> Result | None:
        """Its fit; None where only its eigengap was needed."""
        return self.clusters if isinstance(self.clusters, Result) else None

    @property
    def silhouette(self) -> float:
        """The mean of 1 - a / b, a and b the distances to the nearest and second-best cluster.

        The simplified silhouette (Hruschka, de Castro and Campello, 2004); NaN where the method
        has no distances, or one cluster. Of a graph, distances are those in its embedding.
        """
        clusters = self.clusters
        words = None if self.result is None else self.result.model.words
        if clusters is None or (words is not None and words.is_density):
            return math.nan
        own = _counted(clusters)
        nearest, margins = clusters.distances[own], clusters.margins[own]
        second = nearest + margins
        if not np.isfinite(second).all():
            return math.nan
        if words is not None and words.is_squared:
            nearest, second = np.sqrt(np.maximum(nearest, 0.0)), np.sqrt(np.maximum(second, 0.0))
        # Where both are nothing, a sample belongs to two clusters alike.
        shares = np.where(second > 0.0, nearest / np.where(second > 0.0, second, 1.0), 1.0)
        return float(np.mean(1.0 - shares))


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

    criterion: Criterion
    swept: str
    measure: str
    trials: Sequence[Trial]
    chosen: Trial | None
    reason: str

    def curve(self) -> dict[str, Any]:
        """The positions, values and names of a drawing, and which of them was chosen."""
        return {
            "positions": [trial.position for trial in self.trials],
            "values": [trial.value for trial in self.trials],
            "names": [trial.name for trial in self.trials],
            "chosen": None if self.chosen is None else self.chosen.position,
            "axis": self.swept,
            # Gaps are compared within one graph.
            "groups": [make_model(trial.options).removed for trial in self.trials],
        }


class Fitter:
    """Fits trials, and saves the fits beside the sweep until the sweep is written."""

    def __init__(
        self,
        fits: Sequence[Fit],
        dataset: Collection,
        bar: ProgressBar,
        stack: contextlib.ExitStack,
    ) -> None:
        """Looks for the fits of an interrupted sweep.

        Args:
            fits: The fits that are tried.
            dataset: The samples.
            bar: The progress bar.
            stack: Keeps other sweeps out of the folder of the fits until it is closed.

        Raises:
            ValueError: If fits are there and neither `--resume` nor `--overwrite` was given, they
                are of other samples or settings, or another sweep is making them.
        """
        self.dataset, self._bar, options = dataset, bar, fits[0]
        self.arguments: dict[str, Any] = sample_arguments(options, dataset)
        self.folder = partial_folder(Path(options.out).absolute())
        about = {name: getattr(options, name) for name in ("method", "seed", "chunk_size", "mask")}
        about["settings"] = {n: v for n, v in options.settings.items() if n != "landmarks"}
        about["samples"] = [*dataset.samples.shape, checksum(dataset.samples)]
        about |= {name: checksum(array) for name, array in self.arguments.items()}
        about, shown = json.loads(json.dumps(about)), repr(str(self.folder))
        self.folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(locked(self.folder))
        if not options.resume:
            if not options.overwrite:
                refuse_unfinished(self.folder, "fits of a sweep")
            for left in filter(Path.is_dir, self.folder.iterdir()):
                shutil.rmtree(left)
        # One that was killed before its first fit may not have described itself.
        if self.has_fits and read_object(self.folder / SWEEP_METADATA) != about:
            raise ValueError(f"{shown} holds fits of other samples or settings; remove it")
        with staged_file(self.folder / SWEEP_METADATA, overwrite=True) as file:
            file.write_text(json.dumps(about), "utf-8")
        try:
            self._frame = self._frame_of(make_model(max(fits, key=lambda fit: fit.clusters)))
        except BaseException:
            if not self.has_fits:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _frame_of(self, model: AbstractModel) -> dict[str, Any]:
        """The frame of all fits, where frames are tried: one, so that losses can be compared."""
        given = Data(self.dataset.samples, self.arguments.get("sample_weight"))
        if not model.tried(given):
            return {}
        settings = model.resolved(given).settings()
        return {name: settings[name] for name in ("register", "ground", "canvas")}

    @property
    def has_fits(self) -> bool:
        """Whether there are finished fits."""
        return any(path.is_dir() for path in self.folder.iterdir())

    def fit(self, options: Fit, name: str, number: int, total: int, **changed: Any) -> Result:
        """Fits a trial, or loads the saved fit.

        Args:
            options: The options of the fit.
            name: Name of the trial.
            number: Position of the fit among all fits.
            total: Number of all fits.
            **changed: Settings of the model that are replaced.

        Returns:
            The fit.
        """
        model, key = make_model(options), jax.random.key(options.seed)
        # The second fit of a trial, of one run, shares its part of the bar.
        runs = model.num_restarts
        first = runs / (runs + 1) if model.descriptor.solver == "lloyd" else 1.0
        if changed or self._frame:
            model = model.from_settings({**model.settings(), **self._frame, **changed})
        begin, share, restarts = number, first, None
        if changed:
            key = jax.random.fold_in(key, 1)
            begin, share, restarts = number + first, 1.0 - first, 1
        # By all that decides the result: a sweep that goes on may try other numbers of clusters.
        of = json.dumps([model.settings(), bool(changed)], sort_keys=True)
        saved = self.folder / hashlib.sha256(of.encode()).hexdigest()[:16]
        if saved.exists():
            try:
                return checkpoint.load(saved)
            except ValueError:  # It is damaged, and made again.
                shutil.rmtree(saved)
        place = f"({number + 1} of {total})"
        show = self._bar.following(
            f"{name} {place}, ", begin, total, share=share, restarts=restarts
        )
        given = {"chunk_size": options.chunk_size, "callback": show, **self.arguments}
        result = model.fit(self.dataset.samples, key=key, **given)
        checkpoint.save(saved, result)
        if not is_on_terminal() and not changed:
            done = f"{name} done, {model.criterion} {result.loss:.6g} {place}"
            print(done, file=sys.stderr, flush=True)
        return result

    def stability(self, options: Fit, result: Result, name: str, number: int, total: int) -> float:
        """The adjusted Rand index between a fit and a second one, of another seed and one run.

        Args:
            options: The options of the fit.
            result: The fit.
            name: Name of the trial.
            number: Position of the fit among all fits.
            total: Number of all fits.

        Returns:
            The adjusted Rand index; of spectral methods their own stability; NaN for methods of
            gradient steps, where another fit would take as long as the first.
        """
        if result.model.descriptor.solver != "lloyd":
            return result.outcome.figures.get("stability", math.nan)
        other = self.fit(options, f"{name}, again", number, total, num_restarts=1)
        both = (fit.assignments[_counted(result)] for fit in (result, other))
        return metrics.adjusted_rand_index(*both)


def choose(fits: Sequence[Fit], fitter: Fitter, *, by_grid: bool) -> Choice:
    """Fits all trials, and chooses one where the criterion is clear.

    Args:
        fits: The fits that are tried.
        fitter: Fits them.
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
    trials, rounding = [], 0.0
    for place, options in enumerate(fits):
        about = f"K = {options.clusters}", place, len(fits)
        result = fitter.fit(options, *about)
        rounding = max(rounding, _rounding_of(result))
        stability = fitter.stability(options, result, *about)
        trials.append(_trial(options, result.loss, fitter.dataset, result, stability=stability))
    counts, losses = zip(*[(t.options.clusters, t.value) for t in trials], strict=True)
    grounds = analysis.grounds_of_losses(counts, losses, rounding=rounding)
    # Other numbers whose fits agree, where those of the best one do not.
    steady = [t.name for t in trials if t.options.clusters > 1 and t.stability >= _STEADY]
    if grounds.best is not None and steady and trials[grounds.best].stability < _UNSTEADY:
        best = trials[grounds.best].name
        doubt = f" Two fits with K = {best} differ; those with K = {', '.join(steady)} agree."
        grounds = dataclasses.replace(grounds, reason=grounds.reason + doubt)
    return _choice("elbow", "clusters", "loss", trials, grounds)


def _rounding_of(result: Result) -> float:
    """A bound on the rounding of summed squared distances that are zero, a thousandfold."""
    prototypes = np.asarray(result.prototypes)
    eps = float(np.finfo(prototypes.dtype).eps)
    squares = np.nansum(np.square(prototypes, dtype=np.float64)) / len(prototypes)
    return 1e3 * eps**2 * len(result.assignments) * float(squares)


def _choice(
    criterion: Criterion, swept: str, measure: str, trials: Sequence[Trial], grounds: Grounds
) -> Choice:
    """The best trial, where the grounds for it are clear."""
    best = None if grounds.best is None else trials[grounds.best]
    chosen = best if grounds.is_clear else None
    return Choice(criterion, swept, measure, trials, chosen, grounds.reason)


def fits_of_graphs(fits: Sequence[Fit]) -> list[list[Fit]]:
    """Fits whose graphs are equal, in the order of their first ones.

    Args:
        fits: Fits of a method with graphs, in ascending order of K.

    Returns:
        For each graph its fits.
    """
    graphs: dict[tuple[int, ...], list[Fit]] = {}
    for options in fits:
        graphs.setdefault(make_model(options).removed, []).append(options)
    return list(graphs.values())


def _by_eigengap(fits: Sequence[Fit], fitter: Fitter) -> Choice:
    """For each graph, all gaps follow from the eigenvalues of one fit of most clusters."""
    dataset, graphs = fitter.dataset, fits_of_graphs(fits)
    trials, gaps, total = [], [], len(graphs) + 1
    for number, of in enumerate(graphs):
        # The same graph, cut into as many parts as are tried at most: what its gaps are beside.
        removed = make_model(of[0]).removed
        graph = {"num_removed": removed} if removed else {}
        largest = dataclasses.replace(fits[-1], settings={**of[0].settings, **graph})
        result = fitter.fit(largest, f"graph {number + 1}", number, total)
        own = analysis.eigengaps(result)
        weight = result.outcome.extras.get(IS_POSITIVE)
        cut = dataset if weight is None else dataset.take(np.flatnonzero(weight))
        for options in of:
            key = jax.random.key(options.seed)
            clusters = analysis.clusters_of_leading(result, options.clusters, key=key)
            trials.append(_trial(options, own.get(options.clusters, 0.0), cut, clusters))
            gaps.append(own)
    grounds = analysis.grounds_of_gaps([trial.options.clusters for trial in trials], gaps)
    assert grounds.best is not None
    # Chosen or not, it is fitted: its stability is grounds, too.
    best, place = trials[grounds.best], (len(graphs), total)
    result = fitter.fit(best.options, f"K = {best.name}", *place)
    stability = fitter.stability(best.options, result, best.name, *place)
    trials[grounds.best] = _trial(best.options, best.value, dataset, result, stability=stability)
    return _choice("eigengap", "clusters", "eigengap", trials, grounds)


def _by_evidence(fits: Sequence[Fit], fitter: Fitter) -> Choice:
    trials, pixels, dataset = [], None, fitter.dataset
    weight = fitter.arguments.get("sample_weight")
    for place, options in enumerate(fits):
        rows, columns = options.settings["landmarks"]
        result = fitter.fit(options, f"grid {rows}x{columns}", place, len(fits))
        value, pixels = analysis.evidence_of(
            result, dataset.samples, sample_weight=weight, pixels=pixels
        )
        about = {"name": f"{rows}×{columns}", "position": place + 1.0}
        trials.append(_trial(options, value, dataset, result, **about))
    grounds = analysis.grounds_of_evidence([t.name for t in trials], [t.value for t in trials])
    return _choice("evidence", "landmarks", "log-evidence of an image", trials, grounds)


def _counted(clusters: Result | PointClusters) -> np.ndarray:
    """The samples of a fit that have a positive weight; of clusters alone there are no others."""
    if isinstance(clusters, Result):
        return counted(clusters.outcome)
    return np.arange(len(clusters.assignments))


def _trial(
    options: Fit, value: float, dataset: Collection, clusters: Clusters, **more: Any
) -> Trial:
    """A trial with its scores; it is named by its number of clusters where no name is given."""
    about = {"name": str(options.clusters), "position": float(options.clusters), **more}
    if clusters is not None and dataset.labels is not None:
        own = _counted(clusters)
        about["scores"] = metrics.scores(dataset.labels[own], clusters.assignments[own])
    return Trial(options=options, value=float(value), clusters=clusters, **about)
