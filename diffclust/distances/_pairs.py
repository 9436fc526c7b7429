"""What the distances between Gaussians demand of a pair."""

import jax.numpy as jnp

from diffclust.distances.gaussian import DiagonalGaussian, Gaussian
from diffclust.linalg import transpose


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
    return Gaussian(jnp.asarray(p.mean), 0.5 * (p.covariance + transpose(p.covariance)))
