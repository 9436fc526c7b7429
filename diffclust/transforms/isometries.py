"""Translations, and rotations with reflections; a whole grid of them can be searched by FFT."""

import abc
import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.sampling import Boundary, bilinear_sample
from diffclust.transforms.affine import Affine
from diffclust.transforms.base import AbstractSpatialTransform, Correlation, Grid
from diffclust.types import Image, Images, Params, Points


def params_grid(*axes: Float[np.ndarray, " _"] | tuple[float, ...]) -> Grid:
    """Makes all combinations of parameter values, for `GridSearch`.

    Args:
        *axes: The values of each parameter; for a discrete choice they may be `(0.0, 1.0)`.

    Returns:
        One vector of params per row; the last parameter varies fastest.
    """
    mesh = np.meshgrid(*(np.asarray(axis) for axis in axes), indexing="ij")
    points = np.stack(mesh, axis=-1).reshape(-1, len(axes))
    return jnp.asarray(points, dtype=jnp.result_type(float))


class AbstractIsometry(AbstractSpatialTransform):
    """Affine maps that preserve distances, with fewer params than `Affine`."""

    @abc.abstractmethod
    def to_affine(self, params: Params) -> Float[Array, "6"]:
        """The same map as params of `Affine`.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            Six params.
        """

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        affine = Affine().bind_map(points)
        return lambda params: affine(self.to_affine(params))


class Translation(AbstractIsometry):
    """Translations u ↦ u + t, with params (t₁, t₂); 2 is the image's width or height.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.
    """

    boundary: Boundary = eqx.field(static=True, default="zero")

    @property
    def num_params(self) -> int:
        """Two."""
        return 2

    def to_affine(self, params: Params) -> Float[Array, "6"]:
        return jnp.concatenate([jnp.zeros((4,), dtype=params.dtype), params])

    def compose(self, first: Params, second: Params) -> Params:
        """The single translation that acts like `first` and then `second`: their sum."""
        return first + second

    def inverse(self, params: Params) -> Params:
        """The opposite translation."""
        return -params

    def bind_correlation(self, height: int, width: int) -> Correlation | None:
        """Computes inner products of shifted images with others, by FFT.

        Exact up to rounding: a shift by a fraction of a pixel interpolates between shifts by whole
        pixels.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params, an image and other images; None if the outside of the image is not
            black.
        """
        if self.boundary != "zero":
            return None
        size = (2 * height, 2 * width)
        half = np.array([[0.5 / width, 0.5 / height]])

        def correlation(grid: Grid, image: Image, others: Images) -> Float[Array, "points others"]:
            spectrum = jnp.fft.rfft2(image, size, axes=(0, 1))
            product = spectrum[None] * jnp.conj(jnp.fft.rfft2(others, size, axes=(1, 2)))
            surface = jnp.fft.irfft2(jnp.sum(product, axis=3), size, axes=(1, 2))
            surface = jnp.moveaxis(jnp.fft.fftshift(surface, axes=(1, 2)), 0, 2)
            return bilinear_sample(surface, (0.5 * grid + jnp.asarray(half, grid.dtype)).T)

        return correlation


