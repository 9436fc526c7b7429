"""Means of Gaussians: nothing near them has a smaller sum of squared distances."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import (
    DiagonalGaussian,
    Gaussian,
    diagonal_fisher_rao_mean,
    fisher_rao_mean,
    squared_diagonal_fisher_rao,
    squared_fisher_rao,
    squared_wasserstein,
    wasserstein_mean,
)
from tests.distances.gaussians import diagonal, full, gaussian

WEIGHTS = [0.5, 1.0, 0.2, 0.0, 2.0]


def stacked(gaussians):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *gaussians)


CASES = {
    "wasserstein": (wasserstein_mean, squared_wasserstein, gaussian, 2),
    "wasserstein, 3": (wasserstein_mean, squared_wasserstein, gaussian, 3),
    "wasserstein, diagonal": (wasserstein_mean, squared_wasserstein, diagonal, 2),
    "fisher_rao": (fisher_rao_mean, squared_fisher_rao, gaussian, 2),
    "diagonal_fisher_rao": (diagonal_fisher_rao_mean, squared_diagonal_fisher_rao, diagonal, 3),
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] * (c == "fisher_rao")) for c in CASES]
)
def test_the_slope_of_the_sum_vanishes_at_the_mean(case):
    mean_of, squared, draw, dims = CASES[case]
    with jax.enable_x64(True):
        several = stacked([draw(seed, dims) for seed in range(5)])
        weights = jnp.asarray(WEIGHTS)
        mean = jax.jit(mean_of)(several, weights)

        @jax.jit
        def spread(at):
            return jnp.dot(weights, jax.vmap(squared, in_axes=(None, 0))(at, several))

        slope = jax.grad(spread)(mean)
        start = jax.tree.map(lambda leaf: leaf[0], several)
        assert float(spread(mean)) < float(spread(start))
        for leaf in jax.tree.leaves(slope):
            np.testing.assert_allclose(leaf, 0.0, atol=1e-6 * float(spread(mean)))


def test_two_in_one_dimension_have_their_geodesic_s_middle():
    with jax.enable_x64(True):
        two = DiagonalGaussian(jnp.zeros((2, 1)), jnp.asarray([[1.0], [16.0]]))
        # With one mean the middle of deviations is geometric for Fisher–Rao, their mean for W₂.
        assert float(diagonal_fisher_rao_mean(two).variance[0]) == pytest.approx(4.0)
        assert float(wasserstein_mean(two).variance[0]) == pytest.approx(6.25)
        exact = fisher_rao_mean(Gaussian(two.mean, two.variance[..., None]))
        assert float(exact.covariance[0, 0]) == pytest.approx(4.0)


def test_diagonal_and_full_barycentres_agree():
    with jax.enable_x64(True):
        several = [diagonal(seed) for seed in range(4)]
        result = wasserstein_mean(stacked([full(p) for p in several]))
        expected = wasserstein_mean(stacked(several))
    np.testing.assert_allclose(result.covariance, np.diag(expected.variance), atol=1e-9)


@pytest.mark.slow
def test_equal_gaussians_are_their_own_mean():
    p = gaussian(0)
    for mean_of in (wasserstein_mean, fisher_rao_mean):
        result = jax.jit(partial(mean_of, num_steps=3))(stacked([p, p, p]))
        np.testing.assert_allclose(result.mean, p.mean, rtol=1e-5)
        np.testing.assert_allclose(result.covariance, p.covariance, rtol=1e-4)


def test_faults_are_named():
    several = stacked([gaussian(0), gaussian(1)])
    with pytest.raises(ValueError, match="2 Gaussians"):
        wasserstein_mean(several, jnp.ones(3))
    with pytest.raises(ValueError, match="leading axis"):
        fisher_rao_mean(gaussian(0))
    for weights, fault in (([1.0, -1.0], "weights must be at least 0"), ([0.0, 0.0], "above 0")):
        with pytest.raises(ValueError, match=fault):
            wasserstein_mean(several, jnp.asarray(weights))


@pytest.mark.parametrize("mean", [wasserstein_mean, diagonal_fisher_rao_mean])
def test_means_of_whole_numbers_are_not_rounded(mean):
    several = DiagonalGaussian(jnp.asarray([[0.0], [3.0]]), jnp.asarray([[1.0], [4.0]]))
    whole = jax.tree.map(lambda leaf: leaf.astype(int), several)
    for result, exact in zip(*map(jax.tree.leaves, (mean(whole), mean(several))), strict=True):
        np.testing.assert_array_equal(result, exact)
