"""Closed-form registration of images by their moments: place, size and slant are removed.

The results are params of `diffclust.transforms.Affine`, so they can be applied, composed, inverted
and saved like any others. Rotations and reflections are kept: a 6 is not a 9.

Bright pixels count as the object, in proportion to their brightness; dark or coloured objects on a
light background are first made bright (`diffclust.registration.colours`). Everything bright counts:
clutter shifts the centre of mass, and an object that the border cuts off is registered by its
visible part.

References:
    Hu (1962), Visual pattern recognition by moment invariants, Sec. III and IV; LeCun et al.
    (1998), Gradient-based learning applied to document recognition, Sec. VII.D (deslanting).
"""

import functools
import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust._sharding import with_auto_axes
from diffclust.linalg import safe_sqrt
from diffclust.masks import as_mask, check_mask_size, mask_weights
from diffclust.sampling import pixel_grid, planes
from diffclust.types import Image, Params, Points, Scalar

RADIUS = 5.5 / 28
"""Root mean square distance of the object from its centre along an axis, as a fraction of the
shorter
side: about that of MNIST's digits."""

PHOTO_RADIUS = 6.5 / 28
"""The same for photographs, whose background and surroundings are kept."""

MOST_SHEAR = 1.0
"""The largest shear that is removed: the tangent of 45 degrees."""

_FAINT = 0.05
"""Pixels below this share of the largest weight may leave the canvas."""

_SPECK = 0.5
"""Below this share, an isolated pixel, with only faint ones around it, may leave it too."""


class _Ink(NamedTuple):
    """The object in an image, in units of half the shorter side.

    Attributes:
        weight: Share of the object at each pixel; all zero if there is none, or if all pixels are
            alike.
        points: The pixels' positions relative to the centre of mass.
        centre: The centre of mass.
        sides: Half the width and half the height.
        pixel: Side of a pixel.
    """

    weight: Float[Array, "height width"]
    points: Points
    centre: Float[Array, "2"]
    sides: tuple[float, float]
    pixel: float


def _ink(image: Image, mask: Any) -> _Ink:
    _validation.floating(image, "image")
    height, width = image.shape[:2]
    shorter = min(height, width)
    sides = (width / shorter, height / shorter)
    x, y = planes(pixel_grid(height, width, image.dtype))
    points = jnp.stack([x * sides[0], y * sides[1]])
    weight = jnp.sum(jnp.maximum(image, 0.0), axis=2)
    check_mask_size(text := as_mask(mask), height, width)
    visible = None if text is None else mask_weights(text)[..., 0]
    shown = weight if visible is None else weight[visible > 0.0]
    # There is no object in a single colour.
    weight = jnp.where(jnp.max(shown) > jnp.min(shown), weight, 0.0)
    if visible is not None:
        weight = weight * jnp.asarray(visible, weight.dtype)
    mass = jnp.sum(weight)
    weight = weight / jnp.where(mass > 0.0, mass, 1.0)
    centre = jnp.sum(weight[None] * points, axis=(1, 2))
    return _Ink(weight, points - centre[:, None, None], centre, sides, 2.0 / shorter)


def _is_extended(square: Scalar, pixel: float) -> Array:
    """Whether a variance exceeds that of two adjacent pixels, or of four."""
    return square > 1.01 * (0.5 * pixel) ** 2


def _shear(ink: _Ink) -> Scalar:
    """Shift of the object to the right per unit downwards."""
    x, y = planes(ink.points)
    across, down = jnp.sum(ink.weight * x * y), jnp.sum(ink.weight * y * y)
    leans = _is_extended(down, ink.pixel)
    return jnp.where(
        leans, jnp.clip(across / jnp.where(leans, down, 1.0), -MOST_SHEAR, MOST_SHEAR), 0.0
    )


def _size(ink: _Ink, shear: Scalar, radius: float, whole: bool) -> Scalar:
    """Ratio of the size of the upright object to the wanted one; if `whole`, such that it fits."""
    x, y = planes(ink.points)
    x = x - shear * y
    square = 0.5 * jnp.sum(ink.weight * (x * x + y * y))
    wanted = safe_sqrt(square) / (2.0 * radius)
    if whole:
        wanted = jnp.maximum(wanted, _reach(ink, x, y))
    return jnp.where(_is_extended(square, ink.pixel), wanted, 1.0)


