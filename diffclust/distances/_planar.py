"""The squared Fisher–Rao distance in the plane, computed without matrices.

For d = 2, the matrix G of `diffclust.distances.fisher_rao` lies in SO(3, 2), whose double cover is
Sp(4). Its eigenvalues there are e^{±a}, e^{±b}, and the squared distance is a² + b². Let w be the
one free number in W, and Σ = L⁻¹Σ_q L⁻ᵀ, μ = L⁻¹(μ_q - μ_p), LLᵀ = Σ_p, g² = det Σ, q = μᵀΣ⁻¹μ and
r = μᵀΣ⁻¹(-μ₂, μ₁)ᵀ. Then both symmetric sums are quadratic in w:

    cosh a + cosh b = ½ [g + (1 + tr Σ + |μ|²/2 + w²) / g + g q / 2]
    cosh a · cosh b = ¼ [tr Σ + tr Σ⁻¹ + |μ|² + q + |μ|² q / 4 + w r + w² tr Σ⁻¹]

The projection to the Gaussians is a Riemannian submersion, so the distance is the minimum over w.
In the code both sums are written in y = cosh - 1, with every term small for close Gaussians.

Squared arcosh and its symmetric sums are smooth through zero, to any order of derivative. With
k(y) = arcosh(1 + y) / sinh arcosh(1 + y), the derivative of arcosh²(1 + y) is 2 k(y), and k is
analytic at zero: k(y) = Σ (-1)ⁿ n! / (2n + 1)!! yⁿ. It solves y (2 + y) k' + (1 + y) k = 1, from
which each derivative follows from the previous ones.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from diffclust.distances.gaussian import Gaussian
from diffclust.types import Scalar

_SERIES_BELOW = 0.5
_TERMS = 30


def _coefficients(order: int) -> list[float]:
    """Coefficients of the series of the derivative of k of the given order."""
    series = [1.0]
    for n in range(1, _TERMS + order):
        series.append(-series[-1] * n / (2 * n + 1))
    for _ in range(order):
        series = [n * c for n, c in enumerate(series)][1:]
    return series


def arcosh1p(y: Float[Array, "..."]) -> Float[Array, "..."]:
    """The inverse of cosh - 1: full precision for small y, no overflow for large y."""
    # Half the cost of XLA's arcsinh, at the same precision.
    return jnp.log1p(y + jnp.sqrt(y) * jnp.sqrt(y + 2.0))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def ratio(order: int, y: Float[Array, "..."]) -> Float[Array, "..."]:
    """The derivative of k of the given order, for y ≥ 0."""
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
    """The two non-negative numbers with a sum and a product, larger first, and half their gap."""
    gap = jnp.sqrt(jnp.maximum(0.25 * total**2 - times, 0.0))
    large = 0.5 * total + gap
    # From the product, as the smaller would otherwise be lost to cancellation.
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
    """The slope of k⁽ᵒʳᵈᵉʳ⁾ between the two numbers with this sum and product."""
    large, small, gap = _roots(total, times)
    middle = 0.5 * total
    close = _are_close(middle, gap)
    taylor = ratio(order + 1, middle) + gap**2 / 6.0 * ratio(order + 3, middle)
    rise = ratio(order, large) - ratio(order, small)
    return jnp.where(close, taylor, rise / jnp.where(close, 1.0, 2.0 * gap))


def _are_close(middle: Scalar, gap: Scalar) -> Bool[Array, ""]:
    """Whether Taylor's theorem beats a difference quotient, with errors of gap⁴ and ε / gap."""
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
    curvature = jnp.where(
        close, ratio(order + 3, half) / 6.0, apart / jnp.where(close, 1.0, 2.0 * gap**2)
    )
    return value, pair_slope(order + 1, *primals) * middle + curvature * square


def _moved(primals: tuple, tangents: tuple) -> tuple[Scalar, Scalar]:
    """The derivatives of the middle of the two numbers, and of the square of half their gap."""
    return 0.5 * tangents[0], 0.5 * primals[0] * tangents[0] - tangents[1]


@jax.custom_jvp
def pair_squares(total: Scalar, times: Scalar) -> Scalar:
    """Σ arcosh²(1 + y) over the two numbers y ≥ 0 with this sum and product."""
    large, small, _ = _roots(total, times)
    return arcosh1p(large) ** 2 + arcosh1p(small) ** 2


@pair_squares.defjvp
def _pair_squares_jvp(primals: tuple, tangents: tuple) -> tuple:
    middle, square = _moved(primals, tangents)
    rate = 2.0 * (pair_sum(0, *primals) * middle + pair_slope(0, *primals) * square)
    return pair_squares(*primals), rate


_BRACKET_STEPS = 6
_FIXED_POINT_STEPS = 8
_SECANT_STEPS = 4


