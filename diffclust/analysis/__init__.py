"""What is asked of finished fits: which K or grid, how steady, what speaks for a hierarchy.

Take `graph_survey` and `evidence_of` to choose settings without labels, `fit_from_common_start` to
lay methods side by side, and `shape_hierarchy` for a dendrogram of shapes.
"""

from diffclust.analysis.common_start import COMPARABLE, CommonStart, fit_from_common_start
from diffclust.analysis.evidence import evidence_of
from diffclust.analysis.hierarchy import Hierarchy, shape_hierarchy
from diffclust.analysis.model_selection import GraphSurveyRow, graph_survey

__all__ = [
    "COMPARABLE",
    "CommonStart",
    "GraphSurveyRow",
    "Hierarchy",
    "evidence_of",
    "fit_from_common_start",
    "graph_survey",
    "shape_hierarchy",
]
