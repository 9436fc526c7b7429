"""One estimator for each method."""

from typing import Any, ClassVar

import jax
import numpy as np

from diffclust import models
from diffclust.sklearn.bases import (
    AnyOrder,
    Compared,
    Distances,
    Images,
    Mixture,
    Predicted,
    Warped,
)


class KMeans(Distances, AnyOrder, model=models.KMeans):
    """K-means of rows of numbers: see `diffclust.KMeans`.

    It computes in the precision of what it is given.
    """

    def _precision(self, X: np.ndarray) -> Any:
        return jax.enable_x64(X.dtype == np.float64)

    def _samples(self, X: np.ndarray) -> np.ndarray:
        return X.reshape(len(X), 1, -1, 1)


class AffineInvariantKMeans(Distances, AnyOrder, Images, model=models.AffineInvariantKMeans):
    """AI K-means: see `diffclust.AffineInvariantKMeans`."""


class DeformationInvariantKMeans(
    Distances, AnyOrder, Warped, model=models.DeformationInvariantKMeans
):
    """DI K-means: see `diffclust.DeformationInvariantKMeans`."""


class TransformationInvariantKMeans(Distances, Images, model=models.TransformationInvariantKMeans):
    """TI clustering: see `diffclust.TransformationInvariantKMeans`."""


class DTIKMeans(Distances, Predicted, model=models.DTIKMeans):
    """DTI K-means: see `diffclust.DTIKMeans`."""


class DTIGaussianMixture(Mixture, Predicted, model=models.DTIGaussianMixture):
    """DTI GMM: see `diffclust.DTIGaussianMixture`."""


class GaussianMixture(Mixture, model=models.GaussianMixture):
    """A mixture of Gaussians with independent pixels: see `diffclust.GaussianMixture`."""


class ScatteringKMeans(AnyOrder, Compared, model=models.ScatteringKMeans):
    """K-means of projected scattering coefficients: see `diffclust.ScatteringKMeans`."""


class ProjectedScatteringSpectralClustering(
    Compared, model=models.ProjectedScatteringSpectralClustering
):
    """PSSC: see `diffclust.ProjectedScatteringSpectralClustering`."""


class DeformationInvariantSpectralClustering(
    Compared, Warped, model=models.DeformationInvariantSpectralClustering
):
    """Spectral clustering by bent neighbours: see the model of that name."""


class ShapeKMeans(AnyOrder, model=models.ShapeKMeans):
    """K-means of shapes: see `diffclust.ShapeKMeans`.

    Rows of numbers are landmarks that follow each other: x1, y1, x2, y2, ...
    """

    _own: ClassVar[dict[str, Any]] = {"num_dimensions": 2, "random_state": None}
    _least_samples = 2

    def _least_features(self) -> int:
        return 3 * self.num_dimensions

    def _samples(self, X: np.ndarray) -> np.ndarray:
        if X.ndim > 2:
            return X
        if X.shape[1] % self.num_dimensions:
            raise ValueError(
                f"X has {X.shape[1]} features, which are no landmarks of {self.num_dimensions} "
                "coordinates; set num_dimensions"
            )
        return X.reshape(len(X), -1, self.num_dimensions)
