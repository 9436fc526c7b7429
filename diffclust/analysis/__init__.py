"""Analyses of finished fits: choice of K or of a landmark grid, comparisons, hierarchies.

Use `elbow`, `Grounds` and `evidence_of` to choose settings without labels, `clusters_of_leading` to
get the clusters of a finished graph for a smaller K, `fit_from_common_start` to compare methods,
`shape_hierarchy` for a dendrogram of shapes, `conformal_p_values` to see which new samples belong
to no cluster, and `movement` to see whether alignment made a difference.
"""

from diffclust.analysis.common_start import BASELINE, COMPARABLE, CommonStart, fit_from_common_start
from diffclust.analysis.evidence import check_evidence, evidence_of
from diffclust.analysis.hierarchy import Hierarchy, registered_gaussians, shape_hierarchy
from diffclust.analysis.model_selection import (
    Grounds,
    clusters_of_leading,
    eigengaps,
    elbow,
    grounds_of_evidence,
    grounds_of_gaps,
    grounds_of_losses,
)
from diffclust.analysis.movement import describe_movement, movement
from diffclust.analysis.novelty import SIGNIFICANCE, conformal_p_values, novelty, p_values

__all__ = [
    "BASELINE",
    "COMPARABLE",
    "SIGNIFICANCE",
    "CommonStart",
    "Grounds",
    "Hierarchy",
    "check_evidence",
    "clusters_of_leading",
    "conformal_p_values",
    "describe_movement",
    "eigengaps",
    "elbow",
    "evidence_of",
    "fit_from_common_start",
    "grounds_of_evidence",
    "grounds_of_gaps",
    "grounds_of_losses",
    "movement",
    "novelty",
    "p_values",
    "registered_gaussians",
    "shape_hierarchy",
]
