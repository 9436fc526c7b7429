import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import scipy.ndimage

from diffclust.transforms import Morphology

WHOLE = 20.0
"""tanh(20) is 1 in double precision: nothing of the image is blended in."""

NEVER = -1e6
"""The logit of an offset outside the region."""


def packed(blend: float, alpha: float, region_logits: np.ndarray) -> np.ndarray:
    """Params whose soft region is the sigmoid of these logits."""
    side = region_logits.shape[0]
    v, u = np.indices((side, side)) - side // 2
    rest = 1 - (u**2 + v**2) / 2
    return np.concatenate([[blend, alpha], (region_logits - rest).ravel()])


def hard(footprint: np.ndarray) -> np.ndarray:
    return np.where(footprint, -NEVER, NEVER)


def equation_6(image: np.ndarray, alpha: float, region: np.ndarray, mode: str) -> np.ndarray:
    """As it is printed, loop by loop, but for a[u', v']."""
    half = region.shape[0] // 2
    padded = np.pad(image, half, mode=mode)  # pyright: ignore[reportArgumentType, reportCallIssue]
    result = np.empty_like(image)
    for u, v in np.ndindex(image.shape):
        values = padded[u : u + 2 * half + 1, v : v + 2 * half + 1]
        weights = region * np.exp(alpha * values)
        result[u, v] = (weights * values).sum() / weights.sum()
    return result


@eqx.filter_jit
def moved(morphology: Morphology, params: jax.Array, image: jax.Array) -> jax.Array:
    return morphology(params, image)


@pytest.fixture(scope="module")
def image() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(9, 11))


@pytest.mark.parametrize(("boundary", "mode"), [("zero", "constant"), ("edge", "edge")])
@pytest.mark.parametrize("alpha", [-30.0, 0.0, 4.0])
def test_values_are_those_of_equation_6(
    image: np.ndarray, alpha: float, boundary: str, mode: str
) -> None:
    logits = np.random.default_rng(1).normal(size=(5, 5))
    region = 1 / (1 + np.exp(-logits))
    with jax.enable_x64(True):
        result = moved(
            Morphology(5, boundary=boundary), packed(0.4, alpha, logits), image[..., None]
        )
    expected = equation_6(image, alpha, region, mode)
    expected = image + np.tanh(0.4) * (expected - image)
    np.testing.assert_allclose(result[..., 0], expected, atol=1e-12)


# Lopsided, so that a region that is mirrored or turned is found out.
FOOTPRINT = np.zeros((7, 7), bool)
FOOTPRINT[1:5, 2] = FOOTPRINT[1, 3:6] = FOOTPRINT[6, 0] = True


@pytest.mark.parametrize(("boundary", "mode"), [("zero", "constant"), ("edge", "nearest")])
@pytest.mark.parametrize("sign", [1, -1], ids=["dilation", "erosion"])
def test_limits_are_dilation_and_erosion(
    image: np.ndarray, sign: int, boundary: str, mode: str
) -> None:
    if sign > 0:
        # SciPy's dilation mirrors its footprint: it takes the maximum of x[u - w].
        expected = scipy.ndimage.grey_dilation(image, footprint=FOOTPRINT[::-1, ::-1], mode=mode)
    else:
        expected = scipy.ndimage.grey_erosion(image, footprint=FOOTPRINT, mode=mode)
    morphology, errors = Morphology(boundary=boundary), []
    with jax.enable_x64(True):
        for alpha in (10.0, 100.0, 1e3, 1e4):
            result = moved(
                morphology, packed(WHOLE, sign * alpha, hard(FOOTPRINT)), image[..., None]
            )
            errors.append(np.abs(np.asarray(result)[..., 0] - expected).max())
    # At most log(offsets) / α away.
    assert (np.asarray(errors) < np.log(FOOTPRINT.sum()) / np.asarray([10, 100, 1e3, 1e4])).all()
    assert errors[0] > 0.01
    assert errors == sorted(errors, reverse=True)


def test_strokes_grow_and_shrink() -> None:
    bar = np.zeros((11, 11, 1), np.float32)
    bar[2:-2, 4:7] = 1
    at_rest = np.zeros(51, np.float32)
    at_rest[0] = 3
    thick, thin = (np.float32(a) * np.eye(51, dtype=np.float32)[1] for a in (15, -15))
    wider, narrower = (moved(Morphology(), at_rest + p, bar) for p in (thick, thin))
    assert np.sum(wider) > 1.3 * np.sum(bar)
    assert np.sum(narrower) < 0.7 * np.sum(bar)


def test_nothing_moves_without_a_blend(image: np.ndarray) -> None:
    params = np.random.default_rng(2).normal(size=51).astype(np.float32)
    params[0] = 0
    given = image[..., None].astype(np.float32)
    np.testing.assert_array_equal(moved(Morphology(), params, given), given)


@eqx.filter_jit
def loss_and_slopes(params: jax.Array, image: jax.Array) -> tuple:
    return jax.value_and_grad(lambda *at: jnp.sum(Morphology(5)(*at) ** 2), argnums=(0, 1))(
        params, image
    )


