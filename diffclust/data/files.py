"""Files of arrays: `.npy` and `.npz`, without pickle, and IDX, in which MNIST and its kin come.

They hold images and labels, weights of samples, or masks of pixels, which may be pictures too.
"""

import contextlib
import dataclasses
import gzip
import io
import math
import re
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO, Unpack

import numpy as np
from jaxtyping import Float
from numpy.lib.npyio import NpzFile

from diffclust._validation import reason_of, some
from diffclust.data.arrays import LoadOptions, LoadSettings, as_images, check_labels, fit_images
from diffclust.data.dataset import DataError, Dataset, FileError, draw, encode_labels
from diffclust.data.pictures import FORMATS, quiet_decoding, read_picture
from diffclust.masks import as_mask, mask_weights

_NPY, _PICKLE, _JPEG = b"\x93NUMPY", b"\x80", b"\xff\xd8\xff"
_ZIP = b"PK\3\4", b"PK\5\6"  # the latter of an empty one
_LABEL_KEYS = {"x": ("y", "labels"), "images": ("labels", "y"), "aligned": ("labels",)}
"""What labels may be called, by the name of the images."""

BOMB_RATIO, BOMB_BYTES = 200, 2**30
"""A member that grows this much, to this size, was made to fill the memory: images compress
a few times, and only near-blank ones a hundred times."""

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
"""The types of numbers, by the third byte of a file."""

_IDX_NAME = re.compile(r"idx[0-9]?(-u?byte)?(\.gz)?$", re.IGNORECASE)
_GZIP_MAGIC = b"\x1f\x8b"
_MAX_DEFLATE_RATIO = 1100
"""Deflate makes nothing smaller than by about so much."""


def load_array(
    path: str | Path, *, name: str | None = None, **settings: Unpack[LoadSettings]
) -> Dataset:
    """Load images from a `.npy`, `.npz` or IDX file, never unpickling anything.

    Args:
        path: The file. In an `.npz`, images are under `x_train` and `x_test` (labels under
            `y_train`, `y_test`, as Keras names them), under `x` or `images` (`y` or `labels`),
            under `aligned` as `diffclust export` writes them, or are the only array in it. An IDX
            file (`train-images-idx3-ubyte`, gzipped or not) finds its labels
            (`train-labels-idx1-ubyte`) beside it.
        name: What the data are called; by default the file's name without its suffix.
        **settings: As for `load`; nothing is skipped, and no progress reported.

    Returns:
        The images, with labels where there are any.

    Raises:
        DataError: If the file is missing, damaged, needs pickle, lacks the split, or holds
            something else than images (as in `as_images`), or if a setting is out of range.
    """
    path = Path(path)
    options = LoadOptions(**settings)
    read = read_idx if is_idx(path) else read_archive
    contents = read(path, options.split)
    stored, labels = contents.images, contents.labels
    count = len(stored) if stored.ndim else 0
    if labels is not None:
        labels = check_labels(labels, count, f"{contents.label_key} in {str(path)!r}")
    chosen = options.draw(count)
    raw = stored if len(chosen) == count else stored[chosen]
    images = as_images(raw, name=f"{contents.key} in {str(path)!r}", indices=chosen)
    codes, names = encode_labels(labels)
    return Dataset(
        images=fit_images(images, options.target, options.channels),
        labels=None if codes is None else codes[chosen],
        label_names=names,
        name=Path(path.name.removesuffix(".gz")).stem if name is None else name,
        indices=chosen,
    )


