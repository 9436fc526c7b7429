"""Text files of landmarks: tables in `.csv`, and `.tps`, as tpsDig and its kin write them."""

import dataclasses
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from diffclust._validation import some
from diffclust.data.dataset import DataError
from diffclust.data.text import as_number, read_text, table_rows

CURVES = ("refuse", "append")
"""What can be done with curves and outlines."""

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_ ]*?)\s*=\s*(.*)")
_COMMENT = ("#", '"', "'")
_COORDINATE = re.compile(r"([xyz])[._ ]?(\d+)|(.+)[._ ]([xyz])", re.IGNORECASE)
"""The column of a coordinate in a table with one row a shape, such as x1, 1.X and nose_x."""
_NAMES = ("shape", "name", "id", "specimen", "")
"""Columns that may name the shapes of such a table; that of the names of rows has no name."""


@dataclasses.dataclass(frozen=True)
class StoredLandmarks:
    """The content of a file of landmarks; coordinates that it marks as missing are NaN.

    Attributes:
        landmarks: Coordinates, of any shape and type if it was an array.
        names: Name of each shape, or None.
        landmark_names: Name of each landmark, or None.
        columns: What else is known of each shape, by name: arrays `[n]`, or the fields of a text
            file.
        scales: What the coordinates of each shape were multiplied by, or None.
    """

    landmarks: np.ndarray
    names: tuple[str, ...] | None = None
    landmark_names: tuple[str, ...] | None = None
    columns: Mapping[str, np.ndarray | list[str]] = dataclasses.field(default_factory=dict)
    scales: np.ndarray | None = None