@pytest.mark.parametrize("alpha", [1e4, -1e4, 300.0, -300.0])
@pytest.mark.parametrize("logit", [0.0, -200.0, 200.0])
def test_large_alphas_are_finite(image: np.ndarray, alpha: float, logit: float) -> None:
    logits = np.full((5, 5), logit)
    logits[0, :2] = NEVER
    params = packed(0.5, alpha, logits).astype(np.float32)
    dark = (1e-3 * image[..., None]).astype(np.float32)
    dark[0, 0] = 1  # the one bright pixel leaves nothing of the others, unless by window
    value, slopes = loss_and_slopes(params, dark)
    assert np.isfinite(value)
    assert all(np.isfinite(slope).all() for slope in slopes)
    result = np.asarray(moved(Morphology(5), params, dark))
    assert dark.min() * 0.5 <= result[4:, 4:].max() <= 1e-3


def test_steep_and_gentle_images_of_one_batch(image: np.ndarray) -> None:
    alphas, logits = (3.0, -400.0, 90.0, 0.0), np.random.default_rng(4).normal(size=(3, 3))
    region = 1 / (1 + np.exp(-logits))
    params = np.stack([packed(WHOLE, alpha, logits) for alpha in alphas]).astype(np.float32)
    # A dark half, of which the bright one would leave nothing.
    picture = np.where(np.arange(11) < 6, 1e-2, 1.0) * image
    batch = np.stack([picture[..., None]] * len(alphas)).astype(np.float32)
    result = moved(jax.vmap(Morphology(3)), params, batch)
    expected = [equation_6(picture, alpha, region, "constant") for alpha in alphas]
    np.testing.assert_allclose(result[..., 0], expected, rtol=1e-4, atol=2e-6)


@eqx.filter_jit
def slopes_along(
    params: jax.Array, along: jax.Array, image: jax.Array, tint: jax.Array
) -> tuple[jax.Array, ...]:
    def path(t: jax.Array) -> jax.Array:
        return Morphology(3)(params + t * along, (image + t * tint)[..., None])[..., 0]

    still = jnp.zeros(())
    return tuple(mode(path)(still) for mode in (jax.jacfwd, jax.jacrev, jax.hessian))


@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=pytest.mark.slow), 3.0, -40.0])
def test_slopes_are_those_of_equation_6_in_all_modes(image: np.ndarray, alpha: float) -> None:
    rng, step = np.random.default_rng(3), 1e-6
    params = packed(0.7, alpha, rng.normal(size=(3, 3)))
    along, tint = rng.normal(size=params.shape), rng.normal(size=image.shape)

    def reference(t: float) -> np.ndarray:
        at, picture = params + t * along, image + t * tint
        v, u = np.indices((3, 3)) - 1
        region = 1 / (1 + np.exp(-(at[2:].reshape(3, 3) + 1 - (u**2 + v**2) / 2)))
        return picture + np.tanh(at[0]) * (equation_6(picture, at[1], region, "constant") - picture)

    expected = (reference(step) - reference(-step)) / (2 * step)
    with jax.enable_x64(True):
        forward, reverse, bend = slopes_along(params, along, image, tint)
    np.testing.assert_allclose(forward, expected, atol=1e-7)
    np.testing.assert_allclose(reverse, expected, atol=1e-7)
    coarse = 1e-4
    second = (reference(coarse) - 2 * reference(0.0) + reference(-coarse)) / coarse**2
    np.testing.assert_allclose(bend, second, atol=1e-4 * np.abs(second).max())


def test_channels_are_treated_each_by_itself_or_refused(image: np.ndarray) -> None:
    params = packed(0.5, 5.0, np.zeros((3, 3))).astype(np.float32)
    colour = np.stack([image, image[::-1], 1 - image], axis=-1).astype(np.float32)
    result = moved(Morphology(3, channelwise=True), params, colour)
    for channel in range(3):
        alone = moved(Morphology(3), params, colour[..., channel : channel + 1])
        np.testing.assert_allclose(result[..., channel], alone[..., 0], atol=1e-6)
    with pytest.raises(ValueError, match=r"no rule for colour.*3 channels.*channelwise=True"):
        Morphology(3)(jnp.asarray(params), jnp.asarray(colour))


def test_image_may_be_smaller_than_the_window(image: np.ndarray) -> None:
    params = packed(0.5, 2.0, np.zeros((7, 7))).astype(np.float32)
    small = image[:2, :3]
    result = moved(Morphology(), params, small[..., None].astype(np.float32))
    expected = equation_6(small, 2.0, np.full((7, 7), 0.5), "constant")
    np.testing.assert_allclose(result[..., 0], small + np.tanh(0.5) * (expected - small), atol=1e-6)


@pytest.mark.parametrize("window", [4, 0, -1])
def test_window_without_a_middle_is_refused(window: int) -> None:
    with pytest.raises(ValueError, match=f"window must be odd.*not {window}"):
        Morphology(window)


def test_unknown_boundary_is_refused() -> None:
    # The jaxtyping hook sees it first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="boundary"):
        Morphology(boundary="reflect")
