"""Folders of pictures: formats, labels, splits, and all that can be wrong with a file."""

import os
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from diffclust.data import DataError, PaddedSize, load, load_folder, open_stream
from diffclust.data.folder import decode_each
from tests.data.bad_files import check_refused_or_skipped


def noise(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    """Three good grey pictures, 5 high and 4 wide."""
    for name in ("a.png", "b.png", "c.png"):
        save(tmp_path / name, noise(5, 4))
    return tmp_path


def test_flat_grey(folder):
    calls = []
    dataset = load_folder(folder, progress=lambda *call: calls.append(call))
    assert dataset.images.shape == (3, 5, 4, 1)
    assert dataset.images.dtype == np.float32
    np.testing.assert_allclose(dataset.images[0, ..., 0], noise(5, 4) / 255, rtol=1e-6)
    assert dataset.paths == tuple(str(folder / name) for name in ("a.png", "b.png", "c.png"))
    assert dataset.labels is None
    assert dataset.skipped == ()
    assert dataset.name == folder.name
    assert calls == [(1, 3), (2, 3), (3, 3)]


def test_one_colour_picture_makes_all_rgb(folder):
    save(folder / "d.PNG", noise(5, 4, 3))
    images = load_folder(folder).images
    assert images.shape == (4, 5, 4, 3)
    # Paths are sorted by their names.
    np.testing.assert_array_equal(images[0, ..., 0], images[0, ..., 2])
    np.testing.assert_allclose(images[3], noise(5, 4, 3) / 255, rtol=1e-6)
    assert load_folder(folder, channels=1).images.shape == (4, 5, 4, 1)


def test_grey_can_be_made_rgb(folder):
    assert load_folder(folder, channels=3).images.shape == (3, 5, 4, 3)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("summary.json", '{"method": "kmeans", "command": "fit"}'),
        ("export.json", '{"what": "folders", "run": "run"}'),
        ("report.json", '{"report": "report_files", "files": "members"}'),
    ],
)
def test_folders_that_diffclust_wrote_are_passed_over(folder, name, text):
    written = folder / "deep" / "run"
    save(written / "cluster-0" / "a.png", noise(5, 4))
    assert len(load(folder)) == 4
    (written / name).write_text('{"title": "a gallery of one\'s own"}')
    assert len(load(folder)) == 4
    (written / name).write_text(text)
    assert len(load(folder)) == 3
    with pytest.raises(DataError, match="holds no images: only other files .what diffclust wrote"):
        load(folder / "deep")


def test_subfolders_are_labels(tmp_path):
    for name in ("cat/a.png", "cat/deeper/b.jpg", "dog/c.jpeg"):
        save(tmp_path / name, noise(5, 4))
    dataset = load_folder(tmp_path)
    assert dataset.label_names == ("cat", "dog")
    np.testing.assert_array_equal(dataset.labels, [0, 0, 1])


def test_no_labels_unless_every_picture_has_one(tmp_path):
    for name in ("cat/a.png", "dog/b.png", "c.png"):
        save(tmp_path / name, noise(5, 4))
    assert load_folder(tmp_path).labels is None


def test_a_single_subfolder_is_no_label(tmp_path):
    save(tmp_path / "all" / "a.png", noise(5, 4))
    assert load_folder(tmp_path).labels is None


def test_splits(tmp_path):
    for name in ("train/cat/a.png", "train/dog/b.png", "test/dog/c.png", "test/cat/d.png"):
        save(tmp_path / name, noise(5, 4))
    assert len(load(tmp_path)) == 4
    assert load(tmp_path).label_names == ("cat", "dog")
    test = load(tmp_path, split="test")
    assert test.paths is not None
    assert [os.path.relpath(path, tmp_path) for path in test.paths] == [
        os.path.join("test", "cat", "d.png"),
        os.path.join("test", "dog", "c.png"),
    ]
    np.testing.assert_array_equal(test.labels, [0, 1])


@pytest.mark.parametrize("names", [("train", "val", "test"), ("Train", "Test")])
def test_splits_of_other_names_are_no_classes(tmp_path, names):
    for name in names:
        save(tmp_path / name / "cat" / "a.png", noise(5, 4))
    with pytest.raises(DataError, match="holds splits, .*, which would be taken for classes"):
        load(tmp_path)
    save(tmp_path / "other" / "a.png", noise(5, 4))
    assert load(tmp_path).label_names == tuple(sorted((*names, "other")))


