"""Energies of one sample and one cluster, and reductions of these to a sample's loss.

`TransformedDistance` (which moves the sample) or `TransformedPrototype`, with penalties, is the
energy of one pair, which an aligner minimises. A reduction over prototypes (`HardMinimum`,
`MixtureLikelihood`) computes the loss of a sample. Write your own by subclassing
`AbstractPairEnergy` or `AbstractReduction`.
"""

from diffclust.energies.base import (
    AbstractPairEnergy,
    AbstractSampleEnergy,
    AbstractUnalignedEnergy,
    BoundEnergy,
    hessian_at_identity,
)
from diffclust.energies.evidence import (
    FitStatistics,
    Hyperparameters,
    effective_pixels,
    em_step,
    estimate_noise,
    log_evidence,
    quadratic_forms,
)
from diffclust.energies.landmarks import LandmarkEnergy
from diffclust.energies.reductions import (
    AbstractAdaptiveReduction,
    AbstractReduction,
    Entropic,
    Fuzzy,
    HardMinimum,
    MixtureLikelihood,
)
from diffclust.energies.transformed import TransformedDistance, TransformedPrototype

__all__ = [
    "AbstractAdaptiveReduction",
    "AbstractPairEnergy",
    "AbstractReduction",
    "AbstractSampleEnergy",
    "AbstractUnalignedEnergy",
    "BoundEnergy",
    "Entropic",
    "FitStatistics",
    "Fuzzy",
    "HardMinimum",
    "Hyperparameters",
    "LandmarkEnergy",
    "MixtureLikelihood",
    "TransformedDistance",
    "TransformedPrototype",
    "effective_pixels",
    "em_step",
    "estimate_noise",
    "hessian_at_identity",
    "log_evidence",
    "quadratic_forms",
]
