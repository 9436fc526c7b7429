"""Shapes as landmarks: loaded from files, and checked."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from diffclust.data.dataset import DataError, draw, encode_labels, some
from diffclust.data.landmark_files import StoredLandmarks, read_npz
from diffclust.data.landmark_tables import read_csv
from diffclust.data.tps import CURVES, read_tps

FORMATS = (".npz", ".csv", ".tps")
"""Files that `load_landmarks` reads."""

_LABELS = ("labels", "label", "y")
_FLAT = 1e-6
"""Landmarks lie on a line where they stray from it by less than this share of its length."""


@dataclasses.dataclass(frozen=True, eq=False)
class LandmarkSet:
    """Shapes, and what is known about them.

    Attributes:
        landmarks: Coordinates, float64 `[n, k, d]`: the same k landmarks in d dimensions, in the
            same order, for each of n shapes; in the file's units, times `scales`.
        names: Name of each shape; counts up from 0 where the file has none.
        labels: Class of each shape as a code, an index into `label_names`, int64 `[n]`; None where
            there are none. For evaluation only: no fit sees them.
        label_names: Name of each class; None where there are no labels.
        landmark_names: Name of each landmark; None where the file has none.
        columns: What else the file says of each shape, by name; arrays `[n]`.
        scales: What the coordinates of each shape were multiplied by, `[n]`; None for nothing.
        name: What the data are called in reports.
        path: The file; None where there is none.
        indices: Position of each shape in the source, int64 `[n]`; counts up from 0 when not
            given.
    """

    landmarks: np.ndarray
    names: tuple[str, ...] | None = None
    labels: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None
    landmark_names: tuple[str, ...] | None = None
    columns: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    scales: np.ndarray | None = None
    name: str = "shapes"
    path: str | None = None
    indices: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check that everything speaks of the same shapes."""
        if self.landmarks.ndim != 3 or self.landmarks.dtype != np.float64:
            raise DataError(
                f"landmarks must be float64 [n, landmarks, dims]: got {self.landmarks.dtype} "
                f"{list(self.landmarks.shape)}; pass them through diffclust.data.check_landmarks."
            )
        n, k, _ = self.landmarks.shape
        if self.names is None:
            object.__setattr__(self, "names", tuple(map(str, range(n))))
        if self.indices is None:
            object.__setattr__(self, "indices", np.arange(n))
        fields = ("names", "labels", "scales", "indices")
        # A column may be called like a field.
        each = [(field, getattr(self, field)) for field in fields] + [*self.columns.items()]
        for field, value in each:
            if value is not None and len(value) != n:
                raise DataError(
                    f"{field} must have one entry for each shape: got {len(value)} for {n} shapes; "
                    f"pass those of these shapes."
                )
        if self.landmark_names is not None and len(self.landmark_names) != k:
            raise DataError(
                f"landmark_names must have one entry for each landmark: got "
                f"{len(self.landmark_names)} for {k} landmarks; pass those of these landmarks."
            )

    def __len__(self) -> int:
        """Number of shapes."""
        return len(self.landmarks)

    @property
    def samples(self) -> np.ndarray:
        """The landmarks."""
        return self.landmarks

    @property
    def noun(self) -> str:
        """What a sample is called."""
        return "shape"

    @property
    def skipped(self) -> tuple[str, ...]:
        """Nothing: a table is read whole or not at all."""
        return ()

    @property
    def places(self) -> tuple[str, tuple[str, ...]]:
        """What tells where samples are from, and that of each: their names."""
        assert self.names is not None
        return "name", self.names

    def limit(self, n: int | None, seed: int = 0) -> "LandmarkSet":
        """At most n shapes, drawn at random, in their old order.

        Args:
            n: How many to keep; None or more than there are keeps all.
            seed: Seed of the draw; the same seed draws the same shapes.

        Returns:
            A set of `min(n, len(self))` shapes.

        Raises:
            DataError: If n < 1.
        """
        chosen = draw(len(self), n, seed)
        return self if chosen is None else self.take(chosen)

    def take(self, indices: Sequence[int] | np.ndarray) -> "LandmarkSet":
        """The shapes at some positions, in the order given.

        Args:
            indices: Positions in this set, integers `[m]`, or a boolean mask `[n]`.

        Returns:
            A set of m shapes; labels keep their codes and names.

        Raises:
            IndexError: If a position is out of range.
        """
        chosen = np.arange(len(self))[np.asarray(indices)]
        return dataclasses.replace(
            self,
            landmarks=self.landmarks[chosen],
            names=None if self.names is None else tuple(self.names[i] for i in chosen),
            labels=None if self.labels is None else self.labels[chosen],
            columns={key: column[chosen] for key, column in self.columns.items()},
            scales=None if self.scales is None else self.scales[chosen],
            indices=None if self.indices is None else self.indices[chosen],
        )


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


