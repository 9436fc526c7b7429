"""Objectives: what a clustering minimises, put together from a transform and a distance.

`TransformedDistance` with penalties is the energy of one pair, `InvariantDistance` its minimum
over alignments, and a reduction over prototypes makes the loss of a sample.
"""

from diffclust.objectives.energy import TransformedDistance

__all__ = ["TransformedDistance"]
