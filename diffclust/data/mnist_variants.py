"""MNIST in random colours, and MNIST moved about on a larger canvas.

Made with NumPy alone, not with `diffclust.transforms`, so that these sets are an independent
witness of what the transforms undo.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from diffclust.data.arrays import as_images
from diffclust.data.dataset import DataError, Dataset, encode_labels, pair_labels

LEAST_CONTRAST = 0.25
"""Least Euclidean distance between the foreground's and the background's RGB, each in [0, 1]."""

CANVAS = 40
"""Side of the images of `affnist_like`, in pixels."""

ROTATION = 20.0
"""Largest rotation in `affnist_like`, in degrees."""

SHEAR = 0.2
"""Largest shear in `affnist_like`: tangent of the angle."""

SCALE = 0.2
"""Largest change of the scale along each axis in `affnist_like`: from 0.8 to 1.2."""

_BLOCK = 256
"""Images made at once: what is needed besides the result stays small, and in the cache."""

_ROUNDS = 100


@dataclasses.dataclass(frozen=True)
class _Outline:
    """The outermost ink of each row of each image, in pixels from the image's centre."""

    x: np.ndarray
    """`[n, rows, 2]`: the first and the last ink of the row."""
    y: np.ndarray
    """`[rows]`."""
    inked: np.ndarray
    """`[n, rows]`: whether the row has any."""


def mnist_color(
    images: object,
    labels: object,
    *,
    seed: int = 0,
    indices: Sequence[int] | np.ndarray | None = None,
) -> Dataset:
    """Every image with a random colour as its foreground, and another as its background.

    A grey image x becomes x·f + (1 − x)·b, with f and b drawn uniformly from [0, 1]³, apart for
    every image. A pair of colours nearer than `LEAST_CONTRAST` (1 in 20) is drawn again, since a
    digit in the colour of its background is none. The paper says only "random colors for
    background and foreground". Its authors' published code draws otherwise: |a·x + b|, divided by
    its largest value, with a uniform in [-1, 1]³ and b in [0, 1]³, where colours may coincide.

    Args:
        images: MNIST or the like, grey, `[n, height, width]` or `[n, height, width, 1]` of a type
            that `as_images` takes.
        labels: Class of each, integers or strings `[n]`; they are passed on.
        seed: Seed of the colours; the same seed gives the same data.
        indices: Positions of the images to make, integers `[m]` or a boolean mask `[n]`; None for
            all. An image gets the same colours whatever else is made.

    Returns:
        Images `[m, height, width, 3]` with labels, in the order of the indices.

    Raises:
        DataError: If images or labels are unfit.

    References:
        DTI clustering (`dti-clustering`), App. A and Table 2 (MNIST-color).
    """
    array, codes, names = _check(images, labels)
    chosen = _positions(len(array), indices)
    colours = _draw_colours(np.random.default_rng(seed), len(array))
    made = np.empty((len(chosen), *array.shape[1:], 3), np.float32)
    for block in _blocks(len(chosen)):
        where = chosen[block]
        front, back = colours[where].transpose(1, 0, 2)[:, :, None, None, :]
        np.multiply(as_images(array[where], indices=where), front - back, out=made[block])
        made[block] += back
        np.clip(made[block], 0.0, 1.0, out=made[block])
    return Dataset(made, codes[chosen], names, name="mnist-color", indices=chosen)


def affnist_like(
    images: object,
    labels: object,
    *,
    seed: int = 0,
    indices: Sequence[int] | np.ndarray | None = None,
) -> Dataset:
    """Every image under a random affine map, somewhere on a canvas of 40×40 pixels.

    A map scales along the axes (0.8 to 1.2), shears (up to 0.2 either way), rotates (up to 20°
    either way), in this order, and shifts; all amounts are uniform, and the shift is uniform over
    those that keep all ink on the canvas. A map too large for any shift is drawn again. Images are
    read between pixels bilinearly. The amounts are affNIST's, the order is ours, and there is one
    map of each digit where affNIST has 32 (320,000 test images).

    Args:
        images: MNIST or the like, grey on black, `[n, height, width]` or `[n, height, width, 1]`
            of a type that `as_images` takes.
        labels: Class of each, integers or strings `[n]`; they are passed on.
        seed: Seed of the maps; the same seed gives the same data.
        indices: Positions of the images to make, integers `[m]` or a boolean mask `[n]`; None for
            all. An image gets the same map whatever else is made.

    Returns:
        Images `[m, 40, 40, 1]` with labels, in the order of the indices.

    Raises:
        DataError: If images or labels are unfit, or the ink of an image is too large to fit on
            the canvas.

    References:
        T. Tieleman, "affNIST", https://www.cs.toronto.edu/~tijmen/affNIST/, 2013;
        DTI clustering (`dti-clustering`), App. A and Table 2 (affNIST-test).
    """
    array, codes, names = _check(images, labels)
    chosen = _positions(len(array), indices)
    matrices, shifts = _draw_maps(np.random.default_rng(seed), _outline(array))
    inverses = np.linalg.inv(matrices[chosen])
    made = np.empty((len(chosen), CANVAS, CANVAS, 1), np.float32)
    for block in _blocks(len(chosen)):
        where = chosen[block]
        ink = as_images(array[where], indices=where)[..., 0]
        made[block, ..., 0] = _place(ink, inverses[block], shifts[where])
    return Dataset(made, codes[chosen], names, name="affnist-like", indices=chosen)