def check_landmarks(
    landmarks: object,
    *,
    collinear: Literal["refuse", "accept"] = "refuse",
    name: str = "landmarks",
    shapes: Sequence[str] | None = None,
) -> np.ndarray:
    """Check shapes, and bring them to float64.

    Args:
        landmarks: Array-like, `[n, landmarks, dims]`, of numbers.
        collinear: Whether shapes whose landmarks all lie on one line are refused (their
            covariances have no inverse) or accepted.
        name: What an error calls the array.
        shapes: What an error calls each shape; by default they are counted from 0.

    Returns:
        float64 `[n, landmarks, dims]`.

    Raises:
        DataError: If the shape is another, there are fewer than 3 landmarks or 2 dimensions, some
            are NaN or infinite, or all landmarks of a shape lie in one point or on one line; with
            the shapes.
    """
    if collinear not in ("refuse", "accept"):
        raise DataError(f"collinear must be 'refuse' or 'accept': got {collinear!r}.")
    try:
        given = np.asarray(landmarks)
    except ValueError as error:
        raise DataError(
            f"{name} must be one array [n, landmarks, dims]: these shapes have different numbers "
            f"of landmarks; give all the same ones."
        ) from error
    if given.ndim != 3 or 0 in given.shape:
        raise DataError(
            f"{name} must be [n, landmarks, dims], none of them 0: got {list(given.shape)}; "
            f"use landmarks[None] for a single shape, reshape(n, -1, 2) for flat rows."
        )
    if given.dtype.kind not in "iuf" and given.dtype.name != "bfloat16":
        raise DataError(f"{name} must hold numbers: got dtype {given.dtype}; convert them first.")
    if given.shape[1] < 3 or given.shape[2] < 2:
        raise DataError(
            f"{name} must have at least 3 landmarks in at least 2 dimensions: got "
            f"{list(given.shape)} as [n, landmarks, dims]; fewer have no shape: add landmarks, or "
            f"use moveaxis if the axes are in another order."
        )
    # Rounding is that of the type in which they came.
    unit = np.finfo(given.dtype).eps if given.dtype.kind == "f" else np.finfo(np.float64).eps
    checked = given.astype(np.float64)
    _refuse_missing(checked, name, shapes)
    _refuse_degenerate(checked, float(unit), collinear, name, shapes)
    return checked


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
            f"{what} is empty for shape {_shapes(empty, stored.names)}; fill "
            f"in the label, or take another column."
        )
    return found


def _shapes(indices: np.ndarray, names: Sequence[str] | None) -> str:
    """What an error calls some shapes."""
    return some(str(i) if names is None else repr(names[i]) for i in indices.tolist())


def _refuse_missing(array: np.ndarray, name: str, shapes: Sequence[str] | None) -> None:
    """Refuse NaN and infinities, naming shapes and, counted from 0, landmarks."""
    lost = ~np.all(np.isfinite(array), axis=2)
    bad = np.flatnonzero(np.any(lost, axis=1))
    if bad.size:
        first = some(np.flatnonzero(lost[bad[0]]).tolist())
        raise DataError(
            f"{name} must be finite: {bad.size} of {len(array)} shapes have missing, NaN or "
            f"infinite landmarks, at {_shapes(bad, shapes)} (landmarks {first} of the first of "
            f"them, counted from 0); fill them in, or leave out these shapes or landmarks."
        )


def _refuse_degenerate(
    array: np.ndarray, unit: float, collinear: str, name: str, shapes: Sequence[str] | None
) -> None:
    """Refuse shapes of no size, and perhaps of no width."""
    rounding = 8.0 * unit * np.abs(array).max(axis=(1, 2))
    extent = np.abs(array - array[:, :1]).max(axis=(1, 2))
    points = np.flatnonzero(extent <= rounding)
    if points.size:
        raise DataError(
            f"{name} must have landmarks apart from each other: all lie in one point in "
            f"{points.size} of {len(array)} shapes, at "
            f"{_shapes(points, shapes)}; remove or correct these shapes."
        )
    if collinear == "accept":
        return
    centred = array - array.mean(axis=1, keepdims=True)
    values = np.linalg.svd(centred, compute_uv=False)
    lines = np.flatnonzero(
        values[:, 1] <= _FLAT * values[:, 0] + rounding * np.sqrt(array.shape[1])
    )
    if lines.size:
        raise DataError(
            f"{name} must not lie on one line: they do in {lines.size} of {len(array)} shapes, at "
            f"{_shapes(lines, shapes)}; remove these shapes, or add landmarks "
            f"beside the line."
        )
