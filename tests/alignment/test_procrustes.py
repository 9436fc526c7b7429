import contextlib
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.spatial
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from diffclust.alignment import (
    Registration,
    Similarity,
    centroid,
    centroid_size,
    generalised_procrustes,
    procrustes,
    procrustes_residual,
)

REFUSED = (ValueError, jaxtyping.TypeCheckError)
fit = eqx.filter_jit(procrustes)
residual = eqx.filter_jit(procrustes_residual)


@contextlib.contextmanager
def precision(double: bool) -> Iterator[tuple[type, float]]:
    """A floating type, and how closely float64's numbers are met in it."""
    with jax.enable_x64(double):
        yield (np.float64, 1e-11) if double else (np.float32, 3e-5)


def pair(dims: int, landmarks: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two configurations that are somewhat alike, off the origin."""
    draw = np.random.default_rng(seed)
    first = draw.normal(size=(landmarks, dims)) + 3.0
    second = 2.5 * (first + 0.3 * draw.normal(size=first.shape)) @ rotation(dims, seed) - 4.0
    return first, second


def rotation(dims: int, seed: int = 0) -> np.ndarray:
    matrix = scipy.linalg.expm(skew(dims, seed))
    assert np.linalg.det(matrix) > 0
    return matrix


def skew(dims: int, seed: int) -> np.ndarray:
    matrix = np.random.default_rng(seed + 1).normal(size=(dims, dims))
    return matrix - matrix.T


def like(number: int, dims: int = 2, noise: float = 0.15, seed: int = 0) -> np.ndarray:
    """Noisy copies of one configuration, each moved by a similarity."""
    draw = np.random.default_rng(seed)
    mean = draw.normal(size=(6, dims))
    shapes = mean + noise * draw.normal(size=(number, 6, dims))
    return np.stack([moved(x, dims, i) for i, x in enumerate(shapes)])


def moved(x: np.ndarray, dims: int, seed: int, *, rigid: bool = False) -> np.ndarray:
    draw = np.random.default_rng(seed + 100)
    scale = 1.0 if rigid else np.exp(draw.normal())
    return scale * x @ rotation(dims, seed) + draw.normal(size=dims)


def register(shapes: np.ndarray, dtype: type = np.float32, **settings: Any) -> Registration:
    return generalised_procrustes(jnp.asarray(shapes.astype(dtype)), **settings)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dims", [2, 3, 5])
def test_disparity_is_scipys(dims: int, double: bool) -> None:
    moving, target = pair(dims)
    standard, _, disparity = scipy.spatial.procrustes(target, moving)
    with precision(double) as (dtype, tolerance):
        found = residual(jnp.asarray(moving, dtype), jnp.asarray(standard, dtype), reflection=True)
        assert found.dtype == dtype
        assert float(found) == pytest.approx(disparity, rel=tolerance)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dims", [2, 3, 4])
def test_orthogonal_map_is_scipys(dims: int, double: bool) -> None:
    moving, target = pair(dims, seed=3)
    target = target * np.array([-1.0] + [1.0] * (dims - 1))
    centred, goal = moving - moving.mean(0), target - target.mean(0)
    expected, _ = scipy.linalg.orthogonal_procrustes(centred, goal)
    assert np.linalg.det(expected) < 0
    with precision(double) as (dtype, tolerance):
        found = fit(
            jnp.asarray(moving, dtype), jnp.asarray(target, dtype), scaling=False, reflection=True
        )
        np.testing.assert_allclose(found.rotation, expected.T, atol=tolerance)
        assert float(found.scale) == 1.0
        shift = target.mean(0) - moving.mean(0) @ expected
        np.testing.assert_allclose(found.translation, shift, atol=10 * tolerance)


@pytest.mark.parametrize("double", [False, True])
def test_weighted_rotation_in_space_is_scipys(double: bool) -> None:
    moving, target = pair(3, seed=5)
    # Mirrored, so that the best orthogonal map is no rotation.
    target = target * np.array([1.0, 1.0, -1.0])
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(moving))
    centres = [np.average(x, axis=0, weights=weight) for x in (moving, target)]
    expected, distance = Rotation.align_vectors(target - centres[1], moving - centres[0], weight)
    with precision(double) as (dtype, tolerance):
        arrays = [jnp.asarray(x, dtype) for x in (moving, target, weight)]
        found = fit(*arrays[:2], scaling=False, weight=arrays[2])
        left = residual(*arrays[:2], scaling=False, weight=arrays[2])
        np.testing.assert_allclose(found.rotation, expected.as_matrix(), atol=tolerance)
        assert float(left) == pytest.approx(distance**2, rel=tolerance)


@pytest.mark.parametrize("dims", [2, 3])
def test_a_general_minimiser_finds_nothing_better(dims: int) -> None:
    moving, target = pair(dims, seed=8)
    weight = np.linspace(0.5, 2.0, len(moving))

    def loss(params: np.ndarray) -> float:
        generator = np.zeros((dims, dims))
        generator[np.triu_indices(dims, 1)] = params[dims + 1 :]
        turn = scipy.linalg.expm(generator - generator.T)
        image = np.exp(params[dims]) * moving @ turn.T + params[:dims]
        return float(np.sum(weight[:, None] * (image - target) ** 2))

    size = dims + 1 + dims * (dims - 1) // 2
    starts = np.random.default_rng(0).normal(size=(5, size))
    best = min(scipy.optimize.minimize(loss, start).fun for start in starts)
    with precision(True):
        arrays = [jnp.asarray(x) for x in (moving, target, weight)]
        found = float(residual(*arrays[:2], weight=arrays[2]))
        similarity = fit(*arrays[:2], weight=arrays[2])
        image = np.asarray(similarity(arrays[0]))
    assert found == pytest.approx(best, rel=1e-6)
    assert found == pytest.approx(np.sum(weight[:, None] * (image - target) ** 2), rel=1e-10)


@hypothesis.given(seed=st.integers(0, 1000), dims=st.sampled_from([2, 3]), mirrored=st.booleans())
def test_a_known_similarity_is_found_and_undone(seed: int, dims: int, mirrored: bool) -> None:
    draw = np.random.default_rng(seed)
    points = jnp.asarray(draw.normal(size=(7, dims)), jnp.float32)
    turn = rotation(dims, seed)
    if mirrored:
        turn[0] = -turn[0]
    known = Similarity(
        jnp.float32(np.exp(draw.normal())),
        jnp.asarray(turn, jnp.float32),
        jnp.asarray(draw.normal(size=dims), jnp.float32),
    )
    found = fit(points, known(points), reflection=mirrored)
    for part, expected in zip(jax.tree.leaves(found), jax.tree.leaves(known), strict=True):
        np.testing.assert_allclose(part, expected, atol=2e-4)
    np.testing.assert_allclose(known.inverse()(known(points)), points, atol=1e-4)


def test_a_mirror_image_stays_apart_without_reflection() -> None:
    moving, _ = pair(2)
    mirrored = jnp.asarray(moving * np.array([-1.0, 1.0]), jnp.float32)
    moving = jnp.asarray(moving, jnp.float32)
    assert float(residual(moving, mirrored, reflection=True)) < 1e-8
    assert float(residual(moving, mirrored)) > 1.0
    # Nothing is mirrored where a rotation does as well.
    straight = fit(moving, moving, reflection=True).rotation
    np.testing.assert_allclose(straight, np.eye(2), atol=1e-6)


@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_are_finite_differences(dims: int, scaling: bool) -> None:
    moving, target = pair(dims, landmarks=5)
    probe = np.random.default_rng(2).normal(size=(5, dims))

    def image(points: jax.Array) -> jax.Array:
        # Of the map, not of the residual alone: there the rotation's own gradient vanishes.
        similarity = procrustes(points, jnp.asarray(target), scaling=scaling)
        left = procrustes_residual(points, jnp.asarray(target), scaling=scaling)
        return jnp.sum(similarity(points) * probe) + left

    with precision(True):
        gradient = np.asarray(jax.jit(jax.grad(image))(jnp.asarray(moving)))
        forward = jax.jit(image)
        for i, j in np.ndindex(*moving.shape):
            step = np.zeros_like(moving)
            step[i, j] = 1e-5
            high, low = (float(forward(jnp.asarray(moving + s))) for s in (step, -step))
            assert gradient[i, j] == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("double", [False, True])
def test_gradients_are_finite_where_fits_are_not_unique(dims: int, double: bool) -> None:
    draw = np.random.default_rng(0)
    line = np.arange(5.0)[:, None] * np.ones(dims)
    flat = draw.normal(size=(5, dims)) * np.array([1.0] * (dims - 1) + [0.0])
    point = np.ones((5, dims))
    # A frame, on which all singular values are the same, and where their vectors have poles.
    frame = np.concatenate([np.eye(dims), -np.eye(dims)])[: 2 * dims]
    with precision(double) as (dtype, _):
        gradient = jax.jit(
            jax.grad(lambda x, y: procrustes_residual(x, y) + jnp.sum(procrustes(x, y)(x) ** 3))
        )
        for moving, target in [(line, flat), (flat, line), (point, flat), (flat, point)]:
            assert np.isfinite(gradient(*(jnp.asarray(x, dtype) for x in (moving, target)))).all()
        assert np.isfinite(gradient(jnp.asarray(frame, dtype), jnp.asarray(frame, dtype))).all()


def test_equal_singular_values_leave_the_derivative_exact() -> None:
    frame = np.concatenate([np.eye(3), -np.eye(3)])
    spin = skew(3, 0)

    with precision(True):
        points = jnp.asarray(frame)
        _, derivative = jax.jit(
            lambda x, dx: jax.jvp(lambda y: procrustes(y, points).rotation, (x,), (dx,))
        )(points, points @ jnp.asarray(spin))
    # Rows turned by 1 + spin are turned back by a rotation of columns by 1 + spin.
    np.testing.assert_allclose(derivative, spin, atol=1e-10)


def test_one_point_is_only_shifted() -> None:
    point, target = jnp.ones((4, 2)), jnp.asarray(pair(2, landmarks=4)[1], jnp.float32)
    found = fit(point, target)
    np.testing.assert_array_equal(found.rotation, np.eye(2))
    assert float(found.scale) == 1.0
    np.testing.assert_allclose(found(point)[0], centroid(target), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("dims", [2, 3])
def test_units_do_not_matter(scale: float, dims: int) -> None:
    moving, target = pair(dims)
    moving, target = moving - moving.mean(0), target - target.mean(0)
    found = fit(jnp.asarray(scale * moving, jnp.float32), jnp.asarray(scale * target, jnp.float32))
    expected = fit(jnp.asarray(moving, jnp.float32), jnp.asarray(target, jnp.float32))
    np.testing.assert_allclose(found.rotation, expected.rotation, atol=1e-5)
    assert float(found.scale) == pytest.approx(float(expected.scale), rel=1e-5)


def test_far_from_the_origin_float32_still_fits() -> None:
    moving, target = pair(2)
    far = np.float32(moving + 1000.0)
    expected = float(
        residual(jnp.asarray(far - np.float32(1000.0)), jnp.asarray(np.float32(target)))
    )
    found = float(residual(jnp.asarray(far), jnp.asarray(np.float32(target))))
    assert found == pytest.approx(expected, rel=1e-5)


def test_vmap_is_a_loop() -> None:
    shapes = jnp.asarray(like(5, dims=3), jnp.float32)
    together = jax.jit(jax.vmap(procrustes_residual, in_axes=(0, None)))(shapes, shapes[0])
    alone = [float(residual(shape, shapes[0])) for shape in shapes]
    np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)


def test_centroid_size_is_its_definition() -> None:
    points = pair(2)[0]
    weight = np.linspace(0.0, 2.0, len(points))
    middle = np.average(points, axis=0, weights=weight)
    with precision(True):
        size = eqx.filter_jit(centroid_size)
        plain = float(size(jnp.asarray(points)))
        weighted = float(size(jnp.asarray(points), weight=jnp.asarray(weight)))
        slope = jax.jit(jax.grad(lambda x: centroid_size(x)))(jnp.ones((3, 2)))
    # The same from the distances between all pairs, without a mean.
    pairs = scipy.spatial.distance.pdist(points, "sqeuclidean").sum() / len(points)
    assert plain == pytest.approx(np.sqrt(pairs), rel=1e-12)
    expected = np.sqrt(np.sum(weight[:, None] * (points - middle) ** 2))
    assert weighted == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(slope, np.zeros((3, 2)))


@pytest.mark.parametrize("double", [False, True])
def test_fitted_sizes_in_the_plane_have_a_closed_form(double: bool) -> None:
    shapes = like(12)
    flat = shapes[..., 0] + 1j * shapes[..., 1]
    flat = flat - flat.mean(axis=1, keepdims=True)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    # The full Procrustes mean is the leading eigenvector of Σ z z* (Kent 1994).
    values, vectors = np.linalg.eigh(flat.T @ flat.conj())
    with precision(double) as (dtype, tolerance):
        found = register(shapes, dtype, rescale=True)
    assert bool(found.converged)
    assert float(found.sums_of_squares[-1]) == pytest.approx(
        len(shapes) - values[-1], rel=10 * tolerance
    )
    mean = np.asarray(found.consensus, np.float64) @ np.array([1.0, 1j])
    overlap = abs(np.vdot(vectors[:, -1], mean)) / np.linalg.norm(mean)
    assert overlap == pytest.approx(1.0, abs=tolerance)
    squares = np.sum(np.asarray(found.registered) ** 2)
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
        found = register(shapes, np.float64, scaling=scaling, weight=jnp.asarray(weight))
        assert bool(found.converged)
        assert float(found.sums_of_squares[-1]) == pytest.approx(left, rel=1e-10)
        np.testing.assert_allclose(found.registered, expected, atol=1e-6)
        np.testing.assert_allclose(found.consensus, expected.mean(axis=0), atol=1e-6)
        # Each similarity says where its configuration went.
        images = jax.vmap(lambda s, x: s(x))(found.similarities, jnp.asarray(shapes))
        np.testing.assert_allclose(images, found.registered, atol=1e-12)
        size = eqx.filter_jit(centroid_size)
        sizes = [float(size(x, weight=jnp.asarray(weight))) for x in found.registered]
    before = [
        np.sqrt(np.sum(weight[:, None] * (x - np.average(x, 0, weight)) ** 2)) for x in shapes
    ]
    np.testing.assert_allclose(sizes, np.ones(8) if scaling else before, rtol=1e-12)


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
            found = register(like(10, 3, noise=1.5, seed=seed), np.float64, **settings)
            passes = int(found.iterations)
            sums = np.asarray(found.sums_of_squares)
            assert passes > 5
            assert bool(found.converged)
            assert np.all(np.diff(sums[: passes - 1]) < 0)
            assert np.all(np.diff(sums) <= 1e-13)
            left = np.sum((np.asarray(found.registered) - np.asarray(found.consensus)) ** 2)
            assert sums[-1] == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_the_first_shape_keeps_its_orientation(dims: int, reflection: bool) -> None:
    shapes = like(6, dims, seed=4)
    found = register(shapes, reflection=reflection)
    first = shapes[0] - shapes[0].mean(axis=0)
    np.testing.assert_allclose(found.registered[0], first / np.linalg.norm(first), atol=2e-6)
    np.testing.assert_allclose(found.similarities.rotation[0], np.eye(dims), atol=2e-6)
    signs = np.linalg.det(np.asarray(found.similarities.rotation))
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
    found = register(shapes, rescale=True)
    assert np.isfinite(np.asarray(found.consensus)).all()
    np.testing.assert_allclose(found.registered[1], np.zeros((6, 2)), atol=1e-6)


def test_registration_says_that_it_was_cut_short() -> None:
    found = register(like(10, 3, noise=1.5), max_iterations=2)
    assert not bool(found.converged)
    assert int(found.iterations) == 2


def test_registration_under_vmap_is_a_loop() -> None:
    sets = np.stack([like(5, seed=s) for s in range(3)]).astype(np.float32)
    together = eqx.filter_vmap(generalised_procrustes)(jnp.asarray(sets))
    for i, shapes in enumerate(sets):
        alone = register(shapes)
        np.testing.assert_allclose(together.registered[i], alone.registered, atol=1e-4)


def test_bad_input_is_refused() -> None:
    shapes = jnp.ones((3, 4, 2))
    with pytest.raises(REFUSED, match="landmarks"):
        procrustes(shapes[0], shapes[0, :3])
    with pytest.raises(REFUSED, match="weight"):
        procrustes(shapes[0], shapes[0], weight=jnp.ones(3))
    with pytest.raises(REFUSED, match="configurations"):
        generalised_procrustes(shapes[0])
    with pytest.raises(ValueError, match=r"configurations must have shape .*none of them 0"):
        generalised_procrustes(shapes[:0])
    with pytest.raises(ValueError, match="rescale fits sizes, which scaling=False keeps"):
        generalised_procrustes(shapes, scaling=False, rescale=True)
    with pytest.raises(ValueError, match="max_iterations must be at least 1, not 0"):
        generalised_procrustes(shapes, max_iterations=0)
