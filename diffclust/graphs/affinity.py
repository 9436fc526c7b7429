"""Affinities: sparse matrices of non-negative weights made from lists of neighbours."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import scipy
from jaxtyping import Float, Shaped

from diffclust import _validation
from diffclust.graphs.neighbours import Neighbours

Graph: TypeAlias = "scipy.sparse.csr_array"
"""Affinities: one row per sample, one column per sample or reference."""

_WEAKEST = 20.0
"""Largest allowed exponent of a sample's strongest affinity. With a degree of zero the sample would
have no position; exp(-20) is weak enough to be outvoted by any other affinity, and strong enough
that the sample's position in the eigenvectors is not lost in rounding errors."""


def self_tuning_scales(
    neighbours: Neighbours, *, num_neighbours: int = 5
) -> Float[np.ndarray, " n"]:
    """The distance from every sample to its k-th neighbour.

    Args:
        neighbours: Neighbours of the samples, excluding themselves.
        num_neighbours: k; if there are fewer neighbours, the farthest one is used.

    Returns:
        Distances, which are zero for a sample with k duplicates.

    References:
        Zelnik-Manor and Perona (2004), Self-tuning spectral clustering, Eq. 2 (with k = 7).
    """
    _validation.count(num_neighbours, "num_neighbours")
    return neighbours.distance[:, min(num_neighbours, neighbours.num_neighbours) - 1]


def self_tuning_affinity(
    neighbours: Neighbours, *, num_neighbours: int = 5, symmetrise: Literal["mean", "max"] = "mean"
) -> Graph:
    """exp(-d²(i, j) / (s_i s_j)) for every sample and its nearest k, s from the k-th of them.

    The scale follows the density, so that sparse and dense clusters are equally connected.
    Duplicates have affinity 1. A sample that is far from all its neighbours keeps affinities of
    about exp(-20), so that no degree is zero.

    Args:
        neighbours: Neighbours of the samples, excluding themselves.
        num_neighbours: k, for the edges and the scales; if there are fewer neighbours, all are
            used.
        symmetrise: `"mean"` is (A + Aᵀ) / 2, so that mutual neighbours count twice as much as
            others; `"max"` counts them equally.

    Returns:
        A symmetric matrix in double precision with an empty diagonal.

    References:
        Zelnik-Manor and Perona (2004), Self-tuning spectral clustering, Eqs. 1 and 2.
    """
    _validation.one_of(symmetrise, ("mean", "max"), "symmetrise")
    scales = self_tuning_scales(neighbours, num_neighbours=num_neighbours)
    directed = affinity_to_references(neighbours, scales, num_neighbours=num_neighbours)
    directed = scipy.sparse.csr_array(directed - scipy.sparse.diags_array(directed.diagonal()))
    directed.eliminate_zeros()
    if symmetrise == "max":
        return scipy.sparse.csr_array(directed.maximum(directed.T))
    return scipy.sparse.csr_array((directed + directed.T) * 0.5)


def affinity_to_references(
    neighbours: Neighbours, scales: Float[np.ndarray, " references"], *, num_neighbours: int = 5
) -> Graph:
    """Self-tuning affinities of new samples to references with known scales.

    Args:
        neighbours: Neighbours of the new samples among the references.
        scales: The references' own scales.
        num_neighbours: k, for the edges and the new samples' scales.

    Returns:
        A matrix of shape `(len(neighbours), references)`.

    References:
        Zelnik-Manor and Perona (2004), Self-tuning spectral clustering, Eq. 1.
    """
    own = self_tuning_scales(neighbours, num_neighbours=num_neighbours).astype(np.float64)
    index = neighbours.index[:, :num_neighbours]
    distance = neighbours.distance[:, :num_neighbours].astype(np.float64)
    # Divided by each scale separately: the product of two small scales could underflow.
    exponent = _ratio(distance, own[:, None]) * _ratio(distance, scales[index].astype(np.float64))
    return _sparse(index, exponent, len(scales))


