"""What a file of landmarks holds, those in `.npz`, and the fields of those that are text."""

import dataclasses
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from diffclust._validation import some
from diffclust.data.archives import refuse_bombs
from diffclust.data.dataset import DataError

_MISSING = {"", "na", "n/a", "nan", "null", "none"}
_NUMBER = re.compile(
    r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|nan|[+-]?inf", re.IGNORECASE
)
"""A number that is no code: 007 and 1_1, which Python would read, are names."""


@dataclasses.dataclass(frozen=True)
class StoredLandmarks:
    """What a file holds; coordinates that it marks as missing are NaN.

    Attributes:
        landmarks: Coordinates, of any shape and type if it was an array.
        names: Name of each shape, or None.
        landmark_names: Name of each landmark, or None.
        columns: What else is known of each shape, by name; each `[n]`.
        scales: What the coordinates of each shape were multiplied by, or None.
        texts: Columns as a text file has them; empty where the file was none.
    """

    landmarks: np.ndarray
    names: tuple[str, ...] | None = None
    landmark_names: tuple[str, ...] | None = None
    columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    scales: np.ndarray | None = None
    texts: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def classes(self, column: str) -> np.ndarray:
        """A column as classes.

        Args:
            column: Its name.

        Returns:
            The column where it holds whole numbers; what a text file says where it was made other
            numbers, which are no classes.
        """
        found = self.columns[column]
        return self.texts.get(column, found) if found.dtype.kind == "f" else found


def read_npz(path: Path) -> StoredLandmarks:
    """Read the key `landmarks`, or the only array, and what is as long; never unpickling.

    Args:
        path: The file.

    Returns:
        The arrays; `names` and `landmark_names` are taken from the keys of that name.

    Raises:
        DataError: If the file is damaged, needs pickle, or has no landmarks.
    """
    try:
        # Opened here, so that it is closed also when it turns out to be damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            refuse_bombs(archive, path)
            arrays = {key: np.asarray(archive[key]) for key in archive.files}
    except DataError:
        raise
    # A damaged file fails in many ways: zip, deflate and header each have their own.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{str(path)!r} cannot be read as .npz ({reason}); save it again with "
            f"np.savez(path, landmarks=landmarks), as plain numbers and strings."
        ) from error
    key = "landmarks" if "landmarks" in arrays else next(iter(arrays), "")
    if key != "landmarks" and len(arrays) != 1:
        raise DataError(
            f"{str(path)!r} has no key 'landmarks': it holds {some(map(repr, arrays)) or 'nothing'}"
            f"; save them with np.savez(path, landmarks=landmarks)."
        )
    landmarks = arrays.pop(key)
    n, k = (*landmarks.shape[:2], 0, 0)[:2]
    of_landmarks = arrays.pop("landmark_names", None)
    columns = {key: array for key, array in arrays.items() if array.shape == (n,)}
    names = columns.pop("names", None)
    return StoredLandmarks(
        landmarks,
        None if names is None else tuple(map(str, names.tolist())),
        tuple(map(str, of_landmarks.tolist()))
        if of_landmarks is not None and of_landmarks.shape == (k,)
        else None,
        columns,
    )


def holds_landmarks(path: Path) -> bool:
    """Whether a file that someone takes for images is one of landmarks.

    Args:
        path: What may be a file.

    Returns:
        True for a `.csv` or `.tps`, and for an `.npz` with the key `landmarks` and no images.
    """
    suffix = path.suffix.lower()
    if suffix != ".npz" or not path.is_file():
        return suffix in (".csv", ".tps") and path.is_file()
    try:
        with zipfile.ZipFile(path) as archive:
            keys = {name.removesuffix(".npy") for name in archive.namelist()}
    except Exception:
        # What is wrong with it, and it may be anything, is for who reads it to say.
        return False
    return "landmarks" in keys and keys.isdisjoint(("x", "images", "x_train", "x_test"))


def as_column(values: Sequence[str]) -> np.ndarray:
    """Fields of a text file as whole numbers, else as numbers, else as strings.

    Fields that differ stay apart: what is written in two ways, such as 7 and 007, is no number.

    Args:
        values: One field for each shape.

    Returns:
        int64, float64 or strings, `[n]`.
    """
    texts = np.array(values, dtype=np.str_)
    if not all(map(_NUMBER.fullmatch, values)):
        return texts
    try:
        whole = texts.astype(np.int64)
        if whole.astype(np.str_).tolist() == texts.tolist():
            return whole
    except (ValueError, OverflowError):
        # With a fraction, or too large.
        pass
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
    try:
        return float(text)
    except ValueError as error:
        comma = "write a decimal point, not a comma, and no comma between numbers"
        hint = comma if "," in text else "correct it, or mark it NA"
        raise DataError(f"{what} must be a number: got {text!r}; {hint}.") from error


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
