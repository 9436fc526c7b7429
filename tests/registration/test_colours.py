"""The ground of images, their colours, and frames of both: found, taken out and brought back."""

import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from diffclust.image_source import SizedImages
from diffclust.parallel import Data
from diffclust.registration import Frame, choose_ink, ink_of
from diffclust.registration.colours import (
    _principal_axis,
    colour,
    figure,
    ground,
    ink_votes,
    without_ground,
)
from diffclust.registration.frames import own_sides, votes_of
from diffclust.sampling import pixel_grid
from tests.registration.test_images import blobs

colours = st.tuples(*[st.floats(0.0, 1.0)] * 3)
register = eqx.filter_jit(lambda frame, image: frame(image))
find = eqx.filter_jit(lambda frame, image: frame.find(image))
compiled_ground, compiled_figure = jax.jit(ground), jax.jit(figure)


@eqx.filter_jit
def there_and_back(frame: Frame, params: jax.Array, image: jax.Array) -> jax.Array:
    return frame.restore(params, frame.apply(params, image), image.shape)


def seen(frame: Frame, image: np.ndarray) -> np.ndarray:
    return np.asarray(register(frame, jnp.asarray(image, jnp.float32)))


def coloured(ink: np.ndarray, front, back) -> np.ndarray:
    return ink * np.asarray(front, np.float32) + (1 - ink) * np.asarray(back, np.float32)


@hypothesis.given(st.integers(0, 20), colours, colours, st.sampled_from(["none", "upright"]))
def test_colours_are_taken_out(seed, front, back, place):
    hypothesis.assume(np.linalg.norm(np.subtract(front, back)) > 0.25)
    image = blobs(48, 40, seed, matrix=0.6 * np.eye(2))
    expected = seen(Frame(place, "colour"), image)
    result = seen(Frame(place, "colour"), coloured(image, front, back))
    assert result.shape == (48, 40, 1)
    np.testing.assert_allclose(result, expected, atol=2e-3 if place == "none" else 0.02)
    # Moved images are read a second time, and lighter peaks are divided by the largest.
    atol = 1e-6 if place == "none" else 0.08
    np.testing.assert_allclose(seen(Frame(place, "colour"), result), result, atol=atol)


@pytest.mark.parametrize("ink", ["none", "dark", "light", "colour"])
def test_twice_is_once_with_any_ink_and_on_another_canvas(ink):
    image = blobs(56, 70, 3, matrix=np.array([[0.5, 0.1], [0, 0.6]]), shift=(0.2, -0.1))
    image = {"none": image, "dark": 0.2 + 0.7 * image, "light": 0.9 - 0.7 * image}.get(
        ink, coloured(image, (0.9, 0.1, 0.2), (0.1, 0.3, 0.8))
    )
    once = seen(Frame("upright", ink, most_side=40), image)
    assert once.shape == (40, 50, 1)
    # What is registered is bright on black.
    twice = seen(Frame("upright", "dark" if ink == "light" else ink, most_side=40), once)
    # Peaks that were read between pixels are brought to 1, and faint ends of the figure may be
    # taken for the ground's noise.
    atol = 0.06 if ink == "none" else 0.09
    np.testing.assert_allclose(twice / twice.max(), once / once.max(), atol=atol)


@pytest.mark.parametrize(("ink", "channels"), [("dark", 1), ("light", 1), ("colour", 3)])
def test_params_are_those_of_transforms(ink, channels):
    image = blobs(30, 24, 2, matrix=np.array([[0.6, 0.2], [0, 0.6]]), shift=(0.1, 0.1))
    front, back = ((0.9, 0.1, 0.2), (0.1, 0.3, 0.8)) if ink == "colour" else ([0.9], [0.2])
    image = jnp.asarray(coloured(image, *((back, front) if ink == "light" else (front, back))))
    frame = Frame("upright", ink)
    params = find(frame, image)
    # `Colour` and `Affine` clip nothing below the ground, where there is only rounding here, and
    # make all channels grey where the frame keeps one.
    moved = frame.transform(channels)(params, image)
    np.testing.assert_allclose(moved[..., :1], frame.apply(params, image), atol=2e-3)


