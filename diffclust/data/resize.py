"""Bring images to one size and one number of channels."""

from typing import TYPE_CHECKING

import numpy as np

from diffclust.data.dataset import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in grey (ITU-R BT.601)."""


def parse_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width in pixels from one number or two.

    Args:
        size: A side of a square, or height and width, in pixels; None for no change.

    Returns:
        Height and width, or None.

    Raises:
        DataError: If a side is not at least 1 pixel.
    """
    if size is None:
        return None
    height, width = (size, size) if isinstance(size, int | np.integer) else size
    if height < 1 or width < 1:
        raise DataError(
            f"size must be at least 1 pixel each way: got {height}x{width}; "
            f"give one number, or height and width, such as 28 or 28x32."
        )
    return int(height), int(width)


def check_channels(channels: int | None) -> None:
    """Refuse a number of channels other than 1, 3 or None.

    Args:
        channels: The number that was asked for; None for "as they come".

    Raises:
        DataError: If it is something else.
    """
    if channels not in (None, 1, 3):
        raise DataError(f"channels must be 1 (grey) or 3 (RGB): got {channels}.")


def fit_picture(picture: "Image", size: tuple[int, int]) -> "Image":
    """Resize a picture until it just covers a size, and crop it about its centre.

    Linear interpolation, with a support that grows when shrinking (so nothing aliases). It never
    overshoots, unlike cubic or Lanczos, so intensities stay in [0, 1].

    Args:
        picture: A picture of mode L, RGB or F.
        size: Height and width in pixels.

    Returns:
        A picture of exactly this size, of the same mode.
    """
    from PIL import Image, ImageOps

    height, width = size
    return ImageOps.fit(picture, (width, height), method=Image.Resampling.BILINEAR)


def fit_images(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize and centre-crop a batch, as `fit_picture` does.

    Args:
        images: Intensities in [0, 1], float32 `[n, h, w, channels]`.
        size: Height and width in pixels.

    Returns:
        float32 `[n, height, width, channels]`; the same array where nothing is to be done.
    """
    from PIL import Image

    if images.shape[1:3] == size:
        return images
    fitted = np.empty((len(images), *size, images.shape[3]), np.float32)
    for i, image in enumerate(images):
        for channel in range(images.shape[3]):
            picture = Image.fromarray(np.ascontiguousarray(image[..., channel]))
            fitted[i, ..., channel] = np.asarray(fit_picture(picture, size))
    return np.clip(fitted, 0.0, 1.0, out=fitted)


def convert_channels(images: np.ndarray, channels: int | None) -> np.ndarray:
    """Turn RGB into grey (BT.601 luma), or repeat grey as RGB.

    Args:
        images: float32 `[..., c]` with c of 1 or 3.
        channels: 1, 3, or None to leave the images alone.

    Returns:
        float32 `[..., channels]`; the same array where nothing is to be done.
    """
    if channels is None or images.shape[-1] == channels:
        return images
    if channels == 3:
        return np.repeat(images, 3, axis=-1)
    return np.clip(images @ LUMA[:, None], 0.0, 1.0)
