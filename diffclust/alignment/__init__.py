"""Aligners: they minimise an energy over the params, for one sample and all clusters.

Take `Descent` for exact alignments of single samples, `Prediction` for those that a network learns
to predict, `InTurn` for one after another, `NoAlignment` for plain K-means. Write your own by
subclassing `AbstractAligner`.
"""

from diffclust.alignment.base import (
    AbstractAligner,
    AbstractPairEnergy,
    AbstractSampleEnergy,
    Alignment,
)
from diffclust.alignment.descent import DEFAULT_STAGES, Descent, Stage, hessian_at_rest
from diffclust.alignment.in_turn import InTurn
from diffclust.alignment.minimisers import (
    AbstractMinimiser,
    OptaxMinimiser,
    PreconditionedLBFGS,
)
from diffclust.alignment.none import NoAlignment
from diffclust.alignment.prediction import Prediction

__all__ = [
    "DEFAULT_STAGES",
    "AbstractAligner",
    "AbstractMinimiser",
    "AbstractPairEnergy",
    "AbstractSampleEnergy",
    "Alignment",
    "Descent",
    "InTurn",
    "NoAlignment",
    "OptaxMinimiser",
    "PreconditionedLBFGS",
    "Prediction",
    "Stage",
    "hessian_at_rest",
]
