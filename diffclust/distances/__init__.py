"""Distances between one sample and one prototype, before any transform is minimised over.

Take one to say what "alike" means; give it to `diffclust.alignment` to make it invariant.
"""

from diffclust.distances.base import (
    AbstractBatchedDistance,
    AbstractDissimilarity,
    AbstractDistance,
)
from diffclust.distances.euclidean import SquaredEuclidean
from diffclust.distances.features import FeatureDistance
from diffclust.distances.gaussian import DiagonalGaussian, GaussianNegativeLogLikelihood

__all__ = [
    "AbstractBatchedDistance",
    "AbstractDissimilarity",
    "AbstractDistance",
    "DiagonalGaussian",
    "FeatureDistance",
    "GaussianNegativeLogLikelihood",
    "SquaredEuclidean",
]
