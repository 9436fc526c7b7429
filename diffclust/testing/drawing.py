"""What laws are tried on: smooth random images, and Hypothesis strategies for tests of your own.

The strategies need Hypothesis installed.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.sampling import pixel_grid
from diffclust.transforms import AbstractTransform
from diffclust.types import Image, Key

SHAPES = ((8, 8, 1), (8, 10, 3))
"""Heights, widths and channels of the images that `images` draws; every shape is compiled for."""


def smooth_image(
    key: Key, height: int, width: int, channels: int = 1, *, sigma: float = 0.2
) -> Image:
    """A random image of a few Gaussian blobs that lie inside the canvas.

    Args:
        key: Random key.
        height: Number of rows.
        width: Number of columns.
        channels: Number of channels, each with blobs of its own.
        sigma: Standard deviation of the blobs in units of [-1, 1].

    Returns:
        Image of shape `(height, width, channels)`, at most 1.
    """
    rng = generator(key)
    centres = rng.uniform(-0.4, 0.4, (2, 1, 1, channels, 3))
    x, y = np.asarray(pixel_grid(height, width))[..., None, None]
    squared = (x - centres[0]) ** 2 + (y - centres[1]) ** 2
    blobs = np.sum(np.exp(-0.5 * squared / sigma**2), axis=-1)
    return jax.device_put((blobs / np.max(blobs)).astype(jnp.result_type(float)))


def generator(key: Key) -> np.random.Generator:
    """NumPy's generator, seeded by a key: what is drawn on the host is not compiled for.

    Args:
        key: Random key.

    Returns:
        A generator.
    """
    return np.random.default_rng(np.asarray(jax.random.key_data(key)))


def params(transform: AbstractTransform, scale: float = 0.2) -> Any:
    """Draws params of a transform with Hypothesis.

    Args:
        transform: The transform.
        scale: The largest size of an entry.

    Returns:
        A strategy for arrays of shape `(num_params,)`.
    """
    return _arrays((transform.num_params,), -scale, scale)


def images(shapes: Sequence[tuple[int, int, int]] = SHAPES) -> Any:
    """Draws images with Hypothesis.

    Args:
        shapes: The shapes to choose from; few, because each is compiled for.

    Returns:
        A strategy for images with intensities in [0, 1].
    """
    from hypothesis import strategies

    return strategies.one_of([_arrays(shape, 0.0, 1.0) for shape in shapes])


def _arrays(shape: tuple[int, ...], low: float, high: float) -> Any:
    from hypothesis import strategies
    from hypothesis.extra import numpy

    low, high = float(np.float32(low)), float(np.float32(high))
    elements = strategies.floats(low, high, width=32, allow_subnormal=False)
    drawn = numpy.arrays(np.float32, shape, elements=elements)
    # Nothing may be compiled here: it would draw from `random`, which Hypothesis forbids.
    return drawn.map(lambda a: jax.device_put(a.astype(jnp.result_type(float))))
