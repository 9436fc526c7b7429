"""Images registered by their moments: what is taken out, what is left, and what is lost."""

import dataclasses

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.ndimage
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from diffclust.registration import RADIUS, Frame, place, slant, upright
from diffclust.sampling import pixel_grid
from diffclust.transforms import Affine

SIZES = ((48, 48), (61, 43), (36, 72))
FRAMES = ("place", "upright")


def blobs(
    height: int,
    width: int,
    seed: int,
    *,
    matrix: np.ndarray | None = None,
    shift: tuple[float, float] = (0.0, 0.0),
) -> np.ndarray:
    """Four smooth blobs near the middle, moved by p ↦ matrix p + shift in half shorter sides."""
    draw = np.random.default_rng(seed)
    shorter = min(height, width)
    x = (2 * np.arange(width) + 1 - width) / shorter - shift[0]
    y = (2 * np.arange(height) + 1 - height) / shorter - shift[1]
    points = np.stack(np.meshgrid(x, y), axis=-1)
    back = np.linalg.inv(np.eye(2) if matrix is None else matrix)
    points = points @ back.T
    image = np.zeros((height, width))
    for _ in range(4):
        centre = draw.uniform(-0.2, 0.2, 2)
        image += draw.uniform(0.4, 1.0) * np.exp(-0.5 * ((points - centre) ** 2).sum(-1) / 0.15**2)
    return (image / image.max())[..., None].astype(np.float32)


moved_by = jax.jit(Affine())


@eqx.filter_jit
def registered(frame: Frame, image: jax.Array) -> jax.Array:
    return frame(image)


def seen(frame: Frame, image: np.ndarray) -> np.ndarray:
    return np.asarray(registered(frame, jnp.asarray(image)))


