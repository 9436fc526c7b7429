"""A thousand damaged files: each is read, or refused in one line, and soon.

Every kind of file is broken in four ways: cut off, overwritten in places, its beginning followed by
noise, and noise alone under its name.
"""

import contextlib
import gzip
import io
import signal
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from PIL import Image

from diffclust.data import DataError, load, load_landmarks
from diffclust.data.stream import open_stream

SECONDS = 20.0
"""More than any of them should take on a busy machine; one that hangs takes longer."""

EACH = 56

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 9, 7), dtype=np.uint8)
SHAPES = np.random.default_rng(0).normal(size=(3, 4, 2))


def picture(name: str, pixels: np.ndarray = PIXELS[0]) -> bytes:
    Image.fromarray(pixels).save(content := io.BytesIO(), format=name)
    return content.getvalue()


def archive(write: Callable[..., None] = np.savez_compressed, **arrays: np.ndarray) -> bytes:
    write(content := io.BytesIO(), **arrays)
    return content.getvalue()


def npy() -> bytes:
    np.save(content := io.BytesIO(), PIXELS)
    return content.getvalue()


def idx() -> bytes:
    return bytes([0, 0, 8, 3]) + struct.pack(">3I", *PIXELS.shape) + PIXELS.tobytes()


def sound(name: str) -> bytes:
    soundfile = pytest.importorskip("soundfile", reason="no soundfile is installed")
    wave = np.sin(np.arange(900) * 0.3)
    soundfile.write(content := io.BytesIO(), wave, 8000, format=name)
    return content.getvalue()


def csv() -> bytes:
    rows = [f"s{i},{j},{x},{y}" for i, shape in enumerate(SHAPES) for j, (x, y) in enumerate(shape)]
    return "\n".join(["shape,landmark,x,y", *rows]).encode()


def tps() -> bytes:
    blocks = ["LM=4\n" + "\n".join(f"{x} {y}" for x, y in s) + "\nID=a\nSCALE=2\n" for s in SHAPES]
    return "".join(blocks).encode()


def in_a_folder(path: Path) -> object:
    return load(path.parent)


def streamed(path: Path) -> object:
    return open_stream(path).images[:]


KINDS: dict[str, tuple[Callable[[], bytes], Callable[[Path], object]]] = {
    "a.png": (lambda: picture("PNG"), in_a_folder),
    "deep.png": (lambda: picture("PNG", PIXELS[0].astype(np.uint16) * 257), in_a_folder),
    "a.jpg": (lambda: picture("JPEG"), in_a_folder),
    "a.tiff": (lambda: picture("TIFF"), in_a_folder),
    "a.webp": (lambda: picture("WEBP"), in_a_folder),
    "a.gif": (lambda: picture("GIF"), in_a_folder),
    "a.pgm": (lambda: picture("PPM"), in_a_folder),
    "a.npy": (npy, load),
    "a.npz": (lambda: archive(x=PIXELS, y=np.arange(2)), load),
    "a-images-idx3-ubyte": (idx, load),
    "a-images-idx3-ubyte.gz": (lambda: gzip.compress(idx(), mtime=0), load),
    "a.wav": (lambda: sound("WAV"), in_a_folder),
    "a.flac": (lambda: sound("FLAC"), in_a_folder),
    "a.ogg": (lambda: sound("OGG"), in_a_folder),
    "a.csv": (csv, load_landmarks),
    "a.tps": (tps, load_landmarks),
    "raw.npy": (npy, streamed),
    "raw.npz": (lambda: archive(np.savez, x=PIXELS), streamed),
    "shapes.npz": (lambda: archive(landmarks=SHAPES), load_landmarks),
}


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    way = draw(st.sampled_from(["cut", "overwritten", "beginning", "noise"]))
    noise = st.binary(max_size=300)
    if way == "noise":
        return draw(noise)
    place = draw(st.integers(0, len(whole)))
    if way == "cut":
        return whole[:place]
    if way == "beginning":
        return whole[: min(place, draw(st.integers(0, 64)))] + draw(noise)
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(whole) - 1))
        part = draw(st.binary(min_size=1, max_size=8))
        content[start : start + len(part)] = part
    return bytes(content)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Fails what hangs; nothing on systems without the signal."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"not done in {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_read(path: Path, read: Callable[[Path], object]) -> bool:
    """Whether a file is read; it may be refused in one line, and in no other way."""
    refusal = ""
    try:
        with time_limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            read(path)
    except DataError as error:
        refusal = str(error)
    assert "\n" not in refusal
    return not refusal


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_are_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    make, read = KINDS[name]
    whole = make()
    path = tmp_path / name
    path.write_bytes(whole)
    assert is_read(path, read)
    result = []

    @hypothesis.settings(max_examples=EACH, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(damaged(whole))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        result.append(is_read(path, read))
        # Nothing was written, and nothing was changed.
        assert [file.name for file in tmp_path.iterdir()] == [name]
        assert path.read_bytes() == content

    check()
    assert len(result) >= EACH
    assert not all(result), "some of them must be damaged"


def test_a_thousand_in_all() -> None:
    assert EACH * len(KINDS) >= 1000


def test_what_hangs_would_be_found() -> None:
    def hang(_: Path) -> None:
        signal.pause()

    if not hasattr(signal, "setitimer"):
        return
    with pytest.raises(TimeoutError), time_limit(0.05):
        hang(Path())
