"""The squared Euclidean distance, and distances between features."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.distances.base import (
    AbstractBatchedDistance,
    AbstractDistance,
    check_floating,
    check_same_shape,
    weighted_sum,
)
from diffclust.linalg import product
from diffclust.types import Scalar


class SquaredEuclidean(AbstractBatchedDistance):
    """‖x - c‖², summed over all entries, with pixel weights if given."""

    def __call__(
        self,
        sample: Float[Array, "*shape"],
        prototype: Float[Array, "*shape"],
        weight: Array | None = None,
    ) -> Scalar:
        """The squared distance; shapes that differ are refused."""
        check_same_shape(sample.shape, prototype.shape)
        return weighted_sum((sample - prototype) ** 2, weight)

    def to_all(
        self, sample: Float[Array, "*shape"], prototypes: Float[Array, "clusters *shape"]
    ) -> Float[Array, " clusters"]:
        """‖x‖² - 2⟨x, c⟩ + ‖c‖².

        Far from zero this would lose digits: if the mean m of the prototypes is farther from zero
        than ten times their spread, ‖x - m‖² - 2⟨x - m, c - m⟩ + ‖c - m‖² is used instead.
        """
        check_floating(sample, prototypes)
        check_same_shape(sample.shape, prototypes.shape[1:])
        flat = sample.reshape(-1)
        rows = prototypes.reshape(prototypes.shape[0], -1)
        if len(rows) == 1:
            return self(flat, rows[0])[None]
        middle = jax.lax.stop_gradient(jnp.mean(rows, axis=0))

        # Sample first: under `vmap` the other order takes twice as long on the CPU.
        def about_zero() -> Array:
            return jnp.sum(flat**2) - 2.0 * product(flat, rows.T) + jnp.sum(rows**2, axis=1)

        def about_middle() -> Array:
            apart = rows - middle[None]
            products = product(flat - middle, apart.T)
            return jnp.sum((flat - middle) ** 2) - 2.0 * products + jnp.sum(apart**2, axis=1)

        spread = jnp.mean(jnp.sum((rows - middle[None]) ** 2, axis=1))
        far = jnp.sum(middle**2) > 100.0 * jax.lax.stop_gradient(spread)
        squared = jax.lax.cond(far, about_middle, about_zero)
        # Negative values are rounding errors, but their derivatives are right.
        return jnp.where(squared < 0, squared - jax.lax.stop_gradient(squared), squared)


class FeatureDistance(AbstractDistance):
    """distance(φ(x), φ(c)): any distance, applied to any feature map φ.

    It takes no pixel weights, as features have no pixels.

    Attributes:
        feature_map: φ, from one sample to an array; it must be differentiable if the distance is to
            be minimised over a transform.
        distance: The distance measured between features.
    """

    feature_map: Callable[[Any], Array]
    distance: AbstractDistance = SquaredEuclidean()

    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The distance; see `AbstractDistance.__call__`.

        Args:
            sample: One sample.
            prototype: One prototype.
            weight: Must be None.

        Returns:
            A non-negative number.
        """
        if weight is not None:
            raise ValueError("a distance between features takes no pixel weights; leave them out")
        first, second = self.feature_map(sample), self.feature_map(prototype)
        # The library's distances are between images: features become one pixel with many channels.
        return self.distance(first.reshape(1, 1, -1), second.reshape(1, 1, -1))
