"""Every format and kind of pixel, against what was written; and pictures that cannot be used."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from diffclust.data import DataError, load, load_folder
from diffclust.data.dataset import FileError
from diffclust.data.pictures import FORMATS, PILLOW_FORMATS, quiet_decoding, read_picture


def read(picture: Image.Image | bytes, size=None, **options) -> np.ndarray:
    """What is made of a picture, in [0, 1]."""
    if isinstance(picture, bytes):
        content = io.BytesIO(picture)
    else:
        picture.save(content := io.BytesIO(), **options)
        content.seek(0)
    with quiet_decoding():
        pixels = read_picture(content, size)
    return pixels / 255 if pixels.dtype == np.uint8 else pixels


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def tiff(pixels: bytes, width: int, bits: int, *, white_is_zero: bool = False, kind: int = 1):
    """A TIFF of one row, as its specification has it."""
    entries = [
        (256, 3, 1, width),
        (257, 3, 1, 1),
        (258, 3, 1, bits),
        (259, 3, 1, 1),
        (262, 3, 1, 0 if white_is_zero else 1),
        (273, 4, 1, 8),
        (277, 3, 1, 1),
        (278, 3, 1, 1),
        (279, 4, 1, len(pixels)),
        (339, 3, 1, kind),
    ]
    directory = struct.pack("<H", len(entries))
    directory += b"".join(struct.pack("<HHII", *entry) for entry in entries) + bytes(4)
    padding = b"\0" * (len(pixels) % 2)
    start = 8 + len(pixels) + len(padding)
    return b"II*\0" + struct.pack("<I", start) + pixels + padding + directory


@pytest.mark.parametrize("name", ["PNG", "TIFF", "WEBP", "BMP", "PPM"])
def test_formats_without_loss(name):
    options = {"lossless": True} if name == "WEBP" else {}
    colours = noise(5, 4, 3)
    np.testing.assert_array_equal(
        read(Image.fromarray(colours), format=name, **options), colours / 255
    )
    # WebP is always in colour; whatever holds only greys is grey.
    grey = noise(5, 4)
    for saved in (grey, np.stack([grey] * 3, axis=-1)):
        result = read(Image.fromarray(saved), format=name, **options)
        np.testing.assert_array_equal(result, grey[..., None] / 255)


def test_formats_with_loss():
    ramp = np.broadcast_to(np.arange(0, 256, 4, dtype=np.uint8), (64, 64)).copy()
    for name in ("JPEG", "GIF", "WEBP"):
        result = read(Image.fromarray(ramp), format=name, quality=95)
        np.testing.assert_allclose(result[..., 0], ramp / 255, atol=0.03)
    # A palette of greys stays grey.
    assert read(Image.fromarray(ramp), format="GIF").shape == (64, 64, 1)
    assert read(Image.fromarray(noise(8, 8, 3)), format="GIF").shape == (8, 8, 3)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_folder_of_each_format(tmp_path, suffix):
    for name in "ab":
        Image.fromarray(noise(6, 5)).save(tmp_path / f"{name}{suffix.upper()}")
    assert load(tmp_path).images.shape[:3] == (2, 6, 5)


def test_formats_are_told_from_bytes_not_names(tmp_path):
    Image.fromarray(noise(6, 5)).save(tmp_path / "a.png", format="TIFF")
    Image.fromarray(noise(6, 5)).save(tmp_path / "b.tif", format="PNG")
    images = load(tmp_path).images
    np.testing.assert_array_equal(images[0], images[1])


VALUES = np.array([[0, 256, 32768, 65535]], np.uint16)


@pytest.mark.parametrize("name", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_and_never_clipped(name):
    result = read(Image.fromarray(VALUES), format=name)
    np.testing.assert_allclose(result[0, :, 0], VALUES[0] / 65535, rtol=1e-6)
    rows = Image.fromarray(np.repeat(VALUES, 4, axis=0))
    assert read(rows, (2, 2), format=name).shape == (2, 2, 1)


def test_bits_and_polarity_of_tiff():
    sixteen = VALUES.astype("<u2").tobytes()
    for inverted in (False, True):
        result = read(tiff(sixteen, 4, 16, white_is_zero=inverted))[0, :, 0]
        expected = VALUES[0] / 65535
        np.testing.assert_allclose(result, 1 - expected if inverted else expected, atol=1e-6)
    # Two numbers of 12 bits lie in three bytes.
    twelve = bytes([0xFF, 0xF0, 0x00, 0x80, 0x00, 0x10])
    result = read(tiff(twelve, 4, 12))[0, :, 0]
    np.testing.assert_allclose(result, np.array([4095, 0, 2048, 16]) / 4095, atol=1e-6)


def test_whatever_a_netpbm_file_calls_white_is_one():
    deep = b"P5 3 1 1000\n" + np.array([0, 250, 1000], ">u2").tobytes()
    floats = b"Pf\n3 1\n-1.0\n" + np.array([0.25, 0.5, 1.0], "<f4").tobytes()
    for content, values in (
        (b"P2 3 1 200 0 100 200", [0, 128 / 255, 1]),
        (b"P1 3 1 1 0 1", [0, 1, 0]),
        (b"P3 1 1 255 255 0 51", [1, 0, 0.2]),
        (deep, [0, 0.25, 1]),
        (floats, [0.25, 0.5, 1]),
    ):
        np.testing.assert_allclose(read(content).ravel(), values, atol=1e-5)


def test_floats_are_taken_as_they_are():
    values = np.array([[0.0, 0.25, 1.0]], np.float32)
    np.testing.assert_array_equal(read(Image.fromarray(values), format="TIFF")[..., 0], values)
    for bad, message in (
        ([[0.0, 255.0]], "of floats from 0 to 255; rescale them"),
        ([[-0.5, 1.0]], "from -0.5 to 1"),
        ([[np.nan, 0.5]], "of floats from nan"),
        ([[np.inf, 0.5]], "of floats from 0.5 to inf"),
    ):
        with pytest.raises(FileError, match=message):
            read(Image.fromarray(np.array(bad, np.float32)), format="TIFF")


def test_integers_without_a_range_are_refused():
    for bits, kind, dtype in ((32, 1, "<u4"), (8, 2, "i1"), (16, 2, "<i2"), (32, 2, "<i4")):
        pixels = np.array([0, 7, 90], dtype).tobytes()
        with pytest.raises(FileError, match=r"of 32-bit or signed integers.*save 16 bits"):
            read(tiff(pixels, 3, bits, kind=kind))


def test_transparent_sixteen_bits():
    """A PNG's tRNS names one level of grey that is transparent."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    row = b"\0" + VALUES.astype(">u2").tobytes()
    content = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 1, 16, 0, 0, 0, 0))
        + chunk(b"tRNS", struct.pack(">H", 32768))
        + chunk(b"IDAT", zlib.compress(row))
        + chunk(b"IEND", b"")
    )
    expected = np.array([0, 256, 0, 65535]) / 65535
    np.testing.assert_allclose(read(content)[0, :, 0], expected, atol=1e-6)


