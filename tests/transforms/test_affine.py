import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust import testing
from diffclust.sampling import pixel_grid
from diffclust.transforms import (
    Affine,
    Colour,
    Identity,
    Morphology,
    Projective,
    Rotation,
    ThinPlateSpline,
    compose,
)

AFFINE = Affine()
MOVE = eqx.filter_jit(AFFINE)


def image(height: int = 8, width: int = 8) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(height, width, 2)).astype(np.float32)


def params(linear: list, translation: tuple = (0.0, 0.0)) -> np.ndarray:
    displacement = np.asarray(linear) - np.eye(2)
    return np.concatenate([displacement.ravel(), translation]).astype(np.float32)


def test_quarter_turn() -> None:
    # What is read at (x, y) lies at (-y, x): the picture turns to the left by 90 degrees.
    given = image()
    result = MOVE(params([[0, -1], [1, 0]]), given)
    np.testing.assert_allclose(result, np.rot90(given), atol=1e-5)


def test_reflection_is_a_param() -> None:
    given = image(8, 10)
    result = MOVE(params([[-1, 0], [0, 1]]), given)
    np.testing.assert_allclose(result, given[:, ::-1], atol=1e-5)


def test_translation_by_a_pixel_reads_the_neighbour() -> None:
    given = image(8, 10)
    result = MOVE(params(np.eye(2), (2 / 10, -2 / 8)), given)
    expected = np.zeros_like(given)
    expected[1:, :-1] = given[:-1, 1:]
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_composition_applies_the_first_first(key: jax.Array) -> None:
    # Exact on the lattice: a quarter turn, then a step to the side.
    given = image()
    turn, step = params([[0, -1], [1, 0]]), params(np.eye(2), (2 / 8, 0.0))
    both = AFFINE.compose(jnp.asarray(turn), jnp.asarray(step))
    result = MOVE(both, given)
    np.testing.assert_allclose(result, MOVE(step, MOVE(turn, given)), atol=1e-5)
    other = AFFINE.compose(jnp.asarray(step), jnp.asarray(turn))
    assert np.abs(MOVE(other, given) - result).max() > 0.1


@eqx.filter_jit
def round_trip(first: jax.Array, second: jax.Array, grid: jax.Array) -> tuple:
    there, back = first, AFFINE.inverse(first)
    return (
        AFFINE.warp(back, AFFINE.warp(there, grid)),
        AFFINE.compose(there, back),
        AFFINE.compose(back, there),
        AFFINE.compose(AFFINE.compose(first, second), back),
        AFFINE.compose(first, AFFINE.compose(second, back)),
    )


@hypothesis.given(first=testing.params(AFFINE, 0.3), second=testing.params(AFFINE, 0.3))
def test_affine_maps_are_a_group(first: jax.Array, second: jax.Array) -> None:
    grid = np.asarray(pixel_grid(8, 10))
    returned, right, left, one_way, other_way = map(np.asarray, round_trip(first, second, grid))
    np.testing.assert_allclose(returned, grid, atol=1e-5)
    np.testing.assert_allclose(right, 0.0, atol=1e-5)
    np.testing.assert_allclose(left, 0.0, atol=1e-5)
    np.testing.assert_allclose(one_way, other_way, atol=1e-5)


def test_singular_map_has_no_inverse() -> None:
    singular = jnp.asarray(params([[0, 0], [0, 1]]))
    assert not jnp.all(jnp.isfinite(AFFINE.inverse(singular)))


def test_deformation_is_the_mean_squared_displacement() -> None:
    moved = np.random.default_rng(1).normal(size=6).astype(np.float32)
    grid = pixel_grid(300, 200)
    displacement = np.asarray(AFFINE.warp(jnp.asarray(moved), grid) - grid)
    expected = (displacement**2).sum(0).mean()
    np.testing.assert_allclose(AFFINE.deformation(jnp.asarray(moved))[0], expected, rtol=1e-3)


def test_unknown_boundary_is_refused() -> None:
    # The jaxtyping hook sees it first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="boundary"):
        Affine("wrap")


@pytest.mark.parametrize(
    "transform",
    [
        Affine(),
        ThinPlateSpline((3, 3)),
        compose(Projective(), Rotation()),
        pytest.param(Morphology(3), marks=pytest.mark.slow),
    ],
)
def test_single_precision_stays_where_double_is_the_default(transform):
    image = np.random.default_rng(0).random((6, 5, 1)).astype(np.float32)
    with jax.enable_x64(True):
        params = jnp.full((transform.num_params,), 0.01, jnp.float32)
        moved = jax.jit(transform)(params, jnp.asarray(image))

        def loss(p):
            return jnp.sum(transform(p, jnp.asarray(image)) ** 2)

        slope = jax.jit(jax.grad(loss))(params)
    assert (moved.dtype, slope.dtype) == (jnp.float32, jnp.float32)
    given = jnp.asarray(params), jnp.asarray(image)
    np.testing.assert_allclose(moved, jax.jit(transform)(*given), atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_large_images_in_half_precision_are_read_at_their_places(dtype: type) -> None:
    image = jnp.asarray(np.random.default_rng(0).random((9, 300, 1)), dtype)
    still = jnp.zeros(6, dtype)
    for same in (AFFINE(still, image), AFFINE.undo(still, image)):
        assert same.dtype == dtype
        np.testing.assert_allclose(same.astype(float), image.astype(float), atol=1e-4)


@pytest.mark.parametrize("transform", [Affine(), Colour(3), Identity()])
def test_other_numbers_of_params_are_refused(transform):
    params = jnp.zeros((transform.num_params + 1,))
    with pytest.raises(ValueError, match=f"has {transform.num_params} params, not"):
        transform(params, jnp.zeros((4, 4, 3)))


@pytest.mark.parametrize("transform", [Affine(), Colour(3), Morphology(3), Identity()])
def test_what_is_not_one_image_is_refused(transform):
    params = jnp.zeros((transform.num_params,))
    for shape in [(4,), (4, 4), (2, 4, 4, 3)]:
        # The jaxtyping hook sees some of them first.
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=r"channels"):
            transform(params, jnp.zeros(shape))


def test_a_mirrored_map_is_undone() -> None:
    points = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (2, 7)), dtype=jnp.float32)
    params = jnp.asarray([-2.1, 0.3, 0.2, -0.1, 0.05, -0.1])
    back = Affine().inverse_warp(params, Affine().warp(params, points))
    np.testing.assert_allclose(back, points, atol=1e-5)
