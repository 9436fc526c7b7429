"""The energy of one sample against one cluster: a distance after a transform, and penalties."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment import AbstractSampleEnergy
from diffclust.alignment.base import BoundEnergy
from diffclust.distances import AbstractBatchedDistance, AbstractDistance, SquaredEuclidean
from diffclust.objectives.transformed import AbstractTransformedEnergy
from diffclust.prototypes import Clusters
from diffclust.sampling import pixel_grid
from diffclust.transforms import AbstractSpatialTransform, AbstractTransform
from diffclust.types import Image, Params, Scalar

PixelWeights = Literal["uniform", "jacobian"]


class TransformedDistance(AbstractTransformedEnergy, AbstractSampleEnergy):
    """distance(T(params, sample), prototype) + Σ weights · deformation(params).

    The penalty weights belong to the cluster (`Clusters.penalty`), zero for none: the bigger the
    weight, the smaller the warps. Without any a flexible transform turns every digit into every
    other.

    Attributes:
        transform: How the sample may be moved.
        distance: What is measured after the move.
        pixel_weights: `"uniform"` is the papers' Eq. 3; `"jacobian"` weighs each pixel by
            ½ (1 + |det ∂warp|), which makes the distance symmetric in sample and prototype: the
            two terms are the integrals over the prototype's and over the sample's canvas.

    References:
        Cosentino et al., DI K-means, Eq. 3 and App. 7.1 (3).
    """

    transform: AbstractTransform
    distance: AbstractDistance = SquaredEuclidean()
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)

    def __check_init__(self):
        """Refuses Jacobian weights for transforms that are not maps of coordinates."""
        if self.pixel_weights not in ("uniform", "jacobian"):
            raise ValueError(
                f"pixel_weights must be 'uniform' or 'jacobian', not {self.pixel_weights!r}"
            )
        spatial = isinstance(self.transform, AbstractSpatialTransform)
        if self.pixel_weights == "jacobian" and not spatial:
            raise ValueError(
                "pixel_weights='jacobian' needs a spatial transform, not "
                f"{type(self.transform).__name__}"
            )

    def bind(self, sample: Image, *, scale: float = 1.0) -> BoundEnergy:
        """See `AbstractPairEnergy.bind`."""
        apply = self.transform.bind(sample.shape[0], sample.shape[1])

        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            weight = self.pixel_weight(params, sample)
            distance = self.distance(apply(params, sample), cluster.prototype, weight)
            penalty = jnp.dot(cluster.penalty, self.penalties(params))
            return scale * distance + penalty

        return energy

    def aligned(self, params: Params, sample: Image) -> Image:
        """See `AbstractPairEnergy.aligned`."""
        return sample if self.num_params == 0 else self.transform(params, sample)

    def pixel_weight(self, params: Params, sample: Image) -> Array | None:
        """See `AbstractPairEnergy.pixel_weight`."""
        if self.pixel_weights == "uniform":
            return None
        assert isinstance(self.transform, AbstractSpatialTransform)
        grid = pixel_grid(sample.shape[0], sample.shape[1], params.dtype)
        area = jnp.abs(self.transform.jacobian_determinant(params, grid))
        return 0.5 * (1.0 + area)[..., None]

    def unaligned(self, sample: Image, clusters: Clusters) -> Float[Array, " clusters"]:
        """See `AbstractPairEnergy.unaligned`; deformations are zero at the identity."""
        if isinstance(self.distance, AbstractBatchedDistance):
            return self.distance.to_all(sample, clusters.prototype)
        return jax.vmap(self.distance, in_axes=(None, 0))(sample, clusters.prototype)

    def typical(self, prototype: PyTree) -> PyTree:
        """The prototype itself; see `AbstractPairEnergy.typical`."""
        return prototype
