import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust.alignment import Descent, InvariantDistance, Stage
from diffclust.energies import TransformedDistance
from diffclust.features import from_square_root_velocity, square_root_velocity
from diffclust.prototypes import MeanImages
from diffclust.transforms import Identity, TimeWarp

WARP = TimeWarp(5)


def test_warps_rise_from_0_to_1() -> None:
    times, draw = np.linspace(0.0, 1.0, 101, dtype=np.float32), np.random.default_rng(0)
    warp = jax.jit(WARP.warp)
    for params in 3.0 * draw.normal(size=(5, 5)).astype(np.float32):
        moved = np.asarray(warp(params, times))
        np.testing.assert_allclose(moved[[0, -1]], [0.0, 1.0], atol=1e-6)
        assert np.all(np.diff(moved) > 0)
    np.testing.assert_array_equal(warp(np.zeros(5, np.float32), times), times)


def test_it_is_interpolation() -> None:
    rng = np.random.default_rng(0)
    params, series = rng.normal(size=5), rng.normal(size=(40, 2))
    slopes = np.exp(params) / np.exp(params).sum()
    knots, values = np.linspace(0, 1, 6), np.concatenate([[0], np.cumsum(slopes)])
    at = (np.arange(40) + 0.5) / 40
    read = np.interp(at, knots, values)
    expected = np.stack([np.interp(read, at, channel) for channel in series.T], axis=1)
    result = jax.jit(WARP)(params.astype(np.float32), series.astype(np.float32))
    np.testing.assert_allclose(result, expected, atol=1e-4)


def test_a_constant_more_in_all_params_changes_nothing() -> None:
    params, times = jnp.asarray([0.4, -0.1, 0.3, 0.0, 0.2]), jnp.linspace(0.0, 1.0, 7)
    np.testing.assert_allclose(WARP.warp(params, times), WARP.warp(params + 2, times), atol=1e-6)
    np.testing.assert_allclose(WARP.deformation(params + 2), WARP.deformation(params), rtol=1e-4)
    with pytest.raises(ValueError, match="at least 2"):
        TimeWarp(1)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_long_series_in_half_precision_are_read_at_their_places(dtype: type) -> None:
    series = jnp.asarray(np.random.default_rng(0).random((3000, 1)), dtype)
    still = WARP(jnp.zeros(5, dtype), series)
    assert still.dtype == dtype
    np.testing.assert_array_equal(still, series)


def test_other_samples_than_series_are_refused() -> None:
    for shape in [(8,), (8, 8, 1)]:
        # The jaxtyping hook sees the second first.
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="channels"):
            WARP(jnp.zeros(5), jnp.zeros(shape))


def wave(length: int, phase: float) -> np.ndarray:
    times = np.linspace(0.0, 1.0, length, dtype=np.float32)
    return np.stack([np.sin(5 * times + phase), times * np.cos(4 * times)], axis=1)


def test_square_root_velocities_are_undone() -> None:
    series = wave(30, 0.3)
    velocity = np.asarray(jax.jit(square_root_velocity)(series))
    back = jax.jit(from_square_root_velocity)(velocity, series[0])
    np.testing.assert_allclose(back, series, atol=1e-5)
    length = np.sum(np.linalg.norm(np.diff(series, axis=0), axis=1))
    np.testing.assert_allclose(np.sum(velocity**2) / len(velocity), length, rtol=1e-5)
    still = np.concatenate([series[:1], series])
    slopes = jax.jit(jax.grad(lambda x: jnp.sum(square_root_velocity(x))))(still)
    assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("power", [-80, 80])
def test_square_root_velocities_at_any_scale(power: int) -> None:
    series = wave(30, 0.3)
    scaled = np.ldexp(series, power)
    velocity = np.asarray(jax.jit(square_root_velocity)(scaled))
    expected = np.asarray(jax.jit(square_root_velocity)(series))
    np.testing.assert_allclose(np.ldexp(velocity, -power // 2), expected, rtol=1e-5)
    back = jax.jit(from_square_root_velocity)(velocity, scaled[0])
    np.testing.assert_allclose(np.ldexp(back, -power), series, atol=1e-5)


def test_warping_keeps_the_norm_and_goes_with_the_velocity() -> None:
    params = np.asarray([0.5, -0.4, 0.2, -0.6, 0.3], np.float32)
    moving, velocity_of = TimeWarp(5, preserve_norm=True), jax.jit(square_root_velocity)
    velocity = np.asarray(velocity_of(wave(401, 0.0)))
    warped = np.asarray(jax.jit(moving)(params, velocity))
    np.testing.assert_allclose(np.sum(warped**2), np.sum(velocity**2), rtol=0.01)
    # Of the warped series, on a fine grid.
    expected = np.asarray(velocity_of(jax.jit(WARP)(params, wave(401, 0.0))))
    difference = np.linalg.norm(warped - expected) / np.linalg.norm(expected)
    assert difference < 0.1


@pytest.mark.parametrize("steepness", [3.0, 20.0, 200.0])
def test_slopes_of_steep_warps_that_keep_the_norm_are_finite(steepness: float) -> None:
    warp, series = TimeWarp(8, preserve_norm=True), jnp.asarray(wave(40, 0.0))
    params = jnp.zeros(8).at[0].set(steepness)
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(warp(p, series))))(params)
    assert np.all(np.isfinite(slopes))
    np.testing.assert_array_equal(warp(0 * params, series), series)


