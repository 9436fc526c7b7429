"""The named methods: each is a short composition of transforms, distances, aligners and solvers.

Use one to cluster something; read one to see how to compose your own.
"""

from diffclust._renamed import takes_former_settings
from diffclust.methods import METHODS
from diffclust.models.base import AbstractModel, Result
from diffclust.models.di_spectral import DeformationInvariantSpectralClustering
from diffclust.models.dti import (
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    TransformationInvariantKMeans,
)
from diffclust.models.gradient import AbstractGradientModel, PrototypeObjective, warped_prototypes
from diffclust.models.graph import SpectralClustering
from diffclust.models.images import AbstractImageModel, of_images, restored, unaligned
from diffclust.models.kmeans import (
    PUBLISHED_LANDMARKS,
    PUBLISHED_RATES,
    AbstractPrototypeModel,
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    KMeans,
)
from diffclust.models.mean_graph import Cut, cut_mean_graph, cuts_of_mean_graph, self_tuning_graphs
from diffclust.models.own import Clustering, GradientClustering
from diffclust.models.scattering import AbstractScatteringModel, ScatteringKMeans
from diffclust.models.series import SeriesKMeans, SeriesSpectralClustering
from diffclust.models.settings import Training
from diffclust.models.shapes import ShapeKMeans
from diffclust.models.spectral import ProjectedScatteringSpectralClustering

MODELS: dict[str, type[AbstractModel]] = {
    name: takes_former_settings(globals()[method.model]) for name, method in METHODS.items()
}
"""All models, by their names on the command line."""

__all__ = [
    "MODELS",
    "PUBLISHED_LANDMARKS",
    "PUBLISHED_RATES",
    "AbstractGradientModel",
    "AbstractImageModel",
    "AbstractModel",
    "AbstractPrototypeModel",
    "AbstractScatteringModel",
    "AffineInvariantKMeans",
    "Clustering",
    "Cut",
    "DTIGaussianMixture",
    "DTIKMeans",
    "DeformationInvariantKMeans",
    "DeformationInvariantSpectralClustering",
    "GaussianMixture",
    "GradientClustering",
    "KMeans",
    "ProjectedScatteringSpectralClustering",
    "PrototypeObjective",
    "Result",
    "ScatteringKMeans",
    "SeriesKMeans",
    "SeriesSpectralClustering",
    "ShapeKMeans",
    "SpectralClustering",
    "Training",
    "TransformationInvariantKMeans",
    "cut_mean_graph",
    "cuts_of_mean_graph",
    "of_images",
    "restored",
    "self_tuning_graphs",
    "unaligned",
    "warped_prototypes",
]
