"""Cuts of graphs: what spectral methods do with affinities."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from jax.sharding import Mesh
from jaxtyping import Float

from diffclust import metrics
from diffclust.features import drop_leading
from diffclust.graphs import (
    Neighbours,
    affinity_to_references,
    mean_graph,
    nearest_neighbours,
    self_tuning_affinity,
    self_tuning_scales,
    weighed_graph,
)
from diffclust.models.scattering import Clustering, reporter
from diffclust.solvers import (
    Callback,
    SpectralEmbedding,
    eigengap,
    ignore,
    kmeans,
    normalised_cut,
    spectral_embedding,
    strongest_bridges,
)
from diffclust.types import Key

if TYPE_CHECKING:
    # At run time they are imported when they are first used.
    import scipy.sparse


def cut_mean_graph(
    neighbours: Sequence[Neighbours],
    num_neighbours: tuple[int, ...],
    num_clusters: int,
    num_restarts: int,
    key: Key,
    callback: Callback = ignore,
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> Clustering:
    """The normalised cut of the mean of self-tuning graphs.

    The edge between two samples counts the product of their weights; neighbours and scales do not
    depend on them.

    Args:
        neighbours: Neighbours of all samples, once for each of several distances.
        num_neighbours: For each of these a graph with so many neighbours.
        num_clusters: K.
        num_restarts: Restarts of the last step's k-means.
        key: Random key.
        callback: Called at the stage's beginning.
        weight: Positive weights of the samples, or None for ones.

    Returns:
        The clustering, and how steady it is: the mean adjusted Rand index between it and the
        clusterings of the graphs for each distance alone.
    """
    report = reporter(callback, "cut")
    graphs = [
        mean_graph([self_tuning_affinity(near, num_neighbours=k) for k in num_neighbours])
        for near in neighbours
    ]
    affinities = mean_graph(graphs)
    graph = weighed_graph(affinities, rows=weight, columns=weight)
    alone = graphs if len(graphs) > 1 else []
    report(0, 1 + len(alone))
    embedding = spectral_embedding(graph, num_clusters, key=key)
    settings = {"key": key, "weight": weight}
    points = kmeans(embedding.rows, num_clusters, num_restarts=num_restarts, **settings)
    agreement = []
    for number, each in enumerate(alone):
        report(number + 1, 1 + len(alone))
        each = weighed_graph(each, rows=weight, columns=weight)
        single = spectral_embedding(each, num_clusters, key=key)
        theirs = kmeans(single.rows, num_clusters, num_restarts=1, **settings)
        agreement.append(metrics.adjusted_rand_index(points.assignments, theirs.assignments))
    figures = {"eigengap": eigengap(embedding.eigenvalues, num_clusters)}
    if agreement:
        figures["stability"] = float(np.mean(agreement))
    scales = [
        self_tuning_scales(near, num_neighbours=k) for near in neighbours for k in num_neighbours
    ]
    extras = {
        "bridges": strongest_bridges(affinities, points.assignments),
        "scales": np.stack(scales),
        "centres": points.centres,
        "eigenvalues": embedding.eigenvalues,
        "basis": embedding.basis,
    }
    if weight is not None:
        extras["weight"] = weight
    loss = normalised_cut(graph, points.assignments, num_clusters=num_clusters)
    return Clustering(points, loss, extras, figures)


def neighbours_among_fitted(
    coordinates: np.ndarray,
    stored: Any,
    num_removed: tuple[int, ...],
    num_dimensions: int,
    num_neighbours: int,
    mesh: Mesh | None = None,
) -> list[Neighbours]:
    """Neighbours of new samples among those that were fitted.

    Args:
        coordinates: The new samples' coordinates along principal directions.
        stored: The fit's `extras`.
        num_removed: How many leading directions are left out, for each of several lists.
        num_dimensions: How many of those that follow count.
        num_neighbours: How many neighbours.
        mesh: Devices that share the new samples, or None for one.

    Returns:
        The neighbours, in the order of `num_removed`.
    """
    return [
        nearest_neighbours(
            drop_leading(coordinates, n, num_dimensions),
            drop_leading(stored["coordinates"], n, num_dimensions),
            num_neighbours,
            mesh=mesh,
        )
        for n in num_removed
    ]


def extended(
    neighbours: Sequence[Neighbours], num_neighbours: tuple[int, ...], stored: Any
) -> np.ndarray:
    """Rows of new samples in the embedding of a mean graph.

    Args:
        neighbours: Their neighbours among the samples that were fitted, for each distance.
        num_neighbours: As in `cut_mean_graph`.
        stored: The fit's `extras`.

    Returns:
        One row for each new sample.
    """
    settings = [(near, k) for near in neighbours for k in num_neighbours]
    graphs = [
        affinity_to_references(near, scales, num_neighbours=k)
        for (near, k), scales in zip(settings, stored["scales"], strict=True)
    ]
    graph = weighed_graph(mean_graph(graphs), columns=stored.get("weight"))
    return stored_embedding(stored).extend(graph)


def stored_embedding(stored: Any) -> SpectralEmbedding:
    """The embedding of a fit, for new samples to be placed in it.

    Args:
        stored: The fit's `extras`.

    Returns:
        The embedding, without the rows of the samples that were fitted.
    """
    basis = stored["basis"]
    return SpectralEmbedding(stored["eigenvalues"], basis[:0], basis)


def bipartite_cut(
    affinities: "scipy.sparse.csr_array", assignments: np.ndarray, num_clusters: int
) -> float:
    """The normalised cut of a bipartite graph, every column put where most of its affinity is.

    Args:
        affinities: Affinities of samples to representatives.
        assignments: Cluster of each sample.
        num_clusters: K.

    Returns:
        A number from 0 to K.
    """
    member = scipy.sparse.csr_array(
        (np.ones(len(assignments)), (assignments, np.arange(len(assignments)))),
        shape=(num_clusters, len(assignments)),
    )
    # Affinity of each cluster's samples with each column.
    weight = (member @ affinities).toarray()
    column = weight.argmax(axis=0)
    inside = np.bincount(column, weight.max(axis=0), minlength=num_clusters)
    volume = weight.sum(axis=1) + np.bincount(column, weight.sum(axis=0), minlength=num_clusters)
    safe = np.where(volume > 0, volume, 1.0)
    return float(np.sum(1.0 - np.where(volume > 0, 2.0 * inside / safe, 0.0)))


def neighbour_arrays(neighbours: Sequence[Neighbours]) -> dict[str, np.ndarray]:
    """Several lists of neighbours as arrays.

    Args:
        neighbours: The lists.

    Returns:
        Arrays by name.
    """
    arrays = {f"index_{i}": near.index for i, near in enumerate(neighbours)}
    return arrays | {f"distance_{i}": near.distance for i, near in enumerate(neighbours)}


def neighbours_of(arrays: Mapping[str, np.ndarray]) -> tuple[Neighbours, ...]:
    """Several lists of neighbours from their arrays.

    Args:
        arrays: As `neighbour_arrays` gives them.

    Returns:
        The same lists.
    """
    count = len(arrays) // 2
    return tuple(Neighbours(arrays[f"index_{i}"], arrays[f"distance_{i}"]) for i in range(count))
