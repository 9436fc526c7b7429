"""Scattering of small images, by matrix products of real numbers.

Fourier transforms of a few dozen points are slower than products with their matrices. A real
picture is written in cosines and sines of either axis, with an axis of two for the parity: 0 for
cosines, which are even, 1 for sines, which are odd. The real and the imaginary part of a wavelet
are then multipliers that keep or swap parities. The images come last in every array, so that inner
loops run over them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.features._filters import CanvasAxis, FilterBank, crop_spectrum
from diffclust.linalg import safe_sqrt

_NOTHING = 1e-9
"""Multipliers below this share of the largest add less than rounding does."""


def _waves(size: int) -> np.ndarray:
    """Cosines and sines `(pixels, 2 * (size // 2 + 1))` of an axis of even size."""
    frequency = np.arange(size // 2 + 1)
    phase = 2 * np.pi * np.outer(np.arange(size), frequency) / size
    sines = np.sin(phase)
    sines[:, [0, -1]] = 0.0
    return np.concatenate([np.cos(phase), sines], axis=1)


def _average(low: np.ndarray, factor: int, inside: slice) -> np.ndarray:
    """Low-pass with the 1-D transform `low`, at every `factor`-th pixel, as a matrix."""
    transform = np.fft.fft(np.eye(len(low)), axis=0)
    return np.fft.ifft(low[:, None] * transform, axis=0).real[::factor][inside]


def _aliases(size: int, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies of an axis that are the same on every s-th pixel.

    Returns:
        The frequency by fold and coarse frequency, where odd folds run backwards; and by parity,
        fold and coarse frequency how it counts in the inverse.
    """
    half, coarse = size // 2, size // 2 // factor
    fold, frequency = np.meshgrid(np.arange(factor), np.arange(coarse + 1), indexing="ij")
    odd = fold % 2 == 1
    source = np.where(odd, (fold + 1) * coarse - frequency, fold * coarse + frequency)
    weight = np.where((source == 0) | (source == half), 1.0, 2.0) / size
    # Neighbouring folds share a frequency, which must count once.
    weight[(fold > 0) & (source == fold * coarse)] = 0.0
    return source, np.stack([weight, np.where(odd, -weight, weight)])


def _multipliers(waves: np.ndarray, factor: int) -> np.ndarray:
    """Filters as multipliers of cosines and sines.

    Args:
        waves: Real Fourier transforms `(angles, height, width)`.
        factor: Every how many pixels the result is wanted.

    Returns:
        Array `(part, term, fold, fold, parity, rows, angles, parity, columns)`. Part 0 is the real
        one: its first term multiplies the picture, its second the picture with both parities
        swapped. Part 1 is the imaginary one, with the second and the first parity swapped.
    """

    def symmetric(x, parity, axis):
        mirrored = np.roll(np.flip(x, axis), 1, axis)
        return (x + mirrored if parity == 0 else x - mirrored) / 2

    down, down_weight = _aliases(waves.shape[1], factor)
    right, right_weight = _aliases(waves.shape[2], factor)
    out = np.zeros((2, 2, 2, 2, *down.shape, *right.shape, len(waves)))
    for row in (0, 1):
        for column in (0, 1):
            # exp(i(kp + lq)) is C·C - S·S + i(S·C + C·S), and the transform of a real picture
            # C·C - S·S - i(S·C + C·S): multiplied out, sorted by parity.
            signs = {
                (0, 0): 1,
                (0, 1): -1 if row == column else 1,
                (1, 0): -1 if column == 0 else 1,
                (1, 1): -1 if row == 0 else 1,
            }
            weight = down_weight[row][:, :, None, None] * right_weight[column]
            for (part, term), sign in signs.items():
                # Which parity of the filter leads here, in rows and columns.
                kind = ((0, 0), (1, 1)) if part == 0 else ((0, 1), (1, 0))
                wave = symmetric(symmetric(waves, kind[term][0], 1), kind[term][1], 2)
                folded = wave[:, down][:, :, :, right] * weight
                out[part, term, row, column] = sign * np.moveaxis(folded, 0, -1)
    # part term row column fold k fold l angle -> part term fold fold row k angle column l
    return out.transpose(0, 1, 4, 6, 2, 5, 8, 3, 7)


