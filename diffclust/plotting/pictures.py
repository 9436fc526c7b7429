"""Prototypes as pictures: images as 8 bits, and sheets of all prototypes with their sizes."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from diffclust.models import Result
from diffclust.plotting.shape_sheet import shape_sheet
from diffclust.prototypes import LandmarkGaussians

_TILE = 96
"""Pixels that the longer side of a prototype has at least on a sheet."""


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


def prototype_sheet(result: Result) -> UInt8[np.ndarray, "height width 3"]:
    """All prototypes in a grid, in the order of their clusters, each with its size.

    Args:
        result: A fitted model.

    Returns:
        An RGB picture; each image is scaled to its own range of intensities, and mean shapes are
        drawn on one scale with their ellipses.
    """
    if isinstance(result.outcome.learned.clusters.prototype, LandmarkGaussians):
        return shape_sheet(result)
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
        tile = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
        sheet.paste(tile.convert("RGB"), (x + (tile_width - tile.width) // 2, y))
        caption = f"{cluster}:  n = {counts[cluster]}"
        middle = x + tile_width / 2
        draw.text((middle, y + tile_height + 5), caption, (64, 64, 64), font, anchor="ma")
    return np.asarray(sheet)


def save_prototypes(path: str | Path, result: Result) -> None:
    """Writes the sheet of prototypes as a PNG file.

    Args:
        path: The file.
        result: A fitted model.
    """
    from PIL import Image

    Image.fromarray(prototype_sheet(result)).save(path, format="PNG")
