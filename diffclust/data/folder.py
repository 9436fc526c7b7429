"""A folder of pictures, flat or with one subfolder for each class."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from diffclust.data.archives import check_split
from diffclust.data.dataset import DataError, Dataset, draw
from diffclust.data.gather import Lot, dataset_of_files, decode_each, gather
from diffclust.data.listing import choose_split, list_files
from diffclust.data.pictures import FORMATS, OTHER_SUFFIXES, quiet_decoding, read_picture
from diffclust.data.resize import check_channels, parse_size


def load_folder(
    path: str | Path,
    *,
    split: str = "all",
    size: int | tuple[int, int] | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Load the PNG, JPEG, TIFF, WebP, BMP and GIF files of a folder and its subfolders.

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
        part: Number of a part and how many there are, such as `(0, 4)`: only that many consecutive
            files are read, the last of `limit` included. Labels keep their codes.
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
    found, classes = choose_split(root, find_pictures(root), split, "images")
    chosen = draw(len(found), limit, seed)
    indices = np.arange(len(found)) if chosen is None else chosen
    number, parts = part
    if len(indices) < parts:
        raise DataError(
            f"folder {str(root)!r} has {len(indices)} images, which {parts} processes cannot "
            f"share; start fewer."
        )
    indices = indices[len(indices) * number // parts : len(indices) * (number + 1) // parts]
    chosen_files = [found[i] for i in indices]
    # Results are closed at once when a file is refused: what is still waiting need not be read.
    with (
        quiet_decoding(),
        contextlib.closing(
            decode_each(lambda file: read_picture(root / file, target), chosen_files)
        ) as results,
    ):
        gathered = gather(
            results,
            folder_lot(root, chosen_files),
            channels=channels,
            skip_bad=skip_bad,
            progress=progress,
        )
    return dataset_of_files(gathered, root, chosen_files, indices, classes)


def find_pictures(root: Path) -> list[Path]:
    """All files with a picture's suffix, relative to the folder, in sorted order.

    Args:
        root: The folder.

    Returns:
        Relative paths, at least one.

    Raises:
        DataError: If there is no such folder, a part of it cannot be listed, or it holds none.
    """
    return list_files(root, (*FORMATS, *OTHER_SUFFIXES), "images", ", ".join(FORMATS))


def folder_lot(root: Path, files: Sequence[Path], noun: str = "images") -> Lot:
    """The files of a folder, as errors call them.

    Args:
        root: The folder.
        files: Paths relative to it.
        noun: What they are called.

    Returns:
        The lot.
    """
    return Lot(f"folder {str(root)!r}", tuple(repr(str(file)) for file in files), noun)
