"""Load shapes from a file of any of the known kinds."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diffclust._validation import some
from diffclust.data.dataset import DataError, encode_labels
from diffclust.data.landmarks.files import StoredLandmarks, read_npz
from diffclust.data.landmarks.landmark_set import LandmarkSet, check_landmarks
from diffclust.data.landmarks.tables import read_csv
from diffclust.data.landmarks.tps import CURVES, read_tps

FORMATS = (".npz", ".csv", ".tps")
"""Files that `load_landmarks` reads."""

_LABELS = ("labels", "label", "y")


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
            a shape. Or a `.tps` of tpsDig and its kin, whose keys are kept as columns, and where
            a landmark at -1 -1 is a missing one.
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
    landmarks = check_landmarks(
        stored.landmarks, collinear="accept", name=where, shapes=stored.names
    )
    if landmarks.shape[2] > 3:
        raise DataError(
            f"{where} must be [n, landmarks, 2] or [n, landmarks, 3]: got "
            f"{list(landmarks.shape)}; coordinates come last."
        )
    found = _labels(stored, labels, len(landmarks), path)
    codes, names = (None, None) if found is None else encode_labels(found)
    return LandmarkSet(
        landmarks=landmarks,
        names=stored.names,
        labels=codes,
        label_names=names,
        landmark_names=stored.landmark_names,
        columns=stored.columns,
        scales=stored.scales,
        name=path.stem if name is None else name,
        path=str(path),
    )


def _read(path: Path, curves: str, use_scale: bool) -> StoredLandmarks:
    """What a file of one of the known kinds holds."""
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
    """One label for each shape, integers or strings, or None."""
    if isinstance(labels, str) and labels not in stored.columns:
        held = some(map(repr, stored.columns)) or "none"
        raise DataError(
            f"{str(path)!r} has no column {labels!r} with one label for each of the {n} shapes: "
            f"its columns are {held}; name one of them."
        )
    if labels is None:
        labels = next((key for key in _LABELS if key in stored.columns), None)
        if labels is None:
            return None
    what = f"column {labels!r} in {str(path)!r}" if isinstance(labels, str) else "labels"
    found = stored.classes(labels) if isinstance(labels, str) else np.asarray(labels)
    if found.shape != (n,):
        raise DataError(
            f"{what} must hold one label for each of the {n} shapes: got shape "
            f"{list(found.shape)}; pass those of these shapes."
        )
    if found.dtype.kind == "f" and np.array_equal(found, np.round(found)):
        found = found.astype(np.int64)
    if found.dtype.kind not in "iubU":
        raise DataError(
            f"{what} must be integers or strings: got dtype {found.dtype}; convert them, or leave "
            f"them out."
        )
    if found.dtype.kind == "U" and (empty := np.flatnonzero(found == "")).size:
        raise DataError(
            f"{what} is empty for shape {_names(empty, stored.names)}; fill "
            f"in the label, or take another column."
        )
    return found


def _names(indices: np.ndarray, names: Sequence[str] | None) -> str:
    """What an error calls some shapes."""
    return some(str(i) if names is None else repr(names[i]) for i in indices.tolist())
