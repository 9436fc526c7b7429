from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust import testing
from diffclust.sampling import pixel_grid
from diffclust.transforms import (
    AbstractTransform,
    Affine,
    Colour,
    Compose,
    Identity,
    SpatialChain,
    ThinPlateSpline,
    Translation,
    compose,
)
from diffclust.types import Image, Params
from tests.registry import Gain

AFFINE, SPLINE, GAIN = Affine(), ThinPlateSpline((2, 3)), Gain(1)
PARTS = {"affine": (AFFINE, 6), "spline": (SPLINE, 12)}


def draw(size: int, scale: float = 0.1, seed: int = 0) -> np.ndarray:
    return scale * np.random.default_rng(seed).normal(size=size).astype(np.float32)


def test_map_of_a_chain_is_the_composed_maps_exactly() -> None:
    chain = compose(AFFINE, SPLINE, Affine())
    assert isinstance(chain, SpatialChain)
    params = jnp.asarray(draw(chain.num_params))
    first, second, third = params[:6], params[6:18], params[18:]
    grid = pixel_grid(8, 10)
    # The image is read at first(second(third(u))): the last transform's map acts first.
    expected = AFFINE.warp(first, SPLINE.warp(second, AFFINE.warp(third, grid)))
    np.testing.assert_array_equal(chain.warp(params, grid), expected)
    swapped = AFFINE.warp(third, SPLINE.warp(second, AFFINE.warp(first, grid)))
    assert jnp.max(jnp.abs(swapped - expected)) > 1e-3


def test_first_transform_acts_on_the_image_first() -> None:
    # Exact on the lattice: a quarter turn, then a step to the side.
    image = np.random.default_rng(0).uniform(size=(8, 8, 1)).astype(np.float32)
    turn = np.asarray([-1, -1, 1, -1, 0, 0], np.float32)
    step = np.asarray([0, 0, 0, 0, 2 / 8, 0], np.float32)
    result = eqx.filter_jit(compose(Affine(), Affine()))(np.concatenate([turn, step]), image)
    expected = np.zeros_like(image)
    expected[:, :-1] = np.rot90(image)[:, 1:]
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_fused_and_unfused_images_agree_where_they_are_smooth(key: jax.Array) -> None:
    image = testing.smooth_image(key, 40, 48, sigma=0.3)
    chain, params = compose(AFFINE, SPLINE), draw(18)
    fused = eqx.filter_jit(chain)(params, image)
    twice = eqx.filter_jit(SPLINE)(params[6:], eqx.filter_jit(AFFINE)(params[:6], image))
    inside = (slice(8, -8), slice(8, -8))
    assert np.abs(fused - image)[inside].max() > 0.05
    np.testing.assert_allclose(fused[inside], twice[inside], atol=0.01)


def test_chain_samples_the_image_once() -> None:
    # There and back again by half a pixel: two samplings would blur.
    image = np.random.default_rng(0).uniform(size=(8, 8, 1)).astype(np.float32)
    half = np.asarray([0, 0, 0, 0, 1 / 8, 0], np.float32)
    result = eqx.filter_jit(compose(Affine(), Affine()))(np.concatenate([half, -half]), image)
    np.testing.assert_allclose(result, image, atol=1e-5)


class Unfusable(AbstractTransform):
    """An affine map that does not say that it is spatial."""

    @property
    def num_params(self) -> int:
        return 6

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        return ("affine",)

    def deformation(self, params: Params) -> jax.Array:
        return Affine().deformation(params)

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        return Affine().bind(height, width)

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        return Affine().bind_variance(height, width)


def test_transform_that_is_not_spatial_breaks_the_run() -> None:
    both = compose(AFFINE, SPLINE, GAIN, SPLINE)
    assert isinstance(both, Compose)
    assert [type(run) for run in both.transforms] == [SpatialChain, Gain, ThinPlateSpline]
    assert both.num_params == 6 + 12 + 1 + 12
    assert both.deformation_terms == ("affine", "affine", "bending", "gain", "affine", "bending")
    params = jnp.asarray(draw(31))
    parts = [AFFINE.deformation(params[:6]), SPLINE.deformation(params[6:18])]
    parts += [GAIN.deformation(params[18:19]), SPLINE.deformation(params[19:])]
    np.testing.assert_allclose(both.deformation(params), jnp.concatenate(parts), rtol=1e-6)


def test_broken_run_applies_its_parts_in_turn() -> None:
    image = np.random.default_rng(0).uniform(size=(8, 8, 1)).astype(np.float32)
    params = draw(13)
    result = eqx.filter_jit(compose(Affine(), GAIN, Unfusable()))(params, image)
    brighter = (1 + params[6]) * np.asarray(eqx.filter_jit(AFFINE)(params[:6], image))
    expected = eqx.filter_jit(AFFINE)(params[7:], brighter)
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_what_was_composed_before_counts_as_its_parts() -> None:
    flat = compose(GAIN, AFFINE, SPLINE)
    for nested in (compose(compose(GAIN, AFFINE), SPLINE), compose(GAIN, compose(AFFINE, SPLINE))):
        assert nested == flat
    assert compose(flat, AFFINE) == compose(GAIN, AFFINE, SPLINE, AFFINE)


