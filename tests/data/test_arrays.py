"""Arrays in memory, .npy and .npz."""

import zipfile

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust.data import DataError, as_images, load, load_array


def noise(*shape):
    return np.random.default_rng(0).random(shape, dtype=np.float32)


@pytest.mark.parametrize(
    ("dtype", "top"), [("uint8", 255), ("uint16", 65535), (">u2", 65535), ("bool", 1)]
)
def test_integers_are_scaled(dtype, top):
    array = np.array([0, 1, top]).astype(dtype).reshape(3, 1, 1)
    images = as_images(array)
    assert images.shape == (3, 1, 1, 1)
    assert images.dtype == np.float32
    np.testing.assert_allclose(images.ravel(), np.array([0, 1, top]) / top, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 3)])
@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, np.ndarray.tolist, np.float64])
def test_floats_are_kept(shape, convert):
    array = noise(*shape)
    images = as_images(convert(array))
    np.testing.assert_array_equal(images, array.reshape(*shape[:3], -1))


def test_bfloat16_is_taken():
    assert as_images(jnp.ones((1, 2, 2), jnp.bfloat16)).dtype == np.float32


def test_float32_is_not_copied_and_never_changed():
    array = noise(2, 3, 3, 1)
    assert np.shares_memory(as_images(array), array)
    array[0, 0, 0, 0] = 1.0 + 1e-6
    assert as_images(array).max() == 1.0
    assert array.max() > 1.0


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 784)), r"reshape\(-1, 28, 28\)"),
        (np.zeros((3, 10)), r"reshape\(-1, height, width\)"),
        (np.zeros(3), r"\[3\]"),
        (np.float64(0.5), r"got \[\]"),
        (np.zeros((2, 3, 8, 8)), r"moveaxis\(1, -1\)"),
        (np.zeros((2, 8, 8, 4)), "alpha"),
        (np.zeros((2, 8, 8, 2)), "choose 1 or 3"),
        (np.zeros((0, 8, 8)), "no pixels"),
        (np.zeros((2, 0, 8)), "no pixels"),
        (np.zeros((2, 8, 8), int), "dtype int64.*uint8"),
        (np.zeros((2, 8, 8), complex), "complex128"),
        (np.full((2, 8, 8), "a"), "dtype <U1"),
        ([np.zeros((2, 2)), np.zeros((3, 3))], "several shapes"),
        (np.full((2, 8, 8), 200.0), r"got 200 to 200; divide by 255"),
        (np.full((2, 8, 8), -0.5), r"got -0.5 to -0.5; rescale"),
        (np.full((2, 8, 8), 1e300), "NaN or infinity"),
    ],
)
def test_unfit_arrays(array, message):
    with pytest.raises(DataError, match=message) as raised:
        as_images(array, name="pictures")
    assert str(raised.value).startswith("pictures must ")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite_with_indices(value):
    array = noise(20, 3, 3)
    array[[3, 5, 7, 9, 11, 13], 1, 1] = value
    with pytest.raises(DataError, match=r"6 of 20 images .* indices 3, 5, 7, 9, 11 and 1 more"):
        as_images(array)


def test_both_infinities_at_once():
    array = noise(4, 3, 3)
    array[2, 0, :2] = np.inf, -np.inf
    with pytest.raises(DataError, match=r"1 of 4 images .* indices 2;"):
        as_images(array)


def test_indices_are_the_file_s_also_under_a_limit(tmp_path):
    array = noise(50, 3, 3)
    array[41] = np.nan
    np.save(tmp_path / "a.npy", array)
    seed = next(s for s in range(99) if 41 in np.random.default_rng(s).choice(50, 25, False))
    with pytest.raises(DataError, match=r"indices 41;"):
        load_array(tmp_path / "a.npy", limit=25, seed=seed)


