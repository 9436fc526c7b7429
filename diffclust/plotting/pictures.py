"""Prototypes as pictures: images as 8 bits, and sheets of all prototypes with their sizes."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from diffclust.models import Result
from diffclust.plotting.shapes import DENSE, landmark_covariances, shape_frame

if TYPE_CHECKING:
    from PIL import Image

_TILE = 96
"""Pixels that the longer side of an image has at least on a sheet."""

_MOST_WIDE = 6
"""Mean shapes side by side."""

_PANEL = 3.0
"""Inches that the longer side of a mean shape has."""

_TITLE = 0.3
"""Inches above each for its name."""


def displayable(image: np.ndarray, *, own_range: bool = False) -> UInt8[np.ndarray, "h w channels"]:
    """An image as 8 bits, grey or RGB.

    Args:
        image: Image of shape `(height, width, channels)`; of more than three channels the first
            three are shown, of two their mean.
        own_range: Stretch the intensities so that the least is black and the greatest white. A
            constant image is clipped to [0, 1] like all others are without this.

    Returns:
        The image with 1 or 3 channels.
    """
    image = np.asarray(image, dtype=np.float64)
    if image.shape[-1] == 2:
        image = image.mean(axis=-1, keepdims=True)
    image = image[..., :3]
    least, greatest = image.min(), image.max()
    if own_range and greatest > least:
        image = (image - least) / (greatest - least)
    return np.round(255 * np.clip(image, 0, 1)).astype(np.uint8)


def as_picture(pixels: UInt8[np.ndarray, "h w channels"]) -> "Image.Image":
    """Pixels as a picture of Pillow's.

    Args:
        pixels: An image with 1 or 3 channels.

    Returns:
        The picture, grey or RGB.
    """
    from PIL import Image

    return Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)


def prototype_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All prototypes in a grid, in the order of their clusters, each with its size.

    Args:
        result: A fitted model.

    Returns:
        An RGB picture; each image is scaled to its own range of intensities, and mean shapes are
        drawn on one scale with their ellipses.
    """
    is_shape = result.model.descriptor.sample_kind == "shape"
    return shape_sheet(result) if is_shape else _image_sheet(result)


def _image_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All prototypes in a grid, each in its own range of intensities."""
    from PIL import Image, ImageDraw, ImageFont

    prototypes, counts = result.prototypes, result.counts
    columns = -(-len(prototypes) // max(1, round(float(np.sqrt(len(prototypes) / 2)))))
    rows = -(-len(prototypes) // columns)
    height, width = prototypes.shape[1:3]
    # Whole factors keep the pixels of small images square and equal.
    factor = max(1, -(-_TILE // max(height, width)))
    tile_width, tile_height = max(_TILE, width * factor), height * factor
    gap, line = 16, 22
    font = ImageFont.load_default(12)
    sheet = Image.new(
        "RGB",
        (gap + columns * (tile_width + gap), gap + rows * (tile_height + line + gap)),
        (255, 255, 255),
    )
    draw = ImageDraw.Draw(sheet)
    for cluster, prototype in enumerate(prototypes):
        row, column = divmod(cluster, columns)
        x = gap + column * (tile_width + gap)
        y = gap + row * (tile_height + line + gap)
        pixels = displayable(prototype, own_range=True).repeat(factor, 0).repeat(factor, 1)
        tile = as_picture(pixels).convert("RGB")
        sheet.paste(tile, (x + (tile_width - tile.width) // 2, y))
        caption = f"{cluster}:  n = {counts[cluster]}"
        middle = x + tile_width / 2
        draw.text((middle, y + tile_height + 5), caption, (64, 64, 64), font, anchor="ma")
    return np.asarray(sheet)


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


def save_prototypes(path: str | Path, result: Result) -> None:
    """Writes the sheet of prototypes as a PNG file.

    Args:
        path: The file.
        result: A fitted model.
    """
    as_picture(prototype_sheet(result)).save(path, format="PNG")
