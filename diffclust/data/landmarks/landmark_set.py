"""Shapes, and what is known about them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from diffclust import _validation
from diffclust.data.dataset import DataError, draw


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
    try:
        return _validation.landmarks(landmarks, name, collinear=collinear, shapes=shapes)
    except ValueError as error:
        raise DataError(str(error)) from error
