import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.alignment import AfterAlignment, Descent, InvariantDistance, NoAlignment, Stage
from diffclust.distances import AbstractDistance
from diffclust.energies import TransformedDistance
from diffclust.prototypes import Clusters
from diffclust.sampling import pixel_grid
from diffclust.transforms import Affine, Identity


def blob(x, y, height=10, width=8):
    points = np.asarray(pixel_grid(height, width))
    image = np.exp(-8.0 * ((points[0] - x) ** 2 + (points[1] - y) ** 2))[..., None]
    return jnp.asarray(image, jnp.float32)


@pytest.mark.slow
def test_a_shifted_blob_is_near_and_without_alignment_it_is_not():
    plain = InvariantDistance(TransformedDistance(Identity()), NoAlignment())
    seeing = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(15),)))
    one, other = blob(0.0, 0.0), blob(0.25, -0.2)
    expected = float(jnp.sum((one - other) ** 2))
    np.testing.assert_allclose(float(plain(one, other)), expected, rtol=1e-5)
    assert float(seeing(one, other)) < 0.01 * expected


@pytest.mark.slow
def test_a_penalty_makes_a_move_dear():
    distance = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(15),)))
    one, other = blob(0.0, 0.0), blob(0.25, -0.2)
    energies = [float(distance(one, other, jnp.asarray([w]))) for w in (0.0, 1.0, 100.0)]
    assert energies[0] < energies[1] < energies[2]


@pytest.mark.slow
def test_the_gradient_stops_at_params_that_are_searched_for():
    energy, aligner = TransformedDistance(Affine()), Descent((Stage(3),))
    one, other, weight = blob(0.0, 0.0), blob(0.1, -0.1), jnp.asarray([0.1])
    clusters = Clusters(other[None], weight[None])
    held = InvariantDistance(energy, aligner).prepared(one[None], weight)
    unrolled = InvariantDistance(energy, aligner, adjoint="unrolled").prepared(one[None], weight)
    params = jax.jit(lambda x: held.align(x, other).params[0])(one)
    cluster = jax.tree.map(lambda leaf: leaf[0], clusters)
    expected = jax.jit(jax.grad(lambda x: energy.bind(x)(params, x, cluster)))(one)
    slope, through = (jax.jit(jax.grad(lambda x, d=d: d(x, other)))(one) for d in (held, unrolled))
    np.testing.assert_allclose(slope, expected, atol=1e-5)
    # After three steps the search has not ended.
    expected = np.asarray(expected)
    assert np.abs(through - expected).max() > 1e-2 * np.abs(expected).max()
    # What is measured after an alignment is not least at its params.
    after = [AfterAlignment(d, Manhattan()) for d in (held, unrolled)]
    slopes = [jax.jit(jax.grad(lambda x, d=d: d(x, other)))(one) for d in after]
    np.testing.assert_allclose(*slopes, atol=1e-5)


class Manhattan(AbstractDistance):
    def __call__(self, sample, prototype, weight=None):
        return jnp.sum(jnp.abs(sample - prototype))


@pytest.mark.slow
def test_slopes_beside_a_blank_prototype_are_finite():
    distance = InvariantDistance(
        TransformedDistance(Affine()), Descent((Stage(3),)), adjoint="unrolled"
    )
    one = blob(0.0, 0.0)
    slopes = jax.jit(jax.grad(distance, (0, 1)))(one, jnp.zeros_like(one))
    assert all(np.isfinite(slope).all() for slope in slopes)


def test_a_distance_has_the_precision_of_the_samples():
    moved = blob(0.1, 0.0)
    with jax.enable_x64(True):
        single = jnp.asarray(np.asarray(moved, np.float32))
        for aligner in (NoAlignment(), Descent((Stage(1),))):
            distance = InvariantDistance(TransformedDistance(Affine()), aligner)
            assert jax.eval_shape(distance, single, single).dtype == jnp.float32


def test_penalties_may_be_a_list_and_whole_numbers_are_refused():
    distance = InvariantDistance(TransformedDistance(Affine()), NoAlignment())
    images = jnp.asarray([blob(0.0, 0.0), blob(0.1, 0.0)])
    assert distance.prepared(images, jnp.asarray([0.5])).penalty.dtype == images.dtype
    assert distance.prepared(np.asarray(images)).penalty.dtype == images.dtype
    whole = jnp.ones((2, 4, 4, 1), jnp.uint8)
    with pytest.raises(ValueError, match="floating numbers, not uint8"):
        distance.prepared(whole)