class Multipliers(NamedTuple):
    """Filters of one scale and all angles as multipliers of cosines and sines.

    Attributes:
        values: Array `(part, term, fold, fold, parity, rows, angles, parity, columns)`; see
            `_multipliers`.
        folds: By part, which `(term, fold, fold)` are not zero: coarse wavelets have no high
            frequencies that could be folded.
    """

    values: np.ndarray | Array
    folds: tuple[tuple[tuple[int, int, int], ...], ...]

    @staticmethod
    def of(waves: np.ndarray, factor: int) -> "Multipliers":
        """Makes the matrices of filters whose results are wanted on every `factor`-th pixel."""
        values = _multipliers(waves, factor)
        folds = []
        for part in np.abs(values).max(axis=(4, 5, 6, 7, 8)):
            some = np.argwhere(part > _NOTHING * part.max())
            folds.append(tuple((int(term), int(i), int(j)) for term, i, j in some))
        return Multipliers(values, tuple(folds))


class Matrices(NamedTuple):
    """The matrices of the transform, in double precision.

    Attributes:
        order: How many wavelets a path has at most.
        zeroth: By axis: from the image to its averages.
        to_waves: By axis: from the image to the cosines and sines of the canvas.
        averages: By scale and axis: from moduli of that scale to their averages.
        multipliers: By scale of the wavelet and of what it is applied to.
    """

    order: int
    zeroth: tuple[np.ndarray, ...]
    to_waves: tuple[np.ndarray, ...]
    averages: tuple[tuple[np.ndarray, ...], ...]
    multipliers: dict[tuple[int, int], Multipliers]


def matrices(axes: tuple[CanvasAxis, CanvasAxis], bank: FilterBank, order: int) -> Matrices:
    """Prepares a transform.

    Args:
        axes: The canvas.
        bank: Its filters.
        order: How many wavelets a path has at most.

    Returns:
        The matrices.
    """
    scales = len(bank.wavelets)

    def averages(scale):
        low, factor = crop_spectrum(bank.average, scale), 2 ** (scales - scale)
        # A round Gaussian is the product of its profiles.
        profiles = low[:, 0] / np.sqrt(low[0, 0]), low[0] / np.sqrt(low[0, 0])
        return tuple(
            _average(profile, factor, axis.inside)
            for profile, axis in zip(profiles, axes, strict=True)
        )

    pairs = [(scale, 0) for scale in range(scales)]
    if order == 2:
        pairs += [(j2, j1) for j1 in range(1, scales) for j2 in range(j1 + 1, scales)]
    multipliers = {
        (scale, level): Multipliers.of(
            crop_spectrum(bank.wavelets[scale], level), 2 ** (scale - level)
        )
        for scale, level in pairs
    }
    by_scale = tuple(averages(scale) for scale in range(scales))
    zeroth = tuple(low @ axis.padding for low, axis in zip(by_scale[0], axes, strict=True))
    to_waves = tuple(_waves(axis.size).T @ axis.padding for axis in axes)
    return Matrices(order, zeroth, to_waves, by_scale, multipliers)


def _product(left: Array, right: Array, contract: int, batch: int = 0) -> Array:
    """Matrix product over one axis of `right` whose first `batch` axes are shared by both."""
    shared = tuple(range(batch))
    dimensions = (((left.ndim - 1,), (contract,)), (shared, shared))
    # On a GPU the default would round to fewer digits than float32 has.
    return jax.lax.dot_general(left, right, dimensions, precision=jax.lax.Precision.HIGHEST)


def _along_columns(
    matrix: np.ndarray, x: Float[Array, "*front in n"]
) -> Float[Array, "*front out n"]:
    """Multiplies the last but one axis, which keeps the last one innermost."""
    front = x.shape[:-2]
    repeated = np.broadcast_to(matrix, (*front, *matrix.shape))
    return _product(jnp.asarray(repeated, x.dtype), x, len(front), len(front))


def _along_rows(matrix: np.ndarray, x: Float[Array, "in *rest"]) -> Float[Array, "out *rest"]:
    """Multiplies the first axis."""
    return _product(jnp.asarray(matrix, x.dtype), x, 0)


