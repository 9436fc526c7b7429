"""The background of images and their colours, in closed form: a bright object on black remains.

The background's colour is found from the border; it may be uniform or change linearly across the
image. The results are params of `diffclust.transforms.Colour`: one set removes the background, and
one mixes the remaining channels, so that pictures can be restored.

References:
    Monnier et al., DTI clustering, App. A (MNIST-color); Pearson (1901), On lines and planes of
    closest fit, for the principal axis.
"""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust._sharding import varying_like
from diffclust.features.contrast import LEAST_CONTRAST
from diffclust.linalg import product, safe_sqrt
from diffclust.masks import as_mask, check_mask_size, mask_weights
from diffclust.transforms import Colour
from diffclust.types import Image, Params, Scalar

Ink = Literal["none", "dark", "light", "colour", "keep"]
"""What the background is, and hence what counts as the object. `"none"`: nothing is done. `"dark"`:
whatever is brighter than a dark background. `"light"`: whatever is darker than a light one.
`"colour"`: whatever lies on the main axis of the colours, on the side with more of it; the image
becomes grey. `"keep"`: whatever differs from the background is the object for placing images, and
their colours and background are kept."""

_NUMBERS = 7
"""How many of an image's votes are scalars."""

_GAIN = 0.5
"""The background changes across the image if that leaves less than this share of the residual that
a uniform background leaves at the border."""

_STRAYS = 4.0
"""Whatever is below this multiple of the border's median deviation from the background is not the
object."""

_ROUNDS, _SHADOW, _LEAST_SHARE = 6, 0.3, 0.15
"""For `figure`: rounds of reweighting; weight of darker pixels of the background's colour; share of
the largest difference below which there is no object."""

_PLAIN, _BLACK, _MAJORITY, _TWO_COLOURED = 0.2, 0.002, 0.9, 0.85
"""For `choose_ink`: the largest deviation of a plain background's border, as a share of the
contrast; the lightest background that counts as black, half an 8-bit level; the share of votes that
decides what the object is; the smallest share of the main axis in pictures of two colours
(`experiments.photographs.run` prints that of photographs)."""

_CLOSE, _PURE = 0.25, 0.8
"""A border is background, and hardly object, if at least the second share of its pixels
differs from the background by at most the first share of the contrast."""

_MOST = 0.75
"""For `choose_ink`, if borders are not background: the background is black if a quarter of the
border is black in this share of the images."""

_DEVIATION_STEPS = 30
"""Weighted least squares that find least absolute deviations."""

_ONE_GROUND, _INKS_APART = 0.05, 0.03
"""For `choose_ink`: the largest median distance of backgrounds of one colour from their median; how
much shorter than 1 the mean direction of objects of several colours must be."""


