"""Neighbour graphs: who is near whom, and how much that counts.

Take `nearest_neighbours` and one of the affinities to give a spectral method its graph; the
methods themselves are in `diffclust.solvers`.
"""

from diffclust.graphs.affinity import (
    affinity_to_references,
    gaussian_affinity,
    mean_graph,
    self_tuning_affinity,
    self_tuning_scales,
    weighed_graph,
)
from diffclust.graphs.neighbours import Neighbours, nearest_neighbours
from diffclust.graphs.refine import (
    JudgedCandidates,
    judged_candidates,
    nested_neighbours,
    pair_distances,
    rejudged,
)

__all__ = [
    "JudgedCandidates",
    "Neighbours",
    "affinity_to_references",
    "gaussian_affinity",
    "judged_candidates",
    "mean_graph",
    "nearest_neighbours",
    "nested_neighbours",
    "pair_distances",
    "rejudged",
    "self_tuning_affinity",
    "self_tuning_scales",
    "weighed_graph",
]
