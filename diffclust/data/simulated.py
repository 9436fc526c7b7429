"""Shapes drawn at random around mean shapes, for tests and experiments."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from diffclust.types import Key, Scalar


@functools.partial(jax.jit, static_argnames=("per_group", "rotation"))
def simulated_shapes(
    means: Float[Array, "groups landmarks dims"],
    deviations: Float[Array, "..."] | float,
    *,
    per_group: int,
    key: Key,
    rotation: bool = True,
    translation: float | Scalar = 2.0,
) -> tuple[Float[Array, "n landmarks dims"], Int[Array, " n"]]:
    """Noisy copies of mean shapes, each rotated and shifted at random: X = (μ + E) Γ + 1 γᵀ.

    Args:
        means: μ, the mean shape of each group.
        deviations: Standard deviation of each entry of E, which is normal with mean 0, in the
            units of the means; anything that broadcasts against `[groups, landmarks, dims]`.
        per_group: Shapes in each group.
        key: Source of all chance.
        rotation: Whether Γ is a rotation, uniform among all; otherwise the identity.
        translation: Each entry of γ is uniform between minus this and this, in the units of the
            means.

    Returns:
        n = groups × per_group shapes, group after group, and the group of each.

    Raises:
        ValueError: If there is no shape to make, or the deviations do not broadcast.

    References:
        Gattone, De Sanctis et al., shape K-means, Eq. 15.
    """
    if per_group < 1:
        raise ValueError(f"per_group must be at least 1, not {per_group}")
    try:
        scale = jnp.broadcast_to(jnp.asarray(deviations, dtype=means.dtype), means.shape)
    except ValueError as error:
        raise ValueError(
            f"deviations of shape {jnp.shape(deviations)} do not broadcast against the means' "
            f"{means.shape}; give one number, or add axes of length 1"
        ) from error
    groups, landmarks, dims = means.shape
    n = groups * per_group
    of_noise, of_rotation, of_shift = jax.random.split(key, 3)
    noise = jax.random.normal(of_noise, (n, landmarks, dims), dtype=means.dtype)
    group = jnp.repeat(jnp.arange(groups), per_group)
    shapes = means[group] + scale[group] * noise
    if rotation:
        turns = _rotations(of_rotation, n, dims, means.dtype)
        shapes = jnp.matmul(shapes, turns, precision=jax.lax.Precision.HIGHEST)
    shift = jax.random.uniform(of_shift, (n, dims), means.dtype, -translation, translation)
    return shapes + shift[:, None], group


def _rotations(key: Key, n: int, dims: int, dtype: Any) -> Float[Array, "n dims dims"]:
    """Rotations, uniform among all."""
    if dims == 2:
        angle = jax.random.uniform(key, (n,), dtype, 0.0, 2.0 * jnp.pi)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        return jnp.stack([cosine, -sine, sine, cosine], axis=1).reshape(n, 2, 2)
    turns = jax.random.orthogonal(key, dims, (n,), dtype)
    # Uniform among orthogonal matrices; without its mirror images, among rotations.
    signs = jnp.sign(jnp.linalg.det(turns))
    return turns.at[:, :, 0].multiply(signs[:, None])
