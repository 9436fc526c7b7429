"""The energy of one sample against one cluster: a distance after a transform, and penalties."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment import AbstractSampleEnergy
from diffclust.alignment.base import BoundEnergy
from diffclust.distances import AbstractBatchedDistance, AbstractDistance, SquaredEuclidean
from diffclust.masks import mask_weights
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
        mask: Pixels that count, from `diffclust.masks.as_mask`, of samples and of what they are
            compared with; None for all. A sample's hidden pixels move with it, and what is seen
            of it counts as much as if nothing had been moved under the mask.

    References:
        Cosentino et al., DI K-means, Eq. 3 and App. 7.1 (3).
    """

    transform: AbstractTransform
    distance: AbstractDistance = SquaredEuclidean()
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        """Refuses weights of pixels for transforms that are not maps of coordinates."""
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
        if self.mask is not None and not spatial:
            raise ValueError(
                f"a mask needs a spatial transform, not {type(self.transform).__name__}"
            )

    def bind(self, sample: Image, *, scale: float = 1.0) -> BoundEnergy:
        """See `AbstractPairEnergy.bind`."""
        apply = self.transform.bind(sample.shape[0], sample.shape[1])

        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            weight = self._weight(params, sample, apply)
            distance = self.distance(apply(params, sample), cluster.prototype, weight)
            penalty = jnp.dot(cluster.penalty, self.penalties(params))
            return scale * distance + penalty

        return energy

    def aligned(self, params: Params, sample: Image) -> Image:
        """See `AbstractPairEnergy.aligned`."""
        return sample if self.num_params == 0 else self.transform(params, sample)

    def pixel_weight(self, params: Params, sample: Image) -> Array | None:
        """See `AbstractPairEnergy.pixel_weight`."""
        if self.num_params == 0:
            # The same for all samples, so that a mean does not look at it.
            return None
        return self._weight(params, sample, self.transform.bind(*sample.shape[:2]))

    def _weight(
        self, params: Params, sample: Image, apply: Callable[[Params, Image], Image]
    ) -> Array | None:
        weight = None
        if self.pixel_weights == "jacobian":
            assert isinstance(self.transform, AbstractSpatialTransform)
            grid = pixel_grid(sample.shape[0], sample.shape[1], params.dtype)
            area = jnp.abs(self.transform.jacobian_determinant(params, grid))
            weight = 0.5 * (1.0 + area)[..., None]
        if self.mask is None:
            return weight
        # Of the hidden, not of the seen, a transform makes nothing beyond the canvas.
        root = self._root(sample)
        both = root * (1.0 - apply(params, 1.0 - root))
        total = jnp.maximum(jnp.sum(both), jnp.finfo(both.dtype).tiny)
        seen = both * (jnp.sum(root**2) / total)
        return seen if weight is None else weight * seen

    def _root(self, sample: Image) -> Array:
        """Roots of the mask's weights."""
        assert self.mask is not None
        weights = mask_weights(self.mask, sample.shape[0], sample.shape[1])
        return jnp.asarray(weights**0.5, dtype=sample.dtype)

    def unaligned(self, sample: Image, clusters: Clusters) -> Float[Array, " clusters"]:
        """See `AbstractPairEnergy.unaligned`; deformations are zero at the identity."""
        prototypes, distance, weight = clusters.prototype, self.distance, None
        if self.mask is not None:
            root = self._root(sample)
            if isinstance(distance, SquaredEuclidean):
                return distance.to_all(sample * root, prototypes * root[None])
            weight = root**2
        elif isinstance(distance, AbstractBatchedDistance):
            return distance.to_all(sample, prototypes)
        return jax.vmap(lambda prototype: distance(sample, prototype, weight))(prototypes)

    def typical(self, prototype: PyTree) -> PyTree:
        """The prototype itself; see `AbstractPairEnergy.typical`."""
        return prototype