class Rotation(AbstractIsometry):
    """Rotations about the centre with params (θ), in radians; with reflections O(2), params (θ, r).

    u ↦ R(θ) u, where u is first mirrored, x ↦ -x, if r > 1/2. r is a discrete choice of 0 or 1 for
    `GridSearch`, which descent does not change.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.
        reflection: Whether images may be mirrored.
        aspect: Width of the images divided by their height.
    """

    boundary: Boundary = eqx.field(static=True, default="zero")
    reflection: bool = eqx.field(static=True, default=False, kw_only=True)
    aspect: float = eqx.field(static=True, default=1.0, kw_only=True)
    norms_correlate: ClassVar[bool] = True

    def __check_init__(self):
        """Refuses an aspect that is not positive."""
        check.positive(self.aspect, "aspect", least=0, strictly=True)

    @property
    def num_params(self) -> int:
        """One, or two with reflections."""
        return 2 if self.reflection else 1

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The name of every parameter."""
        return ("rotation", "reflection")[: self.num_params]

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Mean squared displacements over the image, to first order in θ.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            One number for the rotation, and one for the reflection, 4/3 r².
        """
        turned = (self.aspect**2 + self.aspect**-2) / 3.0
        sizes = jnp.asarray([turned, 4.0 / 3.0][: self.num_params], dtype=params.dtype)
        return sizes * params**2

    def to_affine(self, params: Params) -> Float[Array, "6"]:
        cosine, sine = jnp.cos(params[0]), jnp.sin(params[0])
        sign = jnp.where(self._mirrored(params), -1.0, 1.0).astype(params.dtype)
        first = jnp.stack([sign * cosine - 1.0, -sine / self.aspect])
        second = jnp.stack([sign * sine * self.aspect, cosine - 1.0])
        return jnp.concatenate([first, second, jnp.zeros_like(first)])

    def _mirrored(self, params: Float[Array, "*n params"]) -> Array:
        return params[..., -1] > (0.5 if self.reflection else jnp.inf)

    def compose(self, first: Params, second: Params) -> Params:
        """The single transform that acts like `first` and then `second`.

        Args:
            first: Params of the transform applied to the image first.
            second: Params of the transform applied to its result.

        Returns:
            Params of the composition, whose map is first's map after second's.
        """
        mirrored = self._mirrored(first)
        angle = first[:1] + jnp.where(mirrored, -second[:1], second[:1])
        if not self.reflection:
            return angle
        return jnp.append(angle, (mirrored ^ self._mirrored(second)).astype(angle.dtype))

    def inverse(self, params: Params) -> Params:
        """The transform that undoes this one: a reflection undoes itself.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            Params of the inverse.
        """
        return jnp.where(self._mirrored(params), params, -params)

    def grid(self, num_angles: int) -> Grid:
        """Equal steps of angle, with and without reflection if reflections are allowed.

        Args:
            num_angles: Number of angles in a full turn; 0 is one of them.

        Returns:
            Params for `GridSearch`, angles in (-π, π].

        Raises:
            ValueError: If there is to be none.
        """
        check.count(num_angles, "num_angles")
        steps = np.arange(num_angles) - (num_angles - 1) // 2
        angles = steps * (2.0 * math.pi / num_angles)
        return params_grid(angles, (0.0, 1.0)) if self.reflection else params_grid(angles)

    def bind_correlation(self, height: int, width: int) -> Correlation | None:
        """Computes inner products of rotated images with others, by FFT over angles.

        Approximate: images are sampled on a polar grid with a spacing of about a pixel. Between its
        angles, values are interpolated by the trigonometric polynomial.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params, an image and other images; None if the outside of the image is not
            black.
        """
        if self.boundary != "zero":
            return None
        radii, angles = math.ceil(0.5 * math.hypot(height, width)), 4 * max(height, width)
        reach = math.hypot(self.aspect, 1.0)
        radius = (np.arange(radii) + 0.5)[:, None] * (reach / radii)
        angle = np.arange(angles) * (2.0 * math.pi / angles)
        points = np.stack([radius * np.cos(angle) / self.aspect, radius * np.sin(angle)])
        # The area that a point of the polar grid represents, in pixels.
        area = radius * (reach / radii) * (2.0 * math.pi / angles)
        root = np.sqrt(area * (height * width / (4.0 * self.aspect)))[..., None]
        order = np.arange(angles // 2 + 1)
        share = np.where((order == 0) | (order == angles // 2), 1.0, 2.0) / angles
        sign = np.where(order % 2 == 0, 1.0, -1.0)

        def spectrum(image: Image) -> Array:
            read = bilinear_sample(image, jnp.asarray(points, dtype=image.dtype))
            return jnp.fft.rfft(read * jnp.asarray(root, dtype=image.dtype), axis=1)

        def correlation(grid: Grid, image: Image, others: Images) -> Float[Array, "points others"]:
            one, each = spectrum(image), jax.vmap(spectrum)(others)
            weights = jnp.asarray(share, dtype=one.dtype)
            turned = jnp.einsum("rmc,krmc->mk", one, jnp.conj(each), precision="highest")
            phase = grid[:, :1] * jnp.asarray(order, dtype=grid.dtype)[None]
            waves = jax.lax.complex(jnp.cos(phase), jnp.sin(phase)) * weights[None]
            result = jnp.real(jnp.matmul(waves, turned, precision="highest"))
            if not self.reflection:
                return result
            # A mirrored image is read at θ + π - φ instead of φ + θ.
            folded = jnp.einsum("rmc,krmc->mk", one, each, precision="highest")
            folded = folded * jnp.asarray(sign, dtype=one.dtype)[:, None]
            mirrored = jnp.real(jnp.matmul(waves, folded, precision="highest"))
            return jnp.where(self._mirrored(grid)[:, None], mirrored, result)

        return correlation
