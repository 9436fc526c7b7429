"""Gaussians, their density, and divergences between two of them."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.distances.base import AbstractDissimilarity, weighted_sum
from diffclust.linalg import product, safe_sqrt, symmetric_eigen, whiten
from diffclust.types import Image, Scalar


class DiagonalGaussian(eqx.Module):
    """A Gaussian whose coordinates (pixels, say) are independent; or several, with leading axes.

    Attributes:
        mean: Means.
        variance: Variances, non-negative.
    """

    mean: Float[Array, "..."]
    variance: Float[Array, "..."]


class Gaussian(eqx.Module):
    """A Gaussian with any covariance, or several, with leading axes.

    Attributes:
        mean: The mean.
        covariance: The covariance, symmetric and positive definite.
    """

    mean: Float[Array, "*n dims"]
    covariance: Float[Array, "*n dims dims"]


def check_gaussians(gaussians: DiagonalGaussian | Gaussian) -> None:
    """Refuses Gaussians between which there is no distance; call it on the host, before `jit`.

    Args:
        gaussians: One or several, with leading axes.

    Raises:
        ValueError: If a variance is not positive, or a covariance is not symmetric and positive
            definite, with the index of the first.
    """
    if isinstance(gaussians, DiagonalGaussian):
        fine, what = np.asarray(gaussians.variance) > 0.0, "a variance that is not positive"
    else:
        matrix = np.asarray(gaussians.covariance, np.float64)
        turned = np.swapaxes(matrix, -1, -2)
        largest = np.abs(matrix).max(axis=(-2, -1))
        # Rounding of the dtype they came in is no asymmetry.
        slack = 100.0 * float(jnp.finfo(gaussians.covariance.dtype).eps)
        even = np.abs(matrix - turned).max(axis=(-2, -1)) <= slack * largest
        finite = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
        safe = np.where(finite[..., None, None], 0.5 * (matrix + turned), 0.0)
        fine = even & (np.linalg.eigvalsh(safe)[..., 0] > 0.0)
        what = "a covariance that is not symmetric and positive definite"
    bad = np.argwhere(~np.atleast_1d(fine))
    if len(bad):
        first = bad[0].tolist()
        index = tuple(first) if len(first) > 1 else first[0]
        raise ValueError(
            f"{what} at index {index} ({len(bad)} in all); add a "
            "little to the diagonal, or take more shapes"
        )


class GaussianNegativeLogLikelihood(AbstractDissimilarity):
    """-log G(x; μ, Σ + σ_min²) of a Gaussian with independent pixels.

    A floor is added to the variances, not clipped to: clipped values have no gradient. Pixel
    weights multiply each pixel's negative log-likelihood.

    Attributes:
        min_deviation: σ_min, a standard deviation in units of intensity.

    References:
        Monnier et al., DTI clustering, Eq. 5, Algorithm 1 (iii), Sec. 3.2.
    """

    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)

    def __check_init__(self):
        """Refuses a floor at which a pixel that never varies has an infinite density."""
        if not self.min_deviation > 0.0:
            raise ValueError(f"min_deviation must be positive, not {self.min_deviation}")

    def __call__(
        self, sample: Image, prototype: DiagonalGaussian, weight: Array | None = None
    ) -> Scalar:
        """The negative log-likelihood; see `AbstractDissimilarity.__call__`.

        Args:
            sample: One image.
            prototype: The Gaussian.
            weight: Pixel weights, or None.

        Returns:
            A number in nats; negative where the density exceeds one.
        """
        variance = prototype.variance + self.min_deviation**2
        terms = (sample - prototype.mean) ** 2 / variance + jnp.log(2.0 * math.pi * variance)
        return 0.5 * weighted_sum(terms, weight)


def dims_of(p: Gaussian, q: Gaussian) -> int:
    """The dimension of two Gaussians, which must be one each and of the same dimension."""
    if p.mean.ndim != 1 or p.mean.shape != q.mean.shape:
        raise ValueError(
            "this takes two single Gaussians of one dimension, with means of shape (dims,), not of "
            f"{p.mean.shape} and {q.mean.shape}; use jax.vmap for several"
        )
    for covariance in (p.covariance, q.covariance):
        if covariance.shape != 2 * p.mean.shape:
            raise ValueError(
                f"a mean of shape {p.mean.shape} goes with a covariance of shape "
                f"{2 * p.mean.shape}, not {covariance.shape}"
            )
    return p.mean.shape[0]


def require_same_shapes(p: DiagonalGaussian, q: DiagonalGaussian) -> None:
    """Refuses diagonal Gaussians whose four fields are not all of one shape."""
    shapes = [x.shape for x in (p.mean, p.variance, q.mean, q.variance)]
    if len(set(shapes)) != 1:
        raise ValueError(
            f"means and variances must all have one shape, not {shapes}; broadcast them first"
        )


def symmetrised(p: Gaussian) -> Gaussian:
    """The same Gaussian; gradients reach both triangles of its covariance alike."""
    return Gaussian(jnp.asarray(p.mean), 0.5 * (p.covariance + p.covariance.mT))


def alpha_divergence(p: Gaussian, q: Gaussian, *, alpha: float = 0.0) -> Scalar:
    """Amari's α-divergence, 4/(1 - α²) (1 - ∫ p^((1-α)/2) q^((1+α)/2)).

    α = -1 is KL(p‖q), α = 1 is KL(q‖p), α = 0 is four times the squared Hellinger distance; all
    agree with the squared Fisher–Rao distance over two where p and q are close. Exchanging p and q
    changes the sign of α. Finite for |α| ≤ 1; beyond, infinite where
    (1+α)/2 Σ_p + (1-α)/2 Σ_q is not positive definite.

    Args:
        p: A Gaussian.
        q: Another of its dimension.
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
        return 0.5 * jnp.sum(jnp.maximum(ratios - jnp.log1p(ratios), 0.0) + shift)
    share = 0.5 * (1.0 - alpha)
    exponent, is_finite = _log_affinity(values, squares, share)
    divergence = -jnp.expm1(exponent) / (share * (1.0 - share))
    return jnp.where(is_finite, jnp.maximum(divergence, 0.0), jnp.inf)


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
    return jnp.maximum(-exponent, 0.0)


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


def _in_frame_of_second(p: Gaussian, q: Gaussian) -> tuple[Array, Array]:
    """Where q is N(0, I) and Σ_p diagonal: Σ_p - I, and the squared coordinates of the mean."""
    dims_of(p, q)
    p, q = symmetrised(p), symmetrised(q)
    factor = jnp.linalg.cholesky(q.covariance, symmetrize_input=False)
    values, axes = symmetric_eigen(whiten(factor, p.covariance - q.covariance))
    offset = jax.scipy.linalg.solve_triangular(factor, p.mean - q.mean, lower=True)
    return values, product(axes.T, offset) ** 2


def _log_affinity(values: Array, squares: Array, share: float) -> tuple[Scalar, Array]:
    """Log ∫ p^share q^(1-share) from `_in_frame_of_second`, and whether the integral is finite."""
    rest = 1.0 - share
    mixed = rest * values
    is_finite = jnp.all(mixed > -1.0)
    mixed = jnp.where(is_finite, mixed, 0.0)
    widths = jnp.log1p(mixed) - rest * jnp.log1p(values)
    return -0.5 * jnp.sum(share * rest * squares / (1.0 + mixed) + widths), is_finite
