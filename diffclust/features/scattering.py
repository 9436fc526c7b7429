"""The scattering transform: averages of moduli of wavelet coefficients, stable to deformations."""

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from diffclust import _validation as check
from diffclust.features import _by_matrices
from diffclust.features._filters import (
    CanvasAxis,
    FilterBank,
    Padding,
    canvas_axis,
    crop_spectrum,
    filter_bank,
    wave_angle,
)
from diffclust.linalg import product, safe_sqrt
from diffclust.sampling import bilinear_sample
from diffclust.types import Image


@dataclass(frozen=True)
class ScatteringPath:
    """The wavelets that lead to one group of coefficients.

    Attributes:
        order: How many wavelets: 0, 1 or 2.
        scales: Their scales j, rising from 0 for the finest.
        angles: Radians in [0, π) in which they oscillate, from x (to the right) towards y
            (downwards).
    """

    order: int
    scales: tuple[int, ...]
    angles: tuple[float, ...]


class AbstractScattering(eqx.Module):
    """Scattering coefficients of one image as one vector, path by path."""

    @property
    @abc.abstractmethod
    def path_size(self) -> int:
        """The number of consecutive coefficients in a path."""

    @abc.abstractmethod
    def num_features(self, channels: int = 1) -> int:
        """Length of the vector of an image.

        Args:
            channels: Channels of the image.

        Returns:
            The number of coefficients.
        """

    @abc.abstractmethod
    def __call__(self, image: Image) -> Float[Array, " features"]:
        """The coefficients as one vector.

        Args:
            image: Image of shape `(height, width, channels)`.

        Returns:
            The coefficients by channel, by path and by where they are.

        Raises:
            ValueError: If the image has another shape than the transform was made for, or
                intensities are whole numbers.
        """