def test_one_transform_is_itself() -> None:
    assert compose(AFFINE) is AFFINE
    assert compose(GAIN) is GAIN


def test_nothing_to_compose_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one transform"):
        compose()
    with pytest.raises(ValueError, match="at least one transform"):
        SpatialChain(())
    # The jaxtyping hook sees it first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="transforms"):
        compose([Affine(), GAIN])  # pyright: ignore[reportArgumentType]


def test_mixed_boundaries_are_refused_within_a_run_only() -> None:
    with pytest.raises(ValueError, match="must have the same boundary.*'edge', 'zero'"):
        compose(Affine("edge"), Affine("zero"))
    across = compose(Affine("edge"), GAIN, Affine("zero"))
    assert across.num_params == 13


def test_chain_takes_the_first_affine_embedding() -> None:
    chain = compose(Identity(), SPLINE, Affine())
    embedding = chain.affine_embedding
    assert embedding is not None
    assert embedding.shape == (18, 6)
    np.testing.assert_array_equal(embedding[:12], SPLINE.affine_embedding)
    np.testing.assert_array_equal(embedding[12:], 0.0)
    assert compose(Identity(), Identity()).affine_embedding is None


def test_determinant_multiplies_along_the_chain() -> None:
    chain = compose(AFFINE, SPLINE)
    params, grid = jnp.asarray(draw(18, 0.2)), pixel_grid(8, 10)
    inner = SPLINE.warp(params[6:], grid)
    product = AFFINE.jacobian_determinant(params[:6], inner)
    product = product * SPLINE.jacobian_determinant(params[6:], grid)
    result = chain.jacobian_determinant(params, grid)
    np.testing.assert_allclose(result, product, atol=1e-5)
    step = 1e-2
    ends = [
        chain.warp(params, grid + step * np.asarray(s, np.float32)[:, None, None])
        for s in ([1, 0], [-1, 0], [0, 1], [0, -1])
    ]
    (xx, yx), (xy, yy) = (ends[0] - ends[1]) / (2 * step), (ends[2] - ends[3]) / (2 * step)
    np.testing.assert_allclose(result, xx * yy - xy * yx, atol=2e-3)


def test_parts_are_counted_from_the_end_too() -> None:
    whole, params = compose(Affine(), Translation()), jnp.asarray([0.1, 0.2])
    np.testing.assert_array_equal(whole.embed(-1, params), whole.embed(1, params))
    with pytest.raises(IndexError):
        whole.embed(2, params)


@pytest.mark.parametrize("parts", [(AFFINE,), (SPLINE,), (AFFINE, SPLINE)])
def test_maps_are_inverted(parts: tuple[AbstractTransform, ...]) -> None:
    transform = compose(*parts)
    assert isinstance(transform, Affine | ThinPlateSpline | SpatialChain)
    y, x = np.mgrid[-1:1:20j, -1:1:24j]
    image = jnp.asarray(np.exp(-12 * ((x - 0.2) ** 2 + (y + 0.1) ** 2))[..., None], jnp.float32)

    @jax.jit
    def errors(params: Params) -> tuple[jax.Array, jax.Array]:
        grid = pixel_grid(20, 24)
        there = transform.warp(params, transform.inverse_warp(params, grid))
        return there - grid, transform.undo(params, transform(params, image)) - image

    for seed in range(5):
        of_points, of_image = errors(jnp.asarray(draw(transform.num_params, seed=seed)))
        np.testing.assert_allclose(of_points, 0, atol=1e-5)
        # Read twice, it is smoother.
        np.testing.assert_allclose(of_image, 0, atol=0.1)


def test_positions_are_undone_and_colours_are_left() -> None:
    # Colours act between two maps, each of which is undone on its own.
    transform = compose(AFFINE, Colour(1), SPLINE)
    y, x = np.mgrid[-1:1:20j, -1:1:24j]
    image = jnp.asarray(np.exp(-12 * ((x - 0.2) ** 2 + (y + 0.1) ** 2))[..., None], jnp.float32)
    params = jnp.asarray(draw(transform.num_params, seed=1))
    _, colours, _ = transform.split(params)
    undone = jax.jit(lambda p, x: transform.undo(p, transform(p, x)))(params, image)
    np.testing.assert_allclose(undone, Colour(1)(colours, image), atol=0.1)


def test_large_maps_are_inverted_in_one_step_where_they_are_affine() -> None:
    grid = pixel_grid(6, 9)
    half_turn, shrunk = jnp.array([-2.0, 0, 0, -2, 0, 0]), jnp.array([-0.7, 0.1, 0, -0.7, 0.2, 0])
    for params in (half_turn, shrunk):
        back = AFFINE.inverse_warp(params, grid, num_steps=1)
        np.testing.assert_allclose(AFFINE.warp(params, back), grid, atol=1e-5)
        np.testing.assert_allclose(back, AFFINE.warp(AFFINE.inverse(params), grid), atol=1e-5)


def test_an_image_in_single_precision_is_moved_back_in_it_where_jax_has_double() -> None:
    with jax.enable_x64(True):
        image = jnp.ones((6, 7, 1), jnp.float32)
        assert SPLINE.undo(jnp.zeros(12, jnp.float32), image).dtype == jnp.float32
