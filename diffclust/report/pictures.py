"""Small pictures as `data:` URIs, no larger together than a report can hold."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8

from diffclust.plotting import displayable

_SHRINKING = ((96, None), (72, None), (72, 64), (56, 64), (40, 64), (28, 64))
"""Longest side and number of colours (None for all of them), tried until the pictures fit."""

_TRIED = 12
"""Pictures that stand for all others when their size in bytes is estimated."""


def data_uris(
    images: Sequence[np.ndarray], *, most_bytes: int, own_range: bool = False
) -> list[str]:
    """Images as PNG `data:` URIs.

    Large images are made smaller, to 96 pixels at most and further until all of them fit; small
    ones stay as they are, pixel for pixel.

    Args:
        images: Images of shape `(height, width, channels)`.
        most_bytes: About how long all URIs may be together.
        own_range: Stretch each image's intensities to its own range.

    Returns:
        One URI for each image.
    """
    pixels = [displayable(image, own_range=own_range) for image in images]
    if not pixels:
        return []
    side, colours = _shrinking(pixels[:: -(-len(pixels) // _TRIED)], most_bytes / len(pixels))
    return [_data_uri(one, side, colours) for one in pixels]


def _shrinking(
    tried: Sequence[UInt8[np.ndarray, "h w channels"]], most_bytes: float
) -> tuple[int, int | None]:
    """The first of `_SHRINKING` under which pictures are short enough on average, or the last."""
    for side, colours in _SHRINKING[:-1]:
        if np.mean([len(_data_uri(one, side, colours)) for one in tried]) <= most_bytes:
            return side, colours
    return _SHRINKING[-1]


def _data_uri(pixels: UInt8[np.ndarray, "h w channels"], side: int, colours: int | None) -> str:
    from PIL import Image

    picture = Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels)
    picture.thumbnail((side, side))
    if colours is not None and picture.mode == "RGB":
        picture = picture.quantize(colours, dither=Image.Dither.NONE)
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
