"""Images that are read as they are needed are those that the loaders give, file for file."""

import os
import warnings
import zlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from diffclust.data import (
    DataError,
    FittedImages,
    FolderImages,
    ImageSource,
    PaddedSize,
    RecordImages,
    load_array,
    load_folder,
    open_stream,
    outgrows_memory,
    write_stream,
)
from tests.registry import blobs

COUNT = 23
PIXELS = np.round(blobs(COUNT, 6, 5) * 255).astype(np.uint8)
FLOATS = blobs(COUNT, 6, 5)
ORDERS: list[Any] = [
    slice(None),
    slice(3, 9),
    slice(20, 99),
    slice(9, 3),
    slice(None, None, -2),
    [4, 5, 6, 2, 2, 22, -1, 0],
    np.arange(COUNT) % 3 == 0,
    [],
    7,
    np.array([[1, 2], [3, 4]]),
]


def npy(folder: Path, array: np.ndarray) -> Path:
    np.save(folder / "images.npy", array)
    return folder / "images.npy"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Grey and coloured pictures in two folders."""
    for i, image in enumerate(PIXELS):
        folder = tmp_path / "pictures" / "ab"[i % 2]
        folder.mkdir(parents=True, exist_ok=True)
        shown = (
            image[..., 0] if i != 5 else np.repeat(image, 3, axis=2) // np.array([1, 2, 3], "u1")
        )
        Image.fromarray(shown).save(folder / f"{i:02}.png")
    return tmp_path / "pictures"


@pytest.mark.parametrize("array", [PIXELS, FLOATS, PIXELS[..., 0], FLOATS.astype(">f8")])
def test_file_gives_what_the_loader_gives(array: np.ndarray, tmp_path: Path) -> None:
    path = npy(tmp_path, array)
    source, images = open_stream(path).images, load_array(path).images
    assert isinstance(source, ImageSource)
    assert source.shape == images.shape
    assert len(source) == COUNT
    for order in ORDERS:
        result = source[order]
        np.testing.assert_array_equal(result, images[order])
        assert result.dtype == images.dtype == source.dtype
    np.testing.assert_array_equal(np.asarray(source), images)


def test_precision_is_that_of_jax(tmp_path: Path) -> None:
    source = open_stream(npy(tmp_path, PIXELS)).images
    with jax.enable_x64(True):
        assert source.dtype == source[:2].dtype == np.float64
        np.testing.assert_array_equal(source[:], load_array(tmp_path / "images.npy").images)


@pytest.mark.parametrize("index", [COUNT, -COUNT - 1, [0, COUNT], np.ones(COUNT + 1, bool)])
def test_images_that_there_are_not(index: Any, tmp_path: Path) -> None:
    with pytest.raises(IndexError):
        open_stream(npy(tmp_path, PIXELS)).images[index]


def test_file_is_not_kept_in_memory(tmp_path: Path) -> None:
    """What was read is forgotten: other bytes at the same place are seen."""
    path = npy(tmp_path, PIXELS)
    source = open_stream(path).images
    before, written = source[:], path.stat()
    np.save(path, PIXELS[::-1])
    # As if nothing had happened.
    os.utime(path, ns=(written.st_atime_ns, written.st_mtime_ns))
    np.testing.assert_array_equal(source[:], before[::-1])


@pytest.mark.parametrize("split", ["all", "train", "test"])
def test_members_of_an_uncompressed_archive(split: str, tmp_path: Path) -> None:
    path, labels = tmp_path / "images.npz", np.arange(COUNT) % 4
    np.savez(path, x_train=PIXELS[:15], y_train=labels[:15], x_test=PIXELS[15:], y_test=labels[15:])
    result, wanted = open_stream(path, split=split), load_array(path, split=split)
    np.testing.assert_array_equal(result.images[::-1], wanted.images[::-1])
    np.testing.assert_array_equal(result.labels, wanted.labels)
    assert (result.label_names, result.name) == (wanted.label_names, wanted.name)


def test_size_channels_and_limit(tmp_path: Path) -> None:
    path = npy(tmp_path, PIXELS)
    settings: dict[str, Any] = {"size": (4, 7), "channels": 3, "limit": 9, "seed": 3}
    result, wanted = open_stream(path, **settings), load_array(path, **settings)
    assert result.images.shape == wanted.images.shape == (9, 4, 7, 3)
    np.testing.assert_array_equal(result.images[[5, 1]], wanted.images[[5, 1]])
    np.testing.assert_array_equal(result.indices, wanted.indices)
    np.testing.assert_array_equal(
        FittedImages(open_stream(path).images, size=4)[:], load_array(path, size=4).images
    )
    padded = load_array(path, size=PaddedSize(4, 9)).images
    np.testing.assert_array_equal(open_stream(path, size=PaddedSize(4, 9)).images[:], padded)
    np.testing.assert_array_equal(padded[:, :, 0], padded[:, :, -1])


@pytest.mark.parametrize("channels", [None, 1])
def test_folder_gives_what_the_loader_gives(channels: int | None, pictures: Path) -> None:
    (pictures / "a" / "bad.png").write_bytes(b"no picture")
    reported: list[tuple[int, int]] = []
    settings: dict[str, Any] = {"channels": channels, "skip_bad": True}
    result = open_stream(pictures, progress=lambda *done: reported.append(done), **settings)
    wanted = load_folder(pictures, **settings)
    assert isinstance(result.images, FolderImages)
    assert reported[-1] == (COUNT + 1, COUNT + 1)
    np.testing.assert_array_equal(result.images[:], wanted.images)
    np.testing.assert_array_equal(result.labels, wanted.labels)
    np.testing.assert_array_equal(result.indices, wanted.indices)
    assert result.paths == wanted.paths
    assert result.skipped == wanted.skipped
    with pytest.raises(DataError, match="bad.png"):
        open_stream(pictures)


def test_blank_pictures_are_known_without_another_look(pictures: Path) -> None:
    Image.new("L", (5, 6)).save(pictures / "a" / "99.png")
    images = open_stream(pictures).images
    for file in pictures.rglob("*.png"):
        file.unlink()
    place = len(list(range(0, COUNT, 2)))
    np.testing.assert_array_equal(images.faults.blank, [place])
    with pytest.raises(DataError, match="cannot be read"):
        images[:2]


class Grain(list):
    """Records that can be asked for together."""

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        return [self[number] for number in numbers]


@pytest.mark.parametrize("kind", [list, Grain])
def test_records(kind: type, tmp_path: Path) -> None:
    records = kind({"image": image, "label": 0} for image in PIXELS)
    wanted = load_array(npy(tmp_path, PIXELS)).images
    np.testing.assert_array_equal(RecordImages(records)[[3, 1]], wanted[[3, 1]])
    plain = RecordImages(kind(PIXELS[..., 0]), size=4, channels=3)
    expected = load_array(tmp_path / "images.npy", size=4, channels=3).images
    np.testing.assert_array_equal(plain[:], expected)
    records[7] = {"image": PIXELS[7][:4]}
    with pytest.raises(DataError, match=r"record 7 .*give size="):
        RecordImages(records)[:]


def test_faults_are_found_once_and_told_by_index(tmp_path: Path) -> None:
    images = FLOATS.copy()
    images[[4, 17]] = 0.0
    source = open_stream(npy(tmp_path, images)).images
    np.testing.assert_array_equal(source.faults.blank, [4, 17])
    assert source.faults is source.faults
    assert source.faults.not_finite.size == 0
    images[9, 0, 0, 0] = np.nan
    with pytest.raises(DataError, match=r"index 9|\b9\b"):
        open_stream(npy(tmp_path, images)).images.faults  # noqa: B018


def test_checksum_is_that_of_the_array(tmp_path: Path) -> None:
    source = open_stream(npy(tmp_path, PIXELS)).images
    assert source.checksum() == zlib.crc32(load_array(tmp_path / "images.npy").images.tobytes())


def test_some_of_the_images_of_a_source(tmp_path: Path) -> None:
    source = open_stream(npy(tmp_path, PIXELS)).images
    some = source.take(np.array([5, 3, 20]))
    assert some.shape == (3, 6, 5, 1)
    np.testing.assert_array_equal(some[[2, 0]], source[[20, 5]])


REFUSED = {
    "column by column": lambda path: np.save(path, np.asfortranarray(PIXELS)),
    "reshape": lambda path: np.save(path, PIXELS.reshape(COUNT, -1)),
    "no fixed range": lambda path: np.save(path, PIXELS.astype(np.int64)),
    "pickle": lambda path: np.save(path, np.array([None, {}]), allow_pickle=True),
    "cannot be read": lambda path: path.write_bytes(b"\x93NUMPY\x01\x00nothing"),
    "cut short": lambda path: (
        np.save(path, PIXELS),
        path.write_bytes(path.read_bytes()[:-1]),
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_files_that_cannot_be_read_in_pieces(what: str, tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    REFUSED[what](path)
    with pytest.raises(DataError, match=what):
        open_stream(path)


@pytest.mark.parametrize("other", [PIXELS[:9], PIXELS / 255.0, PIXELS + 1])
def test_a_file_that_is_replaced_while_it_is_read(other: np.ndarray, tmp_path: Path) -> None:
    path = npy(tmp_path, PIXELS)
    source = open_stream(path).images
    npy(tmp_path, other)
    os.utime(path, ns=(0, 0))  # clocks of file systems may tick slowly
    with pytest.raises(DataError, match="replaced or cut short"):
        source[:3]


def test_compressed_archives_are_refused_with_what_would_do(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    np.savez_compressed(path, x=PIXELS)
    with pytest.raises(DataError, match=r"compressed.*np\.save\("):
        open_stream(path)
    with pytest.raises(DataError, match="leave out --stream"):
        open_stream("mnist")


def test_large_files_outgrow_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = npy(tmp_path, PIXELS)
    needed = 4 * PIXELS.size
    for installed, outgrows in ((2 * needed, False), (2 * needed - 8, True)):
        sizes = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": installed}
        monkeypatch.setattr("os.sysconf", sizes.__getitem__)
        assert outgrows_memory(path) is outgrows
    assert not outgrows_memory(path, size=(3, 3))
    assert not outgrows_memory(path, limit=5)
    assert not outgrows_memory(tmp_path / "there-is-none.npy")


def test_a_first_picture_that_is_refused_warns_of_nothing(tmp_path, monkeypatch) -> None:
    Image.fromarray(PIXELS[0, ..., 0]).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    with warnings.catch_warnings(record=True, action="always") as warned:
        assert not outgrows_memory(tmp_path)
    assert not warned


def test_written_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    write_stream(path, [PIXELS[:4], PIXELS[4:]], shape=PIXELS.shape)
    np.testing.assert_array_equal(np.load(path), PIXELS)
    for chunks in ([PIXELS[:4]], [PIXELS, PIXELS[:1]], [PIXELS[:, :2]], [FLOATS]):
        with pytest.raises(DataError):
            write_stream(path, chunks, shape=PIXELS.shape)
    np.testing.assert_array_equal(np.load(path), PIXELS)
    assert [file.name for file in tmp_path.iterdir()] == ["large.npy"]


def test_a_shape_may_hold_numbers_of_numpy(tmp_path: Path) -> None:
    shape = [np.int64(len(PIXELS)), *PIXELS.shape[1:]]
    write_stream(tmp_path / "a.npy", [PIXELS], shape=shape, dtype=PIXELS.dtype)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), PIXELS)
