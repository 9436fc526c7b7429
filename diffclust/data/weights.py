"""Weights of samples and masks of pixels, from files."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from diffclust._validation import some
from diffclust.data.dataset import DataError, FileError
from diffclust.data.files import read_archive
from diffclust.data.pictures import FORMATS, quiet_decoding, read_picture
from diffclust.masks import as_mask


def load_weights(path: str | Path, indices: np.ndarray, *, total: int | None = None) -> np.ndarray:
    """Load weights from a `.npy` file: one number for each sample of a source.

    Args:
        path: The file, `[n]`, of non-negative numbers, in the order of the source.
        indices: Positions in the source of the samples that are wanted, integers `[m]`, such as
            `Dataset.indices`: fewer than n after a limit or where bad files were left out.
        total: How many samples the source has, if that is known.

    Returns:
        float64 `[m]`.

    Raises:
        DataError: If the file is missing, damaged, of another shape, type or length, or has a
            weight that is negative, NaN or infinite, or no positive one.
    """
    path = Path(path)
    stored = read_archive(path).images
    where = f"weights in {str(path)!r}"
    if stored.ndim != 1 or stored.dtype.kind not in "iuf":
        raise DataError(
            f"{where} must be one number for each sample: got {stored.dtype} "
            f"{list(stored.shape)}; save them with np.save as [n] floats."
        )
    least = int(indices.max()) + 1 if len(indices) else 0
    if len(stored) < least or total not in (None, len(stored)):
        raise DataError(
            f"{where} must be one for each sample of the source: got {len(stored)} for "
            f"{f'at least {least}' if total is None else total}; save one for each, in the same "
            f"order."
        )
    weights = stored.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if bad.size:
        raise DataError(
            f"{where} must be finite and at least 0: {bad.size} are not, at {some(bad.tolist())}; "
            f"correct them."
        )
    chosen = weights[indices]
    if not np.any(chosen > 0.0):
        raise DataError(f"{where} must be positive somewhere: all are 0; correct them.")
    return chosen


def load_mask(
    path: str | Path, size: tuple[int, int] | None = None
) -> Float[np.ndarray, "height width"]:
    """Load which pixels of images count: a picture, black where they do not, or a `.npy` file.

    Args:
        path: A picture, whose grey levels are the weights, or numbers in [0, 1], 8-bit integers or
            booleans `[height, width]`.
        size: Height and width in pixels, to which a picture is resized and centre-cropped like the
            images; None leaves it.

    Returns:
        The weights, from 0 to 1.

    Raises:
        DataError: If the file is missing, damaged, of another shape or type, or hides all pixels.
    """
    path = Path(path)
    where = f"mask in {str(path)!r}"
    if path.suffix.lower() in FORMATS:
        try:
            with quiet_decoding():
                weights = read_picture(path, size)
        except FileError as error:
            raise DataError(f"{where} cannot be read: {error}; give another picture.") from error
        weights = weights.mean(axis=2) / (255 if weights.dtype == np.uint8 else 1)
    else:
        weights = read_archive(path).images
    try:
        as_mask(weights)
    except ValueError as error:
        raise DataError(f"{where} is not one: {error}.") from error
    return (weights / 255 if weights.dtype == np.uint8 else weights).astype(float)
