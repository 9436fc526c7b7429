"""The energy of a registered shape against a cluster of shapes."""

from jaxtyping import Array, PyTree

from diffclust.distances import AbstractDissimilarity
from diffclust.energies.base import AbstractUnalignedEnergy
from diffclust.prototypes import LandmarkGaussians, gaussians
from diffclust.types import Scalar


class LandmarkEnergy(AbstractUnalignedEnergy):
    """dissimilarity(shape, centre); a shape without variances carries the cluster's.

    Nothing is moved: shapes are registered beforehand.

    Attributes:
        dissimilarity: A distance between shapes of Gaussian landmarks, or a negative
            log-likelihood of points.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Sec. 4.
    """

    dissimilarity: AbstractDissimilarity

    @property
    def is_distance(self) -> bool:
        """Whether `dissimilarity` is one."""
        return self.dissimilarity.is_distance

    def between(self, sample: PyTree, prototype: LandmarkGaussians) -> Scalar:
        if not self.is_distance or not isinstance(sample, Array):
            return self.dissimilarity(sample, prototype.centre)
        return self.dissimilarity(gaussians(sample, prototype.covariance), prototype.centre)
