"""Which pixels of images count, and how much: masks as text that JSON can hold.

Every image of a collection has the same mask. Models take it as anything array-like and keep it as
text, since their settings are names and numbers.
"""

import base64
import binascii
import functools
import re
import zlib
from typing import Any

import numpy as np
from jaxtyping import Float

from diffclust._validation import as_array

_LEVELS = 255
"""Weights are kept in so many steps."""


def as_mask(value: Any) -> str | None:
    """A mask as text.

    Args:
        value: Weights of the pixels in [0, 1], array-like of shape `(height, width)`: numbers,
            8-bit integers (divided by 255, if any is above 1) or booleans, 0 for pixels that do
            not count. Or a mask as text already, or None.

    Returns:
        The mask as text: its height and width, and its weights in steps of 1/255. None where all
        pixels count alike.

    Raises:
        ValueError: For any other shape, weights outside of [0, 1], or none above 0.
    """
    if value is None:
        return None
    if isinstance(value, str):
        _decoded(value)
        return value
    array = as_array(value, "mask")
    if array.dtype == np.uint8 and array.max(initial=0) > 1:
        array = array / _LEVELS
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
        raise ValueError(
            "mask must hold one number for each pixel, of shape (height, width), not "
            f"{array.dtype} of shape {array.shape}"
        )
    if not np.all((array >= 0.0) & (array <= 1.0)):
        raise ValueError("mask must hold weights from 0 to 1; NaN, or others, came")
    levels = np.rint(array.astype(float) * _LEVELS).astype(np.uint8)
    if not levels.any():
        raise ValueError("mask hides all pixels; some must have a weight above 0")
    if np.all(levels == _LEVELS):
        return None
    packed = base64.b64encode(zlib.compress(levels.tobytes(), 9)).decode("ascii")
    return f"{array.shape[0]}x{array.shape[1]}:{packed}"


@functools.lru_cache(maxsize=16)
def _decoded(mask: str) -> Float[np.ndarray, "height width"]:
    match = re.fullmatch(r"([0-9]{1,6})x([0-9]{1,6}):([A-Za-z0-9+/=]+)", mask)
    try:
        if match is None:
            raise ValueError
        height, width = int(match[1]), int(match[2])
        stored = zlib.decompress(base64.b64decode(match[3], validate=True))
        weights = np.frombuffer(stored, np.uint8).reshape(height, width) / _LEVELS
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ValueError(
            f"mask must be an array of shape (height, width), or text from as_mask, not {mask!r}"
        ) from error
    weights.setflags(write=False)
    return weights


def mask_weights(
    mask: str, height: int | None = None, width: int | None = None
) -> Float[np.ndarray, "height width 1"]:
    """The weights of pixels.

    Args:
        mask: A mask as text.
        height: Rows of the images; those of the mask where it is not given.
        width: Columns of the images; those of the mask where it is not given.

    Returns:
        Weights in [0, 1], averaged over areas where images are coarser than the mask.
    """
    weights = _decoded(mask)
    rows, columns = weights.shape
    left = _averages(rows, height or rows)
    right = _averages(columns, width or columns)
    return (left @ weights @ right.T)[..., None]


def mask_in_words(mask: str) -> str:
    """Describes in words what a mask does.

    Args:
        mask: A mask as text.

    Returns:
        For example `64x64 pixels, 14.1% hidden`.
    """
    weights = _decoded(mask)
    hidden = f"{100 * np.mean(weights == 0.0):.1f}% hidden"
    return f"{weights.shape[0]}x{weights.shape[1]} pixels, {hidden}"


def _averages(size: int, wanted: int) -> Float[np.ndarray, "wanted size"]:
    """The matrix that averages over the cells of a coarser axis."""
    edges = np.linspace(0.0, size, wanted + 1)
    cells = np.arange(size)
    share = np.minimum(edges[1:, None], cells + 1.0) - np.maximum(edges[:-1, None], cells)
    return np.maximum(share, 0.0) * (wanted / size)


def mask_size(mask: str) -> tuple[int, int]:
    """Height and width of a mask.

    Args:
        mask: A mask as text.

    Returns:
        Both, in pixels.
    """
    height, width = _decoded(mask).shape
    return height, width


def check_mask_size(mask: str | None, height: int, width: int) -> None:
    """Refuses a mask for images of another size.

    Args:
        mask: A mask as text, or None.
        height: Rows of the images.
        width: Columns of the images.

    Raises:
        ValueError: With both sizes.
    """
    if mask is not None and mask_size(mask) != (height, width):
        rows, columns = mask_size(mask)
        raise ValueError(
            f"the mask is of {rows}x{columns} pixels and the images are of {height}x{width}; give "
            "a mask of the same height and width"
        )