def test_missing_split(folder):
    with pytest.raises(DataError, match=r"has no splits.*train and test"):
        load_folder(folder, split="test")
    save(folder / "x" / "train" / "a.png", noise(5, 4))
    with pytest.raises(DataError, match=r"no images for split 'test'"):
        load_folder(folder / "x", split="test")


def test_limit_reads_only_what_is_drawn(folder):
    (folder / "a.png").write_bytes(b"")
    seed = next(s for s in range(99) if 0 not in np.random.default_rng(s).choice(3, 2, False))
    dataset = load_folder(folder, limit=2, seed=seed)
    np.testing.assert_array_equal(dataset.indices, [1, 2])


def test_resized_and_cropped_about_the_centre(tmp_path):
    pixels = np.zeros((8, 16), np.uint8)
    pixels[:, 4:12] = 255
    save(tmp_path / "a.png", pixels)
    save(tmp_path / "b.png", pixels.T.copy())
    dataset = load_folder(tmp_path, size=4)
    assert dataset.images.shape == (2, 4, 4, 1)
    assert dataset.images.mean() > 0.9
    assert load_folder(tmp_path, size=(3, 5)).images.shape == (2, 3, 5, 1)


def test_padded_pictures_are_whole_and_filled_up_with_the_colour_of_their_border(tmp_path):
    pixels = np.full((8, 16, 3), (200, 100, 50), np.uint8)
    pixels[2:6, 4:12] = 0
    pixels[0, :3] = 255  # less than half of the border
    save(tmp_path / "a.png", pixels)
    save(tmp_path / "b.png", np.swapaxes(pixels, 0, 1).copy())
    settings = {"size": PaddedSize(16, 16)}
    image, other = load_folder(tmp_path, **settings).images
    np.testing.assert_allclose(image[4:12], pixels / 255, atol=1e-6)
    ground = np.broadcast_to(np.float32([200, 100, 50]) / 255, (8, 16, 3))
    np.testing.assert_allclose(np.concatenate([image[:4], image[12:]]), ground, atol=1e-6)
    np.testing.assert_array_equal(other, np.swapaxes(image, 0, 1))
    np.testing.assert_array_equal(open_stream(tmp_path, **settings).images[:], [image, other])
    assert load_folder(tmp_path, size=PaddedSize(4, 6)).images.shape == (2, 4, 6, 3)
    (tmp_path / "narrow").mkdir()
    strip = np.tile(np.linspace(0, 255, 400).astype(np.uint8), (2, 1))
    Image.fromarray(strip).save(tmp_path / "narrow" / "strip.png")
    assert load_folder(tmp_path / "narrow", size=PaddedSize(16, 16)).images.std() > 0.01
    with pytest.raises(DataError, match="at least 1 pixel"):
        load_folder(tmp_path, size=PaddedSize(0, 4))


def test_large_jpeg_is_resized_as_a_png_is(tmp_path):
    ramp = np.linspace(0, 255, 640).astype(np.uint8)
    pixels = np.broadcast_to(ramp[None, :, None], (480, 640, 3)).copy()
    save(tmp_path / "a.jpg", pixels, quality=95)
    save(tmp_path / "b.png", pixels)
    images = load_folder(tmp_path, size=16).images
    np.testing.assert_allclose(images[0], images[1], atol=0.02)


def test_exif_rotation(tmp_path):
    for orientation, name in ((1, "a"), (6, "b"), (3, "c")):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for suffix in ("png", "jpg"):
            pixels = np.zeros((16, 32), np.uint8)
            pixels[:8, :8] = 255
            save(tmp_path / suffix / f"{name}.{suffix}", pixels, exif=exif)
    for suffix in ("png", "jpg"):
        dataset = load_folder(tmp_path / suffix, size=(16, 16), limit=None)
        assert len(dataset) == 3
        turned = load_folder(tmp_path / suffix, size=(32, 16)).images[1, ..., 0]
        # Orientation 6: the camera's top left corner belongs at the top right.
        assert turned[:8, 8:].min() > 0.9
        assert turned[8:].max() < 0.1
        with pytest.raises(DataError, match=r"one size.*32x16.*16x32"):
            load_folder(tmp_path / suffix)