@hypothesis.given(st.integers(0, 20), st.floats(0.3, 1.0), st.floats(0.0, 0.5))
def test_one_gain_and_ground_are_taken_out(seed, gain, level):
    ink = blobs(20, 24, seed, matrix=0.5 * np.eye(2))
    expected = seen(Frame("place", "dark"), ink)
    for kind, image in (("dark", gain * ink + level), ("light", 1.0 - gain * ink)):
        np.testing.assert_allclose(seen(Frame("place", kind), image), expected, atol=0.01)


slopes = st.floats(-0.2, 0.2)


@hypothesis.given(st.integers(0, 20), colours, slopes, slopes)
def test_a_gradient_is_found(seed, level, across, down):
    x, y = np.asarray(pixel_grid(20, 30))
    ink = blobs(20, 30, seed, matrix=0.5 * np.eye(2))
    surface = np.asarray(level) + (across * x + down * y)[..., None]
    image = jnp.asarray(surface * (1 - ink), jnp.float32)
    left = np.asarray(jax.jit(without_ground)(image, compiled_ground(image)))
    np.testing.assert_allclose(left[0], 0.0, atol=5e-3)
    np.testing.assert_allclose(left, -surface * ink, atol=5e-3)


def test_a_figure_may_touch_the_border():
    image = np.full((20, 20, 1), 0.3, np.float32)
    image[5:14, :9] = 0.9
    params = np.asarray(ground(jnp.asarray(image)))
    np.testing.assert_allclose(params, [0.0, -0.3, 0.0, 0.0], atol=1e-6)


@pytest.mark.parametrize("slopes", [(0.2, 0.2), (0.2, -0.1), (0.0, 0.3)])
@pytest.mark.parametrize(
    "shown", [lambda x, y: y >= x, lambda x, y: x**2 + 2 * (y - 0.2 * x) ** 2 < 0.8]
)
def test_a_gradient_is_found_where_a_mask_leaves_no_four_sides(slopes, shown):
    x, y = np.asarray(pixel_grid(32, 32))
    mask = shown(x, y)
    ground_of = 0.5 + slopes[0] * x + slopes[1] * y
    # Ink hides a part of the border.
    image = np.where((x + 0.5) ** 2 + (y - 0.9) ** 2 < 0.05, 1.0, ground_of)[..., None]
    params = np.asarray(ground(jnp.asarray(image, jnp.float32), mask=mask))
    np.testing.assert_allclose(params, [0.0, -0.5, *np.negative(slopes)], atol=1e-4)


def test_border_of_a_mask_is_that_of_what_is_seen():
    x, y = np.asarray(pixel_grid(24, 24))
    disk = x**2 + y**2 < 0.9
    image = np.where(disk, 0.4, 1.0)[..., None].astype(np.float32)
    image[10:14, 10:14] = 0.9
    params = np.asarray(ground(jnp.asarray(image), mask=disk))
    np.testing.assert_allclose(params, [0.0, -0.4, 0.0, 0.0], atol=1e-6)
    result = seen(Frame("none", "dark", mask=disk), image)
    assert result[12, 12] == pytest.approx(1.0)
    assert result.sum() == pytest.approx(16.0)


@pytest.mark.parametrize(
    "ink", ["colour", *(pytest.param(ink, marks=pytest.mark.slow) for ink in ("dark", "light"))]
)
def test_a_constant_image_becomes_blank(ink):
    image = np.full((8, 9, 3), 0.7, np.float32)
    result = seen(Frame("upright", ink), image)
    assert np.isfinite(result).all()
    assert not result.any()
    slope = jax.jit(jax.grad(lambda x: jnp.sum(Frame("upright", ink)(x))))(jnp.asarray(image))
    assert np.isfinite(slope).all()


