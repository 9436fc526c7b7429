"""The normalised cut of the mean of several graphs, and its stability."""

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from diffclust import metrics
from diffclust.graphs import (
    Neighbours,
    SpectralEmbedding,
    eigengap,
    mean_graph,
    normalised_cut,
    refined_cut,
    self_tuning_affinity,
    self_tuning_scales,
    spectral_embedding,
    strongest_bridges,
    weighted_graph,
)
from diffclust.graphs.affinity import Graph
from diffclust.models.staged import FeatureClustering, reporter
from diffclust.solvers import Callback, PointClusters, ignore, kmeans
from diffclust.types import Key

_MORE_VECTORS, _STEPS = 5, 16.0
"""For the second embedding; chosen on development sets by `experiments.registration.balance`."""

_LEAST_EACH = 150
"""Number of samples per cluster from which on single samples are moved."""

_TIE = 0.002
"""Differences in stability below this may depend on the seed of k-means."""


def cut_mean_graph(
    neighbours: Sequence[Neighbours],
    num_neighbours: tuple[int, ...],
    num_clusters: int,
    num_restarts: int,
    key: Key,
    callback: Callback = ignore,
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> FeatureClustering:
    """The normalised cut of the mean of self-tuning graphs.

    Two embeddings are tried, by as many eigenvectors as clusters, and by five more, each multiplied
    by the 16th power of its eigenvalue. The one with the higher trimmed stability is used; with a
    single graph, or if both are about equally stable, it is the former. A small group that is cut
    off from all others takes one of the K vectors for itself, so that two large groups share a
    cluster; further vectors separate these. Single samples are then moved to other clusters as long
    as that lowers the cut, unless there are fewer than 150 samples per cluster: then the few edges
    are less reliable than the eigenvectors.

    The edge between two samples is multiplied by the product of their weights; neighbours and
    scales do not depend on weights.

    Args:
        neighbours: Neighbours of all samples, one entry for each of several distances.
        num_neighbours: Numbers of neighbours; for each distance there is a graph for each number.
        num_clusters: K.
        num_restarts: Restarts of k-means in the last step.
        key: Random key.
        callback: Called before each graph.
        weight: Positive weights of the samples, or None for ones.

    Returns:
        The clustering, and its stability before single samples were moved: the mean adjusted Rand
        index between it and the clusterings of the graphs for each single distance; if there is
        only one distance, of those for each number of neighbours. It is 0 if all distances are,
        and there is a warning. Its figures also have the least of these indices
        (`least_stability`) and the number of eigenvectors of the embedding that was used.
    """
    graphs = self_tuning_graphs(neighbours, num_neighbours)
    affinities = mean_graph(graphs)
    settings = (num_clusters, num_restarts, key, callback)
    cuts = cuts_of_mean_graph(affinities, graphs, *settings, weight=weight)
    cut = steadier_cut(*cuts)
    graph, embedding = weighted_graph(affinities, rows=weight, columns=weight), cut.embedding
    points = cut.points
    if len(points.assignments) >= _LEAST_EACH * num_clusters:
        refined = refined_cut(graph, points.assignments, num_clusters=num_clusters)
        points = points.reassigned(embedding.vectors, refined)
    figures = {"eigengap": eigengap(embedding.eigenvalues, num_clusters)}
    apart = are_apart(near.distance for near in neighbours)
    if len(graphs) > 1:
        figures["stability"] = cut.stability if apart else 0.0
        figures["least_stability"] = float(cut.indices.min()) if apart else 0.0
        figures["eigenvectors"] = cut.embedding.vectors.shape[1]
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
    return FeatureClustering(points, loss, extras, figures)


def are_apart(distances: Iterable[np.ndarray]) -> bool:
    """Whether any distance of samples is not 0; if none, there is a warning.

    Args:
        distances: Distances of samples, or differences of their neighbours.

    Returns:
        False if there are no groups.
    """
    if any(each.any() for each in distances):
        return True
    warnings.warn(
        "all samples are equal, or nothing of them is left to compare: there are no groups among "
        "them, and the clusters are arbitrary",
        stacklevel=3,
    )
    return False


def self_tuning_graphs(
    neighbours: Sequence[Neighbours], num_neighbours: tuple[int, ...]
) -> list[Graph]:
    """Self-tuning graphs, whose mean is to be cut.

    Args:
        neighbours: Neighbours of all samples, one entry for each of several distances.
        num_neighbours: Numbers of neighbours.

    Returns:
        A graph for each distance, the mean over the numbers of neighbours; for a single distance, a
        graph for each number.
    """
    several = [
        [self_tuning_affinity(near, num_neighbours=k) for k in num_neighbours]
        for near in neighbours
    ]
    return [mean_graph(each) for each in several] if len(several) > 1 else several[0]


class Cut(NamedTuple):
    """A graph that was cut.

    Attributes:
        embedding: The eigenvectors.
        points: Their clusters.
        indices: The adjusted Rand index between these clusters and those of each single graph;
            empty if there is only one graph.
    """

    embedding: SpectralEmbedding
    points: PointClusters
    indices: Float[np.ndarray, " graphs"]

    @property
    def stability(self) -> float:
        """The mean of the indices; 0 if there are none."""
        return float(np.mean(self.indices)) if len(self.indices) else 0.0

    @property
    def trimmed_stability(self) -> float:
        """The mean without the lowest index (one graph may be cut badly) if there are over two."""
        few = len(self.indices) <= 2
        return self.stability if few else float(np.mean(np.sort(self.indices)[1:]))


def steadier_cut(plain: Cut, more: Cut) -> Cut:
    """The more stable of two cuts.

    Args:
        plain: The cut by as many eigenvectors as clusters.
        more: The cut by more eigenvectors.

    Returns:
        The second if its trimmed stability is clearly higher, and it leaves no more clusters empty
        (a single cluster always agrees with itself); otherwise the first.
    """
    used, others = (len(np.unique(cut.points.assignments)) for cut in (plain, more))
    is_steadier = more.trimmed_stability > plain.trimmed_stability + _TIE
    return more if is_steadier and others >= used else plain


def cuts_of_mean_graph(
    affinities: Graph,
    graphs: Sequence[Graph],
    num_clusters: int,
    num_restarts: int,
    key: Key,
    callback: Callback = ignore,
    *,
    weight: Float[np.ndarray, " n"] | None = None,
) -> list[Cut]:
    """Cuts the mean of graphs by K eigenvectors, and by five more that are weighted.

    Args:
        affinities: The mean of the graphs.
        graphs: The graphs.
        num_clusters: K.
        num_restarts: Restarts of k-means.
        key: Random key.
        callback: Called before each graph.
        weight: Positive weights of the samples, or None for ones.

    Returns:
        The cut by K eigenvectors, and the cut by more.
    """
    most = num_clusters + _MORE_VECTORS

    def cut_twice(graph: Graph, num_restarts: int) -> list[tuple[SpectralEmbedding, PointClusters]]:
        weighted = weighted_graph(graph, rows=weight, columns=weight)
        leading = spectral_embedding(weighted, most, key=key, num_extra=0)
        settings = {"key": key, "weight": weight, "num_restarts": num_restarts, "warns": False}
        each = leading.diffused(num_clusters, 0.0), leading.diffused(most, _STEPS)
        return [(x, kmeans(x.vectors, num_clusters, **settings)) for x in each]

    report, alone = reporter(callback, "cut"), graphs if len(graphs) > 1 else []
    report(0, 1 + len(alone))
    cuts, indices = cut_twice(affinities, num_restarts), []
    for number, each in enumerate(alone):
        report(number + 1, 1 + len(alone))
        pairs = zip(cuts, cut_twice(each, 1), strict=True)
        labels = [(mean.assignments, own.assignments) for (_, mean), (_, own) in pairs]
        indices.append([metrics.adjusted_rand_index(*pair) for pair in labels])
    of_cuts = np.reshape(indices, (-1, len(cuts))).T
    return [Cut(*cut, own) for cut, own in zip(cuts, of_cuts, strict=True)]
