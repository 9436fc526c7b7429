"""Points displaced by combinations of functions of where they are."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.sampling import planes
from diffclust.types import Points


def homogeneous(points: Points) -> Float[Array, "3 points"]:
    """Points as (x, y, 1).

    Args:
        points: Points of shape `(2, ...)`.

    Returns:
        Their coordinates and ones, in flat rows.
    """
    x, y = planes(points)
    return jnp.stack([x, y, jnp.ones_like(x)]).reshape(3, -1)


def displaced(
    points: Points, functions: Float[Array, "functions points"]
) -> Callable[[Float[Array, "2 functions"]], Points]:
    """The map whose displacement is linear in its coefficients.

    Args:
        points: Points of shape `(2, ...)`.
        functions: Values of functions at the points.

    Returns:
        A function of the coefficients of the displacements along x and along y; zero gives the
        points back, exactly.
    """
    # The points are one more function, and x and y two products of their own: a CPU reads an image
    # faster at points that come out of a product.
    rows = [jnp.concatenate([functions, axis.reshape(1, -1)]) for axis in planes(points)]
    one = jnp.ones((1,), dtype=points.dtype)

    def coordinates(coefficients: Float[Array, "2 functions"]) -> Points:
        moved = [
            jnp.matmul(jnp.concatenate([along[0], one]), row, precision="highest")
            for along, row in zip(jax.lax.split(coefficients, (1, 1)), rows, strict=True)
        ]
        return jnp.stack([axis.reshape(points.shape[1:]) for axis in moved])

    return coordinates
