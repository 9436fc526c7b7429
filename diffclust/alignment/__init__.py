"""Aligners: they minimise an energy over the params, for one sample and all clusters.

Take `Descent` for exact alignments of single samples, `Prediction` for those that a network learns
to predict, `InTurn` for one after another, `NoAlignment` for plain K-means. Write your own by
subclassing `AbstractAligner`. Landmarks are registered in closed form: `procrustes` lays one
configuration on another, `generalised_procrustes` many on their mean.
"""

from diffclust.alignment.base import (
    AbstractAligner,
    AbstractPairEnergy,
    AbstractSampleEnergy,
    Alignment,
)
from diffclust.alignment.descent import DEFAULT_STAGES, Descent, Stage, hessian_at_rest
from diffclust.alignment.frames import principal_frame
from diffclust.alignment.generalised_procrustes import Registration, generalised_procrustes
from diffclust.alignment.in_turn import InTurn
from diffclust.alignment.inherited import InheritedVariances
from diffclust.alignment.minimisers import (
    AbstractMinimiser,
    OptaxMinimiser,
    PreconditionedLBFGS,
)
from diffclust.alignment.none import NoAlignment
from diffclust.alignment.prediction import Prediction
from diffclust.alignment.procrustes import (
    Similarity,
    centroid,
    centroid_size,
    procrustes,
    procrustes_residual,
)

__all__ = [
    "DEFAULT_STAGES",
    "AbstractAligner",
    "AbstractMinimiser",
    "AbstractPairEnergy",
    "AbstractSampleEnergy",
    "Alignment",
    "Descent",
    "InTurn",
    "InheritedVariances",
    "NoAlignment",
    "OptaxMinimiser",
    "PreconditionedLBFGS",
    "Prediction",
    "Registration",
    "Similarity",
    "Stage",
    "centroid",
    "centroid_size",
    "generalised_procrustes",
    "hessian_at_rest",
    "principal_frame",
    "procrustes",
    "procrustes_residual",
]
