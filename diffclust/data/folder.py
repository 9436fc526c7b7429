"""A folder of pictures, flat or with one subfolder for each class."""

import contextlib
import os
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from diffclust.data.archives import check_split
from diffclust.data.dataset import DataError, Dataset, draw, encode_labels, some
from diffclust.data.pictures import FORMATS, OTHER_SUFFIXES, PictureError, read_picture
from diffclust.data.resize import check_channels, convert_channels, parse_size

_READERS = 8
"""Threads; decoding releases Python's lock, and the disk is slower than so many."""


def load_folder(
    path: str | Path,
    *,
    split: str = "all",
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Load the PNG and JPEG files of a folder and its subfolders.

    Files whose suffix is no picture's, and hidden ones, are passed over. Where all pictures lie in
    two or more subfolders, the subfolders' names are the labels. Where the folder holds nothing but
    `train` and `test`, these are the splits, and what they hold is read in the same way.

    Args:
        path: The folder.
        split: `"train"` or `"test"` for that subfolder, `"all"` for everything.
        size: Side of a square, or height and width, in pixels, to which images are resized and
            centre-cropped; None requires that all have one size.
        channels: 1 to make all grey, 3 to make all RGB; None for grey if all files are grey, else
            RGB.
        skip_bad: Leave out files that cannot be read, and name them in `Dataset.skipped`.
        limit: At most so many images, drawn at random before any is read, in their old order.
        seed: Seed of the draw.
        progress: Called as `progress(done, total)` after each file.

    Returns:
        The images in the order of their paths, with labels where there are any.

    Raises:
        DataError: If there is no such folder, it holds no pictures, some cannot be read (and
            `skip_bad` is False), sizes differ (and `size` is None), the images would not fit into
            memory, or a setting is out of range.
    """
    root, target = Path(path), parse_size(size)
    check_split(split)
    check_channels(channels)
    found, classes = _choose_split(root, find_pictures(root), split)
    chosen = draw(len(found), limit, seed)
    indices = np.arange(len(found)) if chosen is None else chosen
    files = [root / found[i] for i in indices]

    pixels: list[np.ndarray] = []
    kept: list[int] = []
    bad: list[tuple[Path, PictureError]] = []
    # Closed at once when a file is refused: what is still waiting need not be read.
    with contextlib.closing(_read_all(files, target)) as results:
        for position, result in enumerate(results):
            if isinstance(result, PictureError):
                bad.append((files[position], result))
            else:
                if pixels:
                    _check_same_size(root, files[kept[0]], pixels[0], files[position], result)
                else:
                    _check_memory(root, result, len(files))
                pixels.append(result)
                kept.append(position)
            if progress is not None:
                progress(position + 1, len(files))
    if bad and (not skip_bad or not pixels):
        raise _unreadable(root, bad, len(files), skip_bad)

    codes, names = (None, None) if classes is None else encode_labels(classes)
    return Dataset(
        images=_assemble(pixels, channels),
        labels=None if codes is None else codes[indices[kept]],
        label_names=names,
        paths=tuple(str(files[i]) for i in kept),
        name=root.resolve().name or "images",
        skipped=tuple(str(file) for file, _ in bad),
        indices=indices[kept],
    )


def find_pictures(root: Path) -> list[Path]:
    """All files with a picture's suffix, relative to the folder, in sorted order.

    Linked folders are followed, each real folder once, so that a loop of links ends.

    Args:
        root: The folder.

    Returns:
        Relative paths, at least one.

    Raises:
        DataError: If there is no such folder, a part of it cannot be listed, or it holds none.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise DataError(f"{str(root)!r} {what}; give a folder that holds PNG or JPEG images.")

    def refuse(error: OSError) -> None:
        raise DataError(
            f"folder {error.filename!r} cannot be listed ({error.strerror}); "
            f"grant access, or move it away."
        ) from error

    found: list[Path] = []
    others: set[str] = set()
    visited: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        # In sorted order, so that which of two links to one folder counts is no accident.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        for name in names:
            suffix = Path(name).suffix.lower()
            if name.startswith("."):
                continue
            if suffix in FORMATS or suffix in OTHER_SUFFIXES:
                found.append((Path(folder) / name).relative_to(root))
            else:
                others.add(suffix or "no suffix")
    if not found:
        holds = f"only other files ({some(sorted(others))})" if others else "no files"
        raise DataError(
            f"folder {str(root)!r} holds no images: {holds}; put files ending in "
            f"{', '.join(FORMATS)} there."
        )
    return sorted(found, key=lambda file: file.parts)


def _choose_split(root: Path, found: list[Path], split: str) -> tuple[list[Path], list[str] | None]:
    """The files of a split, and the class of each, where subfolders tell it."""
    parents = [file.parts[:-1] for file in found]
    if {parts[0] if parts else "" for parts in parents} <= {"train", "test"}:
        if split != "all":
            found = [file for file in found if file.parts[0] == split]
        parents = [file.parts[1:-1] for file in found]
    elif split != "all":
        raise DataError(
            f"folder {str(root)!r} has no splits; use split 'all', or sort the images into "
            f"subfolders named train and test."
        )
    if not found:
        raise DataError(f"folder {str(root)!r} has no images for split {split!r}; use split 'all'.")
    classes = [parts[0] for parts in parents if parts]
    return found, classes if len(classes) == len(found) and len(set(classes)) > 1 else None


def _read_all(
    files: list[Path], size: tuple[int, int] | None
) -> Generator[np.ndarray | PictureError]:
    """The pixels of each file, or why there are none, in order."""
    from PIL import Image

    def read(file: Path) -> np.ndarray | PictureError:
        try:
            return read_picture(file, size)
        except PictureError as error:
            return error

    # Filters are set around the pool, not in its threads: they are the whole process's.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        pool = ThreadPoolExecutor(max_workers=min(_READERS, 2 * (os.cpu_count() or 1)))
        try:
            yield from pool.map(read, files)
        finally:
            pool.shutdown(cancel_futures=True)


def _check_same_size(
    root: Path, first: Path, first_pixels: np.ndarray, second: Path, second_pixels: np.ndarray
) -> None:
    height, width, other_height, other_width = first_pixels.shape[:2] + second_pixels.shape[:2]
    if (height, width) != (other_height, other_width):
        raise DataError(
            f"images must have one size: {str(first.relative_to(root))!r} is {width}x{height} and "
            f"{str(second.relative_to(root))!r} is {other_width}x{other_height} (width x height); "
            f"give --size (size=) to resize and centre-crop all."
        )


def _check_memory(root: Path, pixels: np.ndarray, n: int) -> None:
    """Refuse at the first image what the last would not fit into memory with."""
    if not hasattr(os, "sysconf"):
        return
    needed = n * pixels.size * 4
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > installed:
        raise DataError(
            f"the {n} images of folder {str(root)!r} would take {needed / 2**30:.1f} GiB and this "
            f"machine has {installed / 2**30:.1f}; give --size (size=) to shrink them, or --limit."
        )


def _unreadable(
    root: Path, bad: list[tuple[Path, PictureError]], total: int, skip_bad: bool
) -> DataError:
    """Name and count the files that cannot be read."""
    named = some(f"{str(file.relative_to(root))!r} ({error})" for file, error in bad)
    remedy = (
        "none is left"
        if skip_bad
        else "repair or remove them, or leave them out with --skip-bad (skip_bad=True)"
    )
    return DataError(
        f"{len(bad)} of {total} images in folder {str(root)!r} cannot be read: {named}; {remedy}."
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
