"""The squared Euclidean distance between images, or between arrays of any other shape."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.distances.base import AbstractBatchedDistance
from diffclust.types import Scalar


class SquaredEuclidean(AbstractBatchedDistance):
    """‖x - c‖², summed over all entries, weighted by pixel where weights are given."""

    def __call__(
        self,
        sample: Float[Array, "*shape"],
        prototype: Float[Array, "*shape"],
        weight: Array | None = None,
    ) -> Scalar:
        """The squared distance; see `AbstractDistance.__call__`."""
        squares = (sample - prototype) ** 2
        weights = (
            jnp.ones_like(squares) if weight is None else jnp.broadcast_to(weight, squares.shape)
        )
        # A product with the weights, not a sum: XLA fuses a sum on the CPU with all that led to the
        # sample, and computes it several times over.
        return jnp.dot(
            squares.reshape(-1), weights.reshape(-1), precision=jax.lax.Precision.HIGHEST
        )

    def to_all(
        self, sample: Float[Array, "*shape"], prototypes: Float[Array, "clusters *shape"]
    ) -> Float[Array, " clusters"]:
        """‖x‖² - 2⟨x, c⟩ + ‖c‖²; see `AbstractBatchedDistance.to_all`."""
        flat = sample.reshape(-1)
        rows = prototypes.reshape(prototypes.shape[0], -1)
        # Sample first: under `vmap` the other order takes twice as long on the CPU.
        products = jnp.matmul(flat, rows.T, precision=jax.lax.Precision.HIGHEST)
        expanded = jnp.sum(flat**2) - 2.0 * products + jnp.sum(rows**2, axis=1)
        return jnp.maximum(expanded, 0.0)
