"""IDX files, in which MNIST and its kin come: images and, in a file beside them, labels."""

import gzip
import io
import math
import re
import zlib
from pathlib import Path

import numpy as np

from diffclust.data.archives import BOMB_BYTES, BOMB_RATIO, Contents, check_split
from diffclust.data.dataset import DataError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The types of numbers, by the third byte of a file."""

_NAME = re.compile(r"idx[0-9]?(-u?byte)?$", re.IGNORECASE)
_GZIP = b"\x1f\x8b"
_MOST_RATIO = 1100
"""Deflate makes nothing smaller than by about so much."""


def is_idx(path: Path) -> bool:
    """Whether a file is named as IDX files are.

    Args:
        path: The file.

    Returns:
        True for `train-images-idx3-ubyte`, `digits.idx`, and the like, with `.gz` or not.
    """
    return _NAME.search(_plain_name(path)) is not None


def read_idx(path: Path, split: str = "all") -> Contents:
    """Read an IDX file of images, and the labels beside it where there are any.

    Args:
        path: The file, gzipped or not. Its labels are found by its name, with `labels` for
            `images` and `idx1` for `idx3`: `t10k-labels-idx1-ubyte.gz`.
        split: `"all"`; each split is a file of its own.

    Returns:
        The arrays as stored.

    Raises:
        DataError: If a file is missing, damaged, of another format or a decompression bomb, or
            another split is asked for.
    """
    check_split(split)
    if split != "all":
        raise DataError(
            f"{str(path)!r} has no split {split!r}: each split is a file of its own; give the "
            f"file, with split 'all'."
        )
    if not path.is_file():
        raise DataError(f"{str(path)!r} is no file; give the path of an IDX file.")
    images = _read(path)
    beside = _labels_beside(path)
    if beside is None:
        return Contents(images, None, "the array")
    return Contents(images, _read(beside), "the array", f"the labels {beside.name!r}")


def _plain_name(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".GZ")


def _labels_beside(path: Path) -> Path | None:
    """The file of labels that goes with one of images."""
    plain = _plain_name(path)
    name = re.sub(r"images?", "labels", plain).replace("idx3", "idx1")
    if name == plain:
        return None
    beside = (path.with_name(name + suffix) for suffix in ("", ".gz"))
    return next((file for file in beside if file.is_file()), None)


def _read(path: Path) -> np.ndarray:
    """The array of a file."""
    with path.open("rb") as file:
        is_packed = file.read(2) == _GZIP
        file.seek(0)
        try:
            if not is_packed:
                return _parse(file, path, path.stat().st_size, 1)
            with gzip.open(file) as unpacked:
                return _parse(unpacked, path, path.stat().st_size, _MOST_RATIO)
        except (EOFError, OSError, zlib.error) as error:
            reason = " ".join(str(error).split())
            raise DataError(
                f"{str(path)!r} cannot be unpacked ({reason}); it is damaged: get it again."
            ) from error


def _parse(file: io.BufferedIOBase, path: Path, stored: int, ratio: int) -> np.ndarray:
    """The array of a file of `stored` bytes, which unpack to `ratio` times as many at most."""
    header = file.read(4)
    if not header:
        raise DataError(f"{str(path)!r} is empty; get it again.")
    kind, dims = (header[2], header[3]) if len(header) == 4 and header[:2] == b"\0\0" else (0, 0)
    if kind not in _TYPES or not dims:
        raise DataError(
            f"{str(path)!r} is no IDX file: it begins with {header.hex(' ')}, not 00 00, a "
            f"type and a number of dimensions; give a file such as train-images-idx3-ubyte."
        )
    sides = file.read(4 * dims)
    dtype = np.dtype(_TYPES[kind])
    if len(sides) == 4 * dims:
        shape = tuple(np.frombuffer(sides, ">u4").tolist())
        # Judged before anything is read: a damaged header may ask for all the memory there is.
        size = math.prod(shape) * dtype.itemsize
        if size > BOMB_BYTES and size > BOMB_RATIO * stored and size <= ratio * stored:
            raise DataError(
                f"{str(path)!r} is a decompression bomb: {stored:,} bytes that grow to {size:,}; "
                f"if it is meant so, unpack it."
            )
        # One byte more tells whether there is more.
        content = file.read(size + 1) if size <= ratio * stored else b""
        if len(content) == size:
            return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))
        got = "more" if len(content) > size else "fewer"
        what = f"{got} numbers than its header says ({' x '.join(map(str, shape))})"
    else:
        what = "only a part of a header"
    raise DataError(f"{str(path)!r} holds {what}; it is damaged: get it again.")
