"""Random numbers on the host."""

import jax
import numpy as np

from diffclust.types import Key


def numpy_generator(key: Key) -> np.random.Generator:
    """A NumPy generator seeded by a JAX key, for draws that are not worth a compiled program.

    Args:
        key: Random key.

    Returns:
        The generator; the same key gives the same one.
    """
    return np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
