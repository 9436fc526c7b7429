"""A folder of recordings, flat or with one subfolder for each class."""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from diffclust.data.archives import check_split
from diffclust.data.audio.recording import FORMATS, OTHER_SUFFIXES, read_recording
from diffclust.data.audio.spectrogram import spectrogram
from diffclust.data.dataset import DataError, Dataset, draw
from diffclust.data.folder import folder_lot
from diffclust.data.gather import dataset_of_files, decode_each, gather
from diffclust.data.listing import choose_split, list_files
from diffclust.data.resize import check_channels, parse_size

SIZE, RATE, SECONDS = (64, 24), 48_000, 1.0
"""Bands and frames, samples a second, and length of a recording, as in the DI K-means paper."""

_MOST_RATE, _MOST_SECONDS = 192_000, 60.0


def load_recordings(
    path: str | Path,
    *,
    split: str = "all",
    size: int | tuple[int, int] | None = None,
    rate: int | None = None,
    seconds: float | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
    limit: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Dataset:
    """Load the WAV, FLAC and OGG files of a folder and its subfolders as images.

    Each recording is mixed down to one channel, resampled, cut or filled up with silence to one
    length about its middle, and made an image by `spectrogram`. Splits and labels are as in
    `load_folder`.

    Args:
        path: The folder.
        split: `"train"` or `"test"` for that subfolder, `"all"` for everything.
        size: Bands and frames, which are height and width of the images; None for 64 and 24.
        rate: Samples a second that recordings are resampled to, which settles the highest pitch;
            None for 48,000.
        seconds: Length of what is read of each; None for 1.
        channels: 3 to repeat the image as RGB; 1 or None for grey.
        skip_bad: Leave out files that cannot be read, and name them in `Dataset.skipped`.
        limit: At most so many recordings, drawn at random before any is read, in their old order.
        seed: Seed of the draw.
        progress: Called as `progress(done, total)` after each file.

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
    bands, frames = parse_size(size) or SIZE
    check_split(split)
    check_channels(channels)
    rate, hop = _steps(
        RATE if rate is None else rate, SECONDS if seconds is None else seconds, frames
    )
    wanted = (*FORMATS, *OTHER_SUFFIXES)
    found = list_files(root, wanted, "recordings", ", ".join(FORMATS))
    _require_soundfile(root)
    found, classes = choose_split(root, found, split, "recordings")
    chosen = draw(len(found), limit, seed)
    indices = np.arange(len(found)) if chosen is None else chosen
    files = [found[i] for i in indices]

    def decode(file: Path) -> np.ndarray:
        wave = read_recording(root / file, rate, hop * frames)
        return spectrogram(wave, rate, bands=bands, frames=frames)[..., None]

    with contextlib.closing(decode_each(decode, files)) as results:
        gathered = gather(
            results,
            folder_lot(root, files, "recordings"),
            channels=channels,
            skip_bad=skip_bad,
            progress=progress,
        )
    return dataset_of_files(gathered, root, files, indices, classes, "recordings")


def _steps(rate: int, seconds: float, frames: int) -> tuple[int, int]:
    """The rate, and samples between frames."""
    if not 1000 <= rate <= _MOST_RATE:
        raise DataError(
            f"rate must be between 1000 and {_MOST_RATE} samples a second: got {rate}; "
            f"48000 is the paper's, 16000 does for speech."
        )
    if not 0.0 < seconds <= _MOST_SECONDS:
        raise DataError(
            f"seconds must be above 0 and at most {_MOST_SECONDS:g}: got {seconds:g}; give the "
            f"length of a typical recording."
        )
    hop = math.ceil(rate * seconds / frames)
    if 2 * hop < 8:
        raise DataError(
            f"size has too many frames, {frames}, for {seconds:g} s at {rate} samples a second; "
            f"give fewer, or more seconds."
        )
    return int(rate), hop


def _require_soundfile(root: Path) -> None:
    try:
        import soundfile  # noqa: F401
    # Without its library, which wheels bring along, it raises OSError.
    except (ImportError, OSError) as error:
        raise DataError(
            f"folder {str(root)!r} holds recordings, which need soundfile ({error}); "
            f"pip install 'diffclust[audio]'."
        ) from error
