"""Pixel grids, bilinear sampling and low-pass pyramids.

The only place that knows how points in [-1, 1]² relate to pixels: pixel centres lie at the centres
of the cells (`align_corners=False`), so the left edge of the image is x = -1 and its right edge
x = 1, whatever the resolution. Coordinates are kept as two separate planes because interleaved
coordinates make the gradient of the sampling several times slower.
"""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from diffclust._sharding import with_auto_axes
from diffclust.types import Image, Points

Boundary = Literal["zero", "edge", "reflect"]
"""What lies outside the image: black, the nearest pixel, or the image mirrored at its border."""


def pixel_grid(height: int, width: int, dtype: jnp.dtype | None = None) -> Points:
    """The centres of the pixels as points in [-1, 1]².

    Args:
        height: Number of rows.
        width: Number of columns.
        dtype: Floating dtype; JAX's default where it is not given.

    Returns:
        Points of shape `(2, height, width)`.
    """
    x = (2.0 * np.arange(width) + 1.0) / width - 1.0
    y = (2.0 * np.arange(height) + 1.0) / height - 1.0
    grid = np.stack(np.broadcast_arrays(x[None, :], y[:, None]))
    return jnp.asarray(grid, dtype=jnp.result_type(float) if dtype is None else dtype)


def planes(points: Points) -> tuple[Float[Array, "*grid"], Float[Array, "*grid"]]:
    """Splits points into x and y.

    Unlike `points[0]`, whose derivative is an array of zeros with one plane filled in, XLA can
    undo this where the points were stacked from two planes.

    Args:
        points: Points of shape `(2, ...)`.

    Returns:
        Two arrays with the points' trailing shape.
    """
    x, y = jax.lax.split(points, (1, 1))
    return x[0], y[0]


def to_pixels(
    points: Points, height: int, width: int
) -> tuple[Float[Array, "*grid"], Float[Array, "*grid"]]:
    """Points in [-1, 1]² to fractional (column, row) indices; pixel centres are whole numbers.

    Args:
        points: Points of shape `(2, ...)`.
        height: Rows of the image.
        width: Columns of the image.

    Returns:
        Columns and rows, each with the points' trailing shape.
    """
    x, y = planes(points)
    return (x + 1.0) * (width / 2.0) - 0.5, (y + 1.0) * (height / 2.0) - 0.5


def _reflected(position: Float[Array, "*grid"], size: int) -> Float[Array, "*grid"]:
    """Positions mirrored at the outer edges -0.5 and size - 0.5, until they lie between them."""
    from_edge = jnp.mod(position + 0.5, 2.0 * size)
    return jnp.minimum(from_edge, 2.0 * size - from_edge) - 0.5


def _cell(
    position: Float[Array, "*grid"], size: int, boundary: Boundary
) -> tuple[Int[Array, "*grid"], Float[Array, "*grid"]]:
    """The lower index into an axis padded by two on both sides, and the fraction beyond it."""
    low, high = (-2.0, float(size)) if boundary == "zero" else (0.0, size - 1.0)
    if boundary == "zero":
        # Far outside lies a cell whose corners are all black, so that derivatives are zero there.
        # Other positions are within these bounds; cut once more, one on a bound would lose slope.
        position = jnp.clip(position, low, high)
    # fmin and fmax keep a NaN out of the index (an unchecked gather must stay in bounds), while
    # the fraction, and so the sample, stays NaN and is found later.
    floor = jnp.floor(jnp.fmax(jnp.fmin(position, high), low))
    return floor.astype(jnp.int32) + 2, position - floor


def check_image(image: Array) -> None:
    """Refuses an array that is not one image.

    Args:
        image: The array.

    Raises:
        ValueError: If it has more or fewer axes.
    """
    if image.ndim != 3:
        raise ValueError(
            f"an image must be (height, width, channels), not of shape {image.shape}; "
            "image[..., None] adds a channel to a grey one, and jax.vmap takes several"
        )


