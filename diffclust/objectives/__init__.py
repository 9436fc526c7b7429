"""Objectives: what a clustering minimises, put together from a transform and a distance.

`TransformedDistance` with penalties is the energy of one pair, `InvariantDistance` its minimum
over alignments, and a reduction over prototypes makes the loss of a sample.
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
    hard_minimum,
)

__all__ = [
    "AfterAlignment",
    "Hyperparameters",
    "InvariantDistance",
    "PreparedDistance",
    "TransformedDistance",
    "Warps",
    "effective_pixels",
    "em_step",
    "hard_minimum",
    "log_evidence",
    "noise_of",
    "quadratic_forms",
]
