"""Landmarks in `.tps` files, as tpsDig and its kin write them."""

import dataclasses
import io
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diffclust.data.dataset import DataError
from diffclust.data.landmarks.files import StoredLandmarks, as_column, as_number, read_text

CURVES = ("refuse", "append")
"""What can be done with curves and outlines."""

_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_ ]*?)\s*=\s*(.*)")
_COMMENT = ("#", '"', "'")


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
                f"{record.name()} in {str(path)!r} has curves; pass curves='append' to take their "
                f"points as landmarks too, or remove them."
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
    keys = dict.fromkeys(key for record in records for key in record.fields)
    columns = {key: [record.fields.get(key, "") for record in records] for key in keys}
    names = next(
        (
            tuple(columns[key])
            for key in ("id", "image")
            if key in columns and all(columns[key]) and len(set(columns[key])) == len(records)
        ),
        None,
    )
    return StoredLandmarks(
        landmarks if scales is None else landmarks * scales[:, None, None],
        names,
        None,
        {key: as_column(values) for key, values in columns.items()},
        scales,
        {key: np.array(values, dtype=np.str_) for key, values in columns.items()},
    )


@dataclasses.dataclass
class _Record:
    """One shape of a `.tps` file while it is read."""

    line: int
    dims: int
    points: list[list[float]]
    landmarks: int
    fields: dict[str, str]
    repeated: set[str] = dataclasses.field(default_factory=set)

    def name(self) -> str:
        """What errors call it."""
        label = self.fields.get("id") or self.fields.get("image")
        return f"shape {label!r} (line {self.line})" if label else f"the shape of line {self.line}"

    def size(self) -> str:
        """What all shapes have to have in common."""
        more = len(self.points) - self.landmarks
        curves = f" and {more} points of curves" if more else ""
        return f"{self.landmarks} landmarks{curves} in {self.dims} dimensions"


def _records(path: Path) -> list[_Record]:
    """The shapes of a `.tps` file in turn."""
    records: list[_Record] = []
    awaited = 0
    numbered = enumerate((line.strip() for line in io.StringIO(read_text(path))), start=1)
    for number, line in [*((i, text) for i, text in numbered if text), (0, "END=")]:
        if line.startswith(_COMMENT):
            continue
        where = f"line {number} of {str(path)!r}"
        match = _KEY.fullmatch(line)
        if match and awaited:
            raise DataError(
                f"{records[-1].name()} in {str(path)!r} ends {awaited} lines of coordinates short "
                f"of what its LM= or POINTS= says; add them, or mark them NA."
            )
        key, value = (match[1].upper(), match[2].strip()) if match else ("", "")
        if key in ("LM", "LM3"):
            awaited = _count(value, key, where)
            records.append(_Record(number, 3 if key == "LM3" else 2, [], awaited, {}))
        elif number and not records:
            raise DataError(
                f"{where} comes before any LM= or LM3=, with which a shape begins in a .tps file: "
                f"got {line[:40]!r}; remove it, or put it below."
            )
        elif key in ("POINTS", "POINTS3"):
            awaited = _count(value, key, where)
        elif match and number and key not in ("CURVES", "OUTLINES"):
            fields = records[-1].fields
            known = fields.get(key.lower())
            if known is not None:
                records[-1].repeated.add(key.lower())
            fields[key.lower()] = value if known is None else f"{known}; {value}"
        elif not match:
            if not awaited:
                raise DataError(
                    f"{where} is neither KEY=value nor coordinates that LM= or POINTS= announced: "
                    f"got {line[:40]!r}; correct the count above it, or remove it."
                )
            awaited -= 1
            records[-1].points.append(_coordinates(line, records[-1], where))
    return records


def _coordinates(line: str, record: _Record, where: str) -> list[float]:
    texts = line.split()
    if len(texts) != record.dims and "," in line:
        raise DataError(
            f"{where} must hold {record.dims} coordinates with blanks between them: got "
            f"{line[:40]!r}; write decimal points for commas within numbers, blanks for those "
            f"between them."
        )
    if len(texts) != record.dims:
        raise DataError(
            f"{where} must hold {record.dims} coordinates: got {line[:40]!r}; write LM3= above "
            f"points in space, LM= above points in the plane, with blanks between the numbers."
        )
    what = f"a coordinate of {record.name()}, {where}"
    return [as_number(text, what) for text in texts]


def _count(value: str, key: str, where: str) -> int:
    if not value.isdecimal():
        raise DataError(
            f"{key}= in {where} must give the number of points: got {value!r}; correct it."
        )
    return int(value)


def _refuse_missing(records: Sequence[_Record], path: Path) -> None:
    """Refuses landmarks at -1 -1, where tpsDig puts those that it was told to leave out."""
    lost = [
        (record, number)
        for record in records
        for number, point in enumerate(record.points)
        if all(value == -1.0 for value in point)
    ]
    if lost:
        record, number = lost[0]
        mark = " ".join(["-1"] * record.dims)
        more = f", and so are {len(lost) - 1} more" if len(lost) > 1 else ""
        raise DataError(
            f"landmark {number} (counted from 0) of {record.name()} in {str(path)!r} is "
            f"missing{more}: in a .tps file {mark} means that; fill it in, or leave out the shape, "
            f"or this landmark everywhere; if it does lie there, shift all coordinates."
        )


def _scales(records: Sequence[_Record], path: Path) -> np.ndarray | None:
    """`SCALE=` of every shape, or None where there is none at all."""
    without = [record for record in records if "scale" not in record.fields]
    if len(without) == len(records):
        return None
    if without:
        raise DataError(
            f"{without[0].name()} in {str(path)!r} has no SCALE=, which "
            f"{len(records) - len(without)} other shapes have; add it, or pass use_scale=False to "
            f"leave all coordinates as they are."
        )
    for record in records:
        if "scale" in record.repeated:
            raise DataError(
                f"{record.name()} in {str(path)!r} repeats SCALE=: got "
                f"{record.fields['scale']!r}; keep one, or pass use_scale=False."
            )
    scales = np.array(
        [
            as_number(record.fields["scale"], f"SCALE= of {record.name()} in {str(path)!r}")
            for record in records
        ]
    )
    for record, scale in zip(records, scales, strict=True):
        if not (np.isfinite(scale) and scale > 0.0):
            raise DataError(
                f"SCALE= of {record.name()} in {str(path)!r} must be a positive number: got "
                f"{record.fields['scale']!r}; correct it, or pass use_scale=False."
            )
    return scales
