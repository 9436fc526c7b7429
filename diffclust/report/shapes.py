"""Shapes drawn for a report: mean shapes with ellipses, and samples over the mean of theirs."""

import numpy as np
from jaxtyping import Float

from diffclust.data import LandmarkSet
from diffclust.models import Result
from diffclust.plotting import ShapeFrame, landmark_covariances, shape_frame
from diffclust.plotting.shapes import DENSE, SIDE, fitted_frame
from diffclust.report.means import MeanRenderer
from diffclust.report.page import svg_icon
from diffclust.report.text import count, integer, number, plain

_MOST_DRAWN = 32_000
"""Landmarks of all samples that are drawn as they came and registered; about 14 bytes each."""

_MOST_DETAILED = 1500
"""With more landmarks in all clusters each has one ellipse, not two, and no name."""

_MOST_ELLIPSES = 8000
"""With more landmarks in all clusters there are no ellipses."""

_MAX_SIZE_RATIO = 4.0
"""Where the largest shape is so many times larger than the smallest, each has its own scale."""

_MAX_NAME_LENGTH = 3
"""Names of landmarks with more letters than this are shown in tooltips only."""


class ShapeRenderer(MeanRenderer):
    """Draws shapes."""

    noun = "mean shape"
    frame: ShapeFrame
    frames: list[ShapeFrame]

    def __init__(self, result: Result, dataset: LandmarkSet, *, seed: int) -> None:
        """Registers the shapes and draws members at random.

        Args:
            result: A fitted model of shapes.
            dataset: The shapes it was fitted to.
            seed: Seed of the draw of members, where a cluster has too many.
        """
        super().__init__(result, seed)
        self.means, self.counts = self.means.astype(np.float64), result.counts.tolist()
        self.covariances, self.raw = landmark_covariances(result), dataset.landmarks
        registered = result.align(self.raw, result.outcome.assignment.params)
        self.aligned = registered.astype(np.float64)
        self.frame = frame = shape_frame(self.means, self.covariances, self.aligned)
        # Frames of the samples as they came, and whether these have one scale.
        self.frames, self.one_scale = [], True
        if result.model.registers:
            self.frames, self.one_scale = _raw_frames(self.raw, frame)
        clusters, landmarks, _ = self.means.shape
        self.is_detailed = clusters * landmarks <= _MOST_DETAILED
        self.deviations = (2.0, 1.0) if self.is_detailed else (2.0,)
        if clusters * landmarks > _MOST_ELLIPSES:
            self.deviations = ()
        self.drawn_means = [
            frame.mean_shape(mean, covariance, deviations=self.deviations)
            for mean, covariance in zip(self.means, self.covariances, strict=True)
        ]
        names = dataset.landmark_names or range(landmarks)
        self.landmark_names = [plain(name) for name in names]
        height, width = frame.height, frame.width
        if height > 1.4 * width:
            self.css_classes = ("shapes", "upright")
        # The outline of the first mean shape.
        self.icon = svg_icon(
            f"0 0 {max(width, height)} {max(width, height)}",
            f'<path d="{frame.outline(self.means[0])}" fill="none" stroke="#2f6690" '
            'stroke-width="60" stroke-linejoin="round"/>',
        )

    @property
    def note(self) -> str:
        """Describes how mean shapes and ellipses are drawn."""
        ellipses = {
            2: "The ellipses reach one and two standard deviations of each landmark.",
            1: "The ellipses reach two standard deviations of each landmark.",
            0: "There are too many landmarks to draw how they vary.",
        }[len(self.deviations)]
        dims, flat = self.means.shape[2], ""
        if dims > 2:
            flat = (
                f" Of the {dims} dimensions the drawings show the two in which registered "
                "landmarks vary most, their leading principal axes."
            )
        return f"All are drawn on one scale. {ellipses}{flat}"

    def prototype(self, cluster: int) -> str:
        """The mean shape over the members of its cluster."""
        members, size = self.aligned[self.members[cluster]], self.counts[cluster]
        behind = caption = names = ""
        if self.is_detailed:
            names = self.frame.landmark_names(self.means[cluster], *self._names(cluster))
        if len(members):
            which = "its registered shapes."
            if len(members) < size:
                registered = count(len(members), "registered shape")
                which = f"{registered} of its {integer(size)}, drawn at random."
            behind = f'<g class="members">{self.frame.dotted(members)}</g>'
            caption = f"<figcaption>Small dots are the landmarks of {which}</figcaption>"
        alt = f"Mean shape of cluster {cluster} and {count(len(members), 'shape')} of it"
        drawn = self.frame.svg(behind + self.use(cluster) + names, alt=alt)
        return f'<figure class="centroid">{drawn}{caption}</figure>'

    def figures(self, cluster: int) -> dict[str, str]:
        """The standard deviation."""
        variances = np.trace(self.covariances[cluster], axis1=1, axis2=2) / self.means.shape[2]
        return {"mean deviation of a landmark": number(float(np.sqrt(variances).mean()), digits=3)}

    def legend(self) -> list[str]:
        """Names the drawings that stand below each other."""
        over = "over the mean shape of its cluster"
        if not self.frames:
            return [f"The shape as it came, {over}: this is what is compared."]
        scale = "all on one scale" if self.one_scale else "each on its own scale"
        seen = "" if self.means.shape[2] == 2 else ", seen along the same axes"
        return [
            f"The shape as it came, {scale}{seen}.",
            f"The same registered, {over}: this is what is compared.",
        ]

    def _names(self, cluster: int) -> tuple[list[str], list[str]]:
        """Returns what stands beside each landmark, and its tooltip."""
        axes, _ = self.frame.half_axes(self.covariances[cluster])
        numbers, titles = [str(i) for i in range(len(axes))], []
        for place, name, (along, across) in zip(
            numbers, self.landmark_names, (axes / self.frame.unit).tolist(), strict=True
        ):
            titles.append(
                f"landmark {name if name == place else f'{place}, {name}'}\nstandard deviations "
                f"{number(along, digits=2)} and {number(across, digits=2)}"
            )
        are_short = max(map(len, self.landmark_names)) <= _MAX_NAME_LENGTH
        return self.landmark_names if are_short else numbers, titles


