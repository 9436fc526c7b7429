"""The ground of images and their colours, in closed form: what is left is bright ink on black.

The ground's colour is found from the border, uniform or changing linearly across the image. What is
found are params of `diffclust.transforms.Colour`: one that takes the ground away, and one that
mixes what is left, so that pictures can be brought back.

References:
    Monnier et al., DTI clustering, App. A (MNIST-color); Pearson (1901), On lines and planes of
    closest fit, for the principal axis.
"""

import functools
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.features.contrast import LEAST_CONTRAST
from diffclust.linalg import product, safe_sqrt
from diffclust.masks import as_mask, check_mask_size, mask_weights
from diffclust.transforms import Colour
from diffclust.types import Image, Params, Scalar

Ink = Literal["none", "dark", "light", "colour", "keep"]
"""What the ground is, and so what ink is: nothing is done; ink is brighter than a dark ground;
darker than a light one; or whatever lies on the main axis of the colours, on the side where there
is more of it, which makes a grey image. With `"keep"` whatever differs from the ground is ink where
images are placed, and their colours and ground stay."""

_NUMBERS = 7
"""How many of an image's votes are single numbers."""

_GAIN = 0.5
"""The ground changes across the image where that leaves less than this share of what a uniform one
leaves of the border."""

_STRAYS = 4.0
"""What is below so many times what the border strays from the ground, in the median, is no ink."""

_ROUNDS, _SHADOW, _LEAST_SHARE = 6, 0.3, 0.15
"""For `figure`: rounds of reweighting; what darker pixels of the ground's colour count; the share
of the largest difference below which there is no figure."""

_PLAIN, _BLACK, _MAJORITY, _TWO_COLOURED = 0.2, 0.002, 0.9, 0.85
"""For `choose_ink`: the most that the border of a plain ground strays, as a share of the contrast;
the lightest ground that counts as black, half of a level of 8 bits; the share of votes that settles
what is ink; the least share of the main axis in pictures of two colours
(`experiments.photographs.run` prints that of photographs)."""

_CLOSE, _PURE = 0.25, 0.8
"""A border is ground, and hardly ink, where at least the second share of its pixels differs from
the ground by at most the first share of the contrast."""

_MOST = 0.75
"""For `choose_ink`, where borders are not ground: the ground is black if a quarter of the border is
black in this share of the images."""

_ONE_GROUND, _INKS_APART = 0.05, 0.03
"""For `choose_ink`: how far grounds of one colour lie from their median at most, in the median; how
much shorter than 1 the mean of the directions of several inks is at least."""


@functools.lru_cache(maxsize=16)
def _border(height: int, width: int, mask: str | None) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Flat indices of the border's left, right, upper and lower part, and of all; points `[n, 2]`.

    With a mask, of the outermost pixels that are seen.
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
    # JAX remembers the type of a constant: one of 64 bits fails where x64 is switched on later.
    indices = tuple(np.flatnonzero(ring & part).astype(np.int32) for part in (*parts, True))
    return indices, np.stack([x.ravel(), y.ravel()], axis=1)


def ground(image: Image, *, ink: Ink = "colour", mask: Any = None) -> Params:
    """The shift of colours that makes the ground black.

    Of each side of the border the median colour is taken; where the plane through these leaves less
    than half of what the median of the whole border leaves, the ground changes linearly, and
    otherwise it is that median. So ink may touch the border, as long as more than half of every
    side is ground. Where ink is known to be brighter or darker, less will do: if more than a fifth
    of the border strays from that ground by a quarter of the contrast, the ground is what a quarter
    of the border is no brighter, or no darker, than.

    Args:
        image: Any image.
        ink: What ink is; `"dark"` and `"light"` say so.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for all alike. The
            border is that of the pixels that are seen.

    Returns:
        Params of `Colour(channels, gradient=True)`, the gains zero.
    """
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
    rest = flat[ring] - product(at, slopes)
    flat_level, level = jnp.median(flat[ring], axis=0), jnp.median(rest, axis=0)
    uniform = jnp.sum(jnp.abs(flat[ring] - flat_level[None]))
    changes = jnp.sum(jnp.abs(rest - level[None])) < _GAIN * uniform
    level = jnp.where(changes, level, flat_level)
    slopes = jnp.where(changes, slopes, 0.0)

    def shift(level: Float[Array, " channels"], slopes: Float[Array, "2 channels"]) -> Params:
        return jnp.concatenate([jnp.zeros_like(level), -level, -slopes.reshape(-1)])

    if ink in ("dark", "light"):
        foreground = without_ground(image, shift(level, slopes), mask=mask).reshape(-1, channels)
        share, method = (0.25, "lower") if ink == "dark" else (0.75, "higher")
        quarter = jnp.quantile(flat[ring], share, axis=0, method=method)
        mixed = _pure(foreground, ring) < _PURE
        level = jnp.where(mixed, quarter, level)
        slopes = jnp.where(mixed, 0.0, slopes)
    return shift(level, slopes)


