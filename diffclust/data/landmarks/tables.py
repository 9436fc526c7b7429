"""Landmarks in tables: one row a landmark, in a text file with a header."""

import csv
import dataclasses
import io
from pathlib import Path

import numpy as np

from diffclust._validation import some
from diffclust.data.dataset import DataError
from diffclust.data.landmarks.files import StoredLandmarks, as_column, as_number, read_text


def read_csv(path: Path) -> StoredLandmarks:
    """Read one row a landmark, under a header `shape, landmark, x, y`, perhaps `z` and more.

    Args:
        path: The file; commas, semicolons or tabs between the fields.

    Returns:
        Shapes by first appearance; landmarks by number where all their names are whole numbers,
        else by first appearance; further columns, of which each shape has one value.

    Raises:
        DataError: If a column is missing, a row is of another length or doubled, a field is not a
            number, a shape lacks a landmark, or a further column varies within a shape.
    """
    text = read_text(path)
    beginning = text.lstrip().split("\n", 1)[0]
    delimiter = max(",;\t", key=beginning.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
    table: _Table | None = None
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if table is None and any(cells):
                table = _table(cells, path)
            elif table is not None and any(cells):
                table.add(cells, reader.line_num)
    except csv.Error as error:
        raise DataError(
            f"line {reader.line_num} of {str(path)!r} is no row of a table ({error}); save it "
            f"again as .csv."
        ) from error
    if table is None or not table.points:
        raise DataError(f"{str(path)!r} holds a header and no rows; give one row a landmark.")
    return table.landmarks()


@dataclasses.dataclass
class _Table:
    """The rows that were read so far."""

    path: Path
    header: list[str]
    axes: list[str]
    points: dict[str, dict[str, tuple[list[float], int]]] = dataclasses.field(default_factory=dict)
    """Coordinates and line of each landmark of each shape."""
    extras: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def add(self, cells: list[str], line: int) -> None:
        """Take one row."""
        where = f"line {line} of {str(self.path)!r}"
        if len(cells) != len(self.header):
            raise DataError(
                f"{where} has {len(cells)} fields, and the header {len(self.header)}; make them "
                f"the same, or put quotes around a field that holds the delimiter."
            )
        fields = dict(zip(self.header, cells, strict=True))
        shape, landmark = fields.pop("shape"), fields.pop("landmark")
        if not shape or not landmark:
            raise DataError(f"{where} names no shape or no landmark; fill in both.")
        known = self.points.setdefault(shape, {})
        if landmark in known:
            raise DataError(
                f"{where} repeats landmark {landmark!r} of shape {shape!r} from line "
                f"{known[landmark][1]}; keep one of the two rows."
            )
        what = f"of landmark {landmark!r} of shape {shape!r}, {where},"
        place = [as_number(fields.pop(axis), f"{axis} {what}") for axis in self.axes]
        known[landmark] = place, line
        first = self.extras.setdefault(shape, fields)
        for column, value in fields.items():
            if value != first[column]:
                raise DataError(
                    f"column {column!r} must have one value for a shape: shape {shape!r} in "
                    f"{str(self.path)!r} has {first[column]!r} and {value!r}; keep one, or leave "
                    f"out the column."
                )

    def landmarks(self) -> StoredLandmarks:
        """All rows as arrays."""
        names = list(dict.fromkeys(name for known in self.points.values() for name in known))
        order = sorted(names, key=int) if all(name.isdecimal() for name in names) else names
        for shape, known in self.points.items():
            if missing := [name for name in order if name not in known]:
                raise DataError(
                    f"shape {shape!r} in {str(self.path)!r} has {len(known)} of {len(order)} "
                    f"landmarks and lacks {some(map(repr, missing))}; add the rows, or leave out "
                    f"the shape, or these landmarks everywhere."
                )
        others = [name for name in self.header if name not in ("shape", "landmark", *self.axes)]
        columns = {name: [fields[name] for fields in self.extras.values()] for name in others}
        return StoredLandmarks(
            np.array([[known[name][0] for name in order] for known in self.points.values()]),
            tuple(self.points),
            tuple(order),
            {name: as_column(values) for name, values in columns.items()},
            texts={name: np.array(values, dtype=np.str_) for name, values in columns.items()},
        )


def _table(cells: list[str], path: Path) -> _Table:
    """A table with a header and no rows."""
    needed = ("shape", "landmark", "x", "y")
    header = [cell.lower() if cell.lower() in (*needed, "z") else cell for cell in cells]
    if not set(needed) <= set(header):
        raise DataError(
            f"{str(path)!r} must begin with a header that names the columns shape, landmark, x and "
            f"y (and z): got {some(map(repr, cells))}; put it above the rows."
        )
    if len(set(header)) < len(header):
        doubled = sorted({name for name in header if header.count(name) > 1})
        raise DataError(
            f"the header of {str(path)!r} names {some(map(repr, doubled))} more than once; "
            f"give each column a name of its own."
        )
    return _Table(path, header, [axis for axis in "xyz" if axis in header])
