"""Aligners, which minimise an energy over the params, for one sample and all clusters.

Use `Descent` for exact alignments of single samples, `GridSearch` if descent from the identity
would end in the wrong local minimum, `Prediction` for alignments that a network learns to predict,
`Sequential` to run one aligner after another, and `NoAlignment` for plain K-means. An energy and an
aligner together make an `InvariantDistance`. Write your own by subclassing `AbstractAligner`.
"""

from diffclust.alignment.base import (
    AbstractAligner,
    AbstractWithCandidates,
    Alignment,
    ClusterVariances,
    NoAlignment,
    candidate_count,
    check_candidates,
    check_samples,
    most_promising,
    or_incumbent,
    ranked,
)
from diffclust.alignment.descent import DEFAULT_STAGES, Descent, Stage
from diffclust.alignment.grid_search import GridSearch
from diffclust.alignment.invariant import (
    Adjoint,
    AfterAlignment,
    InvariantDistance,
    PreparedDistance,
    at_fixed_params,
    constant,
)
from diffclust.alignment.minimisers import (
    AbstractMinimiser,
    OptaxMinimiser,
    OptimistixMinimiser,
    PreconditionedLBFGS,
)
from diffclust.alignment.prediction import Prediction, Sequential

__all__ = [
    "DEFAULT_STAGES",
    "AbstractAligner",
    "AbstractMinimiser",
    "AbstractWithCandidates",
    "Adjoint",
    "AfterAlignment",
    "Alignment",
    "ClusterVariances",
    "Descent",
    "GridSearch",
    "InvariantDistance",
    "NoAlignment",
    "OptaxMinimiser",
    "OptimistixMinimiser",
    "PreconditionedLBFGS",
    "Prediction",
    "PreparedDistance",
    "Sequential",
    "Stage",
    "at_fixed_params",
    "candidate_count",
    "check_candidates",
    "check_samples",
    "constant",
    "most_promising",
    "or_incumbent",
    "ranked",
]
