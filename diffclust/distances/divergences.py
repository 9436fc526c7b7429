"""Divergences of Gaussians in closed form; they are not distances, and most are not symmetric."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.distances.gaussian import (
    AnyGaussian,
    DiagonalGaussian,
    Gaussian,
    is_near,
    require_same_shapes,
    whitened_by,
)
from diffclust.linalg import safe_sqrt
from diffclust.types import Scalar


def alpha_divergence(p: AnyGaussian, q: AnyGaussian, *, alpha: float = 0.0) -> Scalar:
    """Amari's α-divergence, 4/(1 - α²) (1 - ∫ p^((1-α)/2) q^((1+α)/2)).

    α = -1 is KL(p‖q), α = 1 is KL(q‖p), and α = 0 is four times the squared Hellinger distance; if
    p and q are close, all agree with half the squared Fisher–Rao distance. Exchanging p and q
    changes the sign of α. Finite for |α| ≤ 1; beyond, infinite if (1+α)/2 Σ_p + (1-α)/2 Σ_q is not
    positive definite.

    Args:
        p: A Gaussian.
        q: Another Gaussian of the same class and dimension.
        alpha: α.

    Returns:
        A non-negative number, or infinity.

    Raises:
        ValueError: If the two shapes do not match.

    References:
        Amari and Nagaoka, Methods of Information Geometry (2000), Eq. 3.23.
    """
    share, rest = 0.5 * (1.0 - alpha), 0.5 * (1.0 + alpha)
    exponent, is_finite = _exponent(p, q, rest)
    scale = share * rest
    divergence = exponent if scale == 0.0 else -jnp.expm1(-scale * exponent) / scale
    return jnp.where(is_finite, _not_negative(divergence), jnp.inf)


def kullback_leibler(p: Gaussian, q: Gaussian) -> Scalar:
    """KL(p‖q) = E_p log p/q, in nats.

    Args:
        p: The Gaussian that the expectation is over.
        q: Another Gaussian of the same dimension.

    Returns:
        A non-negative number.

    Raises:
        ValueError: If the two shapes do not match.
    """
    return alpha_divergence(p, q, alpha=-1.0)


def bhattacharyya(p: Gaussian, q: Gaussian) -> Scalar:
    """-log ∫ √(pq): symmetric, additive over independent coordinates, not a metric.

    Args:
        p: A Gaussian.
        q: Another Gaussian of the same dimension.

    Returns:
        A non-negative number.

    Raises:
        ValueError: If the two shapes do not match.

    References:
        Bhattacharyya, On a measure of divergence between two statistical populations (1943).
    """
    return _not_negative(0.25 * _exponent(p, q, 0.5)[0])


def hellinger(p: Gaussian, q: Gaussian) -> Scalar:
    """√(1 - ∫ √(pq)), a metric between 0 and 1; its gradient is zero if the two agree.

    Args:
        p: A Gaussian.
        q: Another Gaussian of the same dimension.

    Returns:
        The distance.

    Raises:
        ValueError: If the two shapes do not match.
    """
    return safe_sqrt(0.25 * alpha_divergence(p, q, alpha=0.0))


def _exponent(p: AnyGaussian, q: AnyGaussian, rest: float) -> tuple[Scalar, Array]:
    """-log ∫ p^(1-rest) q^rest / (rest (1-rest)) or its limit, and whether the integral is finite.

    If q is N(0, I), Σ_p = I + E and p has the mean m, the first is half the sum of mᵀ(I + rest
    E)⁻¹m and the excess of E.
    """
    if isinstance(p, DiagonalGaussian) and isinstance(q, DiagonalGaussian):
        require_same_shapes(p, q)
        change, white = (p.variance - q.variance) / q.variance, p.variance / q.variance
        offset = (p.mean - q.mean) / jnp.sqrt(q.variance)
    elif isinstance(p, DiagonalGaussian) or isinstance(q, DiagonalGaussian):
        raise ValueError(f"p and q must be of one class, not {type(p)} and {type(q)}")
    else:
        change, white, offset = whitened_by(q, p)
    is_finite = jnp.array(True)
    if not 0.0 <= rest <= 1.0:
        is_finite = ~(jnp.min(_eigenvalues(rest * change)) <= -1.0)
        change = jnp.where(is_finite, change, 0.0)
        white = jnp.where(is_finite, white, _identity(white))
    shift = offset * _divided(offset, white, rest)
    return 0.5 * (jnp.sum(shift) + _excess(change, white, rest)), is_finite


def _identity(white: Array) -> Array:
    """I, or its diagonal."""
    return jnp.ones_like(white) if white.ndim == 1 else jnp.eye(len(white), dtype=white.dtype)


def _divided(right: Array, white: Array, share: float) -> Array:
    """((1 - share) I + share Σ)⁻¹ times a vector or matrix, for Σ or its diagonal."""
    if share == 0.0:
        return right
    mixed = (1.0 - share) * _identity(white) + share * white
    return right / mixed if white.ndim == 1 else jnp.linalg.solve(mixed, right)


def _log_determinant(white: Array) -> Scalar:
    """Of a positive definite matrix."""
    factor = jnp.linalg.cholesky(white, symmetrize_input=False)
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def _eigenvalues(change: Array) -> Array:
    """Eigenvalues of a symmetric matrix, or of the diagonal matrix with this diagonal."""
    return jnp.linalg.eigvalsh(change, symmetrize_input=False) if change.ndim == 2 else change


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _excess(change: Float[Array, "*dims"], white: Float[Array, "*dims"], rest: float) -> Scalar:
    """Σ (log(1 + rest λ) - rest log(1 + λ)) / (rest (1 - rest)) over eigenvalues, or its limit.

    Of E near zero, and elsewhere of Σ = I + E, as E has lost the digits of small variances. The
    derivative needs no eigenvectors, so all derivatives are right even if eigenvalues coincide.
    """
    near, values, share = is_near(change), _eigenvalues(change), 1.0 - rest
    close = jnp.where(near, values, 0.0)
    if change.ndim == 1:
        logs = jnp.sum(jnp.where(near, jnp.log1p(close), jnp.log(white)))
    else:
        logs = jnp.where(near, jnp.sum(jnp.log1p(close)), _log_determinant(white))
    if rest == 0.0:
        return jnp.sum(values) - logs
    if rest <= 0.5:
        return (jnp.sum(jnp.log1p(rest * values)) - rest * logs) / (rest * share)
    # Eigenvalues of Σ⁻¹ - I.
    far = _eigenvalues(_divided(_identity(white), white, 1.0)) - 1.0
    inverse = jnp.where(near, -close / (1.0 + close), far)
    if share == 0.0:
        return logs + jnp.sum(inverse)
    return (jnp.sum(jnp.log1p(share * inverse)) + share * logs) / (rest * share)


@_excess.defjvp
def _excess_jvp(rest: float, primals: tuple, tangents: tuple) -> tuple:
    change, white = primals
    slope = _divided(_divided(change, white, 1.0), white, rest)
    return _excess(change, white, rest), jnp.sum(slope * tangents[1])


def _not_negative(value: Array) -> Array:
    """Raises negative rounding errors to zero; unlike the maximum, with all derivatives at zero."""
    return jnp.where(value < 0.0, 0.0, value)
