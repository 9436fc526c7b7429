"""Recordings as images: time runs to the right, pitch upwards, and brightness is loudness.

`load_recordings` reads a folder of WAV, FLAC and OGG files; `spectrogram` makes one image.
You need it for spoken digits and the like, where speakers differ by small bends of such images.
"""

from diffclust.data.audio.folder import load_recordings
from diffclust.data.audio.spectrogram import spectrogram

__all__ = ["load_recordings", "spectrogram"]
