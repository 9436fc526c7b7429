"""Random numbers on the host."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
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


def checked_key(key: Any) -> Key:
    """Refuses what is no random key.

    Args:
        key: What was given for one; of the older kind, `jax.random.PRNGKey`, too.

    Returns:
        The key.

    Raises:
        ValueError: If it is none, or several, or one of another generator than JAX's present one.
    """
    like, dtype, shape = jax.random.key(0), getattr(key, "dtype", None), np.shape(key)
    if dtype == np.uint32 and shape == jax.random.key_data(like).shape:
        return jax.random.wrap_key_data(jnp.asarray(key))
    if dtype != like.dtype or shape:
        given = f"{dtype or type(key).__name__}{list(shape) or ''}"
        raise ValueError(f"key must be a random key, such as jax.random.key(0), not {given}")
    return key


def key_of(data: Any) -> Key:
    """The key that a snapshot keeps as numbers.

    Args:
        data: Its `jax.random.key_data`.

    Returns:
        The key.
    """
    return jax.random.wrap_key_data(jax.device_put(np.asarray(data)))


def key_data_template() -> Array:
    """The numbers of a key that snapshots are read by.

    Returns:
        Zeros, as many as keys have under JAX's present generator.
    """
    return jnp.zeros_like(jax.random.key_data(jax.random.key(0)))


def numpy_generator(key: Key) -> np.random.Generator:
    """A NumPy generator seeded by a JAX key, for draws that are not worth a compiled program.

    Args:
        key: Random key.

    Returns:
        The generator; the same key gives the same one.
    """
    return np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
