"""What every loader returns, samples with what is known about them, and the errors it raises."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from diffclust.image_source import Images, ImageSource
from diffclust.methods import plural


class DataError(ValueError):
    """Bad input; the message says in one line what was wrong, where, and how to correct it."""


class FileError(Exception):
    """An error of one file; the message says in a few words why it cannot be used."""


_NOT_GIVEN: Any = None
"""The default of indices, which counts the samples; a field with indices is never None."""

_Samples = TypeVar("_Samples", bound="AbstractSamples")


@dataclasses.dataclass(frozen=True, eq=False)
class AbstractSamples:
    """Samples, and what is known about each of them."""

    noun: ClassVar[str]
    """What a sample is called."""

    _per_sample: ClassVar[tuple[str, ...]]
    """Names of the fields that have one entry for each sample, or are None; the samples' first."""

    def __post_init__(self) -> None:
        """Counts the samples where their indices are not given, and checks that lengths agree."""
        n = len(self)
        fields = {name: getattr(self, name) for name in self._per_sample}
        if fields["indices"] is None:
            object.__setattr__(self, "indices", np.arange(n))
        for name, value in fields.items():
            # A column may be called like a field.
            for key, each in value.items() if isinstance(value, Mapping) else [(name, value)]:
                if each is not None and len(each) != n:
                    raise DataError(
                        f"{key} must have one entry for each {self.noun}: got {len(each)} for {n} "
                        f"{plural(self.noun)}; pass those of these {plural(self.noun)}."
                    )

    @property
    def samples(self) -> Any:
        """The samples, with a leading axis."""
        return getattr(self, self._per_sample[0])

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.samples)

    def take(self: _Samples, indices: Sequence[int] | np.ndarray) -> _Samples:
        """The samples at some positions, in the order given.

        Args:
            indices: Positions in this collection, integers `[m]`, or a boolean mask `[n]`.

        Returns:
            A collection of m samples; labels keep their codes and names.

        Raises:
            IndexError: If a position is out of range.
        """
        chosen = np.arange(len(self))[np.asarray(indices)]
        fields = {name: _take(getattr(self, name), chosen) for name in self._per_sample}
        return dataclasses.replace(self, **fields)

    def limit(self: _Samples, n: int | None, seed: int = 0) -> _Samples:
        """Draws at most n samples, which keep their order.

        Args:
            n: How many to keep; None or more than there are keeps all.
            seed: Seed of the draw; the same seed draws the same samples.

        Returns:
            A collection of `min(n, len(self))` samples.

        Raises:
            DataError: If n < 1.
        """
        chosen = draw(len(self), n, seed)
        return self if len(chosen) == len(self) else self.take(chosen)


