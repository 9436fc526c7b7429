"""Mean shapes side by side with their sizes, as a picture for a file."""

import numpy as np
from jaxtyping import UInt8

from diffclust.models import Result
from diffclust.plotting.shapes import DENSE, landmark_covariances, shape_frame

_MOST_WIDE = 6
_PANEL = 3.0
"""Inches that the longer side of a shape has."""

_TITLE = 0.3
"""Inches above each for its name."""


def shape_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All mean shapes in a grid on one scale, each with its ellipses and its size.

    The ellipses are of one and two standard deviations. Shapes of three and more dimensions are
    projected on the two leading principal axes of the mean shapes' landmarks.

    Args:
        result: A fitted model of shapes.

    Returns:
        An RGB picture.

    Raises:
        ValueError: If the model does not cluster shapes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import EllipseCollection
    from matplotlib.figure import Figure

    covariances, means = landmark_covariances(result), result.prototypes.astype(np.float64)
    frame = shape_frame(means, covariances)
    columns = min(len(means), _MOST_WIDE)
    rows = -(-len(means) // columns)
    inches = _PANEL / max(frame.width, frame.height)
    width, height = frame.width * inches, frame.height * inches
    figure = Figure(figsize=(columns * width, rows * (height + _TITLE)), dpi=120)
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False)
    above = _TITLE / (rows * (height + _TITLE))
    figure.subplots_adjust(0.0, 0.0, 1.0, 1.0 - above, 0.0, _TITLE / height)
    for panel in panels.flat:
        panel.set_axis_off()
    counts = result.counts.tolist()
    for cluster, (mean, covariance) in enumerate(zip(means, covariances, strict=True)):
        panel = panels.flat[cluster]
        points = frame.place(mean)
        axes, angles = frame.half_axes(covariance)
        for deviations in (2.0, 1.0):
            panel.add_collection(
                EllipseCollection(
                    2.0 * deviations * axes[:, 0],
                    2.0 * deviations * axes[:, 1],
                    angles,
                    units="xy",
                    offsets=points,
                    offset_transform=panel.transData,
                    facecolors="C0",
                    alpha=0.25,
                )
            )
        closed = np.concatenate([points, points[:1]])
        panel.plot(*closed.T, "-", color="C0", alpha=0.5, linewidth=1)
        if len(points) <= DENSE:
            panel.plot(*points.T, ".", color="C0", markersize=2.5)
        panel.set(xlim=(0, frame.width), ylim=(frame.height, 0), aspect="equal")
        panel.set_title(f"{cluster}:  n = {counts[cluster]}", fontsize=9)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
