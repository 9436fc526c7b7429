"""Recordings that can be played in a report."""

import io
import itertools
from collections.abc import Sequence
from pathlib import Path

from diffclust.data import Recordings
from diffclust.data.audio import read_recording
from diffclust.data.dataset import FileError
from diffclust.plotting.pictures import data_uri
from diffclust.report.selection import ClusterView

_MOST_CHARACTERS = 4_000_000
"""Of all recordings in a page."""

_RATE = 16_000
"""Samples a second at most, which do for speech."""


def players(dataset: Recordings, views: Sequence[ClusterView]) -> tuple[dict[int, str], str]:
    """Players of the recordings that are shown, as many as the page can hold.

    Args:
        dataset: The recordings.
        views: The samples that are shown of each cluster.

    Returns:
        HTML by position, and what the page says of them.
    """
    clusters = [[p for group in view.groups for p in group.positions.tolist()] for view in views]
    # The first of every cluster before the second of any.
    rows = itertools.chain.from_iterable(itertools.zip_longest(*clusters))
    shown = [position for position in dict.fromkeys(rows) if position is not None]
    made, size = {}, 0
    for position in shown:
        try:
            sound = data_uri(encoded(dataset, position), "audio/flac")
        except FileError:  # It has gone since it was read.
            continue
        player = f'<audio controls preload="none" src="{sound}"></audio>'
        size += len(player)
        if size > _MOST_CHARACTERS:
            break
        made[position] = player
    note = f" {len(made)} of these {len(shown)} recordings can be played"
    if len(made) < len(shown):
        note += f": a page holds {_MOST_CHARACTERS / 1e6:g} MB of sound"
    return made, f"{note}."


def encoded(dataset: Recordings, position: int) -> bytes:
    """A recording as it was read.

    Args:
        dataset: The recordings.
        position: Which one.

    Returns:
        A FLAC file of 16,000 samples a second at most.

    Raises:
        FileError: If it cannot be read any more.
    """
    import soundfile

    assert dataset.paths is not None
    rate, file = min(dataset.rate, _RATE), io.BytesIO()
    wave = read_recording(Path(dataset.paths[position]), rate, round(rate * dataset.seconds))
    soundfile.write(file, wave, rate, format="FLAC", subtype="PCM_16")
    return file.getvalue()
