"""Random numbers on the host."""

import functools

import jax
import numpy as np
from jaxtyping import Array, Int

from diffclust.types import Key


@functools.partial(jax.jit, static_argnums=1)
def split_key(key: Key, count: int, number: int | Int[Array, ""]) -> Key:
    """Makes keys as `jax.random.split` does and returns one of them, by one compiled program.

    Args:
        key: Random key.
        count: How many are made.
        number: Which one.

    Returns:
        The key.
    """
    return jax.random.split(key, count)[number]


def numpy_generator(key: Key) -> np.random.Generator:
    """A NumPy generator seeded by a JAX key, for draws that are not worth a compiled program.

    Args:
        key: Random key.

    Returns:
        The generator; the same key gives the same one.
    """
    return np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
