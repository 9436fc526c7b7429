"""One configuration fitted to another, against SciPy and in closed form."""

import chex
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

from diffclust.registration import (
    Similarity,
    centroid,
    centroid_size,
    procrustes,
    procrustes_residual,
)
from tests.registration.configurations import like, precision, rotation, skew

REFUSED = (ValueError, jaxtyping.TypeCheckError)
fit = eqx.filter_jit(procrustes)
residual = eqx.filter_jit(procrustes_residual)


def pair(dims: int, landmarks: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two configurations that are somewhat alike, off the origin."""
    draw = np.random.default_rng(seed)
    first = draw.normal(size=(landmarks, dims)) + 3.0
    second = 2.5 * (first + 0.3 * draw.normal(size=first.shape)) @ rotation(dims, seed) - 4.0
    return first, second


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dims", [2, 3, 5])
def test_disparity_is_scipys(dims: int, double: bool) -> None:
    moving, target = pair(dims)
    standard, _, disparity = scipy.spatial.procrustes(target, moving)
    with precision(double) as (dtype, tolerance):
        result = residual(jnp.asarray(moving, dtype), jnp.asarray(standard, dtype), reflection=True)
        assert result.dtype == dtype
        assert float(result) == pytest.approx(disparity, rel=tolerance)


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dims", [2, 3, 4])
def test_orthogonal_map_is_scipys(dims: int, double: bool) -> None:
    moving, target = pair(dims, seed=3)
    target = target * np.array([-1.0] + [1.0] * (dims - 1))
    centred, goal = moving - moving.mean(0), target - target.mean(0)
    expected, _ = scipy.linalg.orthogonal_procrustes(centred, goal)
    assert np.linalg.det(expected) < 0
    with precision(double) as (dtype, tolerance):
        result = fit(
            jnp.asarray(moving, dtype), jnp.asarray(target, dtype), scaling=False, reflection=True
        )
        np.testing.assert_allclose(result.rotation, expected.T, atol=tolerance)
        assert float(result.scale) == 1.0
        shift = target.mean(0) - moving.mean(0) @ expected
        np.testing.assert_allclose(result.translation, shift, atol=10 * tolerance)


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
        result = fit(*arrays[:2], scaling=False, weight=arrays[2])
        left = residual(*arrays[:2], scaling=False, weight=arrays[2])
        np.testing.assert_allclose(result.rotation, expected.as_matrix(), atol=tolerance)
        assert float(left) == pytest.approx(distance**2, rel=tolerance)


@pytest.mark.parametrize("dims", [2, pytest.param(3, marks=pytest.mark.slow)])
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
    starts = np.random.default_rng(0).normal(size=(2, size))
    best = min(scipy.optimize.minimize(loss, start).fun for start in starts)
    with precision(True):
        arrays = [jnp.asarray(x) for x in (moving, target, weight)]
        result = float(residual(*arrays[:2], weight=arrays[2]))
        similarity = fit(*arrays[:2], weight=arrays[2])
        image = np.asarray(similarity(arrays[0]))
    assert result == pytest.approx(best, rel=1e-6)
    assert result == pytest.approx(np.sum(weight[:, None] * (image - target) ** 2), rel=1e-10)


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
    result = fit(points, known(points), reflection=mirrored)
    chex.assert_trees_all_close(result, known, rtol=1e-7, atol=2e-4)
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
    result = fit(point, target)
    np.testing.assert_array_equal(result.rotation, np.eye(2))
    assert float(result.scale) == 1.0
    np.testing.assert_allclose(result(point)[0], centroid(target), rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("dims", [2, 3])
def test_units_do_not_matter(scale: float, dims: int) -> None:
    moving, target = pair(dims)
    moving, target = moving - moving.mean(0), target - target.mean(0)
    result = fit(jnp.asarray(scale * moving, jnp.float32), jnp.asarray(scale * target, jnp.float32))
    expected = fit(jnp.asarray(moving, jnp.float32), jnp.asarray(target, jnp.float32))
    np.testing.assert_allclose(result.rotation, expected.rotation, atol=1e-5)
    assert float(result.scale) == pytest.approx(float(expected.scale), rel=1e-5)


def test_far_from_the_origin_float32_still_fits() -> None:
    moving, target = pair(2)
    far = np.float32(moving + 1000.0)
    expected = float(
        residual(jnp.asarray(far - np.float32(1000.0)), jnp.asarray(np.float32(target)))
    )
    result = float(residual(jnp.asarray(far), jnp.asarray(np.float32(target))))
    assert result == pytest.approx(expected, rel=1e-5)


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
    for power in (-140, 0, 126):  # the range of single precision
        side = np.ldexp(np.float32(1.0), power)
        found = centroid_size(jnp.asarray([[side, 0.0], [-side, 0.0]]))
        assert float(found) == pytest.approx(np.sqrt(2) * float(side), rel=1e-6)


def test_bad_input_is_refused() -> None:
    shapes = jnp.ones((3, 4, 2))
    with pytest.raises(REFUSED, match="landmarks"):
        procrustes(shapes[0], shapes[0, :3])
    with pytest.raises(REFUSED, match="weight"):
        procrustes(shapes[0], shapes[0], weight=jnp.ones(3))


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("name", ["octahedron", "generic"])
def test_second_derivatives_in_space(name: str, reflection: bool) -> None:
    first, second = pair(3, landmarks=6)
    if name == "octahedron":  # whose singular values agree
        first = second = np.concatenate([np.eye(3), -np.eye(3)])
    with jax.enable_x64(True):
        target, place = jnp.asarray(second), jnp.asarray(first).ravel()

        def left(at: jax.Array) -> jax.Array:
            return procrustes_residual(at.reshape(6, 3), target, reflection=reflection)

        slope = jax.jit(jax.grad(left))
        steps = 1e-5 * np.eye(18)
        expected = [(slope(place + step) - slope(place - step)) / 2e-5 for step in steps]
        actual = jax.jit(jax.hessian(left))(place)
    np.testing.assert_allclose(actual, expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("power", [-40, 0, 40])
def test_the_scale_has_the_same_gradient_in_any_unit(power: int) -> None:
    draw = np.random.default_rng(0)
    moving, target = (jnp.asarray(draw.normal(size=(5, 2)), jnp.float32) for _ in range(2))
    scale = jax.grad(lambda shape, other: procrustes(shape, other).scale)
    wanted = scale(moving, target)
    found = scale(jnp.ldexp(moving, power), jnp.ldexp(target, power))
    np.testing.assert_allclose(jnp.ldexp(found, power), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_centroid_of_coordinates_far_from_zero_is_exact(weighted: bool) -> None:
    points = (1e6 + np.random.default_rng(0).uniform(0, 8, (4001, 2))).astype(np.float32)
    weight = np.linspace(1.0, 2.0, len(points)) if weighted else None
    expected = np.average(points.astype(np.float64), axis=0, weights=weight)
    given = None if weight is None else jnp.asarray(weight, dtype=jnp.float32)
    # To the spacing of single precision there.
    result = centroid(jnp.asarray(points), weight=given)
    np.testing.assert_allclose(np.asarray(result, np.float64), expected, atol=0.04)
