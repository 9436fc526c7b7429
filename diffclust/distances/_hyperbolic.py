"""Squared arcosh and its symmetric sums, smooth through zero, to any order of derivative.

With k(y) = arcosh(1 + y) / sinh arcosh(1 + y), the derivative of arcosh²(1 + y) is 2 k(y), and k is
analytic at zero: k(y) = Σ (-1)ⁿ n! / (2n + 1)!! yⁿ. It solves y (2 + y) k' + (1 + y) k = 1, which
gives its derivatives from one another.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from diffclust.types import Scalar

_SERIES_BELOW = 0.5
_TERMS = 30


def _coefficients(order: int) -> list[float]:
    """Coefficients of the series of the derivative of k of that order."""
    series = [1.0]
    for n in range(1, _TERMS + order):
        series.append(-series[-1] * n / (2 * n + 1))
    for _ in range(order):
        series = [n * c for n, c in enumerate(series)][1:]
    return series


def arcosh1p(y: Float[Array, "..."]) -> Float[Array, "..."]:
    """The inverse of cosh - 1: full precision for small y, no overflow for large y."""
    # Half the cost of XLA's arcsinh, and as precise.
    return jnp.log1p(y + jnp.sqrt(y) * jnp.sqrt(y + 2.0))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def ratio(order: int, y: Float[Array, "..."]) -> Float[Array, "..."]:
    """The derivative of k of an order, where y ≥ 0."""
    small = y < _SERIES_BELOW
    near = jnp.where(small, y, 0.0)
    series = jnp.zeros_like(y)
    for coefficient in reversed(_coefficients(order)):
        series = series * near + coefficient
    far = jnp.where(small, 1.0, y)
    last, value = jnp.zeros_like(y), arcosh1p(far) / (jnp.sqrt(far) * jnp.sqrt(2.0 + far))
    for n in range(order):
        source = 1.0 if n == 0 else -(n**2) * last
        last, value = value, (source - (2 * n + 1) * (1.0 + far) * value) / far / (2.0 + far)
    return jnp.where(small, series, value)


@ratio.defjvp
def _ratio_jvp(order: int, primals: tuple, tangents: tuple) -> tuple:
    return ratio(order, *primals), ratio(order + 1, *primals) * tangents[0]


@jax.custom_jvp
def squared_arcosh1p(y: Float[Array, "..."]) -> Float[Array, "..."]:
    """Squared arcosh(1 + y) for y ≥ 0, with slope 2 at zero."""
    return arcosh1p(y) ** 2


@squared_arcosh1p.defjvp
def _squared_arcosh1p_jvp(primals: tuple, tangents: tuple) -> tuple:
    return squared_arcosh1p(*primals), 2.0 * ratio(0, *primals) * tangents[0]


def _roots(total: Scalar, times: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """The two non-negative numbers of a sum and a product, larger first, and half their gap."""
    gap = jnp.sqrt(jnp.maximum(0.25 * total**2 - times, 0.0))
    large = 0.5 * total + gap
    # From the product, or the smaller would be lost to cancellation.
    positive = large > 0
    small = jnp.where(positive, jnp.maximum(times, 0.0) / jnp.where(positive, large, 1.0), 0.0)
    return large, jnp.minimum(small, large), gap


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def pair_sum(order: int, total: Scalar, times: Scalar) -> Scalar:
    """Σ k⁽ᵒʳᵈᵉʳ⁾ over the two numbers with this sum and product."""
    large, small, _ = _roots(total, times)
    return ratio(order, large) + ratio(order, small)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def pair_slope(order: int, total: Scalar, times: Scalar) -> Scalar:
    """The slope of k⁽ᵒʳᵈᵉʳ⁾ from one to the other of the two numbers of this sum and product."""
    large, small, gap = _roots(total, times)
    middle = 0.5 * total
    close = _are_close(middle, gap)
    taylor = ratio(order + 1, middle) + gap**2 / 6.0 * ratio(order + 3, middle)
    rise = ratio(order, large) - ratio(order, small)
    return jnp.where(close, taylor, rise / jnp.where(close, 1.0, 2.0 * gap))


def _are_close(middle: Scalar, gap: Scalar) -> Bool[Array, ""]:
    """Whether Taylor's theorem is nearer than a difference quotient: errors of gap⁴ and ε / gap."""
    return gap < jnp.finfo(gap.dtype).eps ** 0.2 * (2.0 + middle)


@pair_sum.defjvp
def _pair_sum_jvp(order: int, primals: tuple, tangents: tuple) -> tuple:
    middle, square = _moved(primals, tangents)
    rate = pair_sum(order + 1, *primals) * middle + pair_slope(order + 1, *primals) * square
    return pair_sum(order, *primals), rate


@pair_slope.defjvp
def _pair_slope_jvp(order: int, primals: tuple, tangents: tuple) -> tuple:
    middle, square = _moved(primals, tangents)
    half, (_, _, gap) = 0.5 * primals[0], _roots(*primals)
    close = _are_close(half, gap)
    value = pair_slope(order, *primals)
    apart = 0.5 * pair_sum(order + 1, *primals) - value
    bend = jnp.where(
        close, ratio(order + 3, half) / 6.0, apart / jnp.where(close, 1.0, 2.0 * gap**2)
    )
    return value, pair_slope(order + 1, *primals) * middle + bend * square


def _moved(primals: tuple, tangents: tuple) -> tuple[Scalar, Scalar]:
    """How the middle of the two numbers, and the square of half their gap, move."""
    return 0.5 * tangents[0], 0.5 * primals[0] * tangents[0] - tangents[1]


@jax.custom_jvp
def pair_squares(total: Scalar, times: Scalar) -> Scalar:
    """Σ arcosh²(1 + y) over the two numbers y ≥ 0 of this sum and product."""
    large, small, _ = _roots(total, times)
    return arcosh1p(large) ** 2 + arcosh1p(small) ** 2


@pair_squares.defjvp
def _pair_squares_jvp(primals: tuple, tangents: tuple) -> tuple:
    middle, square = _moved(primals, tangents)
    rate = 2.0 * (pair_sum(0, *primals) * middle + pair_slope(0, *primals) * square)
    return pair_squares(*primals), rate
