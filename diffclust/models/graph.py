"""Normalised cuts of neighbour graphs, for samples of any kind under an invariant distance."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust import _validation
from diffclust._random import split_key
from diffclust.alignment import AbstractAligner, InvariantDistance, PreparedDistance
from diffclust.distances import AbstractDistance
from diffclust.graphs import (
    CandidateDistances,
    Neighbours,
    SpectralEmbedding,
    nearest_neighbour_descent,
    reranked,
    self_tuning_scales,
)
from diffclust.graphs.affinity import Graph, mean_affinity_to_references
from diffclust.graphs.neighbours import neighbour_arrays, neighbours_of
from diffclust.graphs.refine import Direction
from diffclust.methods import OWN_GRAPH, Method
from diffclust.models.kmeans import AbstractLloydModel
from diffclust.models.mean_graph import cut_mean_graph
from diffclust.models.staged import AbstractStagedModel, Extension, FeatureClustering, reporter
from diffclust.parallel import Data, Description
from diffclust.parallel.mesh import map_in_chunks
from diffclust.prototypes import AbstractPrototypeFamily
from diffclust.solvers import (
    Callback,
    Context,
    FitStage,
    Outcome,
    PointClusters,
    ignore,
    nearest_centres,
)
from diffclust.types import Scalar

_STEADY, _STEADIER = 0.95, 0.02
"""Stability below which more neighbours are tried, and the increase required to use them."""

_EXAMPLES = 64
"""Number of samples from which an aligner's preconditioner is computed."""

_CHUNK = 1024
"""Number of samples that are scaled at a time."""

_MOST_PAIRS = 2**22
"""Number of pairs of new and fitted samples whose distances are in memory at a time."""

_PAIRS = 8
"""Expected number of pairs compared per sample and neighbour; used only to report progress."""


class AbstractCutModel(AbstractStagedModel):
    """A normalised cut of the mean of self-tuning neighbour graphs.

    Attributes:
        num_neighbours: How many neighbours a sample has; several numbers give several graphs, which
            are averaged. If not given, 5 and 8 in PSSC and 4, 5, 6 and 7 in other methods; twice as
            many if clusters are unstable and this makes them more stable.
        usual_neighbours: The numbers used if none are given.
    """

    num_neighbours: tuple[int, ...] | None = eqx.field(
        static=True, default=None, kw_only=True, converter=_validation.plain_numbers
    )
    usual_neighbours: ClassVar[tuple[int, ...]] = (5, 8)

    def __check_init__(self):
        """Refuses an empty list of numbers."""
        if self.num_neighbours == ():
            raise ValueError("num_neighbours is empty; give at least one whole number")

    @property
    def neighbour_numbers(self) -> tuple[int, ...]:
        """`num_neighbours`, or the usual ones."""
        return self.usual_neighbours if self.num_neighbours is None else self.num_neighbours

    @abc.abstractmethod
    def neighbours_of_new(
        self, outcome: Outcome, data: Data, callback: Callback = ignore
    ) -> Sequence[Neighbours]:
        """The fitted samples nearest to new ones, in the order of the fit's graphs.

        Args:
            outcome: The outcome of the fit.
            data: The new samples.
            callback: Called after every chunk.

        Returns:
            Their neighbours, one entry for each of several distances.
        """

    def ranked_neighbours(self, context: Context) -> Sequence[Neighbours]:
        """Neighbours of all samples, from which the graphs are made.

        Args:
            context: The results of earlier stages.

        Returns:
            Neighbours, one entry for each of several distances; by default those of the stage
            `"neighbours"`.
        """
        return neighbours_of(context.results["neighbours"])

    def more_neighbours(
        self, numbers: tuple[int, ...], context: Context
    ) -> Sequence[Neighbours] | None:
        """Neighbours of all samples for graphs with more neighbours.

        Args:
            numbers: How many neighbours a sample has in each graph.
            context: The results of earlier stages.

        Returns:
            As for `ranked_neighbours`; None if there are not enough.
        """
        ranked = self.ranked_neighbours(context)
        return ranked if min(near.num_neighbours for near in ranked) >= max(numbers) else None

    def cut_stage(self, context: Context) -> dict[str, np.ndarray]:
        """The stage of a fit that cuts the mean graph of its samples.

        If numbers of neighbours are not given and the clusters of the individual graphs differ
        much, graphs with twice as many neighbours are cut as well: with few neighbours, groups
        within a cluster, such as copies or pictures taken in a row, fall apart.

        Args:
            context: The input of the stage.

        Returns:
            The arrays of the clustering.
        """
        numbers = self.neighbour_numbers
        cut = self._cut(self.ranked_neighbours(context), numbers, context)
        stability = cut.figures.get("stability", 1.0)
        if self.num_neighbours is None and context.data.broadcast(np.asarray(stability)) < _STEADY:
            twice = tuple(2 * number for number in numbers)
            near = self.more_neighbours(twice, context)
            other = None if near is None else self._cut(near, twice, context)
            if other is not None and other.figures["stability"] >= stability + _STEADIER:
                cut, numbers = other, twice
        return {**cut.arrays(), "num_neighbours": np.asarray(numbers, np.int32)}

    def _cut(
        self, neighbours: Sequence[Neighbours], numbers: tuple[int, ...], context: Context
    ) -> FeatureClustering:
        """The normalised cut of the mean graph."""
        return cut_mean_graph(
            neighbours,
            numbers,
            self.num_clusters,
            self.num_restarts,
            split_key(context.key, 2, 0),
            context.callback,
            weight=context.data.relative_weights,
        )

    def extend(self, outcome: Outcome, data: Data, callback: Callback) -> Extension:
        """Assigns new samples to a fit's centres by their affinities to the fitted samples."""
        scales, weight = outcome.extras["scales"], outcome.extras.get("weight")
        # Earlier versions did not store these numbers.
        numbers = outcome.extras.get("num_neighbours", self.neighbour_numbers)
        fitted = dataclasses.replace(self, num_neighbours=numbers)
        near = fitted.neighbours_of_new(outcome, data, callback)
        numbers = fitted.neighbour_numbers
        affinities = mean_affinity_to_references(near, numbers, scales, weight=weight)
        own = [self_tuning_scales(n, num_neighbours=k) for n in near for k in numbers]
        return nearest_in_embedding(outcome, affinities), _in_units(np.stack(own), scales)

    def nonconformity(self, outcome: Outcome, /) -> np.ndarray:
        """The distances to the k-th nearest fitted samples, summed over graphs.

        Distances in the embedding are not used, since every point there lies near some centre; with
        representatives they are, as there are no others.
        """
        scales = outcome.extras.get("scales")
        return super().nonconformity(outcome) if scales is None else _in_units(scales, scales)