def test_noise_of_the_ground_is_no_ink():
    ink = blobs(28, 28, 0, matrix=0.5 * np.eye(2))
    noise = 0.02 * np.random.default_rng(0).normal(size=ink.shape)
    clean, noisy = (seen(Frame("place", "dark"), 0.2 + 0.7 * ink + e) for e in (0.0, noise))
    np.testing.assert_allclose(noisy, clean, atol=0.15)
    assert np.abs(noisy[:3]).max() < 0.08


@hypothesis.given(st.integers(0, 20), colours, colours)
def test_pictures_are_brought_back(seed, front, back):
    hypothesis.assume(np.linalg.norm(np.subtract(front, back)) > 0.25)
    ink = blobs(28, 28, seed, matrix=np.array([[0.6, 0.2], [0, 0.6]]), shift=(0.2, -0.1))
    image, frame = jnp.asarray(coloured(ink, front, back)), Frame("upright", "colour")
    params = find(frame, image)
    assert params.shape == (frame.transform(3).num_params,)
    restored = there_and_back(frame, params, image)
    # Both ways are bilinear; of these 21 images at full contrast the worst is off by 0.063.
    np.testing.assert_allclose(restored, image, atol=0.065)


@pytest.mark.parametrize("ink", ["none", "colour"])
def test_small_images_are_read_at_more_pixels(ink):
    small = jnp.asarray(coloured(blobs(12, 16, 0, matrix=0.5 * np.eye(2)), (1, 1, 0), (0, 0, 0)))
    alone, frame = Frame("none", ink), Frame("none", ink, least_side=24)
    assert frame.shape(small.shape) == (24, 32, 1 if ink == "colour" else 3)
    # The border is black.
    wanted = jax.image.resize(register(alone, small), frame.shape(small.shape), "linear")
    np.testing.assert_allclose(register(frame, small), wanted, atol=1e-6)
    upright = Frame("upright", ink, least_side=24)
    params = find(upright, small)
    np.testing.assert_array_equal(params, find(Frame("upright", ink), small))
    back = there_and_back(upright, params, small)
    np.testing.assert_allclose(back, small, atol=0.06)


def test_large_images_stay_and_streamed_ones_are_enlarged_too():
    images = made(3, "black")
    assert Frame("none", least_side=20).registered(images) is images
    frame = Frame("none", least_side=28)
    result = frame.registered(Stored(images))
    assert result.shape == (3, 28, 28, 1)
    np.testing.assert_array_equal(result[np.arange(3)], frame.registered(images))


@hypothesis.given(st.integers(0, 20), st.integers(0, 40), st.integers(0, 40))
def test_figures_are_as_large_as_they_are_whatever_is_around_them(seed, above, before):
    image = blobs(28, 28, seed, matrix=np.array([[0.8, 0.2], [0, 0.8]]))[None]
    around = np.pad(image, ((0, 0), (above, 40 - above), (before, 40 - before), (0, 0)))
    alone, side = own_sides(image, Frame("upright")), own_sides(around, Frame("upright"))
    np.testing.assert_allclose(side, alone, atol=0.25)
    frame = Frame("upright", most_side=28)
    read = np.asarray(register(frame, jnp.asarray(around[0])))
    assert read.shape == frame.shape(around.shape[1:]) == (28, 28, 1)
    np.testing.assert_allclose(read.sum(), image.sum() * (28 / side[0]) ** 2, rtol=0.06)


