"""What is learned about the clusters, and how aligned samples are averaged into prototypes.

`Learned` is the one tree that a solver updates. A prototype family turns sums over aligned samples
into prototypes, so that nothing ever stores all aligned samples.
"""

from diffclust.prototypes.base import (
    AbstractPrototypeFamily,
    Clusters,
    Covariance,
    GaussianImages,
    LandmarkGaussians,
    Learned,
    Membership,
    exemplar_of,
    weighted_sums,
)
from diffclust.prototypes.images import MeanImages, Sums, UnitNormImages, UnitNormSeries
from diffclust.prototypes.shapes import (
    FrechetShapes,
    FrechetSums,
    LandmarkSums,
    MeanShapes,
    gaussians,
)

__all__ = [
    "AbstractPrototypeFamily",
    "Clusters",
    "Covariance",
    "FrechetShapes",
    "FrechetSums",
    "GaussianImages",
    "LandmarkGaussians",
    "LandmarkSums",
    "Learned",
    "MeanImages",
    "MeanShapes",
    "Membership",
    "Sums",
    "UnitNormImages",
    "UnitNormSeries",
    "exemplar_of",
    "gaussians",
    "weighted_sums",
]
