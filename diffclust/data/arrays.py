"""Arrays of images: checks, and bringing them to one type, size and number of channels."""

import dataclasses
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import numpy as np

from diffclust._validation import as_array, some
from diffclust.data.dataset import DataError, draw

if TYPE_CHECKING:
    from PIL.Image import Image

SPLITS = ("all", "train", "test")

ReportProgress = Callable[[int, int], None]
"""Called as `progress(done, total)` after each file."""

LUMA = np.array([0.299, 0.587, 0.114], np.float32)
"""Weights of red, green and blue in grey (ITU-R BT.601)."""

_FULL_SCALE = {"bool": 1, "uint8": 255, "uint16": 65535}

_MOST_PIXELS = 89_478_485
"""Of an image after resizing; Pillow takes pictures of more for decompression bombs."""

_ROUNDING = 1e-5
"""How far outside [0, 1] counts as rounding, such as resizing leaves, and is clipped."""


def as_images(
    array: object, *, name: str = "images", indices: np.ndarray | None = None
) -> np.ndarray:
    """Check an array of images and bring it to float32 in [0, 1], channels last.

    Args:
        array: Array-like (NumPy, JAX, nested lists), `[n, height, width]` or
            `[n, height, width, channels]` with 1 or 3 channels. uint8 is divided by 255, uint16
            by 65535, bool becomes 0 and 1; floats must be in [0, 1] already.
        name: What an error calls the array.
        indices: What an error calls each image, integers `[n]`, for a part of a larger array; by
            default they count up from 0.

    Returns:
        float32 `[n, height, width, channels]`; without a copy where none is needed.

    Raises:
        DataError: If the shape is another, a side is empty, values are out of range, NaN or
            infinite (with the indices of those images), or the type has no fixed range.
    """
    try:
        array = as_array(array, name, "images of one size")
    except ValueError as error:
        raise DataError(f"{error}.") from error
    check_shape(array, name)
    if array.ndim == 3:
        array = array[..., None]
    if (scale := _FULL_SCALE.get(array.dtype.name)) is not None:
        images = array.astype(np.float32)
        images /= scale
        return images
    # bfloat16, which JAX arrays may have, is no float to NumPy.
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
        raise DataError(
            f"{name} must be uint8, uint16, bool or float: got dtype {array.dtype}, which has no "
            f"fixed range; use astype('uint8') for values of 0 to 255, or divide into [0, 1]."
        )
    # What overflows here is out of range as well, and is refused below.
    with np.errstate(over="ignore"):
        images = array.astype(np.float32, copy=False)
    # Extremes are NaN or infinite if any value is: one pass, and no mask of the array's size.
    low, high = float(images.min()), float(images.max())
    if not np.isfinite(low + high):
        bad = np.flatnonzero([not np.isfinite(image).all() for image in images])
        where = (bad if indices is None else indices[bad]).tolist()
        raise DataError(
            f"{name} must be finite: {len(bad)} of {len(images)} images hold NaN or infinity, "
            f"at indices {some(where)}; repair or remove them."
        )
    if low < -_ROUNDING or high > 1.0 + _ROUNDING:
        remedy = "divide by 255" if low >= 0.0 and 1.0 < high <= 255.0 else "rescale them"
        raise DataError(
            f"{name} must be in [0, 1] when floats: got {low:.6g} to {high:.6g}; {remedy}."
        )
    return np.clip(images, 0.0, 1.0) if low < 0.0 or high > 1.0 else images


