"""Coloured and moved digits, from digits that every machine has."""

import numpy as np
import pytest
import scipy.ndimage

from diffclust.data import DataError, affnist_like, load_digits, mnist_color
from diffclust.data import generated as variants

MAKERS = [mnist_color, affnist_like]


@pytest.fixture(scope="module")
def digits():
    """Bundled digits at twice their size, with some black around."""
    bundled = load_digits().take(range(300))
    grown = bundled.images.repeat(2, axis=1).repeat(2, axis=2)
    return np.pad(grown, ((0, 0), (2, 2), (3, 3), (0, 0))), bundled.labels


@pytest.mark.parametrize("make", MAKERS)
def test_shapes_and_labels(digits, make):
    images, labels = digits
    made = make(images, labels)
    assert made.images.shape == ((300, 20, 22, 3) if make is mnist_color else (300, 40, 40, 1))
    assert made.images.dtype == np.float32
    assert made.images.min() >= 0.0
    assert made.images.max() <= 1.0
    np.testing.assert_array_equal(made.labels, labels)
    np.testing.assert_array_equal(made.indices, np.arange(300))
    assert made.label_names == tuple("0123456789")


@pytest.mark.parametrize("make", MAKERS)
def test_same_seed_same_data(digits, make):
    first, again, other = (make(*digits, seed=seed).images for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any(axis=(1, 2, 3)).all()


@pytest.mark.parametrize("make", MAKERS)
def test_an_image_is_the_same_whatever_else_is_made(digits, make):
    whole = make(*digits, seed=1)
    for chosen in ([299, 5, 260], np.arange(300) % 7 == 0):
        part, taken = make(*digits, seed=1, indices=chosen), whole.take(chosen)
        for field in ("images", "labels", "indices"):
            np.testing.assert_array_equal(getattr(part, field), getattr(taken, field))


@pytest.mark.parametrize("make", MAKERS)
def test_takes_bytes_without_channels_and_names(digits, make):
    images, labels = digits
    grey = (images[..., 0] * 255).round().astype(np.uint8)
    made = make(grey, np.array([f"digit {label}" for label in labels]))
    np.testing.assert_allclose(made.images, make(images, labels).images, atol=1 / 255)
    assert made.label_names is not None
    assert made.label_names[3] == "digit 3"


@pytest.mark.parametrize("make", MAKERS)
def test_bad_input(digits, make):
    images, labels = digits
    with pytest.raises(DataError, match=r"same images"):
        make(images, labels[1:])
    with pytest.raises(DataError, match=r"must be grey: got 3 channels"):
        make(images.repeat(3, axis=-1), labels)
    with pytest.raises(DataError, match=r"moveaxis"):
        make(np.moveaxis(images.repeat(3, axis=-1), -1, 1), labels)
    with pytest.raises(IndexError):
        make(images, labels, indices=[300])
    broken = images.copy()
    broken[290, 4, 4] = np.nan
    with pytest.raises(DataError, match=r"NaN or infinity, at indices 290;"):
        make(broken, labels)


def test_colours_mix_by_ink(digits):
    """Full ink has one colour, none another, and what lies between is their mixture."""
    images, labels = digits
    images = images / images.max(axis=(1, 2, 3), keepdims=True)
    made = mnist_color(images, labels, seed=2).images.astype(np.float64)
    for ink, image in zip(images[..., 0], made, strict=True):
        back, front = image[ink == 0].mean(axis=0), image[ink == 1].mean(axis=0)
        expected = ink[..., None] * front + (1 - ink[..., None]) * back
        np.testing.assert_allclose(image, expected, atol=1e-6)


def test_colours_are_uniform_but_never_alike():
    n = 20_000
    images = np.zeros((n, 1, 2), np.float32)
    images[:, 0, 1] = 1.0
    colours = mnist_color(images, np.zeros(n, int)).images[:, 0]
    assert np.linalg.norm(colours[:, 1] - colours[:, 0], axis=-1).min() >= 0.25 - 1e-6
    assert len(np.unique(colours.reshape(2 * n, 3), axis=0)) == 2 * n
    # Uniform deciles, but for the few pairs drawn again: within 5 standard errors and 1 %.
    for one in colours.reshape(n, 6).T:
        counts = np.histogram(one, bins=10, range=(0, 1))[0]
        np.testing.assert_allclose(counts, n / 10, atol=5 * np.sqrt(0.09 * n) + 0.01 * n / 10)
    assert np.abs(np.corrcoef(colours.reshape(n, 6).T) - np.eye(6)).max() < 0.1


def test_all_ink_is_on_the_canvas(digits):
    """SciPy puts each digit on a canvas with room around: the middle agrees, the rest is blank."""
    images, labels = digits
    made = affnist_like(images, labels, seed=5).images[..., 0]
    rng = np.random.default_rng(5)
    matrices, shifts = variants._draw_maps(rng, variants._ink_masks(images[..., 0]))
    margin, reached = 20, np.zeros(4, bool)
    for image, got, matrix, shift in zip(images[..., 0], made, matrices, shifts, strict=True):
        inverse = np.linalg.inv(matrix)[::-1, ::-1]  # rows come first in SciPy
        centre = (np.array(image.shape) - 1) / 2
        wide = scipy.ndimage.affine_transform(
            # SciPy drops to zero at the last pixel's centre, so that it needs a frame of zeros.
            np.pad(image.astype(np.float64), 3),
            inverse,
            offset=centre + 3 - inverse @ (shift[::-1] + margin),
            output_shape=(80, 80),
            order=1,
        )
        np.testing.assert_allclose(wide[margin:-margin, margin:-margin], got, atol=1e-5)
        wide[margin:-margin, margin:-margin] = 0.0
        assert wide.max() < 1e-9
        reached |= np.array([got[0].any(), got[-1].any(), got[:, 0].any(), got[:, -1].any()])
    assert reached.all(), "the shifts should use the whole canvas"


def test_maps_keep_to_their_amounts(digits):
    """Rotation, shear and scales, read off the matrices by a QR decomposition."""
    inked = variants._ink_masks(np.repeat(digits[0][..., 0], 10, axis=0))
    matrices, _ = variants._draw_maps(np.random.default_rng(0), inked)
    rotation, upper = np.linalg.qr(matrices)
    signs = np.sign(np.diagonal(upper, axis1=1, axis2=2))
    rotation, upper = rotation * signs[:, None, :], upper * signs[:, :, None]
    angle = np.degrees(np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0]))
    scales = np.diagonal(upper, axis1=1, axis2=2)
    shear = upper[:, 0, 1] / upper[:, 1, 1]
    for values, low, high in ((angle, -20, 20), (shear, -0.2, 0.2), (scales, 0.8, 1.2)):
        assert values.min() >= low - 1e-9
        assert values.max() <= high + 1e-9
        # Uniform: mean and spread, within 5 standard errors of 3,000.
        assert abs(values.mean() - (low + high) / 2) < 5 * (high - low) / np.sqrt(12 * 3000)
        assert values.std() == pytest.approx((high - low) / np.sqrt(12), rel=0.05)


def test_a_blank_image_stays_blank_and_one_too_large_is_refused():
    assert affnist_like(np.zeros((1, 28, 28)), [0]).images.max() == 0.0
    with pytest.raises(DataError, match=r"1 of 2 never did in 100 random maps; pass smaller"):
        affnist_like(np.stack([np.zeros((60, 60)), np.ones((60, 60))]), [0, 1])


def test_maps_that_fit_nowhere_are_drawn_again():
    """A square that only some maps leave small enough."""
    made = affnist_like(np.ones((200, 31, 31)), np.zeros(200, int)).images
    # Not cut: the ink is that of the map's area, between its bounds.
    ink = made.sum(axis=(1, 2, 3)) / 31**2
    assert ink.min() > 0.64
    assert ink.max() < 1.44
