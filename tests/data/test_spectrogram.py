"""Images of sounds whose time and pitch are known."""

import numpy as np
import pytest
import scipy.signal

from diffclust.data import spectrogram
from diffclust.data.audio import height_of_pitch

RATE = 48_000
SECOND = np.arange(RATE) / RATE


def mel(hertz: np.ndarray) -> np.ndarray:
    return 2595 * np.log10(1 + np.asarray(hertz) / 700)


def row_of(hertz: float, bands: int = 64, rate: int = RATE) -> int:
    """The row whose centre is nearest in mel, counted from the top."""
    centres = np.linspace(0, mel(rate / 2), bands + 2)[1:-1]
    return bands - 1 - int(np.abs(centres - mel(hertz)).argmin())


@pytest.mark.parametrize("hertz", [150, 440, 1234, 5000, 20_000])
def test_a_tone_is_a_line_at_its_pitch(hertz):
    image = spectrogram(np.sin(2 * np.pi * hertz * SECOND), RATE)
    assert image.shape == (64, 24)
    assert image.dtype == np.float32
    assert (image.argmax(axis=0) == row_of(hertz)).all()
    assert image.max() == 1.0
    far = np.abs(np.arange(64) - row_of(hertz)) > 6
    assert image[far, 1:-1].max() < 0.3


@pytest.mark.parametrize("frames", [7, 24, 100])
def test_a_click_is_a_line_at_its_time(frames):
    for place in (0.02, 0.3, 0.5, 0.97):
        wave = np.zeros(RATE)
        wave[int(place * RATE)] = 1.0
        image = spectrogram(wave, RATE, frames=frames)
        assert image.shape == (64, frames)
        # A click has all pitches alike, and lies in no more than two steps.
        assert abs(image.mean(axis=0).argmax() + 0.5 - place * frames) <= 0.51
        assert (image.max(axis=0) > 0).sum() <= 2
        lit = image[:, image.mean(axis=0).argmax()]
        assert lit.min() > 0.95


def test_halves_of_power_are_three_decibels():
    steady = np.sin(2 * np.pi * 1000 * SECOND)
    wave = steady * np.where(SECOND < 0.5, 1.0, np.sqrt(0.5))
    for decibels in (30.0, 60.0):
        line = spectrogram(wave, RATE, decibels=decibels)[row_of(1000)]
        assert line[4] - line[20] == pytest.approx(10 * np.log10(2) / decibels, abs=1e-3)


def test_loudness_does_not_matter():
    wave = np.random.default_rng(0).normal(size=RATE) * np.hanning(RATE)
    np.testing.assert_allclose(spectrogram(wave, RATE), spectrogram(1e-3 * wave, RATE), atol=1e-5)


def test_white_noise_is_level():
    """Bands are means over their pitches, not sums: wide ones are no louder."""
    wave = np.random.default_rng(0).normal(size=RATE)
    rows = spectrogram(wave, RATE).mean(axis=1)
    assert np.ptp(rows) < 0.1


def test_against_a_plain_fourier_transform():
    """One frame, by hand: window, power, triangles between edges evenly spaced in mel."""
    wave = np.random.default_rng(1).normal(size=RATE)
    hop, frame, bands = 2000, 10, 8
    first = frame * hop + hop // 2 - hop
    window = scipy.signal.get_window("hann", 2 * hop)
    power = np.abs(np.fft.rfft(wave[first : first + 2 * hop] * window)) ** 2
    frequencies = np.fft.rfftfreq(2 * hop, 1 / RATE)
    edges = 700 * (10 ** (np.linspace(0, mel(RATE / 2), bands + 2) / 2595) - 1)
    means = [
        np.average(power, weights=np.interp(frequencies, edges[i : i + 3], [0, 1, 0]))
        for i in range(bands)
    ]
    image = spectrogram(wave, RATE, bands=bands)
    got = image[::-1, frame] * 60
    np.testing.assert_allclose(np.diff(got), np.diff(10 * np.log10(means)), atol=1e-3)


@pytest.mark.parametrize(("rate", "bands", "frames"), [(8000, 128, 200), (1000, 64, 24)])
def test_narrow_bands_are_never_empty(rate, bands, frames):
    wave = np.random.default_rng(0).normal(size=rate)
    image = spectrogram(wave, rate, bands=bands, frames=frames)
    assert np.isfinite(image).all()
    assert (image.max(axis=1) > 0.3).all()


def test_pitches_of_bands_lie_in_the_middle_of_rows() -> None:
    for bands in (8, 64):
        # Centres of bands lie in the middle of rows, counted from below.
        centres = np.linspace(0, 2595 * np.log10(1 + 4000 / 700), bands + 2)[1:-1]
        heights = [height_of_pitch(700 * (10 ** (c / 2595) - 1), 8000, bands) for c in centres]
        np.testing.assert_allclose(heights, (np.arange(bands) + 0.5) / bands, rtol=1e-9)
