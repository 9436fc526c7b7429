import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import DiagonalGaussian
from diffclust.distances.fisher_rao import diagonal_fisher_rao
from diffclust.distances.frechet import exp_map, hessian_bound, log_map

UNIT = 2.0**0.5


@pytest.fixture(params=range(4))
def points(request):
    keys = jax.random.split(jax.random.key(request.param), 4)
    x = 3.0 * jax.random.normal(keys[0], (2, 50))
    return x, jnp.exp(jax.random.normal(keys[1], (2, 50)))


def test_the_geodesic_arrives(points):
    x, s = points
    across, upwards, _ = log_map((x[0], s[0]), (x[1], s[1]))
    there = exp_map((x[0], s[0]), across, upwards)
    np.testing.assert_allclose(there[0], x[1], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(there[1], s[1], rtol=1e-3)


def test_lengths_are_those_of_gaussians(points):
    x, s = points
    _, _, length = log_map((x[0], s[0]), (x[1], s[1]))

    def distance(i):
        p, q = (DiagonalGaussian(UNIT * x[j, i][None], s[j, i][None] ** 2) for j in (0, 1))
        return diagonal_fisher_rao(p, q)

    expected = [float(distance(i)) for i in range(5)]
    np.testing.assert_allclose(UNIT * length[:5], expected, rtol=1e-4)


def test_halfway_is_half_as_far(points):
    x, s = points
    start = (x[0], s[0])
    across, upwards, length = log_map(start, (x[1], s[1]))
    middle = exp_map(start, 0.5 * across, 0.5 * upwards)
    np.testing.assert_allclose(log_map(start, middle)[2], 0.5 * length, rtol=1e-3)
    np.testing.assert_allclose(log_map(middle, (x[1], s[1]))[2], 0.5 * length, rtol=2e-3)


def test_at_rest_nothing_moves():
    one = (jnp.ones(3), jnp.full(3, 0.5))
    across, upwards, length = log_map(one, one)
    for still in (across, upwards, length):
        assert not np.any(still)
    np.testing.assert_array_equal(exp_map(one, across, upwards)[1], one[1])
    np.testing.assert_array_equal(hessian_bound(jnp.zeros(2)), 1.0)
    np.testing.assert_allclose(hessian_bound(jnp.asarray(2.0)), 2.0 / np.tanh(2.0), rtol=1e-6)