def read_csv(path: Path) -> StoredLandmarks:
    """Read one row a landmark, or one row a shape, under a header.

    The header is `shape, landmark, x, y`, perhaps `z` and more; or names the coordinates of each
    landmark, as `x1, y1, x2, y2`, `1.X, 1.Y` or `nose_x, nose_y`, perhaps after `shape`, `name`,
    `id` or `specimen`. Without these, shapes have the numbers of their rows, from 0.

    Args:
        path: The file; commas, semicolons or tabs between the fields.

    Returns:
        Shapes by first appearance; landmarks by number where all their names are integers,
        else by first appearance; further columns, of which each shape has one value.

    Raises:
        DataError: If a column is missing, a row is of another length or repeated, a field is not a
            number, a shape lacks a landmark, or a further column varies within a shape.
    """
    # Coordinates and line of each landmark of each shape, and the further fields of each shape.
    points: dict[str, dict[str, tuple[list[float], int]]] = {}
    further: dict[str, dict[str, str]] = {}
    has_row_names = False
    for line, fields in _rows(path):
        where = f"line {line} of {str(path)!r}"
        shape, landmark = fields.pop("shape"), fields.pop("landmark")
        if not shape or not landmark:
            raise DataError(f"{where} names no shape or no landmark; fill in both.")
        known = points.setdefault(shape, {})
        if landmark in known:
            raise DataError(
                f"{where} repeats landmark {landmark!r} of shape {shape!r} from line "
                f"{known[landmark][1]}; keep one of the two rows."
            )
        what = f"of landmark {landmark!r} of shape {shape!r}, {where},"
        axes = [axis for axis in "xyz" if axis in fields]
        known[landmark] = [as_number(fields.pop(axis), f"{axis} {what}") for axis in axes], line
        first = further.setdefault(shape, fields)
        for column, value in fields.items():
            # A column without a name may hold the names of rows, as R and pandas write them.
            has_row_names |= not column and value != first[column]
            if column and value != first[column]:
                raise DataError(
                    f"column {column!r} must have one value for a shape: shape {shape!r} in "
                    f"{str(path)!r} has {first[column]!r} and {value!r}; keep one of them."
                )
    if not points:
        raise DataError(f"{str(path)!r} holds a header and no rows; give one row a landmark.")
    order = _landmark_names(points, path)
    landmarks = np.array([[known[name][0] for name in order] for known in points.values()])
    names = [key for key in next(iter(further.values())) if key or not has_row_names]
    columns = {key: [one[key] for one in further.values()] for key in names}
    return StoredLandmarks(landmarks, tuple(points), tuple(order), columns)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields line number and fields, by column name, of each landmark in a table."""
    header: list[str] = []
    width = 0
    coordinates: dict[str, dict[str, str]] = {}
    for number, (line, cells) in enumerate(table_rows(path), start=-1):
        # What has no name at the end is no column: often there are delimiters alone.
        width = width or len(cells)
        while len(cells) > len(header) and (not cells[-1] or (header and len(cells) <= width)):
            cells.pop()
        if not header:
            coordinates = _coordinate_columns(cells, path)
            header = _header(cells, path, is_wide=bool(coordinates))
            continue
        if len(cells) != len(header):
            raise DataError(
                f"line {line} of {str(path)!r} has {len(cells)} fields, and the header "
                f"{len(header)}; put quotes around a field that holds the delimiter."
            )
        fields = dict(zip(header, cells, strict=True))
        if not coordinates:
            yield line, fields
            continue
        name = next((fields.pop(column) for column in _NAMES if column in fields), str(number))
        points = [
            {"shape": name, "landmark": mark, **{axis: fields.pop(own[axis]) for axis in own}}
            for mark, own in coordinates.items()
        ]
        yield from ((line, fields | point) for point in points)


def _coordinate_columns(cells: list[str], path: Path) -> dict[str, dict[str, str]]:
    """Columns by landmark and axis of a table with one row a shape; none of any other table."""
    columns: dict[str, dict[str, str]] = {}
    if "landmark" in map(str.lower, cells):
        return columns
    for cell in cells:
        if match := _COORDINATE.fullmatch(cell):
            axis, landmark = (match[1] or match[4]).lower(), match[2] or match[3]
            columns.setdefault(landmark, {})[axis] = cell
    axes = sorted({"x", "y"}.union(*columns.values()))
    for landmark, own in columns.items():
        if missing := [axis for axis in axes if axis not in own]:
            raise DataError(
                f"the header of {str(path)!r} has {some(map(repr, own.values()))} and no "
                f"{missing[0]} of landmark {landmark!r}; give every landmark {' and '.join(axes)}, "
                "or another name to what is no coordinate."
            )
    return columns


def _header(cells: list[str], path: Path, *, is_wide: bool) -> list[str]:
    """Checks the names of columns, and puts those of shapes and coordinates in lower case."""
    needed = ("shape", "landmark", "x", "y")
    known = _NAMES if is_wide else (*needed, "z")
    header = [cell.lower() if cell.lower() in known else cell for cell in cells]
    if not is_wide and not set(needed) <= set(header):
        has_numbers = any(cell[:1].isdecimal() or cell[:1] in ("+", "-", ".") for cell in cells)
        mend = (
            "put it above the rows, or x1, y1, x2, y2 and so on if each row is a shape"
            if has_numbers
            else "name them so, in one row a landmark, or name the columns x1, y1, x2, y2 and so "
            "on, in one row a shape; a table of series has no header"
        )
        raise DataError(
            f"{str(path)!r} must begin with a header that names the columns shape, landmark, x and "
            f"y (and z): got {some(map(repr, cells))}; {mend}."
        )
    if doubled := sorted(name for name, times in Counter(header).items() if times > 1):
        raise DataError(
            f"the header of {str(path)!r} names {some(map(repr, doubled))} more than once; "
            f"give each column a name of its own."
        )
    return header


def _landmark_names(points: Mapping[str, Mapping[str, object]], path: Path) -> list[str]:
    """Orders the names of the landmarks, and checks that every shape has all of them."""
    names = list(dict.fromkeys(name for known in points.values() for name in known))
    order = sorted(names, key=int) if all(name.isdecimal() for name in names) else names
    for shape, known in points.items():
        if missing := [name for name in order if name not in known]:
            raise DataError(
                f"shape {shape!r} in {str(path)!r} has {len(known)} of {len(order)} landmarks and "
                f"lacks {some(map(repr, missing))}; add the rows, or leave out the shape."
            )
    return order


def read_tps(path: Path, *, curves: str = "refuse", use_scale: bool = True) -> StoredLandmarks:
    """Read a `.tps` file: `LM=` or `LM3=`, coordinates, and keys such as `ID=` and `SCALE=`.

    Args:
        path: The file; keys in either case, lines that begin with # or a quote are comments.
        curves: `"append"` puts the points of curves and outlines behind the landmarks, `"refuse"`
            refuses a file that has any.
        use_scale: Whether coordinates are multiplied by `SCALE=`.

    Returns:
        The shapes, named by `ID=`, or by `IMAGE=` where ids are missing or repeated; all keys as
        columns in lower case, an empty string where a shape lacks one.

    Raises:
        DataError: If a line is not understood, shapes differ in the number of landmarks, one of
            them is missing (-1 -1), there are curves that are refused, or some shapes have a scale
            and some have none or several.
    """
    records = _records(path)
    if not records:
        raise DataError(f"{str(path)!r} holds no LM= or LM3=, with which a shape begins; add some.")
    for record in records:
        if curves == "refuse" and len(record.points) > record.landmarks:
            raise DataError(
                f"{record.name()} in {str(path)!r} has curves; remove them, or take them as "
                "landmarks too: --append-curves, in Python curves='append'."
            )
        if record.size() != records[0].size():
            raise DataError(
                f"{record.name()} in {str(path)!r} has {record.size()}, and {records[0].name()} "
                f"has {records[0].size()}; give all shapes the same landmarks, or leave out some."
            )
    _refuse_missing(records, path)
    scales = _scales(records, path) if use_scale else None
    landmarks = np.array([record.points for record in records])
    landmarks = landmarks.reshape(len(records), -1, records[0].dims)
    if scales is not None:
        landmarks *= scales[:, None, None]
    keys = dict.fromkeys(key for record in records for key in record.fields)
    columns = {key: [record.fields.get(key, "") for record in records] for key in keys}
    candidates = (columns.get(key, [""]) for key in ("id", "image"))
    unique = (tuple(c) for c in candidates if all(c) and len(set(c)) == len(records))
    return StoredLandmarks(landmarks, next(unique, None), None, columns, scales)


@dataclasses.dataclass
class _Record:
    """One shape of a `.tps` file while it is read."""

    line: int
    dims: int
    points: list[list[float]]
    landmarks: int
    fields: dict[str, str]

    def name(self) -> str:
        """The name of this shape in error messages."""
        label = self.fields.get("id") or self.fields.get("image")
        return f"shape {label!r} (line {self.line})" if label else f"the shape of line {self.line}"

    def size(self) -> str:
        """Describes the size, which must be the same for all shapes."""
        more = len(self.points) - self.landmarks
        curves = f" and {more} points of curves" if more else ""
        return f"{self.landmarks} landmarks{curves} in {self.dims} dimensions"


def _records(path: Path) -> list[_Record]:
    """Reads the shapes of a `.tps` file."""
    records: list[_Record] = []
    expected = 0
    numbered = enumerate((line.strip() for line in io.StringIO(read_text(path))), start=1)
    lines = [(i, text) for i, text in numbered if text and not text.startswith(_COMMENT)]
    for number, line in [*lines, (0, "END=")]:
        where = f"line {number} of {str(path)!r}"
        match = _KEY.fullmatch(line)
        if match and expected:
            raise DataError(
                f"{records[-1].name()} in {str(path)!r} ends {expected} lines of coordinates short "
                f"of what its LM= or POINTS= says; add them, or mark them NA."
            )
        key, value = (match[1].upper(), match[2].strip()) if match else ("", "")
        begins_shape = key in ("LM", "LM3")
        if number and not records and not begins_shape:
            raise DataError(
                f"{where} comes before any LM= or LM3=, with which a shape begins in a .tps file: "
                f"got {line[:40]!r}; remove it, or put it below."
            )
        if begins_shape or key in ("POINTS", "POINTS3"):
            if not value.isdecimal():
                raise DataError(
                    f"{key}= in {where} must give the number of points: got {value!r}; correct it."
                )
            expected = int(value)
            if begins_shape:
                records.append(_Record(number, 3 if key == "LM3" else 2, [], expected, {}))
        elif match and number and key not in ("CURVES", "OUTLINES"):
            fields, key = records[-1].fields, key.lower()
            fields[key] = f"{fields[key]}; {value}" if key in fields else value
        elif not match:
            if not expected:
                raise DataError(
                    f"{where} is neither KEY=value nor coordinates that LM= or POINTS= announced: "
                    f"got {line[:40]!r}; correct the count above it, or remove it."
                )
            expected -= 1
            records[-1].points.append(_coordinates(line, records[-1], where))
    return records


def _coordinates(line: str, record: _Record, where: str) -> list[float]:
    texts = line.split()
    if len(texts) != record.dims:
        remedy = "LM3= above points in space, LM= above points in the plane"
        if "," in line:
            remedy = "decimal points for commas within numbers"
        raise DataError(
            f"{where} must hold {record.dims} coordinates: got {line[:40]!r}; write {remedy}, with "
            f"blanks between the numbers."
        )
    what = f"a coordinate of {record.name()}, {where}"
    return [as_number(text, what) for text in texts]


def _refuse_missing(records: Sequence[_Record], path: Path) -> None:
    """Refuses landmarks at -1 -1, which is how tpsDig marks missing ones."""
    missing = [
        (record, number)
        for record in records
        for number, point in enumerate(record.points)
        if all(value == -1.0 for value in point)
    ]
    if missing:
        record, number = missing[0]
        mark = " ".join(["-1"] * record.dims)
        more = f", and so are {len(missing) - 1} more" if len(missing) > 1 else ""
        raise DataError(
            f"landmark {number} (counted from 0) of {record.name()} in {str(path)!r} is "
            f"missing{more}: in a .tps file {mark} means that; fill it in, or leave out the shape, "
            f"or this landmark everywhere; if it does lie there, shift all coordinates."
        )


def _scales(records: Sequence[_Record], path: Path) -> np.ndarray | None:
    """Reads `SCALE=` of every shape; None where no shape has one."""
    without = [record for record in records if "scale" not in record.fields]
    if len(without) == len(records):
        return None
    if without:
        raise DataError(
            f"{without[0].name()} in {str(path)!r} has no SCALE=, which "
            f"{len(records) - len(without)} other shapes have; add it, or leave all "
            "out: --no-scale, in Python use_scale=False."
        )
    scales = np.empty(len(records))
    for number, record in enumerate(records):
        text, where = record.fields["scale"], f"{record.name()} in {str(path)!r}"
        if "; " in text:
            raise DataError(
                f"{where} repeats SCALE=: got {text!r}; keep one, or leave all out: --no-scale, "
                "in Python use_scale=False."
            )
        scales[number] = as_number(text, f"SCALE= of {where}")
        if not 0.0 < scales[number] < np.inf:
            raise DataError(
                f"SCALE= of {where} must be a positive number: got {text!r}; leave all out "
                "by --no-scale, in Python use_scale=False."
            )
    return scales
