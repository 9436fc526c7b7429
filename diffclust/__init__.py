"""Clustering that is invariant to transformations, in pure JAX.

`diffclust.models` holds the named methods; everything else is what they are composed of.
"""

from diffclust._version import __version__
from diffclust.checkpoint import load, save
from diffclust.models import (
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Result,
    ScatteringKMeans,
)

__all__ = [
    "AffineInvariantKMeans",
    "DeformationInvariantKMeans",
    "DeformationInvariantSpectralClustering",
    "KMeans",
    "ProjectedScatteringSpectralClustering",
    "Result",
    "ScatteringKMeans",
    "__version__",
    "load",
    "save",
]
