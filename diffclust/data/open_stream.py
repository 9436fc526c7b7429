"""Open a file or a folder of images that are read as they are needed."""

import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from diffclust.data.archives import check_split, choose_keys
from diffclust.data.arrays import check_labels
from diffclust.data.dataset import DataError, Dataset, draw, encode_labels
from diffclust.data.folder import find_pictures, folder_lot
from diffclust.data.gather import FileError, check_same_size, decode_each, unreadable
from diffclust.data.listing import choose_split
from diffclust.data.pictures import quiet_decoding, read_picture
from diffclust.data.resize import check_channels, parse_size
from diffclust.data.stream import FittedImages, FolderImages, RawImages, intensities
from diffclust.image_source import Faults, ImageSource

_LOCAL_HEADER = 30
"""Bytes of what precedes a member of a zip file, but for its name and extra field."""


def open_stream(
    source: str | Path,
    *,
    split: str = "all",
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Open images that are read whenever they are needed, and never all at once.

    Args:
        source: A `.npy` file, an `.npz` file that is not compressed, or a folder of pictures, each
            of which is decoded once for a check, and again in every pass.
        split: As for `load`.
        size: As for `load`.
        channels: As for `load`.
        skip_bad: As for `load`.
        limit: As for `load`.
        seed: As for `load`.
        progress: As for `load`.

    Returns:
        The images as an `ImageSource`, otherwise as `load` gives them.

    Raises:
        DataError: If the source is no such file or folder, or unfit in a way that `load` refuses.
    """
    check_split(split)
    check_channels(channels)
    path, target = Path(source), parse_size(size)
    if path.is_dir():
        return _open_folder(path, split, target, channels, skip_bad, limit, seed, progress)
    images, labels = _open_file(path, split)
    codes, names = (None, None) if labels is None else encode_labels(labels)
    if target is not None or channels is not None:
        images = FittedImages(images, size=target, channels=channels)
    dataset = Dataset(images=images, labels=codes, label_names=names, name=path.stem)
    return dataset.limit(limit, seed)


def outgrows_memory(
    source: str | Path, *, size: tuple[int, int] | None = None, limit: int | None = None
) -> bool:
    """Whether images, as float32, would take more than half of the memory.

    Args:
        source: What `open_stream` takes; anything else is no larger than memory.
        size: Height and width to which they are brought, or None.
        limit: At most so many of them; None for all.

    Returns:
        False also where nobody knows.
    """
    path = Path(source)
    if not hasattr(os, "sysconf"):
        return False
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        if path.is_dir():
            files = find_pictures(path)
            count, each = len(files), list(read_picture(path / files[0], size).shape)
        else:
            count, *each = _open_file(path, "all", labels=False)[0].shape
    # Whatever is wrong with it, who reads it will tell.
    except (DataError, FileError, OSError):
        return False
    height, width = size or (each[0], each[1])
    count = count if limit is None else min(count, max(limit, 0))
    return 4 * count * height * width * each[2] > installed / 2


def _open_file(
    path: Path, split: str, *, labels: bool = True
) -> tuple[ImageSource, np.ndarray | None]:
    """The images of a file, and their labels as they are stored."""
    suffix = path.suffix.lower()
    if suffix not in (".npy", ".npz") or not path.is_file():
        raise DataError(
            f"{str(path)!r} cannot be read as a stream; give a .npy file, an uncompressed .npz "
            f"file or a folder of pictures, or leave out --stream."
        )
    try:
        if suffix == ".npz":
            return _open_members(path, split, labels)
        if split != "all":
            raise DataError(f"{str(path)!r} has no split {split!r}: it is one array; use 'all'.")
        with path.open("rb") as file:
            return _raw(path, file), None
    except DataError:
        raise
    # A damaged file fails in many ways: zip and header, which is Python, each have their own.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{str(path)!r} cannot be read as .npy or .npz ({reason}); save it again with np.save "
            f"or np.savez."
        ) from error


def _raw(path: Path, file: BinaryIO) -> RawImages:
    """The images of an array that begins where the file stands."""
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"format {version} holds no plain numbers")
    shape, in_columns, dtype = readers[version](file)
    if dtype.hasobject:
        raise DataError(f"{str(path)!r} needs pickle, which is never loaded; save plain numbers.")
    if in_columns:
        raise DataError(
            f"{str(path)!r} holds its images column by column (Fortran order), which cannot be "
            f"read one by one; save it again with np.save(path, np.ascontiguousarray(images))."
        )
    return RawImages(path, offset=file.tell(), shape=shape, dtype=dtype)


def _open_members(
    path: Path, split: str, wants_labels: bool
) -> tuple[ImageSource, np.ndarray | None]:
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        keys, label_keys = choose_keys(names, path, split)
        parts = [_open_member(path, file, archive.getinfo(f"{key}.npy")) for key in keys]
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(
            f"{' and '.join(keys)} in {str(path)!r} must have images of one size: got "
            f"{' and '.join(str(part.shape) for part in parts)}; choose one split."
        )
    images = parts[0] if len(parts) == 1 else JoinedImages(parts)
    if not wants_labels or len(label_keys) != len(keys):
        return images, None
    with np.load(path, allow_pickle=False) as loaded:
        labels = np.concatenate([np.asarray(loaded[key]) for key in label_keys])
    where = f"{' and '.join(label_keys)} in {str(path)!r}"
    return images, check_labels(labels, len(images), where)


def _open_member(path: Path, file: BinaryIO, member: zipfile.ZipInfo) -> RawImages:
    if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise DataError(
            f"{member.filename!r} in {str(path)!r} is compressed, and cannot be read in pieces; "
            f"save it with np.savez, or alone: np.save('images.npy', np.load({str(path)!r})"
            f"[{member.filename.removesuffix('.npy')!r}])."
        )
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER)
    # Sizes of the name and of the extra field, which may differ from those in the directory.
    name, extra = struct.unpack("<HH", header[26:30])
    file.seek(member.header_offset + _LOCAL_HEADER + name + extra)
    return _raw(path, file)


class JoinedImages(ImageSource):
    """The images of several sources, one source after the other."""

    def __init__(self, parts: list[RawImages]) -> None:
        """Reads nothing yet.

        Args:
            parts: The sources, with images of one shape.
        """
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """See `ImageSource.shape`."""
        _, height, width, channels = self._parts[0].shape
        return int(self._ends[-1]), height, width, channels

    def read(self, index: np.ndarray) -> np.ndarray:
        """See `ImageSource.read`."""
        images = np.empty((len(index), *self.shape[1:]), np.float32)
        owner = np.searchsorted(self._ends, index, side="right")
        for number, part in enumerate(self._parts):
            here = owner == number
            if here.any():
                images[here] = part.read(index[here] - (self._ends[number] - len(part)))
        return images


def _open_folder(
    root: Path,
    split: str,
    size: tuple[int, int] | None,
    channels: int | None,
    skip_bad: bool,
    limit: int | None,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> Dataset:
    """Decodes all once, for what has to be known before: faults, one size, grey or not."""
    found, classes = choose_split(root, find_pictures(root), split, "images")
    chosen = draw(len(found), limit, seed)
    indices = np.arange(len(found)) if chosen is None else chosen
    files = [found[i] for i in indices]
    lot = folder_lot(root, files)
    kept: list[int] = []
    bad: list[tuple[int, FileError]] = []
    blank: list[int] = []
    first: tuple[int, np.ndarray] | None = None
    depth = 1
    with quiet_decoding():
        pixels = decode_each(lambda file: read_picture(root / file, size), files)
        for position, result in enumerate(pixels):
            if isinstance(result, FileError):
                bad.append((position, result))
            else:
                first = (position, np.empty(result.shape, bool)) if first is None else first
                check_same_size(lot, first, (position, result))
                depth = max(depth, result.shape[2])
                each = (*result.shape[:2], channels or result.shape[2])
                if not intensities(result, each).any():
                    blank.append(len(kept))
                kept.append(position)
            if progress is not None:
                progress(position + 1, len(files))
    if bad and (not skip_bad or not kept):
        raise unreadable(lot, bad, skip_bad)
    assert first is not None
    height, width, _ = first[1].shape
    images = FolderImages(
        [root / files[i] for i in kept], shape=(height, width, channels or depth), size=size
    )
    # Known already: else all would be decoded once more. Pixels of files are always numbers.
    images.faults = Faults(np.zeros(0, np.int64), np.asarray(blank, np.int64))
    codes, names = (None, None) if classes is None else encode_labels(classes)
    return Dataset(
        images=images,
        labels=None if codes is None else codes[indices[kept]],
        label_names=names,
        paths=tuple(str(root / files[i]) for i in kept),
        name=root.resolve().name or "images",
        skipped=tuple(str(root / files[i]) for i, _ in bad),
        indices=indices[kept],
    )
