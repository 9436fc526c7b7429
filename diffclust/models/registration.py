"""Shapes laid on their mean before they are clustered, and new ones laid on the same.

Centroids and sizes are taken out in double precision on the host: coordinates of maps or
microscopes may be millions of times a shape's size, of which single precision would leave nothing.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from diffclust.alignment import generalised_procrustes, principal_frame, procrustes

Registered = Literal["similarity", "rigid", "none"]
"""What is taken out: scale, rotation and place; rotation and place; nothing."""


def register(
    shapes: Float[np.ndarray, "n landmarks dims"],
    kind: Registered,
    reflection: bool,
    weight: Float[np.ndarray, " n"] | None = None,
) -> tuple[
    Float[np.ndarray, "n landmarks dims"],
    Float[np.ndarray, "landmarks dims"],
    Float[np.ndarray, "n params"],
    bool,
]:
    """Lays shapes on their mean; see `registered_upright`.

    Args:
        shapes: Shapes, none of them a point or a line.
        kind: What is taken out. With `"none"` all are shifted together, to their common centroid.
        reflection: Whether they may be mirrored.
        weight: How much each counts in the mean, or None for all alike.

    Returns:
        The registered shapes and their mean, in JAX's default precision; how each was moved, in
        the given one: scale, rotation (row by row) and translation; and whether the registration
        had come to rest.
    """
    dtype = jnp.result_type(float)
    count, dims = len(shapes), shapes.shape[2]
    if kind == "none":
        origin = middle(shapes, weight)
        still = np.broadcast_to(np.eye(dims), (count, dims, dims))
        params = _flat(np.ones(count), still, np.broadcast_to(-origin, (count, dims)))
        moved_there = (shapes - origin).astype(dtype)
        consensus = np.average(moved_there, axis=0, weights=weight).astype(dtype)
        return moved_there, consensus, params, True
    centres = shapes.mean(axis=1)
    centred = shapes - centres[:, None]
    unit = float(np.sqrt(np.mean(centred**2)))
    registered, consensus, scales, rotations, converged = registered_upright(
        jnp.asarray(centred / unit, dtype=dtype),
        scaling=kind == "similarity",
        reflection=reflection,
        weight=None if weight is None else jnp.asarray(weight, dtype=dtype),
    )
    scales = np.asarray(scales, shapes.dtype) / unit
    back = 1.0
    if kind == "rigid":
        scales, back = np.ones(count, shapes.dtype), unit
    rotations = np.asarray(rotations, shapes.dtype)
    shifts = -scales[:, None] * np.einsum("nde,ne->nd", rotations, centres)
    params = _flat(scales, rotations, shifts)
    return (
        np.asarray(registered) * np.asarray(back, dtype),
        np.asarray(consensus) * np.asarray(back, dtype),
        params,
        bool(converged),
    )


def middle(
    shapes: Float[np.ndarray, "n landmarks dims"], weight: Float[np.ndarray, " n"] | None
) -> Float[np.ndarray, " dims"]:
    """The common centroid of shapes.

    Args:
        shapes: The shapes.
        weight: How much each counts, or None for all alike.

    Returns:
        The mean of all their landmarks.
    """
    if weight is None:
        return shapes.mean(axis=(0, 1))
    return np.average(shapes.mean(axis=1), axis=0, weights=weight)


def register_to(
    shapes: Float[np.ndarray, "n landmarks dims"],
    consensus: Float[np.ndarray, "landmarks dims"],
    origin: Float[np.ndarray, " dims"],
    kind: Registered,
    reflection: bool,
) -> tuple[Float[np.ndarray, "n landmarks dims"], Float[np.ndarray, "n params"]]:
    """Lays shapes on the mean of others, as those were: to unit size where scale is taken out.

    Args:
        shapes: Shapes, none of them a point or a line.
        consensus: The mean.
        origin: Where the common centroid of the others was, for those that are only shifted.
        kind: What is taken out.
        reflection: Whether they may be mirrored.

    Returns:
        The registered shapes, in the mean's precision, and how each was moved.
    """
    count, dims = len(shapes), shapes.shape[2]
    if kind == "none":
        still = np.broadcast_to(np.eye(dims), (count, dims, dims))
        params = _flat(np.ones(count), still, np.broadcast_to(-origin, (count, dims)))
        return moved(shapes, params).astype(consensus.dtype), params
    centres = shapes.mean(axis=1)
    centred = shapes - centres[:, None]
    sizes = np.sqrt((centred**2).sum(axis=(1, 2)))
    unit = jnp.asarray(centred / sizes[:, None, None], dtype=consensus.dtype)
    rotations = np.asarray(_rotations(unit, jnp.asarray(consensus), reflection), shapes.dtype)
    scales = 1.0 / sizes if kind == "similarity" else np.ones(count)
    shifts = -scales[:, None] * np.einsum("nde,ne->nd", rotations, centres)
    turned = scales[:, None, None] * np.einsum("nde,nke->nkd", rotations, centred)
    return turned.astype(consensus.dtype), _flat(scales, rotations, shifts)


@eqx.filter_jit
def registered_upright(
    shapes: Float[Array, "n landmarks dims"],
    *,
    scaling: bool,
    reflection: bool,
    weight: Float[Array, " n"] | None = None,
) -> tuple[
    Float[Array, "n landmarks dims"],
    Float[Array, "landmarks dims"],
    Float[Array, " n"],
    Float[Array, "n dims dims"],
    Bool[Array, ""],
]:
    """Shapes laid on their mean, whose principal axes lie along the coordinates.

    Variances of coordinates are those along these axes, so that they do not depend on how shapes
    were turned.

    Args:
        shapes: Shapes, none of them a point or a line.
        scaling: Whether scale is taken out.
        reflection: Whether they may be mirrored.
        weight: How much each counts in the mean, or None for all alike.

    Returns:
        The registered shapes, their mean, the scale and the rotation of each, and whether the
        registration came to rest.
    """
    found = generalised_procrustes(
        shapes, scaling=scaling, reflection=reflection, sample_weight=weight
    )
    turn = principal_frame(found.consensus)

    def turned(points: Array) -> Array:
        return jnp.matmul(points, turn.T, precision=jax.lax.Precision.HIGHEST)

    rotations = jnp.matmul(
        turn[None], found.similarities.rotation, precision=jax.lax.Precision.HIGHEST
    )
    scales = found.similarities.scale
    return turned(found.registered), turned(found.consensus), scales, rotations, found.converged


def moved(
    shapes: Float[np.ndarray, "n landmarks dims"], params: Float[np.ndarray, "n params"]
) -> Float[np.ndarray, "n landmarks dims"]:
    """Shapes moved by similarities.

    Args:
        shapes: The shapes.
        params: Scale, rotation and translation of each.

    Returns:
        The shapes moved.
    """
    dims = shapes.shape[2]
    rotations = params[:, 1 : 1 + dims * dims].reshape(-1, dims, dims)
    turned = np.einsum("nde,nke->nkd", rotations, shapes)
    return params[:, :1, None] * turned + params[:, None, 1 + dims * dims :]


def _flat(
    scales: Float[np.ndarray, " n"],
    rotations: Float[np.ndarray, "n dims dims"],
    shifts: Float[np.ndarray, "n dims"],
) -> Float[np.ndarray, "n params"]:
    return np.concatenate([scales[:, None], rotations.reshape(len(scales), -1), shifts], axis=1)


@eqx.filter_jit
def _rotations(
    shapes: Float[Array, "n landmarks dims"],
    consensus: Float[Array, "landmarks dims"],
    reflection: bool,
) -> Float[Array, "n dims dims"]:
    # The best rotation does not depend on the size.
    return jax.vmap(
        lambda shape: procrustes(shape, consensus, scaling=False, reflection=reflection).rotation
    )(shapes)
