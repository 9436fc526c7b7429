"""Images as a report shows them: as they came, and how each was aligned."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from diffclust.data import Dataset
from diffclust.models import AbstractGradientModel, Result, of_images, warped_prototypes
from diffclust.plotting import warped_grids
from diffclust.report.pictures import data_uris
from diffclust.transforms import AbstractSpatialTransform

SIDE = 1000
"""Units of a drawing along the longer side of an image."""

_MOST_BYTES = 900_000


@dataclasses.dataclass(frozen=True)
class Sample:
    """One image, ready to be drawn.

    Attributes:
        cluster: Its cluster.
        picture: The image as a `data:` URI.
        aligned: The aligned image, or None where nothing is aligned.
        grid: The warped grid as an SVG path in `SIDE` units, or None where there is no map.
        stages: The prototype after each of the transforms that move it onto the image; empty where
            it is not moved.
    """

    cluster: int
    picture: str
    aligned: str | None
    grid: str | None
    stages: tuple[str, ...]


def has_grids(result: Result) -> bool:
    """Whether the fit's alignments are maps of the images' coordinates.

    Args:
        result: A fitted model.

    Returns:
        False where nothing is aligned, or not in space, or prototypes are moved.
    """
    if isinstance(result.model, AbstractGradientModel):
        return False
    energy = of_images(result).energy()
    return energy.num_params > 0 and isinstance(energy.transform, AbstractSpatialTransform)


def gather_samples(
    result: Result, dataset: Dataset, positions: Sequence[int] | np.ndarray
) -> dict[int, Sample]:
    """Aligns and encodes the samples that are shown.

    Args:
        result: A fitted model.
        dataset: The data it was fitted to.
        positions: Their positions in the data set.

    Returns:
        The samples by position.
    """
    chosen = np.unique(np.asarray(positions, dtype=np.int64))
    if chosen.size == 0:
        return {}
    assignment = result.outcome.assignment
    params = assignment.params[chosen]
    rows = _aligned(result, dataset, chosen)
    # One size for all, so that an image and its aligned version can be compared.
    uris = data_uris([image for row in rows for image in row], most_bytes=_MOST_BYTES)
    pictures = [uris[i * len(chosen) : (i + 1) * len(chosen)] for i in range(len(rows))]
    moves_prototypes = isinstance(result.model, AbstractGradientModel)
    grids: list[str | None] = [None] * len(chosen)
    if has_grids(result):
        grids = [*warped_grids(result, params, longest=SIDE)]
    return {
        position: Sample(
            cluster=int(assignment.clusters[position]),
            picture=pictures[0][i],
            aligned=None if moves_prototypes or len(rows) == 1 else pictures[1][i],
            grid=grids[i],
            stages=tuple(row[i] for row in pictures[1:]) if moves_prototypes else (),
        )
        for i, position in enumerate(chosen.tolist())
    }


def _aligned(
    result: Result, dataset: Dataset, chosen: Int[np.ndarray, " m"]
) -> list[Float[np.ndarray, "m height width channels"]]:
    """The chosen images, then the same aligned, or their prototypes after each transform."""
    assignment, images = result.outcome.assignment, dataset.images[chosen]
    params = assignment.params[chosen]
    if params.shape[1] == 0:
        return [images]
    if not isinstance(result.model, AbstractGradientModel):
        return [images, result.align(images, params)]
    clusters = assignment.clusters[chosen]
    stages = range(1, len(result.model.sequence(result.sample_shape[2])) + 1)
    return [
        images,
        *(warped_prototypes(result, clusters, params, transforms=stage) for stage in stages),
    ]
