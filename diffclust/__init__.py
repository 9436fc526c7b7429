"""Clustering that is invariant to transformations, in pure JAX.

`diffclust.models` holds the named methods; everything else is what they are composed of.
"""

from diffclust._version import __version__
from diffclust.checkpoint import load, save
from diffclust.models import (
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Result,
    ScatteringKMeans,
    ShapeKMeans,
    Training,
    TransformationInvariantKMeans,
)

__all__ = [
    "AffineInvariantKMeans",
    "DTIGaussianMixture",
    "DTIKMeans",
    "DeformationInvariantKMeans",
    "DeformationInvariantSpectralClustering",
    "GaussianMixture",
    "KMeans",
    "ProjectedScatteringSpectralClustering",
    "Result",
    "ScatteringKMeans",
    "ShapeKMeans",
    "Training",
    "TransformationInvariantKMeans",
    "__version__",
    "load",
    "save",
]
