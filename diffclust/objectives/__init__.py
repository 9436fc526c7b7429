"""Objectives: what a clustering minimises, put together from a transform and a distance.

`TransformedDistance` (the sample is moved) or `TransformedPrototype` with penalties is the energy
of one pair, `InvariantDistance` its minimum over alignments, and a reduction over prototypes
(`HardMinimum`, `MixtureLikelihood`) makes the loss of a sample.
"""

from diffclust.objectives.energy import TransformedDistance
from diffclust.objectives.evidence import (
    Hyperparameters,
    Warps,
    effective_pixels,
    em_step,
    log_evidence,
    noise_of,
    quadratic_forms,
)
from diffclust.objectives.invariant import (
    AfterAlignment,
    InvariantDistance,
    PreparedDistance,
)
from diffclust.objectives.landmark_energy import LandmarkEnergy
from diffclust.objectives.prototype_energy import TransformedPrototype
from diffclust.objectives.reduction import AbstractReduction, HardMinimum, MixtureLikelihood

__all__ = [
    "AbstractReduction",
    "AfterAlignment",
    "HardMinimum",
    "Hyperparameters",
    "InvariantDistance",
    "LandmarkEnergy",
    "MixtureLikelihood",
    "PreparedDistance",
    "TransformedDistance",
    "TransformedPrototype",
    "Warps",
    "effective_pixels",
    "em_step",
    "log_evidence",
    "noise_of",
    "quadratic_forms",
]