class _Sums(NamedTuple):
    """y_a + y_b = total + w²/2g and y_a y_b = times + w r/4 + w² anisotropy/2g."""

    total: Array
    times: Array
    twist: Array
    anisotropy: Array
    scale: Array

    def at(self, w: Scalar) -> tuple[Scalar, Scalar]:
        """The sum and the product."""
        half = 0.5 * w**2 / self.scale
        return self.total + half, self.times + 0.25 * w * self.twist + self.anisotropy * half


def squared_planar(p: Gaussian, q: Gaussian) -> Scalar:
    """The squared distance under the metric of Eq. 6; see `squared_fisher_rao`."""
    return _least(_symmetric_sums(p, q))


@jax.custom_jvp
def _least(sums: _Sums) -> Scalar:
    """The minimum of the squared distance over w."""
    return pair_squares(*sums.at(_twist_to(sums)))


@_least.defjvp
def _least_jvp(primals: tuple, tangents: tuple) -> tuple:
    # At the minimum w has no first-order effect; second derivatives follow from the derivative of
    # w.
    w = _twist_to(*primals)
    return jax.jvp(lambda sums: pair_squares(*sums.at(w)), primals, tangents)


@jax.custom_jvp
def _twist_to(sums: _Sums) -> Scalar:
    """The w of the shortest geodesic, between zero and an end that follows from k' ≥ -1/3.

    At a distance of some twenty deviations a second geodesic may exist, and either may be the
    shorter. The search within the bracket is therefore followed by one from each of its ends.
    """
    end = -0.25 * sums.scale * sums.twist / (3.0 + sums.anisotropy)
    starts = (_bracketed(sums, end), _from_end(sums, end), _from_end(sums, jnp.zeros_like(end)))
    lengths = jnp.stack([pair_squares(*sums.at(w)) for w in starts])
    lengths = jnp.where(jnp.isnan(lengths), jnp.inf, lengths)
    best = jnp.argmin(lengths.at[1:].multiply(1.0 + jnp.finfo(end.dtype).eps ** 0.75))
    return _polished(sums, jnp.stack(starts)[best])


def _from_end(sums: _Sums, w: Scalar) -> Scalar:
    """A few steps of the fixed-point iteration w = -(other part of F) / (F's factor of w)."""

    def step(_: Array, w: Scalar) -> Scalar:
        slope, stiffness = _fibre_slope(sums, w)
        return _if_finite(w - slope / stiffness, w)

    return jax.lax.fori_loop(0, _FIXED_POINT_STEPS, step, w)


def _if_finite(new: Scalar, old: Scalar) -> Scalar:
    """The new value, unless rounding made it infinite or NaN, as a million deviations apart."""
    return jnp.where(jnp.isfinite(new), new, old)