def test_npy(tmp_path):
    np.save(tmp_path / "a.npy", (noise(6, 4, 5) * 255).astype(np.uint8))
    dataset = load_array(tmp_path / "a.npy")
    assert dataset.images.shape == (6, 4, 5, 1)
    assert dataset.labels is None
    assert dataset.name == "a"


@pytest.fixture
def keras(tmp_path):
    """A file with Keras' names; train and test tell themselves apart."""
    path = tmp_path / "keras.npz"
    np.savez_compressed(
        path,
        x_train=np.zeros((6, 4, 4), np.uint8),
        y_train=np.array([[3], [1], [3], [1], [3], [1]]),
        x_test=np.full((2, 4, 4), 255, np.uint8),
        y_test=np.array([[1], [7]]),
    )
    return path


def test_keras_names(keras):
    whole, train, test = (load_array(keras, split=split) for split in ("all", "train", "test"))
    assert (len(whole), len(train), len(test)) == (8, 6, 2)
    np.testing.assert_array_equal(whole.labels, [1, 0, 1, 0, 1, 0, 0, 2])
    assert whole.label_names == ("1", "3", "7")
    assert train.images.max() == 0.0
    assert test.images.min() == 1.0
    assert train.label_names == ("1", "3")


def test_limit_draws_the_same_as_dataset_limit(keras):
    drawn, cut = load_array(keras, limit=3, seed=5), load_array(keras).limit(3, seed=5)
    for field in ("images", "labels", "indices"):
        np.testing.assert_array_equal(getattr(drawn, field), getattr(cut, field))
    assert drawn.label_names == cut.label_names


@pytest.mark.parametrize(
    ("images", "labels"),
    [("x", "y"), ("x", "labels"), ("images", "labels"), ("images", "y"), ("x_test", "y_test")],
)
def test_other_names(tmp_path, images, labels):
    np.savez(tmp_path / "a.npz", **{images: noise(2, 4, 4), labels: np.array(["b", "a"])}, other=1)
    dataset = load(tmp_path / "a.npz")
    np.testing.assert_array_equal(dataset.labels, [1, 0])
    assert dataset.label_names == ("a", "b")


def test_only_array_of_any_name(tmp_path):
    np.savez(tmp_path / "a.npz", whatever=noise(2, 4, 4))
    assert load(tmp_path / "a.npz").labels is None


def test_masked_values_are_refused():
    images = np.ma.masked_array(noise(2, 4, 4), mask=np.eye(4)[None].repeat(2, axis=0))
    with pytest.raises(DataError, match="has masked values; give an array without them"):
        as_images(images)
    assert len(as_images(np.ma.masked_array(noise(2, 4, 4)))) == 2


def test_labels_of_floats_and_bytes(tmp_path):
    np.savez(tmp_path / "a.npz", x=noise(2, 4, 4), y=np.array([2.0, 1.0]))
    assert load(tmp_path / "a.npz").label_names == ("1", "2")
    np.savez(tmp_path / "b.npz", x=noise(2, 4, 4), y=np.array([b"q", b"p"]))
    assert load(tmp_path / "b.npz").label_names == ("p", "q")
    np.savez(tmp_path / "c.npz", x=noise(2, 4, 4), y=np.array([np.inf, 1.0]))
    with pytest.raises(DataError, match="must be integers or strings"):
        load(tmp_path / "c.npz")


def test_resize_and_channels(tmp_path):
    np.save(tmp_path / "a.npy", noise(3, 8, 12))
    dataset = load(tmp_path / "a.npy", size=(4, 5), channels=3)
    assert dataset.images.shape == (3, 4, 5, 3)
    np.testing.assert_array_equal(dataset.images[..., 0], dataset.images[..., 2])
    np.save(tmp_path / "b.npy", np.ones((1, 2, 2, 3), np.float32) * np.float32([1, 0, 0]))
    np.testing.assert_allclose(load(tmp_path / "b.npy", channels=1).images, 0.299, rtol=1e-6)


