"""Decode one picture file."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diffclust.data.resize import fit_picture

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
"""The formats that are read, by suffix; which of them a file has is told from its bytes."""

OTHER_SUFFIXES = (".avif", ".bmp", ".gif", ".heic", ".jp2", ".tif", ".tiff", ".webp")
"""Pictures of formats that are not read: leaving them out unsaid would lose data."""


class PictureError(Exception):
    """Why one file cannot be used, in a few words."""


def read_picture(path: Path, size: tuple[int, int] | None) -> np.ndarray:
    """Decode a PNG or JPEG file.

    The rotation that EXIF asks for is applied, palettes and CMYK become RGB (or grey, where a
    palette holds only greys). Transparent parts become black: like what lies outside of the
    image, they are zero.

    Args:
        path: The file.
        size: Height and width in pixels, to which it is resized and centre-cropped; None leaves it.

    Returns:
        `[height, width, 1 or 3]`, uint8 in 0..255, or float32 in [0, 1] from 16-bit grey.

    Raises:
        PictureError: If the file cannot be opened, is damaged, is not of these formats, or is a
            decompression bomb (more pixels than `PIL.Image.MAX_IMAGE_PIXELS`).
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=sorted(set(FORMATS.values()))) as picture:
            _refuse_bomb(picture.size)
            if size is not None:
                # JPEG can be decoded at a half, a quarter or an eighth in a fraction of the time;
                # twice the wanted size leaves the resizing something to average.
                picture.draft(None, (2 * max(size), 2 * max(size)))
            picture.load()
            return _to_pixels(_upright(picture), size)
    except PictureError:
        raise
    except UnidentifiedImageError as error:
        raise PictureError("empty" if _is_empty(path) else "not a PNG or JPEG image") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise PictureError("a decompression bomb") from error
    # Damaged files raise whatever the decoder happened to be doing: OSError, SyntaxError,
    # struct.error, zlib.error, ValueError, IndexError, ...
    except Exception as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise PictureError(reason or type(error).__name__) from error


def _refuse_bomb(size: tuple[int, int]) -> None:
    """Checked here too: Pillow itself only warns, up to twice its limit."""
    from PIL import Image

    width, height = size
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise PictureError(f"a decompression bomb of {width}x{height} pixels")


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def _upright(picture: "Image") -> "Image":
    """Rotated and mirrored as EXIF asks."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # Damaged EXIF asks for nothing, and the pixels are whole.
        return picture


def _to_pixels(picture: "Image", size: tuple[int, int] | None) -> np.ndarray:
    """Grey, RGB or 16-bit grey pixels, resized."""
    from PIL import Image

    if picture.mode.startswith("I"):
        sixteen_bit = np.asarray(picture, dtype=np.float32) / np.float32(65535)
        picture = Image.fromarray(np.clip(sixteen_bit, 0.0, 1.0))
    elif picture.mode in ("1", "L", "LA"):
        picture = _on_black(picture).convert("L")
    elif picture.mode in ("P", "PA"):
        picture = _on_black(picture).convert("RGB")
        red, green, blue = np.moveaxis(np.asarray(picture), -1, 0)
        if np.array_equal(red, green) and np.array_equal(green, blue):
            picture = picture.convert("L")
    else:
        picture = _on_black(picture).convert("RGB")
    if size is not None:
        picture = fit_picture(picture, size)
    pixels = np.asarray(picture)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _on_black(picture: "Image") -> "Image":
    """Laid over black where it is transparent."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture
    canvas = Image.new("RGBA", picture.size, (0, 0, 0, 255))
    canvas.alpha_composite(picture.convert("RGBA"))
    return canvas
