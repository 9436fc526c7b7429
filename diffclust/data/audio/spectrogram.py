"""Make an image of a sound."""

import functools
import math

import numpy as np


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


@functools.lru_cache(maxsize=8)
def _mel_bands(rate: int, bands: int, window: int) -> tuple[np.ndarray, int]:
    """Weights `[bands, frequencies]`, each band's summing to 1, and the transform's length.

    Windows are padded with zeros where that is what gives the narrowest band a frequency.
    """
    from scipy import fft

    top = 2595.0 * math.log10(1.0 + rate / 2 / 700.0)
    edges = 700.0 * (10.0 ** (np.linspace(0.0, top, bands + 2) / 2595.0) - 1.0)
    length = fft.next_fast_len(max(window, math.ceil(rate / (edges[1] - edges[0]))), real=True)
    frequencies = fft.rfftfreq(length, 1.0 / rate)
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    weights = np.maximum(0.0, np.minimum(rising, falling))
    return weights / weights.sum(axis=1, keepdims=True), length
