"""Models that find clusters in stages, then compute prototypes of the samples in each."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from diffclust._random import split_key
from diffclust.energies import TransformedDistance
from diffclust.models.base import AbstractModel
from diffclust.models.kmeans import AbstractLloydModel
from diffclust.parallel import Data, Description
from diffclust.parallel.in_flight import all_rows
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers import (
    Assignment,
    Callback,
    Context,
    FitStage,
    Outcome,
    PointClusters,
    Progress,
    StagedProblem,
    Stages,
    Start,
    Status,
    aligned_means,
    alignment_chunks,
    ignore,
)

_POINTS = tuple(field.name for field in dataclasses.fields(PointClusters))


def reporter(callback: Callback, *stage: str) -> Callable[..., None]:
    """Makes a function that reports chunks to a callback.

    Args:
        callback: Called after every chunk.
        *stage: Name of the stage; if left out, the function takes it as its first argument.

    Returns:
        A function of the number of chunks done and the total.
    """
    return functools.partial(_report, callback, *stage)


def _report(callback: Callback, stage: str, done: int, total: int) -> None:
    callback(Progress(stage, 0, 0, done, total))


Extension = tuple[PointClusters, np.ndarray | None]
"""The clusters of new samples, and their nonconformity if it differs from the distances."""


@dataclasses.dataclass(frozen=True)
class FeatureClustering:
    """A clustering of points in a feature space or an embedding.

    Attributes:
        points: The assignment of samples to centres.
        loss: The minimised value.
        extras: Arrays that are needed to assign new samples, by name.
        figures: Further numbers, by name.
    """

    points: PointClusters
    loss: float
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    figures: dict[str, float] = dataclasses.field(default_factory=dict)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns everything as arrays by name."""
        points = {name: getattr(self.points, name) for name in _POINTS}
        numbers = {"loss": self.loss, **self.figures}
        return {**points, **self.extras, **{n: np.asarray(each) for n, each in numbers.items()}}

    @staticmethod
    def of(arrays: Mapping[str, np.ndarray]) -> "FeatureClustering":
        """A clustering from its arrays.

        Args:
            arrays: As returned by `arrays`.

        Returns:
            The clustering.
        """
        points = PointClusters(*(arrays[name] for name in _POINTS))
        numbers = {name: float(array) for name, array in arrays.items() if array.ndim == 0}
        own = {*_POINTS} - {"centres"}
        extras = {n: a for n, a in arrays.items() if a.ndim and n not in own}
        return FeatureClustering(points, numbers.pop("loss"), extras, numbers)


