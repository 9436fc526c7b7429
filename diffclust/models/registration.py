"""Shapes laid on their mean before they are clustered, and new ones laid on the same."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.alignment import (
    Similarity,
    centroid,
    centroid_size,
    generalised_procrustes,
    principal_frame,
    procrustes,
)

Registered = Literal["similarity", "rigid", "none"]
"""What is taken out: scale, rotation and place; rotation and place; nothing."""


def register(
    shapes: Float[np.ndarray, "n landmarks dims"], kind: Registered, reflection: bool
) -> tuple[
    Float[np.ndarray, "n landmarks dims"],
    Float[np.ndarray, "landmarks dims"],
    Float[np.ndarray, "n params"],
]:
    """Lays shapes on their mean; see `registered_upright`.

    Args:
        shapes: Shapes, none of them a point or a line.
        kind: What is taken out.
        reflection: Whether they may be mirrored.

    Returns:
        The registered shapes, their mean, and how each was moved: scale, rotation (row by row) and
        translation.
    """
    if kind == "none":
        return shapes, shapes.mean(axis=0), _still(shapes)
    found = registered_upright(
        jnp.asarray(shapes), scaling=kind == "similarity", reflection=reflection
    )
    registered, consensus, params = (np.asarray(array) for array in found)
    return registered, consensus, params


@eqx.filter_jit
def registered_upright(
    shapes: Float[Array, "n landmarks dims"], *, scaling: bool, reflection: bool
) -> tuple[
    Float[Array, "n landmarks dims"], Float[Array, "landmarks dims"], Float[Array, "n params"]
]:
    """Shapes laid on their mean, whose principal axes lie along the coordinates.

    Variances of coordinates are those along these axes, so that they do not depend on how shapes
    were turned.

    Args:
        shapes: Shapes, none of them a point or a line.
        scaling: Whether scale is taken out.
        reflection: Whether they may be mirrored.

    Returns:
        The registered shapes, their mean, and how each was moved.
    """
    found = generalised_procrustes(shapes, scaling=scaling, reflection=reflection)
    turn = principal_frame(found.consensus)

    def turned(points: Array) -> Array:
        return jnp.matmul(points, turn.T, precision=jax.lax.Precision.HIGHEST)

    def one(moves: Similarity) -> Array:
        # R t and R M: rows are points.
        rotation = turned(moves.rotation.T).T
        return _flat(Similarity(moves.scale, rotation, turned(moves.translation)))

    return turned(found.registered), turned(found.consensus), jax.vmap(one)(found.similarities)


def register_to(
    shapes: Float[np.ndarray, "n landmarks dims"],
    consensus: Float[np.ndarray, "landmarks dims"],
    kind: Registered,
    reflection: bool,
) -> tuple[Float[np.ndarray, "n landmarks dims"], Float[np.ndarray, "n params"]]:
    """Lays shapes on the mean of others, as those were: to unit size where scale is taken out.

    Args:
        shapes: Shapes, none of them a point or a line.
        consensus: The mean.
        kind: What is taken out.
        reflection: Whether they may be mirrored.

    Returns:
        The registered shapes, and how each was moved.
    """
    if kind == "none":
        return shapes, _still(shapes)
    params = _fitted(
        jnp.asarray(shapes), jnp.asarray(consensus, shapes.dtype), kind == "similarity", reflection
    )
    return moved(shapes, np.asarray(params)), np.asarray(params)


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
    return np.asarray(_move(jnp.asarray(shapes), jnp.asarray(params)))


def _flat(similarity: Similarity) -> Float[Array, " params"]:
    return jnp.concatenate(
        [similarity.scale[None], similarity.rotation.reshape(-1), similarity.translation]
    )


def _still(shapes: Float[np.ndarray, "n landmarks dims"]) -> Float[np.ndarray, "n params"]:
    """Params of shapes that stay where they are."""
    count, _, dims = shapes.shape
    one = np.concatenate([np.ones(1), np.eye(dims).ravel(), np.zeros(dims)])
    return np.tile(one.astype(shapes.dtype), (count, 1))


@eqx.filter_jit
def _fitted(
    shapes: Float[Array, "n landmarks dims"],
    consensus: Float[Array, "landmarks dims"],
    scaling: bool,
    reflection: bool,
) -> Float[Array, "n params"]:
    def one(shape: Array) -> Array:
        # The best rotation does not depend on the size.
        rotation = procrustes(shape, consensus, scaling=False, reflection=reflection).rotation
        unit = jnp.ones((), shape.dtype)
        scale = unit / centroid_size(shape) if scaling else unit
        shift = -scale * jnp.matmul(rotation, centroid(shape), precision=jax.lax.Precision.HIGHEST)
        return _flat(Similarity(scale, rotation, shift))

    return jax.vmap(one)(shapes)


@eqx.filter_jit
def _move(
    shapes: Float[Array, "n landmarks dims"], params: Float[Array, "n params"]
) -> Float[Array, "n landmarks dims"]:
    dims = shapes.shape[2]

    def one(shape: Array, flat: Array) -> Array:
        rotation = flat[1 : 1 + dims * dims].reshape(dims, dims)
        return Similarity(flat[0], rotation, flat[1 + dims * dims :])(shape)

    return jax.vmap(one)(shapes, params)
