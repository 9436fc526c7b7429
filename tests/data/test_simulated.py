"""Simulated shapes have the noise and the moves that were asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from diffclust.data import simulated_shapes
from diffclust.registration import procrustes_residual


def means(dims: int = 2) -> jax.Array:
    return jnp.asarray(10.0 * np.random.default_rng(4).normal(size=(2, 5, dims)), jnp.float32)


@pytest.mark.parametrize("dims", [2, 3])
def test_simulated_noise_has_the_deviations_that_were_asked_for(dims, key):
    deviations = np.random.default_rng(5).uniform(0.5, 3.0, (2, 5, dims)).astype(np.float32)
    result, group = simulated_shapes(
        means(dims),
        jnp.asarray(deviations),
        per_group=4000,
        key=key,
        rotation=False,
        translation=0.0,
    )
    np.testing.assert_array_equal(group, np.repeat([0, 1], 4000))
    noise = (np.asarray(result) - np.asarray(means(dims))[np.asarray(group)]).reshape(
        2, 4000, 5, dims
    )
    np.testing.assert_allclose(noise.std(axis=1), deviations, rtol=0.06)
    assert np.all(np.abs(noise.mean(axis=1)) < 5 * deviations / np.sqrt(4000))
    assert scipy.stats.kstest((noise / deviations[:, None]).ravel()[::7], "norm").pvalue > 1e-3


@pytest.mark.parametrize("dims", [2, 3])
def test_simulated_moves_are_uniform_rotations_and_shifts(dims, key):
    count = 2000
    still = means(dims)
    result, group = simulated_shapes(still, 0.0, per_group=count, key=key)
    # Without noise, a rotation and a shift lead back to the mean, and no reflection is needed.
    left = jax.jit(jax.vmap(lambda x, g: procrustes_residual(x, still[g], scaling=False)))
    assert float(jnp.max(left(result, group))) < 1e-3
    first = np.asarray(result, np.float64)[:count]
    middle = np.asarray(still, np.float64)[0].mean(axis=0)
    edge = np.asarray(still, np.float64)[0, 0] - middle
    turned = first[:, 0] - first.mean(axis=1)
    along = turned / np.linalg.norm(edge)
    if dims == 2:
        angle = np.arctan2(along[:, 1], along[:, 0]) / (2 * np.pi) + 0.5
        assert scipy.stats.kstest(angle, "uniform").pvalue > 1e-3
    else:
        # On a sphere each coordinate is uniform (Archimedes).
        for axis in range(3):
            assert scipy.stats.kstest(along[:, axis] / 2 + 0.5, "uniform").pvalue > 1e-3
    frames = [np.linalg.lstsq(np.asarray(still)[0] - middle, x - x.mean(0))[0] for x in first[:50]]
    shift = np.stack([x.mean(0) - middle @ f for x, f in zip(first[:50], frames, strict=True)])
    assert np.all(np.abs(shift) < 2.0 + 1e-4)
    assert shift.min() < -1.5
    assert shift.max() > 1.5


def test_simulated_shapes_are_pure_and_vmap(key):
    keys = jax.random.split(key, 2)
    still = means()

    def draw(key):
        return simulated_shapes(still, 1.0, per_group=4, key=key)[0]

    together = jax.jit(jax.vmap(draw))(keys)
    assert together.shape == (2, 8, 5, 2)
    assert not np.allclose(together[0], together[1])
    np.testing.assert_allclose(together[1], draw(keys[1]), rtol=1e-5, atol=1e-5)


def test_simulated_shapes_in_double():
    with jax.enable_x64(True):
        wide = simulated_shapes(
            jnp.asarray(np.ones((1, 3, 2))), 1.0, per_group=2, key=jax.random.key(1)
        )
        assert wide[0].dtype == np.float64


def test_what_cannot_be_simulated(key):
    with pytest.raises(ValueError, match=r"deviations of shape \(3,\) do not broadcast"):
        simulated_shapes(means(), jnp.ones(3), per_group=2, key=key)
    with pytest.raises(ValueError, match="per_group must be at least 1, not 0"):
        simulated_shapes(means(), 1.0, per_group=0, key=key)
