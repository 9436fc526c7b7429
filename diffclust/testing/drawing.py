"""What laws are tried on, and how they compare: AssertionErrors that name the law.

Smooth random images, and Hypothesis strategies for tests of your own, which need it installed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

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


def stacked(samples: Sequence[PyTree]) -> PyTree:
    """Samples with one leading axis.

    Args:
        samples: One or more, of one structure.

    Returns:
        All of them as one tree.
    """
    return jax.tree.map(lambda *leaves: jax.device_put(np.stack(leaves)), *samples)


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


def compiled(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """Calls a compiled function on host arrays, which annotations of JAX arrays would refuse."""
    return np.asarray(eqx.filter_jit(function)(*arrays))


def rounding(array: Array | np.ndarray) -> float:
    """The machine epsilon of an array's dtype."""
    return float(jnp.finfo(array.dtype).eps)


def require(holds: bool, law: str) -> None:
    """Raises where a law does not hold; an `assert` would be gone under `python -O`."""
    if not holds:
        raise AssertionError(f"broken law: {law}")


def agree(law: str, got: Any, expected: Any, tolerance: float) -> None:
    """Raises where two arrays differ in shape, dtype, or by more than the tolerance."""
    settings = {"equal_nan": False, "err_msg": f"broken law: {law}", "strict": True}
    np.testing.assert_allclose(got, expected, rtol=0.0, atol=tolerance, **settings)


def close(law: str, got: PyTree, expected: PyTree, steps: float = 100.0) -> None:
    """Raises where leaves of two trees differ by more than some steps of rounding.

    Args:
        law: What is then broken.
        got: Arrays.
        expected: As many, of the same shapes and dtypes.
        steps: Most steps, each of one more than the leaf's largest number.
    """
    for one, other in zip(*map(jax.tree.leaves, (got, expected)), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        scale = 1.0 + float(np.max(np.abs(other), initial=0.0))
        agree(law, one, other, steps * rounding(one) * scale)
