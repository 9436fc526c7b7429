"""Series over time: loading them from `.npz`, `.csv`, `.tsv` and `.ts` files."""

import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from diffclust import _validation
from diffclust._validation import reason_of
from diffclust.data.arrays import check_labels
from diffclust.data.dataset import LABEL_KEYS, DataError, SeriesSet, encode_labels
from diffclust.data.files import read_members
from diffclust.data.text import as_number, table_rows


def check_series(values: Any, name: str = "series") -> np.ndarray:
    """Check series, and bring them to float32 with a last axis of channels.

    Args:
        values: Array-like `[n, length]` or `[n, length, channels]` of numbers, NaN where a value is
            missing; or a list of series of different lengths, `[length]` or `[length, channels]`,
            which are filled up with NaN.
        name: What an error calls the array.

    Returns:
        float32 `[n, length, channels]`.

    Raises:
        DataError: If the shape is another, some values are infinite, or a series has fewer than
            two values.
    """
    try:
        return _validation.series(values, name).astype(np.float32, copy=False)
    except ValueError as error:
        raise DataError(str(error)) from error


def load_series(
    path: str | Path,
    *,
    labels: Sequence[object] | np.ndarray | None = None,
    name: str | None = None,
    length: int | None = None,
) -> SeriesSet:
    """Load series from a file, never unpickling anything.

    Args:
        path: An `.npz` with the key `series`, `[n, length]` or `[n, length, channels]`, NaN after
            the end of shorter ones, and perhaps `labels`; a `.csv` without a header and one series
            a row, empty after its end; a `.tsv` of the UCR archive, in which the class comes first;
            or a `.ts` of the archives, which aeon reads (`pip install '.[series]'`).
        labels: One class for each series; those of the file where they are not given.
        name: What the data are called; by default the file's name without its suffix.
        length: Series of fewer values are filled up with NaN to so many; None for the longest's.

    Returns:
        The series.

    Raises:
        DataError: If the file is missing, damaged or of another kind, or holds no series.
    """
    path = Path(path)
    known = ", ".join(_READERS)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"{str(path)!r} {what}; give the path of a file of series ({known}).")
    if path.suffix.lower() not in _READERS:
        raise DataError(
            f"{str(path)!r} is of no kind that series are read from; give a file of {known}."
        )
    try:
        values, own = _READERS[path.suffix.lower()](path)
    except DataError:
        raise
    # Each kind of file is damaged in ways of its own.
    except Exception as error:
        raise DataError(f"{str(path)!r} cannot be read ({reason_of(error)})") from error
    series = check_series(values, f"series in {str(path)!r}")
    missing = max(0, (length or 0) - series.shape[1])
    series = np.pad(series, ((0, 0), (0, missing), (0, 0)), constant_values=np.nan)
    given = own if labels is None else np.asarray(labels)
    if given is not None:
        given = check_labels(given, len(series), "labels", noun="series")
    stem = path.stem if name is None else name
    return SeriesSet(series, *encode_labels(given), name=stem, path=str(path))


def _read_npz(path: Path) -> tuple[Any, np.ndarray | None]:
    arrays = read_members(path, "series=series")
    if "series" not in arrays:
        raise DataError(
            f"{str(path)!r} has no key 'series'; save them with np.savez(path, series=series)"
        )
    return arrays["series"], next((arrays[key] for key in LABEL_KEYS if key in arrays), None)


def _read_tsv(path: Path) -> tuple[Any, np.ndarray]:
    rows, _ = _read_csv(path)
    classes = [float(row[0]) for row in rows]
    if other := [value for value in classes if not value.is_integer()]:
        raise DataError(
            f"the first column of {str(path)!r} holds {other[0]:g}, and in a .tsv of the UCR "
            "archive it holds the class, an integer; write a table without classes as .csv"
        )
    return [row[1:] for row in rows], np.asarray(classes, np.int64)


def _read_csv(path: Path) -> tuple[Any, None]:
    series = []
    for line, cells in table_rows(path, keep_empty=True):
        while len(cells) > 1 and not cells[-1]:
            cells.pop()
        where = f"of line {line} of {str(path)!r}"
        try:
            values = [as_number(cell, f"value {i + 1} {where}") for i, cell in enumerate(cells)]
        except DataError as error:
            if series or not all(cell[:1].isalpha() for cell in cells if cell):
                raise
            names = _validation.some(map(repr, cells))
            raise DataError(
                f"{str(path)!r} begins with a header ({names}), which a table of series does not "
                "have; remove it, or give a table of landmarks to a method of shapes."
            ) from error
        series.append(np.asarray(values))
    _refuse_numbered(series, path)
    return series, None


def _refuse_numbered(rows: list[np.ndarray], path: Path) -> None:
    """Refuses the header of a table that counts the columns, or warns where it may be a series."""

    def counts(values: np.ndarray) -> bool:
        return len(values) > 1 and np.array_equal(values, np.arange(len(values)))

    first = [row[0] for row in rows[1:]]
    has_row_names = (
        len(first) > 0 and np.isnan(rows[0][0]) and counts(np.asarray([*first, len(first)]))
    )
    is_header = counts(rows[0][1:]) if has_row_names else len(first) > 1 and counts(rows[0])
    if not is_header:
        return
    what = f"the first row of {str(path)!r} counts 0, 1, 2, ..."
    remedy = "write the table without header and row names (in pandas, header=False, index=False)"
    if has_row_names:
        raise DataError(f"{what}, as a header does; {remedy}.")
    warnings.warn(f"{what}, and is taken for a series; if it is a header, {remedy}", stacklevel=4)


def _read_ts(path: Path) -> tuple[Any, np.ndarray | None]:
    try:
        aeon = importlib.import_module("aeon.datasets")
    except ImportError as error:
        raise DataError(
            f"{str(path)!r} is read by aeon, which is not installed; run pip install '.[series]'"
        ) from error
    # Channels come first in each of them.
    cases, labels = aeon.load_from_ts_file(str(path))
    classes = np.asarray(labels)
    # Of a file without classes there are none; targets of a regression are no classes.
    has_classes = classes.size > 0 and classes.dtype.kind != "f"
    return [np.asarray(case).T for case in cases], classes if has_classes else None


_READERS = {".npz": _read_npz, ".csv": _read_csv, ".tsv": _read_tsv, ".ts": _read_ts}
"""What reads each kind of file."""
