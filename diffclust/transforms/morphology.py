"""Soft dilation and erosion: thicker and thinner strokes."""

import functools
import math
from collections.abc import Callable
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust._sharding import varying_like
from diffclust.sampling import check_image, set_apart
from diffclust.transforms.base import AbstractTransform
from diffclust.types import Image, Params, Scalar

Plane = Float[Array, "height width"]
Padded = Float[Array, "padded_height padded_width"]
Region = Float[Array, "window window"]

Surroundings = Literal["zero", "edge"]
"""What lies outside the image: black, or the nearest pixel."""


class Morphology(AbstractTransform):
    """Soft dilation (α > 0) or erosion (α < 0) by a region that is itself a parameter.

    Params are (s, α, ℓ), with one logit ℓ for every offset of the window, row by row, and

    T(x) = x + tanh(s) (M(x) - x),
    M(x)[u] = Σ_w a[w] x[u + w] exp(α x[u + w]) / Σ_w a[w] exp(α x[u + w]).

    The soft region a = sigmoid(1 - |w|²/2 + ℓ) is a disc of a pixel and a half when ℓ = 0. M is the
    paper's transform; the blend by tanh(s) makes zero the identity, which M itself reaches only in
    a limit. Equation 6 prints a[u + u', v + v'], in which the position in the image is a misprint:
    a is indexed only by the offset, as in the sentence after it.

    M is exact for any α: both sums are divided by the largest weight of the image or, if α is so
    large that they could vanish, by that of each window.

    Attributes:
        window: Side of the square of offsets, in pixels; an odd number.
        boundary: What lies outside the image: `"zero"`, black pixels that count like all others, or
            `"edge"`.
        channelwise: Whether every channel is transformed separately, in the same way. Otherwise
            only grey images are accepted: the extrema of colours are not a colour of the image.

    References:
        Monnier et al., DTI clustering, Section 4.1 and Equation 6.
    """

    window: int = eqx.field(static=True, default=7)
    boundary: Surroundings = eqx.field(static=True, default="zero", kw_only=True)
    channelwise: bool = eqx.field(static=True, default=False, kw_only=True)

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The name of the only term."""
        return ("blend",)

    def __check_init__(self):
        """Refuses an even window and an unknown boundary."""
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError(f"window must be odd, to have a middle, not {self.window}")
        check.one_of(self.boundary, get_args(Surroundings), "boundary")

    @property
    def num_params(self) -> int:
        """The blend, α, and a logit for every offset."""
        return 2 + self.window**2

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """s²: without a blend the other params change nothing."""
        return params[:1] ** 2

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Prepares the window; nothing depends on the size of images.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params and image, which raises a ValueError for an image with several
            channels unless `channelwise`.
        """
        half, side = self.window // 2, self.window
        offset = np.arange(side) - half
        rest = 1.0 - 0.5 * (offset[:, None] ** 2 + offset[None, :] ** 2)
        mode = "constant" if self.boundary == "zero" else "edge"

        def extremum(params: Params, channel: Plane) -> Plane:
            logits = params[2:].reshape(side, side) + jnp.asarray(rest, dtype=params.dtype)
            padded = jnp.pad(channel, half, mode=mode)
            return _soft_extremum(padded, params[1], jax.nn.log_sigmoid(logits))

        def apply(params: Params, image: Image) -> Image:
            check_image(image)
            if image.shape[2] != 1 and not self.channelwise:
                raise ValueError(
                    f"a morphological step has no rule for colour, and the image has "
                    f"{image.shape[2]} channels; give grey images, or treat every channel by "
                    "itself with Morphology(channelwise=True)"
                )
            extrema = jax.vmap(extremum, in_axes=(None, 2), out_axes=2)(params, image)
            return image + jnp.tanh(params[0]) * (extrema - image)

        return apply

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Leaves variances unchanged, as the authors do; see `AbstractTransform.bind_variance`.

        Args:
            height: Rows of the images to come.
            width: Columns of the images to come.

        Returns:
            A function of params and variances that returns the variances unchanged.
        """
        return lambda params, variance: variance


@jax.custom_jvp
def _soft_extremum(padded: Padded, alpha: Scalar, log_region: Region) -> Plane:
    """Equation 6 for every pixel, computed from an image with a margin of half a window.

    If exp(αx) is divided by its largest value in the image, one exponential per pixel is enough for
    all windows, and both sums are correlations. If a window may hold only vanishing numbers, the
    sums of `_row_by_row` are used instead. These are always used for derivatives, as those of the
    correlations are slow to run and to compile (128 images on 2 CPU cores: 230 ms against 20).
    """
    weights = alpha * padded
    most = jnp.max(weights)
    share = set_apart(jnp.exp(weights - most))
    region = jnp.exp(log_region - jnp.max(log_region))
    by_value, mass = (_correlation(each, region) for each in (set_apart(share * padded), share))
    # What is left out, or rounded as a subnormal number, is less than the root of the smallest
    # normal number, relative to the sums.
    is_steep = most - jnp.min(weights) > -0.5 * math.log(jnp.finfo(weights.dtype).tiny)
    # `jax.vmap` would compute both sides of a `jax.lax.cond`, and XLA moves out of a loop whatever
    # does not depend on its state, so the state holds the α still to be done.
    none = jnp.zeros_like(alpha)
    start = varying_like((by_value / mass, jnp.where(is_steep, alpha, none)), log_region)
    return jax.lax.while_loop(
        lambda state: state[1] != 0,
        lambda state: varying_like((_row_by_row(padded, state[1], log_region), none), start),
        start,
    )[0]


@_soft_extremum.defjvp
def _soft_extremum_jvp(primals: tuple, tangents: tuple) -> tuple[Plane, Plane]:
    return _soft_extremum(*primals), jax.jvp(_row_by_row, primals, tangents)[1]


def _correlation(padded: Padded, region: Region) -> Plane:
    """Sums over the window; with all offsets unrolled, XLA makes one vectorised loop of them."""
    side = region.shape[0]
    height, width = (size - side + 1 for size in padded.shape)
    parts = (
        region[i, j] * padded[i : i + height, j : j + width] for i, j in np.ndindex(region.shape)
    )
    return functools.reduce(jnp.add, parts)


def _row_by_row(padded: Padded, alpha: Scalar, log_region: Region) -> Plane:
    """Equation 6 for any α: the sums of every window are divided by its largest weight."""
    side = log_region.shape[0]
    # The intermediate values of a row's step are many times larger than its inputs.
    row = jax.checkpoint(_row_by_columns)

    def step(_: None, start: Array) -> tuple[None, Array]:
        slab = jax.lax.dynamic_slice_in_dim(padded, start, side, axis=0)
        return None, row(slab, alpha, log_region)

    return jax.lax.scan(step, None, jnp.arange(padded.shape[0] - side + 1))[1]


def _row_by_columns(
    slab: Float[Array, "window padded_width"], alpha: Scalar, log_region: Region
) -> Float[Array, " width"]:
    """Computes one row of Equation 6, the offsets of one column at a time."""
    side = log_region.shape[0]
    width = slab.shape[1] - side + 1
    values = [slab[:, j : j + width] for j in range(side)]
    weights = [alpha * x + log_region[:, j : j + 1] for j, x in enumerate(values)]
    most = jnp.max(weights[0], axis=0)
    for weight in weights[1:]:
        most = jnp.maximum(most, jnp.max(weight, axis=0))
    # The quotient does not depend on the divisor.
    most = jax.lax.stop_gradient(most)[None, :]
    total = mass = jnp.zeros_like(values[0])
    for x, weight in zip(values, weights, strict=True):
        share = jnp.exp(weight - most)
        total, mass = total + share * x, mass + share
    return jnp.sum(total, axis=0) / jnp.sum(mass, axis=0)
