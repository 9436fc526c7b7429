"""What is learned of the clusters, and how aligned samples are averaged into prototypes.

`Learned` is the one tree that a solver updates. A prototype family turns sums over aligned samples
into prototypes, so that nothing ever stores all aligned samples.
"""

from diffclust.prototypes.base import AbstractPrototypeFamily, Clusters, Learned
from diffclust.prototypes.frechet import FrechetShapes, FrechetSums
from diffclust.prototypes.images import GaussianImages, MeanImages, Sums, UnitNormImages
from diffclust.prototypes.landmarks import LandmarkGaussians, LandmarkSums, MeanShapes, gaussians
from diffclust.prototypes.picture import picture_of, variance_of

__all__ = [
    "AbstractPrototypeFamily",
    "Clusters",
    "FrechetShapes",
    "FrechetSums",
    "GaussianImages",
    "LandmarkGaussians",
    "LandmarkSums",
    "Learned",
    "MeanImages",
    "MeanShapes",
    "Sums",
    "UnitNormImages",
    "gaussians",
    "picture_of",
    "variance_of",
]
