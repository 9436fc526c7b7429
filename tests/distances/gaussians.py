"""Random Gaussians for the tests of their distances."""

import jax.numpy as jnp
import numpy as np

from diffclust.distances import DiagonalGaussian, Gaussian


def gaussian(seed: int, dims: int = 2, *, apart: float = 1.0, floor: float = 0.3) -> Gaussian:
    """One Gaussian, in the precision that is switched on."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dims, dims))
    covariance = root @ root.T + floor * np.eye(dims)
    dtype = jnp.zeros(()).dtype
    return Gaussian(
        jnp.asarray(apart * rng.normal(size=dims), dtype=dtype), jnp.asarray(covariance, dtype)
    )


def diagonal(seed: int, dims: int = 2, *, apart: float = 1.0) -> DiagonalGaussian:
    rng = np.random.default_rng(seed)
    dtype = jnp.zeros(()).dtype
    return DiagonalGaussian(
        jnp.asarray(apart * rng.normal(size=dims), dtype),
        jnp.asarray(np.exp(rng.normal(size=dims)), dtype),
    )


def full(p: DiagonalGaussian) -> Gaussian:
    return Gaussian(p.mean, jnp.diag(p.variance))


def mapped(p: Gaussian, matrix: np.ndarray, shift: np.ndarray) -> Gaussian:
    """The Gaussian of A x + b."""
    a, b = jnp.asarray(matrix, p.mean.dtype), jnp.asarray(shift, p.mean.dtype)
    return Gaussian(a @ p.mean + b, a @ p.covariance @ a.T)
