import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from diffclust.registration import principal_rotation


def centred(key, dims):
    shape = (
        jax.random.normal(jax.random.key(key), (9, dims)) * jnp.asarray([[3.0, 1.5, 0.7]])[:, :dims]
    )
    return np.asarray(shape - shape.mean(0, keepdims=True))


@pytest.mark.parametrize("dims", [2, 3])
def test_axes_lie_along_the_coordinates(dims):
    shape = centred(0, dims)
    turn = np.asarray(principal_rotation(jnp.asarray(shape)))
    np.testing.assert_allclose(turn @ turn.T, np.eye(dims), atol=1e-5)
    assert np.linalg.det(turn) > 0.99
    moments = (shape @ turn.T).T @ (shape @ turn.T)
    np.testing.assert_allclose(moments, np.diag(np.diag(moments)), atol=1e-3)


def test_it_turns_by_an_eighth_at_most_in_the_plane():
    for seed in range(8):
        turn = principal_rotation(jnp.asarray(centred(seed, 2)))
        assert float(turn[0, 0]) >= np.cos(np.pi / 4) - 1e-4


@pytest.mark.parametrize("dims", [2, 3])
def test_orientation_changes_the_order_and_the_signs_of_axes_only(dims):
    shape = centred(1, dims)
    rotation = Rotation.random(random_state=0).as_matrix()
    if dims == 2:
        rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    given = (shape, shape @ rotation.T.astype(shape.dtype))
    framed = [np.abs(x @ np.asarray(principal_rotation(jnp.asarray(x))).T) for x in given]
    first, second = (x[:, np.argsort(x.var(0) + x.mean(0) ** 2)] for x in framed)
    np.testing.assert_allclose(first, second, atol=1e-4)


def test_in_many_dimensions_nothing_is_turned():
    shape = jax.random.normal(jax.random.key(2), (9, 5))
    np.testing.assert_array_equal(principal_rotation(shape), np.eye(5))


def test_what_lies_along_the_axes_stays():
    shape = np.array([[4.0, 0], [-4, 0], [0, 1], [0, -1]], np.float32)
    np.testing.assert_allclose(principal_rotation(jnp.asarray(shape)), np.eye(2), atol=1e-6)