@dataclasses.dataclass(frozen=True)
class Contents:
    """The content of a file, as it was stored.

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
    if not path.is_file():
        raise DataError(f"{str(path)!r} is no file; give the path of a .npy or .npz file.")
    # Opened here, so that it is closed also when a member turns out to be damaged.
    with damage_explained(path), path.open("rb") as file:
        _check_header(file, path)
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, NpzFile):
            with loaded:
                return _read_members(loaded, path, split)
    if split != "all":
        raise no_split(path, split, "it is one array")
    return Contents(loaded, None, "the array")


@contextlib.contextmanager
def damage_explained(path: Path, example: str = "x=images, y=labels") -> Generator[None]:
    """Turns whatever reading a damaged `.npy` or `.npz` file raises into a `DataError`.

    Args:
        path: The file.
        example: What to save in its place, as arguments of `np.savez`.

    Yields:
        Nothing.

    Raises:
        DataError: With what is wrong, and what would do.
    """
    try:
        yield
    except (DataError, PermissionError):
        raise
    # A damaged file fails in many ways: zip, deflate, header and encryption each have their own.
    except Exception as error:
        if "pickle" in str(error).lower():
            wrong = (
                "needs pickle, which can run any code and is never loaded here; save plain "
                f"numbers or strings, for example with np.savez(path, {example})."
            )
        elif isinstance(error, MemoryError):
            wrong = "needs more memory than there is, or is damaged; save it smaller, or as uint8."
        else:
            wrong = (
                f"cannot be read as .npy or .npz ({reason_of(error)}); it is damaged, or of "
                f"another format: save it again, for example with np.savez(path, {example})."
            )
        raise DataError(f"{str(path)!r} {wrong}") from error


def _check_header(file: BinaryIO, path: Path) -> None:
    """Refuse what is neither `.npy` nor `.npz`, all of which `np.load` would take for pickle."""
    header = file.read(8)
    file.seek(0)
    if not header.startswith((_NPY, *_ZIP, _PICKLE)):
        raise DataError(
            f"{str(path)!r} is {'empty' if not header else 'neither .npy nor .npz inside'}; "
            f"save it again with np.save or np.savez."
        )


def _read_members(archive: NpzFile, path: Path, split: str) -> Contents:
    """Reads images and labels by their names; labels only if every part has them."""
    refuse_bombs(archive, path)
    keys, label_keys = choose_keys(archive.files, path, split)
    # A member that is no array comes as bytes, and is refused later for its type.
    images, labels = ([np.asarray(archive[k]) for k in names] for names in (keys, label_keys))
    key, label_key = " and ".join(keys), " and ".join(label_keys)
    if len({(array.shape[1:], array.dtype) for array in images}) > 1:
        raise DataError(
            f"{key} in {str(path)!r} must have images of one size and type: got "
            f"{' and '.join(f'{a.dtype} {list(a.shape)}' for a in images)}; choose one split."
        )

    def joined(parts: list[np.ndarray]) -> np.ndarray:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    complete = len(labels) == len(keys)
    return Contents(joined(images), joined(labels) if complete else None, key, label_key)


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
    held = some(map(repr, keys)) or "nothing"
    parts = [part for part in ("train", "test") if f"x_{part}" in keys]
    if split != "all" and split not in parts:
        raise no_split(path, split, f"it holds {held}")
    if parts:
        parts = parts if split == "all" else [split]
        labels = [f"y_{part}" for part in parts if f"y_{part}" in keys]
        return [f"x_{part}" for part in parts], labels
    for key, label_keys in _LABEL_KEYS.items():
        if key in keys:
            return [key], [each for each in label_keys if each in keys][:1]
    if len(keys) == 1:
        return keys, []
    raise DataError(
        f"{str(path)!r} has no images under a known name: it holds {held}; "
        f"name them x_train and x_test, x, or images (labels: y_train and y_test, y, or labels)."
    )


def read_members(path: Path, example: str) -> dict[str, np.ndarray]:
    """Read all arrays of an `.npz` file, never unpickling anything.

    Args:
        path: The file; it is closed also when a member turns out to be damaged.
        example: What it should hold, as arguments of `np.savez`.

    Returns:
        The arrays by their names.

    Raises:
        DataError: If the file is damaged, a single array (`.npy`) or a decompression bomb, or
            needs pickle.
    """
    with damage_explained(path, example), path.open("rb") as file:
        _check_header(file, path)
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, NpzFile):
            wrong = f"holds a single array without a name; save it with np.savez(path, {example})"
            raise DataError(f"{str(path)!r} {wrong}.")
        with archive:
            refuse_bombs(archive, path)
            return {key: np.asarray(archive[key]) for key in archive.files}


def read_npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Reads the header of an array in NumPy's format.

    Args:
        file: An open file at the beginning of the array; it is left at the first number.

    Returns:
        Its shape, whether it is stored column by column, and its dtype.

    Raises:
        ValueError: If it is none, or of a format that plain numbers do not have.
    """
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"format {version} holds no plain numbers")


