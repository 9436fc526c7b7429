"""What a scattering transform filters with, on the host in float64: the canvas and the filters.

An image is put on a periodic canvas, one axis at a time, and filtered in Fourier space by Morlet
wavelets, and by the Gaussian that averages at the end, with the constants of kymatio 0.3.0.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

# kymatio divides by 2 · 3.1415 · σ²; with π the coefficients would differ from its by up to 1e-4.
_NORMALISATION = math.pi / 3.1415

# exp(-t²/2) is below the resolution of float64 from here on.
_TAIL = 8.7


def _steps(index: int, num_angles: int) -> float:
    """Angle of a wavelet in steps of π/L."""
    # kymatio counts θ = (⌊L/2⌋ - 1 - index) π / L, from y towards x.
    return num_angles / 2 - int(num_angles - num_angles / 2 - 1) + index


def wave_angle(index: int, num_angles: int) -> float:
    """Direction in which a wavelet oscillates.

    Args:
        index: Number of the angle, from 0 on.
        num_angles: How many there are, L.

    Returns:
        Radians in [0, π), from x (to the right) towards y (downwards).
    """
    return math.pi / num_angles * (_steps(index, num_angles) % num_angles)


def _gaussian(
    shape: tuple[int, int], sigma: float, slant: float, angle: float, frequency: float
) -> np.ndarray:
    """Fourier transform of a sampled, periodic Gabor function.

    A function that is sampled on the pixels and repeated with the canvas has as its transform the
    samples of its continuous transform, a Gaussian, repeated with period 2π.
    """
    along = np.array([math.sin(angle), math.cos(angle)])
    across = np.array([-along[1], along[0]])
    widest = max(1.0, slant) / sigma
    repeats = math.ceil((frequency + math.pi + _TAIL * widest) / (2 * math.pi))
    rows, columns = (2 * math.pi * np.fft.fftfreq(size) for size in shape)
    total = np.zeros(shape)
    for down in range(-repeats, repeats + 1):
        y = rows[:, None] + 2 * math.pi * down - frequency * along[0]
        for right in range(-repeats, repeats + 1):
            x = columns[None, :] + 2 * math.pi * right - frequency * along[1]
            long, short = y * along[0] + x * along[1], y * across[0] + x * across[1]
            total += np.exp(-0.5 * sigma**2 * (long**2 + (short / slant) ** 2))
    return _NORMALISATION * total


class FilterBank(NamedTuple):
    """Transforms of the filters on the whole canvas; all are real.

    Attributes:
        wavelets: The Morlet wavelets ψ of all scales and angles.
        average: The Gaussian low-pass φ.
    """

    wavelets: Float[np.ndarray, "scales angles height width"]
    average: Float[np.ndarray, "height width"]


def filter_bank(shape: tuple[int, int], num_scales: int, num_angles: int) -> FilterBank:
    """Morlet wavelets and their low-pass.

    At scale j the envelope has a standard deviation of 0.8 · 2ʲ pixels along the wave and L/4 times
    that across, and the wave a frequency of 3π/4 · 2⁻ʲ; a multiple of the envelope is subtracted so
    that the mean is 0. The low-pass is a Gaussian of 0.8 · 2ᴶ⁻¹ pixels.

    Args:
        shape: Height and width of the canvas, which is periodic.
        num_scales: J.
        num_angles: L.

    Returns:
        The bank.

    References:
        Bruna and Mallat (2013), Invariant scattering convolution networks; Andreux et al. (2020),
        Kymatio.
    """
    slant = 4.0 / num_angles
    wavelets = np.empty((num_scales, num_angles, *shape))
    for scale in range(num_scales):
        sigma, frequency = 0.8 * 2.0**scale, 0.75 * math.pi / 2.0**scale
        for index in range(num_angles):
            # Not modulo π: the opposite wave is the conjugate, whose highest frequency lies on
            # the other side, which makes a difference on the coarser canvases.
            angle = math.pi / num_angles * _steps(index, num_angles)
            wave = _gaussian(shape, sigma, slant, angle, frequency)
            envelope = _gaussian(shape, sigma, slant, angle, 0.0)
            wavelets[scale, index] = wave - wave[0, 0] / envelope[0, 0] * envelope
    average = _gaussian(shape, 0.8 * 2.0 ** (num_scales - 1), 1.0, 0.0, 0.0)
    return FilterBank(wavelets, average)


def crop_spectrum(spectrum: np.ndarray, halvings: int) -> np.ndarray:
    """Restricts a filter to a canvas with fewer pixels: to its low frequencies.

    Args:
        spectrum: Fourier transform `(..., height, width)`, in NumPy's order of frequencies.
        halvings: How often both sides are halved.

    Returns:
        The transform on the coarser canvas.
    """
    for axis in (-2, -1):
        size = spectrum.shape[axis] >> halvings
        # With one sample left, only the mean is: `fftfreq` puts frequency 0 first.
        kept = np.r_[0 : (size + 1) // 2, spectrum.shape[axis] - size // 2 : spectrum.shape[axis]]
        spectrum = np.take(spectrum, kept, axis=axis)
    return spectrum


Padding = Literal["reflect", "zero", "periodic"]
"""What lies outside the image: the image mirrored at the centres of its outermost pixels, black, or
the image repeated."""


class CanvasAxis(NamedTuple):
    """One axis of the canvas.

    Attributes:
        padding: Matrix that maps an axis of the image to the axis of the canvas.
        inside: Which of the averages, one every 2ᴶ pixels of the canvas, lie on the image.
    """

    padding: Float[np.ndarray, "canvas image"]
    inside: slice

    @property
    def size(self) -> int:
        """Pixels of the canvas, a multiple of 2ᴶ."""
        return len(self.padding)


def canvas_axis(size: int, num_scales: int, padding: Padding) -> CanvasAxis:
    """Margins as in kymatio: at least half of 2ᴶ on either side, and one average in each.

    Args:
        size: Pixels of the image.
        num_scales: J.
        padding: What lies outside; a periodic image that fits is its own canvas.

    Returns:
        The axis.
    """
    block = 2**num_scales
    if padding == "periodic" and size % block == 0:
        return CanvasAxis(np.eye(size), slice(None))
    excess = (size // block + 2) * block - size
    margins = (excess // 2, (excess + 1) // 2)
    if padding == "zero":
        matrix = np.pad(np.eye(size), (margins, (0, 0)))
    else:
        mode = "reflect" if padding == "reflect" else "wrap"
        matrix = np.eye(size)[np.pad(np.arange(size), margins, mode=mode)]
    return CanvasAxis(matrix, slice(1, -1))
