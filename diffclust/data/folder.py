"""A folder of pictures, flat or with one subfolder for each class; finding and decoding files."""

import contextlib
import dataclasses
import functools
import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy as np

from diffclust._validation import some
from diffclust.data.arrays import LoadOptions, LoadSettings, convert_channels
from diffclust.data.dataset import DataError, Dataset, FileError, encode_labels
from diffclust.data.pictures import FORMATS, OTHER_SUFFIXES, quiet_decoding, read_picture
from diffclust.image_source import installed_memory
from diffclust.storage.staging import EXPORT_MARK, is_output

_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev"}
"""What splits are called; two of them are no classes."""

_MAX_THREADS = 8
"""Decoding releases Python's lock; more threads would wait for the disk."""

_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True)
class Listing:
    """Items that are decoded together, and the word for them in errors.

    Attributes:
        items: What to decode.
        names: Name of each item, as errors print it.
        where: What holds them, such as `folder 'photos'`.
        noun: What several of them are called.
    """

    items: Sequence[Any]
    names: Sequence[str]
    where: str
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

    threads = min(_MAX_THREADS, 2 * (os.cpu_count() or 1))
    with ThreadPoolExecutor(threads) as pool:
        # As many as threads need: what is decoded waits in memory for what is slower.
        ahead: deque[Future[np.ndarray | FileError]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(attempt, item))
                if len(ahead) > 2 * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def decode_listed(
    decode: Callable[[Any], np.ndarray], listing: Listing, options: LoadOptions
) -> Generator[tuple[int, np.ndarray]]:
    """Decode a listing in several threads, in order, and refuse it if its images differ in size.

    Args:
        decode: Gives the pixels of an item, or raises `FileError`.
        listing: What to decode.
        options: Whether what cannot be decoded is left out, and what is called after each.

    Yields:
        Position in the listing of an image that could be decoded, and its pixels, uint8 in 0..255
        or float32 in [0, 1], `[height, width, 1 or 3]`.

    Raises:
        DataError: If some cannot be decoded (and `skip_bad` is False) or none can, or sizes differ.
    """
    errors: list[str] = []
    sizes: dict[str, str] = {}
    # Closed at once when a file is refused: what is still waiting need not be read.
    with contextlib.closing(decode_each(decode, listing.items)) as results:
        for position, result in enumerate(results):
            if isinstance(result, FileError):
                errors.append(f"{listing.names[position]} ({result})")
            else:
                sizes.setdefault(f"{result.shape[1]}x{result.shape[0]}", listing.names[position])
                if len(sizes) > 1:
                    (size, one), (other_size, other) = sizes.items()
                    raise DataError(
                        f"{listing.noun} must have one size: {one} is {size} and {other} is "
                        f"{other_size} (width x height); give --size (size=) to resize and "
                        f"centre-crop all, or --size and --pad (size=PaddedSize(...)) to show all "
                        f"of them whole."
                    )
                yield position, result
            if options.progress is not None:
                options.progress(position + 1, len(listing.names))
    if errors and (not options.skip_bad or not sizes):
        remedy = "repair or remove them, or leave them out with --skip-bad (skip_bad=True)"
        if options.skip_bad:
            remedy = "none is left"
        raise DataError(
            f"{len(errors)} of {len(listing.names)} {listing.noun} in {listing.where} cannot be "
            f"read: {some(errors)}; {remedy}."
        )


def gather(
    decode: Callable[[Any], np.ndarray], listing: Listing, options: LoadOptions
) -> tuple[np.ndarray, np.ndarray]:
    """Make one array of decoded images.

    Args:
        decode: As for `decode_listed`.
        listing: What to decode.
        options: As for `decode_listed`, and the number of channels; None makes all grey if all are
            grey, else RGB.

    Returns:
        Intensities in [0, 1], float32 `[m, height, width, channels]`, and the position of each
        image in the listing, int64 `[m]`.

    Raises:
        DataError: As for `decode_listed`, and if the images would not fit into memory.
    """
    kept, pixels = [], []
    for position, image in decode_listed(decode, listing, options):
        if not pixels:
            needed, installed = 4 * len(listing.names) * image.size, installed_memory()
            # Refused at the first image, not where memory ends.
            if installed is not None and needed > installed:
                raise DataError(
                    f"the {len(listing.names)} {listing.noun} of {listing.where} would take "
                    f"{needed / 2**30:.1f} GiB and this machine has {installed / 2**30:.1f}; give "
                    f"--size (size=) to shrink them, or --limit."
                )
        kept.append(position)
        pixels.append(image)
    depth = options.channels or max(image.shape[2] for image in pixels)
    images = np.empty((len(pixels), *pixels[0].shape[:2], depth), np.float32)
    for i, image in enumerate(pixels):
        images[i] = intensities(image, depth)
        # Frees the decoded pixels as it goes.
        pixels[i] = images[i]
    return images, np.array(kept, np.int64)


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


