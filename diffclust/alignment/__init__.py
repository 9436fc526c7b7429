"""Aligners: they minimise an energy over the params, for one sample and all clusters.

Take `Descent` for exact alignments of single samples, `NoAlignment` for plain K-means. Write your
own by subclassing `AbstractAligner`.
"""

from diffclust.alignment.base import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.alignment.descent import DEFAULT_STAGES, Descent, Stage, hessian_at_rest
from diffclust.alignment.minimisers import (
    AbstractMinimiser,
    OptaxMinimiser,
    PreconditionedLBFGS,
)
from diffclust.alignment.none import NoAlignment

__all__ = [
    "DEFAULT_STAGES",
    "AbstractAligner",
    "AbstractMinimiser",
    "AbstractPairEnergy",
    "Alignment",
    "Descent",
    "NoAlignment",
    "OptaxMinimiser",
    "PreconditionedLBFGS",
    "Stage",
    "hessian_at_rest",
]
