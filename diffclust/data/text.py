"""Fields and rows of text files: tables, and numbers that may be marked as missing."""

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from diffclust.data.dataset import DataError

_MISSING = {"", "na", "n/a", "nan", "null", "none"}
_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|nan|[+-]?inf", re.IGNORECASE
)
"""A number that is no code: 007 and 1_1, which Python would read, are names."""


def read_text(path: Path) -> str:
    """The text of a file, in UTF-8 or as old Windows programs wrote it.

    Args:
        path: The file.

    Returns:
        The text, with line ends of any kind as newlines.

    Raises:
        DataError: If it is no text.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        # A byte that it lacks can only be in a name or a comment.
        text = raw.decode("cp1252", errors="replace")
    if "\0" in text:
        raise DataError(f"{str(path)!r} is no text; save it again as {path.suffix} in UTF-8.")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def table_rows(path: Path, *, keep_empty: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Reads a table whose fields are divided by what its first line has most of: `,`, `;` or tabs.

    Args:
        path: The file.
        keep_empty: Whether rows of empty fields are kept, where others follow.

    Yields:
        Number of the line and fields of each row that is not empty.

    Raises:
        DataError: If it is no such table.
    """
    text = read_text(path)
    delimiter = max(",;\t", key=text.lstrip().split("\n", 1)[0].count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True, strict=True)
    empty: list[tuple[int, list[str]]] = []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield from empty
                empty.clear()
                yield reader.line_num, cells
            elif keep_empty and len(cells) > 1:
                empty.append((reader.line_num, cells))
    except csv.Error as error:
        raise DataError(
            f"line {reader.line_num} of {str(path)!r} is no row of a table ({error}); correct it."
        ) from error


def as_column(values: Sequence[str]) -> np.ndarray:
    """Fields of a text file as integers, else as numbers, else as strings.

    Fields that differ stay apart: what is written in two ways, such as 7 and 007, is no number.

    Args:
        values: One field for each shape.

    Returns:
        int64, float64 or strings, `[n]`.
    """
    texts = np.array(values, dtype=np.str_)
    if not all(map(_NUMBER.fullmatch, values)):
        return texts
    # Numbers with a fraction, or too large ones, are no integers.
    with contextlib.suppress(ValueError, OverflowError):
        integers = texts.astype(np.int64)
        if integers.astype(np.str_).tolist() == texts.tolist():
            return integers
    numbers = texts.astype(np.float64)
    return numbers if len(np.unique(numbers)) == len(np.unique(texts)) else texts


def as_number(text: str, what: str) -> float:
    """A coordinate, or NaN where it is marked as missing: empty, NA, NaN, null or none.

    Args:
        text: The field.
        what: What an error calls it.

    Returns:
        The number.

    Raises:
        DataError: If it is none.
    """
    if text.lower() in _MISSING:
        return float("nan")
    # As word processors write a minus.
    written = text.replace("\u2212", "-")
    with contextlib.suppress(ValueError):
        # Python would read 1_0, and digits of other scripts.
        if written.isascii() and "_" not in written:
            return float(written)
    comma = "write a decimal point, not a comma, and no comma between numbers"
    hint = comma if {*",;\t"} & {*text} else "correct it, or mark it NA"
    raise DataError(f"{what} must be a number: got {text!r}; {hint}.")
