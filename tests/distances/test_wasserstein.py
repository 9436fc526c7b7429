"""The 2-Wasserstein distance against SciPy's matrix square root, and its laws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from diffclust.distances import (
    DiagonalGaussian,
    Gaussian,
    printed_wasserstein,
    squared_wasserstein,
    wasserstein,
)
from diffclust.distances.wasserstein import transport
from tests.distances.gaussians import check_gradient, diagonal, full, gaussian, mapped

SEEDS = st.integers(0, 10_000)
DIMS = st.sampled_from([2, 3])
SQUARED, PLAIN = jax.jit(squared_wasserstein), jax.jit(wasserstein)


def reference(p, q):
    """Eq. 10 with |μ - μ'|², in double precision."""
    first, second = (np.asarray(x.covariance, np.float64) for x in (p, q))
    root = scipy.linalg.sqrtm(first)
    middle = scipy.linalg.sqrtm(root @ second @ root)
    moved = np.asarray(p.mean, np.float64) - np.asarray(q.mean, np.float64)
    return moved @ moved + np.trace(first + second - 2 * middle.real)


def ill(condition, dims, seed, dtype):
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(dims, dims)))[0]
    covariance = (turn * np.geomspace(1, 1 / condition, dims)) @ turn.T
    return Gaussian(jnp.zeros(dims, dtype), jnp.asarray(covariance, dtype))


@pytest.mark.parametrize("dims", [2, 3, 5])
@pytest.mark.parametrize(("x64", "condition", "close"), [(False, 1e3, 1e-5), (True, 1e8, 1e-7)])
def test_is_scipys_where_ill_conditioned(dims, x64, condition, close):
    with jax.enable_x64(x64):
        dtype = jnp.float64 if x64 else jnp.float32
        p, q = (ill(condition, dims, seed, dtype) for seed in (0, 1))
        result = SQUARED(p, q)
        slope = jax.tree.leaves(jax.grad(squared_wasserstein)(p, q))
    assert float(result) == pytest.approx(reference(p, q), rel=close)
    assert all(np.isfinite(leaf).all() for leaf in slope)


@given(SEEDS, DIMS)
def test_laws_of_a_metric(seed, dims):
    with jax.enable_x64(True):
        p, q, r = (gaussian(seed + i, dims) for i in range(3))
        pq = float(PLAIN(p, q))
        assert pq == pytest.approx(np.sqrt(reference(p, q)), rel=1e-9)
        assert pq == pytest.approx(float(PLAIN(q, p)), rel=1e-12)
        assert 0 < pq <= float(PLAIN(p, r)) + float(PLAIN(r, q)) + 1e-12
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(dims, dims)))[0]
        moved = [mapped(x, turn, np.arange(dims)) for x in (p, q)]
        assert float(PLAIN(*moved)) == pytest.approx(pq, rel=1e-9)
        shifted = Gaussian(p.mean + 2.0, p.covariance)
        assert float(PLAIN(p, shifted)) == pytest.approx(2 * np.sqrt(dims), rel=1e-9)
        assert float(printed_wasserstein(p, shifted)) == pytest.approx(2 * np.sqrt(dims), rel=1e-9)


@given(SEEDS)
def test_diagonal_is_the_full_one_on_diagonals(seed):
    p, q = diagonal(seed), diagonal(seed + 1)
    assert float(PLAIN(p, q)) == pytest.approx(float(PLAIN(full(p), full(q))), rel=1e-5)


@pytest.mark.parametrize("dims", [2, 3])
def test_gradients(dims):
    with jax.enable_x64(True):
        p, q = (gaussian(seed, dims) for seed in (1, 2))
        q = Gaussian(q.mean, 2.0 * jnp.eye(dims))  # equal eigenvalues
        check_gradient(SQUARED, q, p, rel=1e-6)


@pytest.mark.parametrize("p", [gaussian(0), gaussian(0, 3), diagonal(0)], ids=["2", "3", "diag"])
def test_zero_at_equality_with_gradient_zero(p):
    assert float(wasserstein(p, p)) < 1e-6
    for distance in (wasserstein, printed_wasserstein):
        slope = jax.tree.leaves(jax.grad(distance)(p, p))
        assert max(float(np.abs(leaf).max()) for leaf in slope) < 1e-3


def test_close_by_nothing_cancels():
    p = gaussian(0)
    q = Gaussian(p.mean, p.covariance * (1 + 1e-3))
    ratio = float(q.covariance[0, 0]) / float(p.covariance[0, 0])
    exact = (np.sqrt(ratio) - 1) ** 2 * float(jnp.trace(p.covariance))
    assert float(squared_wasserstein(p, q)) == pytest.approx(exact, rel=1e-3)


def test_point_masses_and_flat_covariances_are_allowed_in_the_plane():
    point = Gaussian(jnp.zeros(2), jnp.zeros((2, 2)))
    flat = Gaussian(jnp.asarray([3.0, 0.0]), jnp.diag(jnp.asarray([16.0, 0.0])))
    assert float(wasserstein(point, flat)) == pytest.approx(5.0)
    assert float(wasserstein(point, point)) == 0.0
    still = DiagonalGaussian(jnp.zeros(2), jnp.zeros(2))
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(jax.grad(wasserstein)(still, still)))


def test_printed_adds_the_mean_s_distance_itself():
    p, q = gaussian(3), gaussian(4)
    apart = float(jnp.linalg.norm(p.mean - q.mean))
    expected = reference(p, q) - apart**2 + apart
    assert float(printed_wasserstein(p, q)) == pytest.approx(expected, rel=1e-5)


def test_transport_carries_one_covariance_to_the_other():
    p, q = gaussian(3, 3), gaussian(4, 3)
    t = transport(p.covariance, q.covariance)
    np.testing.assert_allclose(t @ p.covariance @ t, q.covariance, atol=1e-4)
    np.testing.assert_allclose(t, t.T, atol=1e-5)


def test_classes_are_not_mixed():
    with pytest.raises(TypeError, match="DiagonalGaussian"):
        wasserstein(gaussian(0), diagonal(0))
