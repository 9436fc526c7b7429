"""Scores of a graph clustering for several K, without labels."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from diffclust import _validation, metrics
from diffclust.graphs import (
    SpectralEmbedding,
    eigengap,
    mean_graph,
    normalised_cut,
    self_tuning_affinity,
    spectral_embedding,
)
from diffclust.models.base import Result
from diffclust.models.spectral import ProjectedScatteringSpectralClustering
from diffclust.parallel import Data
from diffclust.solvers import Callback, PointClusters, ignore, kmeans
from diffclust.types import Key


@dataclasses.dataclass(frozen=True)
class ValidationScores:
    """One setting, and what is known of it without labels.

    Attributes:
        num_clusters: K.
        num_removed: n of the graph, or None for the mean of all graphs.
        eigengap: λ_K - λ_(K+1) of the graph: large where it falls into K parts and no more.
        normalised_cut: The cut of the clustering found; it grows with K by itself.
        stability: The adjusted Rand index between the clustering of this graph and that of the
            mean graph; for the mean graph, the mean of the others'.
    """

    num_clusters: int
    num_removed: int | None
    eigengap: float
    normalised_cut: float
    stability: float


def validation_curve(
    model: ProjectedScatteringSpectralClustering,
    images: Any,
    num_clusters: Sequence[int],
    *,
    key: Key,
    callback: Callback = ignore,
) -> tuple[ValidationScores, ...]:
    """Clusters images for several K and each number of removed directions.

    Features, neighbours and eigenvectors are computed once for all K, unless the numbers of removed
    directions follow K.

    Args:
        model: Its settings are used, but for K; the graph of all samples is.
        images: Anything array-like of shape `(n, height, width, channels)`.
        num_clusters: The K to try.
        key: Random key.
        callback: Called after every chunk.

    Returns:
        Rows for the mean graph first, then for each number of removed directions, by K.

    Raises:
        ValueError: If an argument is not what it should be.

    References:
        von Luxburg (2007), A tutorial on spectral clustering, Sec. 8.3.
    """
    array = _validation.images(images)
    if not num_clusters:
        raise ValueError("num_clusters is empty; give the numbers of clusters to try")
    for count in num_clusters:
        _validation.count(count, "num_clusters")
        _validation.cluster_count(count, len(array))
    removed = {k: dataclasses.replace(model, num_clusters=k).removed for k in num_clusters}
    every = tuple(sorted({n for numbers in removed.values() for n in numbers}))
    model = dataclasses.replace(model.resolved(Data(array)), num_removed=every)
    graphs = _graphs(model, Data(model.validated(array)), callback)
    graphs |= {numbers: mean_graph([graphs[n,] for n in numbers]) for numbers in removed.values()}
    most = max(num_clusters)
    embeddings = {n: spectral_embedding(graph, most, key=key) for n, graph in graphs.items()}
    rows = []
    for count in sorted(num_clusters):
        of = {None: removed[count], **{n: (n,) for n in removed[count]}}
        assignments = {
            n: kmeans(
                embeddings[graph].leading(count),
                count,
                key=jax.random.fold_in(key, count),
                num_restarts=model.num_restarts,
            ).assignments
            for n, graph in of.items()
        }
        stability: dict[int | None, float] = {
            n: metrics.adjusted_rand_index(assignments[None], assignments[n])
            for n in removed[count]
        }
        stability[None] = float(np.mean(list(stability.values())))
        for n, graph in of.items():
            gap = eigengap(embeddings[graph].eigenvalues, count)
            cut = normalised_cut(graphs[graph], assignments[n], num_clusters=count)
            rows.append(ValidationScores(count, n, gap, cut, float(stability[n])))
    return tuple(sorted(rows, key=lambda row: (row.num_removed is not None, row.num_removed or 0)))


def clusters_of_leading(result: Result, num_clusters: int, *, key: Key) -> PointClusters | None:
    """The clusters of a graph that was cut into at least as many, without another fit.

    Args:
        result: A fit of a spectral method.
        num_clusters: K, at most that of the fit.
        key: Random key of the k-means.

    Returns:
        k-means of the K leading eigenvectors; None where the fit has none of the samples, but those
        of representatives.

    Raises:
        ValueError: If K is larger than that of the fit.
    """
    arrays = (result.outcome.extras[name] for name in ("eigenvalues", "basis"))
    embedding, most = SpectralEmbedding.of_basis(*arrays), result.model.num_clusters
    _validation.count(num_clusters, "num_clusters")
    if num_clusters > most:
        raise ValueError(f"num_clusters must be at most the {most} of the fit, not {num_clusters}")
    if len(embedding.basis) != len(result.assignments):
        return None
    vectors = embedding.leading(num_clusters)
    return kmeans(vectors, num_clusters, key=key, num_restarts=result.model.num_restarts)


def _graphs(
    model: ProjectedScatteringSpectralClustering, data: Data, callback: Callback
) -> dict[tuple[int, ...], Any]:
    """Computes the mean graph of all views and sizes, for each number of removed directions."""
    near = []
    for view in model.views.values():
        _, coordinates = view.project(view.in_frame(data), callback=callback)
        near.append(model.neighbours(coordinates, callback=callback))
    sizes = model.num_neighbours
    return {
        (n,): mean_graph([self_tuning_affinity(x, num_neighbours=k) for x in each for k in sizes])
        for n, *each in zip(model.removed, *near, strict=True)
    }
