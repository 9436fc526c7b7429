"""Scattering of large images, by fast Fourier transforms."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from diffclust.features._canvas import CanvasAxis
from diffclust.features._modulus import modulus
from diffclust.features.morlet import FilterBank, crop_spectrum


def _filtered(
    spectra: Complex[Array, "n height width"], filters: np.ndarray, factor: int
) -> Complex[Array, "n filters rows columns"]:
    """Spectra of all images through all filters, of every `factor`-th pixel."""
    product = spectra[:, None] * jnp.asarray(filters, spectra.dtype)[None]
    *front, height, width = product.shape
    # Taking every s-th pixel sums the frequencies that are then the same.
    split = product.reshape(*front, factor, height // factor, factor, width // factor)
    return split.mean(axis=(-4, -2))


def scatter(
    images: Float[Array, "n height width"],
    axes: tuple[CanvasAxis, CanvasAxis],
    bank: FilterBank,
    order: int,
) -> Float[Array, "n paths rows columns"]:
    """Scattering coefficients of grey images.

    Args:
        images: The images.
        axes: The canvas.
        bank: Its filters.
        order: How many wavelets a path has at most.

    Returns:
        The coefficients, the paths in kymatio's order.
    """
    down, right = (jnp.asarray(axis.padding, images.dtype) for axis in axes)
    scales = len(bank.wavelets)

    def low_pass(spectra, scale):
        low = crop_spectrum(bank.average, scale)[None]
        averages = jnp.fft.ifft2(_filtered(spectra, low, 2 ** (scales - scale))[:, 0]).real
        return averages[:, axes[0].inside, axes[1].inside]

    def moduli(spectra, scale, level):
        waves = crop_spectrum(bank.wavelets[scale], level)
        found = jnp.fft.ifft2(_filtered(spectra, waves, 2 ** (scale - level)))
        return modulus(found.real, found.imag)

    def flat(u):
        return jnp.fft.fft2(u.reshape(-1, *u.shape[-2:]))

    count = len(images)
    spectra = jnp.fft.fft2(down @ images @ right.T)
    zeroth = low_pass(spectra, 0)[:, None]
    first, second = [], []
    for j1 in range(scales):
        once = flat(moduli(spectra, j1, 0))
        first.append(low_pass(once, j1).reshape(count, -1, *zeroth.shape[2:]))
        if order == 2 and j1 + 1 < scales:
            twice = [
                low_pass(flat(moduli(once, j2, j1)), j2).reshape(
                    count, -1, 1, bank.wavelets.shape[1], *zeroth.shape[2:]
                )
                for j2 in range(j1 + 1, scales)
            ]
            second.append(jnp.concatenate(twice, axis=2).reshape(count, -1, *zeroth.shape[2:]))
    return jnp.concatenate([zeroth, *first, *second], axis=1)
