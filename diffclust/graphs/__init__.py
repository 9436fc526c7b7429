"""Neighbour graphs: finding neighbours, weighting edges, and cutting the graph.

Use `nearest_neighbours`, or `nearest_neighbour_descent` if samples have no features, and one of the
affinities to make a graph; `spectral_embedding` (or `transfer_cut`, with representatives) to embed
its samples; `normalised_cut` to evaluate a clustering of them; and `refined_cut` to improve it.
"""

from diffclust.graphs.affinity import (
    affinity_to_references,
    gaussian_affinity,
    mean_graph,
    self_tuning_affinity,
    self_tuning_scales,
    weighted_graph,
)
from diffclust.graphs.embedding import SpectralEmbedding, eigengap, spectral_embedding, transfer_cut
from diffclust.graphs.neighbour_descent import DescentResult, nearest_neighbour_descent
from diffclust.graphs.neighbours import Neighbours, nearest_neighbours
from diffclust.graphs.normalised_cut import (
    bipartite_cut,
    normalised_cut,
    refined_cut,
    strongest_bridges,
)
from diffclust.graphs.refine import (
    CandidateDistances,
    candidate_distances,
    nested_neighbours,
    pair_distances,
    reranked,
)

__all__ = [
    "CandidateDistances",
    "DescentResult",
    "Neighbours",
    "SpectralEmbedding",
    "affinity_to_references",
    "bipartite_cut",
    "candidate_distances",
    "eigengap",
    "gaussian_affinity",
    "mean_graph",
    "nearest_neighbour_descent",
    "nearest_neighbours",
    "nested_neighbours",
    "normalised_cut",
    "pair_distances",
    "refined_cut",
    "reranked",
    "self_tuning_affinity",
    "self_tuning_scales",
    "spectral_embedding",
    "strongest_bridges",
    "transfer_cut",
    "weighted_graph",
]
