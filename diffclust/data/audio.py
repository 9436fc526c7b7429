"""Recordings as images: time runs to the right, pitch upwards, and brightness is loudness.

`load_recordings` reads a folder of WAV, FLAC and OGG files; `spectrogram` makes one image.
You need it for spoken digits and the like, where speakers differ by small bends of such images.
"""

import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from diffclust._validation import reason_of
from diffclust.data.arrays import LoadOptions, LoadSettings, PaddedSize
from diffclust.data.dataset import DataError, FileError, Recordings
from diffclust.data.folder import choose_files, decode_each, gather, list_files

FORMATS = (".wav", ".flac", ".ogg")
"""What is read, by suffix; which of them a file is is told from its bytes."""

OTHER_SUFFIXES = (".aac", ".aif", ".aiff", ".au", ".m4a", ".mp3", ".oga", ".opus", ".wma")
"""Recordings that are not read: leaving them out unsaid would lose data."""

_SIGNATURES = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS")
_MIN_FILE_RATE, _MAX_FILE_RATE = 1_000, 768_000
_SILENCE_LEVEL = 2.0**-14
"""Two steps of 16 bits: below, there is nothing but rounding to hear."""

_SIZE_MISMATCH = re.compile(r"^data : (\d+) \(should be (\d+)\)", re.MULTILINE)
_UNKNOWN_SIZE = 2**31 - 2**16
"""Programs that write to a pipe give about so many bytes, or more, for lack of a better number."""

SIZE, RATE, SECONDS = (64, 24), 48_000, 1.0
"""Bands and frames, samples a second, and length of a recording, as in the DI K-means paper."""

_MAX_RATE, _MAX_SECONDS = 192_000, 60.0


def load_recordings(
    path: str | Path,
    *,
    rate: int | None = None,
    seconds: float | None = None,
    **settings: Unpack[LoadSettings],
) -> Recordings:
    """Load the WAV, FLAC and OGG files of a folder and its subfolders as images.

    Each recording is mixed down to one channel, resampled, cut or filled up with silence to one
    length about its middle, and made an image by `spectrogram`. Splits and labels are as in
    `load_folder`.

    Args:
        path: The folder.
        rate: Samples a second that recordings are resampled to, which settles the highest pitch;
            None for the lowest rate among the files, at most 48,000, so that no image is black
            above what its file can hold.
        seconds: Length of what is read of each; None for 1, or less where nine tenths of the
            files are shorter.
        **settings: As for `load`; where `size` is None, there are 64 bands and 24 frames, and the
            images are grey unless `channels` is 3.

    Returns:
        The images in the order of the files' paths, with labels where there are any.

    Raises:
        DataError: If soundfile is not installed, there is no such folder, it holds no recordings,
            some cannot be read (and `skip_bad` is False), or a setting is out of range.

    References:
        Cosentino et al., "Interpretable Image Clustering via Diffeomorphism-Aware K-Means", 2020,
        Sec. 11 (AudioMNIST), Fig. 9 (64 × 24).
    """
    root = Path(path)
    options = LoadOptions(**settings)
    if isinstance(options.target, PaddedSize):
        raise DataError("recordings have no borders to fill up; leave out --pad (PaddedSize).")
    bands, frames = options.target or SIZE
    paths = list_files(root, (*FORMATS, *OTHER_SUFFIXES), "recordings", ", ".join(FORMATS))
    _require_soundfile(root)
    files = choose_files(root, paths, options, noun="recordings")
    if rate is None or seconds is None:
        defaults = _default_rate_and_seconds(files.listing.items, frames)
        rate = defaults[0] if rate is None else rate
        seconds = defaults[1] if seconds is None else seconds
    if not 1000 <= rate <= _MAX_RATE:
        raise DataError(
            f"rate must be between 1000 and {_MAX_RATE} samples a second: got {rate}; "
            f"48000 is the paper's, 16000 does for speech."
        )
    if not 0.0 < seconds <= _MAX_SECONDS:
        raise DataError(
            f"seconds must be above 0 and at most {_MAX_SECONDS:g}: got {seconds:g}; give the "
            f"length of a typical recording."
        )
    rate, hop = int(rate), math.ceil(rate * seconds / frames)
    if 2 * hop < 8:
        raise DataError(
            f"size has too many frames, {frames}, for {seconds:g} s at {rate} Hz; give fewer."
        )

    def decode(file: Path) -> np.ndarray:
        wave = read_recording(file, rate, hop * frames)
        return spectrogram(wave, rate, bands=bands, frames=frames)[..., None]

    dataset = files.dataset(*gather(decode, files.listing, options))
    return Recordings(**vars(dataset), rate=rate, seconds=seconds)


def _default_rate_and_seconds(files: Sequence[Path], frames: int) -> tuple[int, float]:
    """Returns the lowest rate of all files, and a length that few exceed; both from headers."""
    headers = [h for h in decode_each(_read_header, files) if not isinstance(h, FileError)]
    if not headers:
        return RATE, SECONDS
    rates, seconds = np.array(headers).T
    rate = int(min(RATE, rates.min()))
    # Every frame needs some samples.
    shortest = 8 * frames / rate
    return rate, round(float(np.clip(np.quantile(seconds, 0.9), shortest, SECONDS)), 3)


def _read_header(path: Path) -> np.ndarray:
    """Rate and length in seconds of a recording; no more of the file is read."""
    import soundfile

    try:
        about = soundfile.info(path)
    # What is wrong with a file is told where it is read.
    except Exception as error:
        raise FileError(reason_of(error)) from error
    if about.frames < 1 or not _MIN_FILE_RATE <= about.samplerate <= _MAX_FILE_RATE:
        raise FileError("no recording")
    return np.array([about.samplerate, about.frames / about.samplerate])


