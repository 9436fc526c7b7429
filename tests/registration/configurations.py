"""Configurations of landmarks, moved about, for the tests of their registration."""

import contextlib
from collections.abc import Iterator

import jax
import numpy as np
import scipy.linalg


@contextlib.contextmanager
def precision(double: bool) -> Iterator[tuple[type, float]]:
    """A floating type, and how closely float64's numbers are met in it."""
    with jax.enable_x64(double):
        yield (np.float64, 1e-11) if double else (np.float32, 3e-5)


def rotation(dims: int, seed: int = 0) -> np.ndarray:
    matrix = scipy.linalg.expm(skew(dims, seed))
    assert np.linalg.det(matrix) > 0
    return matrix


def skew(dims: int, seed: int) -> np.ndarray:
    matrix = np.random.default_rng(seed + 1).normal(size=(dims, dims))
    return matrix - matrix.T


def like(number: int, dims: int = 2, noise: float = 0.15, seed: int = 0) -> np.ndarray:
    """Noisy copies of one configuration, each moved by a similarity."""
    draw = np.random.default_rng(seed)
    mean = draw.normal(size=(6, dims))
    shapes = mean + noise * draw.normal(size=(number, 6, dims))
    return np.stack([moved(x, dims, i) for i, x in enumerate(shapes)])


def moved(x: np.ndarray, dims: int, seed: int, *, rigid: bool = False) -> np.ndarray:
    draw = np.random.default_rng(seed + 100)
    scale = 1.0 if rigid else np.exp(draw.normal())
    return scale * x @ rotation(dims, seed) + draw.normal(size=dims)
