"""Square-root velocities of series, between which the elastic distance is Euclidean."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.linalg import safe_sqrt
from diffclust.types import Series


def square_root_velocity(series: Series) -> Float[Array, "steps channels"]:
    """Q = x′ / √|x′|, where time runs from 0 to 1.

    Where a series is warped, its q is too, as `TimeWarp(preserve_norm=True)` does. The squared
    Euclidean distance of two q, minimised over warps, is the squared elastic distance of the series
    (Fisher–Rao's); it does not see shifts of the values.

    Args:
        series: Series of shape `(length, channels)`, at least two values long.

    Returns:
        One vector for each of the `length - 1` steps, such that the sum of squares is the length of
        the curve times the number of steps; NaN for steps to and from a NaN.

    References:
        Srivastava and Klassen (2016), Functional and shape data analysis, Def. 4.2 and 5.1.
    """
    velocity = jnp.diff(series, axis=0) * float(series.shape[0] - 1)
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(velocity), axis=-1, keepdims=True))
    still = largest == 0  # not where NaN says that a value is missing
    # Squares of very large or small velocities would leave the range of the dtype.
    unit = jnp.where(still, 1.0, largest)
    squared = jnp.sum((velocity / unit) ** 2, axis=-1, keepdims=True)
    size = unit**0.5 * jnp.where(still, 1.0, squared) ** 0.25
    return jnp.where(still, 0.0, velocity / size)


def from_square_root_velocity(
    velocity: Float[Array, "steps channels"], start: Float[Array, " channels"]
) -> Series:
    """The series that has given square-root velocities.

    Args:
        velocity: What `square_root_velocity` returns.
        start: The first value.

    Returns:
        Series of shape `(steps + 1, channels)`.
    """
    size = safe_sqrt(jnp.sum(velocity**2, axis=-1, keepdims=True))
    moved = jnp.cumsum(velocity * size, axis=0) / float(velocity.shape[0])
    return start[None] + jnp.concatenate([jnp.zeros_like(start)[None], moved])