@with_auto_axes
def bilinear_sample(
    image: Image, points: Points, *, boundary: Boundary = "zero"
) -> Float[Array, "*grid channels"]:
    """Reads an image at arbitrary points by bilinear interpolation.

    Linear in the image (A(ν)x of ST K-means, App. A.5) and piecewise smooth in the points, with a
    kink where a point crosses a pixel centre. The exponents printed in DI K-means, App. 10 have
    their deltas exchanged: the corner `t = 0` weighs one minus the fraction.

    Args:
        image: Image of shape `(height, width, channels)`.
        points: Points of shape `(2, ...)` in [-1, 1]²; others fall outside the image.
        boundary: What lies outside the image: `"zero"` (the border fades out over one pixel),
            `"edge"` or `"reflect"`.

    Returns:
        The samples, of the points' trailing shape and then channels.

    Raises:
        ValueError: If the image has more or fewer axes, or there are no two coordinates first.

    References:
        Cosentino et al., DI K-means, App. 10; Jaderberg et al. (2015), Spatial transformer
        networks.
    """
    check_image(image)
    if points.shape[:1] != (2,):
        raise ValueError(f"points must be of shape (2, ...), x and y first, not {points.shape}")
    height, width = image.shape[:2]
    columns, rows = to_pixels(points, height, width)
    if boundary == "reflect":
        columns, rows = _reflected(columns, width), _reflected(rows, height)
    if boundary != "zero":
        # Outside an image does not change; so it has no slope there, either.
        columns, rows = jnp.clip(columns, 0.0, width - 1.0), jnp.clip(rows, 0.0, height - 1.0)
    # In one flat row: CPUs read pixels one at a time where a grid is broken into rows.
    samples = set_apart(_interpolate(boundary, image, columns.reshape(-1), rows.reshape(-1)))
    return samples.reshape(*points.shape[1:], image.shape[2])


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _interpolate(
    boundary: Boundary,
    image: Image,
    columns: Float[Array, " points"],
    rows: Float[Array, " points"],
) -> Float[Array, "points channels"]:
    """Interpolates bilinearly between the corners of cells."""
    column, dx = _cell(columns, image.shape[1], boundary)
    row, dy = _cell(rows, image.shape[0], boundary)
    # Four gathers of single pixels, which a CPU reads many of at a time.
    width = image.shape[1] + 4
    flat = _padded(image, boundary).reshape(-1, image.shape[2])
    first = row * width + column
    steps = (0, 1, width, width + 1)
    top_left, top_right, low_left, low_right = (_read(flat, first + n) for n in steps)
    dx, dy = dx[:, None], dy[:, None]
    return _mean(_mean(top_left, top_right, dx), _mean(low_left, low_right, dx), dy)


