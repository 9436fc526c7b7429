"""The direction in which rows differ most."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def leading_direction(
    centred: Float[Array, "n features"], *, iterations: int
) -> Float[Array, " features"]:
    """The leading principal direction, by the power method from the longest row.

    Args:
        centred: Rows whose (weighted) mean is zero.
        iterations: Steps; a few will do to part two groups of rows.

    Returns:
        A vector of length one; zero where all rows are.
    """
    tiny = jnp.finfo(centred.dtype).tiny

    def step(_: Array | int, direction: Float[Array, " features"]) -> Float[Array, " features"]:
        direction = centred.T @ (centred @ direction)
        return direction / jnp.maximum(jnp.sqrt(jnp.sum(direction**2)), tiny)

    return jax.lax.fori_loop(0, iterations, step, centred[jnp.argmax(jnp.sum(centred**2, axis=1))])
