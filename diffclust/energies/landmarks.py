"""The energy of a registered shape against a cluster of shapes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.distances import AbstractDissimilarity, AbstractDistance
from diffclust.energies.base import AbstractSampleEnergy, BoundEnergy
from diffclust.prototypes import Clusters, LandmarkGaussians, gaussians
from diffclust.types import Landmarks, Params, Scalar


class LandmarkEnergy(AbstractSampleEnergy):
    """dissimilarity(shape, centre), where a shape without variances carries the cluster's.

    Nothing moves: shapes are registered before.

    Attributes:
        dissimilarity: A distance between shapes of Gaussian landmarks, or a negative
            log-likelihood of points.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Sec. 4.
    """

    dissimilarity: AbstractDissimilarity

    @property
    def num_params(self) -> int:
        """Zero."""
        return 0

    @property
    def num_penalties(self) -> int:
        """Zero."""
        return 0

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """None."""
        return None

    def bind(self, sample: PyTree, *, scale: float = 1.0) -> BoundEnergy:
        # Samples are arrays, or Gaussians.
        del sample

        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            del params
            return scale * self._between(sample, cluster.prototype)

        return energy

    def _between(self, sample: PyTree, prototype: LandmarkGaussians) -> Scalar:
        of_points = not isinstance(self.dissimilarity, AbstractDistance)
        if of_points or not isinstance(sample, Array):
            return self.dissimilarity(sample, prototype.centre)
        return self.dissimilarity(gaussians(sample, prototype.covariance), prototype.centre)

    def aligned(self, params: Params, sample: PyTree) -> PyTree:
        """The shape as it is; see `AbstractSampleEnergy.aligned`."""
        del params
        return sample

    def pixel_weight(self, params: Params, sample: PyTree) -> Array | None:
        """None; see `AbstractSampleEnergy.pixel_weight`."""
        del params, sample

    def penalties(self, params: Params) -> Float[Array, " terms"]:
        """None; see `AbstractPairEnergy.penalties`."""
        return jnp.zeros((0,), dtype=params.dtype)

    def unaligned(self, sample: PyTree, clusters: Clusters) -> Float[Array, " clusters"]:
        return jax.vmap(self._between, in_axes=(None, 0))(sample, clusters.prototype)

    def coarser(self, sample: PyTree, factor: int, *, sigma: float | None = None) -> PyTree:
        """The shape itself, at its only level; see `AbstractPairEnergy.coarser`."""
        if factor > 1 or sigma:
            raise ValueError("shapes have no levels of resolution; fit them without coarse levels")
        return sample

    def exemplar(self, prototype: LandmarkGaussians) -> Landmarks:
        """The mean shape; see `AbstractPairEnergy.exemplar`."""
        return prototype.centre.mean
