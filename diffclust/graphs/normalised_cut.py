"""The cost of a cut of a graph, and the edges across it."""

import numpy as np
import scipy
from jaxtyping import Float, Int

from diffclust import _validation
from diffclust.graphs.affinity import Graph
from diffclust.graphs.embedding import checked_graph, degrees, safe_inverse


def normalised_cut(
    graph: Graph, assignments: Int[np.ndarray, " n"], *, num_clusters: int | None = None
) -> float:
    """Σ cut(k) / vol(k): the share of each cluster's affinities that leave it, summed.

    It needs no labels, so it can choose among runs.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.
        num_clusters: K; by default the largest assignment plus one.

    Returns:
        A number from 0 to K; a cluster without samples or affinities contributes 1, the worst
        value.

    Raises:
        ValueError: If the graph is not a symmetric, finite, non-negative matrix, or there is not
            one assignment from 0 to K - 1 for each sample.

    References:
        Shi and Malik (2000), Normalized cuts and image segmentation, Eq. 2; Yu and Shi (2003) for
        more than two clusters.
    """
    graph = checked_graph(graph)
    assignments = _validation.as_array(assignments, "assignments")
    clusters = int(assignments.max(initial=0)) + 1 if num_clusters is None else num_clusters
    _validation.within(assignments, graph.shape[0], clusters, "assignments", "sample")
    volume = np.bincount(assignments, degrees(graph), minlength=clusters)
    edges = graph.tocoo()
    leaves = assignments[edges.row] != assignments[edges.col]
    cut = np.bincount(assignments[edges.row[leaves]], edges.data[leaves], minlength=clusters)
    return float(np.sum(np.where(volume > 0, cut * safe_inverse(volume), 1.0)))


_MOST_PASSES = 100
"""Maximum number of passes of `refined_cut`; if clusters are nearly right, about ten are enough."""


def refined_cut(
    graph: Graph, assignments: Int[np.ndarray, " n"], *, num_clusters: int
) -> Int[np.ndarray, " n"]:
    """Moves single samples to other clusters as long as that lowers the normalised cut.

    k-means of eigenvectors solves a relaxation of the cut, and leaves samples at the borders whose
    affinities are mostly to another cluster. Each of at most 100 passes moves every sample whose
    move would lower the cut, but of neighbouring samples only the one that lowers it most; if that
    raises the cut after all, only the single best move is made.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.
        num_clusters: K.

    Returns:
        Clusters with the same or a lower normalised cut; none loses its last sample.

    Raises:
        ValueError: If the graph is not a symmetric, finite, non-negative matrix, or there is not
            one assignment from 0 to K - 1 for each sample.

    References:
        Dhillon, Guan and Kulis (2007), Weighted graph cuts without eigenvectors (local search).
    """
    graph, assignments = checked_graph(graph), _validation.as_array(assignments, "assignments")
    _validation.within(assignments, graph.shape[0], num_clusters, "assignments", "sample")
    labels = np.array(assignments, np.int64)
    cut, gain, target = _best_moves(graph, labels, num_clusters)
    for _ in range(_MOST_PASSES):
        wanting = np.flatnonzero(gain > _LEAST_GAIN)
        if not len(wanting):
            break
        # Among neighbours that would move, the one with the largest gain; if gains are equal, all.
        rows = graph[wanting]
        greatest = np.maximum.reduceat(gain[rows.indices], rows.indptr[:-1])
        for moving in (wanting[gain[wanting] >= greatest], np.argmax(gain, keepdims=True)):
            moved = labels.copy()
            moved[moving] = target[moving]
            after = _best_moves(graph, moved, num_clusters)
            if after[0] < cut and np.isin(labels, moved).all():
                break
        else:
            break
        labels, (cut, gain, target) = moved, after
    return labels.astype(assignments.dtype)


_LEAST_GAIN = 1e-9
"""Differences of the cut below this are due to rounding."""


def _best_moves(
    graph: Graph, labels: Int[np.ndarray, " n"], clusters: int
) -> tuple[float, Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The cut, by how much each sample's best move lowers it, and the target of that move."""
    count, degree = len(labels), degrees(graph)
    one_hot = (np.ones(count), (np.arange(count), labels))
    member = scipy.sparse.csr_array(one_hot, shape=(count, clusters))
    links = (graph @ member).tocoo()
    own, loop = np.zeros(count), graph.diagonal()
    is_own = links.col == labels[links.row]
    own[links.row[is_own]] = links.data[is_own]
    volume = np.bincount(labels, degree, minlength=clusters)
    within = np.bincount(labels, own, minlength=clusters)
    share = within * safe_inverse(volume)
    left = (within[labels] - 2.0 * own + loop) * safe_inverse(volume[labels] - degree)
    # The last sample of a cluster stays.
    alone = np.bincount(labels, minlength=clusters)[labels] == 1
    loss = np.where(alone, np.inf, share[labels] - left)
    sample, cluster, link = links.row[~is_own], links.col[~is_own], links.data[~is_own]
    joined = within[cluster] + 2.0 * link + loop[sample]
    joined = joined * safe_inverse(volume[cluster] + degree[sample])
    rise = joined - share[cluster] - loss[sample]
    gain, target = np.full(count, -np.inf), labels.copy()
    # The last value written for a sample is its largest.
    order = np.argsort(rise, kind="stable")
    gain[sample[order]], target[sample[order]] = rise[order], cluster[order]
    return float(clusters - share.sum()), gain, target


_MOST_BRIDGES = 24


def strongest_bridges(
    graph: Graph, assignments: Int[np.ndarray, " n"]
) -> Int[np.ndarray, "pairs 2"]:
    """The 24 strongest edges between different clusters, which join the most ambiguous samples.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.

    Returns:
        Pairs of samples, the strongest edge first; every sample is in at most one of them.

    Raises:
        ValueError: If there are more or fewer assignments than samples.
    """
    edges, assignments = scipy.sparse.triu(graph, k=1).tocoo(), np.asarray(assignments)
    _validation.shaped(assignments, edges.shape[:1], "assignments", "a cluster for each sample")
    across = np.flatnonzero((assignments[edges.row] != assignments[edges.col]) & (edges.data > 0))
    across = across[np.argsort(-edges.data[across], kind="stable")]
    seen: set[int] = set()
    pairs = []
    for edge in across:
        pair = int(edges.row[edge]), int(edges.col[edge])
        if not seen.intersection(pair):
            seen.update(pair)
            pairs.append(pair)
        if len(pairs) == _MOST_BRIDGES:
            break
    return np.asarray(pairs, np.int32).reshape(-1, 2)


def bipartite_cut(affinities: Graph, assignments: np.ndarray, num_clusters: int) -> float:
    """The normalised cut of a bipartite graph, with each column in the cluster of most affinity.

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
    return float(np.sum(1.0 - 2.0 * inside * safe_inverse(volume)))
