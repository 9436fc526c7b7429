"""What is asked of finished fits: which K or grid, how steady, what speaks for a hierarchy.

Take `validation_curve` and `evidence_of` to choose settings without labels, `fit_from_common_start`
to lay methods side by side, and `shape_hierarchy` for a dendrogram of shapes.
"""

from diffclust.analysis.common_start import COMPARABLE, CommonStart, fit_from_common_start
from diffclust.analysis.evidence import evidence_of
from diffclust.analysis.hierarchy import Hierarchy, registered_gaussians, shape_hierarchy
from diffclust.analysis.model_selection import ValidationScores, validation_curve

__all__ = [
    "COMPARABLE",
    "CommonStart",
    "Hierarchy",
    "ValidationScores",
    "evidence_of",
    "fit_from_common_start",
    "registered_gaussians",
    "shape_hierarchy",
    "validation_curve",
]
