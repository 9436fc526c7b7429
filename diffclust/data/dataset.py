"""What every loader returns, and the error that every loader raises."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from diffclust.image_source import Images, ImageSource


class DataError(ValueError):
    """Bad input, in one line: what was wrong, where, and what would do."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
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
        indices: Position of each image in the source, whole numbers `[n]`; counts up from 0 when
            not given. After `take` or `limit` it still says which images these are.
    """

    images: Images
    labels: np.ndarray | None = None
    label_names: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None
    name: str = "images"
    skipped: tuple[str, ...] = ()
    indices: np.ndarray | None = None

    def __post_init__(self) -> None:
        """Check that everything speaks of the same images."""
        is_array = not isinstance(self.images, ImageSource)
        if is_array and (self.images.ndim != 4 or self.images.dtype != np.float32):
            raise DataError(
                f"images must be float32 [n, height, width, channels]: got {self.images.dtype} "
                f"{list(self.images.shape)}; pass them through diffclust.data.as_images."
            )
        for field in ("labels", "paths", "indices"):
            value = getattr(self, field)
            if value is not None and len(value) != len(self.images):
                raise DataError(
                    f"{field} must have one entry for each image: got {len(value)} for "
                    f"{len(self.images)} images; pass those of these images."
                )
        if self.indices is None:
            # Of data larger than memory there are millions.
            small = not is_array and len(self.images) < 2**31
            numbers = np.arange(len(self.images), dtype=np.int32 if small else np.int64)
            object.__setattr__(self, "indices", numbers)

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    @property
    def samples(self) -> Images:
        """The images."""
        return self.images

    @property
    def noun(self) -> str:
        """What a sample is called."""
        return "image"

    @property
    def places(self) -> tuple[str, tuple[str, ...]]:
        """What tells where samples are from, and that of each: their files, or nothing."""
        return "path", self.paths or ("",) * len(self)

    def take(self, indices: Sequence[int] | np.ndarray) -> "Dataset":
        """The images at some positions, in the order given.

        Args:
            indices: Positions in this data set, integers `[m]`, or a boolean mask `[n]`.

        Returns:
            A data set of m images; labels keep their codes and names.

        Raises:
            IndexError: If a position is out of range.
        """
        chosen = np.arange(len(self))[np.asarray(indices)]
        return dataclasses.replace(
            self,
            images=self.images.take(chosen)
            if isinstance(self.images, ImageSource)
            else self.images[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            paths=None if self.paths is None else tuple(self.paths[i] for i in chosen),
            indices=None if self.indices is None else self.indices[chosen],
        )

    def limit(self, n: int | None, seed: int = 0) -> "Dataset":
        """At most n images, drawn at random, in their old order.

        Args:
            n: How many to keep; None or more than there are keeps all.
            seed: Seed of the draw; the same seed draws the same images.

        Returns:
            A data set of `min(n, len(self))` images.

        Raises:
            DataError: If n < 1.
        """
        chosen = draw(len(self), n, seed)
        return self if chosen is None else self.take(chosen)


def draw(total: int, limit: int | None, seed: int) -> np.ndarray | None:
    """Sorted random positions, `[limit]`; None where all of the total are kept.

    Loaders draw before they decode, so that a small sample of a large source is quick; all draw
    through this function, so that a seed means the same images whatever the source.

    Args:
        total: How many there are.
        limit: How many to keep; None keeps all.
        seed: Seed of the draw.

    Returns:
        The positions, int64, or None.

    Raises:
        DataError: If the limit is below 1.
    """
    if limit is None:
        return None
    if limit < 1:
        raise DataError(f"limit must be at least 1: got {limit}; leave it out to keep all images.")
    if limit >= total:
        return None
    return np.sort(np.random.default_rng(seed).choice(total, size=limit, replace=False))


def pair_labels(images: object, labels: object) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as arrays, one label for each image.

    Args:
        images: Array-like, `[n, height, width]` or `[n, height, width, channels]`.
        labels: Class of each, `[n]`.

    Returns:
        Both as arrays, as they came.

    Raises:
        DataError: If there are none, or their shapes do not go together.
    """
    array, classes = np.asarray(images), np.asarray(labels)
    if classes.ndim != 1 or array.ndim < 3 or len(classes) != len(array) or not len(array):
        raise DataError(
            f"images and labels must be [n, height, width] and [n]: got {list(array.shape)} and "
            f"{list(classes.shape)}; pass those of the same images."
        )
    return array, classes


def encode_labels(values: Sequence[str] | np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as codes and names.

    Args:
        values: The label of each image, `[n]`, integers or strings.

    Returns:
        Codes, int64 `[n]`, and the name of each code, in sorted order of the labels.
    """
    names, codes = np.unique(np.asarray(values), return_inverse=True)
    return codes.astype(np.int64), tuple(str(name) for name in names.tolist())
