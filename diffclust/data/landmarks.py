"""Shapes as landmarks: loading them from `.npz`, `.csv` and `.tps` files, and checking arrays."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from diffclust import _validation
from diffclust._validation import some
from diffclust.data.arrays import check_labels
from diffclust.data.dataset import LABEL_KEYS, DataError, LandmarkSet, encode_labels
from diffclust.data.files import read_members, read_npy_header
from diffclust.data.landmark_text import CURVES, StoredLandmarks, read_csv, read_tps
from diffclust.data.text import as_column

FORMATS = (".npz", ".csv", ".tps")
"""Files that `load_landmarks` reads."""


def load_landmarks(
    path: str | Path,
    *,
    labels: str | Sequence[object] | np.ndarray | None = None,
    curves: str = "refuse",
    use_scale: bool = True,
    name: str | None = None,
) -> LandmarkSet:
    """Load shapes from a file, never unpickling anything.

    Args:
        path: An `.npz` with the key `landmarks`, `[n, k, d]`, perhaps `names` and
            `landmark_names`; arrays as long as it are kept as columns. A `.csv` with a header
            `shape, landmark, x, y`, perhaps `z`, and one row a landmark, where landmarks are
            ordered by number or else by first appearance; further columns are kept, with one value
            a shape. Or one with columns such as `x1, y1, x2, y2` or `nose_x, nose_y`, perhaps
            `shape`, `name`, `id` or `specimen`, and one row a shape. Or a `.tps` of tpsDig and its
            kin, whose keys are kept as columns, and where a landmark at -1 -1 is a missing one.
        labels: The column that holds the classes, or one class for each shape; by default the
            column `labels`, `label` or `y`, if there is one. Of a text file the classes are what
            it says, in the order of numbers where they are whole ones.
        curves: What to do with curves in a `.tps`: `"append"` takes their points as landmarks,
            `"refuse"` refuses the file.
        use_scale: Whether coordinates are multiplied by `SCALE=` of a `.tps`.
        name: What the data are called; by default the file's name without its suffix.

    Returns:
        The shapes, with at least 3 landmarks each, in 2 or 3 dimensions, none of them missing.

    Raises:
        DataError: If the file is missing, empty or damaged, of another kind, or holds a shape that
            is not like the others, lacks a landmark, or has all landmarks in one point.
    """
    path = Path(path)
    if curves not in CURVES:
        raise DataError(f"curves must be one of {', '.join(CURVES)}: got {curves!r}.")
    stored = _read(path, curves, use_scale)
    where = f"landmarks in {str(path)!r}"
    called = {"shapes": stored.names, "names": stored.landmark_names}
    landmarks = check_landmarks(stored.landmarks, collinear="accept", name=where, **called)
    if landmarks.shape[2] > 3:
        raise DataError(
            f"{where} must be [n, k, 2 or 3]: got {list(landmarks.shape)}; coordinates come last."
        )
    codes, label_names = encode_labels(_labels(stored, labels, len(landmarks), path))
    columns = {
        key: as_column(values) if isinstance(values, list) else values
        for key, values in stored.columns.items()
        if np.shape(values) == (len(landmarks),)
    }
    return LandmarkSet(
        **{**vars(stored), "landmarks": landmarks, "columns": columns},
        labels=codes,
        label_names=label_names,
        name=path.stem if name is None else name,
        path=str(path),
    )


def _read(path: Path, curves: str, use_scale: bool) -> StoredLandmarks:
    """Reads a file of one of the known kinds."""
    suffix = path.suffix.lower()
    known = ", ".join(FORMATS)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{str(path)!r} {what}; give the path of a file of landmarks ({known}).")
    if suffix not in FORMATS:
        raise DataError(
            f"{str(path)!r} is of no kind that landmarks are read from; give a file of {known}."
        )
    if not path.stat().st_size or (suffix != ".npz" and not path.read_bytes().strip()):
        raise DataError(f"{str(path)!r} is empty; give a file that holds landmarks ({known}).")
    if suffix == ".npz":
        return read_npz(path)
    if suffix == ".csv":
        return read_csv(path)
    return read_tps(path, curves=curves, use_scale=use_scale)


def _labels(
    stored: StoredLandmarks, labels: object, n: int, path: Path
) -> Sequence[str] | np.ndarray | None:
    """Reads one label for each shape, integers or strings, or None."""
    if isinstance(labels, str) and labels not in stored.columns:
        held = some(map(repr, stored.columns))
        others = f"its columns are {held}; name one of them" if held else "it has no such columns"
        raise DataError(
            f"{str(path)!r} has no column {labels!r} with one label for each of the {n} shapes: "
            f"{others}."
        )
    if labels is None:
        labels = next((key for key in LABEL_KEYS if key in stored.columns), None)
        if labels is None:
            return None
    what = f"column {labels!r} in {str(path)!r}" if isinstance(labels, str) else "labels"
    given = stored.columns[labels] if isinstance(labels, str) else np.asarray(labels)
    if isinstance(given, list):
        # Numbers with a fraction are no classes: of these, what the text file says.
        values = as_column(given)
        given = np.array(given, dtype=np.str_) if values.dtype.kind == "f" else values
    checked = check_labels(given, n, what, noun="shapes")
    if checked.dtype.kind == "U" and (empty := np.flatnonzero(checked == "")).size:
        unnamed = empty.tolist()
        names = unnamed if stored.names is None else [repr(stored.names[i]) for i in unnamed]
        raise DataError(
            f"{what} is empty for shape {some(names)}; fill in the label, or take another column."
        )
    return checked


def read_npz(path: Path) -> StoredLandmarks:
    """Read the key `landmarks`, or the only array, and what is as long; never unpickling.

    Args:
        path: The file.

    Returns:
        The arrays; `names` and `landmark_names` are taken from the keys of that name.

    Raises:
        DataError: If the file is damaged, needs pickle, or has no landmarks.
    """
    arrays = read_members(path, "landmarks=landmarks")
    key = "landmarks" if "landmarks" in arrays else next(iter(arrays), "")
    if key != "landmarks" and len(arrays) != 1:
        raise DataError(
            f"{str(path)!r} has no key 'landmarks': it holds {some(map(repr, arrays)) or 'nothing'}"
            f"; save them with np.savez(path, landmarks=landmarks)."
        )
    landmarks = arrays.pop(key)
    n, k = (*landmarks.shape[:2], 0, 0)[:2]
    names, landmark_names = (
        _texts(array) if array is not None and array.shape == (count,) else None
        for array, count in (
            (arrays.pop("names", None), n),
            (arrays.pop("landmark_names", None), k),
        )
    )
    labels = {key: arrays[key] for key in LABEL_KEYS if key in arrays}
    arrays |= {key: array[:, 0] for key, array in labels.items() if array.shape == (n, 1)}
    # Labels of another shape are refused by name; y may be something else.
    named = set(LABEL_KEYS) - {"y"}
    columns = {key: array for key, array in arrays.items() if array.shape == (n,) or key in named}
    return StoredLandmarks(landmarks, names, landmark_names, columns)


def _texts(array: np.ndarray) -> tuple[str, ...]:
    """Names as strings, also where they are stored as bytes."""
    names = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    return tuple(map(str, names.tolist()))


def table_of(path: Path) -> Literal["landmarks", "series"] | None:
    """Tells whether a file that was given for images holds landmarks or series.

    Args:
        path: What may be a file.

    Returns:
        `"landmarks"` for a `.tps`, a `.csv` with a header, and an `.npz` with that key; `"series"`
        for a `.ts` or `.tsv`, a `.csv` without a header, and an `.npz` with that key; None for
        images, and where nobody knows.
    """
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".csv", ".tps", ".tsv", ".ts") or not path.is_file():
        return None
    if suffix == ".csv":
        with path.open("rb") as file:
            first = file.read(2**16).removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n")[0]
        # A header has names, and a row of series numbers.
        numbers = rb"(?i)\b(nan?|n/a|null|none|inf)\b|\xe2\x88\x92|[\deE+.,;\s\"-]"
        return "landmarks" if re.sub(numbers, b"", first) else "series"
    if suffix != ".npz":
        return "landmarks" if suffix == ".tps" else "series"
    try:
        with zipfile.ZipFile(path) as archive:
            keys = {name.removesuffix(".npy") for name in archive.namelist()}
            kind = "series" if "series" in keys else None
            kind = "landmarks" if "landmarks" in keys else kind
            pictures = keys & {"x", "images", "x_train", "x_test"} if kind else ()
            # Names of pictures, or coordinates, have one axis.
            return None if any(_num_axes(archive, each) > 1 for each in pictures) else kind
    except Exception:
        # What is wrong with it, and it may be anything, is for who reads it to say.
        return None


def _num_axes(archive: zipfile.ZipFile, key: str) -> int:
    """The number of axes of an array in an archive, by its header."""
    with archive.open(f"{key}.npy") as file:
        return len(read_npy_header(file)[0])


def check_landmarks(
    landmarks: object,
    *,
    collinear: Literal["refuse", "accept"] = "refuse",
    name: str = "landmarks",
    shapes: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Check shapes, and bring them to float64.

    Args:
        landmarks: Array-like, `[n, landmarks, dims]`, of numbers.
        collinear: Whether shapes whose landmarks all lie on one line are refused (their
            covariances have no inverse) or accepted.
        name: What an error calls the array.
        shapes: What an error calls each shape; by default they are counted from 0.
        names: What it calls each landmark, likewise.

    Returns:
        float64 `[n, landmarks, dims]`.

    Raises:
        DataError: If the shape is another, there are fewer than 3 landmarks or 2 dimensions, some
            are NaN or infinite, or all landmarks of a shape lie in one point or on one line; with
            the shapes.
    """
    try:
        return _validation.landmarks(
            landmarks, name, collinear=collinear, shapes=shapes, names=names
        )
    except ValueError as error:
        raise DataError(str(error)) from error
