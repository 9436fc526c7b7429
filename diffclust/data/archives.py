"""Find images and labels in `.npy` and `.npz` files, without pickle."""

import dataclasses
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib.npyio import NpzFile

from diffclust._validation import some
from diffclust.data.dataset import DataError

SPLITS = ("all", "train", "test")

_NPY, _ZIP, _PICKLE = b"\x93NUMPY", b"PK", b"\x80"
_PAIRS = (("x", "y"), ("images", "labels"))
BOMB_RATIO, BOMB_BYTES = 200, 2**30
"""A member that grows this much, to this size, was made to fill the memory: images compress
a few times, and only near-blank ones a hundred times."""


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a file holds, as it was stored.

    Attributes:
        images: The array, of any type and shape.
        labels: Its labels, of any type and shape, or None.
        key: What the images are called in the file.
        label_key: What the labels are called in the file.
    """

    images: np.ndarray
    labels: np.ndarray | None
    key: str
    label_key: str = ""


def check_split(split: str) -> None:
    """Refuse a split other than all, train or test.

    Args:
        split: What was asked for.

    Raises:
        DataError: If it is something else.
    """
    if split not in SPLITS:
        raise DataError(f"split must be one of {', '.join(SPLITS)}: got {split!r}.")


def read_archive(path: Path, split: str = "all") -> Contents:
    """Read the images and labels of a `.npy` or `.npz` file.

    Args:
        path: The file.
        split: `"train"`, `"test"`, or `"all"` for both, train first.

    Returns:
        The arrays as stored.

    Raises:
        DataError: If the file is missing, damaged, needs pickle, is a decompression bomb, has
            none of the known keys, or lacks the split.
    """
    check_split(split)
    if not path.is_file():
        raise DataError(f"{str(path)!r} is no file; give the path of a .npy or .npz file.")
    try:
        # Opened here, so that it is closed also when a member turns out to be damaged.
        with path.open("rb") as file:
            _check_beginning(file, path)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, NpzFile):
                with loaded:
                    return _read_members(loaded, path, split)
    except DataError:
        raise
    # A damaged file fails in many ways: zip, deflate, header and encryption each have their own.
    except Exception as error:
        raise _explain(error, path) from error
    if split != "all":
        raise _no_split(path, split, "it is one array")
    return Contents(loaded, None, "the array")


def _check_beginning(file: BinaryIO, path: Path) -> None:
    """Refuse what is neither `.npy` nor `.npz`, all of which `np.load` would take for pickle."""
    beginning = file.read(8)
    file.seek(0)
    if not beginning.startswith((_NPY, _ZIP, _PICKLE)):
        raise DataError(
            f"{str(path)!r} is {'empty' if not beginning else 'neither .npy nor .npz inside'}; "
            f"save it again with np.save or np.savez."
        )


def _explain(error: Exception, path: Path) -> DataError:
    """The error of `np.load` in our words."""
    text = str(error)
    if "pickle" in text.lower():
        return DataError(
            f"{str(path)!r} needs pickle, which can run any code and is never loaded here; "
            f"save plain numbers or strings, for example with np.savez(path, x=images, y=labels)."
        )
    if isinstance(error, MemoryError):
        return DataError(
            f"{str(path)!r} needs more memory than there is, or its header is damaged; "
            f"save it again, smaller or as uint8."
        )
    reason = " ".join(text.split()) or type(error).__name__
    return DataError(
        f"{str(path)!r} cannot be read as .npy or .npz ({reason}); it is damaged, or of another "
        f"format: save it again with np.save or np.savez."
    )


def _read_members(archive: NpzFile, path: Path, split: str) -> Contents:
    """Choose members by their names."""
    refuse_bombs(archive, path)
    keys, label_keys = choose_keys(archive.files, path, split)
    if keys[0].startswith("x_"):
        return _join(archive, path, keys, label_keys)
    labels = _member(archive, label_keys[0]) if label_keys else None
    return Contents(_member(archive, keys[0]), labels, keys[0], "".join(label_keys))


def choose_keys(keys: list[str], path: Path, split: str) -> tuple[list[str], list[str]]:
    """Choose the images of an `.npz` file by their names.

    Args:
        keys: The names in it.
        path: The file, for errors.
        split: `"train"`, `"test"`, or `"all"` for both, train first.

    Returns:
        Names of the arrays of images, and of those of labels that are there.

    Raises:
        DataError: If none of the known names is there, or the split is not.
    """
    parts = [part for part in ("train", "test") if f"x_{part}" in keys]
    if parts:
        if split != "all" and split not in parts:
            raise _no_split(path, split, f"it holds {some(map(repr, keys))}")
        parts = parts if split == "all" else [split]
        return [f"x_{part}" for part in parts], [
            f"y_{part}" for part in parts if f"y_{part}" in keys
        ]
    if split != "all":
        raise _no_split(path, split, f"it holds {some(map(repr, keys))}")
    for key, label_key in _PAIRS:
        if key in keys:
            return [key], [label_key] if label_key in keys else []
    if len(keys) == 1:
        return keys, []
    held = some(map(repr, keys)) or "nothing"
    raise DataError(
        f"{str(path)!r} has no images under a known name: it holds {held}; "
        f"name them x_train and x_test, x, or images (labels: y_train and y_test, y, or labels)."
    )


def _join(archive: NpzFile, path: Path, keys: list[str], label_keys: list[str]) -> Contents:
    """One after the other; without labels unless every part has them."""
    images = [_member(archive, key) for key in keys]
    labels = [_member(archive, key) for key in label_keys]
    key, label_key = " and ".join(keys), " and ".join(label_keys)
    if len({(array.shape[1:], array.dtype) for array in images}) > 1:
        raise DataError(
            f"{key} in {str(path)!r} must have images of one size and type: got "
            f"{' and '.join(f'{a.dtype} {list(a.shape)}' for a in images)}; choose one split."
        )
    complete = len(labels) == len(keys)
    return Contents(
        images[0] if len(keys) == 1 else np.concatenate(images),
        np.concatenate(labels) if complete else None,
        key,
        label_key,
    )


def _member(archive: NpzFile, key: str) -> np.ndarray:
    """One array; a member that is none, which comes as bytes, is refused later for its type."""
    return np.asarray(archive[key])


def refuse_bombs(archive: NpzFile, path: Path) -> None:
    """Refuse members that would fill the memory from a few bytes."""
    if archive.zip is None:
        return
    for member in archive.zip.infolist():
        ratio = member.file_size / max(member.compress_size, 1)
        if member.file_size > BOMB_BYTES and ratio > BOMB_RATIO:
            raise DataError(
                f"{member.filename!r} in {str(path)!r} is a decompression bomb: "
                f"{member.compress_size:,} bytes that grow to {member.file_size:,}; "
                f"if it is meant so, save it with np.savez, uncompressed."
            )


def _no_split(path: Path, split: str, reason: str) -> DataError:
    return DataError(
        f"{str(path)!r} has no split {split!r}: {reason}; use split 'all', or save the images "
        f"under x_train and x_test."
    )