def _analyse(
    down: np.ndarray, right: np.ndarray, x: Float[Array, "rows columns n"]
) -> Float[Array, "2 k 2 l n"]:
    """Cosines and sines of pictures."""
    waves = _along_columns(right, _along_rows(down, x))
    return waves.reshape(2, len(down) // 2, 2, len(right) // 2, -1)


def _multiply(
    x: Float[Array, "2 k 2 l n"],
    multipliers: Float[Array, "2 folds folds 2 rows angles 2 columns"],
    folds: tuple[tuple[int, int, int], ...],
    swaps: tuple[tuple[int, ...], ...],
) -> Float[Array, "2 rows angles 2 columns n"]:
    """Applies one part of all wavelets, in cosines and sines of every s-th pixel."""
    rows, columns = multipliers.shape[4], multipliers.shape[7]
    summands = []
    for term, i, j in folds:
        swapped = jax.lax.rev(x, swaps[term]) if swaps[term] else x
        down, right = i * (rows - 1), j * (columns - 1)
        fold = swapped[:, down : down + rows, :, right : right + columns]
        backwards = (1,) * (i % 2) + (3,) * (j % 2)
        fold = jax.lax.rev(fold, backwards) if backwards else fold
        summands.append(multipliers[term, i, j][..., None] * fold[:, :, None])
    return functools.reduce(jnp.add, summands)


def _moduli(
    x: Float[Array, "2 k 2 l n"], multipliers: Multipliers
) -> Float[Array, "height angles width n"]:
    """Moduli of the wavelet coefficients."""
    values, parts = jnp.asarray(multipliers.values, x.dtype), []
    for part, swaps in enumerate((((), (0, 2)), ((2,), (0,)))):
        waves = _multiply(x, values[part], multipliers.folds[part], swaps)
        parity, rows, angles, _, columns, count = waves.shape
        # The last axis stays apart until the product is taken: XLA's loop over a merged one
        # divides for every element.
        waves = waves.reshape(parity * rows, angles, parity * columns, count)
        half = _along_columns(_waves(2 * (columns - 1)), waves)
        parts.append(_along_rows(_waves(2 * (rows - 1)), half))
    return safe_sqrt(parts[0] ** 2 + parts[1] ** 2)


def scatter(
    images: Float[Array, "n height width"], prepared: Matrices
) -> Float[Array, "n paths rows columns"]:
    """Scattering coefficients of grey images.

    Args:
        images: The images.
        prepared: The transform's matrices.

    Returns:
        The coefficients, the paths in kymatio's order.
    """
    order, (down, right), to_waves, averages, multipliers = prepared
    scales = len(averages)
    pixels = jnp.moveaxis(images, 0, -1)

    def average(u: Array, scale: int) -> Array:
        down, right = averages[scale]
        return _along_columns(right, _along_rows(down, u))

    def both_orders(scale: int, wavelet: Array) -> tuple[Array, Array]:
        """Applies one wavelet in both orders: rows columns n, and j2 rows angles columns n."""
        once = _moduli(spectrum, multipliers[scale, 0]._replace(values=wavelet))[:, 0]
        height, width, _ = once.shape
        again = _analyse(_waves(height).T, _waves(width).T, once)
        twice = [
            average(_moduli(again, multipliers[j2, scale]), j2) for j2 in range(scale + 1, scales)
        ]
        return average(once[:, None], scale)[:, 0], jnp.stack(twice)

    zeroth = _along_columns(right, _along_rows(down, pixels))[None]
    spectrum = _analyse(to_waves[0], to_waves[1], pixels)
    first, second = [], []
    for j1 in range(scales):
        if order < 2 or j1 + 1 == scales:
            once = average(_moduli(spectrum, multipliers[j1, 0]), j1)
            first.append(jnp.moveaxis(once, 1, 0))
            continue
        # One wavelet after the other, so that what is made of it stays in a CPU's cache.
        every = jnp.moveaxis(jnp.asarray(multipliers[j1, 0].values, images.dtype), 6, 0)
        once, twice = jax.lax.map(functools.partial(both_orders, j1), every[..., None, :, :])
        first.append(once)
        # t1 j2 rows t2 columns n -> t1 j2 t2 rows columns n
        paths = jnp.swapaxes(twice, 2, 3)
        second.append(paths.reshape(-1, *paths.shape[3:]))
    return jnp.moveaxis(jnp.concatenate([zeroth, *first, *second]), -1, 0)
