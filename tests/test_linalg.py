"""Symmetric matrix functions against SciPy, and their gradients where eigenvalues meet."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from diffclust.distances import Gaussian, same_mean_fisher_rao
from diffclust.linalg import (
    first_minimum,
    safe_norm,
    safe_sqrt,
    symmetric_eigen,
    symmetric_exp,
    symmetric_log1p,
    symmetric_maximum,
    symmetric_sqrt,
    whiten,
)

MINIMA = {
    "ties": [2.0, 1.0, 3.0, 1.0],
    "NaN first": [np.nan, 1.0, 0.0],
    "NaN last": [1.0, 0.0, np.nan],
    "all infinite": [np.inf, np.inf],
    "one": [7.0],
    "least is infinite": [0.0, -np.inf, 1.0],
}


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("values", MINIMA.values(), ids=MINIMA)
def test_first_minimum_is_that_of_argmin(values: list[float], x64: bool) -> None:
    with jax.enable_x64(x64):
        given = jnp.asarray(values)
        index, least = jax.jit(first_minimum)(given)
        assert int(index) == int(jnp.argmin(given))
        np.testing.assert_equal(float(least), float(given[int(index)]))
    # So many that XLA vectorises, where a minimum loses a NaN on the CPU.
    many = np.random.default_rng(0).normal(size=(64, 1000)).astype(np.float32)
    many[::2, 700] = np.nan
    index, least = jax.jit(jax.vmap(first_minimum))(many)
    np.testing.assert_array_equal(index, jnp.argmin(many, axis=1))
    np.testing.assert_array_equal(least, many[np.arange(64), np.asarray(index)])


FUNCTIONS = {
    "sqrt": (symmetric_sqrt, scipy.linalg.sqrtm),
    "exp": (symmetric_exp, scipy.linalg.expm),
    "maximum": (
        functools.partial(symmetric_maximum, bound=0.8),
        lambda matrix: scipy.linalg.funm(matrix, lambda values: np.maximum(values.real, 0.8)),
    ),
}


def covariance(condition: float, dims: int = 4) -> np.ndarray:
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(dims, dims)))[0]
    return (turn * np.geomspace(1.0, 1.0 / condition, dims)) @ turn.T


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("x64", "condition", "close"), [(False, 1e3, 1e-4), (True, 1e8, 1e-7)])
def test_functions_are_scipys(name: str, x64: bool, condition: float, close: float) -> None:
    ours, theirs = FUNCTIONS[name]
    matrix = covariance(condition)
    with jax.enable_x64(x64):
        result = np.asarray(ours(jnp.asarray(matrix, dtype=jnp.float64 if x64 else jnp.float32)))
    np.testing.assert_allclose(
        result, theirs(matrix).real, atol=close * np.abs(theirs(matrix)).max()
    )


@functools.cache
def slopes(name: str) -> tuple[Callable, Callable]:
    """The derivative along a direction, and that of a weighed sum, each as one program."""
    ours, _ = FUNCTIONS[name]
    along = jax.jit(lambda matrix, direction: jax.jvp(ours, (matrix,), (direction,))[1])
    return along, jax.jit(jax.grad(lambda matrix, weights: jnp.sum(weights * ours(matrix))))


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-3, 0.3])
def test_gradients_hold_where_eigenvalues_meet(name: str, gap: float) -> None:
    theirs, (along, weighed) = FUNCTIONS[name][1], slopes(name)
    direction = np.random.default_rng(1).normal(size=(3, 3))
    direction = direction + direction.T
    matrix, step = np.diag([1.5, 1.5 + gap, 0.7]), 1e-5
    with jax.enable_x64(True):
        result = np.asarray(along(matrix, direction))
        slope = weighed(matrix, direction**2)
    expected = (theirs(matrix + step * direction) - theirs(matrix - step * direction)) / (2 * step)
    np.testing.assert_allclose(result, expected, atol=1e-8)
    assert np.sum(np.asarray(slope) * direction) == pytest.approx(
        np.sum(direction**2 * expected), rel=1e-7
    )


@pytest.mark.parametrize(
    "function",
    [
        symmetric_sqrt,
        *(pytest.param(f, marks=pytest.mark.slow) for f in (symmetric_exp, symmetric_log1p)),
    ],
)
def test_second_and_third_derivatives_where_eigenvalues_agree(function) -> None:
    direction = np.array([[0.3, 1.0, -0.4], [1.0, -0.2, 0.5], [-0.4, 0.5, 0.7]])
    with jax.enable_x64(True):

        @jax.jit
        def at(t: jax.Array) -> jax.Array:
            return function(1.3 * jnp.eye(3) + t * direction)

        second = jax.jit(jax.jacfwd(jax.jacfwd(at)))

        step, zero = 1e-3, jnp.zeros(())
        expected = (at(zero + step) - 2 * at(zero) + at(zero - step)) / step**2
        np.testing.assert_allclose(second(zero), expected, atol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.jacrev(jax.jacfwd(at)))(zero), expected, atol=1e-5)
        slope = jax.grad(lambda t: jnp.sum(at(t)))
        for outer in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(jax.jit(outer(slope))(zero), np.sum(expected), atol=1e-4)
        third = (second(zero + step) - second(zero - step)) / (2 * step)
        np.testing.assert_allclose(jax.jit(jax.jacfwd(second))(zero), third, atol=1e-4)


@pytest.mark.slow
def test_logarithm_has_its_second_derivative_in_its_squared_norm() -> None:
    direction = np.array([[0.3, 1.0], [1.0, -0.2]])
    with jax.enable_x64(True):
        change = 0.4 * np.eye(2) + 1e-3 * direction
        expected = scipy.linalg.logm(np.eye(2) + change)
        np.testing.assert_allclose(symmetric_log1p(jnp.asarray(change)), expected, atol=1e-12)

        def at(t: jax.Array) -> jax.Array:
            zero = jnp.zeros(2)
            p, q = Gaussian(zero, jnp.eye(2) + t * direction), Gaussian(zero, 2 * jnp.eye(2))
            return same_mean_fisher_rao(p, q) ** 2

        step = 1e-4
        second = (at(step) - 2 * at(0.0) + at(-step)) / step**2
        for twice in (jax.grad(jax.grad(at)), jax.jacfwd(jax.jacfwd(at))):
            assert float(twice(0.0)) == pytest.approx(float(second), rel=1e-5)


def test_square_root_of_a_singular_matrix_has_finite_gradients() -> None:
    gradient = jax.grad(lambda m: jnp.trace(symmetric_sqrt(m)))(
        jnp.diag(jnp.array([2.0, 0.0, 0.0]))
    )
    assert np.isfinite(gradient).all()


def test_eigenvectors_have_the_derivative_that_does_not_depend_on_their_choice() -> None:
    direction = jnp.array([[0.0, 1.0, 0.5], [1.0, 0.0, 0.2], [0.5, 0.2, 0.0]])

    def projector(m: jax.Array) -> jax.Array:
        _, vectors = symmetric_eigen(m)
        return jnp.outer(vectors[:, 2], vectors[:, 2])

    # The first two eigenvalues agree, the third is alone.
    rate = jax.jvp(projector, (jnp.diag(jnp.array([1.0, 1.0, 3.0])),), (direction,))[1]
    np.testing.assert_allclose(rate[2], np.array([0.25, 0.1, 0.0]), atol=1e-6)
    assert np.isfinite(rate).all()


def test_square_roots_are_safe_at_zero() -> None:
    assert safe_sqrt(jnp.array(-1e-9)) == 0.0
    assert np.isnan(safe_sqrt(jnp.array(np.nan)))
    assert np.isnan(safe_norm(jnp.array([np.nan, 1.0])))
    np.testing.assert_array_equal(jax.grad(safe_norm)(jnp.zeros(3)), np.zeros(3))
    np.testing.assert_allclose(jax.grad(safe_norm)(jnp.array([3.0, 4.0])), [0.6, 0.8], rtol=1e-6)


def test_whitened_covariance_is_the_identity() -> None:
    matrix = covariance(30.0).astype(np.float32)
    factor = jnp.linalg.cholesky(jnp.asarray(matrix))
    np.testing.assert_allclose(whiten(factor, jnp.asarray(matrix)), np.eye(4), atol=1e-5)
