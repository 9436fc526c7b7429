"""Energies of moved prototypes: DTI clustering's Appendix B, and closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from diffclust.alignment import (
    Alignment,
    Descent,
    NoAlignment,
    Prediction,
    Sequential,
    Stage,
)
from diffclust.distances import GaussianNegativeLogLikelihood
from diffclust.energies import MixtureLikelihood, TransformedDistance, TransformedPrototype
from diffclust.masks import as_mask
from diffclust.networks import StridedBackbone, make_heads
from diffclust.prototypes import Clusters, GaussianImages
from diffclust.transforms import Affine, Colour, Identity, Translation, compose
from tests.registry import blobs

COLOUR = TransformedPrototype(Colour(1))


def clusters_of(prototypes: np.ndarray, terms: int = 2) -> Clusters:
    return Clusters(jnp.asarray(prototypes), jnp.zeros((len(prototypes), terms)))


def align(energy, aligner, sample, clusters: Clusters, shared=None) -> Alignment:
    """Aligns one sample to clusters, from the identity."""
    none = jnp.zeros((0,), clusters.dtype)
    start = Alignment(none.astype(jnp.int32), none.reshape(0, energy.num_params), none)
    prepared = aligner.prepare(energy, clusters, shared)
    return aligner.align(energy, jnp.asarray(sample), clusters, shared, start, prepared)


def least_squares(sample: np.ndarray, prototype: np.ndarray) -> float:
    columns = np.stack([prototype.ravel(), np.ones(prototype.size)], axis=1).astype(np.float64)
    solution = np.linalg.lstsq(columns, sample.ravel().astype(np.float64), rcond=None)[0]
    return float(np.sum((columns @ solution - sample.ravel()) ** 2))


@pytest.mark.slow
def test_minimum_over_colours_is_least_squares() -> None:
    samples, prototypes = blobs(4), blobs(3, seed=1)
    descent = Descent((Stage(20),), candidates=None)
    for sample in samples:
        result = align(COLOUR, descent, sample, clusters_of(prototypes))
        got = np.asarray(result.energy)[np.argsort(np.asarray(result.cluster))]
        expected = [least_squares(sample, prototype) for prototype in prototypes]
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_prototypes_may_be_moved_by_the_group() -> None:
    # Appendix B: the loss stays the same. Gains and shifts form a group, without resampling.
    samples, prototypes = blobs(4), blobs(3, seed=1)
    elsewhere = np.stack(
        [g * p + b for g, b, p in zip([0.5, 1.6, 0.9], [0.3, -0.2, 0.1], prototypes, strict=True)]
    ).astype(np.float32)
    descent = Descent((Stage(20),), candidates=None)

    def loss(given: np.ndarray) -> float:
        one = functools.partial(align, COLOUR, descent, clusters=clusters_of(given))
        result = jax.vmap(one)(jnp.asarray(samples))
        return float(jnp.sum(result.energy[:, 0]))

    np.testing.assert_allclose(loss(elsewhere), loss(prototypes), rtol=1e-3)
    assert loss(elsewhere + blobs(3, seed=7)) != pytest.approx(loss(prototypes), rel=1e-2)


@pytest.mark.parametrize(
    ("turn", "matrix"),
    [
        (lambda x: np.rot90(x, axes=(-3, -2)), [[0.0, 1.0], [-1.0, 0.0]]),
        (lambda x: x[..., ::-1, :], [[-1.0, 0.0], [0.0, 1.0]]),
    ],
    ids=["quarter-turn", "mirror"],
)
def test_kmeans_is_the_same_after_a_joint_isometry(turn, matrix) -> None:
    # T(β R) = R T(R⁻¹ β R): for every map there is one of the same energy, so minima agree. Turns
    # by right angles and mirrors are isometries that keep pixels pixels.
    (sample,), (prototype,) = blobs(1), blobs(1, seed=1)
    energy = TransformedPrototype(Affine("zero"))
    around = np.asarray(matrix)

    def value(params: np.ndarray, x: np.ndarray, c: np.ndarray) -> float:
        x, c = (jnp.asarray(np.ascontiguousarray(image)) for image in (x, c))
        cluster = Clusters(c, jnp.zeros((1,)))
        return float(energy.bind(x)(jnp.asarray(params, jnp.float32), x, cluster))

    for params in np.random.default_rng(0).normal(0.0, 0.3, (5, 6)):
        linear = around @ params[:4].reshape(2, 2) @ around.T
        turned = np.concatenate([linear.ravel(), around @ params[4:]])
        expected = value(params, sample, prototype)
        got = value(turned, turn(sample), turn(prototype))
        np.testing.assert_allclose(got, expected, rtol=1e-4)
        assert value(params, turn(sample), turn(prototype)) != pytest.approx(expected, rel=1e-3)


def test_mixture_is_the_same_after_a_joint_affine_map_of_intensities() -> None:
    # Appendix B, for maps x ↦ g x + b: means and variances move with the samples.
    with jax.enable_x64(True):
        samples, means = (jnp.asarray(blobs(n, seed=n), jnp.float64) for n in (5, 3))
        spread = jnp.asarray(0.2 + blobs(3, seed=4), jnp.float64)
        colour, params = Colour(1), jnp.asarray([0.7, -0.3])
        energy = TransformedPrototype(Identity(), GaussianNegativeLogLikelihood(min_deviation=1e-7))

        def responsibilities(x: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
            given = Clusters(GaussianImages(m, s), jnp.zeros((3, 0)))
            scores = jax.vmap(lambda one: energy.unaligned(one, given))(x)
            return MixtureLikelihood().responsibilities(scores / 50)  # not all of them 0 or 1

        def move(images: jax.Array) -> jax.Array:
            return jax.vmap(lambda x: colour(params, x))(images)

        moved = jax.vmap(lambda s: colour.bind_variance(8, 8)(params, s**2) ** 0.5)(spread)
        before = responsibilities(samples, means, spread)
        after = responsibilities(move(samples), move(means), moved)
        assert 0.01 < float(jnp.min(jnp.max(before, axis=1))) < 0.99
        np.testing.assert_allclose(after, before, atol=1e-9)


def test_moving_samples_instead_makes_empty_prototypes_best() -> None:
    # Appendix B's trivial solution: every sample can be pushed off the canvas.
    sample, empty = jnp.asarray(blobs(1)[0]), jnp.zeros((8, 8, 1))
    away = jnp.asarray([0.0, 0.0, 0.0, 0.0, 3.0, 0.0])
    cluster = Clusters(empty, jnp.zeros((1,)))
    assert float(TransformedDistance(Affine("zero")).bind(sample)(away, sample, cluster)) == 0.0
    moved = TransformedPrototype(Affine("zero")).bind(sample)
    for params in (away, jnp.zeros(6)):
        np.testing.assert_allclose(moved(params, sample, cluster), jnp.sum(sample**2), rtol=1e-5)


def test_density_is_scipys() -> None:
    sample, mean, variance = (blobs(3, channels=2)[i] for i in range(3))
    energy = TransformedPrototype(Identity(), GaussianNegativeLogLikelihood(min_deviation=0.5))
    prototype = GaussianImages(jnp.asarray(mean), jnp.asarray(variance) ** 0.5)
    cluster = Clusters(prototype, jnp.zeros((0,)))
    got = energy.bind(jnp.asarray(sample))(jnp.zeros((0,)), jnp.asarray(sample), cluster)
    diagonal = np.diag(variance.ravel().astype(np.float64) + 0.25)
    expected = -scipy.stats.multivariate_normal(mean.ravel(), diagonal).logpdf(sample.ravel())
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert float(got) > float(
        energy.bind(jnp.asarray(mean))(jnp.zeros((0,)), jnp.asarray(mean), cluster)
    )


@pytest.mark.parametrize("energy", [TransformedDistance, TransformedPrototype])
def test_a_mask_may_be_an_array(energy) -> None:
    mask = np.tri(4, 5, dtype=bool)
    assert energy(Affine(), mask=mask).mask == as_mask(mask)
    assert energy(Affine(), mask=np.ones((4, 5))).mask is None


def test_window_weighs_the_centre() -> None:
    energy = TransformedPrototype(Affine("zero"), window=0.25)
    weight = np.asarray(energy.weight(8, 12, np.dtype(np.float32)))[..., 0]
    row, column = np.arange(8) - 3.5, np.arange(12) - 5.5
    expected = np.exp(-0.5 * (row[:, None] ** 2 + column[None] ** 2) / 2.0**2)
    np.testing.assert_allclose(weight, expected, rtol=1e-5)
    sample, cluster = jnp.asarray(blobs(1)[0]), clusters_of(blobs(1, seed=1), 1)
    weight = energy.weight(8, 8, np.dtype(np.float32))
    expected = jnp.sum(weight * (sample - cluster.prototype[0]) ** 2)
    np.testing.assert_allclose(energy.unaligned(sample, cluster)[0], expected, rtol=1e-5)
    bound = energy.bind(sample)(jnp.zeros(6), sample, cluster.take(jnp.asarray(0)))
    np.testing.assert_allclose(bound, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_prediction_that_is_refined_is_no_worse(key: jax.Array) -> None:
    samples, first = jnp.asarray(blobs(4)), jax.random.split(key)[0]
    backbone = StridedBackbone(8, 8, 1, key=key)
    transforms = (Affine("edge"), Colour(1))
    heads = tuple(
        jax.tree.map(
            lambda leaf: leaf + 0.02 * jax.random.normal(first, leaf.shape, leaf.dtype),
            make_heads(3, backbone.num_features, t.num_params, key=key),
        )
        for t in transforms
    )
    clusters = Clusters(jnp.asarray(blobs(3, seed=1)), jnp.zeros((3, 3)), heads)
    energy = TransformedPrototype(compose(*transforms))

    def energies(aligner) -> np.ndarray:
        one = functools.partial(align, energy, aligner, clusters=clusters, shared=backbone)
        result = jax.jit(jax.vmap(one))(samples)
        rows = np.arange(4)[:, None]
        out = np.zeros((4, 3))
        out[rows, np.asarray(result.cluster)] = np.asarray(result.energy)
        return out

    predicted = energies(Prediction())
    refined = energies(Sequential(Prediction(), Descent((Stage(6),), candidates=None)))
    still = energies(NoAlignment(candidates=3))
    assert np.all(refined <= predicted * (1 + 1e-5))
    assert np.all(refined <= still * (1 + 1e-5))
    assert refined.mean() < 0.8 * predicted.mean()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="window must be positive"):
        TransformedPrototype(Identity(), window=0.0)
    narrow = TransformedPrototype(Identity(), window=1e-3)
    with pytest.raises(ValueError, match="gives every pixel of 8×8 weight zero"):
        narrow.bind(jnp.ones((8, 8, 1)))
    with pytest.raises(ValueError, match="min_deviation must be positive"):
        GaussianNegativeLogLikelihood(min_deviation=0.0)
    with pytest.raises(ValueError, match="candidates must be at least 2"):
        Sequential(Prediction(), Descent(), candidates=1)


def test_a_mask_that_is_moved_away_leaves_finite_energies() -> None:
    mask = np.zeros((8, 8))
    mask[:, :3] = 1
    energy = TransformedDistance(Translation(), mask=as_mask(mask))
    sample = jnp.asarray(np.random.default_rng(0).uniform(size=(8, 8, 1)), jnp.float32)
    among = Clusters(sample[None], jnp.zeros((1, energy.num_penalties)))
    own = among.take(jnp.asarray(0))
    of_params = jax.jit(jax.value_and_grad(lambda p: energy.bind(sample)(p, sample, own)))
    value, slope = of_params(jnp.asarray([1.9, 0.0]))
    assert np.isfinite(value)
    assert np.isfinite(slope).all()


def test_a_warp_that_reads_nothing_that_was_seen_leaves_finite_energies() -> None:
    energy = TransformedDistance(Translation(), missing=True)
    sample = np.random.default_rng(0).uniform(size=(8, 8, 1)).astype(np.float32)
    among = Clusters(jnp.asarray(sample)[None], jnp.zeros((1, energy.num_penalties)))
    own, bound = among.take(jnp.asarray(0)), energy.bind(jnp.asarray(sample))
    of_params = jax.jit(jax.value_and_grad(bound))
    for seen in (1, 24):
        hidden = np.where(np.arange(64).reshape(8, 8, 1) < seen, sample, np.nan)
        value, slope = of_params(jnp.asarray([0.0, 1.9]), jnp.asarray(hidden), own)
        assert np.isfinite(value)
        assert value > 0
        assert np.isfinite(slope).all()