def _check(images: object, labels: object) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Grey images `[n, height, width]` as they came, and their labels as codes and names."""
    array, classes = pair_labels(images, labels)
    channels = as_images(array[:1]).shape[-1]
    if channels != 1:
        raise DataError(f"images must be grey: got {channels} channels; pass one of them.")
    return array.reshape(array.shape[:3]), *encode_labels(classes)


def _positions(count: int, indices: Sequence[int] | np.ndarray | None) -> np.ndarray:
    every = np.arange(count)
    return every if indices is None else every[np.asarray(indices)]


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _draw_colours(rng: np.random.Generator, count: int) -> np.ndarray:
    """Foreground and background of each image, float32 `[count, 2, 3]`."""
    colours = rng.random((count, 2, 3))
    close = np.arange(count)
    while len(close):
        contrast = np.linalg.norm(colours[close, 0] - colours[close, 1], axis=-1)
        close = close[contrast < LEAST_CONTRAST]
        colours[close] = rng.random((len(close), 2, 3))
    return colours.astype(np.float32)


def _outline(array: np.ndarray) -> _Outline:
    """Where the ink of each image ends. A blank image counts as one dot in the middle."""
    _, height, width = array.shape
    ink = array > 0
    ink[:, height // 2, width // 2] |= ~ink.any(axis=(1, 2))
    first, last = ink.argmax(axis=2), width - 1 - ink[:, :, ::-1].argmax(axis=2)
    return _Outline(
        x=np.stack([first, last], axis=-1) - (width - 1) / 2,
        y=np.arange(height) - (height - 1) / 2,
        inked=np.asarray(ink.any(axis=2)),
    )


def _draw_maps(rng: np.random.Generator, outline: _Outline) -> tuple[np.ndarray, np.ndarray]:
    """Matrices `[n, 2, 2]`, and where they put the image's centre, `[n, 2]`: x and y in pixels."""
    count = len(outline.x)
    matrices = np.empty((count, 2, 2))
    low, high = np.empty((2, count, 2))
    left = np.arange(count)
    for _ in range(_ROUNDS):
        matrices[left] = _draw_matrices(rng, len(left))
        low[left], high[left] = _room(matrices[left], outline, left)
        left = left[(low[left] > high[left]).any(axis=1)]
        if not len(left):
            return matrices, rng.uniform(low, high)
    raise DataError(
        f"images must have ink that fits on a canvas of {CANVAS}x{CANVAS} pixels when enlarged, "
        f"sheared and rotated: {len(left)} of {count} never did in {_ROUNDS} random maps; pass "
        f"smaller images, or images on black."
    )


def _draw_matrices(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random rotations after shears after scales, `[count, 2, 2]`."""
    angle = np.radians(ROTATION) * rng.uniform(-1, 1, count)
    shear = SHEAR * rng.uniform(-1, 1, count)
    scale = 1 + SCALE * rng.uniform(-1, 1, (count, 2))
    cos, sin, one, zero = np.cos(angle), np.sin(angle), np.ones(count), np.zeros(count)
    rotations = np.stack([cos, -sin, sin, cos], axis=-1).reshape(-1, 2, 2)
    shears = np.stack([one, shear, zero, one], axis=-1).reshape(-1, 2, 2)
    return rotations @ shears * scale[:, None, :]


def _room(
    matrices: np.ndarray, outline: _Outline, where: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest place of the centre that keeps all ink of image `where[i]`, `[m, 2]`."""
    low, high = np.empty((2, len(where), 2))
    for block in _blocks(len(where)):
        x, inked = outline.x[where[block]], outline.inked[where[block], :, None]
        for axis in range(2):
            along_x, along_y = matrices[block, axis].T[:, :, None, None]
            reach = along_x * x + along_y * outline.y[:, None]
            # Read bilinearly, ink reaches one pixel around its pixel's centre, where it is zero.
            beyond = np.abs(matrices[block, axis]).sum(axis=1)
            low[block, axis] = beyond - 1 - np.where(inked, reach, np.inf).min(axis=(1, 2))
            high[block, axis] = CANVAS - beyond - np.where(inked, reach, -np.inf).max(axis=(1, 2))
    return low, high


def _place(ink: np.ndarray, inverses: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Images `[m, height, width]` read where the canvas's pixels come from, `[m, 40, 40]`."""
    count, height, width = ink.shape
    # A frame of zeros: what lies outside is clipped onto it, so that no gather needs a mask.
    framed = np.pad(ink, ((0, 0), (1, 1), (1, 1))).ravel()
    pixels = np.arange(CANVAS)
    x, y = (pixels - shifts[:, :1])[:, None, :], (pixels - shifts[:, 1:])[:, :, None]

    def corner(axis: int, extent: int) -> tuple[np.ndarray, np.ndarray]:
        """The pixel before, counted in the frame, and how far beyond it, along one axis."""
        a, b = inverses[:, axis].T[:, :, None, None]
        source = (a * x + b * y + (extent + 1) / 2).astype(np.float32)
        np.clip(source, 0, extent + 1, out=source)
        before = np.minimum(source.astype(np.int64), extent)
        return before, source - before.astype(np.float32)

    (column, right), (row, down) = corner(0, width), corner(1, height)
    stride = width + 2
    at = (np.arange(count)[:, None, None] * (height + 2) + row) * stride + column
    upper = framed[at] * (1 - right) + framed[at + 1] * right
    lower = framed[at + stride] * (1 - right) + framed[at + stride + 1] * right
    return upper * (1 - down) + lower * down