def refuse_bombs(archive: NpzFile, path: Path) -> None:
    """Refuse members that would fill the memory from a few bytes."""
    assert archive.zip is not None  # as in every archive that is open
    for member in archive.zip.infolist():
        ratio = member.file_size / max(member.compress_size, 1)
        if member.file_size > BOMB_BYTES and ratio > BOMB_RATIO:
            raise DataError(
                f"{member.filename!r} in {str(path)!r} is a decompression bomb: "
                f"{member.compress_size:,} bytes that grow to {member.file_size:,}; "
                f"if it is meant so, save it with np.savez, uncompressed."
            )


def no_split(path: Path, split: str, reason: str) -> DataError:
    """Makes the error for a file that lacks a split.

    Args:
        path: The file.
        split: What was asked for.
        reason: Why it has none.

    Returns:
        The error.
    """
    return DataError(
        f"{str(path)!r} has no split {split!r}: {reason}; use 'all', or save x_train and x_test."
    )


def is_idx(path: Path) -> bool:
    """Whether a file is named as IDX files are.

    Args:
        path: The file.

    Returns:
        True for `train-images-idx3-ubyte`, `digits.idx`, and the like, with `.gz` or not.
    """
    return _IDX_NAME.search(path.name) is not None


def read_idx(path: Path, split: str = "all") -> Contents:
    """Read an IDX file of images, and the labels beside it where there are any.

    Args:
        path: The file, gzipped or not. Its labels are found by its name, with `labels` for
            `images` and `idx1` for `idx3` or `idx4`: `t10k-labels-idx1-ubyte.gz`.
        split: `"all"`; each split is a file of its own.

    Returns:
        The arrays as stored.

    Raises:
        DataError: If a file is missing, damaged, of another format or a decompression bomb, or
            another split is asked for.
    """
    if split != "all":
        raise DataError(
            f"{str(path)!r} has no split {split!r}: each split is a file of its own; use 'all'."
        )
    if not path.is_file():
        raise DataError(f"{str(path)!r} is no file; give the path of an IDX file.")
    images, plain = _read_idx(path), re.sub(r"\.gz$", "", path.name, flags=re.IGNORECASE)
    for word, other in (("labels", "idx1"), ("Labels", "idx1"), ("LABELS", "IDX1")):
        renamed = re.sub("images?", word, plain, flags=re.IGNORECASE)
        name = re.sub("idx[34]", other, renamed, flags=re.IGNORECASE)
        for beside in (path.with_name(name), path.with_name(f"{name}.gz")):
            if name != plain and beside.is_file():
                of_what = f"the labels {beside.name!r}"
                return Contents(images, _read_idx(beside), "the array", of_what)
    return Contents(images, None, "the array")


def _read_idx(path: Path) -> np.ndarray:
    """Reads the array of an IDX file."""
    with path.open("rb") as file:
        is_gzipped = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        try:
            with gzip.open(file) if is_gzipped else file as content:
                return _parse_idx(content, path, _MAX_DEFLATE_RATIO if is_gzipped else 1)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(
                f"{str(path)!r} is damaged: cannot be unpacked ({reason_of(error)}); get it again."
            ) from error


def _parse_idx(file: io.BufferedIOBase, path: Path, ratio: int) -> np.ndarray:
    """Reads an IDX array from bytes that unpack to at most `ratio` times as many."""
    stored = path.stat().st_size
    header = file.read(4)
    if not header:
        raise DataError(f"{str(path)!r} is empty; get it again.")
    kind, dims = (header[2], header[3]) if len(header) == 4 and header[:2] == b"\0\0" else (0, 0)
    if kind not in _IDX_TYPES or not dims:
        raise DataError(
            f"{str(path)!r} is no IDX file: it begins with {header.hex(' ')}, not 00 00, a "
            f"type and a number of dimensions; give a file such as train-images-idx3-ubyte."
        )
    sides = file.read(4 * dims)
    dtype = np.dtype(_IDX_TYPES[kind])
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


