"""Samples as a report shows them: the image, its alignment, and what is known about it."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from diffclust.data import Dataset
from diffclust.models import Result
from diffclust.plotting import warped_grids
from diffclust.report.pictures import data_uris
from diffclust.transforms import AbstractSpatialTransform

SIDE = 1000
"""Units of a drawing along the longer side of an image."""

_MOST_BYTES = 900_000


@dataclasses.dataclass(frozen=True)
class Sample:
    """One sample, ready to be drawn.

    Attributes:
        index: Its position in the source of the data.
        path: Its file, or None.
        label: Name of its class, or None.
        distance: Distance to its prototype.
        margin: How much more the second-best cluster would have cost; may be infinite.
        runner_up: The second-best cluster, or -1.
        picture: The image as a `data:` URI.
        aligned: The aligned image, or None where nothing is aligned.
        grid: The warped grid as an SVG path in `SIDE` units, or None where there is no map.
    """

    index: int
    path: str | None
    label: str | None
    distance: float
    margin: float
    runner_up: int
    picture: str
    aligned: str | None
    grid: str | None


def has_grids(result: Result) -> bool:
    """Whether the fit's alignments are maps of coordinates.

    Args:
        result: A fitted model.

    Returns:
        False where nothing is aligned, or not in space.
    """
    energy = result.model.energy()
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
    images, params = dataset.images[chosen], assignment.params[chosen]
    nothing: list[str | None] = [None] * len(chosen)
    aligned, grids = nothing, nothing
    pictures = list(images)
    if params.shape[1]:
        # One size for all, so that an image and its aligned version can be compared.
        uris = data_uris([*pictures, *result.align(images, params)], most_bytes=_MOST_BYTES)
        pictures, aligned = uris[: len(chosen)], uris[len(chosen) :]
    else:
        pictures = data_uris(pictures, most_bytes=_MOST_BYTES)
    if has_grids(result):
        grids = warped_grids(result, params, longest=SIDE)
    return {
        position: Sample(
            index=position if dataset.indices is None else int(dataset.indices[position]),
            path=None if dataset.paths is None else dataset.paths[position],
            label=_label(dataset, position),
            distance=float(assignment.distances[position]),
            margin=float(assignment.margins[position]),
            runner_up=int(assignment.runners_up[position]),
            picture=pictures[i],
            aligned=aligned[i],
            grid=grids[i],
        )
        for i, position in enumerate(chosen.tolist())
    }


def _label(dataset: Dataset, position: int) -> str | None:
    if dataset.labels is None:
        return None
    code = int(dataset.labels[position])
    return str(code) if dataset.label_names is None else dataset.label_names[code]


def class_shares(dataset: Dataset, members: np.ndarray) -> list[tuple[str, float]]:
    """The classes of some samples, the most frequent first.

    Args:
        dataset: The data.
        members: Positions in it.

    Returns:
        Names and shares; empty without labels or members.
    """
    if dataset.labels is None or len(members) == 0:
        return []
    _, first, counts = np.unique(dataset.labels[members], return_index=True, return_counts=True)
    return [
        (_label(dataset, int(members[first[i]])) or "", float(counts[i] / len(members)))
        for i in np.argsort(-counts, kind="stable")
    ]
