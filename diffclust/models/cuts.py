"""The cut of a mean graph: what spectral methods do with neighbours."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from diffclust import metrics
from diffclust.graphs import (
    Neighbours,
    eigengap,
    mean_graph,
    normalised_cut,
    self_tuning_affinity,
    self_tuning_scales,
    spectral_embedding,
    strongest_bridges,
    weighted_graph,
)
from diffclust.models.scattering import (
    AbstractScatteringModel,
    Clustering,
    relative_weight,
    reporter,
)
from diffclust.solvers import Callback, Context, ignore, kmeans
from diffclust.types import Key


def cut_of_fit(
    model: AbstractScatteringModel, neighbours: Sequence[Neighbours], context: Context
) -> dict[str, np.ndarray]:
    """The stage of a fit that cuts the mean graph of its samples.

    Args:
        model: Its numbers of clusters, neighbours and restarts are used.
        neighbours: Neighbours of all samples, once for each of several distances.
        context: What the stage is given.

    Returns:
        The arrays of the clustering.
    """
    return cut_mean_graph(
        neighbours,
        model.settings()["num_neighbours"],
        model.num_clusters,
        model.num_restarts,
        jax.random.split(context.key)[0],
        context.callback,
        weight=relative_weight(context.data),
    ).arrays()


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
    graph = weighted_graph(affinities, rows=weight, columns=weight)
    alone = graphs if len(graphs) > 1 else []
    report(0, 1 + len(alone))
    embedding = spectral_embedding(graph, num_clusters, key=key)
    settings = {"key": key, "weight": weight}
    points = kmeans(embedding.vectors, num_clusters, num_restarts=num_restarts, **settings)
    agreement = []
    for number, each in enumerate(alone):
        report(number + 1, 1 + len(alone))
        each = weighted_graph(each, rows=weight, columns=weight)
        single = spectral_embedding(each, num_clusters, key=key)
        theirs = kmeans(single.vectors, num_clusters, num_restarts=1, **settings)
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
