"""Decode many files at once, and make one array of what came out."""

import dataclasses
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from diffclust._validation import some
from diffclust.data.arrays import LoadOptions, convert_channels
from diffclust.data.dataset import DataError, FileError

_READERS = 8
"""Threads; decoding releases Python's lock, and the disk is slower than so many."""

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True)
class Listing:
    """What is to be decoded together, as errors call it.

    Attributes:
        where: What holds it, such as `folder 'photos'`.
        names: Name of each file or record, as errors print it.
        noun: What several of them are called.
    """

    where: str
    names: tuple[str, ...]
    noun: str = "images"


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


def decode_listed(
    decode: Callable[[_Item], np.ndarray],
    items: Sequence[_Item],
    listing: Listing,
    options: LoadOptions,
    bad: list[int],
) -> Generator[tuple[int, np.ndarray]]:
    """Decode a listing in several threads, in order, and refuse it if its images differ in size.

    Args:
        decode: Gives the pixels of an item, or raises `FileError`.
        items: What to decode.
        listing: What errors call it.
        options: Whether what cannot be decoded is left out, and what is called after each.
        bad: Positions of what cannot be decoded are appended to it.

    Yields:
        Position of an image in the listing, and its pixels, uint8 in 0..255 or float32 in [0, 1],
        `[height, width, 1 or 3]`.

    Raises:
        DataError: If some cannot be decoded (and `skip_bad` is False) or none can, or sizes differ.
    """
    errors: list[str] = []
    first: tuple[int, tuple[int, ...]] | None = None
    results = decode_each(decode, items)
    try:
        for position, result in enumerate(results):
            if isinstance(result, FileError):
                bad.append(position)
                errors.append(f"{listing.names[position]} ({result})")
            else:
                height, width = result.shape[:2]
                first = first or (position, (height, width))
                if (height, width) != first[1]:
                    raise DataError(
                        f"{listing.noun} must have one size: {listing.names[first[0]]} is "
                        f"{first[1][1]}x{first[1][0]} and {listing.names[position]} is "
                        f"{width}x{height} (width x height); "
                        f"give --size (size=) to resize and centre-crop all."
                    )
                yield position, result
            if options.progress is not None:
                options.progress(position + 1, len(listing.names))
    finally:
        # At once when a file is refused: what is still waiting need not be read.
        results.close()
    if errors and (not options.skip_bad or first is None):
        remedy = (
            "none is left"
            if options.skip_bad
            else "repair or remove them, or leave them out with --skip-bad (skip_bad=True)"
        )
        raise DataError(
            f"{len(errors)} of {len(listing.names)} {listing.noun} in {listing.where} cannot be "
            f"read: {some(errors)}; {remedy}."
        )


def gather(
    decode: Callable[[_Item], np.ndarray],
    items: Sequence[_Item],
    listing: Listing,
    options: LoadOptions,
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Make one array of decoded images.

    Args:
        decode: As for `decode_listed`.
        items: What to decode.
        listing: What errors call it.
        options: As for `decode_listed`, and the number of channels; None makes all grey if all are
            grey, else RGB.

    Returns:
        Intensities in [0, 1], float32 `[m, height, width, channels]`, the position of each image
        in the listing, int64 `[m]`, and the positions of those that could not be decoded.

    Raises:
        DataError: As for `decode_listed`, and if the images would not fit into memory.
    """
    bad, kept, pixels = [], [], []
    for position, image in decode_listed(decode, items, listing, options, bad):
        if not pixels:
            _check_memory(listing, image)
        kept.append(position)
        pixels.append(image)
    depth = options.channels or max(image.shape[2] for image in pixels)
    images = np.empty((len(pixels), *pixels[0].shape[:2], depth), np.float32)
    for i, image in enumerate(pixels):
        images[i] = intensities(image, depth)
        # Frees the decoded pixels as it goes.
        pixels[i] = images[i]
    return images, np.array(kept, np.int64), bad


def intensities(pixels: np.ndarray, channels: int) -> np.ndarray:
    """Decoded pixels as intensities in [0, 1].

    Args:
        pixels: uint8, or float32 in [0, 1], `[height, width, 1 or 3]`.
        channels: 1 or 3.

    Returns:
        float32 `[height, width, channels]`.
    """
    scaled = pixels if pixels.dtype == np.float32 else pixels.astype(np.float32) / np.float32(255)
    return convert_channels(scaled, channels)


def installed_memory() -> int | None:
    """Bytes of memory of this machine; None where nobody knows."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_memory(listing: Listing, pixels: np.ndarray) -> None:
    """Refuse at the first image what the last would not fit into memory with."""
    needed, installed = len(listing.names) * pixels.size * 4, installed_memory()
    if installed is not None and needed > installed:
        raise DataError(
            f"the {len(listing.names)} {listing.noun} of {listing.where} would take "
            f"{needed / 2**30:.1f} GiB and this machine has {installed / 2**30:.1f}; give --size "
            f"(size=) to shrink them, or --limit."
        )
