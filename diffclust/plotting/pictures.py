"""Prototypes as pictures: images as 8 bits, and sheets of all prototypes with their sizes."""

import base64
import html
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from diffclust.models import Result
from diffclust.plotting.shapes import DENSE, landmark_covariances, shape_frame

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


def as_picture(pixels: UInt8[np.ndarray, "h w channels"]) -> Image.Image:
    """Pixels as a picture of Pillow's.

    Args:
        pixels: An image with 1 or 3 channels.

    Returns:
        The picture, grey or RGB.
    """
    return Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)


def data_uri(content: bytes, kind: str) -> str:
    """A picture or a sound as a `data:` URI.

    Args:
        content: The file.
        kind: Its media type, such as `"image/png"` or `"audio/flac"`.

    Returns:
        The URI.
    """
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def picture_file(picture: Image.Image, kind: str, **options: Any) -> bytes:
    """A picture as the content of a file.

    Args:
        picture: The picture.
        kind: Its format, such as `"png"` or `"webp"`.
        options: As Pillow's `save` takes them.

    Returns:
        The content.
    """
    picture.save(file := io.BytesIO(), format=kind, **options)
    return file.getvalue()


def picture_uri(picture: Image.Image, kind: str = "png", **options: Any) -> str:
    """A picture as a `data:` URI.

    Args:
        picture: The picture.
        kind: Its format, such as `"png"` or `"webp"`.
        options: As Pillow's `save` takes them.

    Returns:
        The URI.
    """
    return data_uri(picture_file(picture, kind, **options), f"image/{kind}")


def prototype_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All prototypes in a grid, in the order of their clusters, each with its size.

    Args:
        result: A fitted model.

    Returns:
        An RGB picture; each image is scaled to its own range of intensities, and mean shapes are
        drawn on one scale with their ellipses; of a series every channel is a line.

    Raises:
        ValueError: If samples are of another kind.
    """
    sheets = {"shape": shape_sheet, "series": _series_sheet, "image": _image_sheet}
    if result.sample_kind not in sheets:
        raise ValueError(
            f"prototypes of samples of shape {result.sample_shape} have no picture; those of "
            "images, series and landmarks have"
        )
    return sheets[result.sample_kind](result)


def _image_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All prototypes in a grid, each in its own range of intensities."""
    prototypes, counts = result.prototypes, result.counts
    columns = -(-len(prototypes) // max(1, round(float(np.sqrt(len(prototypes) / 2)))))
    rows = -(-len(prototypes) // columns)
    height, width = prototypes.shape[1:3]
    # Whole factors keep the pixels of small images square and equal.
    factor = max(1, -(-_TILE // max(height, width)))
    tile_width, tile_height = max(_TILE, width * factor), height * factor
    gap, line = 16, 22
    across, down = tile_width + gap, tile_height + line + gap
    sheet = Image.new("RGB", (gap + columns * across, gap + rows * down), (255, 255, 255))
    draw, font, grey = ImageDraw.Draw(sheet), ImageFont.load_default(12), (64, 64, 64)
    for cluster, prototype in enumerate(prototypes):
        x, y = gap + cluster % columns * across, gap + cluster // columns * down
        pixels = displayable(prototype, own_range=True).repeat(factor, 0).repeat(factor, 1)
        tile = as_picture(pixels).convert("RGB")
        sheet.paste(tile, (x + (tile_width - tile.width) // 2, y))
        below, caption = y + tile_height + 5, f"{cluster}:  n = {counts[cluster]}"
        draw.text((x + tile_width / 2, below), caption, grey, font, anchor="ma")
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
    from matplotlib.collections import EllipseCollection

    covariances, means = landmark_covariances(result), result.prototypes.astype(np.float64)
    frame = shape_frame(means, covariances)
    inches = _PANEL / max(frame.width, frame.height)
    width, height = frame.width * inches, frame.height * inches

    def draw(panel: Any, cluster: int) -> None:
        points = frame.place(means[cluster])
        axes, angles = frame.half_axes(covariances[cluster])
        style: dict[str, Any] = {"units": "xy", "facecolors": "C0", "alpha": 0.25}
        style |= {"offsets": points, "offset_transform": panel.transData}
        for wide, high in (4.0 * axes.T, 2.0 * axes.T):
            panel.add_collection(EllipseCollection(wide, high, angles, **style))
        closed = np.concatenate([points, points[:1]])
        panel.plot(*closed.T, "-", color="C0", alpha=0.5, linewidth=1)
        if len(points) <= DENSE:
            panel.plot(*points.T, ".", color="C0", markersize=2.5)
        panel.set(xlim=(0, frame.width), ylim=(frame.height, 0), aspect="equal")

    return _panels(result.counts, draw, width, height, title=_TITLE)


def _series_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All mean series in a grid, on one scale."""
    means = result.prototypes
    return _panels(
        result.counts, lambda panel, cluster: panel.plot(means[cluster]), _PANEL, _PANEL / 2
    )


def _panels(
    counts: np.ndarray,
    draw: Callable[[Any, int], Any],
    width: float,
    height: float,
    *,
    title: float | None = None,
) -> UInt8[np.ndarray, "height width 3"]:
    """A panel for each cluster; on one scale where titles have no room of their own."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns, shared = min(len(counts), _MOST_WIDE), title is None
    rows, above = -(-len(counts) // columns), title or 0.0
    size = (columns * width, rows * (height + above))
    figure = Figure(figsize=size, dpi=120, layout="tight" if shared else None)
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)
    if not shared:
        top = 1.0 - above / size[1]
        figure.subplots_adjust(0.0, 0.0, 1.0, top, 0.0, above / height)
    for panel in panels.flat:
        panel.set_axis_off()
    for cluster, count in enumerate(counts):
        draw(panels.flat[cluster], cluster)
        panels.flat[cluster].set_title(f"{cluster}:  n = {count}", fontsize=9)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def result_html(result: Result) -> str:
    """A result as notebooks show it.

    Args:
        result: A fitted model.

    Returns:
        HTML: the method, sizes of clusters and loss in a line, and below it all prototypes, if
        samples of this kind have a picture.
    """
    text = f"<p>{html.escape(str(result))}</p>"
    try:
        sheet = prototype_sheet(result)
    except ValueError:
        return text
    source = picture_uri(as_picture(sheet))
    return f'{text}<img alt="Prototypes" style="max-width: 100%" src="{source}">'


def save_prototypes(path: str | Path, result: Result) -> None:
    """Writes the sheet of prototypes as a PNG file.

    Args:
        path: The file.
        result: A fitted model.
    """
    as_picture(prototype_sheet(result)).save(path, format="PNG")
