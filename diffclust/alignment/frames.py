"""A frame for registered configurations that does not depend on how they were given."""

import itertools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.alignment._rotation import product

_MOST_DIMS = 4
"""In more, the signed permutations of the axes are too many to try."""


def principal_frame(consensus: Float[Array, "landmarks dims"]) -> Float[Array, "dims dims"]:
    """The rotation that lays the principal axes of a centred configuration along the coordinates'.

    Of all such rotations (in the plane they are a quarter turn apart), the one that turns the
    configuration least. What is diagonal in that frame, such as the variance of each coordinate,
    is then the same whatever the orientation in which shapes were given, but for the order of the
    axes and their signs.

    Args:
        consensus: A configuration whose centroid is the origin.

    Returns:
        The rotation R, to be applied as x ↦ R x; the identity in more than 4 dimensions, and of no
        meaning where two principal axes are equally long.
    """
    dims = consensus.shape[1]
    if dims > _MOST_DIMS:
        return jnp.eye(dims, dtype=consensus.dtype)
    _, axes = jnp.linalg.eigh(product(consensus.T, consensus))
    choices = jnp.asarray(_signed_permutations(dims), dtype=consensus.dtype)
    turns = product(choices, axes.T[None])
    traces = jnp.trace(turns, axis1=1, axis2=2)
    proper = jnp.linalg.det(turns) > 0
    return turns[jnp.argmax(jnp.where(proper, traces, -jnp.inf))]


def _signed_permutations(dims: int) -> np.ndarray:
    eye = np.eye(dims)
    return np.stack(
        [
            np.diag(signs) @ eye[list(order)]
            for order in itertools.permutations(range(dims))
            for signs in itertools.product((1.0, -1.0), repeat=dims)
        ]
    )