def check_shape(array: np.ndarray, name: str) -> None:
    """Refuse what is not `[n, h, w]` or `[n, h, w, c]`, with a remedy for what is common.

    Args:
        array: The array, of which only the shape is looked at.
        name: What an error calls it.

    Raises:
        DataError: If it has another shape.
    """
    shape, fault = list(array.shape), ""
    if array.ndim == 2:
        side = round(shape[1] ** 0.5)
        like = f"{side}, {side}" if side * side == shape[1] else "height, width"
        fault = (
            f"; reshape flat rows with reshape(-1, {like}), or a single image with image[None]; "
            "series are read from an .npz file with the key 'series'"
        )
    elif array.ndim not in (3, 4):
        fault = "; reshape it"
    elif 0 in shape:
        fault = ", which holds no pixels"
    elif array.ndim == 4 and shape[3] not in (1, 3):
        if shape[1] in (1, 3):
            fault = "; channels come last here: use moveaxis(1, -1)"
        elif shape[3] == 4:
            fault = "; drop the alpha channel: use array[..., :3]"
        else:
            fault = "; choose 1 or 3 of them"
    if fault:
        raise DataError(
            f"{name} must be [n, height, width] or [n, height, width, channels] with 1 or 3 "
            f"channels: got {shape}{fault}."
        )


class PaddedSize(NamedTuple):
    """A size to which pictures are brought whole: resized, and filled up where they are narrower.

    What fills them up has the median colour of their border.

    Attributes:
        height: Height in pixels.
        width: Width in pixels.
    """

    height: int
    width: int