def test_sixteen_bits(tmp_path):
    values = np.array([[0, 256, 32768, 65535]], np.uint16)
    save(tmp_path / "a.png", values)
    images = load_folder(tmp_path).images
    np.testing.assert_allclose(images[0, 0, :, 0], values[0] / 65535, rtol=1e-6)
    assert load_folder(tmp_path, size=2).images.shape == (1, 2, 2, 1)
    # Pillow would read the upper 8 bits: nearly all of a dim picture.
    (tmp_path / "a.png").write_bytes(png_of_16_bits(np.stack([values, values], axis=-1)))
    with pytest.raises(DataError, match="of 16-bit grey and transparency"):
        load_folder(tmp_path)


def png_of_16_bits(grey_and_alpha):
    height, width, _ = grey_and_alpha.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in grey_and_alpha)
    header = struct.pack(">IIBBBBB", width, height, 16, 4, 0, 0, 0)

    def chunk(kind, content):
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def test_transparency_becomes_black(tmp_path):
    pixels = np.full((1, 3, 4), 255, np.uint8)
    pixels[0, :, 3] = 255, 0, 51
    save(tmp_path / "rgba" / "a.png", pixels)
    images = load_folder(tmp_path / "rgba", channels=3).images
    assert images.shape[-1] == 3
    np.testing.assert_allclose(images[0, 0, :, 0], [1.0, 0.0, 0.2], atol=0.003)
    save(tmp_path / "la" / "a.png", pixels[..., 2:].copy())
    images = load_folder(tmp_path / "la").images
    assert images.shape[-1] == 1
    np.testing.assert_allclose(images[0, 0, :, 0], [1.0, 0.0, 0.2], atol=0.003)


def test_palettes(tmp_path):
    colour = Image.fromarray(np.array([[[255, 0, 0], [0, 255, 0]]], np.uint8)).quantize()
    (tmp_path / "colour").mkdir()
    colour.save(tmp_path / "colour" / "a.png")
    np.testing.assert_allclose(load_folder(tmp_path / "colour").images[0, 0], np.eye(3)[:2])
    grey = Image.fromarray(np.array([[0, 1]], np.uint8), mode=None).convert("P")
    grey.putpalette([0, 0, 0, 51, 51, 51])
    (tmp_path / "grey").mkdir()
    grey.save(tmp_path / "grey" / "a.png", transparency=0)
    np.testing.assert_allclose(load_folder(tmp_path / "grey").images.ravel(), [0, 0.2], atol=1e-6)


def test_one_bit_and_cmyk(tmp_path):
    (tmp_path / "bit").mkdir()
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "bit" / "a.png")
    np.testing.assert_array_equal(load_folder(tmp_path / "bit").images.ravel(), [1, 0])
    (tmp_path / "cmyk").mkdir()
    Image.new("CMYK", (8, 8), (0, 255, 255, 0)).save(tmp_path / "cmyk" / "a.jpg", quality=95)
    image = load_folder(tmp_path / "cmyk").images[0]
    assert image[..., 0].min() > 0.9
    assert image[..., 1:].max() < 0.1


def truncated_png(path):
    Image.fromarray(noise(50, 40)).save(path)
    path.write_bytes(path.read_bytes()[:500])


def truncated_jpeg(path):
    Image.fromarray(noise(50, 40)).save(path, format="JPEG")
    path.write_bytes(path.read_bytes()[:700])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("no image")


def other_format(path):
    Image.fromarray(noise(5, 4)).save(path, format="TGA")


def broken_link(path):
    path.symlink_to(path.parent / "nowhere.png")


def broken_header(path):
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))


def lfs_pointer(path):
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:09ff\nsize 12087\n")


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (truncated_png, "truncated"),
        (truncated_jpeg, "truncated"),
        (empty, "empty"),
        (text, "not a PNG, JPEG"),
        (other_format, "not a PNG, JPEG"),
        (lfs_pointer, "git lfs pull"),
        (broken_link, "No such file"),
        (broken_header, ""),
    ],
)
def test_bad_files_are_named_and_counted_and_skipped_when_asked(folder, write, reason):
    write(folder / "bad.png")
    dataset = check_refused_or_skipped(load_folder, folder, "bad.png", noun="images", reason=reason)
    np.testing.assert_array_equal(dataset.indices, [0, 1, 3])


def test_labels_stay_with_their_pictures_when_some_are_skipped(tmp_path):
    for name in ("cat/a.png", "dog/c.png"):
        save(tmp_path / name, noise(5, 4))
    (tmp_path / "cat" / "b.png").write_bytes(b"")
    dataset = load_folder(tmp_path, skip_bad=True)
    np.testing.assert_array_equal(dataset.labels, [0, 1])


