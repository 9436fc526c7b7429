"""Geodesics of the hyperbolic half-plane, in which a Gaussian in one dimension is a point.

N(μ, s²) is the point (μ/2√K, s), with K the weight of the variance in the metric (½ for Fisher and
Rao); distances in the half-plane are those of the Gaussians divided by 2√K.
"""

import jax.numpy as jnp
from jaxtyping import Array

from diffclust.linalg import safe_sqrt

Point = tuple[Array, Array]
"""Places x and heights s > 0, arrays that broadcast against each other."""


def toward(start: Point, end: Point) -> tuple[Array, Array, Array]:
    """The velocity at one point of the geodesic that reaches another at time one.

    Args:
        start: Where it starts.
        end: Where it ends.

    Returns:
        The velocity across and upwards, in a frame in which the start is (0, 1), and its length,
        which is the distance.
    """
    # In the frame of the start, as in the disc of Poincaré, whose centre is (0, 1).
    x, s = (end[0] - start[0]) / start[1], end[1] / start[1]
    u, v = 2.0 * x, x**2 + (s - 1.0) * (s + 1.0)
    sine = safe_sqrt(u**2 + v**2)
    away = sine > 0
    length = jnp.arcsinh(sine / (2.0 * s))
    rate = jnp.where(away, length / jnp.where(away, sine, 1.0), 0.5 / s)
    return rate * u, rate * v, length


def arrived(start: Point, across: Array, upwards: Array) -> Point:
    """Where the geodesic with that velocity is at time one.

    Args:
        start: Where it starts.
        across: Velocity across, as `toward` gives it.
        upwards: Velocity upwards.

    Returns:
        A point.
    """
    length = safe_sqrt(across**2 + upwards**2)
    moving = length > 0
    sinhc = jnp.where(moving, jnp.sinh(length) / jnp.where(moving, length, 1.0), 1.0)
    height = 1.0 / (jnp.cosh(length) - sinhc * upwards)
    return start[0] + start[1] * sinhc * across * height, start[1] * height


def bend(length: Array) -> Array:
    """How much more than length² a squared distance to a mean may grow: length · coth length.

    Args:
        length: Distances.

    Returns:
        Numbers from 1; a step towards the mean divided by their mean never overshoots.
    """
    large = length > 1e-3
    return jnp.where(large, length / jnp.tanh(jnp.where(large, length, 1.0)), 1.0)
