"""Principal angles: how far two subspaces are turned from each other."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def principal_angles(
    first: Float[Array, "features m"], second: Float[Array, "features k"]
) -> Float[Array, " angles"]:
    """Principal angles between the spans of two matrices' columns.

    What Algorithm 1 finds greedily are the singular values of a product of orthonormal bases.
    A cosine says little about a small angle, so those come from sines.

    Args:
        first: Linearly independent columns.
        second: Linearly independent columns.

    Returns:
        `min(m, k)` angles in [0, π/2] radians, ascending.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Algorithm 1; Björck and Golub (1973), Numerical
        methods for computing angles between linear subspaces, Eqs. 12 and 13.
    """
    if first.shape[1] < second.shape[1]:
        first, second = second, first
    highest = jax.lax.Precision.HIGHEST
    wide, _ = jnp.linalg.qr(first)
    narrow, _ = jnp.linalg.qr(second)
    products = jnp.matmul(wide.T, narrow, precision=highest)
    cosines = jnp.linalg.svd(products, compute_uv=False)
    outside = narrow - jnp.matmul(wide, products, precision=highest)
    sines = jnp.linalg.svd(outside, compute_uv=False)[::-1]
    small = jnp.arcsin(jnp.clip(sines, 0.0, 1.0))
    return jnp.where(cosines**2 >= 0.5, small, jnp.arccos(jnp.clip(cosines, 0.0, 1.0)))
