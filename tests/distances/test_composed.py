"""Distances made from others: through features, and after an alignment."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust.alignment import AfterAlignment, Descent, InvariantDistance, PreparedDistance, Stage
from diffclust.distances import FeatureDistance, SquaredEuclidean, pairwise
from diffclust.energies import TransformedDistance
from diffclust.features import Scattering
from diffclust.transforms import Affine
from tests.registry import blobs

SIDE = 16
SCATTERING = Scattering(SIDE, SIDE, num_scales=2, num_angles=4)


@pytest.fixture(scope="module")
def pair() -> tuple[jax.Array, jax.Array]:
    first, second = map(jnp.asarray, blobs(2, SIDE, SIDE, seed=4))
    return first, second


def prepared() -> PreparedDistance:
    invariant = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(12),)))
    return invariant.prepared(jnp.asarray(blobs(4, SIDE, SIDE)), jnp.asarray([0.1]))


@pytest.mark.slow
def test_features_are_what_is_compared(pair: tuple[jax.Array, jax.Array]) -> None:
    scattering = eqx.filter_jit(SCATTERING)
    distance = eqx.filter_jit(FeatureDistance(SCATTERING))
    difference = np.asarray(scattering(pair[0])) - np.asarray(scattering(pair[1]))
    assert distance(*pair) == pytest.approx(float(np.sum(difference**2)), rel=1e-5)
    np.testing.assert_allclose(distance(pair[0], pair[0]), 0.0, atol=1e-12)
    gradient = np.asarray(jax.jit(jax.grad(FeatureDistance(SCATTERING)))(*pair))
    assert np.isfinite(gradient).all()
    assert np.abs(gradient).max() > 0


def test_features_forgive_a_shift_more_than_pixels_do() -> None:
    image = blobs(1, SIDE, SIDE, seed=4)[0]
    shifted, other = np.roll(image, 1, axis=1), blobs(1, SIDE, SIDE, seed=9)[0]
    features = eqx.filter_jit(FeatureDistance(SCATTERING))
    pixels = eqx.filter_jit(SquaredEuclidean())
    share = features(image, shifted) / features(image, other)
    assert float(share) < 0.7 * float(pixels(image, shifted) / pixels(image, other))


@pytest.mark.slow
def test_prepared_is_the_invariant_distance(pair: tuple[jax.Array, jax.Array]) -> None:
    result = prepared()
    assert 0.0 <= float(result(*pair)) < float(SquaredEuclidean()(*pair))
    assert float(result(pair[0], pair[0])) == pytest.approx(0.0, abs=1e-4)
    alignment = result.align(*pair)
    assert float(alignment.energy[0]) == float(result(*pair))


def test_after_alignment_measures_the_moved_sample(pair: tuple[jax.Array, jax.Array]) -> None:
    alignment = prepared()

    @jax.jit
    def by_hand(sample: jax.Array, prototype: jax.Array) -> jax.Array:
        params = alignment.align(sample, prototype).params[0]
        return SquaredEuclidean()(alignment.energy.aligned(params, sample), prototype)

    expected = by_hand(*pair)
    after = eqx.filter_jit(AfterAlignment(alignment, SquaredEuclidean()))
    assert after(*pair) == pytest.approx(float(expected))
    half = jnp.full((SIDE, SIDE, 1), 0.5)
    weighted = after(*pair, half)
    assert weighted == pytest.approx(float(expected) / 2, rel=1e-5)


@pytest.mark.parametrize("make", [prepared, lambda: FeatureDistance(jnp.ravel)])
def test_weights_are_refused_where_there_are_no_pixels(make, pair) -> None:
    with pytest.raises(ValueError, match="weights"):
        make()(*pair, jnp.ones((SIDE, SIDE, 1)))


def test_a_batched_distance_that_overrides_half_of_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="Half overrides __call__ and inherits to_all"):

        class Half(SquaredEuclidean):
            def __call__(self, sample, prototype, weight=None):
                return jnp.sum((sample - prototype) ** 4)

    class Absolute:
        def __call__(self, sample, prototype, weight=None):
            return jnp.sum(jnp.abs(sample - prototype))

    with pytest.raises(TypeError, match="Mixed overrides __call__"):

        class Mixed(Absolute, SquaredEuclidean):
            pass

    class Whole(SquaredEuclidean):
        def __call__(self, sample, prototype, weight=None):
            return 2.0 * super().__call__(sample, prototype, weight)

        def to_all(self, sample, prototypes):
            return 2.0 * super().to_all(sample, prototypes)

    assert Whole()(jnp.ones(3), jnp.zeros(3)) == 6.0


@pytest.mark.parametrize("place", [0.0, 100.0])
def test_second_derivatives_to_all_are_whole_where_sample_and_prototype_agree(place, key):
    sample = place + jax.random.normal(key, (7,))
    hessian = jax.jit(jax.hessian(SquaredEuclidean().to_all))
    result = hessian(sample, jnp.stack([sample, sample + 1.0]))
    np.testing.assert_allclose(result, np.broadcast_to(2.0 * np.eye(7), (2, 7, 7)), atol=1e-5)


def test_whole_numbers_are_refused_in_one_line():
    images = jnp.asarray([[[[0]]], [[[20]]]], jnp.uint8)
    with pytest.raises(ValueError, match="floating numbers, not uint8; divide images of 8 bits"):
        pairwise(SquaredEuclidean(), images)


def test_samples_of_two_shapes_are_not_broadcast():
    colour, grey = jnp.ones((4, 5, 3)), jnp.ones((4, 5, 1))
    # The jaxtyping hook sees it first.
    fault = pytest.raises((ValueError, jaxtyping.TypeCheckError), match=r"4, 5|4 5|shape")
    with fault:
        SquaredEuclidean()(colour, grey)
    with fault:
        SquaredEuclidean().to_all(colour, grey[None])


def test_far_from_zero_squared_distances_keep_their_digits() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(6, 300)) + 2000.0
    sample, prototypes = jnp.asarray(rows[0], jnp.float32), jnp.asarray(rows[1:], jnp.float32)
    exact = np.sum((np.asarray(sample, np.float64) - np.asarray(prototypes, np.float64)) ** 2, 1)
    np.testing.assert_allclose(SquaredEuclidean().to_all(sample, prototypes), exact, rtol=5e-5)
