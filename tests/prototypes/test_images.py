import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from diffclust.prototypes import (
    AbstractPrototypeFamily,
    Clusters,
    MeanImages,
    Sums,
    UnitNormImages,
    UnitNormSeries,
)

SHAPE = (2, 3, 2)


def cost(image: np.ndarray, sums: tuple[np.ndarray, np.ndarray]) -> float:
    """Σ W c² - 2 S c: the distortion of the samples summed, up to a constant."""
    total, weight = sums
    return float(np.sum(weight * image**2 - 2 * total * image))


def least_cost(total: np.ndarray, weight: np.ndarray) -> float:
    """The least cost among images of unit norm, by SLSQP from several starts."""
    rng = np.random.default_rng(0)
    actual = []
    for start in [total, *rng.normal(size=(8, *total.shape))]:
        result = scipy.optimize.minimize(
            lambda c: cost(c.reshape(total.shape), (total, weight)),
            (start / np.linalg.norm(start)).ravel(),
            jac=lambda c: 2 * (weight * c.reshape(total.shape) - total).ravel(),
            method="SLSQP",
            constraints={
                "type": "eq",
                "fun": lambda c: np.sum(c**2) - 1,
                "jac": lambda c: 2 * c,
            },
            options={"maxiter": 300, "ftol": 1e-12},
        )
        actual.append(
            cost(result.x.reshape(total.shape) / np.linalg.norm(result.x), (total, weight))
        )
    return min(actual)


@eqx.filter_jit
def update(family: AbstractPrototypeFamily, sums: Sums, previous: jax.Array) -> jax.Array:
    return family.update(sums, previous)


def updated(family: AbstractPrototypeFamily, total, weight, count, previous=None) -> np.ndarray:
    cast = [np.asarray(a, np.float32) for a in (total, weight, count)]
    if previous is None:
        previous = np.full(cast[0].shape, 7.0)
    return np.asarray(update(family, Sums(*map(jnp.asarray, cast)), np.float32(previous)))


