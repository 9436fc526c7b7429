"""Affine MNIST and Diffeo MNIST, from digits that every machine has."""

import numpy as np
import pytest
import scipy.ndimage

from diffclust.data import DataError, affine_mnist, diffeo_mnist, generated, load_digits

MAKERS = [affine_mnist, diffeo_mnist]


@pytest.fixture(scope="module")
def digits():
    """Bundled digits in the middle of a canvas with room to move."""
    bundled = load_digits().take(range(200))
    return np.pad(bundled.images, ((0, 0), (4, 4), (4, 4), (0, 0))), bundled.labels


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
def test_shapes_and_parts(digits, make):
    train, test = make(*digits, per_class=10)
    assert train.images.shape == (70, 16, 16, 1)
    assert test.images.shape == (30, 16, 16, 1)
    labels = np.concatenate([train.labels, test.labels])
    np.testing.assert_array_equal(np.bincount(labels), np.full(10, 10))
    assert train.label_names == tuple("0123456789")
    np.testing.assert_array_equal(np.concatenate([train.indices, test.indices]), np.arange(100))
    for part in (train, test):
        assert part.images.dtype == np.float32
        assert part.images.min() >= 0.0
        assert part.images.max() <= 1.0
        assert len(np.unique(part.images, axis=0)) == len(part)


@pytest.mark.parametrize("make", MAKERS)
def test_same_seed_same_data(digits, make):
    first, again, other = (make(*digits, per_class=5, seed=seed)[0] for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.images, again.images)
    np.testing.assert_array_equal(first.labels, again.labels)
    assert not np.array_equal(first.images, other.images)


@pytest.mark.parametrize("make", MAKERS)
def test_no_amplitude_gives_the_digits_themselves(digits, make):
    images, labels = digits
    still = {"amplitude": 0.0} | ({"displacement": 0.0} if make is diffeo_mnist else {})
    train, _ = make(images, labels, per_class=4, **still)
    for code in range(10):
        copies = train.images[train.labels == code]
        np.testing.assert_allclose(copies, copies[:1].repeat(len(copies), 0), atol=1e-6)
        distances = np.abs(images[labels == code] - copies[0]).max(axis=(1, 2, 3))
        assert distances.min() < 1e-6


def test_both_sets_start_from_the_same_digits(digits):
    affine, diffeo = (
        make(*digits, per_class=4, seed=1, amplitude=0.0, **displacement)[0]
        for make, displacement in ((affine_mnist, {}), (diffeo_mnist, {"displacement": 0.0}))
    )
    np.testing.assert_allclose(affine.images, diffeo.images, atol=1e-6)


@pytest.mark.parametrize("make", MAKERS)
def test_ink_stays_inside(digits, make):
    """The ink of a map that only moves and stretches changes with its area, not by being cut."""
    train, _ = make(*digits, per_class=20)
    border = np.ones((16, 16), bool)
    border[1:-1, 1:-1] = False
    # Bilinear reading spreads an outermost stroke over the edge, but no more than that.
    assert train.images[:, border].mean() < 0.02


def test_takes_colour_bytes_and_names(digits):
    images, labels = digits
    colour = np.repeat((images * 255).astype(np.uint8), 3, axis=-1)
    train, _ = affine_mnist(colour, np.array([f"digit {label}" for label in labels]), per_class=2)
    assert train.images.shape == (14, 16, 16, 3)
    assert train.label_names is not None
    assert train.label_names[3] == "digit 3"


@pytest.mark.parametrize("make", MAKERS)
def test_bad_input(digits, make, monkeypatch):
    images, labels = digits
    with pytest.raises(DataError, match=r"same images"):
        make(images, labels[1:])
    with pytest.raises(DataError, match=r"per_class must be at least 2"):
        make(images, labels, per_class=1)
    monkeypatch.setattr("diffclust.data.generated._MOST_INK_LOST", -1.0)
    with pytest.raises(DataError, match=r"of 200 random maps only 0 .* use a smaller amplitude"):
        make(images, labels, per_class=2)


def test_folding_maps_are_refused(digits):
    with pytest.raises(DataError, match=r"unfolded"):
        diffeo_mnist(*digits, per_class=2, amplitude=0.0, displacement=10.0)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "paper"), [(affine_mnist, 68.0), (diffeo_mnist, 61.8)])
def test_k_means_is_near_the_paper(data_dir, make, paper):
    """One seed of five; the docstrings give the others."""
    from sklearn.cluster import KMeans

    from diffclust.data.files import read_archive
    from diffclust.metrics import accuracy

    stored = read_archive(data_dir / "mnist.npz", "train")
    train, test = make(stored.images, stored.labels, seed=1)
    model = KMeans(10, n_init=10, random_state=1).fit(train.images.reshape(700, -1))
    got = 100 * accuracy(test.labels, model.predict(test.images.reshape(300, -1)))
    assert abs(got - paper) < 12


def dot(side: int = 28) -> np.ndarray:
    """A blob, as one image."""
    x = np.arange(side) - (side - 1) / 2
    image = np.exp(-((x / 4) ** 2)[:, None] - ((x / 2) ** 2)[None])
    return np.where(image > 0.02, image, 0.0)[None, ..., None].astype(np.float32)


def test_affine_maps_are_as_large_as_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    made = generated._affine_matrices
    monkeypatch.setattr(
        generated, "_affine_matrices", lambda *each: drawn.append(each) or made(*each)
    )
    train, test = affine_mnist(dot(), [0], per_class=300, amplitude=0.5)
    angle, shear, scale = drawn[0]
    for values, most in ((np.degrees(angle), 24.0), (shear, 0.21), (np.log(scale), 0.21)):
        assert np.abs(values).max() <= most / 2
        assert values.std() == pytest.approx(most / 2 / np.sqrt(3), rel=0.1)
    centres = [scipy.ndimage.center_of_mass(x[..., 0]) for x in (*train.images, *test.images)]
    np.testing.assert_allclose(np.std(centres, axis=0), 0.135 / 2 * 14 / np.sqrt(3), rtol=0.15)


def test_bent_digits_are_shifted_both_ways() -> None:
    train, test = diffeo_mnist(dot(), [0], per_class=200, amplitude=0.0)
    centres = [scipy.ndimage.center_of_mass(x[..., 0]) for x in (*train.images, *test.images)]
    np.testing.assert_allclose(np.mean(centres, axis=0), 13.5, atol=0.3)
    assert np.std(centres, axis=0).min() > 0.3
