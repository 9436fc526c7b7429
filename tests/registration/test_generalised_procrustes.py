"""Many configurations registered with their mean, against plain alternation and in closed form."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from diffclust import registration
from diffclust.registration import Registration, centroid_size, generalised_procrustes
from tests.registration.configurations import like, moved, precision, rotation

REFUSED = (ValueError, jaxtyping.TypeCheckError)


def register(shapes: np.ndarray, dtype: type = np.float32, **settings: Any) -> Registration:
    return generalised_procrustes(jnp.asarray(shapes.astype(dtype)), **settings)


@pytest.mark.parametrize("double", [False, True])
def test_fitted_sizes_in_the_plane_have_a_closed_form(double: bool) -> None:
    shapes = like(12)
    flat = shapes[..., 0] + 1j * shapes[..., 1]
    flat = flat - flat.mean(axis=1, keepdims=True)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    # The full Procrustes mean is the leading eigenvector of Σ z z* (Kent 1994).
    values, vectors = np.linalg.eigh(flat.T @ flat.conj())
    with precision(double) as (dtype, tolerance):
        result = register(shapes, dtype, rescale=True)
    assert bool(result.converged)
    assert float(result.sums_of_squares[-1]) == pytest.approx(
        len(shapes) - values[-1], rel=10 * tolerance
    )
    mean = np.asarray(result.consensus, np.float64) @ np.array([1.0, 1j])
    overlap = abs(np.vdot(vectors[:, -1], mean)) / np.linalg.norm(mean)
    assert overlap == pytest.approx(1.0, abs=tolerance)
    squares = np.sum(np.asarray(result.registered) ** 2)
    assert float(squares) == pytest.approx(len(shapes), rel=1e-5)


def alternate(shapes: np.ndarray, weight: np.ndarray, scaling: bool) -> tuple[np.ndarray, float]:
    """Partial generalised Procrustes in plain NumPy and SciPy, from the first shape."""
    middles = np.einsum("k,nkd->nd", weight / weight.sum(), shapes)
    shapes = (shapes - middles[:, None]) * np.sqrt(weight)[None, :, None]
    if scaling:
        shapes = shapes / np.sqrt(np.sum(shapes**2, axis=(1, 2)))[:, None, None]
    turned = shapes
    for passes in range(60):
        mean = turned.mean(axis=0) if passes else shapes[0]
        turns = [Rotation.align_vectors(mean, shape)[0].as_matrix().T for shape in shapes]
        turned = np.stack([x @ turn for x, turn in zip(shapes, turns, strict=True)])
    # The first shape back upright.
    upright, _ = Rotation.align_vectors(shapes[0], turned[0])
    left = float(np.sum((turned - turned.mean(axis=0)) ** 2))
    return turned @ upright.as_matrix().T / np.sqrt(weight)[None, :, None], left


@pytest.mark.parametrize("scaling", [False, True])
def test_registration_is_that_of_plain_alternation(scaling: bool) -> None:
    shapes, weight = like(8, dims=3, seed=2), np.linspace(0.5, 2.0, 6)
    if not scaling:
        shapes = (
            shapes
            / np.linalg.norm(shapes - shapes.mean(1, keepdims=True), axis=(1, 2))[:, None, None]
        )
    expected, left = alternate(shapes, weight, scaling)
    with precision(True):
        result = register(shapes, np.float64, scaling=scaling, weight=jnp.asarray(weight))
        assert bool(result.converged)
        assert float(result.sums_of_squares[-1]) == pytest.approx(left, rel=1e-10)
        np.testing.assert_allclose(result.registered, expected, atol=1e-6)
        np.testing.assert_allclose(result.consensus, expected.mean(axis=0), atol=1e-6)
        # Each similarity says where its configuration went.
        images = jax.vmap(lambda s, x: s(x))(result.similarities, jnp.asarray(shapes))
        np.testing.assert_allclose(images, result.registered, atol=1e-12)
        size = eqx.filter_jit(centroid_size)
        sizes = [float(size(x, weight=jnp.asarray(weight))) for x in result.registered]
    before = [
        np.sqrt(np.sum(weight[:, None] * (x - np.average(x, 0, weight)) ** 2)) for x in shapes
    ]
    np.testing.assert_allclose(sizes, np.ones(8) if scaling else before, rtol=1e-12)


@pytest.mark.parametrize("scaling", [False, True])
def test_units_do_not_matter_in_single_precision(scaling: bool) -> None:
    shapes = like(5)
    expected = register(shapes, scaling=scaling)
    for exponent in (-80, -60, 60, 80):
        result = register(np.ldexp(shapes, exponent), scaling=scaling)
        back = 0 if scaling else -exponent
        registered = np.ldexp(np.asarray(result.registered, np.float64), back)
        np.testing.assert_allclose(registered, expected.registered, atol=1e-5)
        assert int(result.iterations) == int(expected.iterations)
        if scaling or abs(exponent) == 60:  # else these are beyond single precision
            sums = np.ldexp(np.asarray(result.sums_of_squares, np.float64), 2 * back)
            np.testing.assert_allclose(sums, expected.sums_of_squares, rtol=1e-4)


@pytest.mark.parametrize("settings", [{}, {"rescale": True}, {"scaling": False}])
def test_whole_weights_are_repetitions(settings: dict) -> None:
    shapes, counts = like(7, dims=3, seed=5), np.array([2, 1, 0, 3, 1, 1, 2])
    settings = settings | {"tolerance": 0.0, "max_iterations": 60}
    with precision(True):
        weight = jnp.asarray(counts, float)
        result = register(shapes, np.float64, sample_weight=weight, **settings)
        copies = register(np.repeat(shapes, counts, axis=0), np.float64, **settings)
        plain = register(shapes, np.float64, **settings)
        # How much a unit is does not matter.
        scaled = register(shapes, np.float64, sample_weight=0.3 * weight, **settings)
    np.testing.assert_allclose(result.consensus, copies.consensus, atol=1e-9)
    np.testing.assert_allclose(
        np.repeat(result.registered, counts, axis=0), copies.registered, atol=1e-7
    )
    assert float(result.sums_of_squares[-1]) == pytest.approx(float(copies.sums_of_squares[-1]))
    assert np.abs(np.asarray(result.consensus) - np.asarray(plain.consensus)).max() > 1e-2
    np.testing.assert_allclose(scaled.consensus, result.consensus, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"rescale": True}, {"scaling": False}])
@pytest.mark.parametrize("dims", [2, 3])
def test_moving_the_inputs_only_turns_the_result(dims: int, settings: dict) -> None:
    shapes = like(6, dims, seed=1)
    rigid = not settings.get("scaling", True)
    others = np.stack([moved(x, dims, 10 + i, rigid=rigid) for i, x in enumerate(shapes)])
    # A pass more or less is a difference of its own.
    settings = settings | {"tolerance": 0.0, "max_iterations": 60}
    with precision(True):
        first, second = (register(x, np.float64, **settings) for x in (shapes, others))
    np.testing.assert_allclose(
        second.registered, np.asarray(first.registered) @ rotation(dims, 10), atol=1e-7
    )
    np.testing.assert_allclose(
        second.consensus, np.asarray(first.consensus) @ rotation(dims, 10), atol=1e-7
    )


@pytest.mark.parametrize("settings", [{}, {"rescale": True}, {"reflection": True}])
def test_sum_of_squares_never_rises(settings: dict) -> None:
    # So much noise that it takes many passes.
    with precision(True):
        for seed in range(3):
            result = register(like(10, 3, noise=1.5, seed=seed), np.float64, **settings)
            passes = int(result.iterations)
            sums = np.asarray(result.sums_of_squares)
            assert passes > 5
            assert bool(result.converged)
            assert np.all(np.diff(sums[: passes - 1]) < 0)
            assert np.all(np.diff(sums) <= 1e-13)
            left = np.sum((np.asarray(result.registered) - np.asarray(result.consensus)) ** 2)
            assert sums[-1] == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_the_first_shape_keeps_its_orientation(dims: int, reflection: bool) -> None:
    shapes = like(6, dims, seed=4)
    result = register(shapes, reflection=reflection)
    first = shapes[0] - shapes[0].mean(axis=0)
    np.testing.assert_allclose(result.registered[0], first / np.linalg.norm(first), atol=2e-6)
    np.testing.assert_allclose(result.similarities.rotation[0], np.eye(dims), atol=2e-6)
    signs = np.linalg.det(np.asarray(result.similarities.rotation))
    np.testing.assert_allclose(signs, np.ones(6), atol=1e-5)


def test_mirrored_shapes_are_registered_with_reflections() -> None:
    shapes = like(6, 2, noise=0.05)
    shapes[3:] *= np.array([-1.0, 1.0])
    straight, mirrored = register(shapes), register(shapes, reflection=True)
    assert float(mirrored.sums_of_squares[-1]) < 0.1 * float(straight.sums_of_squares[-1])
    signs = np.linalg.det(np.asarray(mirrored.similarities.rotation))
    np.testing.assert_allclose(signs, [1, 1, 1, -1, -1, -1], atol=1e-5)


def test_registration_of_one_and_of_a_point() -> None:
    shapes = like(3)
    alone = register(shapes[:1])
    assert bool(alone.converged)
    np.testing.assert_array_equal(alone.consensus, alone.registered[0])
    shapes[1] = 2.0
    result = register(shapes, rescale=True)
    assert np.isfinite(np.asarray(result.consensus)).all()
    np.testing.assert_allclose(result.registered[1], np.zeros((6, 2)), atol=1e-6)


def test_registration_says_that_it_was_cut_short() -> None:
    result = register(like(10, 3, noise=1.5), max_iterations=2)
    assert not bool(result.converged)
    assert int(result.iterations) == 2


def test_registration_under_vmap_is_a_loop() -> None:
    sets = np.stack([like(5, seed=s) for s in range(3)]).astype(np.float32)
    together = eqx.filter_vmap(generalised_procrustes)(jnp.asarray(sets))
    for i, shapes in enumerate(sets):
        alone = register(shapes)
        np.testing.assert_allclose(together.registered[i], alone.registered, atol=1e-4)


def test_bad_input_is_refused() -> None:
    shapes = jnp.ones((3, 4, 2))
    with pytest.raises(REFUSED, match="configurations"):
        generalised_procrustes(shapes[0])
    with pytest.raises(ValueError, match=r"configurations must have shape .*none of them 0"):
        generalised_procrustes(shapes[:0])
    with pytest.raises(ValueError, match="rescale fits sizes, which scaling=False keeps"):
        generalised_procrustes(shapes, scaling=False, rescale=True)
    with pytest.raises(REFUSED, match="sample_weight"):
        generalised_procrustes(shapes, sample_weight=jnp.ones(4))
    with pytest.raises(ValueError, match="max_iterations must be at least 1, not 0"):
        generalised_procrustes(shapes, max_iterations=0)


def test_the_first_configuration_may_be_a_point() -> None:
    shapes = np.random.default_rng(0).normal(size=(5, 4, 2))
    shapes[2] = 3.0
    first = np.concatenate([shapes[2:3], shapes[:2], shapes[3:]])
    one, other = (generalised_procrustes(jnp.asarray(x), rescale=True) for x in (first, shapes))
    assert float(jnp.linalg.norm(one.consensus)) > 0.1
    np.testing.assert_allclose(
        jnp.linalg.norm(one.consensus), jnp.linalg.norm(other.consensus), rtol=1e-3
    )


def test_the_mean_of_unregistered_shapes_is_weighted() -> None:
    shapes, weight = np.random.default_rng(0).normal(size=(6, 4, 2)), np.arange(6.0)
    result = registration.shapes.register(shapes, "none", False, weight)
    mean = np.tensordot(weight / weight.sum(), shapes, 1)
    np.testing.assert_allclose(result.consensus, mean - mean.mean(axis=0), atol=1e-6)


def test_a_shape_that_is_a_point_keeps_its_scale() -> None:
    shapes = np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32)
    shapes[2] = 3.0
    result = generalised_procrustes(jnp.asarray(shapes), rescale=True)
    assert result.similarities.scale[2] == 1.0
    assert np.isfinite(result.registered).all()