def _take(values: Any, chosen: np.ndarray) -> Any:
    """The entries of a field at some positions."""
    match values:
        case None:
            return None
        case ImageSource():
            return values.take(chosen)
        case Mapping():
            return {key: column[chosen] for key, column in values.items()}
        case tuple():
            return tuple(values[i] for i in chosen)
    return values[chosen]


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset(AbstractSamples):
    """Images, and what is known about them.

    Attributes:
        images: Intensities in [0, 1], float32 `[n, height, width, channels]`, with 1 channel
            (grey) or 3 (RGB); or an `ImageSource`, which reads such as they are needed.
        labels: Class of each image as a code, an index into `label_names`, int64 `[n]`; None
            where there are none. For evaluation only: no fit sees them.
        label_names: Name of each class; None where there are no labels.
        paths: File of each image; None where the images are no files.
        name: What the data are called in reports.
        skipped: Files that could not be read and were left out, because that was asked for.
        indices: Position of each image in the source, integers `[n]`; counts up from 0 when
            not given. After `take` or `limit` it still says which images these are.
    """

    images: Images
    labels: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    name: str = "images"
    skipped: tuple[str, ...] = ()
    indices: np.ndarray = _NOT_GIVEN

    noun = "image"
    _per_sample = ("images", "labels", "paths", "indices")

    def __post_init__(self) -> None:
        """Checks the images, and that all fields have one entry for each."""
        is_array = not isinstance(self.images, ImageSource)
        if is_array and (self.images.ndim != 4 or self.images.dtype != np.float32):
            raise DataError(
                f"images must be float32 [n, height, width, channels]: got {self.images.dtype} "
                f"{list(self.images.shape)}; pass them through diffclust.data.as_images."
            )
        if self.indices is None and not is_array and len(self.images) < 2**31:
            # Of data larger than memory there are millions.
            object.__setattr__(self, "indices", np.arange(len(self.images), dtype=np.int32))
        super().__post_init__()

    @property
    def places(self) -> tuple[str, tuple[str, ...]]:
        """`"path"` and the file of each image; empty strings where images are no files."""
        return "path", self.paths or ("",) * len(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Recordings(Dataset):
    """Recordings as images, time to the right and pitch upwards.

    Attributes:
        rate: Samples a second that they were resampled to; the highest pitch is half of it.
        seconds: What the width of an image stands for.
    """

    rate: int = 48_000
    seconds: float = 1.0

    noun = "recording"

    @property
    def steps(self) -> dict[str, int | float]:
        """Rate and seconds by name."""
        return {"rate": self.rate, "seconds": self.seconds}


@dataclasses.dataclass(frozen=True, eq=False)
class LandmarkSet(AbstractSamples):
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
    indices: np.ndarray = _NOT_GIVEN

    noun = "shape"
    skipped: ClassVar[tuple[str, ...]] = ()
    """Nothing: a table is read whole or not at all."""
    _per_sample = ("landmarks", "names", "labels", "scales", "indices", "columns")

    def __post_init__(self) -> None:
        """Checks the shapes, and that all fields have one entry for each."""
        if self.landmarks.ndim != 3 or self.landmarks.dtype != np.float64:
            raise DataError(
                f"landmarks must be float64 [n, landmarks, dims]: got {self.landmarks.dtype} "
                f"{list(self.landmarks.shape)}; pass them through diffclust.data.check_landmarks."
            )
        n, k, _ = self.landmarks.shape
        if self.names is None:
            object.__setattr__(self, "names", tuple(map(str, range(n))))
        super().__post_init__()
        if self.landmark_names is not None and len(self.landmark_names) != k:
            raise DataError(
                f"landmark_names must have one entry for each landmark: got "
                f"{len(self.landmark_names)} for {k} landmarks; pass those of these landmarks."
            )

    @property
    def places(self) -> tuple[str, tuple[str, ...]]:
        """`"name"` and the name of each shape."""
        assert self.names is not None
        return "name", self.names


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesSet(AbstractSamples):
    """Series, and what is known about them.

    Attributes:
        series: Values, float32 `[n, length, channels]`; NaN after the end of the shorter ones, and
            where a value is missing.
        labels: Class of each series as a code, an index into `label_names`, int64 `[n]`; None where
            there are none. For evaluation only: no fit sees them.
        label_names: Name of each class; None where there are no labels.
        name: What the data are called in reports.
        path: The file; None where there is none.
        indices: Position of each series in the source; counts up from 0 when not given.
    """

    series: np.ndarray
    labels: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None
    name: str = "series"
    path: str | None = None
    indices: np.ndarray = _NOT_GIVEN

    noun = "series"
    skipped: ClassVar[tuple[str, ...]] = ()
    _per_sample = ("series", "labels", "indices")

    @property
    def places(self) -> tuple[str, tuple[str, ...]]:
        """`"path"` and an empty string for each series: they are no files."""
        return "path", ("",) * len(self)


LABEL_KEYS = ("labels", "label", "y")
"""Under one of these names files of shapes and series hold the classes."""

Collection = Dataset | LandmarkSet | SeriesSet
"""What can be clustered, with what is known about it."""


def draw(total: int, limit: int | None, seed: int) -> np.ndarray:
    """Draws sorted random positions, `[limit]`, or takes all where there are no more.

    Loaders draw before they decode, so that a small sample of a large source is quick; all draw
    through this function, so that a seed means the same images whatever the source.

    Args:
        total: How many there are.
        limit: How many to keep; None keeps all.
        seed: Seed of the draw.

    Returns:
        The positions, int64.

    Raises:
        DataError: If the limit is no whole number, or below 1.
    """
    if not isinstance(limit, int | np.integer | None):
        raise DataError(f"limit must be a whole number, or None for all images: got {limit!r}.")
    if limit is not None and limit < 1:
        raise DataError(f"limit must be at least 1: got {limit}; leave it out to keep all images.")
    if limit is None or limit >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, size=limit, replace=False))


def encode_labels(
    values: Sequence[str] | np.ndarray | None,
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels as codes and names.

    Args:
        values: The label of each sample, `[n]`, integers or strings, or None.

    Returns:
        Codes, int64 `[n]`, and the name of each code, in sorted order of the labels; None and None
        where there are no labels.
    """
    if values is None:
        return None, None
    names, codes = np.unique(np.asarray(values), return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names.tolist())
