"""Levels of resolution belong to the energy: what has none is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import GaussianNegativeLogLikelihood, LandmarkDistance
from diffclust.energies import LandmarkEnergy, TransformedDistance, TransformedPrototype
from diffclust.prototypes import GaussianImages
from diffclust.sampling import low_pass
from diffclust.transforms import Affine, Identity, TimeWarp

ENERGIES = [TransformedDistance(Affine()), TransformedPrototype(Affine())]


@pytest.mark.parametrize("energy", ENERGIES)
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_images_are_made_coarser_as_they_were(energy, factor: int) -> None:
    image = jax.random.uniform(jax.random.key(0), (13, 16, 2))
    sigma = 0.4 * factor if factor > 1 else 0.0
    expected = low_pass(image, sigma=sigma, factor=factor)
    np.testing.assert_array_equal(energy.coarser(image, factor), expected)
    expected = low_pass(image, sigma=1.3, factor=factor)
    np.testing.assert_array_equal(energy.coarser(image, factor, sigma=1.3), expected)


def test_series_and_volumes_are_filtered_along_their_axes() -> None:
    energy = TransformedDistance(Identity())
    image = np.asarray(jax.random.uniform(jax.random.key(0), (12, 9, 2)))
    # A volume that is the product of an image and a series is filtered like both of them.
    series = np.asarray(jax.random.uniform(jax.random.key(1), (15, 1)))
    volume = jnp.asarray(image[:, :, None] * series[None, None])
    filtered = energy.coarser(jnp.asarray(series), 3)
    assert filtered.shape == (5, 1)
    flat = np.asarray(energy.coarser(jnp.asarray(image), 3))
    expected = flat[:, :, None] * np.asarray(filtered)[None, None]
    np.testing.assert_allclose(energy.coarser(volume, 3), expected, rtol=1e-5, atol=1e-6)
    inside = np.asarray(energy.coarser(jnp.ones((60, 1)), 3))[4:-4]
    np.testing.assert_allclose(inside, 1.0, rtol=1e-3)


def test_trees_are_filtered_leaf_by_leaf() -> None:
    tree = {"image": jnp.ones((8, 8, 1)), "series": jnp.ones((6, 2))}
    coarse = TransformedDistance(Identity()).coarser(tree, 2)
    assert jax.tree.map(lambda leaf: leaf.shape, coarse) == {"image": (4, 4, 1), "series": (3, 2)}


def test_what_has_no_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="no levels of resolution"):
        TransformedDistance(Identity()).coarser(jnp.ones((5,)), 2)
    shapes = LandmarkEnergy(LandmarkDistance())
    with pytest.raises(ValueError, match="no levels of resolution"):
        shapes.coarser(jnp.ones((5, 2)), 2)
    assert shapes.coarser(1.0, 1) == 1.0


def test_missing_values_stay_missing_and_spread_nowhere() -> None:
    energy = TransformedDistance(TimeWarp(), missing=True)
    series = jnp.where(jnp.arange(24)[:, None] < 13, 2.0, jnp.nan) * jnp.ones((1, 2))
    coarse = np.asarray(energy.coarser(series, 2))
    assert np.isnan(coarse[7:]).all()
    np.testing.assert_allclose(coarse[1:6], 2.0, rtol=1e-3)


def test_variances_are_filtered_whatever_the_signs_of_their_roots() -> None:
    energy = TransformedPrototype(Affine(), GaussianNegativeLogLikelihood(min_deviation=0.1))
    signs = np.where(np.indices((8, 8)).sum(0) % 2, 1.0, -1.0)[..., None]
    mean = jnp.zeros((8, 8, 1))
    one, other = (GaussianImages(mean, jnp.asarray(0.5 * s)) for s in (signs, abs(signs)))
    np.testing.assert_allclose(
        energy.coarser(one, 2).gaussian.variance, energy.coarser(other, 2).gaussian.variance
    )