def test_only_the_first_few_bad_files_are_named(folder):
    for i in range(9):
        (folder / f"x{i}.jpg").write_bytes(b"")
    with pytest.raises(DataError, match=r"9 of 12 images .*'x4.jpg' \(empty\) and 4 more;"):
        load_folder(folder)


def test_nothing_left(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"1 of 1 images .*'a.png' \(empty\); none is left"):
        load_folder(tmp_path, skip_bad=True)


def test_pictures_of_other_formats_are_not_passed_over(folder):
    (folder / "notes.txt").write_text("passed over")
    (folder / ".hidden.png").write_text("passed over")
    assert len(load_folder(folder)) == 3
    for suffix in ("jfif", "jpe"):
        Image.fromarray(noise(5, 4)).save(folder / f"e.{suffix}", "JPEG")
    assert len(load_folder(folder)) == 5
    Image.fromarray(noise(5, 4)).save(folder / "d.jp2")
    with pytest.raises(DataError, match=r"'d.jp2' \(not a PNG, JPEG"):
        load_folder(folder)


def test_mixed_sizes(folder):
    save(folder / "bb.png", noise(6, 4))
    with pytest.raises(DataError, match=r"'a.png' is 4x5 and 'bb.png' is 4x6 .*--size") as raised:
        load_folder(folder)
    assert "\n" not in str(raised.value)
    assert load_folder(folder, size=4).images.shape == (4, 4, 4, 1)


def test_mixed_sizes_leave_the_warnings_filter_alone(folder):
    import warnings

    save(folder / "bb.png", noise(6, 4))
    before = list(warnings.filters)
    with pytest.raises(DataError):
        load_folder(folder)
    assert list(warnings.filters) == before


def png_header(width, height):
    """A PNG that claims a size, with hardly any data."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [10_000, 60_000])
@pytest.mark.parametrize("size", [None, 4])
def test_decompression_bombs(folder, side, size):
    # 10,000 is between Pillow's limit, where it only warns, and twice that, where it refuses.
    (folder / "bomb.png").write_bytes(png_header(side, side))
    with pytest.raises(DataError, match=r"'bomb.png' \(a decompression bomb"):
        load_folder(folder, size=size)
    assert len(load_folder(folder, skip_bad=True)) == 3


def test_folders_that_would_not_fit_into_memory(folder, monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda _: 10)
    with pytest.raises(DataError, match=r"3 images .* would take .* --size"):
        load_folder(folder)


@pytest.mark.parametrize("files", [(), ("a.txt", "b.csv", "c")])
def test_folder_without_images(tmp_path, files):
    for name in files:
        (tmp_path / name).write_text("")
    holds = "only other files \\(.csv, .txt, no suffix\\)" if files else "no files"
    with pytest.raises(DataError, match=f"holds no images: {holds}"):
        load(tmp_path)


def test_no_such_folder(folder):
    with pytest.raises(DataError, match=r"does not exist"):
        load_folder(folder / "none")
    with pytest.raises(DataError, match=r"is a file; give a folder"):
        load_folder(folder / "a.png")


def test_loop_of_links(folder):
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "more").mkdir()
    (folder / "more" / "loop").symlink_to(folder, target_is_directory=True)
    assert len(load_folder(folder)) == 3


def test_names_cannot_break_the_line(folder):
    (folder / "a\nb'<script>.png").write_bytes(b"")
    with pytest.raises(DataError) as raised:
        load_folder(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be at least 1 pixel"),
        ({"size": (4, -1)}, "size must be at least 1 pixel each way: got 4x-1"),
        ({"channels": 2}, r"channels must be 1 \(grey\) or 3 \(RGB\): got 2"),
        ({"limit": 0}, "limit must be at least 1"),
        ({"split": "dev"}, "split must be one of all, train, test: got 'dev'"),
    ],
)
def test_settings_out_of_range(folder, options, message):
    with pytest.raises(DataError, match=message):
        load_folder(folder, **options)
    with pytest.raises(DataError, match=message):
        load(folder, **options)


def test_little_is_decoded_ahead() -> None:
    decoded = []

    def decode(number: int) -> np.ndarray:
        decoded.append(number)
        return np.full(1, number)

    results = decode_each(decode, range(2000))
    first = [int(next(results)[0]) for _ in range(3)]
    time.sleep(0.1)
    assert first == [0, 1, 2]
    assert len(decoded) < 200
    assert [int(result[0]) for result in results] == [*range(3, 2000)]
