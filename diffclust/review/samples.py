"""The samples of a run for a page: drawn one by one, and compared with each other."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from diffclust.data import Collection, Dataset, LandmarkSet, Recordings
from diffclust.data.dataset import FileError
from diffclust.models import Result
from diffclust.plotting.pictures import as_picture, displayable, picture_file
from diffclust.report.series import SeriesRenderer
from diffclust.report.shapes import ShapeRenderer
from diffclust.report.sounds import encoded
from diffclust.report.text import plain
from diffclust.sampling import block_means

_LONGEST_SIDE = 320
"""Pixels of a picture; larger ones are made smaller."""

_SMALL_SIDE = 16
"""Pixels a side of the images that are compared."""

_BATCH_SIZE = 512
"""Images that are read at once."""

_COLOUR = "#4a90c2"
"""Of lines; to be seen on white and on black."""


class ReviewSamples:
    """Draws samples, and finds the similar ones.

    Attributes:
        noun: What a sample is called.
        names: File or name of each sample, on one line; what it is and its index where it has none.
        compared: What is compared where similar samples are looked for.
    """

    noun: str
    names: list[str]
    compared: str

    def __init__(
        self,
        result: Result,
        dataset: Collection,
        coordinates: Float[np.ndarray, "n *dims"] | None = None,
    ) -> None:
        """Aligns shapes and series; images are read as they are asked for.

        Args:
            result: The fitted model; of shapes and series, assigned to these.
            dataset: The samples.
            coordinates: What images are compared by; None for their pixels.
        """
        self._dataset, self.noun = dataset, dataset.noun
        places, indices = dataset.places[1], dataset.indices.tolist()
        self.names = [
            f"{self.noun} {index}" if place in ("", str(index)) else plain(place)
            for place, index in zip(places, indices, strict=True)
        ]
        self._coordinates = coordinates
        self._registered: Callable[[Any], Any] | None = None
        if isinstance(dataset, Dataset):
            if result.model.registers:
                self._registered = result.registered
            what = "pixels" if self._registered is None else "pixels of registered images"
            self.compared = f"{what}, at most {_SMALL_SIDE} x {_SMALL_SIDE}"
            if coordinates is not None:
                self.compared = "scattering coefficients, as the fit has kept them"
        elif isinstance(dataset, LandmarkSet):
            self.compared = "coordinates of registered landmarks"
            self._renderer = ShapeRenderer(result, dataset, seed=0)
        else:
            self.compared = "values of scaled and warped series"
            self._renderer = SeriesRenderer(result, dataset, seed=0)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.names)

    def _check(self, sample: int) -> None:
        if not 0 <= sample < len(self):
            raise LookupError(f"there is no {self.noun} {sample}")

    def picture(self, sample: int) -> tuple[str, bytes]:
        """A sample as a picture.

        Args:
            sample: Its position.

        Returns:
            The type of the content, and the content: a PNG or SVG file.

        Raises:
            LookupError: If there is no such sample.
        """
        self._check(sample)
        if not isinstance(self._dataset, Dataset):
            frame = self._renderer.frame
            drawn = frame.drawn_shape(self._renderer.aligned[sample])
            svg = frame.svg(drawn, alt=f"{self.noun} {sample}")
            style = f'<svg color="{_COLOUR}" style="--line: 1" '
            return "image/svg+xml", svg.replace("<svg ", style, 1).encode()
        picture = as_picture(displayable(np.asarray(self._dataset.images[[sample]])[0]))
        picture.thumbnail((_LONGEST_SIDE, _LONGEST_SIDE))
        return "image/png", picture_file(picture, "png")

    def sound(self, sample: int) -> bytes:
        """A recording.

        Args:
            sample: Its position.

        Returns:
            A FLAC file.

        Raises:
            LookupError: If there is no such recording, or it is gone.
        """
        self._check(sample)
        if not isinstance(self._dataset, Recordings):
            raise LookupError("these are no recordings")
        try:
            return encoded(self._dataset, sample)
        except FileError as error:
            raise LookupError(f"recording {sample} cannot be read: {error}") from error

    @functools.cached_property
    def points(self) -> Float[np.ndarray, "n dims"]:
        """One point for each sample, by which samples are compared."""
        if self._coordinates is not None:
            return np.asarray(self._coordinates, np.float32).reshape(len(self), -1)
        if not isinstance(self._dataset, Dataset):
            aligned = np.asarray(self._renderer.aligned, np.float32)
            return np.nan_to_num(aligned).reshape(len(self), -1)
        images, starts = self._dataset.images, range(0, len(self), _BATCH_SIZE)
        batches = (np.asarray(images[i : i + _BATCH_SIZE]) for i in starts)
        if self._registered is not None:
            batches = (np.asarray(self._registered(batch)) for batch in batches)
        parts = (block_means(batch, _SMALL_SIDE) for batch in batches)
        return np.concatenate([part.reshape(len(part), -1) for part in parts])

    def nearest(self, sample: int, count: int) -> Int[np.ndarray, " m"]:
        """The samples that are most like one, by the Euclidean distance of `points`.

        Args:
            sample: Its position.
            count: How many at most.

        Returns:
            Positions, the sample itself first.

        Raises:
            LookupError: If there is no such sample.
        """
        self._check(sample)
        squared = np.square(self.points - self.points[sample]).sum(axis=1)
        squared[sample] = -1.0
        return np.argsort(squared, kind="stable")[:count]

    def halves(self, members: Int[np.ndarray, " m"]) -> Bool[np.ndarray, " m"]:
        """Divides samples into two groups by seeded K-means of `points`.

        Args:
            members: Positions.

        Returns:
            Whether a sample is in the smaller group.

        Raises:
            ValueError: If all are alike.
        """
        points = self.points[members]
        if len(members) < 2 or (points == points[0]).all():
            raise ValueError("there are no two kinds of samples in this cluster to be told apart")
        from sklearn.cluster import KMeans

        second = KMeans(2, n_init=4, random_state=0).fit_predict(points) == 1
        return second if 2 * second.sum() <= len(second) else ~second
