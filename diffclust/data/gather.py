"""Decode many files at once, and make one array of what came out."""

import dataclasses
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from diffclust._validation import some
from diffclust.data.dataset import DataError, Dataset, encode_labels
from diffclust.data.resize import convert_channels

_READERS = 8
"""Threads; decoding releases Python's lock, and the disk is slower than so many."""

_Item = TypeVar("_Item")


class FileError(Exception):
    """Why one file cannot be used, in a few words."""


@dataclasses.dataclass(frozen=True)
class Lot:
    """What is to be decoded together, as errors call it.

    Attributes:
        where: What holds it, such as `folder 'photos'`.
        names: Name of each file or record, as errors print it.
        noun: What several of them are called.
    """

    where: str
    names: tuple[str, ...]
    noun: str = "images"


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What could be decoded.

    Attributes:
        images: Intensities in [0, 1], float32 `[m, height, width, channels]`.
        kept: Position in the lot of each image, int64 `[m]`.
        bad: Positions of those that could not be decoded, int64.
    """

    images: np.ndarray
    kept: np.ndarray
    bad: np.ndarray


def decode_each(
    decode: Callable[[_Item], np.ndarray], items: Iterable[_Item]
) -> Generator[np.ndarray | FileError]:
    """Decode in several threads, in order.

    Args:
        decode: Gives the pixels of an item, or raises `FileError`.
        items: What to decode.

    Yields:
        The pixels of each item, or why there are none.
    """

    def attempt(item: _Item) -> np.ndarray | FileError:
        try:
            return decode(item)
        except FileError as error:
            return error

    pool = ThreadPoolExecutor(max_workers=min(_READERS, 2 * (os.cpu_count() or 1)))
    try:
        yield from pool.map(attempt, items)
    finally:
        pool.shutdown(cancel_futures=True)


def gather(
    results: Iterable[np.ndarray | FileError],
    lot: Lot,
    *,
    channels: int | None = None,
    skip_bad: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Gathered:
    """Make one array of decoded images.

    Args:
        results: Of each of the lot the pixels, uint8 in 0..255 or float32 in [0, 1],
            `[height, width, 1 or 3]`, or why there are none.
        lot: What they are of.
        channels: 1 to make all grey, 3 to make all RGB; None for grey if all are grey, else RGB.
        skip_bad: Leave out what cannot be decoded.
        progress: Called as `progress(done, total)` after each.

    Returns:
        The images, and which of the lot they are.

    Raises:
        DataError: If some cannot be decoded (and `skip_bad` is False) or none can, sizes differ,
            or the images would not fit into memory.
    """
    total = len(lot.names)
    pixels: list[np.ndarray] = []
    kept: list[int] = []
    bad: list[tuple[int, FileError]] = []
    for position, result in enumerate(results):
        if isinstance(result, FileError):
            bad.append((position, result))
        else:
            if pixels:
                check_same_size(lot, (kept[0], pixels[0]), (position, result))
            else:
                _check_memory(lot, result)
            pixels.append(result)
            kept.append(position)
        if progress is not None:
            progress(position + 1, total)
    if bad and (not skip_bad or not pixels):
        raise unreadable(lot, bad, skip_bad)
    return Gathered(
        _assemble(pixels, channels),
        np.array(kept, np.int64),
        np.array([position for position, _ in bad], np.int64),
    )


def dataset_of_files(
    gathered: Gathered,
    root: Path,
    files: Sequence[Path],
    indices: np.ndarray,
    classes: Sequence[str] | None,
    noun: str = "images",
) -> Dataset:
    """The data set of a folder's files.

    Args:
        gathered: What could be decoded of the files.
        root: The folder.
        files: Paths of those that were to be decoded, relative to it.
        indices: Position of each of them among all files of the folder.
        classes: The class of each file of the folder, or None where there are none.
        noun: What the set is called where the folder has no name.

    Returns:
        The images in the order of the files, with labels where there are classes.
    """
    codes, names = (None, None) if classes is None else encode_labels(classes)
    return Dataset(
        images=gathered.images,
        labels=None if codes is None else codes[indices[gathered.kept]],
        label_names=names,
        paths=tuple(str(root / files[i]) for i in gathered.kept),
        name=root.resolve().name or noun,
        skipped=tuple(str(root / files[i]) for i in gathered.bad),
        indices=indices[gathered.kept],
    )


def check_same_size(
    lot: Lot, first: tuple[int, np.ndarray], second: tuple[int, np.ndarray]
) -> None:
    """Refuses two images of different sizes.

    Args:
        lot: What they are of.
        first: Position of one, and its pixels.
        second: That of the other.

    Raises:
        DataError: With both sizes.
    """
    if first[1].shape[:2] == second[1].shape[:2]:
        return
    one, other = (
        f"{lot.names[position]} is {pixels.shape[1]}x{pixels.shape[0]}"
        for position, pixels in (first, second)
    )
    raise DataError(
        f"{lot.noun} must have one size: {one} and {other} (width x height); "
        f"give --size (size=) to resize and centre-crop all."
    )


def _check_memory(lot: Lot, pixels: np.ndarray) -> None:
    """Refuse at the first image what the last would not fit into memory with."""
    if not hasattr(os, "sysconf"):
        return
    needed = len(lot.names) * pixels.size * 4
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > installed:
        raise DataError(
            f"the {len(lot.names)} {lot.noun} of {lot.where} would take {needed / 2**30:.1f} GiB "
            f"and this machine has {installed / 2**30:.1f}; give --size (size=) to shrink them, or "
            f"--limit."
        )


def unreadable(lot: Lot, bad: list[tuple[int, FileError]], skip_bad: bool) -> DataError:
    """What tells of files that cannot be read.

    Args:
        lot: What they are of.
        bad: Their positions, and what is wrong with each.
        skip_bad: Whether such files are left out.

    Returns:
        The error, which names and counts them.
    """
    named = some(f"{lot.names[position]} ({error})" for position, error in bad)
    remedy = (
        "none is left"
        if skip_bad
        else "repair or remove them, or leave them out with --skip-bad (skip_bad=True)"
    )
    return DataError(
        f"{len(bad)} of {len(lot.names)} {lot.noun} in {lot.where} cannot be read: {named}; "
        f"{remedy}."
    )


def _assemble(pixels: list[np.ndarray], channels: int | None) -> np.ndarray:
    """One array of all images, in [0, 1]; the list is emptied as it goes, to save memory."""
    depth = channels or max(image.shape[2] for image in pixels)
    images = np.empty((len(pixels), *pixels[0].shape[:2], depth), np.float32)
    for i, image in enumerate(pixels):
        scaled = image if image.dtype == np.float32 else image.astype(np.float32) / np.float32(255)
        images[i] = convert_channels(scaled, depth)
        pixels[i] = images[i]
    return images
