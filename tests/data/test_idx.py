"""IDX files: what is in them, what lies beside them, and what can be wrong with them."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from diffclust.data import DataError, load

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}


def idx(array: np.ndarray) -> bytes:
    """As Yann LeCun's page describes the format."""
    kind = CODES[array.dtype.str[1:]]
    header = bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


PIXELS = np.random.default_rng(0).integers(0, 256, (6, 5, 4), dtype=np.uint8)
CLASSES = np.array([3, 1, 3, 7, 1, 3], np.uint8)


def write(folder: Path, name: str, array: np.ndarray) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(idx(array)) if name.endswith(".gz") else idx(array))
    return path


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("labels", ["", ".gz"])
@pytest.mark.parametrize("dot", ["-", "."])
def test_images_find_their_labels(tmp_path, packed, labels, dot):
    path = write(tmp_path, f"train-images{dot}idx3-ubyte{packed}", PIXELS)
    write(tmp_path, f"train-labels{dot}idx1-ubyte{labels}", CLASSES)
    write(tmp_path, f"t10k-labels{dot}idx1-ubyte", CLASSES[:1])
    dataset = load(path)
    np.testing.assert_allclose(dataset.images[..., 0], PIXELS / 255, rtol=1e-6)
    assert dataset.label_names == ("1", "3", "7")
    np.testing.assert_array_equal(dataset.labels, [1, 0, 1, 2, 0, 1])
    assert dataset.name.startswith("train-images")
    few = load(path, limit=2, seed=1, size=3, channels=3)
    assert few.images.shape == (2, 3, 3, 3)
    np.testing.assert_array_equal(few.labels, dataset.labels[few.indices])


def test_names_may_have_capitals(tmp_path):
    path = write(tmp_path, "Train-Images-idx3-ubyte", PIXELS)
    write(tmp_path, "Train-Labels-idx1-ubyte.gz", CLASSES)
    np.testing.assert_array_equal(load(path).labels, [1, 0, 1, 2, 0, 1])


def test_without_labels_and_in_floats(tmp_path):
    assert load(write(tmp_path, "a-images-idx3-ubyte", PIXELS)).labels is None
    for dtype in ("f4", "f8"):
        values = (PIXELS / 255).astype(dtype)
        result = load(write(tmp_path, f"{dtype}.idx", values)).images
        np.testing.assert_allclose(result[..., 0], values, rtol=1e-6)
    colours = np.stack([PIXELS] * 3, axis=-1)
    assert load(write(tmp_path, "c.idx4-ubyte", colours)).images.shape == (6, 5, 4, 3)
    path = write(tmp_path, "b-images-idx4-ubyte", colours)
    write(tmp_path, "b-labels-idx1-ubyte", CLASSES)
    np.testing.assert_array_equal(load(path).labels, [1, 0, 1, 2, 0, 1])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\0\0", "is no IDX file: it begins with 00 00, not"),
        (b"\x89PNG\r\n", "is no IDX file: it begins with 89 50 4e 47"),
        (b"\0\0\x07\x03" + bytes(12), "is no IDX file"),
        (b"\0\0\x08\0", "is no IDX file"),
        (idx(PIXELS)[:9], "only a part of a header"),
        (idx(PIXELS)[:-1], r"fewer numbers than its header says \(6 x 5 x 4\)"),
        (idx(PIXELS) + b"\0", r"more numbers than its header says \(6 x 5 x 4\)"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "fewer numbers than its header"),
        (b"\0\0\x0e\xff" + b"\xff" * 1020, "fewer numbers than its header"),
        (idx(PIXELS[:0]), "holds no pixels"),
        (idx(CLASSES), r"must be .* got \[6\]"),
        (idx(PIXELS.astype(np.int32)), "got dtype int32"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged(tmp_path, content, message, packed):
    path = tmp_path / ("images-idx3-ubyte" + ".gz" * packed)
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=message) as raised:
        load(path)
    assert "\n" not in str(raised.value)
    assert repr(str(path)) in str(raised.value)


def test_damaged_gzip(tmp_path):
    path = write(tmp_path, "images-idx3-ubyte.gz", PIXELS)
    whole = path.read_bytes()
    for keep in (3, 12, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:keep])
        with pytest.raises(DataError, match=r"cannot be unpacked .* get it again"):
            load(path)
    path.write_bytes(whole[:60] + bytes(20) + whole[80:])
    with pytest.raises(DataError, match="cannot be unpacked"):
        load(path)


def test_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr("diffclust.data.files.BOMB_BYTES", 10**5)
    path = write(tmp_path, "images-idx3-ubyte.gz", np.zeros((10, 200, 200), np.uint8))
    with pytest.raises(DataError, match="is a decompression bomb"):
        load(path)


def test_labels_that_do_not_fit_and_splits(tmp_path):
    path = write(tmp_path, "train-images-idx3-ubyte", PIXELS)
    write(tmp_path, "train-labels-idx1-ubyte", CLASSES[:4])
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte' .* for each of the 6 images"):
        load(path)
    with pytest.raises(DataError, match=r"no split 'test': each split is a file of its own"):
        load(path, split="test")
    with pytest.raises(DataError, match="is no file"):
        load(tmp_path / "none-idx3-ubyte")