def draw(seed: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Sums of images and weights of three clusters, as 5 samples may leave them."""
    rng = np.random.default_rng(seed)
    weight = 5 * (1 + spread * rng.uniform(-0.5, 1, (3, *SHAPE[:2], 1)))
    images = rng.uniform(0, 1, (3, *SHAPE)) * (rng.uniform(size=(3, *SHAPE)) < 0.7)
    return weight * images / np.sqrt((images**2).sum((1, 2, 3), keepdims=True)), weight


@pytest.mark.parametrize("share", [1.0, 0.4], ids=["alike", "unlike"])
@pytest.mark.parametrize("spread", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_unit_norm_prototype_costs_least(seed: int, spread: float, share: float) -> None:
    total, weight = draw(seed, spread)
    total = share * total  # samples that disagree leave sums smaller than their weights
    result = updated(UnitNormImages(), total, weight, [5, 5, 5])
    np.testing.assert_allclose(np.linalg.norm(result.reshape(3, -1), axis=1), 1.0, rtol=1e-5)
    for k in range(3):
        best = least_cost(total[k], weight[k])
        assert cost(result[k], (total[k], weight[k])) <= best + 1e-4 * abs(best)


def test_weight_where_there_is_no_ink_may_be_least() -> None:
    """The root then lies where W + λ is zero, and what is missing of the norm goes there."""
    total = np.zeros((1, *SHAPE))
    total[0, 0, 0, 0], total[0, 1, 1, 1] = 1.0, 0.5
    weight = np.full((1, *SHAPE[:2], 1), 5.0)
    weight[0, 0, 2] = 1.0
    result = updated(UnitNormImages(), total, weight, [5])
    best = least_cost(total[0], weight[0])
    assert cost(result[0], (total[0], weight[0])) <= best + 1e-4 * abs(best)


@pytest.mark.parametrize("spread", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_unit_norm_prototype_has_two_derivatives_by_its_weights(spread: float) -> None:
    with jax.enable_x64(True):
        (total, weight), (moved, other) = jax.device_put((draw(0, spread), draw(1, 0.5)))

        @jax.jit
        def at(t: jax.Array) -> jax.Array:
            sums = Sums(total + t * moved, weight + t * other, jnp.ones(3))
            return jnp.sum(moved * UnitNormImages().update(sums, jnp.zeros_like(total)))

        slope, step = jax.jit(jax.grad(at)), 1e-4
        expected = (at(step) - at(-step)) / (2 * step)
        np.testing.assert_allclose(slope(0.0), expected, rtol=1e-5)
        expected = (slope(step) - slope(-step)) / (2 * step)
        for second in map(jax.jit, (jax.grad(slope), jax.jacfwd(slope))):
            np.testing.assert_allclose(second(0.0), expected, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_uniform_weights_give_the_normalised_mean(scale: float) -> None:
    total, weight = draw(0, 0.0)
    result = updated(UnitNormImages(), scale * total, scale * weight, [5, 5, 5])
    norm = np.sqrt((total**2).sum((1, 2, 3), keepdims=True))
    np.testing.assert_allclose(result, total / norm, atol=1e-6)


def test_mean_is_weighted_by_pixel() -> None:
    rng = np.random.default_rng(0)
    samples, pixels = rng.uniform(size=(4, *SHAPE)), rng.uniform(0.5, 2, (4, *SHAPE[:2], 1))
    member = np.asarray([[1, 0], [2, 0], [0, 3], [0.5, 0.5]])
    cast = [jnp.asarray(a, jnp.float32) for a in (samples, pixels, member)]
    family = MeanImages()
    result = family.update(family.statistics(*cast, None), jnp.zeros((2, *SHAPE)))
    for k in range(2):
        expected = np.average(
            samples, axis=0, weights=(member[:, k, None, None, None] * pixels) * np.ones(SHAPE)
        )
        np.testing.assert_allclose(result[k], expected, rtol=1e-5)


@pytest.mark.parametrize("factor", [1e-30, 1e25])
def test_a_common_factor_of_weights_changes_nothing(factor: float) -> None:
    """Also where squares of the sums leave the float's range."""
    rng = np.random.default_rng(0)
    total = rng.uniform(size=(3, *SHAPE)).astype(np.float32)
    weight = rng.uniform(1, 2, size=(3, *SHAPE[:2], 1)).astype(np.float32)
    expected = updated(UnitNormImages(), total, weight, [5, 5, 5])
    scaled = [np.float32(factor) * each for each in (total, weight)]
    result = updated(UnitNormImages(), *scaled, [5 * factor] * 3)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("family", [MeanImages(), UnitNormImages()], ids=["mean", "unit"])
def test_weights_of_one_are_no_weights(family: AbstractPrototypeFamily) -> None:
    samples = jnp.asarray(np.random.default_rng(0).uniform(size=(4, *SHAPE)), jnp.float32)
    member = jnp.asarray([[1, 0], [2, 0], [0, 3], [0.5, 0.5]])
    plain = family.statistics(samples, None, member)
    weighted = family.statistics(samples, jnp.ones((4, *SHAPE[:2], 1)), member)
    assert plain.weight.shape == weighted.weight.shape == (2, *SHAPE[:2], 1)
    np.testing.assert_allclose(plain.weight, weighted.weight, rtol=1e-6)
    np.testing.assert_allclose(plain.image, weighted.image, rtol=1e-6)
    np.testing.assert_allclose(plain.count, [3.5, 3.5])
    halves = [family.statistics(samples[i : i + 2], None, member[i : i + 2]) for i in (0, 2)]
    summed = jax.tree.map(jnp.add, *halves)
    np.testing.assert_allclose(summed.image, plain.image, rtol=1e-6)


@pytest.mark.parametrize("family", [MeanImages(), UnitNormImages()], ids=["mean", "unit"])
def test_empty_cluster_keeps_its_prototype(family: AbstractPrototypeFamily) -> None:
    total, weight = draw(0, 0.5)
    total[1], weight[1] = 0, 0
    previous = np.random.default_rng(1).uniform(size=total.shape)
    result = updated(family, total, weight, [5, 0, 5], previous)
    np.testing.assert_array_equal(result[1], np.float32(previous[1]))
    assert np.abs(result[0] - previous[0]).max() > 0.01


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_sums_of_zero_do_no_harm(spread: float) -> None:
    total, weight = draw(0, spread)
    total[1] = 0
    assert not updated(MeanImages(), total, weight, [5, 5, 5])[1].any()
    # A blank prototype would attract whatever is pushed off the canvas.
    result = updated(UnitNormImages(), total, weight, [5, 5, 5])
    np.testing.assert_allclose(np.linalg.norm(result.reshape(3, -1), axis=1), 1.0, rtol=1e-5)


def test_samples_are_scaled_to_unit_norm() -> None:
    family, sample = UnitNormImages(), jnp.full(SHAPE, 3.0)
    np.testing.assert_allclose(jnp.sum(family.normalise(sample) ** 2), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(family.normalise(0 * sample), 0.0)
    assert MeanImages().normalise(sample) is sample


@pytest.mark.parametrize("exponent", [-126, -80, -62, 62, 80, 120])
def test_the_unit_norm_does_not_depend_on_the_scale_of_samples(exponent: int) -> None:
    # A power of two changes no digit, and the squares of these leave single precision's range.
    sample = 1.0 + np.random.default_rng(0).random((5, 4, 1), np.float32)
    scaled = np.ldexp(sample, exponent)
    expected = sample / np.linalg.norm(sample)
    np.testing.assert_allclose(UnitNormImages().normalise(jnp.asarray(scaled)), expected, rtol=1e-6)
    series = jnp.asarray(scaled[:, 0]).at[2].set(jnp.nan)
    seen = np.delete(sample[:, 0], 2, axis=0)
    found = np.delete(UnitNormSeries().normalise(series), 2, axis=0)
    # The fifth that is missing is taken to be as large as the rest.
    np.testing.assert_allclose(found, seen / np.linalg.norm(seen) * 0.8**0.5, rtol=1e-6)


def test_half_of_a_series_counts_as_if_the_other_half_were_there() -> None:
    half = np.random.default_rng(0).normal(size=(30, 2))
    whole = jnp.asarray(np.concatenate([half, half]))
    cut = whole.at[30:].set(jnp.nan)
    family = UnitNormSeries()
    expected = family.normalise(whole)
    np.testing.assert_allclose(family.normalise(cut)[:30], expected[:30], rtol=1e-6)
    # A time at which one channel is missing does not count, and so says nothing of the norm.
    one = cut.at[30:, 0].set(9.0)
    np.testing.assert_allclose(family.normalise(one)[:30], expected[:30], rtol=1e-6)
    assert not np.any(np.isfinite(family.normalise(jnp.full((4, 1), jnp.nan))))


def test_clusters_are_taken_leaf_by_leaf() -> None:
    clusters = Clusters(jnp.arange(6.0).reshape(3, 1, 2, 1), jnp.arange(3.0)[:, None])
    assert len(clusters) == 3
    taken = clusters.take(jnp.asarray([2, 0]))
    np.testing.assert_array_equal(taken.prototype[:, 0, :, 0], [[4, 5], [0, 1]])
    np.testing.assert_array_equal(taken.penalty[:, 0], [2, 0])
    assert clusters.take(jnp.asarray(1)).prototype.shape == (1, 2, 1)


def test_means_of_trees_are_those_of_their_arrays() -> None:
    """Also of single numbers; an empty cluster keeps its prototype."""
    rng = np.random.default_rng(0)
    samples = {"place": rng.normal(size=(6, 2)), "age": rng.normal(size=6)}
    samples = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), samples)
    membership = jnp.zeros((6, 3)).at[jnp.arange(6), jnp.arange(6) % 2].set(1.0)
    previous = {"place": jnp.full((3, 2), 7.0), "age": jnp.full(3, 8.0)}
    family = MeanImages()
    found = family.update(family.statistics(samples, None, membership), previous)
    for name, values in samples.items():
        expected = np.stack([values[:6:2].mean(0), values[1::2].mean(0), previous[name][2]])
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)
