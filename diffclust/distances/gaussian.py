"""Gaussians, checks of pairs of them, and the density of images with independent pixels."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from diffclust.distances.base import AbstractDissimilarity, weighted_sum
from diffclust.linalg import whiten
from diffclust.types import Image, Scalar


class DiagonalGaussian(eqx.Module):
    """A Gaussian with independent coordinates, such as pixels; or several, with leading axes.

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


AnyGaussian = Gaussian | DiagonalGaussian


def check_gaussians(gaussians: AnyGaussian) -> None:
    """Refuses Gaussians for which distances are not defined; call it on the host, before `jit`.

    Args:
        gaussians: One or several, with leading axes.

    Raises:
        ValueError: If a mean is not finite, a variance is not positive and finite, or a covariance
            is of another shape or not symmetric and positive definite; the message gives the index
            of the first.
    """
    mean = np.asarray(gaussians.mean, np.float64)
    _refuse(~np.isfinite(mean), "a mean that is not finite", "leave it out, or repair it")
    add = "add a little to the diagonal, or take more shapes"
    if isinstance(gaussians, DiagonalGaussian):
        variance = np.asarray(gaussians.variance, np.float64)
        _refuse(~(variance > 0.0), "a variance that is not positive", add)
        _refuse(np.isinf(variance), "a variance that is infinite", "leave it out, or rescale")
        return
    matrix = np.asarray(gaussians.covariance, np.float64)
    shape = (*mean.shape, *mean.shape[-1:])
    if matrix.shape != shape:
        raise ValueError(
            f"means of shape {mean.shape} go with covariances of shape {shape}, not {matrix.shape}"
        )
    turned = np.swapaxes(matrix, -1, -2)
    largest = np.abs(matrix).max(axis=(-2, -1))
    # Rounding in the original dtype does not count as asymmetry.
    slack = 100.0 * float(jnp.finfo(gaussians.covariance.dtype).eps)
    even = np.abs(matrix - turned).max(axis=(-2, -1)) <= slack * largest
    finite = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    safe = np.where(finite[..., None, None], 0.5 * (matrix + turned), 0.0)
    fine = even & (np.linalg.eigvalsh(safe)[..., 0] > 0.0)
    _refuse(~fine, "a covariance that is not symmetric and positive definite", add)


def _refuse(is_bad: Bool[np.ndarray, "..."] | np.bool_, what: str, remedy: str) -> None:
    """Says where the first of several faults is."""
    bad = np.argwhere(np.atleast_1d(is_bad))
    if len(bad):
        first = bad[0].tolist()
        index = tuple(first) if len(first) > 1 else first[0]
        raise ValueError(f"{what} at index {index} ({len(bad)} in all); {remedy}")


class GaussianNegativeLogLikelihood(AbstractDissimilarity):
    """-log G(x; μ, Σ + σ_min²) of a Gaussian with independent pixels.

    The floor is added to the variances instead of clipping them, as clipped values have no
    gradient. Pixel weights multiply each pixel's negative log-likelihood.

    Attributes:
        min_deviation: σ_min, a standard deviation in units of intensity.

    References:
        Monnier et al., DTI clustering, Eq. 5, Algorithm 1 (iii), Sec. 3.2.
    """

    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)

    def __check_init__(self):
        """Refuses a floor for which a pixel that never varies has an infinite density."""
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
            A number in nats; negative if the density exceeds one.
        """
        variance = prototype.variance + self.min_deviation**2
        terms = (sample - prototype.mean) ** 2 / variance + jnp.log(2.0 * math.pi * variance)
        return 0.5 * weighted_sum(terms, weight)


def dims_of(p: Gaussian, q: Gaussian) -> int:
    """The dimension of two Gaussians, each of which must be single and of the same dimension."""
    if not (isinstance(p, Gaussian) and isinstance(q, Gaussian)):
        raise TypeError(
            f"this takes two Gaussians with covariances, not a {type(p).__name__} and a "
            f"{type(q).__name__}"
        )
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
    """Refuses diagonal Gaussians unless their four fields have the same shape."""
    if not (isinstance(p, DiagonalGaussian) and isinstance(q, DiagonalGaussian)):
        raise TypeError(
            f"this takes two DiagonalGaussians, not a {type(p).__name__} and a {type(q).__name__}"
        )
    shapes = [x.shape for x in (p.mean, p.variance, q.mean, q.variance)]
    if len(set(shapes)) != 1:
        raise ValueError(
            f"means and variances must all have one shape, not {shapes}; broadcast them first"
        )


def whitened_by(p: Gaussian, q: Gaussian) -> tuple[Array, Array, Array]:
    """The second Gaussian after an affine map that takes the first to N(0, I).

    Args:
        p: The Gaussian that is mapped to N(0, I).
        q: Another Gaussian of the same dimension.

    Returns:
        The mapped covariance of q minus the identity, that covariance, and the mapped mean of q.

    Raises:
        ValueError: If the two shapes do not match.
    """
    dims_of(p, q)
    p, q = symmetrised(p), symmetrised(q)
    factor = jnp.linalg.cholesky(p.covariance, symmetrize_input=False)
    change, white = whitened_covariance(factor, p.covariance, q.covariance)
    return change, white, solve_triangular(factor, q.mean - p.mean, lower=True)


def whitened_covariance(
    factor: Float[Array, "dims dims"],
    own: Float[Array, "dims dims"],
    other: Float[Array, "dims dims"],
) -> tuple[Array, Array]:
    """A covariance seen where another is the identity, with all digits near and far from it.

    Args:
        factor: The Cholesky factor of the covariance that becomes the identity.
        own: That covariance.
        other: The covariance that is seen.

    Returns:
        The seen covariance minus the identity, exactly zero if the two agree, and the seen
        covariance.
    """
    change = whiten(factor, other - own)
    eye = jnp.eye(len(own), dtype=change.dtype)
    return change, jnp.where(is_near(change), eye + change, whiten(factor, other))


def is_near(change: Float[Array, "*dims"]) -> Bool[Array, "..."]:
    """Whether a whitened covariance is near the identity: then its difference has more digits.

    Args:
        change: The difference, or its diagonal.

    Returns:
        A boolean; of a diagonal one for each variance.
    """
    size = jnp.abs(change)
    return size < 0.5 if change.ndim < 2 else jnp.max(jnp.sum(size, axis=-1)) < 0.5


def symmetrised(p: Gaussian) -> Gaussian:
    """The same Gaussian, with gradients shared equally by both triangles of its covariance."""
    return Gaussian(jnp.asarray(p.mean), 0.5 * (p.covariance + p.covariance.mT))