def _reach(ink: _Ink, x: Float[Array, "height width"], y: Float[Array, "height width"]) -> Scalar:
    """How far the object reaches from its centre, in canvases: at 1 it ends at the border.

    The object ends where it becomes faint, interpolated between two pixels, so that the distance
    changes smoothly as it moves. A pixel of noise, with only faint ones around it, does not count.
    """
    largest = jnp.max(ink.weight)
    faint = _FAINT * largest
    around = jnp.pad(ink.weight, 1)
    height, width = ink.weight.shape
    places = itertools.product(range(3), range(3))
    near = [around[i : i + height, j : j + width] for i, j in places if (i, j) != (1, 1)]
    is_speck = (ink.weight < _SPECK * largest) & (functools.reduce(jnp.maximum, near) <= faint)
    beside = (around[1:-1, 2:], around[1:-1, :-2], around[2:, 1:-1], around[:-2, 1:-1])
    ends = []
    for along, after in zip((x, -x, y, -y), beside, strict=True):
        last = (ink.weight > faint) & (after <= faint) & ~is_speck
        share = (ink.weight - faint) / jnp.where(last, ink.weight - after, 1.0)
        ends.append(jnp.max(jnp.where(last, along + share * ink.pixel, 0.0)))
    across, down = (0.5 * ink.pixel + side for side in ink.sides)
    return jnp.maximum(jnp.maximum(ends[0], ends[1]) / across, jnp.maximum(ends[2], ends[3]) / down)


def _affine(ink: _Ink, size: Scalar, shear: Scalar, shift: Float[Array, "2"]) -> Params:
    """The map that reads at shift + size (u + shear · u_y along x)."""
    across, down = ink.sides
    less, zero = size - 1.0, jnp.zeros_like(size)
    moved = jnp.split(shift, 2)
    linear = jnp.stack([less, size * shear * (down / across), zero, less])
    return jnp.concatenate([linear, moved[0] / across, moved[1] / down])


@with_auto_axes
def place(image: Image, *, mask: Any = None, radius: float = RADIUS, whole: bool = True) -> Params:
    """Moves the centre of mass to the middle, and scales the root mean square radius to one size.

    An image without an object, or of a single colour, is unchanged; one with an object no larger
    than 2×2 pixels is moved but keeps its size.

    Args:
        image: Bright on dark.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.
        radius: Wanted value of sqrt((v_x + v_y) / 2), as a fraction of the shorter side.
        whole: Whether the object is kept smaller if it would otherwise leave the canvas.

    Returns:
        Params of `Affine`.

    Raises:
        ValueError: If intensities are whole numbers.
    """
    ink = _ink(image, mask)
    shear = jnp.zeros_like(ink.weight[0, 0])
    return _affine(ink, _size(ink, shear, radius, whole), shear, ink.centre)


@with_auto_axes
def slant(image: Image, *, mask: Any = None) -> Params:
    """Removes the slant by shearing x by c_xy / v_y about the centre of mass.

    A shear of more than 1 is removed only in part, and none if the object is no higher than two
    pixels. The canvas clips whatever leaves it; see `upright`.

    Args:
        image: Bright on dark.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.

    Returns:
        Params of `Affine`.

    Raises:
        ValueError: If intensities are whole numbers.
    """
    ink = _ink(image, mask)
    shear = _shear(ink)
    shift = jnp.zeros_like(ink.centre).at[0].set(-shear * ink.centre[1])
    return _affine(ink, jnp.ones_like(shear), shear, shift)


@with_auto_axes
def upright(
    image: Image, *, mask: Any = None, radius: float = RADIUS, whole: bool = True
) -> Params:
    """Removes the slant, then the size, then the place; the image is sampled once.

    Args:
        image: Bright on dark.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.
        radius: Wanted value of sqrt((v_x + v_y) / 2), as a fraction of the shorter side.
        whole: Whether the object is kept smaller if it would otherwise leave the canvas.

    Returns:
        Params of `Affine`: those of `slant`, composed with those that `place` finds for the upright
        image.

    Raises:
        ValueError: If intensities are whole numbers.
    """
    ink = _ink(image, mask)
    shear = _shear(ink)
    return _affine(ink, _size(ink, shear, radius, whole), shear, ink.centre)
