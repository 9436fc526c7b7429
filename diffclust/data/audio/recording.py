"""Decode one recording."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from diffclust.data.gather import FileError

FORMATS = (".wav", ".flac", ".ogg")
"""What is read, by suffix; which of them a file is is told from its bytes."""

OTHER_SUFFIXES = (".aac", ".aif", ".aiff", ".m4a", ".mp3", ".opus", ".wma")
"""Recordings that are not read: leaving them out unsaid would lose data."""

_BEGINNINGS = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS")
_LOWEST_RATE, _HIGHEST_RATE = 1_000, 768_000
_SILENCE = 2.0**-14
"""Two steps of 16 bits: below, there is nothing but rounding to hear."""

_SHORT = re.compile(r"^data : (\d+) \(should be (\d+)\)", re.MULTILINE)
_UNKNOWN = 2**31 - 2**16
"""Programs that write to a pipe give about so many bytes, or more, for lack of a better number."""


def read_recording(path: Path, rate: int, samples: int) -> np.ndarray:
    """Decode the middle of a WAV, FLAC or OGG file.

    Channels are averaged, and the sound is resampled. Where it is shorter than what is wanted,
    silence is added on both sides.

    Args:
        path: The file.
        rate: Samples a second that are wanted.
        samples: How many are wanted.

    Returns:
        float64 `[samples]`.

    Raises:
        FileError: If the file cannot be opened, is damaged, is of another format, holds no sound,
            or is silent.
    """
    try:
        with path.open("rb") as file:
            beginning = file.read(4)
            file.seek(0)
            if beginning not in _BEGINNINGS:
                raise FileError("empty" if not beginning else "not a WAV, FLAC or OGG recording")
            wave, own_rate = _decode_middle(file, samples / rate)
    except FileError:
        raise
    # What is damaged raises whatever the decoder happened to be doing.
    except Exception as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        reason = re.sub(r"^Error opening .*?: |^Error : ", "", reason)
        raise FileError(reason or type(error).__name__) from error
    if not np.isfinite(wave).all():
        raise FileError("with NaN or infinite samples")
    if np.abs(wave).max() <= _SILENCE:
        raise FileError("silent")
    return _centre(_resample(wave, own_rate, rate), samples)


def _decode_middle(file: Any, seconds: float) -> tuple[np.ndarray, int]:
    """The middle of an open file, mono, and its rate; no more is read than that."""
    import soundfile

    with soundfile.SoundFile(file) as sound:
        rate, total = sound.samplerate, sound.frames
        if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
            raise FileError(f"sampled at {rate:,} Hz, not between 1 and 768 kHz")
        short = _SHORT.search(sound.extra_info)
        if short is not None and int(short[2]) < int(short[1]) < _UNKNOWN:
            raise FileError("truncated" if total else "a header without sound")
        if total < 1:
            raise FileError("a header without sound")
        wanted = min(total, math.ceil(seconds * rate))
        sound.seek((total - wanted) // 2)
        block = sound.read(wanted, dtype="float64", always_2d=True)
        if len(block) < wanted:
            raise FileError("truncated")
        return block.mean(axis=1), rate


def _resample(wave: np.ndarray, own_rate: int, rate: int) -> np.ndarray:
    from scipy import signal

    common = math.gcd(own_rate, rate)
    return signal.resample_poly(wave, rate // common, own_rate // common)


def _centre(wave: np.ndarray, samples: int) -> np.ndarray:
    """Cropped or filled up about the middle."""
    first = (len(wave) - samples) // 2
    if first >= 0:
        return wave[first : first + samples]
    return np.pad(wave, (-first, samples - len(wave) + first))
