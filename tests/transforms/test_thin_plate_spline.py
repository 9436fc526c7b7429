import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate

from diffclust import testing
from diffclust.sampling import pixel_grid
from diffclust.transforms import Affine, ThinPlateSpline, landmark_grid

GRIDS = [(2, 2), (3, 5), (5, 2)]


def displacements(spline: ThinPlateSpline, scale: float = 0.2) -> np.ndarray:
    return scale * np.random.default_rng(0).normal(size=spline.num_params)


def test_landmarks_lie_row_by_row_with_the_corners_included() -> None:
    x, y = landmark_grid(2, 3)
    np.testing.assert_allclose(x, [-1, 0, 1, -1, 0, 1])
    np.testing.assert_allclose(y, [-1, -1, -1, 1, 1, 1])


@pytest.mark.parametrize("regularisation", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("landmarks", GRIDS)
def test_maps_agree_with_scipy(landmarks: tuple[int, int], regularisation: float) -> None:
    with jax.enable_x64(True):
        spline = ThinPlateSpline(landmarks, regularisation=regularisation)
        params = displacements(spline)
        points = np.random.default_rng(1).uniform(-1.5, 1.5, (2, 40))
        result = spline.warp(jnp.asarray(params), jnp.asarray(points))
    at = landmark_grid(*landmarks)
    expected = scipy.interpolate.RBFInterpolator(
        at.T,
        (at + params.reshape(2, -1)).T,
        kernel="thin_plate_spline",
        # SciPy's kernel is r² log r, half of the paper's r² log r²; the smoothing follows from
        # the bending energy 16π wᵀKw that Eq. 9 weighs by λ.
        smoothing=8 * np.pi * regularisation,
    )(points.T).T
    np.testing.assert_allclose(result, expected, atol=1e-9)


@pytest.mark.parametrize("landmarks", GRIDS)
def test_landmarks_are_interpolated(landmarks: tuple[int, int]) -> None:
    spline = ThinPlateSpline(landmarks)
    params = displacements(spline).astype(np.float32)
    at = landmark_grid(*landmarks).astype(np.float32)
    result = spline.warp(jnp.asarray(params), jnp.asarray(at))
    np.testing.assert_allclose(result, at + params.reshape(2, -1), atol=1e-5)


def test_regularised_spline_does_not_interpolate_and_bends_less() -> None:
    stiff, free = ThinPlateSpline((3, 4), regularisation=0.1), ThinPlateSpline((3, 4))
    params = jnp.asarray(displacements(free), jnp.float32)
    at = jnp.asarray(landmark_grid(3, 4), jnp.float32)
    assert jnp.max(jnp.abs(stiff.warp(params, at) - at - params.reshape(2, -1))) > 0.05
    assert stiff.deformation(params)[1] < 0.5 * free.deformation(params)[1]


@pytest.mark.parametrize("regularisation", [0.0, 0.02])
def test_bending_energy_is_the_integral(regularisation: float) -> None:
    with jax.enable_x64(True):
        spline = ThinPlateSpline((3, 4), regularisation=regularisation)
        params = displacements(spline)
        half, count = 6.0, 500
        step = 2 * half / count
        axis = np.linspace(-half, half, count + 1)
        grid = jnp.asarray(np.stack(np.meshgrid(axis, axis)))
        displacement = np.asarray(eqx.filter_jit(spline.warp)(jnp.asarray(params), grid) - grid)
        result = float(spline.deformation(jnp.asarray(params))[1])
    inner = displacement[:, 1:-1, 1:-1]
    xx = displacement[:, 1:-1, 2:] - 2 * inner + displacement[:, 1:-1, :-2]
    yy = displacement[:, 2:, 1:-1] - 2 * inner + displacement[:, :-2, 1:-1]
    xy = displacement[:, 2:, 2:] - displacement[:, 2:, :-2]
    xy = (xy - displacement[:, :-2, 2:] + displacement[:, :-2, :-2]) / 4
    integral = np.sum(xx**2 + yy**2 + 2 * xy**2) / step**2
    np.testing.assert_allclose(integral, result, rtol=0.03)


@eqx.filter_jit
def embedded(spline: ThinPlateSpline, affine: jax.Array, points: jax.Array) -> tuple:
    embedding = spline.affine_embedding
    assert embedding is not None
    params = embedding @ affine
    sizes = spline.deformation(params)
    return spline.warp(params, points), Affine().warp(affine, points), sizes, params


@pytest.mark.parametrize("regularisation", [0.0, 0.3])
@hypothesis.given(affine=testing.params(Affine(), 0.5))
@hypothesis.settings(max_examples=10)
def test_affine_maps_are_reproduced_without_bending(
    affine: jax.Array, regularisation: float
) -> None:
    spline = ThinPlateSpline((3, 2), regularisation=regularisation)
    # Also off the canvas, where a bent map would go its own way.
    grid = 2.0 * np.asarray(pixel_grid(5, 6))
    result, expected, sizes, params = embedded(spline, affine, grid)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    size = np.asarray(Affine().deformation(affine))[0]
    np.testing.assert_allclose(sizes[0], size, rtol=1e-4, atol=1e-9)
    # Against a bend of the same size, not against zero: a square of rounding errors remains.
    bent = spline.deformation(jnp.asarray(displacements(spline, 0.5), jnp.float32))[1]
    assert 0 <= float(sizes[1]) < 1e-9 * float(bent)
    assert params.shape == (12,)


def test_four_landmarks_have_one_bent_mode() -> None:
    spline = ThinPlateSpline((2, 2))
    saddle = jnp.asarray([1.0, -1.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    affine, bending = spline.deformation(saddle)
    np.testing.assert_allclose(affine, 0.0, atol=1e-9)
    assert bending > 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"landmarks": (1, 4)}, "at least 2 each, not"),
        ({"regularisation": -1.0}, "regularisation must be at least 0"),
        ({"regularisation": float("nan")}, "regularisation must be at least 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ThinPlateSpline(**settings)
