"""What a cut of a graph costs, and the edges across it."""

import numpy as np
import scipy
from jaxtyping import Int

from diffclust import _validation
from diffclust.graphs.affinity import Graph
from diffclust.graphs.embedding import checked_graph, degrees, safe_inverse


def normalised_cut(
    graph: Graph, assignments: Int[np.ndarray, " n"], *, num_clusters: int | None = None
) -> float:
    """Σ cut(k) / vol(k): the share of each cluster's affinities that leave it, summed.

    Needs no labels, so that it can choose among runs.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.
        num_clusters: K; the largest assignment and one where it is not given.

    Returns:
        A number from 0 to K; a cluster without samples or affinities counts 1, the worst.

    Raises:
        ValueError: If there is not one assignment for each sample, below K.

    References:
        Shi and Malik (2000), Normalized cuts and image segmentation, Eq. 2; Yu and Shi (2003) for
        more than two clusters.
    """
    graph = checked_graph(graph)
    assignments = np.asarray(assignments)
    clusters = int(assignments.max(initial=0)) + 1 if num_clusters is None else num_clusters
    _validation.within(assignments, graph.shape[0], clusters, "assignments", "sample")
    volume = np.bincount(assignments, degrees(graph), minlength=clusters)
    edges = graph.tocoo()
    inside = assignments[edges.row] == assignments[edges.col]
    within = np.bincount(assignments[edges.row[inside]], edges.data[inside], minlength=clusters)
    # Rounding may take it below.
    return max(0.0, float(np.sum(1.0 - within * safe_inverse(volume))))


_MOST_BRIDGES = 24


def strongest_bridges(
    graph: Graph, assignments: Int[np.ndarray, " n"]
) -> Int[np.ndarray, "pairs 2"]:
    """The 24 edges of greatest affinity between different clusters: the most ambiguous samples.

    Args:
        graph: Symmetric, non-negative affinities.
        assignments: A cluster for each sample.

    Returns:
        Pairs of samples, the strongest edge first; every sample is in one of them at most.
    """
    edges = scipy.sparse.triu(graph, k=1).tocoo()
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
