"""Random Gaussians for the tests of their distances."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

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


def check_gradient(
    distance: Callable[[Gaussian, Gaussian], Array], p: Gaussian, q: Gaussian, *, rel: float
) -> None:
    """Checks the gradient in the first Gaussian against differences, in one direction."""
    bend, step = gaussian(3, p.mean.size), 1e-5
    slope = jax.grad(distance)(p, q)

    def at(t: float) -> float:
        moved = Gaussian(p.mean + t * bend.mean, p.covariance + t * bend.covariance)
        return float(distance(moved, q))

    along = jnp.vdot(slope.mean, bend.mean) + jnp.vdot(slope.covariance, bend.covariance)
    assert float(along) == pytest.approx((at(step) - at(-step)) / (2 * step), rel=rel)
