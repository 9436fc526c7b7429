"""Normalised cuts of neighbour graphs in scattering space: what they share, and PSSC."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import numpy as np
import scipy
from jaxtyping import Float

from diffclust import metrics
from diffclust._random import split_key
from diffclust.features import drop_leading
from diffclust.graphs import (
    Neighbours,
    SpectralEmbedding,
    bipartite_cut,
    eigengap,
    gaussian_affinity,
    mean_graph,
    nearest_neighbours,
    transfer_cut,
    weighted_graph,
)
from diffclust.graphs.affinity import Graph
from diffclust.graphs.neighbours import neighbour_arrays, neighbours_of
from diffclust.graphs.refine import distinct_neighbours, windowed_neighbours
from diffclust.models.graph import AbstractCutModel, nearest_in_embedding
from diffclust.models.images import AbstractImageModel, judges_frames
from diffclust.models.mean_graph import are_apart
from diffclust.models.scattering import AbstractScatteringModel
from diffclust.models.settings import COUNTS, Ground, PublishedSettings, Register, removed_for
from diffclust.models.staged import Extension, FeatureClustering, reporter
from diffclust.parallel import Data, Description
from diffclust.solvers import (
    Callback,
    Context,
    FitStage,
    Outcome,
    PointClusters,
    ignore,
    kmeans,
    representatives,
)
from diffclust.types import Key

_KEYS_JUDGED = 5
"""Number of keys with which frames are judged; the median is used."""


class AbstractGraphModel(AbstractCutModel, AbstractScatteringModel):
    """A normalised cut of the mean of graphs with different numbers of removed directions.

    Attributes:
        num_removed: How many leading principal directions are removed, in each of the spaces in
            which neighbours are found. If not given, 0 for up to 4 clusters, 0 to 3 for up to 7,
            and 1 to 4 for more: with few clusters, the leading directions are what distinguishes
            them.
    """

    num_removed: tuple[int, ...] | None = eqx.field(
        static=True, default=None, kw_only=True, **COUNTS
    )

    def __check_init__(self):
        """Refuses an empty list of numbers."""
        if self.num_removed == ():
            raise ValueError("num_removed is empty; give at least one whole number")

    @property
    def removed(self) -> tuple[int, ...]:
        """`num_removed`, or the values for the number of clusters."""
        return removed_for(self.num_clusters) if self.num_removed is None else self.num_removed

    @property
    def most_removed(self) -> int:
        """The largest of the numbers."""
        return max(self.removed)

    def resolved(self, given: Data, /) -> AbstractImageModel:
        """The model with its frame, background and numbers of removed directions."""
        return dataclasses.replace(super().resolved(given), num_removed=self.removed)

    def neighbours(
        self, coordinates: np.ndarray, *, data: Data | None = None, callback: Callback = ignore
    ) -> tuple[Neighbours, ...]:
        """The nearest samples in scattering space, with at most one of several near-duplicates.

        Args:
            coordinates: Coordinates along principal directions, leading ones first.
            data: The samples, whose devices share the work; None for one device.
            callback: Called after every chunk.

        Returns:
            Neighbours of every sample, in the order of `removed`.
        """
        compared = self.num_compared(len(coordinates))
        windows = (self.removed, self.num_dimensions, compared, min(self.neighbour_numbers))
        report = reporter(callback, "neighbours")
        return distinct_neighbours(coordinates, *windows, mesh=data and data.mesh, report=report)

    def neighbours_of_new(
        self, outcome: Outcome, data: Data, callback: Callback = ignore
    ) -> Sequence[Neighbours]:
        """Neighbours in scattering space, for each view."""
        near: list[Neighbours] = []
        for end, view in self.views.items():
            coordinates = view.coordinates_of(outcome, data, callback, end)
            fitted = outcome.extras[f"coordinates{end}"]
            windows = (self.removed, self.num_dimensions, self.num_compared(len(fitted)))
            near += windowed_neighbours(coordinates, fitted, *windows, mesh=data.mesh)
        return near

    def extras(self, context: Context) -> dict[str, np.ndarray]:
        """The directions and, with a graph of all samples, their coordinates."""
        extras = super().extras(context)
        if "neighbours" in context.results:
            extras |= self.of_views(context, ["coordinates"])
        return extras

    def neighbours_stage(self, context: Context) -> dict[str, np.ndarray]:
        """The stage of a fit that finds the nearest samples in scattering space.

        Args:
            context: The input of the stage.

        Returns:
            The arrays of the neighbours, for each of the views.
        """
        settings = {"data": context.data, "callback": context.callback}
        every = self.of_views(context, ["coordinates"]).values()
        return neighbour_arrays([n for each in every for n in self.neighbours(each, **settings)])


Affinity = Literal["auto", "graph", "representatives"]

_MOST_IN_GRAPH = 100_000
"""Largest number of samples that are all compared with each other; a minute or two on two cores."""


class ProjectedScatteringSpectralClustering(PublishedSettings, AbstractGraphModel):
    """PSSC: scattering transform, projection onto the orthogonal complement, normalised cut.

    By default, samples are registered first and all are used in the graph: it is the mean of the
    self-tuning neighbour graphs for several numbers of removed directions and of neighbours, as
    single graphs are unstable. For the paper's own settings use
    `ProjectedScatteringSpectralClustering.as_published(num_clusters)`.

    Attributes:
        affinity: `"graph"` compares all samples with each other; `"representatives"` (U-SPEC)
            compares them with a few, for any number of samples; `"auto"` uses the graph for up to
            100,000 samples.
        num_representatives: Number of samples that represent all, with `"representatives"`
            (U-SPEC's p).
        num_candidates: Number of randomly drawn samples whose k-means centres are the
            representatives.
        relative: Whether coefficients are divided by an image's contrast, without its mean colours;
            for photographs on several backgrounds or in changing light. If not given and the
            background is kept, the graphs with and without this are averaged.
        published: PCA to 1,000 directions, n = 2, U-SPEC with k = 5. The following is not in the
            paper, or differs from it: each path is divided by its largest norm over the images, as
            in the authors' code; σ, for which Eq. 5 gives no value, is the mean distance of the
            samples to their k representatives; these are found exactly, not by HNSW; the k-means
            that makes representatives ends after ten passes; of Eqs. 7 and 8, which as printed
            divide by D_Y twice, one division is left out; eigenvectors are lifted from the
            representatives to the samples, and rows scaled to unit length (see
            `diffclust.graphs.transfer_cut`); the last k-means keeps the best of several runs.

    References:
        Villar-Corrales and Morgenshtern, PSSC; Zelnik-Manor and Perona (2004), Self-tuning spectral
        clustering.
    """

    affinity: Affinity = eqx.field(static=True, default="auto", kw_only=True)
    num_representatives: int = eqx.field(static=True, default=1000, kw_only=True)
    num_candidates: int = eqx.field(static=True, default=9000, kw_only=True)
    relative: bool | None = eqx.field(static=True, default=None, kw_only=True)
    register: Register = eqx.field(static=True, default="auto", kw_only=True)
    published: ClassVar = {
        "affinity": "representatives",
        "num_removed": (2,),
        "num_neighbours": (5,),
        "num_dimensions": 998,
        "normalisation": "largest",
        "relative": False,
        "contrast": "none",
        "register": "none",
    }

    @property
    def views(self) -> Mapping[str, AbstractScatteringModel]:
        """The views of images: two if the background is kept, unless `relative` was given."""
        if self.relative is not None or self.ground != "keep":
            return {"": self}
        return {"": self, "_relative": dataclasses.replace(self, relative=True)}

    def resolved(self, given: Data, /) -> "ProjectedScatteringSpectralClustering":
        """The model with its frame, background and numbers; one view with representatives."""
        model = cast(ProjectedScatteringSpectralClustering, super().resolved(given))
        single = self.relative is None and self.by_representatives(given.num_weighed)
        return dataclasses.replace(model, relative=False) if single else model

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """Adds whether coefficients were relative."""
        both = "both, averaged" if len(self.views) > 1 else False
        return {**super().automatic_settings(description), "relative": both}

    def clustering_stages(self, description: Description) -> tuple[FitStage, ...]:
        """Neighbours of all samples and the cut of the mean graph, or U-SPEC."""
        if self.by_representatives(description.num_samples):
            near = (
                FitStage(f"representatives_{n}", functools.partial(self._representatives, n))
                for n in self.removed
            )
            return (*near, FitStage("cut", self._cut_through_representatives))
        return FitStage("neighbours", self.neighbours_stage), FitStage("cut", self.cut_stage)

    def extend(self, outcome: Outcome, data: Data, callback: Callback) -> Extension:
        """Assigns samples by their affinities to the samples or representatives of the fit."""
        stored = outcome.extras
        if "coordinates" in stored:
            return super().extend(outcome, data, callback)
        coordinates = self.coordinates_of(outcome, data, callback)
        most, graphs = max(self.neighbour_numbers), []
        for n, sigmas in zip(self.removed, stored["sigmas"], strict=True):
            window = drop_leading(coordinates, n, self.num_dimensions)
            chosen = stored[f"representatives_{n}"]
            near = nearest_neighbours(window, chosen, most, mesh=data.mesh)
            graphs.append(mean_graph(self._gaussians(near, len(chosen), sigmas)))
        return nearest_in_embedding(outcome, _side_by_side(graphs)), None

    def more_neighbours(self, numbers: tuple[int, ...], context: Context) -> Sequence[Neighbours]:
        """Searches for neighbours again."""
        denser = dataclasses.replace(self, num_neighbours=numbers)
        return neighbours_of(denser.neighbours_stage(context))

    def num_compared(self, count: int) -> int:
        """The number of neighbours that the largest graph needs; 0 with representatives."""
        return 0 if self.by_representatives(count) else max(self.neighbour_numbers)

    def by_representatives(self, count: int) -> bool:
        """Whether samples are compared with a few representatives instead of with each other.

        Args:
            count: Number of samples.
        """
        if self.affinity == "auto":
            return count > _MOST_IN_GRAPH
        return self.affinity == "representatives"

    def _gaussians(self, near: Neighbours, count: int, sigmas: np.ndarray) -> list[Graph]:
        """The affinities for each number of neighbours."""
        return [
            gaussian_affinity(near, count, num_neighbours=k, sigma=float(sigma))
            for k, sigma in zip(self.neighbour_numbers, sigmas, strict=True)
        ]

    def _representatives(self, removed: int, context: Context) -> dict[str, np.ndarray]:
        """Representatives in the space without the leading directions, and samples near them."""
        coordinates, key = context.results["features"]["coordinates"], context.key
        shared = {"data": context.data, "callback": context.callback}
        return self.near_representatives(coordinates, removed, split_key(key, 2, 0), **shared)

    def near_representatives(
        self,
        coordinates: np.ndarray,
        removed: int,
        key: Key,
        *,
        data: Data | None = None,
        callback: Callback = ignore,
    ) -> dict[str, np.ndarray]:
        """Representatives in the space without the leading directions, and samples near them.

        Args:
            coordinates: Coordinates along principal directions, leading ones first.
            removed: How many leading directions are left out.
            key: Random key that draws the candidates.
            data: The samples, whose devices share the work; None for one device.
            callback: Called after every chunk.

        Returns:
            The neighbours' arrays, and the representatives as `"chosen"`.
        """
        window = np.ascontiguousarray(drop_leading(coordinates, removed, self.num_dimensions))
        chosen = representatives(
            window,
            self.num_representatives,
            key=jax.random.fold_in(key, removed),
            num_candidates=max(self.num_candidates, self.num_representatives),
        )
        most, report = max(self.neighbour_numbers), reporter(callback, "neighbours")
        near = nearest_neighbours(window, chosen, most, mesh=data and data.mesh, report=report)
        return {**neighbour_arrays([near]), "chosen": chosen}

    def _cut_through_representatives(self, context: Context) -> dict[str, np.ndarray]:
        near = [context.results[f"representatives_{n}"] for n in self.removed]
        weight, key = context.data.relative_weights, split_key(context.key, 2, 0)
        reporter(context.callback, "cut")(0, 1)
        return self.cut_through_representatives(near, key, weight=weight).arrays()

    def cut_through_representatives(
        self,
        near: Sequence[Mapping[str, np.ndarray]],
        key: Key,
        *,
        weight: Float[np.ndarray, " n"] | None = None,
    ) -> FeatureClustering:
        """U-SPEC, with representatives for each number of removed directions.

        A sample's affinities are multiplied by its weight; representatives do not depend on
        weights.

        Args:
            near: The results of `near_representatives` for each of `removed`.
            key: Random key of the k-means.
            weight: Positive weights of the samples, or None for ones.

        Returns:
            The clustering and, unless there is only one graph, its stability: the mean adjusted
            Rand index between it and the clusterings by each number of removed directions alone; if
            there is only one, by each number of neighbours. It is 0 if all samples are equal, and
            there is a warning.
        """
        graphs, sigmas, extras, by_number, differences = [], [], {}, [], []
        for n, arrays in zip(self.removed, near, strict=True):
            arrays = dict(arrays)
            extras[f"representatives_{n}"] = chosen = arrays.pop("chosen")
            neighbours = neighbours_of(arrays)[0]
            # Equal samples have the same neighbours, which may differ, being rounded means.
            differences += neighbours.distance, neighbours.index - neighbours.index[:1]
            each = [
                neighbours.distance[:, :k].mean(dtype=np.float64) for k in self.neighbour_numbers
            ]
            sigmas.append(np.asarray(each))
            by_number = self._gaussians(neighbours, len(chosen), sigmas[-1])
            graphs.append(mean_graph(by_number))

        def clustered(
            affinities: Graph, num_restarts: int
        ) -> tuple[SpectralEmbedding, PointClusters]:
            embedding = transfer_cut(affinities, self.num_clusters)
            settings = {"num_restarts": num_restarts, "weight": weight, "warns": False}
            return embedding, kmeans(embedding.vectors, self.num_clusters, key=key, **settings)

        affinities = weighted_graph(_side_by_side(graphs), rows=weight)
        embedding, points = clustered(affinities, self.num_restarts)
        extras |= {
            "sigmas": np.stack(sigmas),
            "centres": points.centres,
            "eigenvalues": embedding.eigenvalues,
            "basis": embedding.basis,
        }
        loss = bipartite_cut(affinities, points.assignments, self.num_clusters)
        figures = {"eigengap": eigengap(embedding.eigenvalues, self.num_clusters)}
        apart = are_apart(differences)
        single = graphs if len(graphs) > 1 else by_number
        if len(single) > 1:
            alone = (clustered(weighted_graph(graph, rows=weight), 1)[1] for graph in single)
            indices = [
                metrics.adjusted_rand_index(points.assignments, each.assignments) for each in alone
            ]
            figures["stability"] = float(np.mean(indices)) if apart else 0.0
        return FeatureClustering(points, loss, extras, figures)


def _side_by_side(graphs: Sequence[Graph]) -> Graph:
    return scipy.sparse.csr_array(scipy.sparse.hstack(graphs))


@judges_frames
def stability_of_frame(
    model: AbstractImageModel, register: Register, ground: Ground, images: np.ndarray
) -> float:
    """The stability of PSSC's clusters of some images in a frame; nothing is aligned.

    Args:
        model: The model to be fitted.
        register: What is normalised.
        ground: What counts as the object in an image.
        images: The images.

    Returns:
        The median stability over five keys.
    """
    judge = ProjectedScatteringSpectralClustering(
        model.num_clusters,
        mask=model.mask,
        affinity="graph",
        register=register,
        ground=ground,
        canvas=model.canvas if register != "none" else None,
    ).resolved(Data(images))
    data, results = Data(images), {}
    chunk_size = judge.chunk_size_for(judge.prepared_description(data.description))
    data, _ = judge.preprocess(dataclasses.replace(data, chunk_size=chunk_size))
    *before, last = judge.grouping_stages(data.description)
    for stage in before:
        assert stage.compute is not None
        results[stage.name] = stage.compute(Context(data, jax.random.key(0), results, ignore))
    assert last.compute is not None
    cuts = (
        last.compute(Context(data, jax.random.key(seed), results, ignore))
        for seed in range(_KEYS_JUDGED)
    )
    return float(np.median([FeatureClustering.of(cut).figures["stability"] for cut in cuts]))
