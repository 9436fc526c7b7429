"""The leading principal direction, against a singular value decomposition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.solvers.split_merge import _half_weights, power_iteration


@pytest.mark.parametrize("x64", [False, True])
def test_is_the_first_singular_vector(x64: bool) -> None:
    with jax.enable_x64(x64):
        rng = np.random.default_rng(0)
        scales = np.asarray([3.0, 1.0, 0.5, 0.2])
        rows = rng.normal(size=(40, 4)) * scales @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
        rows -= rows.mean(axis=0)
        result = power_iteration(jnp.asarray(rows, jnp.result_type(float)), iterations=12)
        assert result.dtype == (jnp.float64 if x64 else jnp.float32)
        first = np.linalg.svd(rows)[2][0]
        np.testing.assert_allclose(abs(float(result @ first)), 1.0, rtol=1e-6)


def test_few_steps_tell_more_than_none() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 5)) * [2.0, 1.5, 1.0, 1.0, 1.0]
    rows -= rows.mean(axis=0)
    first = np.linalg.svd(rows)[2][0]
    cosines = [
        abs(float(power_iteration(jnp.asarray(rows, jnp.float32), iterations=n) @ first))
        for n in (1, 4, 40)
    ]
    assert cosines == sorted(cosines)
    assert cosines[0] < 0.999 < cosines[2]


def test_equal_rows_have_no_direction() -> None:
    result = power_iteration(jnp.zeros((6, 3)), iterations=8)
    np.testing.assert_array_equal(result, np.zeros(3))


@pytest.mark.parametrize("exponent", [-60, 20, 60])
def test_halves_do_not_depend_on_units(exponent: int) -> None:
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(40, 5)).astype(np.float32), rng.uniform(0.5, 1, 40)
    given = jnp.asarray(rows), jnp.asarray(weight, jnp.float32)
    factor = jnp.float32(2.0**exponent)
    expected = _half_weights(*given, iterations=12)
    assert 5 < int((expected[0] > 0).sum()) < 35
    for scaled in ((given[0] * factor, given[1]), (given[0], given[1] * factor)):
        np.testing.assert_array_equal(_half_weights(*scaled, iterations=12), expected)


def test_rows_are_halved_along_the_principal_direction_of_their_weighted_spread() -> None:
    random = np.random.default_rng(0)
    # Heavy rows spread along the first axis, light ones farther along the second.
    heavy, light = random.normal(size=(2, 30, 2)) * [[[1.0, 0.1]], [[0.1, 3.0]]]
    rows = np.concatenate([heavy, light]).astype(np.float32)
    weight = np.repeat([50.0, 0.1], 30).astype(np.float32)
    shares = np.asarray(_half_weights(jnp.asarray(rows), jnp.asarray(weight), iterations=30))
    centred = rows - np.average(rows, axis=0, weights=weight)
    direction = np.linalg.eigh(np.cov(rows.T, aweights=weight))[1][:, -1]
    side = centred @ direction > 0
    wanted = np.stack([side, ~side]) * weight
    wanted /= wanted.sum(axis=1, keepdims=True)
    assert min(np.abs(shares - wanted).max(), np.abs(shares[::-1] - wanted).max()) < 1e-5
