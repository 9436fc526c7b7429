"""Decode one picture."""

import contextlib
import io
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diffclust._validation import reason_of
from diffclust.data.arrays import fit_picture
from diffclust.data.dataset import FileError

if TYPE_CHECKING:
    from PIL.Image import Image

_NETPBM = (".pgm", ".ppm", ".pbm", ".pnm", ".pfm")
_JPEG = (".jpg", ".jpeg", ".jfif", ".jpe")
FORMATS = (".png", *_JPEG, ".tif", ".tiff", ".webp", ".bmp", ".gif", *_NETPBM)
"""The files that are read, by suffix; which format a file has is told from its bytes."""

PILLOW_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Their formats, as Pillow calls them."""

OTHER_SUFFIXES = (".avif", ".heic", ".heif", ".jp2", ".j2k", ".jxl")
"""Pictures of formats that are not read: leaving them out unsaid would lose data."""

_FORMAT_NAMES = "PNG, JPEG, TIFF, WebP, BMP, GIF or Netpbm"
_BITS_PER_SAMPLE, _PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0  # tags of TIFF, and a value
_SAMPLE_FORMAT, _SIGNED = 339, 2
_NO_FIXED_RANGE = "of 32-bit or signed integers, which have no fixed range; save 16 bits"
_ROUNDING = 1e-5
_LFS_POINTER = b"version https://git-lfs.github.com/"


def read_picture(source: Path | io.BytesIO, size: tuple[int, int] | None) -> np.ndarray:
    """Decode a PNG, JPEG, TIFF, WebP, BMP, GIF or Netpbm (PGM, PPM, PBM) file.

    The rotation that EXIF asks for is applied, palettes and CMYK become RGB, and pictures that hold
    only greys become grey, however they were saved. Grey of more than 8 bits is divided by the
    largest number of so many bits. Transparent parts become black: like what lies outside of the
    image, they are zero.

    Args:
        source: The file, or its bytes.
        size: Height and width in pixels, to which it is resized and centre-cropped; None leaves it.

    Returns:
        `[height, width, 1 or 3]`, uint8 in 0..255, or float32 in [0, 1] from grey of more than 8
        bits and of floats.

    Raises:
        FileError: If the file cannot be opened, is damaged, is not of these formats, has several
            frames or pages, is a decompression bomb (more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`), or has values without a fixed range.
    """
    from PIL import Image, UnidentifiedImageError

    if isinstance(source, Path) and source.exists() and not source.is_file():
        raise FileError("no regular file")
    begins = b""
    try:
        # From a path, Pillow maps an uncompressed TIFF, and mixes up its rows if EXIF turns it.
        opened = source.open("rb") if isinstance(source, Path) else contextlib.nullcontext(source)
        with opened as file:
            begins = file.read(len(_LFS_POINTER))
            file.seek(0)
            with Image.open(file, formats=PILLOW_FORMATS) as picture:
                _check_picture(picture)
                if size is not None:
                    # JPEG can be decoded at a half, a quarter or an eighth in a fraction of the
                    # time; twice the wanted size leaves the resizing something to average.
                    picture.draft(None, (2 * max(size), 2 * max(size)))
                picture.load()
                return _to_pixels(picture, size)
    except FileError:
        raise
    except UnidentifiedImageError as error:
        if begins == _LFS_POINTER:
            raise FileError("a pointer of Git LFS; fetch its content with git lfs pull") from error
        raise FileError(f"not a {_FORMAT_NAMES} image" if begins else "empty") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise FileError("a decompression bomb") from error
    except MemoryError as error:
        raise FileError("too large for this machine's memory, or its header is damaged") from error
    # Damaged files raise whatever the decoder happened to be doing: OSError, SyntaxError,
    # struct.error, zlib.error, ValueError, IndexError, ...
    except Exception as error:
        raise FileError(reason_of(error)) from error


@contextlib.contextmanager
def quiet_decoding() -> Generator[None]:
    """Ignores the warnings of Pillow, but for decompression bombs, which become errors.

    Warning filters are the whole process's: set them around threads, not in them.

    Yields:
        Nothing.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _check_picture(picture: "Image") -> None:
    """Refuses bombs, of which Pillow itself only warns up to twice its limit, and several frames.

    Taking the first of several frames would lose the others unsaid.
    """
    from PIL import Image

    width, height = picture.size
    if Image.MAX_IMAGE_PIXELS is not None and width * height > Image.MAX_IMAGE_PIXELS:
        raise FileError(
            f"a decompression bomb of {width}x{height} pixels, more than "
            f"{Image.MAX_IMAGE_PIXELS:,}; save it smaller"
        )
    if not width or not height:
        raise FileError(f"without pixels: {width}x{height}")

    if any(tile.args == "LA;16B" for tile in getattr(picture, "tile", ())):
        raise FileError("of 16-bit grey and transparency, and 8 bits would be read; save it opaque")

    # A phone's JPEG may carry its own preview, or a view for another eye, behind the picture.
    if picture.format != "MPO" and getattr(picture, "is_animated", False):
        raise FileError("animated, or of several pages; save the one that counts")


def _exif_transposed(picture: "Image") -> "Image":
    """Rotates and mirrors a picture as its EXIF tags say."""
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # Damaged EXIF asks for nothing, and the pixels are whole.
        return picture


def _to_pixels(picture: "Image", size: tuple[int, int] | None) -> np.ndarray:
    """Grey or RGB pixels, upright and resized."""
    from PIL import Image

    if _SIGNED in np.ravel(getattr(picture, "tag_v2", {}).get(_SAMPLE_FORMAT, 1)):
        # Pillow takes those of 8 bits for unsigned ones.
        raise FileError(_NO_FIXED_RANGE)
    if picture.mode.startswith(("I", "F")):
        picture = Image.fromarray(_to_float_grey(picture))
    else:
        picture = _to_8_bits(_exif_transposed(picture))
    if size is not None:
        picture = fit_picture(picture, size)
    pixels = np.asarray(picture)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _to_8_bits(picture: "Image") -> "Image":
    """Converts a picture to grey or RGB of 8 bits."""
    if picture.mode in ("1", "L", "LA"):
        return _on_black(picture).convert("L")
    picture = _on_black(picture).convert("RGB")
    is_grey = not np.ptp(np.asarray(picture), axis=-1).any()
    return picture.convert("L") if is_grey else picture


def _to_float_grey(picture: "Image") -> np.ndarray:
    """Grey of more than 8 bits or of floats in [0, 1], float32 `[height, width]`."""
    tags = getattr(picture, "tag_v2", {})
    stored = np.asarray(_exif_transposed(picture))
    if picture.mode == "F":
        values = stored.astype(np.float32)
    elif picture.mode.startswith("I;16") or picture.format in ("PNG", "PPM"):
        # Of a PGM whatever it calls white is 65535 here.
        bits = tags.get(_BITS_PER_SAMPLE, 16)
        values = stored.astype(np.float32) / np.float32(2 ** np.ravel(bits)[0] - 1)
    else:
        raise FileError(_NO_FIXED_RANGE)
    low, high = float(values.min()), float(values.max())
    if not -_ROUNDING <= low <= high <= 1.0 + _ROUNDING:
        raise FileError(f"of floats from {low:.6g} to {high:.6g}; rescale them into [0, 1]")
    transparent = picture.info.get("transparency")
    if isinstance(transparent, int):
        values = np.where(stored == transparent, np.float32(0), values)
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        values = np.float32(1) - values
    return np.clip(values, 0.0, 1.0)


def _on_black(picture: "Image") -> "Image":
    """Blends a picture over black where it is transparent."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture
    canvas = Image.new("RGBA", picture.size, (0, 0, 0, 255))
    layer = picture.convert("RGBA")
    canvas.alpha_composite(layer)
    opacity = np.asarray(layer.getchannel("A"))
    has_ground = opacity.min() < 255 and opacity.max() > 0
    if has_ground and canvas.convert("RGB").getbbox() is None:
        raise FileError("black on a transparent ground, which becomes black; give it another one")
    return canvas
