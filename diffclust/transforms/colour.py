"""Affine changes of the colours, the same at every pixel."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.sampling import check_image, pixel_grid
from diffclust.transforms.base import AbstractTransform
from diffclust.types import Image, Params


class Colour(AbstractTransform):
    """A gain and a shift for every channel: x_c ↦ (1 + g_c) x_c + b_c, with params (g, b).

    There are two params for grey images and six for colour. The full form mixes the channels, x ↦
    (I + G) x + b with params (G row by row, b), twelve for three channels. With it a single
    prototype can hide several patterns in its channels, which is why the paper abandoned it.

    With `gradient` the shift may change linearly across the image, to b + s · u at the point u; the
    params of s, first along x for every channel and then along y, follow those of b.

    Attributes:
        num_channels: Channels of the images.
        full: Whether channels are mixed.
        gradient: Whether the shift may change across the image.

    References:
        Monnier et al., DTI clustering, Section 4.1 and Appendix C.4.
    """

    num_channels: int = eqx.field(static=True, default=1)
    full: bool = eqx.field(static=True, default=False, kw_only=True)
    gradient: bool = eqx.field(static=True, default=False, kw_only=True)

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """Gain and shift."""
        return ("gain", "shift")

    def __check_init__(self):
        """Refuses images without channels."""
        if self.num_channels < 1:
            raise ValueError(f"num_channels must be 1 or more, not {self.num_channels}")

    @property
    def num_params(self) -> int:
        """The gains (a matrix in the full form), one shift per channel, and the shift's slopes."""
        return self._num_gains + (3 if self.gradient else 1) * self.num_channels

    @property
    def _num_gains(self) -> int:
        return self.num_channels**2 if self.full else self.num_channels

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Sums of squares of the gains and of the shifts; see `AbstractTransform.deformation`.

        Shifts that change across the image are averaged over it.
        """
        gain, shift, slopes = self._split(params)
        return jnp.stack([jnp.sum(gain**2), jnp.sum(shift**2) + jnp.sum(slopes**2) / 3.0])

    def _split(self, params: Params) -> list[Float[Array, " _"]]:
        """Gains, shifts, and slopes of the shifts."""
        return jnp.split(params, (self._num_gains, self._num_gains + self.num_channels))

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Precomputes nothing, as nothing depends on the size of images.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params and image, which raises a ValueError for an image with a different
            number of channels.
        """

        def apply(params: Params, image: Image) -> Image:
            self._check(image)
            _, shift, slopes = self._split(params)
            moved = _mixed(self._matrix(params), image) + shift[None, None, :]
            if not self.gradient:
                return moved
            points = pixel_grid(height, width, image.dtype)
            slopes = slopes.reshape(2, self.num_channels)
            return moved + jnp.einsum("ahw,ac->hwc", points, slopes, precision="highest")

        return apply

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Applies squared gains and no shifts; see `AbstractTransform.bind_variance`.

        In the full form, the result is the variance of each channel for channels that vary
        independently.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params and variances, which raises a ValueError for an image with a
            different number of channels.
        """

        def apply(params: Params, variance: Image) -> Image:
            self._check(variance)
            return _mixed(self._matrix(params) ** 2, variance)

        return apply

    def _check(self, image: Image) -> None:
        check_image(image)
        if image.shape[2] != self.num_channels:
            raise ValueError(
                f"Colour(num_channels={self.num_channels}) was given an image with "
                f"{image.shape[2]} channels; num_channels must be that of the images"
            )

    def _matrix(self, params: Params) -> Float[Array, "..."]:
        """I + G, or its diagonal."""
        gain = params[: self._num_gains]
        if not self.full:
            return 1.0 + gain
        unit = jnp.eye(self.num_channels, dtype=params.dtype)
        return unit + gain.reshape(self.num_channels, self.num_channels)


def _mixed(matrix: Float[Array, "..."], image: Image) -> Image:
    """Multiplies the channels of every pixel by a diagonal or full matrix."""
    if matrix.ndim == 1:
        return image * matrix[None, None, :]
    # A GPU's matrix units would round the colours to ten bits, even at the identity.
    return jnp.einsum("dc,hwc->hwd", matrix, image, precision="highest")
