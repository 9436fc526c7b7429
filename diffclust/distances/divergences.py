"""Divergences of Gaussians in closed form: not distances, and most not symmetric."""

import jax.numpy as jnp
from jaxtyping import Array

from diffclust.distances.gaussian import (
    DiagonalGaussian,
    Gaussian,
    in_frame_of,
    require_same_shapes,
)
from diffclust.linalg import safe_sqrt
from diffclust.types import Scalar


def alpha_divergence(
    p: Gaussian | DiagonalGaussian, q: Gaussian | DiagonalGaussian, *, alpha: float = 0.0
) -> Scalar:
    """Amari's α-divergence, 4/(1 - α²) (1 - ∫ p^((1-α)/2) q^((1+α)/2)).

    α = -1 is KL(p‖q), α = 1 is KL(q‖p), α = 0 is four times the squared Hellinger distance; all
    agree with the squared Fisher–Rao distance over two where p and q are close. Exchanging p and q
    changes the sign of α. Finite for |α| ≤ 1; beyond, infinite where
    (1+α)/2 Σ_p + (1-α)/2 Σ_q is not positive definite.

    Args:
        p: A Gaussian.
        q: Another of its class and dimension.
        alpha: α.

    Returns:
        A non-negative number, or infinity.

    Raises:
        ValueError: If the shapes are not those of one pair.

    References:
        Amari and Nagaoka, Methods of Information Geometry (2000), Eq. 3.23.
    """
    values, squares = _in_frame_of_second(p, q)
    if alpha in (-1.0, 1.0):
        # KL(p‖q) weighs the means by Σ_q, which is the identity here, KL(q‖p) by Σ_p.
        ratios = values if alpha < 0 else -values / (1.0 + values)
        shift = squares if alpha < 0 else squares / (1.0 + values)
        return 0.5 * jnp.sum(_not_negative(ratios - jnp.log1p(ratios)) + shift)
    share = 0.5 * (1.0 - alpha)
    exponent, is_finite = _log_affinity(values, squares, share)
    divergence = -jnp.expm1(exponent) / (share * (1.0 - share))
    return jnp.where(is_finite, _not_negative(divergence), jnp.inf)


def kullback_leibler(p: Gaussian, q: Gaussian) -> Scalar:
    """KL(p‖q) = E_p log p/q, in nats.

    Args:
        p: The Gaussian that is averaged over.
        q: Another of its dimension.

    Returns:
        A non-negative number.

    Raises:
        ValueError: If the shapes are not those of one pair.
    """
    return alpha_divergence(p, q, alpha=-1.0)


def bhattacharyya(p: Gaussian, q: Gaussian) -> Scalar:
    """-log ∫ √(pq): symmetric, additive over independent coordinates, no metric.

    Args:
        p: A Gaussian.
        q: Another of its dimension.

    Returns:
        A non-negative number.

    Raises:
        ValueError: If the shapes are not those of one pair.

    References:
        Bhattacharyya, On a measure of divergence between two statistical populations (1943).
    """
    exponent, _ = _log_affinity(*_in_frame_of_second(p, q), 0.5)
    return _not_negative(-exponent)


def hellinger(p: Gaussian, q: Gaussian) -> Scalar:
    """√(1 - ∫ √(pq)), a metric between 0 and 1; gradient zero where the two agree.

    Args:
        p: A Gaussian.
        q: Another of its dimension.

    Returns:
        The distance.

    Raises:
        ValueError: If the shapes are not those of one pair.
    """
    return safe_sqrt(0.25 * alpha_divergence(p, q, alpha=0.0))


def _in_frame_of_second(
    p: Gaussian | DiagonalGaussian, q: Gaussian | DiagonalGaussian
) -> tuple[Array, Array]:
    """Where q is N(0, I) and Σ_p diagonal: Σ_p - I, and the squared coordinates of the mean."""
    if isinstance(p, DiagonalGaussian) and isinstance(q, DiagonalGaussian):
        require_same_shapes(p, q)
        return (p.variance - q.variance) / q.variance, (p.mean - q.mean) ** 2 / q.variance
    if isinstance(p, DiagonalGaussian) or isinstance(q, DiagonalGaussian):
        raise ValueError(f"p and q must be of one class, not {type(p)} and {type(q)}")
    values, mean = in_frame_of(q, p)
    return values, mean**2


def _log_affinity(values: Array, squares: Array, share: float) -> tuple[Scalar, Array]:
    """Log ∫ p^share q^(1-share) from `_in_frame_of_second`, and whether the integral is finite."""
    rest = 1.0 - share
    mixed = rest * values
    is_finite = jnp.all(mixed > -1.0)
    mixed = jnp.where(is_finite, mixed, 0.0)
    widths = jnp.log1p(mixed) - rest * jnp.log1p(values)
    return -0.5 * jnp.sum(share * rest * squares / (1.0 + mixed) + widths), is_finite


def _not_negative(value: Array) -> Array:
    """Lifts rounding below zero to zero; at zero, unlike the maximum, it has all derivatives."""
    return jnp.where(value < 0.0, 0.0, value)