def load_folder(
    path: str | Path, *, part: tuple[int, int] = (0, 1), **settings: Unpack[LoadSettings]
) -> Dataset:
    """Load the PNG, JPEG, TIFF, WebP, BMP, GIF and Netpbm files of a folder and its subfolders.

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
    return load_pictures(Path(path), find_pictures(Path(path)), part=part, **settings)


def load_pictures(
    root: Path,
    names: list[Path],
    *,
    part: tuple[int, int] = (0, 1),
    **settings: Unpack[LoadSettings],
) -> Dataset:
    """Load some pictures of a folder, as `load_folder` loads all of them.

    Args:
        root: The folder.
        names: Their paths relative to it, sorted.
        part: As for `load_folder`.
        **settings: As for `load`.

    Returns:
        The images in the order of their paths, with labels where there are any.

    Raises:
        DataError: As for `load_folder`.
    """
    options = LoadOptions(**settings)
    files = choose_files(root, names, options, part=part)
    with quiet_decoding():
        decode = functools.partial(read_picture, size=options.target)
        return files.dataset(*gather(decode, files.listing, options))


def find_pictures(root: Path) -> list[Path]:
    """Finds all files with a picture's suffix, relative to the folder, in sorted order.

    Args:
        root: The folder.

    Returns:
        Relative paths, at least one.

    Raises:
        DataError: If there is no such folder, a part of it cannot be listed, or it holds none.
    """
    return list_files(root, (*FORMATS, *OTHER_SUFFIXES), "images", ", ".join(FORMATS))


def list_files(root: Path, suffixes: Collection[str], noun: str, wanted: str) -> list[Path]:
    """Lists all files with one of some suffixes, relative to the folder, in sorted order.

    Hidden files and folders are passed over, and so are runs, sweeps and exports. Linked folders
    are followed, each real folder once, so that a loop of links ends.

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
            f"{error.filename!r} cannot be listed ({error.strerror}); grant access, or move it."
        ) from error

    paths: list[Path] = []
    others: set[str] = set()
    for folder, names in _walk(root, refuse):
        if names is None:
            others.add("what diffclust wrote")
        for name in names or ():
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
    """Tells which kinds of files a folder and its subfolders hold.

    Args:
        root: The folder.
        *kinds: The suffixes of each kind, in lower case.

    Returns:
        For each kind, whether there is a file of it. What cannot be listed counts as empty.
    """
    held: set[str] = set()
    for _, names in _walk(root, None):
        held.update(Path(name).suffix.lower() for name in names or ())
        if not any(held.isdisjoint(kind) for kind in kinds):
            break
    return tuple(not held.isdisjoint(kind) for kind in kinds)


def _walk(
    root: Path, refuse: Callable[[OSError], None] | None
) -> Iterator[tuple[str, list[str] | None]]:
    """Walks over what is not hidden; follows links, but visits each real folder once.

    The names are None in folders that diffclust wrote.
    """
    visited: set[str] = set()
    for folder, subfolders, names in os.walk(root, followlinks=True, onerror=refuse):
        real = os.path.realpath(folder)
        # In sorted order, so that which of two links to one folder counts is no accident.
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        # An export that is asked for by name is read as it is.
        written = is_output(Path(folder), {*names} - {EXPORT_MARK if folder == str(root) else ""})
        if real in visited or written:
            subfolders.clear()
            if written:
                yield folder, None
            continue
        visited.add(real)
        yield folder, [name for name in names if not name.startswith(".")]


@dataclasses.dataclass(frozen=True)
class FolderFiles:
    """The files of a folder that are to be read, with their classes.

    Attributes:
        root: The folder.
        listing: The files, and what errors call them.
        indices: Position of each among all files of the folder's split.
        labels: Code of each file's class; None where subfolders tell no classes.
        label_names: Name of each class.
    """

    root: Path
    listing: Listing
    indices: np.ndarray
    labels: np.ndarray | None
    label_names: tuple[str, ...] | None

    def dataset(self, images: Any, kept: np.ndarray) -> Dataset:
        """Makes the data set of these files.

        Args:
            images: The images of those that could be read.
            kept: Positions of these files, integers `[m]`.

        Returns:
            The images in the order of the files, with labels where there are classes.
        """
        paths = np.array([str(path) for path in self.listing.items], object)
        return Dataset(
            images=images,
            labels=None if self.labels is None else self.labels[kept],
            label_names=self.label_names,
            paths=tuple(paths[kept]),
            name=self.root.resolve().name or self.listing.noun,
            skipped=tuple(np.delete(paths, kept)),
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
    top = {parts[0] if parts else "" for parts in parents}
    if top <= {"train", "test"}:
        if options.split != "all":
            paths = [file for file in paths if file.parts[0] == options.split]
        parents = [file.parts[1:-1] for file in paths]
    elif len(top) > 1 and {name.lower() for name in top} <= _SPLITS:
        raise DataError(
            f"folder {str(root)!r} holds splits, {some(map(repr, sorted(top)))}, which would be "
            f"taken for classes; keep those named train and test there, or give one of them."
        )
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
    codes, label_names = encode_labels(classes if has_classes else None)
    indices = options.draw(len(paths))
    number, parts = part
    if len(indices) < parts:
        raise DataError(
            f"folder {str(root)!r} has {len(indices)} images, which {parts} processes cannot "
            f"share; start fewer."
        )
    indices = indices[len(indices) * number // parts : len(indices) * (number + 1) // parts]
    labels = None if codes is None else codes[indices]
    chosen = [paths[i] for i in indices]
    files, names = [root / path for path in chosen], [repr(str(path)) for path in chosen]
    listing = Listing(files, names, f"folder {str(root)!r}", noun)
    return FolderFiles(root, listing, indices, labels, label_names)