def _require_soundfile(root: Path) -> None:
    try:
        import soundfile  # noqa: F401
    # Without its library, which wheels bring along, it raises OSError.
    except (ImportError, OSError) as error:
        raise DataError(
            f"recordings in {str(root)!r} need soundfile ({error}); pip install soundfile."
        ) from error


def spectrogram(
    wave: np.ndarray, rate: int, *, bands: int = 64, frames: int = 24, decibels: float = 60.0
) -> np.ndarray:
    """Loudness over pitch and time.

    The power of Hann windows, two steps long and a step apart, is averaged over bands whose
    centres are evenly spaced in mel between 0 Hz and half the rate. The logarithm of that is
    scaled so that the loudest place is 1, and what is quieter by `decibels` or more is 0.

    Args:
        wave: The sound, mono, `[n]`; not all of it zero.
        rate: Samples a second.
        bands: Height of the image.
        frames: Width of the image; each frame stands for n / frames samples, rounded up.
        decibels: The range of loudness that is kept.

    Returns:
        float32 `[bands, frames]` in [0, 1], high pitches on top.

    References:
        Cosentino et al., "Interpretable Image Clustering via Diffeomorphism-Aware K-Means", 2020,
        Sec. 11: recordings of 1 s at 48 kHz as time-frequency images of 64 × 24 pixels. How they
        made them is not said; mel bands and decibels are our choice.
    """
    from scipy import signal

    hop = math.ceil(len(wave) / frames)
    weights, length = _mel_bands(rate, bands, 2 * hop)
    window = signal.windows.hann(2 * hop, sym=False)
    transform = signal.ShortTimeFFT(window, hop, rate, mfft=length)
    # Frames stand in the middle of their steps: the first is centred half a step in.
    power = transform.spectrogram(
        np.asarray(wave, np.float64), p0=0, p1=frames, k_offset=hop // 2, padding="zeros"
    )
    loudness = weights @ power
    top = loudness.max()
    # Below the range everything is black, which also keeps the logarithm of zero away.
    floor = top * 10.0 ** (-decibels / 10.0)
    levels = 10.0 * np.log10(np.maximum(loudness, floor) / top)
    return np.clip(1.0 + levels[::-1] / decibels, 0.0, 1.0).astype(np.float32)


def height_of_pitch(hertz: float, rate: int, bands: int) -> float:
    """Computes where a pitch lies in an image of `spectrogram`.

    Args:
        hertz: The pitch.
        rate: Samples a second.
        bands: Height of the image.

    Returns:
        0 at the lower edge of the image, 1 at the upper one.
    """
    # Centres of bands are evenly spaced between those of two more, at 0 Hz and at half the rate.
    return (_mel(hertz) / _mel(rate / 2) * (bands + 1) - 0.5) / bands


def _mel(hertz: float) -> float:
    return 2595.0 * math.log10(1.0 + hertz / 700.0)


@functools.lru_cache(maxsize=8)
def _mel_bands(rate: int, bands: int, window: int) -> tuple[np.ndarray, int]:
    """Weights `[bands, frequencies]`, each band's summing to 1, and the transform's length.

    Windows are padded with zeros where that is what gives the narrowest band a frequency.
    """
    from scipy import fft

    edges = 700.0 * (10.0 ** (np.linspace(0.0, _mel(rate / 2), bands + 2) / 2595.0) - 1.0)
    length = fft.next_fast_len(max(window, math.ceil(rate / (edges[1] - edges[0]))), real=True)
    frequencies = fft.rfftfreq(length, 1.0 / rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    weights = np.maximum(0.0, np.minimum(rising, falling))
    return weights / weights.sum(axis=1, keepdims=True), length


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
    from scipy import signal

    try:
        with path.open("rb") as file:
            signature = file.read(4)
            file.seek(0)
            if signature not in _SIGNATURES:
                raise FileError("empty" if not signature else "not a WAV, FLAC or OGG recording")
            wave, file_rate = _decode_middle(file, samples / rate)
    except FileError:
        raise
    # What is damaged raises whatever the decoder happened to be doing.
    except Exception as error:
        reason = re.sub(r"^Error opening .*?: |^Error : ", "", reason_of(error))
        raise FileError(reason or type(error).__name__) from error
    if not np.isfinite(wave).all():
        raise FileError("with NaN or infinite samples")
    if np.abs(wave).max() <= _SILENCE_LEVEL:
        raise FileError(f"silent in its middle {samples / rate:.3g} s, channels averaged")
    common = math.gcd(file_rate, rate)
    wave = signal.resample_poly(wave, rate // common, file_rate // common)
    first = (len(wave) - samples) // 2
    if first >= 0:
        return wave[first : first + samples]
    return np.pad(wave, (-first, samples - len(wave) + first))


def _decode_middle(file: Any, seconds: float) -> tuple[np.ndarray, int]:
    """Reads the middle of an open file, mono, and its rate."""
    import soundfile

    with soundfile.SoundFile(file) as sound:
        rate, total = sound.samplerate, sound.frames
        if not _MIN_FILE_RATE <= rate <= _MAX_FILE_RATE:
            raise FileError(f"sampled at {rate:,} Hz, not between 1 and 768 kHz")
        short = _SIZE_MISMATCH.search(sound.extra_info)
        if short is not None and int(short[2]) < int(short[1]) < _UNKNOWN_SIZE:
            raise FileError("truncated" if total else "a header without sound")
        if total < 1:
            raise FileError("a header without sound")
        wanted = min(total, math.ceil(seconds * rate))
        sound.seek((total - wanted) // 2)
        block = sound.read(wanted, dtype="float64", always_2d=True)
        if len(block) < wanted:
            raise FileError("truncated")
        return block.mean(axis=1), rate