def parse_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Height and width in pixels from one number or two.

    Args:
        size: A side of a square, or height and width, in pixels; None for no change.

    Returns:
        Height and width, or None.

    Raises:
        DataError: If a side is not a whole number of at least 1 pixel, or there are more than 89
            million pixels.
    """
    if size is None:
        return None
    both = size if isinstance(size, Sized) else (size, size)
    if len(both) != 2 or not all(isinstance(side, int | np.integer) for side in both):
        raise DataError(
            f"size must be a whole number of pixels, or height and width: got {size!r}; "
            "give one such as 28 or (28, 32)."
        )
    height, width = both
    if height < 1 or width < 1:
        raise DataError(
            f"size must be at least 1 pixel each way: got {height}x{width}; "
            f"give one number, or height and width, such as 28 or 28x32."
        )
    sides = int(height), int(width)
    if sides[0] * sides[1] > _MOST_PIXELS:
        # Refused here: one image, which is resized before memory is looked at, could take all.
        raise DataError(
            f"size must be at most {_MOST_PIXELS:,} pixels in all: got {height}x{width}; "
            f"give a smaller one, such as 28 or 28x32."
        )
    return PaddedSize(*sides) if isinstance(size, PaddedSize) else sides


class LoadSettings(TypedDict, total=False):
    """Keyword arguments that every loader of images takes beside the source.

    Attributes:
        split: `"train"`, `"test"`, or `"all"` for everything, which is the default: of arrays train
            first, of folders in the order of the files; the first two only where the source has
            them.
        size: Side of a square, or height and width, in pixels, to which images are resized and
            centre-cropped, or a `PaddedSize`, to which they are brought whole; None, the default,
            leaves them, and requires that files have one size.
            Of recordings, the numbers of bands and frames.
        channels: 1 to make all grey, 3 to make all RGB; None, the default, leaves them (a folder
            is grey if all of it is, and so are recordings).
        skip_bad: Leave out files that cannot be read, and name them in `Dataset.skipped`; False by
            default.
        limit: At most so many images, drawn at random before any file is decoded, in their old
            order; None, the default, for all.
        seed: Seed of the draw, and of the drawn and made sets; 0 by default.
        progress: Called as `progress(done, total)` while files are read.
    """

    split: str
    size: int | tuple[int, int] | None
    channels: int | None
    skip_bad: bool
    limit: int | None
    seed: int
    progress: ReportProgress | None


@dataclasses.dataclass(frozen=True)
class LoadOptions:
    """All of `LoadSettings`, with defaults for what was not given.

    Raises:
        DataError: If one is out of range.
    """

    split: str = "all"
    size: int | tuple[int, int] | None = None
    channels: int | None = None
    skip_bad: bool = False
    limit: int | None = None
    seed: int = 0
    progress: ReportProgress | None = None

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        if self.split not in SPLITS:
            raise DataError(f"split must be one of {', '.join(SPLITS)}: got {self.split!r}.")
        if self.channels not in (None, 1, 3):
            raise DataError(f"channels must be 1 (grey) or 3 (RGB): got {self.channels}.")
        parse_size(self.size)

    @property
    def target(self) -> tuple[int, int] | None:
        """Height and width in pixels, or None for no change."""
        return parse_size(self.size)

    def draw(self, total: int) -> np.ndarray:
        """Positions of the images that are wanted.

        Args:
            total: How many there are.

        Returns:
            Sorted integers, `[min(total, limit)]`.

        Raises:
            DataError: If the limit is below 1.
        """
        return draw(total, self.limit, self.seed)


def fit_picture(picture: "Image", size: tuple[int, int]) -> "Image":
    """Resize a picture until it just covers a size, and crop it about its centre.

    For a `PaddedSize` until it just fits into it, and fill it up with the colour of its border.

    Linear interpolation, with a support that grows when shrinking (so nothing aliases). It never
    overshoots, unlike cubic or Lanczos, so intensities stay in [0, 1].

    Args:
        picture: A picture of mode L, RGB or F.
        size: Height and width in pixels.

    Returns:
        A picture of exactly this size, of the same mode.
    """
    from PIL import Image, ImageOps

    (height, width), method = size, Image.Resampling.BILINEAR
    if not isinstance(size, PaddedSize):
        return ImageOps.fit(picture, (width, height), method=method)
    pixels = np.asarray(picture)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    median = np.median(border, axis=0).astype(pixels.dtype)
    colour = tuple(median.tolist()) if median.ndim else median.item()
    factor = min(height / picture.height, width / picture.width)
    if round(factor * min(picture.size)) == 0:
        # Nothing would be left of a picture that is this narrow.
        inner = (max(1, round(factor * picture.width)), max(1, round(factor * picture.height)))
        picture = picture.resize(inner, method)
    return ImageOps.pad(picture, (width, height), method=method, color=colour)


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


def fit_images(
    images: np.ndarray, size: tuple[int, int] | None, channels: int | None
) -> np.ndarray:
    """Bring a batch to a number of channels and a size, as `convert_channels` and `fit_picture` do.

    Args:
        images: Intensities in [0, 1], float32 `[n, h, w, c]`.
        size: Height and width in pixels, or None to leave them.
        channels: 1, 3, or None to leave them.

    Returns:
        float32 `[n, height, width, channels]`; the same array where nothing is to be done.
    """
    from PIL import Image

    images = convert_channels(images, channels)
    if size is None or images.shape[1:3] == size:
        return images
    fitted = np.empty((len(images), *size, images.shape[3]), np.float32)
    for i, image in enumerate(images):
        for channel in range(images.shape[3]):
            picture = Image.fromarray(np.ascontiguousarray(image[..., channel]))
            fitted[i, ..., channel] = np.asarray(fit_picture(picture, size))
    return np.clip(fitted, 0.0, 1.0, out=fitted)


def check_labels(labels: np.ndarray, n: int, where: str, *, noun: str = "images") -> np.ndarray:
    """Refuse labels that are not one integer or string for each sample.

    Args:
        labels: What is stored.
        n: Number of samples.
        where: What an error calls the labels.
        noun: What it calls the samples.

    Returns:
        Labels `[n]` of integers or strings.

    Raises:
        DataError: If they are something else.
    """
    # Keras keeps the labels of CIFAR as [n, 1].
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n,):
        of_images = noun == "images"
        remedy = (
            "for one-hot rows save their argmax" if of_images else f"pass those of these {noun}"
        )
        raise DataError(
            f"{where} must hold one label for each of the {n} {noun}: got shape "
            f"{list(labels.shape)}; {remedy}."
        )
    if labels.dtype.kind == "f" and (np.isfinite(labels) & (labels == np.round(labels))).all():
        labels = labels.astype(np.int64)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.tolist()):
        labels = labels.astype(np.str_)
    if labels.dtype.kind == "S":
        labels = np.array([label.decode("utf-8", "replace") for label in labels.tolist()])
    if labels.dtype.kind not in "iubU":
        raise DataError(
            f"{where} must be integers or strings: got dtype {labels.dtype}; convert or drop them."
        )
    return labels