def gaussian_affinity(
    neighbours: Neighbours,
    num_references: int,
    *,
    num_neighbours: int | None = None,
    sigma: float | None = None,
) -> Graph:
    """exp(-d² / 2σ²) from every sample to its nearest references, zero to all others (Eq. 5).

    If a sample is far from all references (d² > 40 σ²), its affinities are multiplied by one number
    such that the largest is exp(-20).

    Args:
        neighbours: Nearest references of the samples.
        num_references: Number of references.
        num_neighbours: How many of the neighbours are used; None for all.
        sigma: σ; by default the mean distance of samples to these neighbours. For new samples, give
            the value of the training samples.

    Returns:
        A matrix of shape `(len(neighbours), num_references)` with positive row sums.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Eq. 5; Huang et al. (2019), Ultra-scalable spectral
        clustering, Sec. 3.1.2, for σ.
    """
    if num_neighbours is not None:
        _validation.count(num_neighbours, "num_neighbours")
    if sigma is not None:
        _validation.positive(sigma, "sigma", least=0.0)
    index, distance = neighbours.index[:, :num_neighbours], neighbours.distance[:, :num_neighbours]
    distance = distance.astype(np.float64)
    sigma = float(distance.mean()) if sigma is None else sigma
    exponent = 0.5 * _ratio(distance, np.full((1, 1), sigma)) ** 2
    return _sparse(index, exponent, num_references)


def mean_graph(graphs: Sequence[Graph]) -> Graph:
    """The mean of several graphs on the same samples.

    Args:
        graphs: Sparse matrices of the same shape; at least one.

    Returns:
        Their mean.

    Raises:
        ValueError: If there are no graphs, or shapes differ.
    """
    if not graphs:
        raise ValueError("graphs is empty; give at least one")
    shapes = {graph.shape for graph in graphs}
    if len(shapes) > 1:
        raise ValueError(f"graphs must have one shape, not {sorted(shapes)}")
    return scipy.sparse.csr_array(sum(graphs[1:], graphs[0]) * (1.0 / len(graphs)))


def mean_affinity_to_references(
    neighbours: Sequence[Neighbours],
    num_neighbours: Sequence[int],
    scales: Float[np.ndarray, "graphs references"],
    *,
    weight: Shaped[np.ndarray, " references"] | None = None,
) -> Graph:
    """The mean of self-tuning affinities of new samples to references.

    Args:
        neighbours: Neighbours of the new samples among the references, for each of several
            distances.
        num_neighbours: Numbers of neighbours, for each of which affinities are computed.
        scales: The references' own scales, for each distance and number of neighbours.
        weight: Weights of the references, or None for ones.

    Returns:
        A matrix of shape `(n, references)`.
    """
    settings = [(near, k) for near in neighbours for k in num_neighbours]
    graphs = [
        affinity_to_references(near, own, num_neighbours=k)
        for (near, k), own in zip(settings, scales, strict=True)
    ]
    return weighted_graph(mean_graph(graphs), columns=weight)


def weighted_graph(
    graph: Graph,
    *,
    rows: Shaped[np.ndarray, " n"] | None = None,
    columns: Shaped[np.ndarray, " m"] | None = None,
) -> Graph:
    """Affinities multiplied by the weights of samples.

    If the weights of a graph's samples are given for both rows and columns, the edge between two of
    them is multiplied by the product of their weights, as if each occurred as many times as its
    weight.

    Args:
        graph: Affinities.
        rows: Weights of the samples of the rows, or None for ones.
        columns: Weights of the samples of the columns, or None for ones.

    Returns:
        Every affinity times the weights of its row and its column.
    """
    if rows is not None:
        graph = scipy.sparse.diags_array(rows, dtype=np.float64) @ graph
    if columns is not None:
        graph = graph @ scipy.sparse.diags_array(columns, dtype=np.float64)
    return scipy.sparse.csr_array(graph)


def _ratio(
    distance: Shaped[np.ndarray, "..."], scale: Shaped[np.ndarray, "..."]
) -> Shaped[np.ndarray, "..."]:
    """The quotient, with 0 / 0 = 0 and a large finite number instead of infinity."""
    safe = np.where(scale > 0, scale, 1.0)
    ratio = np.where(scale > 0, distance / safe, np.where(distance > 0, 1e6, 0.0))
    return np.minimum(ratio, 1e6)


def _sparse(index: np.ndarray, exponent: np.ndarray, columns: int) -> Graph:
    """exp(-exponent) as a sparse matrix whose rows all have a positive sum."""
    # The same number for the whole row, so that it keeps its proportions.
    exponent = exponent - np.maximum(exponent.min(axis=1, keepdims=True) - _WEAKEST, 0.0)
    rows = np.repeat(np.arange(len(index)), index.shape[1])
    shape = (len(index), columns)
    entries = (np.exp(-exponent).ravel(), (rows, index.ravel()))
    return scipy.sparse.csr_array(scipy.sparse.coo_array(entries, shape=shape))
