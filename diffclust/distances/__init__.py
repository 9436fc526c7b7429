"""Distances between one sample and one prototype, before minimising over transforms.

Use a distance to define what "alike" means; give it to `diffclust.alignment` to make it invariant.
"""

from diffclust.distances.base import (
    AbstractBatchedDistance,
    AbstractDissimilarity,
    AbstractDistance,
    pairwise,
)
from diffclust.distances.divergences import (
    alpha_divergence,
    bhattacharyya,
    hellinger,
    kullback_leibler,
)
from diffclust.distances.euclidean import FeatureDistance, SquaredEuclidean
from diffclust.distances.fisher_rao import (
    diagonal_fisher_rao,
    diagonalised_fisher_rao,
    fisher_rao,
    fisher_rao_exp,
    fisher_rao_geodesic,
    fisher_rao_log,
    isotropic_fisher_rao,
    same_mean_fisher_rao,
    squared_diagonal_fisher_rao,
    squared_fisher_rao,
)
from diffclust.distances.frechet import diagonal_fisher_rao_mean, fisher_rao_mean, wasserstein_mean
from diffclust.distances.gaussian import (
    DiagonalGaussian,
    Gaussian,
    GaussianNegativeLogLikelihood,
    check_gaussians,
)
from diffclust.distances.landmarks import (
    LANDMARK_DISTANCES,
    LandmarkDistance,
    LandmarkNegativeLogLikelihood,
)
from diffclust.distances.wasserstein import printed_wasserstein, squared_wasserstein, wasserstein

__all__ = [
    "LANDMARK_DISTANCES",
    "AbstractBatchedDistance",
    "AbstractDissimilarity",
    "AbstractDistance",
    "DiagonalGaussian",
    "FeatureDistance",
    "Gaussian",
    "GaussianNegativeLogLikelihood",
    "LandmarkDistance",
    "LandmarkNegativeLogLikelihood",
    "SquaredEuclidean",
    "alpha_divergence",
    "bhattacharyya",
    "check_gaussians",
    "diagonal_fisher_rao",
    "diagonal_fisher_rao_mean",
    "diagonalised_fisher_rao",
    "fisher_rao",
    "fisher_rao_exp",
    "fisher_rao_geodesic",
    "fisher_rao_log",
    "fisher_rao_mean",
    "hellinger",
    "isotropic_fisher_rao",
    "kullback_leibler",
    "pairwise",
    "printed_wasserstein",
    "same_mean_fisher_rao",
    "squared_diagonal_fisher_rao",
    "squared_fisher_rao",
    "squared_wasserstein",
    "wasserstein",
    "wasserstein_mean",
]
