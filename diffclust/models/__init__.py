"""The named methods: each is a short composition of transforms, distances, aligners and solvers.

Take one to cluster something; read one to see how to compose your own.
"""

from diffclust.models.base import AbstractModel, Result
from diffclust.models.kmeans import AffineInvariantKMeans, DeformationInvariantKMeans, KMeans
from diffclust.models.prototypes import AbstractPrototypeModel

MODELS: dict[str, type[AbstractModel]] = {
    "kmeans": KMeans,
    "ai-kmeans": AffineInvariantKMeans,
    "di-kmeans": DeformationInvariantKMeans,
}
"""Every model under its name on the command line."""

__all__ = [
    "MODELS",
    "AbstractModel",
    "AbstractPrototypeModel",
    "AffineInvariantKMeans",
    "DeformationInvariantKMeans",
    "KMeans",
    "Result",
]