def _polished(sums: _Sums, w: Scalar) -> Scalar:
    """Secant steps from a point near a root, none longer than four times the fixed-point step."""

    def step(_: Array, state: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        before, slope_before, w = state
        slope, stiffness = _fibre_slope(sums, w)
        stepped = w != before
        secant = (slope - slope_before) / jnp.where(stepped, w - before, 1.0)
        curvature = jnp.where(
            stepped, jnp.clip(secant, 0.25 * stiffness, 4.0 * stiffness), stiffness
        )
        return w, slope, _if_finite(w - slope / curvature, w)

    return jax.lax.fori_loop(0, _SECANT_STEPS, step, (w, jnp.zeros_like(w), w))[2]


def _bracketed(sums: _Sums, end: Scalar) -> Scalar:
    """A root of F between zero and this end, by Ridders' method."""

    def slope_at(w: Scalar) -> Scalar:
        return _fibre_slope(sums, w)[0]

    zero = jnp.zeros_like(end)
    start = (zero, slope_at(zero), end, slope_at(end))

    def step(_: Array, state: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        low, at_low, high, at_high = state
        middle = 0.5 * (low + high)
        at_middle = slope_at(middle)
        root = jnp.sqrt(at_middle**2 - at_low * at_high)
        offset = (middle - low) * jnp.sign(at_low) * at_middle
        trial = middle + jnp.where(root > 0, offset / jnp.where(root > 0, root, 1.0), 0.0)
        at_trial = slope_at(trial)
        # Of the four points, the closest pair around the root.
        beyond = at_middle * at_low > 0
        a, fa = jnp.where(beyond, middle, low), jnp.where(beyond, at_middle, at_low)
        b, fb = jnp.where(beyond, high, middle), jnp.where(beyond, at_high, at_middle)
        left = at_trial * fa > 0
        return (
            jnp.where(left, trial, a),
            jnp.where(left, at_trial, fa),
            jnp.where(left, b, trial),
            jnp.where(left, fb, at_trial),
        )

    low, at_low, high, at_high = jax.lax.fori_loop(0, _BRACKET_STEPS, step, start)
    return jnp.where(jnp.abs(at_low) < jnp.abs(at_high), low, high)


@_twist_to.defjvp
def _twist_to_jvp(primals: tuple, tangents: tuple) -> tuple:
    (sums,) = primals
    w = _twist_to(sums)
    curvature = jax.jvp(lambda w: _fibre_slope(sums, w)[0], (w,), (jnp.ones_like(w),))[1]
    change = jax.jvp(lambda sums: _fibre_slope(sums, w)[0], primals, tangents)[1]
    return w, -change / curvature


def _fibre_slope(sums: _Sums, w: Scalar) -> tuple[Scalar, Scalar]:
    """F, half the derivative of the squared distance by w, and its positive factor of w."""
    total, times = sums.at(w)
    slope = pair_slope(0, total, times)
    by_total = 0.5 * (pair_sum(0, total, times) + total * slope)
    stiffness = (by_total - slope * sums.anisotropy) / sums.scale
    return stiffness * w - 0.25 * slope * sums.twist, stiffness


def _symmetric_sums(p: Gaussian, q: Gaussian) -> _Sums:
    # In units in which products of variances are numbers of single precision.
    unit = jax.lax.stop_gradient(jnp.exp2(jnp.round(0.5 * jnp.log2(jnp.trace(p.covariance)))))
    p, q = (Gaussian(x.mean / unit, x.covariance / unit / unit) for x in (p, q))
    (p11, p12), (_, p22) = p.covariance
    (q11, q12), (_, q22) = q.covariance
    l11 = jnp.sqrt(p11)
    l21 = p12 / l11
    l22 = jnp.sqrt(p22 - l21**2)
    m1, m2 = _solved(p.covariance, q.mean - p.mean)

    def white(s11: Array, s12: Array, s22: Array) -> tuple[Array, Array, Array]:
        n12 = (s12 - l21 / l11 * s11) / l22
        return s11 / l11**2, n12 / l11, (s22 - l21 / l11 * (s12 + l22 * n12)) / l22**2

    s11, s12, s22 = white(q11, q12, q22)
    e11, e12, e22 = white(q11 - p11, q12 - p12, q22 - p22)
    # Small values are computed from differences of the covariances, large ones without them.
    near = jnp.abs(e11) + jnp.abs(e22) + 2.0 * jnp.abs(e12) < 0.5
    lean, off = jnp.where(near, e11 - e22, s11 - s22), jnp.where(near, e12, s12)
    excess = jnp.where(near, e11 + e22 + e11 * e22 - e12**2, 0.0)
    root = jnp.sqrt(jnp.where(near, 1.0, q11 * q22 - q12**2)) / jnp.where(near, 1.0, l11 * l22)
    g = jnp.where(near, jnp.sqrt(1.0 + excess), root)
    growth = jnp.where(near, excess / (1.0 + g), g - 1.0)
    size = 0.5 * growth**2 / g
    anisotropy = (lean**2 + 4.0 * off**2) / (s11 + s22 + 2.0 * g) / (2.0 * g)
    length = m1**2 + m2**2
    gain = anisotropy * length - (0.5 * lean * (m1**2 - m2**2) + 2.0 * off * m1 * m2) / g
    mahalanobis = (length + gain) / g
    twist = (lean * m1 * m2 + off * (m2**2 - m1**2)) / g**2
    # Far apart, Σ may be too ill-conditioned for μᵀΣ⁻¹μ even if neither covariance is.
    k21, (n1, n2) = q12 / q11, _solved(q.covariance, q.mean - p.mean)
    a2 = n2 / jnp.sqrt(q22 - k21 * q12)
    a1 = n1 / jnp.sqrt(q11) - k21 * a2
    mahalanobis = jnp.where(near, mahalanobis, n1**2 + n2**2)
    gain = jnp.where(near, gain, g * mahalanobis - length)
    twist = jnp.where(near, twist, l22 * a2 * m1 - (l11 * a1 + l21 * a2) * m2)
    total = size + anisotropy + 0.25 * (length / g + g * mahalanobis)
    times = size * anisotropy - 0.25 * growth / g * gain + length * mahalanobis / 16.0
    return _Sums(total, times, twist, anisotropy, g)


def _solved(covariance: Array, vector: Array) -> tuple[Scalar, Scalar]:
    """L⁻¹v, where LLᵀ is the covariance."""
    (a, b), (_, c) = covariance
    share = b / a
    return vector[0] / jnp.sqrt(a), (vector[1] - share * vector[0]) / jnp.sqrt(c - share * b)
