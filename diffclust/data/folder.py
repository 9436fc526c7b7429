"""A folder of pictures, flat or with one subfolder for each class; and finding files in folders."""

import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from diffclust._validation import some
from diffclust.data.arrays import LoadOptions, LoadSettings
from diffclust.data.dataset import DataError, Dataset, encode_labels
from diffclust.data.gather import Listing, gather
from diffclust.data.pictures import FORMATS, OTHER_SUFFIXES, quiet_decoding, read_picture


def load_folder(
    path: str | Path,
    *,
    part: tuple[int, int] = (0, 1),
    **settings: Unpack[LoadSettings],
) -> Dataset:
    """Load the PNG, JPEG, TIFF, WebP, BMP and GIF files of a folder and its subfolders.

    Files whose suffix is no picture's, and hidden ones, are passed over. Where all pictures lie in
    two or more subfolders, the subfolders' names are the labels. Where the folder holds nothing but
    `train` and `test`, these are the splits, and what they hold is read in the same way.

    Args:
        path: The folder.
        part: Number of a part and how many there are, such as `(0, 4)`: only that many consecutive
            files are read, the last of `limit` included. Labels keep their codes.
        **settings: As for `load`.

    Returns:
        The images in the order of their paths, with labels where there are any.

    Raises:
        DataError: If there is no such folder, it holds no pictures, some cannot be read (and
            `skip_bad` is False), sizes differ (and `size` is None), the images would not fit into
            memory, or a setting is out of range.
    """
    root, options = Path(path), LoadOptions(**settings)
    files = choose_files(root, find_pictures(root), options, part=part)
    with quiet_decoding():
        decode = functools.partial(read_picture, size=options.target)
        return files.dataset(*gather(decode, files.paths, files.listing, options))


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


def list_files(root: Path, suffixes: Collection[str], noun: str, wanted: str) -> list[Path]:
    """All files with one of some suffixes, relative to the folder, in sorted order.

    Hidden files and folders are passed over. Linked folders are followed, each real folder once,
    so that a loop of links ends.

    Args:
        root: The folder.
        suffixes: What the names end in, in lower case.
        noun: What the files are called in errors.
        wanted: What an error says should be there.

    Returns:
        Relative paths, at least one.

    Raises:
        DataError: If there is no such folder, a part of it cannot be listed, or it holds none.
    """
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise DataError(f"{str(root)!r} {what}; give a folder that holds {noun}.")

    def refuse(error: OSError) -> None:
        raise DataError(
            f"folder {error.filename!r} cannot be listed ({error.strerror}); "
            f"grant access, or move it away."
        ) from error

    paths: list[Path] = []
    others: set[str] = set()
    for folder, names in _walk(root, refuse):
        for name in names:
            suffix = Path(name).suffix.lower()
            if suffix in suffixes:
                paths.append((Path(folder) / name).relative_to(root))
            else:
                others.add(repr(suffix)[1:-1] or "no suffix")
    if not paths:
        holds = f"only other files ({some(sorted(others))})" if others else "no files"
        raise DataError(
            f"folder {str(root)!r} holds no {noun}: {holds}; put files ending in {wanted} there."
        )
    return sorted(paths, key=lambda file: file.parts)


def kinds_in(root: Path, *kinds: Collection[str]) -> tuple[bool, ...]:
    """Which kinds of files a folder holds, in it or below; as soon as that is known.

    Args:
        root: The folder.
        *kinds: The suffixes of each kind, in lower case.

    Returns:
        For each kind, whether there is a file of it. What cannot be listed counts as empty.
    """
    present = [False] * len(kinds)
    for _, names in _walk(root, None):
        for name in names:
            suffix = Path(name).suffix.lower()
            present = [seen or suffix in kind for seen, kind in zip(present, kinds, strict=True)]
        if all(present):
            break
    return tuple(present)


def _walk(root: Path, refuse: Callable[[OSError], None] | None) -> Iterator[tuple[str, list[str]]]:
    """`os.walk` over what is not hidden; linked folders too, but each real one once."""
    visited: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        # In sorted order, so that which of two links to one folder counts is no accident.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if real in visited:
            subfolders.clear()
            continue
        visited.add(real)
        yield folder, [name for name in names if not name.startswith(".")]


@dataclasses.dataclass(frozen=True)
class FolderFiles:
    """Files of a folder that are to be read.

    Attributes:
        root: The folder.
        paths: The files.
        indices: Position of each among all files of the folder's split.
        listing: The files, as errors call them.
        labels: Code of each file's class; None where subfolders tell no classes.
        label_names: Name of each class.
    """

    root: Path
    paths: tuple[Path, ...]
    indices: np.ndarray
    listing: Listing
    labels: np.ndarray | None
    label_names: tuple[str, ...] | None

    def dataset(self, images: Any, kept: np.ndarray, bad: list[int]) -> Dataset:
        """The data set of these files.

        Args:
            images: The images of those that could be read.
            kept: Positions of these files, integers `[m]`.
            bad: Positions of those that could not be read.

        Returns:
            The images in the order of the files, with labels where there are classes.
        """
        return Dataset(
            images=images,
            labels=None if self.labels is None else self.labels[kept],
            label_names=self.label_names,
            paths=tuple(str(self.paths[i]) for i in kept),
            name=self.root.resolve().name or self.listing.noun,
            skipped=tuple(str(self.paths[i]) for i in bad),
            indices=self.indices[kept],
        )


def choose_files(
    root: Path,
    paths: list[Path],
    options: LoadOptions,
    *,
    part: tuple[int, int] = (0, 1),
    noun: str = "images",
) -> FolderFiles:
    """The files of a split, or some of them drawn at random.

    Args:
        root: The folder.
        paths: Its files, as paths relative to it.
        options: Which split, `"train"` or `"test"` only where the folder holds nothing but these
            two, and how many files of it.
        part: Number of a part and how many there are: only that many consecutive files are taken.
        noun: What the files are called in errors.

    Returns:
        The files. Their classes are the names of their first subfolders, where all files of the
        split lie in two or more of these.

    Raises:
        DataError: If the folder has no splits, or nothing in this one, the limit is below 1, or
            there are fewer files than parts.
    """
    parents = [file.parts[:-1] for file in paths]
    if {parts[0] if parts else "" for parts in parents} <= {"train", "test"}:
        if options.split != "all":
            paths = [file for file in paths if file.parts[0] == options.split]
        parents = [file.parts[1:-1] for file in paths]
    elif options.split != "all":
        raise DataError(
            f"folder {str(root)!r} has no splits; use split 'all', or sort the {noun} into "
            f"subfolders named train and test."
        )
    if not paths:
        raise DataError(
            f"folder {str(root)!r} has no {noun} for split {options.split!r}; use split 'all'."
        )
    classes = [parts[0] for parts in parents if parts]
    has_classes = len(classes) == len(paths) and len(set(classes)) > 1
    codes, names = encode_labels(classes if has_classes else None)
    indices = options.draw(len(paths))
    number, parts = part
    if len(indices) < parts:
        raise DataError(
            f"folder {str(root)!r} has {len(indices)} images, which {parts} processes cannot "
            f"share; start fewer."
        )
    indices = indices[len(indices) * number // parts : len(indices) * (number + 1) // parts]
    labels = None if codes is None else codes[indices]
    listing = Listing(f"folder {str(root)!r}", tuple(repr(str(paths[i])) for i in indices), noun)
    return FolderFiles(
        root, tuple(root / paths[i] for i in indices), indices, listing, labels, names
    )