def load_weights(
    path: str | Path,
    indices: np.ndarray,
    *,
    total: int | None = None,
    drawn: tuple[int, int] | None = None,
) -> np.ndarray:
    """Load weights from a `.npy` file: one number for each sample of a source.

    Args:
        path: The file, `[n]`, of non-negative numbers, in the order of the source.
        indices: Positions in the source of the samples that are wanted, integers `[m]`, such as
            `Dataset.indices`: fewer than n after a limit or where bad files were left out.
        total: How many samples the source has, if that is known.
        drawn: The limit and the seed by which they were drawn from the source, if they were: with
            other numbers of samples others would have been.

    Returns:
        float64 `[m]`.

    Raises:
        DataError: If the file is missing, damaged, of another shape, type or length, or has a
            weight that is negative, NaN or infinite, or no positive one.
    """
    path = Path(path)
    stored = read_archive(path).images
    where = f"weights in {str(path)!r}"
    if stored.ndim != 1 or stored.dtype.kind not in "iuf":
        raise DataError(
            f"{where} must be one number for each sample: got {stored.dtype} "
            f"{list(stored.shape)}; save them with np.save as [n] floats."
        )
    least = int(indices.max()) + 1 if len(indices) else 0
    if len(stored) < least or total not in (None, len(stored)):
        raise DataError(
            f"{where} must be one for each sample of the source, in the same order: got "
            f"{len(stored)} for {f'at least {least}' if total is None else total}."
        )
    if drawn is not None and not np.isin(indices, draw(len(stored), *drawn)).all():
        raise DataError(
            f"{where} must be one for each sample of the source: got {len(stored)}, of which the "
            f"limit of {drawn[0]} would have drawn others."
        )
    weights = stored.astype(np.float64)
    if (bad := np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))).size:
        raise DataError(
            f"{where} must be finite and at least 0: {bad.size} are not, at {some(bad.tolist())}; "
            f"correct them."
        )
    chosen = weights[indices]
    if not np.any(chosen > 0.0):
        raise DataError(f"{where} must be positive somewhere: all are 0; correct them.")
    return chosen


def load_mask(
    path: str | Path, size: tuple[int, int] | None = None
) -> Float[np.ndarray, "height width"]:
    """Load which pixels of images count: a picture, black where they do not, or a `.npy` file.

    Args:
        path: A picture, whose grey levels are the weights, or numbers in [0, 1], 8-bit integers or
            booleans `[height, width]`. No JPEG: its compression makes edges of black not black.
        size: Height and width in pixels, to which a picture is resized and centre-cropped like the
            images; None leaves it.

    Returns:
        The weights, from 0 to 1.

    Raises:
        DataError: If the file is missing, damaged, of another shape or type, or hides all pixels.
    """
    path = Path(path)
    where = f"mask in {str(path)!r}"
    if path.suffix.lower() in FORMATS:
        try:
            if _begins_with(path, _JPEG):
                raise DataError(
                    f"{where} is a JPEG, in which pixels beside an edge are no longer black, and "
                    "would count; save it as PNG, from the original."
                )
            with quiet_decoding():
                weights = read_picture(path, size)
        except FileError as error:
            raise DataError(f"{where} cannot be read: {error}; give another picture.") from error
        levels = 255 if weights.max() > 1 else 1
        weights = weights[..., 0] if weights.shape[2] == 1 else weights.mean(axis=2) / levels
    else:
        weights = read_archive(path).images
    try:
        mask = as_mask(weights)
    except ValueError as error:
        raise DataError(f"{where} is not one: {error}.") from error
    return np.ones(weights.shape) if mask is None else mask_weights(mask)[..., 0]


def _begins_with(path: Path, signature: bytes) -> bool:
    """Whether a file, if it can be read, begins with these bytes."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(signature)) == signature
    return False
