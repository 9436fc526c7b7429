"""Divergences against numerical integration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffclust.distances import (
    DiagonalGaussian,
    Gaussian,
    alpha_divergence,
    bhattacharyya,
    fisher_rao,
    hellinger,
    kullback_leibler,
)
from tests.distances.gaussians import gaussian

SEEDS = st.integers(0, 10_000)
KL, HELLINGER = jax.jit(kullback_leibler), jax.jit(hellinger)
ALPHA = jax.jit(lambda p, q, alpha: alpha_divergence(p, q, alpha=alpha), static_argnums=2)
SLOPE = jax.jit(jax.grad(lambda p, q, alpha: alpha_divergence(p, q, alpha=alpha)), static_argnums=2)


def densities(p, q):
    """Both densities and the area of a cell, on a grid of the plane: spectrally accurate."""
    side = np.linspace(-25, 25, 1001)
    points = np.stack(np.meshgrid(side, side), axis=-1)

    def density(g):
        moved = points - np.asarray(g.mean)
        squares = np.einsum("...i,ij,...j", moved, np.linalg.inv(g.covariance), moved)
        return np.exp(-squares / 2) / (2 * np.pi * np.sqrt(np.linalg.det(g.covariance)))

    return density(p), density(q), (side[1] - side[0]) ** 2


@pytest.mark.parametrize("alpha", [-1.0, 0.3, 1.0])
def test_variances_are_covariances_without_the_rest(alpha):
    rng = np.random.default_rng(0)
    mean, variance = rng.normal(size=(2, 3)), rng.uniform(0.5, 2.0, (2, 3))
    diagonal = [
        DiagonalGaussian(*map(jnp.asarray, pair)) for pair in zip(mean, variance, strict=True)
    ]
    full = [Gaussian(g.mean, jnp.diag(g.variance)) for g in diagonal]
    result, expected = (alpha_divergence(*pair, alpha=alpha) for pair in (diagonal, full))
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    with pytest.raises(ValueError, match="p and q must be of one class"):
        alpha_divergence(diagonal[0], full[1])


@pytest.mark.parametrize("alpha", [-1.0, -0.5, 0.0, 0.5, 1.0])
def test_is_the_integral(alpha):
    with jax.enable_x64(True):
        p, q = gaussian(0), gaussian(1)
        result = float(alpha_divergence(p, q, alpha=alpha))
        swapped = float(alpha_divergence(q, p, alpha=-alpha))
    f, g, cell = densities(p, q)
    if abs(alpha) == 1:
        f, g = (f, g) if alpha < 0 else (g, f)
        expected = np.sum(np.where(f > 1e-200, f * np.log((f + 1e-300) / (g + 1e-300)), 0)) * cell
    else:
        affinity = np.sum(f ** ((1 - alpha) / 2) * g ** ((1 + alpha) / 2)) * cell
        expected = 4 / (1 - alpha**2) * (1 - affinity)
    assert result == pytest.approx(expected, rel=1e-7)
    assert swapped == pytest.approx(result, rel=1e-12)


def test_beyond_one_it_may_be_infinite():
    with jax.enable_x64(True):
        narrow, wide = (Gaussian(jnp.zeros(2), s * jnp.eye(2)) for s in (1.0, 4.0))
        # α = 3: ∫ q²/p, infinite where q is more than twice as wide as p.
        assert np.isinf(float(alpha_divergence(narrow, wide, alpha=3.0)))
        result = float(alpha_divergence(wide, narrow, alpha=3.0))
        f, g, cell = densities(wide, narrow)
    assert result == pytest.approx(-0.5 * (1 - np.sum(g**2 / f) * cell), rel=1e-6)


def test_limits_are_continuous():
    with jax.enable_x64(True):
        p, q = gaussian(0, 3), gaussian(1, 3)
        for alpha in (-1.0, 1.0):
            near = float(alpha_divergence(p, q, alpha=alpha * (1 - 1e-7)))
            assert near == pytest.approx(float(alpha_divergence(p, q, alpha=alpha)), rel=1e-5)


@pytest.mark.parametrize(
    "alpha", [*(pytest.param(a, marks=pytest.mark.slow) for a in (-1.0, 0.7, 1.0)), 0.0]
)
def test_close_by_it_is_half_the_squared_fisher_rao_distance(alpha):
    with jax.enable_x64(True):
        p, move = gaussian(0), gaussian(1)
        q = Gaussian(p.mean + 1e-4 * move.mean, p.covariance + 1e-4 * move.covariance)
        expected = 0.5 * float(fisher_rao(p, q)) ** 2
        assert float(alpha_divergence(p, q, alpha=alpha)) == pytest.approx(expected, rel=1e-3)


@given(SEEDS)
def test_hellinger_is_a_metric_below_one(seed):
    p, q, r = (gaussian(seed + i) for i in range(3))
    pq = float(HELLINGER(p, q))
    assert pq == pytest.approx(float(HELLINGER(q, p)), abs=1e-5)
    assert 0 < pq <= min(1.0, float(HELLINGER(p, r)) + float(HELLINGER(r, q)) + 1e-5)
    assert pq**2 == pytest.approx(1 - np.exp(-float(bhattacharyya(p, q))), abs=1e-5)
    assert float(KL(p, q)) > 0


def test_zero_at_equality_with_gradient_zero():
    p = gaussian(0)
    for divergence in (hellinger, kullback_leibler, bhattacharyya):
        assert float(divergence(p, p)) == 0.0
        slope = jax.tree.leaves(jax.grad(divergence)(p, p))
        assert all((np.asarray(leaf) == 0).all() for leaf in slope)


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.5, 1.0])
def test_the_hessian_where_both_agree_is_the_fisher_information(alpha):
    with jax.enable_x64(True):
        at = DiagonalGaussian(jnp.asarray([0.3]), jnp.asarray([2.0]))

        def apart(moved):
            return alpha_divergence(DiagonalGaussian(moved[:1], moved[1:]), at, alpha=alpha)

        hessian = jax.jit(jax.hessian(apart))(jnp.asarray([0.3, 2.0]))
        np.testing.assert_allclose(hessian, np.diag([0.5, 0.125]), atol=1e-9)


@pytest.mark.parametrize(
    "alpha", [*(pytest.param(a, marks=pytest.mark.slow) for a in (-1.5, -0.3, 0.0, 0.5)), -1.0, 1.0]
)
@pytest.mark.parametrize("scale", [pytest.param(1.0, marks=pytest.mark.slow), 1.6])
def test_second_derivatives_where_all_eigenvalues_agree(alpha, scale):
    """Off the diagonal too; half of tr(ΔΔ) where both agree, whatever α is."""
    rng = np.random.default_rng(3)
    move = rng.normal(size=(3, 3))
    move = 0.5 * (move + move.T)
    with jax.enable_x64(True):

        @jax.jit
        def at(t):
            p = Gaussian(jnp.asarray([0.2, -0.1, 0.4]) * t, scale * jnp.eye(3) + t * move)
            return alpha_divergence(p, Gaussian(jnp.zeros(3), jnp.eye(3)), alpha=alpha)

        step = 1e-4
        expected = (at(step) - 2 * at(0.0) + at(-step)) / step**2
        for second in map(jax.jit, (jax.grad(jax.grad(at)), jax.jacfwd(jax.jacfwd(at)))):
            assert float(second(0.0)) == pytest.approx(float(expected), rel=1e-5)
        if scale == 1.0:
            exact = 0.5 * np.sum(move**2) + 0.2**2 + 0.1**2 + 0.4**2
            assert float(second(0.0)) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("alpha", [-0.9999999, -0.99999, 0.99999, 0.9999999])
def test_the_limits_are_reached_without_loss_of_digits(alpha):
    p, q = gaussian(0), gaussian(1)
    limit = float(alpha_divergence(p, q, alpha=float(np.sign(alpha))))
    assert float(alpha_divergence(p, q, alpha=alpha)) == pytest.approx(limit, rel=1e-4)


@pytest.mark.parametrize("alpha", [-1.0, 0.0, 0.4, 1.0])
@pytest.mark.parametrize("variance", [1e-2, 1e-8])
def test_narrow_gaussians_keep_their_digits_in_single_precision(alpha, variance):
    with jax.enable_x64(True):
        p = DiagonalGaussian(jnp.asarray([0.1, 0.2]), jnp.asarray([variance, 0.5]))
        q = DiagonalGaussian(jnp.zeros(2), jnp.ones(2))
        exact = [(float(ALPHA(*pair, alpha)), SLOPE(*pair, alpha)) for pair in ((p, q), (q, p))]
    with jax.enable_x64(False):
        p, q = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (p, q))
        full = [Gaussian(one.mean, jnp.diag(one.variance)) for one in (p, q)]
        for (value, slope), order in zip(exact, (1, -1), strict=True):
            assert float(ALPHA(*(p, q)[::order], alpha)) == pytest.approx(value, rel=1e-5)
            assert float(ALPHA(*full[::order], alpha)) == pytest.approx(value, rel=1e-4)
            found = SLOPE(*(p, q)[::order], alpha)
            np.testing.assert_allclose(found.variance, slope.variance, rtol=1e-4)
            np.testing.assert_allclose(found.mean, slope.mean, rtol=1e-4)


@pytest.mark.parametrize("alpha", [-1.0, 0.4, 1.0])
def test_many_small_differences_keep_their_digits(alpha):
    change = np.float32(1.0) + 1e-3 * (np.arange(1000) % 3 - 1).astype(np.float32)
    with jax.enable_x64(True):
        one = DiagonalGaussian(jnp.zeros(1000), jnp.ones(1000))
        exact = float(
            ALPHA(one, DiagonalGaussian(jnp.zeros(1000), jnp.asarray(change, "f8")), alpha)
        )
    with jax.enable_x64(False):
        one = DiagonalGaussian(jnp.zeros(1000), jnp.ones(1000))
        found = float(ALPHA(one, DiagonalGaussian(jnp.zeros(1000), jnp.asarray(change)), alpha))
    assert found == pytest.approx(exact, rel=1e-3)
