"""Local contrast: what light does to it, and what it is of simple images."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import given, settings

from diffclust.features import local_contrast
from diffclust.features.contrast import LEAST_CONTRAST


def textured(shape=(24, 20, 3), seed=0):
    image = np.random.default_rng(seed).uniform(size=shape)
    return jnp.asarray(scipy.ndimage.gaussian_filter(image, (1, 1, 0)), jnp.float32)


@settings(max_examples=20, deadline=None)
@given(gain=st.floats(0.3, 3.0), level=st.floats(-0.5, 0.5))
def test_neither_brightness_nor_contrast_of_the_whole_matter(gain, level):
    image = textured()
    changed = local_contrast(gain * image + level)
    np.testing.assert_allclose(changed, local_contrast(image), atol=2e-4)


def test_light_that_changes_slowly_matters_little():
    image = textured((48, 48, 1))
    light = jnp.linspace(0.4, 1.0, 48)[:, None, None]
    plain, lit = local_contrast(image), local_contrast(light * image)
    assert jnp.linalg.norm(lit - plain) < 0.3 * jnp.linalg.norm(plain)
    raw = (x - jnp.mean(x) for x in (image, light * image))
    before, after = (x / jnp.linalg.norm(x) for x in raw)
    assert jnp.linalg.norm(after - before) > 0.5


def test_it_is_what_scipy_computes():
    image, sigma = np.asarray(textured((21, 30, 2)), np.float64), 0.05 * 21

    def blurred(x):
        widths = (sigma, sigma, 0)
        return scipy.ndimage.gaussian_filter(x, widths, mode="constant", truncate=12)

    def mean(x):
        return blurred(x) / blurred(np.ones_like(x))

    high = image - mean(image)
    deviation = np.sqrt(mean(np.sum(high**2, axis=2, keepdims=True)))
    expected = high / np.maximum(deviation, deviation.mean())
    np.testing.assert_allclose(local_contrast(jnp.asarray(image)), expected, atol=2e-4)


@pytest.mark.parametrize("level", [0.0, 0.3, 1.0])
def test_a_plain_image_has_none(level):
    image = jnp.full((9, 12, 3), level)
    np.testing.assert_allclose(local_contrast(image), 0.0, atol=1e-3)
    assert jnp.all(jnp.isfinite(jax.grad(lambda x: jnp.sum(local_contrast(x) ** 2))(image)))


def test_rounding_of_eight_bits_is_not_made_large():
    image = jnp.asarray(np.random.default_rng(0).integers(0, 2, (16, 16, 1)) / 255)
    assert jnp.max(jnp.abs(local_contrast(image))) <= 1.0 / 255 / LEAST_CONTRAST