@functools.lru_cache(maxsize=16)
def _border(height: int, width: int, mask: str | None) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Flat indices of the border's left, right, upper and lower parts and of all; points `[n, 2]`.

    With a mask, the border consists of the outermost visible pixels.
    """
    import scipy.ndimage

    check_mask_size(mask, height, width)
    seen = np.ones((height, width), bool) if mask is None else mask_weights(mask)[..., 0] > 0.0
    inner = scipy.ndimage.binary_erosion(scipy.ndimage.binary_fill_holes(seen))
    ring = seen & ~inner
    x = (2.0 * np.arange(width) + 1.0) / width - 1.0
    y = (2.0 * np.arange(height) + 1.0) / height - 1.0
    x, y = np.broadcast_arrays(x[None, :], y[:, None])
    beside = np.abs(x) >= np.abs(y)
    parts = (beside & (x < 0), beside & (x > 0), ~beside & (y < 0), ~beside & (y > 0))
    # JAX remembers a constant's type: a 64-bit one would fail if x64 is switched on later.
    indices = tuple(np.flatnonzero(ring & part).astype(np.int32) for part in (*parts, True))
    return indices, np.stack([x.ravel(), y.ravel()], axis=1)


def ground(image: Image, *, ink: Ink = "colour", mask: Any = None) -> Params:
    """The shift of colours that makes the background black.

    The median colour of each side of the border is taken. If the plane through these (of a masked
    image, the plane with the least absolute residuals on the border) leaves less than half of the
    residual that the median of the whole border leaves, the background changes linearly; otherwise
    it is that median. So an object may touch the border, as long as more than half of every side is
    background. If the object is known to be brighter or darker, less is enough: if more than a
    fifth of the border differs from that background by a quarter of the contrast, and the
    background changes or the image is on average darker, or brighter, than it, the background is
    the level that a quarter of the border does not exceed, or does not fall below.

    Args:
        image: Any image.
        ink: What counts as the object; only `"dark"` and `"light"` say how it differs from the
            background.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights. The
            border is that of the visible pixels.

    Returns:
        Params of `Colour(channels, gradient=True)`, with zero gains.

    Raises:
        ValueError: If intensities are whole numbers.
    """
    _validation.floating(image, "image")
    height, width, channels = image.shape
    (left, right, above, below, ring), points = _border(height, width, as_mask(mask))
    flat = image.reshape(-1, channels)
    at = jnp.asarray(points[ring], image.dtype)

    def slope(first: np.ndarray, second: np.ndarray, axis: int) -> Float[Array, " channels"]:
        if not (first.size and second.size):
            return jnp.zeros((channels,), image.dtype)
        apart = float(points[second, axis].mean() - points[first, axis].mean())
        return (jnp.median(flat[second], axis=0) - jnp.median(flat[first], axis=0)) / apart

    slopes = jnp.stack([slope(left, right, 0), slope(above, below, 1)])
    if mask is not None:
        # What a mask leaves of the border need not have four sides.
        slopes = jax.vmap(_least_deviations, (None, 1), 1)(at, flat[ring])
    rest = flat[ring] - product(at, slopes)
    flat_level, level = jnp.median(flat[ring], axis=0), jnp.median(rest, axis=0)
    uniform = jnp.sum(jnp.abs(flat[ring] - flat_level[None]))
    changes = jnp.sum(jnp.abs(rest - level[None])) < _GAIN * uniform
    level = jnp.where(changes, level, flat_level)
    slopes = jnp.where(changes, slopes, 0.0)

    def shift(level: Float[Array, " channels"], slopes: Float[Array, "2 channels"]) -> Params:
        return jnp.concatenate([jnp.zeros_like(level), -level, -slopes.reshape(-1)])

    if ink in ("dark", "light"):
        foreground = without_ground(image, shift(level, slopes), mask=mask)
        share, method, sign = (0.25, "lower", 1.0) if ink == "dark" else (0.75, "higher", -1.0)
        mixed = _pure(foreground.reshape(-1, channels), ring) < _PURE
        # A border of two backgrounds, such as noise beside silence, is mixed, too.
        wrong = mixed & (changes.any() | (sign * jnp.sum(foreground) < 0.0))
        quarter = jnp.quantile(flat[ring], share, axis=0, method=method)
        level = jnp.where(wrong, quarter, level)
        slopes = jnp.where(wrong, 0.0, slopes)
    return shift(level, slopes)


def _least_deviations(points: Float[Array, "n 2"], values: Float[Array, " n"]) -> Float[Array, "2"]:
    """Slopes of the plane with the least absolute residuals, by reweighted least squares."""
    columns = jnp.concatenate([jnp.ones_like(points[:, :1]), points], axis=1)
    middle = jnp.median(values)
    least = 1e-5 * jnp.max(jnp.abs(values - middle)) + jnp.finfo(values.dtype).tiny

    def step(_: Array | int, plane: Float[Array, "3"]) -> Float[Array, "3"]:
        weight = least / jnp.maximum(jnp.abs(values - middle - product(columns, plane)), least)
        weighted = columns * weight[:, None]
        # A border that is a single line has no slope across.
        ridge = 1e-6 * jnp.sum(weight) * jnp.eye(3, dtype=values.dtype)
        return jnp.linalg.solve(
            product(weighted.T, columns) + ridge, product(weighted.T, values - middle)
        )

    start = varying_like(jnp.zeros((3,), values.dtype), values)
    return jax.lax.fori_loop(0, _DEVIATION_STEPS, step, start)[1:]


def _pure(foreground: Float[Array, "pixels channels"], ring: np.ndarray) -> Scalar:
    """The share of the border within a quarter of the contrast from the background."""
    differs = jnp.max(jnp.abs(foreground), axis=1)
    return jnp.mean((differs[ring] <= _CLOSE * jnp.max(differs)).astype(foreground.dtype))


def without_ground(image: Image, params: Params, *, mask: Any = None) -> Image:
    """An image with its background subtracted.

    Args:
        image: Any image.
        params: The result of `ground`.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.
            Hidden pixels become 0.

    Returns:
        The differences, of either sign.
    """
    foreground, mask = Colour(image.shape[2], gradient=True)(params, image), as_mask(mask)
    if mask is None:
        return foreground
    check_mask_size(mask, *image.shape[:2])
    return foreground * jnp.asarray(mask_weights(mask) > 0.0, image.dtype)


def colour(foreground: Image, ink: Ink, *, mask: Any = None) -> Params:
    """The mix of channels that makes the object bright, in the range 0 to 1.

    Args:
        foreground: An image with its background subtracted.
        ink: What counts as the object: `"dark"`, `"light"` or `"colour"`. With the last, all
            channels become the projection on the first principal axis through the background's
            colour, with positive sum.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.

    Returns:
        Params of `Colour(channels, full=True)`. Their shifts bring noise below 0: four times the
        median of the border's deviations from the background or, if larger, of the upper quartile
        minus that median, as for noise clipped at black. If no object is visible, everything
        becomes 0.

    Raises:
        ValueError: If colours are kept with this setting.
    """
    if ink not in ("dark", "light", "colour"):
        raise ValueError(f"ink must be 'dark', 'light' or 'colour', not {ink!r}")
    channels = foreground.shape[2]
    unit = jnp.eye(channels, dtype=foreground.dtype)
    if ink == "colour":
        axis, _ = _principal_axis(foreground)
        total = jnp.sum(jnp.sum(foreground, axis=(0, 1)) * axis)
        axis = jnp.where(total < 0.0, -axis, axis)
        mix = jnp.broadcast_to(axis[None], unit.shape)
    else:
        mix = unit if ink == "dark" else -unit
    bright = jnp.einsum("dc,hwc->hwd", mix, foreground, precision="highest")
    ring = _border(*foreground.shape[:2], as_mask(mask))[0][-1]
    stray = jnp.abs(bright.reshape(-1, channels)[ring])
    middle, upper = jnp.median(stray), jnp.quantile(stray, 0.75)
    # Noise that was clipped at black is half zero. A larger quartile is an object at the border.
    upper = jnp.where(upper < _PLAIN * jnp.max(bright), upper, 0.0)
    noise = _STRAYS * jnp.maximum(middle, upper - middle)
    # In a picture that reaches the border everywhere, nothing is treated as noise.
    noise = jnp.where(jnp.max(bright) - noise > LEAST_CONTRAST, noise, 0.0)
    largest = jnp.max(bright) - noise
    shown = largest > LEAST_CONTRAST
    scale = jnp.where(shown, 1.0 / jnp.where(shown, largest, 1.0), 0.0)
    shift = jnp.broadcast_to(-noise * scale, (channels,))
    return jnp.concatenate([(mix * scale - unit).reshape(-1), shift])


def figure(image: Image, *, mask: Any = None) -> Float[Array, "height width 1"]:
    """Difference of every pixel from a smooth background, with less weight on shadows.

    The background is a plane and a vignette in each channel, fitted by reweighted least squares
    from the border inwards. A pixel that differs only in brightness and is darker than the
    background, as a shadow is, counts three tenths.

    Args:
        image: Any image.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.

    Returns:
        Non-negative differences; zero below four times the border's deviation from the background
        and below 0.15 of the largest.

    References:
        Holland and Welsch (1977), Robust regression using iteratively reweighted least-squares.
    """
    _validation.floating(image, "image")
    height, width, channels = image.shape
    mask = as_mask(mask)
    indices, points = _border(height, width, mask)
    x, y = points.T
    basis = jnp.asarray(np.stack([np.ones_like(x), x, y, x * x + y * y], axis=1), image.dtype)
    flat, ring = image.reshape(-1, channels), indices[-1]
    seen = jnp.ones((len(x), 1), image.dtype)
    if mask is not None:
        seen = jnp.asarray(mask_weights(mask).reshape(-1, 1) > 0.0, image.dtype)
    weight = jnp.zeros_like(seen).at[ring].set(1.0)
    smooth = stray = jnp.zeros_like(flat)
    for _ in range(_ROUNDS):
        scatter = product(basis.T, weight * basis) + 1e-6 * jnp.eye(4, dtype=image.dtype)
        smooth = product(basis, jnp.linalg.solve(scatter, product(basis.T, weight * flat)))
        stray = safe_sqrt(jnp.sum((flat - smooth) ** 2, axis=1, keepdims=True))
        width_of = 3.0 * jnp.median(stray[ring]) + LEAST_CONTRAST
        weight = seen / (1.0 + (stray / width_of) ** 2) ** 2
    hue = smooth / jnp.maximum(safe_sqrt(jnp.sum(smooth**2, axis=1, keepdims=True)), 1e-3)
    lighter = jnp.sum((flat - smooth) * hue, axis=1, keepdims=True)
    rest = flat - smooth - lighter * hue
    lighter = jnp.where(lighter < 0.0, _SHADOW * lighter, lighter)
    contrast = seen * safe_sqrt(jnp.sum(rest**2, axis=1, keepdims=True) + lighter**2)
    contrast = _blurred(contrast.reshape(height, width))
    noise = _STRAYS * jnp.median(contrast.reshape(-1)[ring])
    least = jnp.maximum(jnp.maximum(noise, _LEAST_SHARE * jnp.max(contrast)), LEAST_CONTRAST)
    return jnp.where(contrast > least, contrast, 0.0)[..., None]


def _blurred(plane: Float[Array, "height width"]) -> Float[Array, "height width"]:
    """The mean over 3×3 pixels, with the edge repeated."""
    around = jnp.pad(plane, 1, mode="edge")
    rows = around[:-2] + around[1:-1] + around[2:]
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9.0


def _principal_axis(foreground: Image) -> tuple[Float[Array, " channels"], Scalar]:
    """The first principal axis of colours through 0, and its share of their squared norms."""
    flat = foreground.reshape(-1, foreground.shape[2])
    second = power = product(flat.T, flat)
    for _ in range(10):
        # Squared repeatedly, so that only the largest eigenvalue's vector is left.
        trace = jnp.trace(power)
        power = power / jnp.where(trace > 0.0, trace, 1.0)
        power = product(power, power)
    axis = jnp.take(power, jnp.argmax(jnp.diagonal(power)), axis=0)
    length = safe_sqrt(jnp.sum(axis**2))
    axis = axis / jnp.where(length > 0.0, length, 1.0)
    trace = jnp.trace(second)
    return axis, product(axis, second, axis) / jnp.where(trace > 0.0, trace, 1.0)


def ink_votes(image: Image, *, mask: Any = None) -> Float[Array, " votes"]:
    """Votes of one image on the background and the object of its set.

    Args:
        image: Any image.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for uniform weights.

    Returns:
        Lightness of the background; deviation of the border from it; contrast; how much more of the
        image is lighter than the background than darker, from -1 to 1; after noise is smoothed
        away, the share of the colours' main axis, and the share of the border that is close to the
        background; the lightness that a quarter of the border does not exceed; the background's
        colour in each channel; and the direction in which the object differs from it in each
        channel.
    """
    shift = ground(image, mask=mask)
    foreground = without_ground(image, shift, mask=mask)
    ring = _border(*image.shape[:2], as_mask(mask))[0][-1]
    channels = image.shape[2]
    level = -jnp.mean(shift[channels : 2 * channels])
    stray = jnp.median(jnp.max(jnp.abs(foreground), axis=2).reshape(-1)[ring])
    lightness = jnp.mean(foreground, axis=2)
    total = jnp.sum(jnp.abs(lightness))
    vote = jnp.sum(lightness) / jnp.where(total > 0.0, total, 1.0)
    contrast = jnp.max(jnp.abs(foreground))
    smooth = jnp.stack([_blurred(foreground[..., i]) for i in range(channels)], axis=2)
    # Regions with more of the object have more weight.
    ink = jnp.sum(smooth * jnp.sum(smooth**2, axis=2, keepdims=True), axis=(0, 1))
    length = safe_sqrt(jnp.sum(ink**2))
    ink = ink / jnp.where(length > 0.0, length, 1.0)
    pure, share = _pure(smooth.reshape(-1, channels), ring), _principal_axis(smooth)[1]
    quarter = jnp.quantile(jnp.mean(image, axis=2).reshape(-1)[ring], 0.25, method="lower")
    numbers = jnp.stack([level, stray, contrast, vote, share, pure, quarter])
    return jnp.concatenate([numbers, -shift[channels : 2 * channels], ink])


def stray_of_ground(votes: Float[np.ndarray, "n votes"]) -> float:
    """How far borders stray from the background in a set of images.

    Args:
        votes: `ink_votes` of some images.

    Returns:
        The median, as a share of an image's contrast; 0 if all are blank.
    """
    votes = votes[votes[:, 2] > LEAST_CONTRAST]
    return float(np.median(votes[:, 1] / votes[:, 2])) if len(votes) else 0.0


def choose_ink(votes: Float[np.ndarray, "n votes"], channels: int) -> Ink | None:
    """Chooses what counts as the object in a set of images, even if single images are doubtful.

    Args:
        votes: `ink_votes` of some images.
        channels: Channels of the images.

    Returns:
        `"none"` if nearly all backgrounds are black and objects are lighter; `"dark"` or `"light"`
        if nearly all images agree, or if most do and objects fill the images, so that single
        borders say little; `"colour"` if they do not agree; None if most images have no plain
        background. With several channels, `"colour"` if images have two colours each, and `"keep"`
        if they have more, like photographs, or if objects of several colours lie on backgrounds of
        one colour, since colours then distinguish the images.
    """
    votes = votes[votes[:, 2] > LEAST_CONTRAST]
    if not len(votes):
        return "none"
    if np.ptp(votes[:, _NUMBERS:].reshape(-1, 2, channels), axis=2).max() < LEAST_CONTRAST:
        # Grey pictures that were saved in colour are grey.
        channels = 1
    level, _, contrast, vote, share, pure, quarter = votes[:, :_NUMBERS].T
    # For images in units other than [0, 1].
    unit = max(1.0, float(np.median(contrast)))
    if stray_of_ground(votes) > _PLAIN:
        return None
    lighter = np.sum(np.maximum(vote, 0.0)) / max(float(np.sum(np.abs(vote))), 1e-12)
    if channels > 1:
        grounds, inks = np.split(votes[:, _NUMBERS:], 2, axis=1)
        strays = np.max(np.median(np.abs(grounds - np.median(grounds, axis=0)), axis=0)) / unit
        apart = 1.0 - np.linalg.norm(np.mean(inks, axis=0))
        tells = strays < _ONE_GROUND and apart > _INKS_APART
        two_coloured = np.quantile(share, 1.0 - _MAJORITY) > _TWO_COLOURED
        return "colour" if two_coloured and not tells else "keep"
    is_black = np.quantile(level, _MAJORITY) < _BLACK * unit
    if np.median(pure) < _PURE:
        # Single borders say little about the background, and nothing about what the object is.
        is_black |= np.quantile(quarter, _MOST) < _BLACK * unit
    elif 1.0 - _MAJORITY < lighter < _MAJORITY:
        return "colour"
    if lighter < 0.5:
        return "light"
    return "none" if is_black else "dark"
