from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage

from diffclust.sampling import (
    Boundary,
    bilinear_sample,
    block_means,
    gaussian_window,
    low_pass,
    pixel_grid,
    set_apart,
    to_pixels,
)

SCIPY_MODES = {"zero": "grid-constant", "edge": "nearest", "reflect": "reflect"}


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(7, 10, 3)).astype(np.float32)


@eqx.filter_jit
def sample(image, points, boundary):
    return bilinear_sample(image, points, boundary=boundary)


def test_pixel_centres_are_whole_numbers() -> None:
    grid = pixel_grid(3, 4)
    np.testing.assert_allclose(grid[0, 0], [-0.75, -0.25, 0.25, 0.75])
    np.testing.assert_allclose(grid[1, :, 0], [-2 / 3, 0, 2 / 3], atol=1e-7)
    columns, rows = to_pixels(grid, 3, 4)
    np.testing.assert_allclose(columns, np.broadcast_to(np.arange(4), (3, 4)), atol=1e-6)
    np.testing.assert_allclose(rows, np.broadcast_to(np.arange(3)[:, None], (3, 4)), atol=1e-6)


def test_edges_are_minus_one_and_one_at_any_resolution() -> None:
    corners = jnp.asarray([[-1.0, 1.0], [-1.0, 1.0]])
    for height, width in [(3, 4), (6, 8)]:
        columns, rows = to_pixels(corners, height, width)
        np.testing.assert_allclose(columns, [-0.5, width - 0.5])
        np.testing.assert_allclose(rows, [-0.5, height - 0.5])


@pytest.mark.parametrize("boundary", get_args(Boundary))
def test_samples_agree_with_scipy(boundary: str, image: np.ndarray) -> None:
    # Three canvases wide, so that a reflected image is reflected again.
    points = np.random.default_rng(1).uniform(-3.2, 3.2, (2, 20, 15)).astype(np.float32)
    points[:, :, :7] *= 0.4
    columns, rows = to_pixels(jnp.asarray(points, jnp.float32), 7, 10)
    expected = np.stack(
        [
            scipy.ndimage.map_coordinates(
                image[..., c].astype(float), [rows, columns], order=1, mode=SCIPY_MODES[boundary]
            )
            for c in range(3)
        ],
        axis=-1,
    )
    result = sample(image, points, boundary)
    assert result.shape == (20, 15, 3)
    np.testing.assert_allclose(result, expected, atol=2e-5)


@pytest.mark.parametrize("boundary", get_args(Boundary))
def test_pixel_grid_gives_the_image_back(boundary: str, image: np.ndarray) -> None:
    result = sample(image, np.asarray(pixel_grid(7, 10)), boundary)
    np.testing.assert_allclose(result, image, atol=1e-5)


def test_reflection_repeats_the_border_pixel(image: np.ndarray) -> None:
    # d c b a | a b c d
    columns = np.arange(-4, 4)
    x = (2.0 * columns + 1.0) / 10 - 1.0
    points = np.stack([x, np.full_like(x, 1 / 7 - 1)]).astype(np.float32)
    result = np.asarray(sample(image, points, "reflect"))
    np.testing.assert_allclose(result, image[0, [3, 2, 1, 0, 0, 1, 2, 3]], atol=1e-5)