def _pure(foreground: Float[Array, "pixels channels"], ring: np.ndarray) -> Scalar:
    """The share of the border that differs from the ground by a quarter of the contrast at most."""
    differs = jnp.max(jnp.abs(foreground), axis=1)
    return jnp.mean((differs[ring] <= _CLOSE * jnp.max(differs)).astype(foreground.dtype))


def without_ground(image: Image, params: Params, *, mask: Any = None) -> Image:
    """An image less its ground.

    Args:
        image: Any image.
        params: What `ground` found.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for all alike. Hidden
            pixels become 0.

    Returns:
        The differences, of either sign.
    """
    foreground, mask = Colour(image.shape[2], gradient=True)(params, image), as_mask(mask)
    if mask is None:
        return foreground
    return foreground * jnp.asarray(mask_weights(mask) > 0.0, image.dtype)


def colour(foreground: Image, ink: Ink, *, mask: Any = None) -> Params:
    """The mix of channels that makes ink bright, from 0 to 1.

    Args:
        foreground: An image less its ground.
        ink: What ink is: `"dark"`, `"light"` or `"colour"`, with which all channels become the
            projection on the first principal axis through the ground's colour, such that its sum is
            positive.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for all alike.

    Returns:
        Params of `Colour(channels, full=True)`. The shifts bring four times the median of what the
        border strays from the ground below 0, or of the upper quartile less that median where that
        is more, as of noise that was clipped at black. Where no ink is seen everything becomes 0.

    Raises:
        ValueError: If colours stay as they are with this ink.
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
    # Of noise that was clipped at black, half is nothing. A larger quartile is ink at the border.
    upper = jnp.where(upper < _PLAIN * jnp.max(bright), upper, 0.0)
    noise = _STRAYS * jnp.maximum(middle, upper - middle)
    # Of a picture that reaches the border everywhere nothing is taken for noise.
    noise = jnp.where(jnp.max(bright) - noise > LEAST_CONTRAST, noise, 0.0)
    largest = jnp.max(bright) - noise
    shown = largest > LEAST_CONTRAST
    scale = jnp.where(shown, 1.0 / jnp.where(shown, largest, 1.0), 0.0)
    shift = jnp.broadcast_to(-noise * scale, (channels,))
    return jnp.concatenate([(mix * scale - unit).reshape(-1), shift])


def figure(image: Image, *, mask: Any = None) -> Float[Array, "height width 1"]:
    """Difference of every pixel from a smooth ground, shadows less so.

    The ground is a plane and a vignette in each channel, fitted by reweighted least squares from
    the border inwards. A difference in brightness alone that is darker than the ground, as a shadow
    is, counts three tenths.

    Args:
        image: Any image.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for all alike.

    Returns:
        Differences, from 0; zero below four times what the border strays from the ground and below
        0.15 of the largest.

    References:
        Holland and Welsch (1977), Robust regression using iteratively reweighted least-squares.
    """
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
    """The mean over 3×3 pixels, the edge repeated."""
    around = jnp.pad(plane, 1, mode="edge")
    rows = around[:-2] + around[1:-1] + around[2:]
    return (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9.0


def _principal_axis(foreground: Image) -> tuple[Float[Array, " channels"], Scalar]:
    """The first principal axis of colours through 0, and its share of their squares."""
    flat = foreground.reshape(-1, foreground.shape[2])
    second = power = product(flat.T, flat)
    for _ in range(10):
        # Squared, so that the largest eigenvalue's vector alone is left.
        trace = jnp.trace(power)
        power = power / jnp.where(trace > 0.0, trace, 1.0)
        power = product(power, power)
    axis = jnp.take(power, jnp.argmax(jnp.diagonal(power)), axis=0)
    length = safe_sqrt(jnp.sum(axis**2))
    axis = axis / jnp.where(length > 0.0, length, 1.0)
    trace = jnp.trace(second)
    return axis, product(axis, second, axis) / jnp.where(trace > 0.0, trace, 1.0)


def ink_votes(image: Image, *, mask: Any = None) -> Float[Array, " votes"]:
    """Votes of one image on the ground and ink of its set.

    Args:
        image: Any image.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; None for all alike.

    Returns:
        Lightness of the ground; how far the border strays from it; the contrast; how much more is
        lighter than the ground than darker, from -1 to 1; noise smoothed away, the share of the
        colours' main axis, and that of the border that is about as the ground is; the lightness
        that a quarter of the border does not exceed; of each channel the ground's colour; and of
        each the direction in which ink differs from it.
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
    # Where there is more ink it counts more.
    ink = jnp.sum(smooth * jnp.sum(smooth**2, axis=2, keepdims=True), axis=(0, 1))
    length = safe_sqrt(jnp.sum(ink**2))
    ink = ink / jnp.where(length > 0.0, length, 1.0)
    pure, share = _pure(smooth.reshape(-1, channels), ring), _principal_axis(smooth)[1]
    quarter = jnp.quantile(jnp.mean(image, axis=2).reshape(-1)[ring], 0.25, method="lower")
    numbers = jnp.stack([level, stray, contrast, vote, share, pure, quarter])
    return jnp.concatenate([numbers, -shift[channels : 2 * channels], ink])


