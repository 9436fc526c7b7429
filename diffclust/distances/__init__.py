"""Distances between one sample and one prototype, before any transform is minimised over.

Take one to say what "alike" means; give it to `diffclust.alignment` to make it invariant.
"""

from diffclust.distances.base import AbstractBatchedDistance, AbstractDistance
from diffclust.distances.euclidean import SquaredEuclidean

__all__ = ["AbstractBatchedDistance", "AbstractDistance", "SquaredEuclidean"]