@pytest.mark.parametrize("name", ["PNG", "TIFF", "WEBP"])
def test_transparency_is_blended_with_black(name):
    pixels = np.full((1, 3, 4), 255, np.uint8)
    pixels[0, :, 3] = 255, 0, 51
    options = {"lossless": True} if name == "WEBP" else {}
    result = read(Image.fromarray(pixels), format=name, **options)
    np.testing.assert_allclose(result[0, :, 0], [1.0, 0.0, 0.2], atol=0.003)


def test_black_ink_on_nothing_is_refused():
    pixels = np.zeros((4, 4, 4), np.uint8)
    assert not read(Image.fromarray(pixels), format="PNG").any()
    pixels[1:3, 1:3, 3] = 255
    with pytest.raises(FileError, match="black on a transparent ground"):
        read(Image.fromarray(pixels), format="PNG")
    # A frame that is black all over hides nothing; nor does dark blue, of luminance zero.
    pixels[..., 3] = 255
    assert not read(Image.fromarray(pixels), format="PNG").any()
    pixels[1:3, 1:3, 2:] = 3, 128
    read(Image.fromarray(pixels), format="PNG")


@pytest.mark.parametrize("name", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(name, orientation):
    pixels = np.zeros((16, 32), np.uint8)
    pixels[:8, :8] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    result = read(Image.fromarray(pixels), format=name, exif=exif)[..., 0]
    # What the standard says the first row and column are: 1 is top left, and so on.
    turned = {
        1: pixels,
        2: pixels[:, ::-1],
        3: pixels[::-1, ::-1],
        4: pixels[::-1],
        5: pixels.T,
        6: np.rot90(pixels, -1),
        7: pixels[::-1, ::-1].T,
        8: np.rot90(pixels),
    }[orientation]
    assert result.shape == turned.shape
    np.testing.assert_allclose(result, turned / 255, atol=0.05)


def test_exif_orientation_of_sixteen_bits():
    exif = Image.Exif()
    exif[0x0112] = 6
    pixels = np.arange(6, dtype=np.uint16).reshape(2, 3)
    result = read(Image.fromarray(pixels), format="PNG", exif=exif)[..., 0]
    np.testing.assert_allclose(result * 65535, np.rot90(pixels, -1), atol=0.01)


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_several_frames_are_refused(name):
    frames = [Image.fromarray(noise(8, 8)), Image.fromarray(255 - noise(8, 8))]
    assert read(frames[0], format=name, save_all=True).shape[:2] == (8, 8)
    with pytest.raises(FileError, match="animated, or of several pages"):
        read(frames[0], format=name, save_all=True, append_images=frames[1:])


def test_a_phone_s_picture_with_its_preview_is_taken():
    frames = [Image.fromarray(noise(16, 16, 3)), Image.fromarray(noise(8, 8, 3))]
    assert read(frames[0], format="MPO", save_all=True, append_images=frames[1:]).shape == (
        16,
        16,
        3,
    )


def test_extreme_sizes():
    assert read(Image.fromarray(noise(1, 1)), format="PNG").shape == (1, 1, 1)
    assert read(Image.fromarray(noise(1, 1)), (5, 7), format="PNG").shape == (5, 7, 1)
    wide = Image.fromarray(np.zeros((2, 30_000), np.uint8))
    assert read(wide, format="PNG").shape == (2, 30_000, 1)
    assert read(wide, (8, 8), format="PNG").shape == (8, 8, 1)


@pytest.mark.parametrize("size", [None, (4, 4)])
def test_no_pixels(size):
    header = struct.pack("<IiiHHIIiiII", 40, 0, 0, 1, 24, 0, 0, 0, 0, 0, 0)
    bitmap = b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header
    with pytest.raises(FileError):
        read(bitmap, size)


@pytest.mark.parametrize("name", PILLOW_FORMATS)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5])
def test_truncated(name, share):
    Image.fromarray(noise(40, 40, 3)).save(content := io.BytesIO(), format=name)
    whole = content.getvalue()
    with pytest.raises(FileError) as raised:
        read(whole[: int(share * len(whole))])
    assert str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_may_not_be_opened_is_named(tmp_path, monkeypatch):
    """As a user without permission sees it; root is never refused."""
    Image.fromarray(noise(8, 8)).save(tmp_path / "a.png")
    Image.fromarray(noise(8, 8)).save(tmp_path / "b.png")
    opened = Image.open

    def refuse(file, *args, **kwargs):
        if Path(file.name).name == "b.png":
            raise PermissionError(13, "Permission denied", file.name)
        return opened(file, *args, **kwargs)

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(DataError, match=r"1 of 2 images .* 'b.png' \(Permission denied\)"):
        load_folder(tmp_path)


def test_folders_that_may_not_be_listed(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("no permissions are refused to root")
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(DataError, match=r"closed' cannot be listed \(Permission denied\)"):
        load_folder(tmp_path)


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_orientation_of_a_tiff_that_could_be_mapped(tmp_path, compression):
    upright = noise(12, 8)
    turned = Image.fromarray(np.ascontiguousarray(np.rot90(upright)))
    more = {} if compression is None else {"compression": compression}
    turned.save(tmp_path / "turned.tif", tiffinfo={274: 6}, **more)
    np.testing.assert_array_equal(read_picture(tmp_path / "turned.tif", None)[..., 0], upright)