def moments(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass and covariance, in half shorter sides, by NumPy alone."""
    height, width = image.shape[:2]
    shorter, ink = min(height, width), image.sum(-1)
    x = (2 * np.arange(width) + 1 - width) / shorter
    y = (2 * np.arange(height) + 1 - height) / shorter
    points = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    share = ink.ravel() / ink.sum()
    centre = share @ points
    return centre, (points - centre).T @ ((points - centre) * share[:, None])


sizes = st.sampled_from(SIZES)
seeds = st.integers(0, 50)
shifts = st.tuples(st.floats(-0.2, 0.2), st.floats(-0.2, 0.2))
scales = st.floats(0.8, 1.15)
shears = st.floats(-0.4, 0.4)


@hypothesis.given(sizes, seeds, shifts, scales, st.sampled_from(FRAMES))
def test_place_and_size_are_taken_out(size, seed, shift, scale, frame):
    there = blobs(*size, seed, matrix=scale * np.eye(2), shift=shift)
    np.testing.assert_allclose(
        seen(Frame(frame), there), seen(Frame(frame), blobs(*size, seed)), atol=0.06
    )


@hypothesis.given(sizes, seeds, shifts, shears)
def test_slant_is_taken_out_of_upright_images(size, seed, shift, shear):
    there = blobs(*size, seed, matrix=np.array([[1.0, shear], [0.0, 1.0]]), shift=shift)
    np.testing.assert_allclose(
        seen(Frame("upright"), there), seen(Frame("upright"), blobs(*size, seed)), atol=0.06
    )


@jax.jit
def placed(image: jax.Array) -> jax.Array:
    return Affine()(place(image, radius=0.12), image)


@hypothesis.given(sizes, seeds, st.sampled_from([0.5, np.pi / 2, np.pi]))
def test_rotations_are_left(size, seed, angle):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    straight, turned = (
        placed(jnp.asarray(blobs(*size, seed, matrix=m))) for m in (np.eye(2), turn)
    )
    # The same map by hand; in units of each side its shears are not alike.
    linear = (turn.T - np.eye(2)) * np.array([[1, size[0] / size[1]], [size[1] / size[0], 1]])
    params = jnp.asarray(np.append(linear.ravel(), [0.0, 0.0]), straight.dtype)
    np.testing.assert_allclose(turned, moved_by(params, straight), atol=0.08)


@hypothesis.given(sizes, seeds, st.sampled_from(FRAMES))
def test_a_mirrored_image_registers_to_the_mirror_image(size, seed, frame):
    image = blobs(*size, seed)
    # Along both axes it is turned by half, as a 6 is that looks like a 9: `upright` keeps that too.
    for axis in (0, 1, (0, 1)):
        mirrored = np.flip(image, axis)
        expected = np.flip(seen(Frame(frame), image), axis)
        np.testing.assert_allclose(seen(Frame(frame), mirrored), expected, atol=2e-4)


@hypothesis.given(sizes, seeds, shifts, shears, scales, st.sampled_from(FRAMES))
def test_twice_is_once(size, seed, shift, shear, scale, frame):
    matrix = scale * np.array([[1.0, shear], [0.0, 1.0]])
    once = seen(Frame(frame), blobs(*size, seed, matrix=matrix, shift=shift))
    np.testing.assert_allclose(seen(Frame(frame), once), once, atol=0.06)


@hypothesis.given(sizes, seeds, shifts, shears, st.sampled_from(FRAMES))
def test_moments_of_registered_images(size, seed, shift, shear, frame):
    image = blobs(*size, seed, matrix=np.array([[1.0, shear], [0.0, 1.0]]), shift=shift)
    centre, covariance = moments(seen(Frame(frame), image))
    np.testing.assert_allclose(centre, 0.0, atol=0.02)
    assert np.sqrt(np.trace(covariance) / 2) <= 2 * RADIUS * 1.03
    if frame == "upright":
        assert abs(covariance[0, 1]) < 0.03 * covariance[1, 1]


@pytest.mark.parametrize("size", SIZES)
def test_figures_are_said_in_pixels(size):
    image = blobs(*size, 3, matrix=np.array([[0.6, 0.2], [0.0, 0.5]]), shift=(0.1, -0.15))
    frame = Frame("upright")
    found = frame.figures(frame.params_of(image[None]), image.shape)[0]
    ink, (rows, columns) = image[..., 0] / image.sum(), np.indices(size)
    x, y = (ink * columns).sum(), (ink * rows).sum()
    lean = (ink * (columns - x) * (rows - y)).sum() / (ink * (rows - y) ** 2).sum()
    spread = (ink * ((columns - x - lean * (rows - y)) ** 2 + (rows - y) ** 2)).sum() / 2
    expected = [x, y, np.sqrt(spread) / (RADIUS * min(size)), lean]
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.02)


def test_radius_is_that_of_the_recipe():
    # A disk of 14 pixels of 40; on 28 the recipe has 5.5 pixels.
    x, y = np.asarray(pixel_grid(40, 40)) * 20
    disk = np.clip(7.5 - np.hypot(x - 3, y + 2), 0, 1)[..., None].astype(np.float32)
    _, covariance = moments(seen(Frame("place"), disk))
    assert 14 * np.sqrt(np.trace(covariance) / 2) == pytest.approx(5.5, rel=0.02)


@jax.jit
def composed_and_upright(image: jax.Array) -> tuple[jax.Array, jax.Array]:
    lean = slant(image)
    return Affine().compose(lean, place(Affine()(lean, image))), upright(image)


@hypothesis.given(sizes, seeds, shifts)
def test_slant_and_then_place_are_upright(size, seed, shift):
    image = jnp.asarray(blobs(*size, seed, matrix=np.array([[1, 0.3], [0, 1.0]]), shift=shift))
    composed, expected = composed_and_upright(image)
    np.testing.assert_allclose(composed, expected, atol=0.03)


@hypothesis.given(
    seeds, st.floats(0.5, 3.0), st.floats(-0.9, 0.9), st.sampled_from(FRAMES), st.booleans()
)
def test_no_ink_is_lost(seed, stretch, shear, frame, is_wide):
    # Long and thin: at the wanted radius it would stick out.
    draw = np.random.default_rng(seed)
    image = np.zeros((32, 48 if is_wide else 32, 1), np.float32)
    image[2:30, 15:17] = 1.0
    image[8:12, 4 : int(6 + 6 * stretch)] = draw.uniform(0.5, 1.0)
    if shear > 0:
        image = image.transpose(1, 0, 2)
    image = gaussian_filter(image, (1, 1, 0))  # pixels miss the ink of sharp edges between them
    params = jax.jit(place if frame == "place" else upright)(jnp.asarray(image))
    moved = np.asarray(Affine()(params, jnp.asarray(image)))
    area = float((1 + params[0]) * (1 + params[3]))
    assert moved.sum() * area == pytest.approx(image.sum(), rel=0.02)


@hypothesis.given(seeds, shifts, st.sampled_from(FRAMES), st.sampled_from([28, 33]))
def test_no_ink_is_lost_on_a_smaller_canvas(seed, shift, frame, side):
    # Up to a factor of two one point is read for each pixel: smooth figures lose nothing by that,
    # and what is fainter than a twentieth may leave the canvas.
    image = blobs(48, 48, seed, shift=shift)
    smaller = Frame(frame, least_side=side, most_side=side)
    moved = seen(smaller, image)
    *_, a, _, _, d, _, _ = np.asarray(smaller.find(jnp.asarray(image)))
    area = (1 + a) * (1 + d) * (48 / side) ** 2
    assert moved.shape == (side, side, 1)
    assert moved.sum() * area == pytest.approx(image.sum(), rel=0.04)


def test_what_a_rim_surrounds_is_the_object():
    # A light picture in a black rim, such as a passe-partout, with a figure at two places.
    mask = np.zeros((40, 40))
    mask[6:34, 6:34] = 1.0
    images = np.where(mask, 0.5, 0.0)[None, ..., None].repeat(2, 0).astype(np.float32)
    images[0, 10:16, 10:14] = images[1, 24:30, 26:30] = 1.0
    for hidden, is_placed in ((None, False), (mask, True)):
        frame = Frame("place", "light", mask=hidden)
        one, other = (seen(frame, image) for image in images)
        assert (np.abs(one - other).max() < 0.1) == is_placed


@pytest.mark.parametrize("frame", FRAMES)
def test_a_blank_image_stays(frame):
    blank = np.zeros((9, 12, 1), np.float32)
    params = jax.jit(Frame(frame).find)(jnp.asarray(blank))
    assert not np.asarray(params).any()
    assert not seen(Frame(frame), blank).any()


@pytest.mark.parametrize("frame", FRAMES)
def test_one_pixel_is_moved_to_the_middle_and_keeps_its_size(frame):
    image = np.zeros((9, 11, 1), np.float32)
    image[1, 8] = 0.5
    result = seen(Frame(frame), image)
    assert result[4, 5] == pytest.approx(0.5, abs=1e-5)
    assert np.abs(result).sum() == pytest.approx(0.5, abs=1e-5)
    np.testing.assert_allclose(seen(Frame(frame), result), result, atol=1e-5)


def test_a_line_is_not_sheared():
    image = np.zeros((20, 20, 1), np.float32)
    image[5, 3:15] = 1.0
    np.testing.assert_allclose(slant(jnp.asarray(image)), np.zeros(6), atol=1e-6)


def test_shears_are_limited():
    image = np.zeros((20, 40, 1), np.float32)
    for row in range(4, 16):
        image[row, 2 * row + 2 : 2 * row + 4] = 1.0
    params = np.asarray(slant(jnp.asarray(image)))
    # In pixels the shear is params[1] · width / height.
    assert params[1] * 2.0 == pytest.approx(1.0, abs=1e-5)


def test_of_a_larger_shear_a_second_registration_takes_out_the_rest():
    image = blobs(36, 72, 2, matrix=0.7 * np.array([[1.0, 2.0], [0.0, 1.0]]))
    slants = []
    for _ in range(3):
        _, covariance = moments(image)
        slants.append(covariance[0, 1] / covariance[1, 1])
        image = seen(Frame("upright"), image)
    assert slants[0] > 1.2
    assert slants[1] == pytest.approx(slants[0] - 1.0, abs=0.1)
    assert abs(slants[2]) < 0.03


def test_hidden_pixels_are_no_ink():
    image = blobs(32, 32, 1, shift=(0.2, 0.1))
    spoilt, mask = image.copy(), np.ones((32, 32))
    spoilt[:3], mask[:3] = 1.0, 0.0
    np.testing.assert_allclose(
        place(jnp.asarray(spoilt), mask=mask), place(jnp.asarray(image), mask=mask), atol=1e-6
    )
    assert np.abs(place(jnp.asarray(spoilt)) - place(jnp.asarray(image))).max() > 0.1


@pytest.mark.parametrize("ink", ["none", "light", "dark", "colour", "keep"])
@pytest.mark.parametrize("frame", ["none", *FRAMES])
def test_hidden_pixels_say_nothing_in_any_frame(frame, ink):
    image = 0.2 + 0.6 * np.repeat(blobs(24, 20, 1, shift=(0.2, 0.1)), 3, axis=2)
    if ink == "dark":
        image = 1.0 - image
    spoilt, mask = image.copy(), np.ones((24, 20))
    spoilt[5:9, 14:18], mask[5:9, 14:18] = np.array([1.0, 0.0, 0.3]), 0.0
    hiding = Frame(frame, ink, mask=mask)
    np.testing.assert_allclose(seen(hiding, spoilt), seen(hiding, image), atol=1e-5)


@hypothesis.given(sizes, seeds, shifts, st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))
def test_a_ground_that_changes_evenly_is_taken_out_of_frames(size, seed, shift, across, down):
    height, width = size
    image = 0.3 + 0.4 * blobs(height, width, seed, shift=shift)
    slope = across * np.linspace(-1, 1, width) + down * np.linspace(-1, 1, height)[:, None]
    there = (image + slope[..., None]).astype(np.float32)
    frame = Frame("upright", "light")
    np.testing.assert_allclose(seen(frame, there), seen(frame, image), atol=0.08)


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("frame", FRAMES)
def test_a_turned_figure_is_another(frame, turns):
    image = np.zeros((32, 32, 1), np.float32)
    image[6:26, 10:13] = image[22:26, 10:22] = 1.0
    turned = np.ascontiguousarray(np.rot90(image, turns))
    assert np.abs(seen(Frame(frame), image) - seen(Frame(frame), turned)).max() > 0.5


@pytest.mark.parametrize("frame", FRAMES)
def test_a_figure_cut_by_the_border_is_registered_by_what_is_seen_of_it(frame):
    whole = blobs(48, 48, 3, shift=(0.3, -0.1))
    cut = whole.copy()
    cut[:, 30:] = 0.0
    # In the middle of the image or at its border, where the other half would be outside.
    at_border = np.zeros_like(cut)
    at_border[:, 18:] = cut[:, :30]
    np.testing.assert_allclose(seen(Frame(frame), at_border), seen(Frame(frame), cut), atol=1e-4)
    centre, _ = moments(seen(Frame(frame), at_border))
    np.testing.assert_allclose(centre, 0.0, atol=0.02)
    # So it does not lie where it would as a part of the whole figure.
    assert np.abs(seen(Frame(frame), at_border) - seen(Frame(frame), whole)).max() > 0.3


@pytest.mark.parametrize("frame", FRAMES)
def test_without_a_plain_ground_all_brightness_is_ink(frame):
    image = np.random.default_rng(0).uniform(size=(24, 30, 1)).astype(np.float32)
    image[:, 15:] *= 0.5
    centre, _ = moments(image)
    params = np.asarray({"place": place, "upright": upright}[frame](jnp.asarray(image)))
    np.testing.assert_allclose(params[4:] * [30 / 24, 1], centre, atol=1e-5)
    # All of it stays on the canvas, made smaller where it is off the middle.
    assert params[0] > 0


@pytest.mark.parametrize("frame", FRAMES)
def test_faint_specks_at_the_border_do_not_keep_a_figure_small(frame):
    clean = np.zeros((40, 40, 1), np.float32)
    clean[8:32, 9:33] = blobs(24, 24, 3)
    specks, dots = clean.copy(), clean.copy()
    specks[[1, 2, 37, 38], [2, 36, 1, 38]] = 0.08
    dots[[1, 2, 37, 38], [2, 36, 1, 38]] = 0.8
    find = {"place": place, "upright": upright}[frame]
    sizes = [float(find(jnp.asarray(image))[3]) for image in (clean, specks, dots)]
    # They weigh little. A figure that reached as far would not be enlarged.
    assert sizes[0] < sizes[1] < sizes[0] + 0.15 < -0.2, sizes
    # Bright ones are ink, and stay on the canvas.
    assert sizes[2] > -0.1, sizes


@pytest.mark.parametrize("register", [place, upright])
def test_clutter_is_ink(register):
    image = blobs(32, 32, 2)
    cluttered = image.copy()
    cluttered[1:4, 1:4] = 1.0
    there, before = (moments(x)[0] for x in (cluttered, image))
    params = np.asarray(register(jnp.asarray(cluttered)))
    np.testing.assert_allclose(params[4:], there, atol=1e-5)
    assert np.abs(there - before).max() > 0.03


def test_it_goes_through_vmap_and_gradients_are_finite():
    images = np.stack([blobs(12, 10, 0), np.zeros((12, 10, 1), np.float32)])
    every = jax.jit(jax.vmap(Frame("upright")))(jnp.asarray(images))
    np.testing.assert_allclose(every[0], seen(Frame("upright"), images[0]), atol=1e-5)
    slope = jax.jit(jax.grad(lambda x: jnp.sum(Frame("upright")(x) ** 2)))
    for image in images:
        assert np.isfinite(slope(jnp.asarray(image))).all()


def test_masks_weigh_pixels_by_fractions() -> None:
    draw = np.random.default_rng(0)
    image = draw.uniform(size=(20, 30)).astype(np.float32)
    mask = draw.integers(0, 256, image.shape) / 255
    row, column = scipy.ndimage.center_of_mass(image * mask)
    expected = (2 * column + 1) / 30 - 1, (2 * row + 1) / 20 - 1
    found = place(jnp.asarray(image[..., None]), mask=mask)[4:]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("frame", [Frame("place"), Frame("place", "dark"), Frame("none", "keep")])
def test_a_mask_of_another_size_is_refused(frame: Frame) -> None:
    image, mask = jnp.asarray(blobs(8, 8, 0)), np.pad(np.ones((7, 7)), 1)
    with pytest.raises(ValueError, match="mask is of 9x9 pixels and the images are of 8x8"):
        dataclasses.replace(frame, mask=mask)(image)
    with pytest.raises(ValueError, match="mask is of 9x9 pixels and the images are of 8x8"):
        place(image, mask=mask)


def test_images_in_half_precision_are_registered() -> None:
    image = np.zeros((1, 400, 400, 1), np.float16)
    image[:, 50:350, 50:300] = 1.0
    wanted = Frame("place").params_of(image.astype(np.float32))
    np.testing.assert_array_equal(Frame("place").params_of(image), wanted)


def test_masked_values_are_refused() -> None:
    images = np.ma.masked_less(np.random.default_rng(0).random((2, 5, 6, 1), np.float32), 0.5)
    with pytest.raises(ValueError, match="images has masked values"):
        Frame("place").registered(images)


def test_images_of_a_single_colour_are_not_moved() -> None:
    image = jnp.full((9, 12, 1), 0.7)
    mask = np.zeros((9, 12))
    mask[2:5, 1:4] = 1.0
    for function in (place, slant, upright):
        np.testing.assert_array_equal(function(image), 0.0)
        np.testing.assert_array_equal(function(image, mask=mask), 0.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"place": "auto"}, "place must be one of"),
        ({"ink": "auto"}, "ink must be one of"),
        ({"most_side": 0}, "most_side must be at least 1"),
    ],
)
def test_frames_of_unknown_words_are_refused(given: dict, message: str) -> None:
    (name, value), frame = *given.items(), Frame()
    # Under test, jaxtyping's hook would refuse it before the frame's own check.
    object.__setattr__(frame, name, value)
    with pytest.raises(ValueError, match=message):
        frame.__check_init__()