def stray_of_ground(votes: Float[np.ndarray, "n votes"]) -> float:
    """How far borders stray from the ground in a set of images.

    Args:
        votes: `ink_votes` of some images.

    Returns:
        The median share of an image's contrast; 0 where all are blank.
    """
    votes = votes[votes[:, 2] > LEAST_CONTRAST]
    return float(np.median(votes[:, 1] / votes[:, 2])) if len(votes) else 0.0


def choose_ink(votes: Float[np.ndarray, "n votes"], channels: int) -> Ink | None:
    """Chooses the ink of a set of images, where single ones may be doubtful.

    Args:
        votes: `ink_votes` of some images.
        channels: Channels of the images.

    Returns:
        `"none"` where nearly all grounds are black and ink is lighter; `"dark"` or `"light"` where
        nearly all images agree, or most where figures fill them, so that single borders say little;
        `"colour"` where they do not; None where most images have no plain ground. In several
        channels `"colour"` where images have two colours each, and `"keep"` where they have more,
        as photographs have, or where inks of several colours lie on grounds of one, for then
        colours tell images apart.
    """
    votes = votes[votes[:, 2] > LEAST_CONTRAST]
    if not len(votes):
        return "none"
    if np.ptp(votes[:, _NUMBERS:].reshape(-1, 2, channels), axis=2).max() < LEAST_CONTRAST:
        # Grey pictures that were saved in colours are grey.
        channels = 1
    level, _, contrast, vote, share, pure, quarter = votes[:, :_NUMBERS].T
    # Of images in other units than [0, 1].
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
        # Single borders say little of the ground, and nothing of what ink is.
        is_black |= np.quantile(quarter, _MOST) < _BLACK * unit
    elif 1.0 - _MAJORITY < lighter < _MAJORITY:
        return "colour"
    if lighter < 0.5:
        return "light"
    return "none" if is_black else "dark"