def affordable_shapes(landmarks: int, most: int) -> int:
    """Shapes that a report can show in all, so that it stays a file that opens.

    Args:
        landmarks: Landmarks of a shape; 0 for samples that are not drawn point by point.
        most: Shapes at most, however few landmarks they have.

    Returns:
        As many, or fewer where there are very many landmarks.
    """
    dotted_too = 2 if landmarks <= DENSE else 1
    return max(1, min(most, _MOST_DRAWN // max(1, landmarks * dotted_too)))


def _raw_frames(
    shapes: Float[np.ndarray, "n landmarks dims"], registered_frame: ShapeFrame
) -> tuple[list[ShapeFrame], bool]:
    """Frames of one size for shapes as they came, and whether they have one scale.

    They are as wide as the frame of the registered ones, and seen from the same direction.
    """
    flat = shapes @ registered_frame.axes
    low, high = flat.min(axis=1), flat.max(axis=1)
    extents = np.maximum((high - low).max(axis=1), np.finfo(np.float64).tiny)
    one_scale = bool(extents.max() <= _MAX_SIZE_RATIO * extents.min())
    units = np.ones_like(extents) if one_scale else extents
    # What all of them fit in, measured in units of each.
    box = ((high - low) / units[:, None]).max(axis=0)
    model = fitted_frame(registered_frame.axes, np.zeros(2), box)
    shrunk = min(registered_frame.width / model.width, SIDE / model.height)
    width, height = registered_frame.width, round(model.height * shrunk)
    frames = []
    for unit, centre in zip(units.tolist(), ((low + high) / 2).tolist(), strict=True):
        scale = model.unit * shrunk / unit
        left, top = centre[0] - width / 2 / scale, centre[1] + height / 2 / scale
        frames.append(ShapeFrame(registered_frame.axes, left, top, scale, width, height))
    return frames, one_scale
