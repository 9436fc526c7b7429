"""The energy of a prototype that is moved onto a sample."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment.base import BoundEnergy
from diffclust.distances import (
    AbstractBatchedDistance,
    AbstractDissimilarity,
    DiagonalGaussian,
    SquaredEuclidean,
)
from diffclust.masks import mask_weights
from diffclust.objectives.transformed import AbstractTransformedEnergy
from diffclust.prototypes import Clusters, GaussianImages, picture_of
from diffclust.sampling import gaussian_window
from diffclust.transforms import AbstractTransform
from diffclust.types import Image, Params, Scalar


class TransformedPrototype(AbstractTransformedEnergy):
    """dissimilarity(sample, T(params, prototype)) + Σ weights · deformation(params).

    Samples stay as they are, so nothing is gained by learning empty prototypes, and no penalty is
    needed where the params are predicted. A Gaussian's variances move as the transform says
    (`AbstractTransform.bind_variance`).

    Attributes:
        transform: How the prototype may be moved.
        distance: What is measured after the move: a distance for images, a
            `GaussianNegativeLogLikelihood` for `GaussianImages`.
        window: Standard deviation of a Gaussian weight around the image's centre, as a fraction of
            its shorter side; None weighs all pixels alike.
        mask: Pixels of samples that count, from `diffclust.masks.as_mask`; None for all.

    References:
        Monnier et al., DTI clustering, Eqs. 2, 4 and 5; Sec. 5.1 for the window (σ = 7 of 28).
    """

    transform: AbstractTransform
    distance: AbstractDissimilarity = SquaredEuclidean()
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        """Refuses a window without width."""
        if self.window is not None and not self.window > 0.0:
            raise ValueError(f"window must be positive, or None for none; not {self.window}")

    def bind(self, sample: Image, *, scale: float = 1.0) -> BoundEnergy:
        """See `AbstractPairEnergy.bind`.

        A cluster may have weights for more terms than the transform has: then the first count, so
        that a curriculum can add transforms one by one.
        """
        height, width = sample.shape[:2]
        weight = self.weight(height, width, sample.dtype)

        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            distance = self.distance(sample, self.moved(params, cluster.prototype), weight)
            weights = cluster.penalty[: self.num_penalties]
            return scale * distance + jnp.dot(weights, self.penalties(params))

        return energy

    def moved(self, params: Params, prototype: PyTree) -> PyTree:
        """A prototype moved by params.

        Args:
            params: Parameters of shape `(num_params,)`.
            prototype: One prototype.

        Returns:
            An image; of `GaussianImages` a `DiagonalGaussian`.
        """
        height, width = picture_of(prototype).shape[:2]
        apply = self.transform.bind(height, width)
        if not isinstance(prototype, GaussianImages):
            return apply(params, prototype)
        gaussian = prototype.gaussian
        spread = self.transform.bind_variance(height, width)
        return DiagonalGaussian(apply(params, gaussian.mean), spread(params, gaussian.variance))

    def weight(self, height: int, width: int, dtype: jnp.dtype) -> Array | None:
        """The weight of each pixel.

        Args:
            height: Rows of the image.
            width: Columns of the image.
            dtype: Floating dtype.

        Returns:
            Weights `(height, width, 1)`, at most one, or None where all are one.
        """
        seen = None
        if self.mask is not None:
            seen = jnp.asarray(mask_weights(self.mask, height, width), dtype=dtype)
        if self.window is None:
            return seen
        sigma = self.window * min(height, width)
        window = gaussian_window(height, width, sigma=sigma, dtype=dtype)
        return window if seen is None else window * seen

    def unaligned(self, sample: Image, clusters: Clusters) -> Float[Array, " clusters"]:
        """See `AbstractPairEnergy.unaligned`; deformations are zero at the identity."""
        weight = self.weight(sample.shape[0], sample.shape[1], sample.dtype)
        prototypes = clusters.prototype
        if isinstance(prototypes, GaussianImages):
            prototypes = prototypes.gaussian
        if weight is None and isinstance(self.distance, AbstractBatchedDistance):
            return self.distance.to_all(sample, prototypes)
        return jax.vmap(lambda prototype: self.distance(sample, prototype, weight))(prototypes)

    def typical(self, prototype: PyTree) -> Image:
        """The image, or the Gaussian's mean; see `AbstractPairEnergy.typical`."""
        return picture_of(prototype)