def nearest_in_embedding(outcome: Outcome, affinities: Graph) -> PointClusters:
    """Assigns samples to a fit's centres by their affinities to the embedded samples.

    Args:
        outcome: The outcome of the fit.
        affinities: One row for each sample.

    Returns:
        The clusters.
    """
    stored = outcome.extras
    embedding = SpectralEmbedding.of_basis(stored["eigenvalues"], stored["basis"])
    centres = embedding.as_extended(stored["centres"])
    return nearest_centres(embedding.extend(affinities), centres)


def _in_units(scales: np.ndarray, fitted: np.ndarray) -> np.ndarray:
    """The sum over distances, each of which has equal weight, whatever its unit."""
    units = np.median(fitted, axis=1, keepdims=True)
    return (scales / np.where(units > 0.0, units, 1.0)).sum(axis=0)


class AbstractInvariantSpectralModel(AbstractCutModel):
    """Finds and ranks neighbours by the distance that remains between two samples after alignment.

    No features are needed: the search starts from random neighbours, and compares neighbours of
    neighbours until it finds no nearer ones.

    Attributes:
        num_candidates: How many neighbours of each sample are searched for. With more than a graph
            uses, the nearest of them are more likely to be the true ones; with more than a sample
            has duplicates, the search can go on from others than these.
        direction: `"forward"` moves every sample onto its neighbours; `"min"` and `"mean"` align in
            both directions and take the minimum or the mean.

    References:
        Dong, Moses and Li (2011), Efficient k-nearest neighbor graph construction; Zelnik-Manor and
        Perona (2004), Self-tuning spectral clustering.
    """

    num_candidates: int = eqx.field(static=True, default=15, kw_only=True)
    usual_neighbours: ClassVar[tuple[int, ...]] = (4, 5, 6, 7)
    direction: Direction = eqx.field(static=True, default="mean", kw_only=True)

    def __check_init__(self):
        """Refuses fewer candidates than a graph has neighbours."""
        least = max(self.neighbour_numbers, default=1)
        _validation.count(self.num_candidates, "num_candidates", least=least)

    def validated(self, samples: Any, /) -> Any:
        """Also refuses missing values: unlike a mean, a neighbour must have all its values."""
        array = self.alignment_model().validated(samples)
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{self.method} takes samples of one array in memory")
        axes = tuple(range(1, array.ndim))
        if (missing := np.isnan(array).any(axis=axes)).any():
            raise ValueError(
                f"{self.words.noun} {int(np.argmax(missing))} has missing values, with which "
                f"{self.method} cannot compare others; cut all to what they share, new ones to "
                "what was fitted, or take a method with means"
            )
        return array

    def preprocessed(self, samples: Any, /) -> Any:
        """Registers or standardises the samples, as K-means does."""
        return self.alignment_model().preprocessed(samples)

    def aligned(self, outcome: Outcome, samples: Any, params: np.ndarray, /) -> np.ndarray:
        """Moves samples onto the means of their clusters."""
        return self.alignment_model().aligned(outcome, samples, params)

    def warped_times(self, params: np.ndarray, times: np.ndarray, /) -> np.ndarray | None:
        """The times at which warped series are read, as in K-means."""
        return self.alignment_model().warped_times(params, times)

    def distance(self, examples: np.ndarray) -> AbstractDistance:
        """The penalised invariant distance of pairs of samples.

        Args:
            examples: Some samples, on the scale on which they are compared.

        Returns:
            The distance of one sample to another.
        """
        model = self.alignment_model()
        family = model.family()
        prototypes = jax.vmap(family.init)(jnp.asarray(examples[:_EXAMPLES]))
        return _BetweenSamples(distance_of(model, model.aligner(), prototypes), family)

    def grouping_stages(self, description: Description) -> tuple[FitStage, ...]:
        """Neighbours under the distance, and the cut of the mean graph."""
        return FitStage("pairs", self.pairs_stage), FitStage("cut", self.cut_stage)

    def ranked_neighbours(self, context: Context) -> Sequence[Neighbours]:
        """Neighbours found under the distance."""
        return neighbours_of(context.results["pairs"])

    def _scaled(self, samples: np.ndarray) -> np.ndarray:
        """Samples on the scale on which they are compared."""
        return map_in_chunks(self.alignment_model().family().normalise, _CHUNK, samples)

    def pairs_stage(self, context: Context) -> dict[str, np.ndarray]:
        """The stage of a fit that finds neighbours under the distance.

        Args:
            context: The input of the stage.

        Returns:
            The arrays of the neighbours.
        """
        samples = self._scaled(context.data.all_samples)
        count = len(samples)
        expected = count * min(_PAIRS * self.num_candidates, count - 1)
        near = nearest_neighbour_descent(
            self.distance(samples),
            samples,
            self.num_candidates,
            key=split_key(context.key, 3, 2),
            direction=self.direction,
            mesh=context.data.mesh,
            report=_over_rounds(reporter(context.callback, "pairs"), expected),
        ).neighbours
        return neighbour_arrays(by_root([near], [near.distance], self.num_candidates))

    def extras(self, context: Context) -> dict[str, np.ndarray]:
        """The samples, with which new ones are compared."""
        return {"samples": context.data.all_samples}

    def neighbours_of_new(
        self, outcome: Outcome, data: Data, callback: Callback = ignore
    ) -> Sequence[Neighbours]:
        """Compares new samples with every fitted sample."""
        new, fitted = map(self._scaled, (data.all_samples, outcome.extras["samples"]))
        distance, count = self.distance(fitted), len(fitted)
        report = _over_rounds(reporter(callback, "pairs"), len(new) * count)
        rows, parts = max(1, _MOST_PAIRS // count), []
        for start in range(0, len(new), rows):
            part = new[start : start + rows]
            every = np.broadcast_to(np.arange(count, dtype=np.int32), (len(part), count))
            near = Neighbours(every, np.zeros(every.shape, fitted.dtype))
            compared = CandidateDistances(
                distance, part, fitted, self.direction, mesh=data.mesh, report=report
            )
            parts += by_root([near], compared([near]), self.num_candidates, first=start)
        both = [(part.index, part.distance) for part in parts]
        return [Neighbours(*map(np.concatenate, zip(*both, strict=True)))]


def _over_rounds(report: Callable[[int, int], None], expected: int) -> Callable[[int, int], None]:
    """Reports the progress of several rounds as one, given its expected size."""
    before = 0

    def shifted(done: int, total: int) -> None:
        nonlocal before
        report(before + done, max(expected, before + total))
        before += total if done == total else 0

    return shifted


def distance_of(
    model: AbstractLloydModel, aligner: AbstractAligner, examples: PyTree
) -> PreparedDistance:
    """Makes a distance of a model's energy: one sample is aligned to the other.

    Args:
        model: Provides the energy and the weights of its penalties.
        aligner: Aligns the samples.
        examples: Some samples, on the scale on which they are compared, or prototypes of one each.

    Returns:
        The distance of one sample to another.
    """
    some = jax.tree.map(lambda leaf: jnp.asarray(leaf[:_EXAMPLES]), examples)
    penalty = jnp.asarray(model.penalty(), dtype=jnp.result_type(*jax.tree.leaves(some)))
    return InvariantDistance(model.energy(), aligner).prepared(some, penalty)


class _BetweenSamples(AbstractDistance):
    """A distance to prototypes, as one to other samples, each the only one of its cluster."""

    to_prototype: AbstractDistance
    prototypes: AbstractPrototypeFamily

    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The distance of one sample to another; see `AbstractDistance.__call__`."""
        return self.to_prototype(sample, self.prototypes.init(prototype), weight)


def by_root(
    candidates: Sequence[Neighbours],
    squared: Sequence[np.ndarray],
    count: int | None = None,
    *,
    first: int = 0,
) -> tuple[Neighbours, ...]:
    """Ranks candidates by the square roots of squared distances.

    Args:
        candidates: Candidates of every sample, as one or several lists.
        squared: Their squared distances, in the same order.
        count: How many are kept; None for all.
        first: The index of the first sample, for error messages.

    Returns:
        The candidates, nearest first.

    Raises:
        ValueError: If a distance is not finite, or negative beyond rounding.
    """
    for energy in squared:
        if (bad := ~np.isfinite(energy).all(axis=1)).any():
            number = first + int(np.argmax(bad))
            raise ValueError(
                f"the distances of sample {number} are not finite: it is too large, or too small, "
                "to be compared; rescale the samples"
            )
        if (least := energy.min(initial=0.0)) < -1e-3 * np.max(energy, initial=0.0):
            raise ValueError(
                f"a graph needs squared distances, but energies of two samples are negative, down "
                f"to {least:.3g}; add a constant, so that that of equal samples is zero"
            )
    return tuple(
        reranked(near, np.sqrt(np.maximum(energy, 0.0)), count or near.num_neighbours)
        for near, energy in zip(candidates, squared, strict=True)
    )


class SpectralClustering(AbstractInvariantSpectralModel):
    """A normalised cut of a neighbour graph under a K-means model's invariant distance.

    `SpectralClustering(3, Clustering(3, Lloyd(energy, aligner, family)))` compares any two samples
    as that model compares a sample with a prototype. Files store the numbers, not the model: use
    `diffclust.load(path, like=model)`.

    Attributes:
        clustering: A model that uses Lloyd's algorithm: your own `Clustering`, or a named one.
    """

    clustering: AbstractLloydModel = eqx.field(metadata={"in_files": False})

    def __check_init__(self):
        """Refuses models that do not use Lloyd's algorithm, and models that register images."""
        if not isinstance(self.clustering, AbstractLloydModel):
            raise ValueError(
                "clustering must be a model by Lloyd's algorithm, such as Clustering, SeriesKMeans "
                f"or DeformationInvariantKMeans, not {type(self.clustering).__name__}"
            )
        if self.clustering.registers:
            raise ValueError(
                'SpectralClustering does not register images; give a model with register="none" '
                'and ground="auto", and images that Frame(...).registered returned '
                "(diffclust.registration)"
            )

    @property
    def descriptor(self) -> Method:
        """The descriptor of all user-defined models that cut a graph."""
        return OWN_GRAPH

    def alignment_model(self) -> AbstractLloydModel:
        """The given model."""
        return dataclasses.replace(self.clustering, num_clusters=self.num_clusters)
