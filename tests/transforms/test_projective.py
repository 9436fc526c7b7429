import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust import testing
from diffclust.sampling import pixel_grid
from diffclust.transforms import Affine, Projective

PROJECTIVE = Projective()
WARP = eqx.filter_jit(PROJECTIVE.warp)


def homography(params: np.ndarray) -> np.ndarray:
    """The matrix of a map, built entry by entry."""
    (a, b, c, d, tx, ty), (qx, qy) = params[:6], params[6:]
    return np.asarray([[1 + a, b, tx], [c, 1 + d, ty], [qx, qy, 1]])


def mapped(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    x, y = points.reshape(2, -1)
    lifted = matrix @ np.stack([x, y, np.ones_like(x)])
    return (lifted[:2] / lifted[2]).reshape(points.shape)


@pytest.mark.parametrize("seed", range(3))
def test_maps_agree_with_a_homography(seed: int) -> None:
    rng = np.random.default_rng(seed)
    params, points = 0.3 * rng.normal(size=8), rng.uniform(-1, 1, (2, 50))
    params[6:] = rng.uniform(-0.45, 0.45, 2)
    with jax.enable_x64(True):
        result = PROJECTIVE.warp(jnp.asarray(params), jnp.asarray(points))
    np.testing.assert_allclose(result, mapped(homography(params), points), atol=1e-12)


def test_unit_square_goes_to_the_quadrilateral_that_was_asked_for() -> None:
    # Solved for with NumPy from four pairs of corners, as one would rectify a photograph.
    corners = np.asarray([[-1, 1, 1, -1], [-1, -1, 1, 1]], float)
    wanted = np.asarray([[-0.7, 0.9, 0.6, -1.0], [-0.9, -0.6, 0.8, 0.9]])
    rows, right = [], []
    for (x, y), (to_x, to_y) in zip(corners.T, wanted.T, strict=True):
        rows += [[x, y, 0, 0, 1, 0, -to_x * x, -to_x * y], [0, 0, x, y, 0, 1, -to_y * x, -to_y * y]]
        right += [to_x, to_y]
    entries = np.linalg.solve(np.asarray(rows), np.asarray(right))
    params = (entries - np.asarray([1, 0, 0, 1, 0, 0, 0, 0])).astype(np.float32)
    result = WARP(params, corners.astype(np.float32))
    np.testing.assert_allclose(result, wanted, atol=1e-5)


def test_first_six_params_are_those_of_an_affine_map() -> None:
    params = 0.3 * np.random.default_rng(0).normal(size=6).astype(np.float32)
    grid = np.asarray(pixel_grid(5, 6))
    result = WARP(np.append(params, np.zeros(2, np.float32)), grid)
    np.testing.assert_array_equal(result, eqx.filter_jit(Affine().warp)(params, grid))


@eqx.filter_jit
def slopes(params: jax.Array, points: jax.Array) -> tuple:
    return jax.jacfwd(PROJECTIVE.warp, argnums=(0, 1))(params, points)


@pytest.mark.parametrize("scale", [1.0, 3.0, 1e3])
def test_horizon_is_crossed_with_finite_values_and_slopes(scale: float) -> None:
    # The horizon x = -1 / scale runs through the points, one of which lies on it.
    x = np.linspace(-1, 1, 41, dtype=np.float32)
    points = np.stack([np.append(x, np.float32(-1 / scale)), np.zeros(42, np.float32)])
    params = np.asarray([0.1, 0.2, 0, 0, 0.5, 0.1, scale, 0], np.float32)
    result = np.asarray(WARP(params, points))
    assert np.isfinite(result).all()
    assert np.abs(result).max() < 2 / 0.05
    for slope in slopes(params, points):
        assert np.isfinite(slope).all()


def test_guard_is_smooth_where_it_begins() -> None:
    # With M = 0 and t = 0 the map along x is x / denominator.
    params = np.asarray([0, 0, 0, 0, 0, 0, 1, 0], np.float32)

    def denominators(x: np.ndarray) -> np.ndarray:
        points = np.stack([x, np.zeros_like(x)])
        return x / np.asarray(WARP(params, points))[0]

    x = np.asarray([-0.9 + 1e-3, -0.9 + 2e-3, -0.9 - 1e-3, -0.9 - 2e-3], np.float32)
    over, further, under, beneath = denominators(x)
    np.testing.assert_allclose([over, further], 1 + x[:2], atol=1e-6)
    np.testing.assert_allclose([over - under, further - beneath], [2e-3, 4e-3], rtol=0.03)
    down = denominators(np.linspace(-0.9, -30, 50, dtype=np.float32))
    assert (np.diff(down) < 0).all()
    assert (down > 0.05).all()


@eqx.filter_jit
def round_trip(first: jax.Array, second: jax.Array, grid: jax.Array) -> tuple:
    back = PROJECTIVE.inverse(first)
    return (
        PROJECTIVE.warp(back, PROJECTIVE.warp(first, grid)),
        PROJECTIVE.compose(first, back),
        PROJECTIVE.compose(PROJECTIVE.compose(first, second), back),
        PROJECTIVE.compose(first, PROJECTIVE.compose(second, back)),
    )


@hypothesis.given(first=testing.params(PROJECTIVE, 0.15), second=testing.params(PROJECTIVE, 0.15))
def test_projective_maps_are_a_group(first: jax.Array, second: jax.Array) -> None:
    grid = np.asarray(pixel_grid(8, 10))
    returned, unit, one_way, other_way = map(np.asarray, round_trip(first, second, grid))
    np.testing.assert_allclose(returned, grid, atol=2e-5)
    np.testing.assert_allclose(unit, 0.0, atol=2e-5)
    np.testing.assert_allclose(one_way, other_way, atol=2e-5)


def test_composition_is_the_product_of_homographies() -> None:
    first, second = 0.15 * np.random.default_rng(0).normal(size=(2, 8))
    product = homography(first) @ homography(second)
    with jax.enable_x64(True):
        result = PROJECTIVE.compose(jnp.asarray(first), jnp.asarray(second))
    np.testing.assert_allclose(homography(np.asarray(result)), product / product[2, 2], atol=1e-12)


def test_singular_map_has_no_inverse() -> None:
    singular = jnp.asarray([-1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1, 0.2])
    assert not jnp.all(jnp.isfinite(PROJECTIVE.inverse(singular)))


def test_deformation_is_the_mean_squared_displacement() -> None:
    moved = np.random.default_rng(1).normal(size=8).astype(np.float32)
    grid = np.asarray(pixel_grid(300, 200))
    sizes = np.asarray(PROJECTIVE.deformation(jnp.asarray(moved)))
    still = np.append(moved[:6], np.zeros(2, np.float32))
    affine = (np.asarray(WARP(still, grid) - grid) ** 2).sum(0).mean()
    np.testing.assert_allclose(sizes[0], affine, rtol=1e-3)
    # To first order, so the perspective has to be slight.
    slight = np.append(np.zeros(6, np.float32), np.float32(1e-2) * moved[6:])
    perspective = (np.asarray(WARP(slight, grid) - grid) ** 2).sum(0).mean()
    np.testing.assert_allclose(sizes[1], 1e4 * perspective, rtol=1e-2)


def test_unknown_boundary_is_refused() -> None:
    # The jaxtyping hook sees it first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="boundary"):
        Projective("wrap")