@eqx.filter_jit
def distance(energy, first, second):
    search = InvariantDistance(energy, Descent((Stage(8, blur=1 / 14), Stage(20))))
    return search(first, second), energy.distance(first, second)


@pytest.mark.parametrize("preserve_norm", [pytest.param(False, marks=pytest.mark.slow), True])
def test_distances_see_through_warps(preserve_norm: bool) -> None:
    there = TimeWarp(6, preserve_norm=preserve_norm)
    # Finer than the warp, whose inverse has its knots elsewhere.
    back = TimeWarp(16, preserve_norm=preserve_norm)
    series = wave(60, 0.2)
    if preserve_norm:
        series = jax.jit(square_root_velocity)(series)
    warped = jax.jit(there)(np.asarray([0.6, -0.3, 0.1, -0.5, 0.4, 0.2], np.float32), series)
    aligned, plain = distance(TransformedDistance(back), warped, series)
    assert float(aligned) < 0.05 * float(plain)


def cut_off(series: np.ndarray, end: int) -> np.ndarray:
    return np.where(np.arange(len(series))[:, None] < end, series, np.float32(np.nan))


def test_missing_values_do_not_count() -> None:
    energy = TransformedDistance(TimeWarp(4), missing=True)
    aligned, pixel_weight = jax.jit(energy.aligned), jax.jit(energy.pixel_weight)
    full = wave(32, 0.0)
    cut = cut_off(full, 20)
    params, zero = np.asarray([0.3, -0.2, 0.1, 0.2], np.float32), np.zeros(4, np.float32)
    np.testing.assert_array_equal(aligned(zero, cut)[:20], full[:20])
    weight = np.asarray(pixel_weight(zero, cut))
    np.testing.assert_array_equal(weight[:, 0], np.arange(32) < 20)
    # Warped, the seen part is what it would be of the whole series, and weighs as much in sum.
    moved, weight = np.asarray(aligned(params, cut)), pixel_weight(params, cut)
    seen = np.asarray(weight)[:, 0] > 0
    inside = np.flatnonzero(seen)[:-1]
    expected = np.asarray(jax.jit(TimeWarp(4))(params, full))
    np.testing.assert_allclose(moved[inside], expected[inside], atol=1e-5)
    np.testing.assert_allclose(np.sum(weight), 20.0, rtol=1e-5)
    slopes = jax.jit(jax.grad(lambda p: jnp.sum(energy.aligned(p, jnp.asarray(cut)))))(params)
    assert np.all(np.isfinite(slopes))


def test_without_missing_values_nothing_changes() -> None:
    series, params = wave(20, 0.5), np.asarray([0.3, -0.2, 0.1, 0.2], np.float32)
    plain, careful = (TransformedDistance(TimeWarp(4), missing=m) for m in (False, True))
    np.testing.assert_allclose(
        jax.jit(careful.aligned)(params, series), jax.jit(plain.aligned)(params, series), atol=1e-6
    )
    weight = jax.jit(careful.pixel_weight)(params, series)
    np.testing.assert_allclose(weight, 1.0, atol=1e-6)
    with pytest.raises(ValueError, match="missing values"):
        TransformedDistance(TimeWarp(4), missing=True, mask=np.eye(8))
    with pytest.raises(ValueError, match="need a transform with params"):
        TransformedDistance(Identity(), missing=True)


def test_means_are_of_what_was_seen() -> None:
    energy, family = TransformedDistance(TimeWarp(4), missing=True), MeanImages()
    one, two = wave(16, 0.0), cut_off(wave(16, 1.0), 9)
    samples, params = np.stack([one, two]), np.zeros((2, 4), np.float32)

    @jax.jit
    def mean_of(params: jax.Array, samples: jax.Array) -> jax.Array:
        sums = family.statistics(
            jax.vmap(energy.aligned)(params, samples),
            jax.vmap(energy.pixel_weight)(params, samples),
            jnp.ones((2, 1)),
        )
        return family.update(sums, jnp.zeros((1, 16, 2)))[0]

    mean = mean_of(params, samples)
    np.testing.assert_allclose(mean[:9], (one + wave(16, 1.0))[:9] / 2, atol=1e-6)
    np.testing.assert_allclose(mean[9:], one[9:], atol=1e-6)
    assert np.all(np.isfinite(jax.jit(family.init)(two)))
