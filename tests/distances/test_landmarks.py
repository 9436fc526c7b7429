"""Distances of shapes: sums over landmarks, and the laws that hold for every distance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import (
    LANDMARK_DISTANCES,
    DiagonalGaussian,
    Gaussian,
    LandmarkDistance,
    diagonal_fisher_rao,
    wasserstein,
)
from diffclust.testing import check_distance
from tests.registry import gaussian_landmarks as draw_diagonal

LANDMARKS = 4


def draw_round(key):
    shape = draw_diagonal(key)
    return DiagonalGaussian(shape.mean, shape.variance[:, 0])


def draw_full(key):
    mean, root = jax.random.split(key)
    roots = jax.random.normal(root, (LANDMARKS, 2, 2))
    covariance = roots @ jnp.swapaxes(roots, 1, 2) + 0.5 * jnp.eye(2)[None]
    return Gaussian(jax.random.normal(mean, (LANDMARKS, 2)), covariance)


def draw_for(name):
    return {"diagonal_fisher_rao": draw_diagonal, "isotropic_fisher_rao": draw_round}.get(
        name, draw_full
    )


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("name", sorted(LANDMARK_DISTANCES))
def test_every_law_holds(name, norm, key):
    check_distance(LandmarkDistance(name, norm=norm), key=key, draw=draw_for(name))


def test_l1_adds_up_and_l2_is_the_root_of_squares(key):
    first, second = (draw_diagonal(k) for k in jax.random.split(key))
    each = np.asarray(
        [
            diagonal_fisher_rao(*(jax.tree.map(lambda x, i=i: x[i], s) for s in (first, second)))
            for i in range(LANDMARKS)
        ]
    )
    assert float(LandmarkDistance()(first, second)) == pytest.approx(each.sum(), rel=1e-6)
    root = float(LandmarkDistance(norm="l2")(first, second))
    assert root == pytest.approx(np.sqrt((each**2).sum()), rel=1e-6)
    weight = np.asarray([1.0, 0.0, 2.0, 0.5], np.float32)
    weighted = LandmarkDistance(norm="l2")(first, second, jnp.asarray(weight))
    assert float(weighted) == pytest.approx(np.sqrt((weight * each**2).sum()), rel=1e-6)
    weighted = LandmarkDistance()(first, second, jnp.asarray(weight))
    assert float(weighted) == pytest.approx((weight * each).sum(), rel=1e-6)


def test_a_function_of_one_s_own_is_a_distance_of_landmarks(key):
    first, second = (draw_diagonal(k) for k in jax.random.split(key))
    named, given = LandmarkDistance("wasserstein"), LandmarkDistance(wasserstein)
    assert float(named(first, second)) == float(given(first, second))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_gradient_is_finite_where_one_landmark_agrees(norm, key):
    first, second = (draw_diagonal(k) for k in jax.random.split(key))
    second = jax.tree.map(lambda x, y: y.at[0].set(x[0]), first, second)
    slope = jax.grad(LandmarkDistance(norm=norm))(first, second)
    assert (np.asarray(slope.mean[0]) == 0).all()
    assert (np.asarray(slope.mean[1]) != 0).all()


@pytest.mark.parametrize(
    "name",
    [
        "diagonal_fisher_rao",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("fisher_rao", "wasserstein")),
    ],
)
def test_second_derivative_holds_where_one_landmark_agrees(name, key):
    with jax.enable_x64(True):
        first, second, towards = (draw_for(name)(k) for k in jax.random.split(key, 3))
        second = jax.tree.map(lambda x, y: y.at[0].set(x[0]), first, second)

        @jax.jit
        def at(t):
            moved = jax.tree.map(lambda x, y: x + 0.1 * t * y, second, towards)
            return LandmarkDistance(name, norm="l2")(first, moved)

        step = 1e-3
        expected = (at(step) - 2 * at(0.0) + at(-step)) / step**2
        curvature = jax.jit(jax.jacfwd(jax.grad(at)))(0.0)
        assert float(curvature) == pytest.approx(float(expected), rel=1e-4)


def test_faults_are_named():
    with pytest.raises(ValueError, match="fisher_rao"):
        LandmarkDistance("euclid")
    with pytest.raises(ValueError, match="l1"):
        LandmarkDistance(norm="l3")