class Scattering(AbstractScattering):
    """Scattering coefficients of one image: x ∗ φ, |x ∗ ψ₁| ∗ φ and ||x ∗ ψ₁| ∗ ψ₂| ∗ φ.

    The wavelets ψ are Morlet wavelets of J scales and L angles and φ is a Gaussian of the scale
    2ᴶ, on whose scale the coefficients are nearly invariant to translations and change in
    proportion to a deformation.

    Filters, padding, subsampling and the order of the paths are those of kymatio 0.3.0. Each grid
    has `height // 2**num_scales` rows and `width // 2**num_scales` columns. With `"periodic"`
    padding a side that is a multiple of 2ᴶ is not padded at all, so that the image is a torus.

    Attributes:
        height: Rows of the image, at least 2ᴶ.
        width: Columns of the image, at least 2ᴶ.
        num_scales: J.
        num_angles: L.
        order: How many wavelets a path has at most: 1 or 2.
        padding: What lies outside the image: `"reflect"`, `"zero"` or `"periodic"`; a pair for rows
            and columns.
        relative: Whether the coefficients x ∗ φ are left out and the others divided by the sum of
            those of first order over all channels, so that an image's mean and contrast do not
            matter.

    References:
        Bruna and Mallat (2013), Invariant scattering convolution networks; PSSC, Section 2.3;
        Andreux et al. (2020), Kymatio; Andén and Mallat (2014), Deep scattering spectrum (relative
        coefficients).
    """

    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    num_scales: int = eqx.field(static=True, default=3, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    order: int = eqx.field(static=True, default=2, kw_only=True)
    padding: Padding | tuple[Padding, Padding] = eqx.field(
        static=True, default="reflect", kw_only=True
    )
    relative: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses what has no scattering transform."""
        for name in ("height", "width", "num_scales", "num_angles"):
            check.count(getattr(self, name), name)
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, not {self.order!r}")
        for padding in self._paddings:
            check.one_of(padding, get_args(Padding), "padding")
        least = min(self.height, self.width)
        if least < 2**self.num_scales:
            fewer = f"at most {int(math.log2(least))} scales or " if least > 1 else ""
            raise ValueError(
                f"{self.num_scales} scales need images of at least {2**self.num_scales} pixels a "
                f"side, not {self.height}×{self.width}; use {fewer}larger images"
            )

    @property
    def paths(self) -> tuple[ScatteringPath, ...]:
        """The paths in the order of the coefficients: first by order, then by scales and angles."""
        paths = _paths(self.num_scales, self.num_angles, self.order)
        return paths[1:] if self.relative else paths

    @property
    def grid_shape(self) -> tuple[int, int]:
        """Rows and columns of coefficients of one path."""
        return self.height >> self.num_scales, self.width >> self.num_scales

    @property
    def path_size(self) -> int:
        return math.prod(self.grid_shape)

    @property
    def _paddings(self) -> tuple[Padding, Padding]:
        both = self.padding
        return both if isinstance(both, tuple) else (both, both)

    def num_features(self, channels: int = 1) -> int:
        return channels * len(self.paths) * self.path_size

    def coefficients(self, image: Image) -> Float[Array, "channels paths rows columns"]:
        """Scattering coefficients of one image, each channel by itself.

        Args:
            image: Image of shape `(height, width, channels)`.

        Returns:
            Coefficients; `paths` says which is which.

        Raises:
            ValueError: If the image has another shape than the transform was made for, or
                intensities are whole numbers.
        """
        if image.ndim != 3 or image.shape[:2] != (self.height, self.width):
            raise ValueError(
                f"this scattering transform takes an image of shape ({self.height}, {self.width}, "
                f"channels), not {image.shape}; make another for other sizes, and use jax.vmap "
                "for a batch"
            )
        check.floating(image, "image")
        settings = (self.num_scales, self.num_angles, self.order, self._paddings)
        result = _transform(self.height, self.width, *settings)(jnp.moveaxis(image, -1, 0))
        if not self.relative:
            return result
        total = jnp.sum(result[:, 1 : 1 + self.num_scales * self.num_angles])
        # What a blank image has left is rounding.
        shown = total > 1e-5 * jnp.sum(jnp.abs(result[:, 0]))
        return result[:, 1:] * jnp.where(shown, 1.0 / jnp.where(shown, total, 1.0), 0.0)

    def __call__(self, image: Image) -> Float[Array, " features"]:
        return self.coefficients(image).reshape(-1)


class RotationInvariantScattering(AbstractScattering):
    """Scattering coefficients that stay the same where an image is turned about its centre.

    The image is read along circles, up to the one that touches its sides, and weighted by the root
    of the radius, so that norms are those of the disc. A turn is then a shift along the angle, an
    axis that is periodic; of the scattering coefficients along it the moduli of their Fourier
    coefficients are taken. Turns by quarters change nothing but rounding, others little.

    Attributes:
        side: Rows, and columns, of the image.
        num_scales: J of the scattering transform.
        num_angles: L of the scattering transform.
        relative: As in `Scattering`.
        reflection: Whether a mirrored image is to have the same coefficients: of those of a path
            and of its mirror image the larger stand first.

    References:
        Sifre and Mallat (2013), Rotation, scaling and deformation invariant scattering for texture
        discrimination, which average over angles.
    """

    side: int = eqx.field(static=True)
    num_scales: int = eqx.field(static=True, default=3, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    relative: bool = eqx.field(static=True, default=False, kw_only=True)
    reflection: bool = eqx.field(static=True, default=False, kw_only=True)

    @property
    def scattering(self) -> Scattering:
        """The scattering of polar pictures: a circle for every two pixels.

        A circle has four angles for every circle there is at least; those of a quarter turn are a
        multiple of 2^J, the step of the coefficients along them.
        """
        step = 2**self.num_scales
        return Scattering(
            max(self.side // 2, step),
            4 * step * -(-self.side // (2 * step)),
            num_scales=self.num_scales,
            num_angles=self.num_angles,
            padding=("reflect", "periodic"),
            relative=self.relative,
        )

    @property
    def path_size(self) -> int:
        circles, angles = self.scattering.grid_shape
        return circles * (angles // 2 + 1)

    def num_features(self, channels: int = 1) -> int:
        return channels * len(self.scattering.paths) * self.path_size

    def __call__(self, image: Image) -> Float[Array, " features"]:
        if image.ndim != 3 or image.shape[:2] != (self.side, self.side):
            raise ValueError(
                f"this scattering transform takes an image of shape ({self.side}, {self.side}, "
                f"channels), not {image.shape}; what is turned has to be square"
            )
        check.floating(image, "image")
        scattering = self.scattering
        circles, angles = scattering.height, scattering.width
        radius = (np.arange(circles) + 0.5)[:, None] / circles
        angle = np.arange(angles) * (2.0 * math.pi / angles)
        points = np.stack([radius * np.cos(angle), radius * np.sin(angle)])
        polar = bilinear_sample(image, jnp.asarray(points, image.dtype))
        polar = polar * jnp.asarray(np.sqrt(radius)[..., None], image.dtype)
        spectrum = jnp.fft.rfft(scattering.coefficients(polar), axis=-1)
        result = safe_sqrt(spectrum.real**2 + spectrum.imag**2) / scattering.grid_shape[1]
        if self.reflection:
            mirrored = np.asarray(_mirrored(scattering.paths))
            first = (np.arange(len(mirrored)) <= mirrored)[:, None, None]
            other = result[:, mirrored]
            result = jnp.where(first, jnp.maximum(result, other), jnp.minimum(result, other))
        return result.reshape(-1)


# Beyond this many pixels a side the fast Fourier transform overtakes matrix products, whose
# matrices grow with the fourth power of the side too.
_LARGEST_BY_MATRICES = 64


@functools.lru_cache(maxsize=16)
def _transform(
    height: int, width: int, scales: int, angles: int, order: int, padding: tuple[Padding, Padding]
) -> Callable[[Float[Array, "n height width"]], Array]:
    axes = canvas_axis(height, scales, padding[0]), canvas_axis(width, scales, padding[1])
    shape = axes[0].size, axes[1].size
    bank = filter_bank(shape, scales, angles)
    if max(shape) > _LARGEST_BY_MATRICES:
        return functools.partial(_scatter_by_fourier, axes=axes, bank=bank, order=order)
    matrices = _by_matrices.matrices(axes, bank, order)
    return _merging_batches(functools.partial(_by_matrices.scatter, prepared=matrices))


def _merging_batches(scatter: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Makes `jax.vmap` merge its axis with that of the images.

    The innermost loops run over that axis; the rules of vmap would put another one outside.
    """

    @jax.custom_batching.custom_vmap
    def merged(images):
        return scatter(images)

    @merged.def_vmap
    def _(size, in_batched, images):
        paths = merged(images.reshape(-1, *images.shape[2:]))
        return paths.reshape(size, -1, *paths.shape[1:]), True

    # custom_vmap has no reverse mode of its own.
    @jax.custom_jvp
    def differentiable(images):
        return merged(images)

    @differentiable.defjvp
    def _(primals, tangents):
        return jax.jvp(scatter, primals, tangents)

    return differentiable


@functools.lru_cache(maxsize=8)
def _paths(scales: int, angles: int, order: int) -> tuple[ScatteringPath, ...]:
    angle = [wave_angle(index, angles) for index in range(angles)]
    first = [ScatteringPath(1, (j1,), (angle[t1],)) for j1 in range(scales) for t1 in range(angles)]
    second = [
        ScatteringPath(2, (j1, j2), (angle[t1], angle[t2]))
        for j1 in range(scales)
        for t1 in range(angles)
        for j2 in range(j1 + 1, scales)
        for t2 in range(angles)
    ]
    return (ScatteringPath(0, (), ()), *first, *(second if order == 2 else ()))


def _mirrored(paths: tuple[ScatteringPath, ...]) -> list[int]:
    """The place of each path's mirror image, whose angles are π less its own."""
    places = {(path.scales, tuple(np.round(path.angles, 6))): n for n, path in enumerate(paths)}
    turned = (np.round(np.mod(-np.asarray(path.angles), math.pi), 6) for path in paths)
    return [places[path.scales, tuple(each)] for path, each in zip(paths, turned, strict=True)]


def _filtered(
    spectra: Complex[Array, "n height width"], filters: np.ndarray, factor: int
) -> Complex[Array, "n filters rows columns"]:
    """Spectra of all images through all filters, of every `factor`-th pixel."""
    product = spectra[:, None] * jnp.asarray(filters, spectra.dtype)[None]
    *front, height, width = product.shape
    # Taking every s-th pixel sums the frequencies that are then the same.
    split = product.reshape(*front, factor, height // factor, factor, width // factor)
    return split.mean(axis=(-4, -2))


def _scatter_by_fourier(
    images: Float[Array, "n height width"],
    axes: tuple[CanvasAxis, CanvasAxis],
    bank: FilterBank,
    order: int,
) -> Float[Array, "n paths rows columns"]:
    """Scattering coefficients of grey images, the paths in kymatio's order."""
    down, right = (jnp.asarray(axis.padding, images.dtype) for axis in axes)
    scales = len(bank.wavelets)

    def low_pass(spectra, scale):
        low = crop_spectrum(bank.average, scale)[None]
        averages = jnp.fft.ifft2(_filtered(spectra, low, 2 ** (scales - scale))[:, 0]).real
        return averages[:, axes[0].inside, axes[1].inside]

    def moduli(spectra, scale, level):
        waves = crop_spectrum(bank.wavelets[scale], level)
        waves = jnp.fft.ifft2(_filtered(spectra, waves, 2 ** (scale - level)))
        return safe_sqrt(waves.real**2 + waves.imag**2)

    def flat(u):
        return jnp.fft.fft2(u.reshape(-1, *u.shape[-2:]))

    count = len(images)
    spectra = jnp.fft.fft2(product(down, images, right.T))
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
