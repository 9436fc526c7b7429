"""One entry for every source."""

import numpy as np
import pytest
from PIL import Image

from diffclust.data import DataError, load


def test_digits():
    dataset = load("digits")
    assert dataset.images.shape == (1797, 8, 8, 1)
    assert dataset.images.min() == 0.0
    assert dataset.images.max() == 1.0
    assert dataset.label_names == tuple("0123456789")
    assert dataset.name == "digits"


def test_digits_limited_resized_and_coloured():
    dataset = load("digits", limit=7, seed=2, size=(5, 6), channels=3)
    assert dataset.images.shape == (7, 5, 6, 3)
    np.testing.assert_array_equal(dataset.labels, load("digits").limit(7, seed=2).labels)
    with pytest.raises(DataError, match=r"'digits' has no split 'test'"):
        load("digits", split="test")


def test_named_sets_need_the_variable(monkeypatch, tmp_path):
    monkeypatch.delenv("DIFFCLUST_DATA_DIR", raising=False)
    made = ("affine-mnist", "diffeo-mnist", "mnist-1k", "mnist-color", "affnist-like")
    for name in ("mnist", "usps", *made):
        with pytest.raises(DataError, match=r"DIFFCLUST_DATA_DIR names, which is not set"):
            load(name)
    monkeypatch.setenv("DIFFCLUST_DATA_DIR", str(tmp_path))
    with pytest.raises(DataError, match=r"holds no usps\.npz"):
        load("usps")


@pytest.fixture
def small_mnist(monkeypatch, tmp_path):
    """A tiny mnist.npz where the variable points."""
    digits = load("digits").take(range(60))
    images = np.pad(digits.images[..., 0] * 255, ((0, 0), (4, 4), (4, 4))).astype(np.uint8)
    np.savez(
        tmp_path / "mnist.npz",
        x_train=images[:40],
        y_train=digits.labels[:40],
        x_test=images[40:],
        y_test=digits.labels[40:],
    )
    monkeypatch.setenv("DIFFCLUST_DATA_DIR", str(tmp_path))


@pytest.mark.usefixtures("small_mnist")
def test_mnist_and_what_is_made_from_it():
    assert [len(load("mnist", split=split)) for split in ("all", "train", "test")] == [60, 40, 20]
    assert load("mnist").name == "mnist"
    for name in ("affine-mnist", "diffeo-mnist"):
        whole, train, test = (load(name, split=split, seed=3) for split in ("all", "train", "test"))
        assert [len(part) for part in (whole, train, test)] == [1000, 700, 300]
        np.testing.assert_array_equal(whole.images[:700], train.images)
        np.testing.assert_array_equal(whole.labels[700:], test.labels)
        assert whole.name == name
        assert len(load(name, limit=50)) == 50


@pytest.mark.usefixtures("small_mnist")
def test_coloured_mnist_is_mnist_in_every_split_and_draw():
    whole = load("mnist-color", seed=3)
    parts = [load("mnist-color", split=split, seed=3) for split in ("train", "test")]
    assert [len(whole), *map(len, parts)] == [60, 40, 20]
    np.testing.assert_array_equal(np.concatenate([p.images for p in parts]), whole.images)
    for split in ("all", "train", "test"):
        made, drawn, plain = (
            load(name, split=split, seed=3, limit=limit)
            for name, limit in (("mnist-color", None), ("mnist-color", 7), ("mnist", 7))
        )
        assert drawn.name == "mnist-color"
        np.testing.assert_array_equal(drawn.images, made.limit(7, seed=3).images)
        np.testing.assert_array_equal(drawn.indices, plain.indices)
        np.testing.assert_array_equal(drawn.labels, plain.labels)
    assert load("mnist-color", channels=1, size=8, limit=2).images.shape == (2, 8, 8, 1)


@pytest.mark.usefixtures("small_mnist")
def test_moved_mnist_is_of_the_test_images():
    whole, test = (load("affnist-like", split=split, seed=3) for split in ("all", "test"))
    assert whole.images.shape == (20, 40, 40, 1)
    assert whole.name == "affnist-like"
    np.testing.assert_array_equal(whole.images, test.images)
    np.testing.assert_array_equal(whole.labels, load("mnist", split="test").labels)
    drawn = load("affnist-like", seed=3, limit=7)
    np.testing.assert_array_equal(drawn.images, whole.limit(7, seed=3).images)
    np.testing.assert_array_equal(
        drawn.indices, load("mnist", split="test", limit=7, seed=3).indices
    )


@pytest.mark.usefixtures("small_mnist")
@pytest.mark.parametrize("name", ["mnist-1k", "affnist-like"])
def test_sets_of_test_images_have_no_train_split(name):
    with pytest.raises(DataError, match=rf"'{name}' has no split 'train'.*use split 'all'"):
        load(name, split="train")
    with pytest.raises(DataError, match=r"split must be one of"):
        load(name, split="validation")


@pytest.mark.usefixtures("data_dir")
def test_a_thousand_images():
    first, again, other = (load("mnist-1k", seed=seed) for seed in (1, 1, 2))
    assert first.images.shape == (1000, 28, 28, 1)
    assert first.name == "mnist-1k"
    assert first.label_names == tuple("0123456789")
    assert len(np.unique(first.indices)) == 1000
    np.testing.assert_array_equal(first.images, again.images)
    assert not np.array_equal(first.indices, other.indices)
    # Each image and label is that of the test image at its index.
    test = load("mnist", split="test").take(first.indices)
    np.testing.assert_array_equal(first.images, test.images)
    np.testing.assert_array_equal(first.labels, test.labels)
    few = load("mnist-1k", split="test", seed=1, limit=50)
    np.testing.assert_array_equal(few.indices, first.limit(50, seed=1).indices)


@pytest.mark.usefixtures("data_dir")
def test_the_real_sets():
    assert load("usps", split="test").images.shape == (2007, 16, 16, 1)
    mnist = load("mnist", split="test", limit=100)
    assert mnist.images.shape == (100, 28, 28, 1)
    assert mnist.label_names == tuple("0123456789")


def test_a_path_is_never_a_name(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "digits" / "a.png")
    monkeypatch.chdir(tmp_path)
    assert len(load("digits")) == 1797
    assert len(load("./digits")) == 1
    assert len(load(tmp_path / "digits")) == 1


def test_what_is_no_source(tmp_path):
    with pytest.raises(
        DataError, match=r"'nothing' does not exist; give a folder .* digits, mnist"
    ):
        load("nothing")
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"is a single image"):
        load(tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"notes.txt' is not a folder, .* or series \(.npz, .csv,"):
        load(tmp_path / "notes.txt")
    with pytest.raises(DataError, match=r"'.*missing.npz' is no file"):
        load(tmp_path / "missing.npz")
    with pytest.raises(DataError, match="source must not be empty"):
        load("")
    with pytest.raises(DataError, match=r"cannot be opened \(File name too long\)"):
        load("x" * 1000)