def test_sizes_that_are_none(tmp_path):
    np.save(tmp_path / "a.npy", noise(3, 8, 12))
    for size in ((4,), 4.5, "4"):
        # Under test, the import hook's own check of the type comes first.
        with pytest.raises((DataError, jaxtyping.TypeCheckError), match="size"):
            load(tmp_path / "a.npy", size=size)


def object_npy(path):
    with path.open("wb") as file:
        np.save(file, np.array([{}, None], dtype=object), allow_pickle=True)


def object_npz(path):
    labels = np.array(["a", None], dtype=object)
    with path.open("wb") as file:
        np.savez(file, x=noise(2, 4, 4), y=labels)


def bare_pickle(path):
    path.write_bytes(b"\x80\x04N.")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("write", [object_npy, object_npz, bare_pickle])
def test_pickle_is_never_loaded(tmp_path, write, suffix):
    write(tmp_path / f"a{suffix}")
    with pytest.raises(DataError, match=r"needs pickle.*np\.savez"):
        load(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("keep", [0, 1, 5, 60, 130, -20])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_files(tmp_path, suffix, keep):
    path = tmp_path / f"a{suffix}"
    (np.save if suffix == ".npy" else np.savez_compressed)(path, noise(4, 8, 8))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"save it again") as raised:
        load(path)
    assert repr(str(path)) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_flipped_bytes_in_an_npz(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=noise(4, 8, 8))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[200:220] = bytes(20)
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"damaged"):
        load(tmp_path / "a.npz")


def test_not_an_array_at_all(tmp_path):
    (tmp_path / "a.npz").write_text("hello")
    with pytest.raises(DataError, match=r"neither .npy nor .npz inside"):
        load(tmp_path / "a.npz")


def test_bomb_in_an_npz(tmp_path, monkeypatch):
    monkeypatch.setattr("diffclust.data.files.BOMB_BYTES", 10**6)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((100, 200, 200), np.uint8))
    with pytest.raises(DataError, match=r"'x.npy' .* is a decompression bomb"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize(
    ("members", "split", "message"),
    [
        ({"a": np.zeros(1), "b": np.zeros(1)}, "all", "no images under a known name.*'a', 'b'"),
        ({}, "all", "it holds nothing"),
        ({"x": np.zeros((2, 4, 4))}, "test", "no split 'test'.*'x'"),
        ({"x_train": np.zeros((2, 4, 4))}, "test", "no split 'test'"),
        ({"x": np.zeros((2, 4, 4)), "y": np.zeros(3, int)}, "all", "2 images: got shape .3"),
        ({"x": np.zeros((2, 4, 4)), "y": np.zeros((2, 3))}, "all", "argmax"),
        ({"x": np.zeros((2, 4, 4)), "y": np.full(2, 0.5)}, "all", "y in .* got dtype float64"),
        ({"x": np.zeros((2, 4, 4)), "y": np.full(2, np.nan)}, "all", "got dtype float64"),
        ({"x": np.zeros((2, 16))}, "all", r"x in .* reshape\(-1, 4, 4\)"),
        (
            {"x_train": np.zeros((2, 4, 4)), "x_test": np.zeros((2, 5, 5))},
            "all",
            "one size and type.*choose one split",
        ),
    ],
)
def test_unfit_archives(tmp_path, members, split, message):
    np.savez(tmp_path / "a.npz", **members)
    with pytest.raises(DataError, match=message):
        load(tmp_path / "a.npz", split=split)


def test_member_that_is_no_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", b"hello")
    with pytest.raises(DataError, match=r"x in .* must be"):
        load(tmp_path / "a.npz")


def test_split_of_one_array(tmp_path):
    np.save(tmp_path / "a.npy", noise(2, 4, 4))
    with pytest.raises(DataError, match=r"no split 'train': it is one array"):
        load(tmp_path / "a.npy", split="train")
