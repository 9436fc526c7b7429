"""The evidence for penalty weights: how well they explain the data, integrated over warps.

A sample's energy over its noise, ‖r‖²/2σ² + ½ Σ τⱼ qⱼ(ν), is the negative logarithm of a Gaussian
likelihood and of a Gaussian prior over warps, with weights wⱼ = σ² τⱼ. Distortions under different
weights or grids cannot be compared, and maximising over warps and their variance together
collapses. The evidence, which integrates the warps out, can be compared, and its EM algorithm does
not collapse. Labels are not used.

The integral is Laplace's approximation, with the Gauss-Newton Hessian at a prototype compared with
itself. Residuals of neighbouring pixels are correlated, so the number of independent pixels in the
noise term is the participation ratio of their covariance, not the number of pixels.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust._renamed import renamed_keywords
from diffclust.energies.base import AbstractPairEnergy
from diffclust.linalg import einsum
from diffclust.types import Scalar


class FitStatistics(eqx.Module):
    """Statistics of a fit, per cluster, from which the evidence is computed.

    Attributes:
        count: Sum of the samples' weights.
        distance: Sum of their distances, without penalties.
        sizes: Sums of their penalty terms.
        hessian: Half the Hessian of the distance at a prototype compared with itself.
        forms: The quadratic forms of the penalty terms.
        pixels: Effective number of independent pixels.
    """

    count: Float[Array, " clusters"]
    distance: Float[Array, " clusters"]
    sizes: Float[Array, "clusters terms"]
    hessian: Float[Array, "clusters params params"]
    forms: Float[Array, "terms params params"]
    pixels: Scalar


class Hyperparameters(eqx.Module):
    """The noise and the priors' precisions.

    Attributes:
        noise: Variance σ² of a pixel.
        precision: Precisions τⱼ of the penalty terms, one row per cluster.
    """

    noise: Scalar
    precision: Float[Array, "clusters terms"]

    @property
    def weights(self) -> Float[Array, "clusters terms"]:
        """Penalty weights σ² τⱼ."""
        return self.noise * self.precision


def quadratic_forms(energy: AbstractPairEnergy) -> Float[Array, "terms params params"]:
    """The matrices Rⱼ of the penalty terms qⱼ(ν) = νᵀ Rⱼ ν.

    Args:
        energy: The energy whose penalties they are.

    Returns:
        Symmetric positive semidefinite matrices.
    """
    at = jnp.zeros((energy.num_params,), dtype=jnp.result_type(float))
    return 0.5 * jax.hessian(energy.penalties)(at)


def effective_pixels(
    residuals: Float[Array, "n pixels"], weights: Float[Array, " n"] | None = None
) -> Scalar:
    """The participation ratio (tr C)² / tr C² of the residuals' second moments C.

    Args:
        residuals: One row per sample, from several clusters; at least two.
        weights: Weight of each sample; by default one.

    Returns:
        A number between 1 and the number of pixels: the number of independent pixels of equal
        variance that would vary as much.
    """
    size = jnp.max(jnp.abs(residuals))
    residuals = residuals / jnp.where(size > 0, size, 1.0)
    gram = jnp.matmul(residuals, residuals.T, precision=jax.lax.Precision.HIGHEST)
    dtype, norms = residuals.dtype, jnp.diagonal(gram)
    weights = jnp.ones_like(norms) if weights is None else weights / jnp.max(weights)
    energy = weights @ norms / jnp.sum(weights)
    # Pairs of different samples: a sample's product with itself is biased upwards.
    pairs = jnp.outer(weights, weights) * (1.0 - jnp.eye(len(norms), dtype=dtype))
    tiny = jnp.finfo(dtype).tiny
    crossed = jnp.sum(pairs * gram**2) / jnp.maximum(jnp.sum(pairs), tiny)
    most = jnp.asarray(residuals.shape[1], dtype=dtype)
    return jnp.clip(energy**2 / jnp.maximum(crossed, tiny), 1.0, most)


_ROUNDING = 16
"""Eigenvalues up to so many machine epsilons of the largest are taken for zero."""


def _precisions(fit: FitStatistics, given: Hyperparameters) -> tuple[Array, Array, Array]:
    """Precision matrices of the warps of each cluster: of the prior and of the posterior.

    Directions that no penalty measures, such as a constant that is added to all params of a time
    warp, are not integrated over: both matrices are one there. The last matrix projects onto them.
    """
    size = fit.forms.shape[1]
    largest = jnp.max(jnp.abs(fit.forms), axis=(1, 2), keepdims=True)
    tiny, eps = jnp.finfo(largest.dtype).tiny, jnp.finfo(largest.dtype).eps
    form = jnp.sum(fit.forms / jnp.maximum(largest, tiny), axis=0)
    values, vectors = jnp.linalg.eigh(form)
    # Above what rounding leaves of zero, and below the least eigenvalues of fine grids.
    is_free = (values <= _ROUNDING * eps * values[-1]).astype(values.dtype)
    free = einsum("ip,p,jp->ij", vectors, is_free, vectors)
    rest = jnp.eye(size, dtype=free.dtype) - free
    hessian = einsum("ij,kjl,lm->kim", rest, fit.hessian, rest)
    prior = einsum("kt,tij->kij", given.precision, fit.forms) + free[None]
    return prior, hessian / given.noise + prior, free


@renamed_keywords(warps="fit")
def log_evidence(fit: FitStatistics, given: Hyperparameters) -> Scalar:
    """Laplace's approximation to the log-evidence of a fit, summed over samples.

    Args:
        fit: The fit.
        given: Noise and precisions; their weights should be those that the fit used.

    Returns:
        The logarithm in nats, comparable between weights and landmark grids on the same images.
    """
    energy = fit.distance / given.noise + jnp.sum(given.precision * fit.sizes, axis=1)
    likelihood = -0.5 * (energy + fit.count * fit.pixels * jnp.log(2.0 * jnp.pi * given.noise))
    precisions = _precisions(fit, given)[:2]
    prior, posterior = (jnp.linalg.slogdet(matrices)[1] for matrices in precisions)
    return jnp.sum(likelihood + 0.5 * fit.count * (prior - posterior))


@renamed_keywords(warps="fit")
def em_step(fit: FitStatistics, given: Hyperparameters, *, shared: bool = True) -> Hyperparameters:
    """Makes one step of the EM algorithm (MacKay's, with a Laplace posterior over the warps).

    Args:
        fit: The fit under the given hyperparameters.
        given: The current hyperparameters.
        shared: Whether all clusters share one row of precisions, or each has its own; the latter is
            the size of transformation learned per cluster that ST K-means, Sec. 6 asks for.

    Returns:
        The improved hyperparameters.

    References:
        MacKay (1992), Bayesian interpolation; Cosentino et al., ST K-means, Sec. 6.
    """
    _, posterior, free = _precisions(fit, given)
    covariance = jnp.linalg.inv(posterior) - free[None]
    uncertainty = einsum("kij,kji->k", fit.hessian, covariance)
    sizes = fit.sizes + fit.count[:, None] * einsum("tij,kji->kt", fit.forms, covariance)
    total = jnp.sum(fit.count)
    noise = jnp.sum(fit.distance + fit.count * uncertainty) / (total * fit.pixels)
    values = jnp.linalg.eigvalsh(fit.forms)
    threshold = _ROUNDING * jnp.finfo(values.dtype).eps * jnp.max(values, axis=1, keepdims=True)
    ranks = jnp.sum(values > threshold, axis=1).astype(values.dtype)
    common = total * ranks / jnp.sum(sizes, axis=0)
    if shared:
        return Hyperparameters(noise, jnp.broadcast_to(common[None], fit.sizes.shape))
    # A cluster without samples keeps the common precision.
    own = fit.count[:, None] * ranks[None] / jnp.where(sizes > 0, sizes, 1.0)
    return Hyperparameters(noise, jnp.where(fit.count[:, None] > 0, own, common[None]))


@renamed_keywords(warps="fit")
def estimate_noise(fit: FitStatistics, weights: Float[Array, "clusters terms"]) -> Hyperparameters:
    """The noise that best explains a fit under given weights, and the corresponding precisions.

    Args:
        fit: The fit.
        weights: Penalty weights σ² τⱼ of each cluster; all positive.

    Returns:
        Hyperparameters with these weights.
    """
    energy = jnp.sum(fit.distance) + jnp.sum(weights * fit.sizes)
    # The maximiser of `log_evidence`: with fixed weights both determinants scale alike in σ².
    noise = energy / (jnp.sum(fit.count) * fit.pixels)
    return Hyperparameters(noise, weights / noise)
