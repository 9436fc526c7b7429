"""A mask of pixels, from a file."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from diffclust.data.archives import read_archive
from diffclust.data.dataset import DataError
from diffclust.data.gather import FileError
from diffclust.data.pictures import FORMATS, quiet_decoding, read_picture
from diffclust.masks import as_mask


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
                found = read_picture(path, size)
        except FileError as error:
            raise DataError(f"{where} cannot be read: {error}; give another picture.") from error
        found = found.mean(axis=2) / (255 if found.dtype == np.uint8 else 1)
    else:
        found = read_archive(path).images
    try:
        as_mask(found)
    except ValueError as error:
        raise DataError(f"{where} is not one: {error}.") from error
    return (found / 255 if found.dtype == np.uint8 else found).astype(float)