def test_zero_fades_over_one_pixel() -> None:
    white = np.ones((4, 4, 1), np.float32)
    x = np.asarray([-0.75, -1.0, -1.125, -1.25, -1.5], np.float32)  # the last centre, and outwards
    result = sample(white, np.stack([x, np.zeros_like(x)]), "zero")
    np.testing.assert_allclose(result[:, 0], [1.0, 0.5, 0.25, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("boundary", get_args(Boundary))
def test_nan_coordinates_give_nan_there_alone(boundary: str, image: np.ndarray) -> None:
    points = np.zeros((2, 6), np.float32)
    points[0, 1] = points[1, 2] = np.nan
    points[:, 3] = np.nan
    result = np.asarray(sample(image, points, boundary))
    assert np.isnan(result[1:4]).all()
    assert np.isfinite(result[[0, 4, 5]]).all()


@pytest.mark.parametrize("boundary", ["zero", "edge"])
def test_points_far_away_are_outside(boundary: str, image: np.ndarray) -> None:
    far = np.asarray([[-np.inf, np.inf, 3e38, -3e38], [0, 0, 0, 0]], np.float32)
    result = np.asarray(sample(image, far, boundary))
    left, right = image[3, 0], image[3, -1]
    expected = np.zeros((4, 3)) if boundary == "zero" else [left, right, right, left]
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_coordinate_gradient_is_the_slope_between_pixels(image: np.ndarray) -> None:
    at = jnp.asarray([[0.03], [0.05]])  # off the lattice
    slope = jax.jit(jax.jacrev(lambda p: bilinear_sample(jnp.asarray(image), p)))(at)
    columns, rows = to_pixels(at, 7, 10)
    column, row = int(columns[0]), int(rows[0])
    across, down = float(columns[0]) - column, float(rows[0]) - row
    corner = image[row : row + 2, column : column + 2]
    along_x = (1 - down) * (corner[0, 1] - corner[0, 0]) + down * (corner[1, 1] - corner[1, 0])
    along_y = (1 - across) * (corner[1, 0] - corner[0, 0]) + across * (corner[1, 1] - corner[0, 1])
    # A pixel is 2 / width wide.
    np.testing.assert_allclose(slope[0, :, 0, 0], along_x * 5.0, rtol=1e-4)
    np.testing.assert_allclose(slope[0, :, 1, 0], along_y * 3.5, rtol=1e-4)


@pytest.mark.parametrize("boundary", get_args(Boundary))
def test_derivatives_agree_with_finite_differences(boundary: str, image: np.ndarray) -> None:
    # Inside, on the border's pixel, just outside it, far outside, and where an axis is far outside.
    x = np.asarray([0.03, -0.97, 1.04, -1.13, 2.53, -3.37, 0.21, 1.17])
    y = np.asarray([0.05, 0.33, -0.95, 1.09, -2.73, 0.41, 5.13, 1.21])
    given = (jnp.asarray(image, jnp.float32), jnp.asarray([x, y], jnp.float32))
    rng = np.random.default_rng(0)
    tangents = tuple(jnp.asarray(rng.normal(size=a.shape), jnp.float32) for a in given)

    def read(image: jax.Array, points: jax.Array) -> jax.Array:
        return bilinear_sample(image, points, boundary=boundary)

    # SciPy in double precision: linear in the image, and piecewise bilinear in the points.
    def reference(image: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        at = [(y + 1) * 3.5 - 0.5, (x + 1) * 5.0 - 0.5]
        settings = {"order": 1, "mode": SCIPY_MODES[boundary]}
        channels = image.astype(np.float64).transpose(2, 0, 1)
        return np.stack([scipy.ndimage.map_coordinates(c, at, **settings) for c in channels], -1)

    along, (dx, dy) = (np.asarray(a, np.float64) for a in tangents)
    after, before = (reference(image, x + h * dx, y + h * dy) for h in (1e-5, -1e-5))
    by_points = (after - before) / 2e-5
    expected = by_points + reference(along, x, y)
    _, tangent = jax.jvp(read, given, tangents)
    np.testing.assert_allclose(tangent, expected, rtol=1e-3, atol=1e-3)
    _, only_points = jax.jvp(lambda points: read(given[0], points), given[1:], tangents[1:])
    np.testing.assert_allclose(only_points, by_points, rtol=1e-3, atol=1e-3)
    # Backwards: ⟨cotangent, tangent⟩ is the same.
    value, pull = jax.vjp(read, *given)
    weight = jnp.asarray(rng.normal(size=value.shape), jnp.float32)
    pulled = sum(float(jnp.vdot(a, b)) for a, b in zip(pull(weight), tangents, strict=True))
    assert pulled == pytest.approx(float(jnp.vdot(weight, tangent)), rel=1e-4)


@pytest.mark.parametrize("boundary", get_args(Boundary))
def test_where_nothing_is_left_second_derivatives_are_products_of_first_ones(
    boundary: str, image: np.ndarray
) -> None:
    # On the pixels, where slopes jump, up to the border, where there are none outside. Powers of
    # two make the grid exact.
    grid, given = pixel_grid(4, 8), jnp.asarray(image[:4, :8])

    def moved(params: jax.Array) -> jax.Array:
        points = grid + params[:2, None, None] + params[2:, None, None] * grid
        return bilinear_sample(given, points, boundary=boundary).reshape(-1)

    still = jnp.zeros(4)
    first = jax.jacrev(moved)(still)
    np.testing.assert_allclose(first, jax.jacfwd(moved)(still), rtol=1e-5, atol=1e-5)
    target = moved(still)
    second = jax.hessian(lambda params: 0.5 * jnp.sum((moved(params) - target) ** 2))(still)
    np.testing.assert_allclose(second, first.T @ first, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_images_in_half_precision_have_slopes_in_that_of_the_points(
    dtype: str, image: np.ndarray
) -> None:
    points = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (2, 9)), jnp.float32)
    half = jnp.asarray(image).astype(dtype)

    def total(points: jax.Array, image: jax.Array) -> jax.Array:
        return jnp.sum(bilinear_sample(image, points))

    with jax.numpy_dtype_promotion("standard"):
        result = jax.value_and_grad(total)(points, half)
    exact = jax.value_and_grad(total)(points, half.astype(jnp.float32))
    np.testing.assert_allclose(result[0], exact[0], rtol=1e-6)
    np.testing.assert_allclose(result[1], exact[1], rtol=1e-5, atol=1e-5)


def test_setting_an_array_apart_changes_nothing() -> None:
    given = jnp.asarray([1.5, -0.0, np.nan, np.inf, -np.inf])
    move = jnp.asarray([1.0, 2.0, 3.0, 4.0, 5.0])
    result, moved = jax.jvp(set_apart, (given,), (move,))
    np.testing.assert_array_equal(result, given)
    np.testing.assert_array_equal(moved, move)
    (back,) = jax.vjp(set_apart, given)[1](move)
    np.testing.assert_array_equal(back, move)


def test_low_pass_agrees_with_scipy(image: np.ndarray) -> None:
    result = low_pass(jnp.asarray(image), sigma=0.9)
    expected = scipy.ndimage.gaussian_filter(
        image.astype(float), 0.9, mode="constant", truncate=10, axes=(0, 1)
    )
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("factor", [2, 3])
def test_low_pass_keeps_mass_and_places(factor: int) -> None:
    height, width, sigma = 18, 24, 0.25
    x, y = np.asarray(pixel_grid(height, width))
    blob = np.exp(-0.5 * ((x - 0.15) ** 2 + (y + 0.2) ** 2) / sigma**2)
    coarse = low_pass(jnp.asarray(blob[..., None]), sigma=0.6 * factor, factor=factor)
    coarse = np.asarray(coarse)[..., 0]
    assert coarse.shape == (height // factor, width // factor)
    np.testing.assert_allclose(coarse.sum() * factor**2, blob.sum(), rtol=1e-2)
    x, y = np.asarray(pixel_grid(*coarse.shape))
    np.testing.assert_allclose((coarse * x).sum() / coarse.sum(), 0.15, atol=5e-3)
    np.testing.assert_allclose((coarse * y).sum() / coarse.sum(), -0.2, atol=5e-3)


def test_low_pass_covers_a_size_that_the_factor_does_not_divide() -> None:
    white = jnp.ones((7, 11, 1))
    coarse = low_pass(white, sigma=0.8, factor=2)
    assert coarse.shape == (4, 6, 1)
    # Outside the image is black, so only the inside keeps its intensity.
    np.testing.assert_allclose(coarse[1:-1, 1:-1], 1.0, atol=0.05)
    assert float(coarse[0, 0, 0]) < 0.8


def test_low_pass_without_a_filter() -> None:
    ramp = jnp.arange(8.0)[None, :, None] * jnp.ones((8, 1, 1))
    assert low_pass(ramp, sigma=0.0) is ramp
    np.testing.assert_allclose(low_pass(ramp, sigma=0.0, factor=2)[0, :, 0], [0.5, 2.5, 4.5, 6.5])


def test_block_means_are_means_over_blocks_of_a_black_surrounding():
    images = np.random.default_rng(0).uniform(size=(2, 5, 11, 3)).astype(np.float32)
    padded = np.zeros((2, 6, 12, 3))
    padded[:, :5, :11] = images
    expected = [[padded[:, i : i + 3, j : j + 3].mean((1, 2)) for j in range(0, 12, 3)]
                for i in range(0, 6, 3)]  # fmt: skip
    # Three pixels a side are the fewest that leave at most four blocks of eleven pixels.
    result = block_means(images, 4)
    np.testing.assert_allclose(result, np.transpose(expected, (2, 0, 1, 3)), rtol=1e-5)


def test_a_window_without_width_is_refused() -> None:
    with pytest.raises(ValueError, match="weight zero; give a wider one"):
        gaussian_window(5, 5, sigma=0.0)
