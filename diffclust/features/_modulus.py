"""The modulus of a complex number whose gradient is finite at zero too."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def modulus(real: Float[Array, "*shape"], imaginary: Float[Array, "*shape"]) -> Array:
    """The modulus, whose derivative at 0 is taken to be 0.

    Args:
        real: Real parts.
        imaginary: Imaginary parts.

    Returns:
        Moduli of the same shape.
    """
    squared = real**2 + imaginary**2
    positive = squared > 0
    # The root of a guarded argument: the one of 0 has an infinite derivative.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)
