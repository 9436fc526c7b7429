import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.testing import smooth_image
from diffclust.transforms import NAMES, Rotation, Translation, named_sequence, params_grid


def quarter(image: np.ndarray, times: int, mirrored: bool) -> np.ndarray:
    """Quarter turns of a square image, mirrored after them: pixels move onto pixels."""
    turned = np.rot90(image, times)
    return turned[:, ::-1] if mirrored else turned


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("times", range(4))
def test_quarter_turns_move_pixels_onto_pixels(times: int, mirrored: bool) -> None:
    image = np.random.default_rng(0).uniform(size=(7, 7, 2)).astype(np.float32)
    params = jnp.asarray([times * np.pi / 2, float(mirrored)], dtype=jnp.float32)
    result = eqx.filter_jit(Rotation(reflection=True))(params, image)
    np.testing.assert_allclose(result, quarter(image, times, mirrored), atol=1e-5)


def test_a_round_thing_stays_round_on_a_wide_canvas() -> None:
    height, width = 24, 36
    rows, columns = np.mgrid[:height, :width]
    distance = np.hypot(rows - 11.5, columns - 17.5)
    disc = np.exp(-0.5 * (distance / 4) ** 2)[..., None].astype(np.float32)
    turned = Rotation(aspect=width / height)(jnp.asarray([0.7]), jnp.asarray(disc))
    np.testing.assert_allclose(turned, disc, atol=0.02)
    stretched = Rotation()(jnp.asarray([0.7]), jnp.asarray(disc))
    assert float(jnp.max(jnp.abs(stretched - disc))) > 0.1


def test_composition_and_inverse_of_reflections() -> None:
    both, grid = Rotation(reflection=True), np.random.default_rng(1).uniform(-1, 1, (2, 5))
    points = jnp.asarray(grid, dtype=jnp.float32)
    first, second = jnp.asarray([0.4, 1.0]), jnp.asarray([-1.1, 1.0])
    combined = both.compose(first, second)
    np.testing.assert_allclose(combined, [1.5, 0.0], atol=1e-6)
    expected = both.warp(first, both.warp(second, points))
    np.testing.assert_allclose(both.warp(combined, points), expected, atol=1e-6)
    back = both.warp(both.inverse(first), both.warp(first, points))
    np.testing.assert_allclose(back, points, atol=1e-6)


def test_grids() -> None:
    grid = np.asarray(params_grid((0.0, 1.0, 2.0), (5.0, 6.0)))
    np.testing.assert_array_equal(grid, [[0, 5], [0, 6], [1, 5], [1, 6], [2, 5], [2, 6]])
    for count in (7, 8):
        angles = np.asarray(Rotation().grid(count))[:, 0]
        assert len(angles) == count
        assert 0.0 in angles
        np.testing.assert_allclose(np.diff(angles), 2 * np.pi / count, rtol=1e-5)
        assert angles.min() > -np.pi
        assert angles.max() <= np.float32(np.pi)
    assert Rotation(reflection=True).grid(6).shape == (12, 2)


@eqx.filter_jit
def products(transform, grid, image, others):
    """Inner products by FFT, and one by one."""
    correlate = transform.bind_correlation(*image.shape[:2])
    moved = jax.vmap(transform, in_axes=(0, None))(grid, image)
    return correlate(grid, image, others), jnp.einsum("ghwc,khwc->gk", moved, others)


SHAPES = [(12, 12, 2), (11, 14, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_correlations_of_shifts_are_exact(shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(2)
    image, *others = rng.uniform(size=(4, *shape)).astype(np.float32)
    # Shifts by fractions of a pixel, and beyond the canvas.
    grid = jnp.asarray(rng.uniform(-2.5, 2.5, (40, 2)), dtype=jnp.float32)
    result, expected = products(Translation(), grid, image, jnp.stack(others))
    np.testing.assert_allclose(result, expected, atol=1e-4 * float(jnp.max(expected)))


@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("shape", [(24, 24, 2), (21, 28, 1)])
def test_correlations_of_rotations_are_those_of_the_plane(
    shape: tuple[int, int, int], reflection: bool
) -> None:
    keys = jax.random.split(jax.random.key(3), 4)
    image, *others = [smooth_image(key, *shape, sigma=0.25) for key in keys]
    transform = Rotation(reflection=reflection, aspect=shape[1] / shape[0])
    result, expected = products(transform, transform.grid(9), image, jnp.stack(others))
    np.testing.assert_allclose(result, expected, atol=0.01 * float(jnp.max(expected)))


def test_grids_without_angles_and_images_without_width_are_refused() -> None:
    with pytest.raises(ValueError, match="num_angles must be at least 1"):
        Rotation().grid(0)
    with pytest.raises(ValueError, match="aspect must be above 0"):
        Rotation(aspect=0.0)


def test_what_lies_outside_must_be_black() -> None:
    assert Rotation("edge").bind_correlation(8, 8) is None
    assert Translation("reflect").bind_correlation(8, 8) is None


def test_they_have_names() -> None:
    assert {"rot", "turn", "shift"} <= set(NAMES)
    result = named_sequence("rot-turn-shift", channels=3, boundary="reflect")
    rot, turn = Rotation("reflect", reflection=True), Rotation("reflect")
    assert result == (rot, turn, Translation("reflect"))


@pytest.mark.parametrize("aspect", [1.0, 1.5])
def test_deformation_is_the_mean_square_of_displacements(aspect: float) -> None:
    side = (np.arange(80) + 0.5) / 40 - 1
    points = jnp.asarray(np.stack(np.meshgrid(side, side)), dtype=jnp.float32)
    rotation, params = Rotation(aspect=aspect), jnp.asarray([0.02])
    moved = np.asarray(rotation.warp(params, points) - points)
    expected = np.mean(np.sum(moved**2, axis=0))
    np.testing.assert_allclose(rotation.deformation(params)[0], expected, rtol=2e-3)
