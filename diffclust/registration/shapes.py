"""Shapes registered to their mean before they are clustered, and new shapes to the same mean.

Centroids and sizes are removed in double precision on the host: coordinates of maps or microscopes
may be millions of times a shape's size, so that single precision would leave nothing of the
shape.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.linalg import product
from diffclust.registration.generalised_procrustes import Registration, generalised_procrustes
from diffclust.registration.procrustes import principal_rotation, procrustes
from diffclust.types import Landmarks, Shapes

HostShape = Float[np.ndarray, "landmarks dims"]
HostShapes = Float[np.ndarray, "n landmarks dims"]
Point = Float[np.ndarray, " dims"]
Weights = Float[np.ndarray, " n"]
Similarities = Float[np.ndarray, "n params"]
"""For each shape a scale, a rotation (row by row) and a translation."""

Registered = Literal["similarity", "rigid", "none"]
"""What is removed: scale, rotation and place; rotation and place; nothing."""


class RegisteredShapes(NamedTuple):
    """Shapes registered to their mean.

    Attributes:
        registered: The registered shapes, in JAX's default precision.
        consensus: Their mean, in the same precision.
        params: How each was moved: scale, rotation (row by row) and translation, in the precision
            of the shapes.
        converged: Whether the registration converged.
    """

    registered: HostShapes
    consensus: HostShape
    params: Similarities
    converged: bool


def register(
    shapes: HostShapes, kind: Registered, reflection: bool, weight: Weights | None = None
) -> RegisteredShapes:
    """Registers shapes to their mean, with the mean's principal axes along the coordinates.

    Args:
        shapes: Shapes, none of them a point or a line.
        kind: What is removed. With `"none"` all are shifted together, to their common centroid.
        reflection: Whether they may be mirrored.
        weight: Weight of each shape in the mean, or None for equal weights.

    Returns:
        The registered shapes, their mean and how each was moved.
    """
    shapes, dtype = np.asarray(shapes, np.float64), jnp.result_type(float)
    if kind == "none":
        registered, params = _shifted(shapes, common_centroid(shapes, weight))
        registered = registered.astype(dtype)
        consensus = np.average(registered, axis=0, weights=weight).astype(dtype)
        return RegisteredShapes(registered, consensus, params, True)
    centres = shapes.mean(axis=1)
    centred = shapes - centres[:, None]
    unit = float(np.sqrt(np.mean(centred**2)))
    result = in_principal_axes(
        jnp.asarray(centred / unit, dtype=dtype),
        scaling=kind == "similarity",
        reflection=reflection,
        weight=None if weight is None else jnp.asarray(weight, dtype=dtype),
    )
    rotations = np.asarray(result.similarities.rotation, shapes.dtype)
    scales, back = np.asarray(result.similarities.scale, shapes.dtype) / unit, 1.0
    if kind == "rigid":
        scales, back = np.ones(len(shapes), shapes.dtype), unit
    return RegisteredShapes(
        np.asarray(result.registered) * np.asarray(back, dtype),
        np.asarray(result.consensus) * np.asarray(back, dtype),
        _params(scales, rotations, centres),
        bool(result.converged),
    )


def common_centroid(shapes: HostShapes, weight: Weights | None) -> Point:
    """The common centroid of shapes.

    Args:
        shapes: The shapes.
        weight: Weight of each shape, or None for equal weights.

    Returns:
        The mean of all their landmarks.
    """
    if weight is None:
        return shapes.mean(axis=(0, 1))
    return np.average(shapes.mean(axis=1), axis=0, weights=weight)


def register_to(
    shapes: HostShapes, consensus: HostShape, origin: Point, kind: Registered, reflection: bool
) -> tuple[HostShapes, Similarities]:
    """Registers shapes to the mean of others in the same way: to unit size if scale is removed.

    Args:
        shapes: Shapes, none of them a point or a line.
        consensus: The mean.
        origin: The common centroid of the others, for shapes that are only shifted.
        kind: What is removed.
        reflection: Whether they may be mirrored.

    Returns:
        The registered shapes, in the mean's precision, and how each was moved.
    """
    shapes = np.asarray(shapes, np.float64)
    if kind == "none":
        registered, params = _shifted(shapes, origin)
        return registered.astype(consensus.dtype), params
    centres = shapes.mean(axis=1)
    centred = shapes - centres[:, None]
    sizes = np.sqrt((centred**2).sum(axis=(1, 2)))
    unit = jnp.asarray(centred / sizes[:, None, None], dtype=consensus.dtype)
    rotations = np.asarray(_rotations(unit, jnp.asarray(consensus), reflection), shapes.dtype)
    scales = 1.0 / sizes if kind == "similarity" else np.ones(len(shapes))
    turned = scales[:, None, None] * np.einsum("nde,nke->nkd", rotations, centred)
    return turned.astype(consensus.dtype), _params(scales, rotations, centres)


@eqx.filter_jit
def in_principal_axes(
    shapes: Shapes, *, scaling: bool, reflection: bool, weight: Float[Array, " n"] | None = None
) -> Registration:
    """Registers shapes to their mean, with the mean's principal axes along the coordinates.

    Variances of coordinates are then those along these axes, and do not depend on how shapes were
    rotated.

    Args:
        shapes: Shapes, none of them a point or a line.
        scaling: Whether scale is removed.
        reflection: Whether they may be mirrored.
        weight: Weight of each shape in the mean, or None for equal weights.

    Returns:
        The registration that `generalised_procrustes` finds, rotated as a whole.
    """
    result = generalised_procrustes(
        shapes, scaling=scaling, reflection=reflection, sample_weight=weight
    )
    rotation = principal_rotation(result.consensus)
    moved = result.similarities
    return eqx.tree_at(
        lambda r: (r.registered, r.consensus, r.similarities.rotation, r.similarities.translation),
        result,
        (
            product(result.registered, rotation.T),
            product(result.consensus, rotation.T),
            product(rotation[None], moved.rotation),
            product(moved.translation, rotation.T),
        ),
    )


def apply_similarities(shapes: HostShapes, params: Similarities) -> HostShapes:
    """Shapes moved by similarities.

    Args:
        shapes: The shapes.
        params: Scale, rotation and translation of each.

    Returns:
        The moved shapes.
    """
    dims = shapes.shape[2]
    rotations = params[:, 1 : 1 + dims * dims].reshape(-1, dims, dims)
    turned = np.einsum("nde,nke->nkd", rotations, shapes)
    return params[:, :1, None] * turned + params[:, None, 1 + dims * dims :]


def _params(
    scales: Weights,
    rotations: Float[np.ndarray, "n dims dims"],
    centres: Float[np.ndarray, "n dims"],
) -> Similarities:
    """The similarities that move centres to the origin."""
    shifts = -scales[:, None] * np.einsum("nde,ne->nd", rotations, centres)
    return np.concatenate([scales[:, None], rotations.reshape(len(scales), -1), shifts], axis=1)


def _shifted(shapes: HostShapes, origin: Point) -> tuple[HostShapes, Similarities]:
    """Shapes shifted by minus the origin, and the corresponding similarities."""
    count, dims = len(shapes), shapes.shape[2]
    unmoved = np.broadcast_to(np.eye(dims), (count, dims, dims))
    params = _params(np.ones(count), unmoved, np.broadcast_to(origin, (count, dims)))
    return shapes - origin, params


@eqx.filter_jit
def _rotations(
    shapes: Shapes, consensus: Landmarks, reflection: bool
) -> Float[Array, "n dims dims"]:
    # The best rotation does not depend on the size.
    return jax.vmap(
        lambda shape: procrustes(shape, consensus, scaling=False, reflection=reflection).rotation
    )(shapes)