class AbstractStagedModel(AbstractModel):
    """Clusters that are found in stages: in a feature space, or in a graph.

    The model does not fit prototypes. Those it returns are the means of the samples in each
    cluster, aligned as by its `alignment_model`.

    Attributes:
        num_restarts: Runs of k-means in the last step; the one with the lowest loss is kept.
    """

    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)

    @property
    def views(self) -> Mapping[str, Any]:
        """Models of one kind of features each, by the suffix of the names of their arrays."""
        return {"": self}

    def num_features(self, sample_shape: tuple[int, ...]) -> int:
        """The number of features of a sample.

        Args:
            sample_shape: Shape of a sample.

        Returns:
            The number; by default 0, for samples without features.
        """
        return 0

    def num_compared(self, count: int) -> int:
        """The number of neighbours found by comparing a sample's features with those of all others.

        Args:
            count: Number of samples.

        Returns:
            The number; 0 if features are not compared with each other.
        """
        return 0

    @abc.abstractmethod
    def alignment_model(self) -> AbstractLloydModel:
        """The model that aligns samples to prototypes."""

    @property
    def has_unit_norm(self) -> bool:
        """Whether the prototypes of the alignment model have unit norm."""
        return self.alignment_model().has_unit_norm

    @abc.abstractmethod
    def grouping_stages(self, description: Description) -> tuple[FitStage, ...]:
        """The stages that find the clusters; the last returns the arrays of a `FeatureClustering`.

        Args:
            description: What is known about the samples.
        """

    @abc.abstractmethod
    def extend(self, outcome: Outcome, data: Data, callback: Callback) -> Extension:
        """Assigns new samples to the centres of a fit.

        Args:
            outcome: The outcome of the fit.
            data: The new samples.
            callback: Called after every chunk.

        Returns:
            The assignment to centres, and the nonconformity; None if that is the distance.
        """

    @abc.abstractmethod
    def extras(self, context: Context) -> dict[str, np.ndarray]:
        """Returns what a fit keeps for new samples, in addition to the clustering.

        Args:
            context: The results of all stages.

        Returns:
            Arrays by name.
        """

    def data_in_prototype_frame(self, data: Data) -> Data:
        """Prepared samples in the frame of the prototypes.

        Args:
            data: The samples.

        Returns:
            The data.
        """
        samples = self.in_prototype_frame(data.samples)
        return data if samples is data.samples else dataclasses.replace(data, samples=samples)

    def compose(self, description: Description, start: Start) -> Stages:
        """The stages that find clusters, and the aligned means of these."""
        alignment = self.alignment_model().problem(description.sample)
        grouping = self.grouping_stages(description)
        last = grouping[-1].name

        def assignments(context: Context) -> np.ndarray:
            return context.results[last]["assignments"]

        like = jax.eval_shape(lambda: self.alignment_model().template(description.sample)).clusters
        tree = jax.tree.structure(like.prototype)
        several = tree.num_leaves > 1
        names = [f"prototype {i}" for i in range(tree.num_leaves)] if several else ["prototype"]

        def clusters(context: Context) -> Clusters:
            means = jax.device_put(context.results["means"])
            return Clusters(tree.unflatten([means[name] for name in names]), means["penalty"])

        def means(context: Context) -> dict[str, np.ndarray]:
            key = split_key(context.key, 2, 1)
            data = self.data_in_prototype_frame(context.data)
            result = aligned_means(alignment, data, assignments(context), key=key)
            leaves = [*jax.tree.leaves(result.prototype), result.penalty]
            return dict(zip([*names, "penalty"], map(np.asarray, leaves), strict=True))

        def alignments(context: Context) -> Any:
            data = self.data_in_prototype_frame(context.data)
            given = (alignment, clusters(context), data, assignments(context))
            return alignment_chunks(*given, callback=context.callback)

        def outcome(context: Context) -> Outcome:
            result = FeatureClustering.of(context.results[last])
            return Outcome(
                alignment.solver.init_learned(clusters(context)),
                _assignment(result.points, context.results["alignments"]["rows"]),
                (result.loss,),
                (result.loss,),
                Status.SOLVED,
                context.data.chunk_size or 0,
                extras={**result.extras, **self.extras(context)},
                figures=result.figures,
            )

        last_stages = FitStage("means", means), FitStage("alignments", chunks=alignments)
        return (StagedProblem((*grouping, *last_stages), outcome),)

    def working_copies(self, description: Description) -> int:
        """The number of copies that the alignment to prototypes needs."""
        return self.alignment_model().working_copies(description)

    def template(self, sample: PyTree) -> Learned:
        """Prototypes and penalty weights."""
        return self.alignment_model().template(sample)

    def assign(self, outcome: Outcome, data: Data, *, callback: Callback = ignore) -> Assignment:
        """Assigns samples to the nearest centre, and aligns them to its prototype."""
        points, nonconformity = self.extend(outcome, data, callback)
        clusters, moved = outcome.learned.clusters, self.data_in_prototype_frame(data)
        problem = self.alignment_model().problem(moved.description.sample)
        groups = points.assignments
        rows = all_rows(alignment_chunks(problem, clusters, moved, groups, callback=callback))
        return _assignment(points, data.allgather(rows), nonconformity)

    def energy(self, channels: int = 1) -> TransformedDistance:
        """Returns the energy by which samples are aligned to prototypes."""
        return self.alignment_model().energy()


def _assignment(
    points: PointClusters, params: np.ndarray, nonconformity: np.ndarray | None = None
) -> Assignment:
    distances, margins = points.distances.astype(params.dtype), points.margins.astype(params.dtype)
    own = (points.assignments, distances, margins, points.runners_up, params)
    return Assignment(*own, nonconformity)