@pytest.mark.parametrize("size", [160, 320])
def test_much_larger_images_keep_their_ink(size):
    image = np.zeros((size, size, 1), np.float32)
    image[size // 4 : 3 * size // 4, size // 2 : size // 2 + 2] = 1.0
    image[size // 3 : size // 3 + 2, size // 4 : 3 * size // 4] = 1.0
    read = np.asarray(register(Frame("none", most_side=28), jnp.asarray(image)))
    np.testing.assert_allclose(read.sum() / 28**2, image.sum() / size**2, rtol=0.35)
    assert (read[8:20, 13:16].sum(axis=1) > 0).all()


def test_images_without_weight_say_nothing_of_sizes():
    images, weight = made(6, "black"), np.array([0.0, 1, 1, 0, 2, 1])
    index = Data(images, weight).evenly_spaced(2048)
    of_some = own_sides(images, Frame("place"), index=index)
    np.testing.assert_array_equal(of_some, own_sides(images[weight > 0], Frame("place")))
    assert own_sides(images, Frame("place"), index=index[:0]).shape == (0,)
    blank = np.concatenate([np.zeros_like(images), images])
    np.testing.assert_array_equal(
        own_sides(blank, Frame("place")), own_sides(images, Frame("place"))
    )


def made(count: int, kind: str) -> np.ndarray:
    draw = np.random.default_rng(0)
    ink = np.stack([blobs(20, 20, i % 7, matrix=0.5 * np.eye(2)) for i in range(count)])
    if kind == "colours":
        front, back = draw.uniform(size=(2, count, 1, 1, 3)).astype(np.float32)
        return ink * front + (1 - ink) * back
    if kind == "colours and noise":
        front, back = np.split(draw.uniform(0.0, 0.4, (2 * count, 1, 1, 3)), 2)
        noise = 0.03 * draw.normal(size=(count, 20, 20, 3))
        return (ink * front + (1 - ink) * (0.6 + back) + noise).astype(np.float32)
    if kind in ("inks", "one ink", "grey inks"):
        fronts = np.array([[0.9, 0.2, 0.1], [0.1, 0.6, 0.2], [0.2, 0.2, 0.9]], np.float32)
        fronts = {"one ink": fronts[:1], "grey inks": [[0.0] * 3, [0.6] * 3]}.get(kind, fronts)
        front = np.resize(np.asarray(fronts, np.float32), (count, 1, 1, 3))
        noise = 0.02 * draw.normal(size=(count, 20, 20, 3))
        return (ink * front + (1 - ink) + noise).clip(0.0, 1.0).astype(np.float32)
    if kind == "polarities in RGB":
        sign = np.resize([1.0, -1.0], count)[:, None, None, None].astype(np.float32)
        return np.repeat(0.5 + 0.4 * sign * ink, 3, axis=3)
    if kind == "clipped noise":
        return (ink + 0.05 * draw.normal(size=ink.shape)).clip(0.0, 1.0).astype(np.float32)
    if kind == "noise":
        return draw.uniform(size=ink.shape).astype(np.float32)
    if kind == "two grounds":
        turned = np.arange(count)[:, None, None, None] % 2
        return np.where(turned, ink, 1 - ink)
    if kind == "photographs":
        front = np.kron(draw.uniform(0.0, 1.0, (count, 2, 2, 3)), np.ones((1, 10, 10, 1)))
        return (ink * front + (1 - ink) * 0.5).astype(np.float32)
    faint = np.float32(2 / 255)
    plain = {"black": ink, "dark": 0.3 + 0.7 * ink, "light": 1 - ink}
    return (plain | {"almost black": faint + (1 - faint) * ink})[kind]


@pytest.mark.parametrize(
    ("kind", "ink"),
    [
        ("black", "none"),
        ("almost black", "dark"),
        ("clipped noise", "dark"),
        ("dark", "dark"),
        ("light", "light"),
        ("two grounds", "colour"),
        ("colours", "colour"),
        ("colours and noise", "colour"),
        ("inks", "keep"),
        ("one ink", "colour"),
        ("grey inks", "colour"),
        ("polarities in RGB", "colour"),
        ("photographs", "keep"),
        ("noise", None),
    ],
)
def test_what_ink_is_in_a_set(kind, ink):
    assert ink_of(made(30, kind)) == ink


@pytest.mark.parametrize("kind", ["almost black", "clipped noise"])
def test_a_ground_that_is_nearly_black_is_no_ink(kind):
    """As ink it would reach to all edges, and images would be made small to show it."""
    clean, images = made(30, "black"), made(30, kind)
    expected = Frame("place").registered(clean)
    result = Frame("place", ink_of(images)).registered(images)
    pairs = zip(result, expected, strict=True)
    alike = [np.corrcoef(one.ravel(), other.ravel())[0, 1] for one, other in pairs]
    # Of small figures noise is still a part.
    assert np.quantile(alike, 0.5 if kind == "clipped noise" else 0.0) > 0.95


def test_a_set_decides_for_doubtful_images():
    images = made(40, "light")
    # One in twenty has ink all around.
    images[::20, :2] = images[::20, -2:] = images[::20, :, :2] = images[::20, :, -2:] = 0.0
    votes = np.asarray(jax.jit(jax.vmap(ink_votes))(jnp.asarray(images)))
    assert (votes[::20, 3] > 0).all()
    assert choose_ink(votes, 1) == "light"


@pytest.mark.parametrize("ink", ["none", "light", "keep"])
def test_images_of_eight_bits_are_registered(ink):
    images = made(4, "light")
    bits = np.round(255 * images).astype(np.uint8)
    frame = Frame("upright", ink, least_side=12)
    expected = frame.registered(bits.astype(np.float32) / 255)
    np.testing.assert_allclose(frame.registered(bits), expected, atol=1e-6)
    np.testing.assert_allclose(frame.registered(bits[..., 0]), expected, atol=1e-6)
    assert ink_of(bits) == ink_of(images)


def test_noise_is_no_figure_at_the_border():
    """Squares lighter or darker than a grey ground, with noise of half as much."""
    draw, sign = np.random.default_rng(0), np.where(np.arange(40) % 2, 0.3, -0.3)
    images = 0.5 + 0.15 * draw.normal(size=(40, 24, 24, 1))
    images[:, 8:16, 8:16] += sign[:, None, None, None]
    assert ink_of(images.clip(0, 1).astype(np.float32)) == "colour"


def test_images_without_weight_have_no_vote():
    images = made(4, "light")
    index = Data(images, np.array([1.0, 0.0, 0.0, 2.0])).evenly_spaced(2048)
    np.testing.assert_array_equal(index, [0, 3])
    np.testing.assert_array_equal(votes_of(images, index=index), votes_of(images[[0, 3]]))
    assert votes_of(images, index=index[:0]).shape == (0, votes_of(images).shape[1])


def test_few_stand_for_many_evenly():
    images = np.zeros((10, 4, 4, 1), np.float32)
    np.testing.assert_array_equal(Data(images).evenly_spaced(4), [0, 3, 6, 9])
    weight = np.arange(10) % 2
    np.testing.assert_array_equal(Data(images, weight).evenly_spaced(2), [1, 9])
    assert (Data(images, weight).num_weighed, Data(images).num_weighed) == (5, 10)
    np.testing.assert_array_equal(Data(images).evenly_spaced(99), np.arange(10))


def test_processes_ask_together_what_one_asks():
    weight = np.tile([1.0, 0.0, 2.0], 7)
    whole = Data(np.zeros((21, 4, 4, 1), np.float32), weight)

    class Share(Data):
        own = property(lambda self: self.rows)
        allgather = staticmethod(lambda rows: weight > 0)

    found = []
    for rows in (slice(0, 5), slice(5, 21)):
        Share.rows = rows
        share = Share(whole.samples[rows], weight[rows])
        found.append(share.evenly_spaced(6) + rows.start)
    np.testing.assert_array_equal(np.concatenate(found), whole.evenly_spaced(6))


@pytest.mark.parametrize("ink", ["dark", "light"])
def test_hidden_pixels_say_nothing_of_the_ground(ink):
    # Most of every side is ink.
    image = np.full((20, 20, 1), 0.9 if ink == "dark" else 0.5, np.float32)
    for corner in (np.s_[:3, :3], np.s_[-3:, :3], np.s_[:3, -3:], np.s_[-3:, -3:]):
        image[corner] = 0.7
    mask = np.ones((20, 20))
    mask[10, 10] = 0.0
    hidden = image.copy()
    hidden[10, 10] = 0.0
    expected = ground(jnp.asarray(image), ink=ink, mask=mask)
    np.testing.assert_array_equal(ground(jnp.asarray(hidden), ink=ink, mask=mask), expected)
    # A quarter of the border is no brighter, or no darker, than the ground.
    np.testing.assert_allclose(expected[1], -0.7, atol=1e-6)


@pytest.mark.parametrize("kind", ["black", "light", "colours", "inks"])
def test_ink_is_the_same_in_other_units(kind):
    images = made(30, kind)
    assert ink_of(255.0 * images) == ink_of(images)


def test_ink_that_stays_as_it_is_has_no_mix():
    with pytest.raises(ValueError, match=r"^ink must be 'dark', 'light' or 'colour', not 'keep'$"):
        colour(jnp.zeros((4, 4, 1)), "keep")


def test_a_mask_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"^the mask is of 8x8 pixels"):
        ground(jnp.zeros((4, 4, 1)), mask=np.triu(np.ones((8, 8))))


@pytest.mark.parametrize("frame", [Frame("none"), Frame("place"), Frame("upright", "colour")])
def test_no_images_are_registered_to_none(frame):
    images = np.zeros((0, 32, 32, 3), np.float32)
    assert frame.registered(images).shape == (0, *frame.shape((32, 32, 3)))
    assert frame.params_of(images).shape == (0, frame.transform(3).num_params)


def test_many_images_are_registered_as_one_is_where_a_mask_hides_pixels():
    images = made(3, "black")
    mask = np.ones(images.shape[1:3])
    mask[:5] = 0.0
    frame = Frame("none", mask=mask)
    np.testing.assert_array_equal(frame.registered(images)[0], frame(jnp.asarray(images[0])))


def test_blank_images_have_no_vote():
    assert ink_of(np.zeros((3, 8, 8, 1), np.float32)) == "none"


@pytest.mark.parametrize("seed", range(3))
def test_photographs_are_placed_and_keep_their_ground(seed):
    x, y = np.asarray(pixel_grid(48, 48))
    ground = 0.7 + 0.05 * x - 0.04 * y - 0.06 * (x * x + y * y)
    ground = (ground[..., None] * np.array([1.0, 0.9, 0.8])).astype(np.float32)
    inks = (
        blobs(48, 48, seed, matrix=0.5 * np.eye(2)),
        blobs(48, 48, seed, matrix=0.4 * np.eye(2), shift=(0.15, -0.1)),
    )
    middle, beside = (ink * np.array([0.8, 0.2, 0.1]) + (1.0 - ink) * ground for ink in inks)
    frame, inside = Frame("place", "keep"), slice(8, -8)
    expected, result = seen(frame, middle), seen(frame, beside)
    assert result.shape == (48, 48, 3)
    assert np.abs(middle - beside)[inside, inside].max() > 0.35
    np.testing.assert_allclose(result[inside, inside], expected[inside, inside], atol=0.08)
    assert (result[0, 0] > 0.4).all()
    image = jnp.asarray(beside, jnp.float32)
    params = find(frame, image)
    restored = there_and_back(frame, params, image)
    np.testing.assert_allclose(restored[inside, inside], image[inside, inside], atol=0.15)


@pytest.mark.parametrize("ink", ["none", "keep"])
def test_what_a_mask_hides_is_ground_where_the_ground_is_kept(ink):
    x, y = np.asarray(pixel_grid(32, 32))
    image = np.repeat((0.7 + 0.1 * x - 0.05 * y)[..., None], 3, axis=2).astype(np.float32)
    image[10:16, 18:24] = (0.2, 0.6, 0.1)
    mask = np.ones((32, 32))
    mask[:8, :8] = 0.0
    stamped = image.copy()
    stamped[:8, :8] = 5.0
    frame = Frame("place", ink, mask=mask)
    expected = seen(frame, image)
    np.testing.assert_allclose(seen(frame, stamped), expected, atol=1e-5)
    if ink == "keep":
        plain = seen(Frame("place", ink), image)
        np.testing.assert_allclose(expected[4:-4, 4:-4], plain[4:-4, 4:-4], atol=0.02)


def test_shadows_are_less_of_a_figure_than_things():
    image = np.full((32, 32, 3), 0.6, np.float32) * np.array([1.0, 0.9, 0.8], np.float32)
    thing, shadow = (slice(12, 20), slice(4, 12)), (slice(12, 20), slice(20, 28))
    image[thing] = (0.2, 0.5, 0.7)
    image[shadow] *= 0.4
    result = np.asarray(compiled_figure(jnp.asarray(image)))[..., 0]
    assert result[15, 8] > 2 * result[15, 24] > 0
    np.testing.assert_array_equal(result[:4], 0)
    np.testing.assert_array_equal(compiled_figure(jnp.full((20, 20, 3), 0.5)), 0)


class Stored(SizedImages):
    """Images that are read as they are needed."""

    def __init__(self, images: np.ndarray) -> None:
        self.images, self._shape = images, images.shape

    def read(self, index: np.ndarray) -> np.ndarray:
        return self.images[index]


def test_streamed_images_are_registered_as_they_are_read():
    images, frame = made(37, "colours"), Frame("upright", "colour")
    every, streamed = frame.registered(images), frame.registered(Stored(images))
    assert not isinstance(streamed, np.ndarray)
    assert streamed.shape == every.shape == (37, 20, 20, 1)
    np.testing.assert_array_equal(streamed[[30, 2, 5]], every[[30, 2, 5]])
    result = frame.params_of(Stored(images))
    np.testing.assert_allclose(result, frame.params_of(images), atol=1e-6)
    np.testing.assert_allclose(every[4], seen(frame, images[4]), atol=1e-5)


def test_double_precision_may_follow_single():
    images = np.random.default_rng(0).uniform(size=(3, 9, 9, 1))
    single = votes_of(images.astype(np.float32))
    with jax.enable_x64(True):
        double = votes_of(images)
    np.testing.assert_allclose(single, double, atol=1e-4)


def filled(count: int = 40) -> np.ndarray:
    """Bold figures that the border cuts, on black; of some most of the border is ink."""
    draw, made = np.random.default_rng(0), np.zeros((count, 24, 24, 1), np.float32)
    for number, image in enumerate(made):
        thick = 15 if number % 5 == 0 else 9
        image[:, 2 : 2 + thick] = 1.0
        image[draw.integers(0, 15) :][:thick] = 1.0
    return made


def test_figures_that_fill_their_images_have_the_ground_of_all() -> None:
    images = filled()
    votes = votes_of(images)
    # Single borders would have it that some are dark on light.
    assert np.mean(votes[:, 3] < 0) > 0.1
    assert ink_of(images) == "none"
    assert ink_of(0.2 + 0.6 * images) == "dark"
    assert ink_of(1.0 - images) == "light"
    for given, ink in ((0.2 + 0.6 * images, "dark"), (1.0 - images, "light")):
        np.testing.assert_allclose(Frame("none", ink).registered(given), images, atol=1e-5)
    # Where borders are ground, they say which is which.
    framed = np.pad(images, ((0, 0), (8, 8), (8, 8), (0, 0)))
    assert ink_of(np.concatenate([framed, 1.0 - framed])) == "colour"


def test_silence_beside_noise_is_not_the_ground() -> None:
    # As of recordings that were padded: a third of the border is black, and noise the rest.
    images = np.full((20, 24, 24, 1), 0.25, np.float32)
    images += np.random.default_rng(0).uniform(-0.02, 0.02, images.shape).astype(np.float32)
    images[:, :, :4] = 0.0
    images[:, 8:16, 8:16] = 1.0
    for given, ink in ((images, "dark"), (1.0 - images, "light")):
        params = jax.vmap(lambda image, ink=ink: ground(image, ink=ink))(given)
        background = 0.25 if ink == "dark" else 0.75
        np.testing.assert_allclose(-params[:, 1], background, atol=0.03)
        actual = np.asarray(Frame("none", ink).registered(given))
        assert np.all(actual[:, 2:6, 6:20] < 0.05)


def test_figures_of_photographs_are_relative_to_their_own_radius() -> None:
    image = np.full((56, 56, 3), 0.7, np.float32)
    image[26:30, 14:42] = (0.8, 0.1, 0.1)
    frame = Frame("place", "keep")
    found = frame.figures(frame.params_of(image[None]), image.shape)[0]
    ink = np.asarray(figure(jnp.asarray(image)))[..., 0]
    ink, (rows, columns) = ink / ink.sum(), np.indices(ink.shape)
    spread = (
        ink * ((rows - (ink * rows).sum()) ** 2 + (columns - (ink * columns).sum()) ** 2)
    ).sum() / 2
    # A photograph's figure has 6.5 of 28 pixels, even if it reaches beyond the canvas.
    assert found[2] == pytest.approx(np.sqrt(spread) / (6.5 / 28 * 56), rel=1e-3)


def test_a_plane_that_explains_little_is_no_ground() -> None:
    x = (np.arange(20) + 0.5) / 10 - 1
    # A plane leaves less of the border than a uniform ground does, but not half as much.
    stripes = 0.1 * (-1.0) ** np.arange(20)
    image = (0.5 + 0.1 * x[None, :] + stripes[:, None] * stripes[None, :] / 0.1)[..., None]
    border = np.ones((20, 20), bool)
    border[1:-1, 1:-1] = False
    uniform, plane = (np.abs(image[..., 0] - 0.5 - s * x[None])[border].sum() for s in (0.0, 0.1))
    params = np.asarray(ground(jnp.asarray(image, jnp.float32)))
    assert 0.5 < plane / uniform < 1.0, plane / uniform
    np.testing.assert_array_equal(params[2:], 0.0)


def test_principal_axes_are_those_of_the_eigenproblem() -> None:
    image = np.random.default_rng(0).normal(size=(9, 11, 3)) * [1.0, 0.9, 0.5]
    rows = image.reshape(-1, 3)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    axis, share = _principal_axis(jnp.asarray(image, jnp.float32))
    assert abs(float(axis @ vectors[:, -1])) == pytest.approx(1.0, abs=1e-5)
    assert float(share) == pytest.approx(values[-1] / values.sum(), rel=1e-5)


def test_an_image_with_the_other_ink_is_read_by_its_own() -> None:
    image = np.full((12, 12, 1), 0.9, np.float32)
    image[4:8, 3:9] = 0.2
    expected = np.zeros_like(image)
    expected[4:8, 3:9] = 1.0
    # Dark ink alone, in a set whose ink is light on a dark ground.
    np.testing.assert_allclose(Frame("none", "dark")(jnp.asarray(image)), expected, atol=1e-5)
    np.testing.assert_allclose(
        Frame("none", "light")(jnp.asarray(1.1 - image)), expected, atol=1e-5
    )


def test_sides_of_canvases_do_not_depend_on_which_is_longer() -> None:
    image = blobs(40, 24, 0, matrix=0.6 * np.eye(2))[None]
    upright, lying = (own_sides(x, Frame("place")) for x in (image, image.transpose(0, 2, 1, 3)))
    np.testing.assert_allclose(upright, lying, rtol=1e-4)


def test_where_nothing_is_drawn_the_ground_comes_back() -> None:
    image = coloured(blobs(24, 20, 3, matrix=0.5 * np.eye(2)), (0.9, 0.2, 0.1), (0.1, 0.4, 0.7))
    frame = Frame("upright", "colour")
    params = find(frame, jnp.asarray(image))
    blank = jnp.zeros(frame.shape(image.shape))
    back = eqx.filter_jit(frame.restore)(params, blank, image.shape)
    np.testing.assert_allclose(back, np.broadcast_to([0.1, 0.4, 0.7], image.shape), atol=0.02)