def _interpolate_jvp(
    boundary: Boundary, primals: tuple[Array, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    image, columns, rows = primals
    d_image, *d_points = tangents
    column, dx = _cell(columns, image.shape[1], boundary)
    row, dy = _cell(rows, image.shape[0], boundary)
    index = row * (image.shape[1] + 3) + column

    def value_and_slopes(channel: Image) -> list[Array]:
        # One gather of all corners, which the derivatives by the points then have at hand.
        corners = _read(_corners(channel, boundary), index).T
        top_left, top_right, low_left, low_right = corners.astype(jnp.result_type(corners, dx))
        top, bottom = _mean(top_left, top_right, dx), _mean(low_left, low_right, dx)
        across = _mean(top_right - top_left, low_right - low_left, dy)
        return [_mean(top, bottom, dy), across, bottom - top]

    def of_channel(channel: Image, d_channel: Image | None) -> tuple[Array, Array]:
        value, *slopes = value_and_slopes(channel)
        tangent = jnp.zeros_like(value) if d_channel is None else value_and_slopes(d_channel)[0]
        for slope, d_point in zip(slopes, d_points, strict=True):
            if not isinstance(d_point, SymbolicZero):
                tangent += slope * d_point
        return value, tangent

    # Channel by channel: on CPUs XLA makes the derivative of all together more slowly.
    count = image.shape[2]
    still = isinstance(d_image, SymbolicZero)
    d_channels = [None] * count if still else jnp.split(d_image, count, axis=-1)
    each = map(of_channel, jnp.split(image, count, axis=-1), d_channels)
    value, tangent = (jnp.stack(arrays, axis=-1) for arrays in zip(*each, strict=True))
    return value, tangent


_interpolate.defjvp(_interpolate_jvp, symbolic_zeros=True)


def _read(
    rows: Float[Array, "rows width"], index: Int[Array, " points"]
) -> Float[Array, "points width"]:
    """Rows by indices that are known to be in bounds and not negative."""
    return rows.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def _mean(first: Array, second: Array, share: Array) -> Array:
    """The mean of two arrays, with the second's share."""
    return first * (1.0 - share) + second * share


@jax.custom_jvp
def set_apart(image: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns the same array, computed before what is done with it.

    On CPUs XLA fuses the making of an image into a sum over its pixels, such as a distance, and
    then makes the image many times more slowly (1280 warps of 28 x 28 and their distances: 64 ms
    against 6 ms). It does not fuse across a clamp, though this one clamps nothing;
    `jax.lax.optimization_barrier` is gone by then.

    Args:
        image: Any array.

    Returns:
        The array, NaN and infinities included.
    """
    bound = jnp.asarray(jnp.inf, image.dtype)
    return jax.lax.clamp(-bound, image, bound)


# A clamp's own derivative stops at infinities.
set_apart.defjvps(lambda tangent, result, image: tangent)


def _padded(
    image: Image, boundary: Boundary
) -> Float[Array, "padded_height padded_width channels"]:
    """An image with two pixels of its surroundings on each side."""
    mode = "constant" if boundary == "zero" else "edge"
    return jnp.pad(image, ((2, 2), (2, 2), (0, 0)), mode=mode)


def _corners(image: Image, boundary: Boundary) -> Float[Array, "cells corners"]:
    """The four corners of every cell side by side, so that a sample is one gather, not four."""
    padded = _padded(image, boundary)
    shifted = [padded[:-1, :-1], padded[:-1, 1:], padded[1:, :-1], padded[1:, 1:]]
    return jnp.concatenate(shifted, axis=-1).reshape(-1, 4 * image.shape[2])


def _lowpass_matrix(size: int, sigma: float, factor: int) -> Float[np.ndarray, "out size"]:
    """Rows of Gaussian weights around the centres of `factor` times coarser pixels."""
    out = max(1, -(-size // factor))
    centres = (np.arange(out) + 0.5) * (size / out) - 0.5
    offset = centres[:, None] - np.arange(size)[None, :]
    if sigma <= 0.0:
        return np.maximum(0.0, 1.0 - np.abs(offset))
    weights = np.exp(-0.5 * (offset / sigma) ** 2)
    # Divided by the whole Gaussian's mass, not by the row's: outside the image is black.
    mass = np.exp(-0.5 * (np.arange(-size * 4, size * 4 + 1) / sigma) ** 2).sum()
    return weights / mass


def low_pass(
    image: Float[Array, "*size channels"], *, sigma: float, factor: int = 1
) -> Float[Array, "*coarse channels"]:
    """A Gaussian low-pass filter followed by subsampling, black outside the image.

    Args:
        image: Image of shape `(height, width, channels)`, or an array with another number of axes
            before the channels: a series `(length, channels)`, a volume.
        sigma: Standard deviation in pixels of the given image; 0 filters nothing.
        factor: Keep every `factor`-th pixel; points in [-1, 1]² keep their meaning.

    Returns:
        Image of shape `(⌈height / factor⌉, ⌈width / factor⌉, channels)`.

    References:
        Cosentino et al., DI K-means, App. 8 (low-pass filtering before the affine alignment).
    """
    if sigma <= 0.0 and factor == 1:
        return image
    matrices = [
        jnp.asarray(_lowpass_matrix(side, sigma, factor), dtype=image.dtype)
        for side in image.shape[:-1]
    ]
    if len(matrices) == 2:
        rows, columns = matrices
        return jnp.einsum("ih,hwc,jw->ijc", rows, image, columns, precision="highest")
    for axis, matrix in enumerate(matrices):
        moved = jnp.tensordot(matrix, image, (1, axis), precision="highest")
        image = jnp.moveaxis(moved, 0, axis)
    return image


def gaussian_window(
    height: int, width: int, *, sigma: float, dtype: jnp.dtype | None = None
) -> Float[Array, "height width 1"]:
    """A Gaussian around the centre of an image, as a weight of its pixels.

    Args:
        height: Number of rows.
        width: Number of columns.
        sigma: Standard deviation in pixels.
        dtype: Floating dtype; JAX's default where it is not given.

    Returns:
        Weights, one in the centre.

    Raises:
        ValueError: If it is so narrow that every pixel has weight zero.

    References:
        Monnier et al., DTI clustering, Sec. 5.1 (σ = 7 for SVHN).
    """
    down, across = (np.arange(side) - 0.5 * (side - 1) for side in (height, width))
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.exp(-0.5 * (down[:, None] ** 2 + across[None, :] ** 2) / np.square(sigma))
    dtype = np.dtype(jnp.result_type(float) if dtype is None else dtype)
    if not weights.max() >= jnp.finfo(dtype).tiny:
        raise ValueError(
            f"a window of {sigma:.2g} pixels gives every pixel of {height}×{width} weight zero; "
            "give a wider one"
        )
    return jnp.asarray(weights[..., None], dtype=dtype)


def block_means(
    images: Float[np.ndarray, "n height width channels"], most: int
) -> Float[np.ndarray, "n rows columns channels"]:
    """Means of square blocks of pixels, the smallest that leave at most so many a side.

    Args:
        images: Images, on the host.
        most: Blocks along the longer side, at most.

    Returns:
        The means. Blocks that the right or the lower edge cuts count as black where they are cut.
    """
    side = -(-max(images.shape[1:3]) // most)
    for axis in (1, 2):
        images = np.add.reduceat(images, np.arange(0, images.shape[axis], side), axis=axis)
    return (images / side**2).astype(np.float32)
