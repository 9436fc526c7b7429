"""Procrustes registration: the similarity that aligns one landmark configuration to another.

A configuration is `Landmarks`: the same landmarks in the same order, in any dimension. Everything
is in closed form and runs under `jit` and `vmap`. `diffclust.registration.generalised_procrustes`
aligns many configurations to their common mean.
"""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.linalg import lyapunov, product
from diffclust.types import Landmarks, LandmarkWeights, Scalar

_MOST_DIMS = 4
"""In higher dimensions there are too many signed permutations of the axes to try."""


class Similarity(eqx.Module):
    """The map p ↦ s R p + t of points: a scale, a rotation or reflection, and a shift.

    Attributes:
        scale: s, at least 0.
        rotation: R, orthogonal; a reflection if its determinant is -1.
        translation: t, in the units of the configurations.
    """

    scale: Scalar
    rotation: Float[Array, "dims dims"]
    translation: Float[Array, " dims"]

    def __call__(self, configuration: Landmarks) -> Landmarks:
        """Moves every landmark.

        Args:
            configuration: Landmarks, one per row.

        Returns:
            The landmarks moved.
        """
        return self.scale * product(configuration, self.rotation.T) + self.translation[None]

    def inverse(self) -> "Similarity":
        """The similarity that undoes this one.

        Returns:
            p ↦ Rᵀ (p - t) / s; infinite or NaN if s is 0.
        """
        back = -product(self.rotation.T, self.translation) / self.scale
        return Similarity(1.0 / self.scale, self.rotation.T, back)


def centroid(
    configuration: Landmarks, *, weight: LandmarkWeights | None = None
) -> Float[Array, " dims"]:
    """The (weighted) mean of the landmarks.

    Args:
        configuration: Landmarks, one per row.
        weight: Weight of each landmark, non-negative and not all zero; None for equal weights.

    Returns:
        One point.
    """
    # Shifted to a landmark first: in float32 a mean of coordinates far from 0 is less accurate.
    first = jax.lax.stop_gradient(configuration[0])
    shifted = configuration - first[None]
    if weight is None:
        return first + jnp.mean(shifted, axis=0)
    share = landmark_weights(weight, configuration)
    return first + product(share / jnp.sum(share), shifted)


def centroid_size(configuration: Landmarks, *, weight: LandmarkWeights | None = None) -> Scalar:
    """The size of a configuration: the root of its sum of squares about the centroid.

    Args:
        configuration: Landmarks, one per row.
        weight: Weight of each landmark, non-negative and not all zero; None for ones.

    Returns:
        sqrt(Σ wₖ |xₖ - x̄|²), in the units of the configuration; the gradient is 0 if the size is
        0.

    References:
        Dryden and Mardia (2016), Statistical shape analysis, Definition 2.2.
    """
    weights = landmark_weights(weight, configuration)
    centred = configuration - centroid(configuration, weight=weight)[None]
    unit = unit_of(centred)
    square = jnp.sum(weights[:, None] * (centred / unit) ** 2)
    return unit * jnp.where(square == 0.0, 0.0, jnp.sqrt(jnp.where(square == 0.0, 1.0, square)))


def unit_of(coordinates: Float[Array, "*shape"]) -> Scalar:
    """A power of two, division by which is exact and keeps squares in the range of the dtype.

    Args:
        coordinates: Any numbers.

    Returns:
        About the largest magnitude, without a derivative; 1 if all are zero.
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(coordinates)))
    # The reciprocal of a larger one, by which XLA multiplies, would be flushed to zero.
    exponent = jnp.minimum(jnp.frexp(largest)[1], jnp.finfo(largest.dtype).maxexp - 2)
    return jnp.ldexp(jnp.ones_like(largest), exponent)


def procrustes(
    moving: Landmarks,
    target: Landmarks,
    *,
    scaling: bool = True,
    reflection: bool = False,
    weight: LandmarkWeights | None = None,
) -> Similarity:
    """The least-squares similarity that brings a configuration closest to another.

    Gradients are finite, and exact wherever the best rotation is unique. If it is not (all
    landmarks in one point, or on a line in three dimensions), one of the best is returned, and the
    directions that do not matter have gradient 0.

    Args:
        moving: The configuration to be moved. If all its landmarks coincide, it is only shifted.
        target: The configuration to match, of the same shape and dtype.
        scaling: Whether it may be scaled (full Procrustes) or not (partial Procrustes).
        reflection: Whether it may be reflected.
        weight: Weight of each landmark, non-negative and not all zero; None for equal weights.

    Returns:
        The similarity that minimises Σ wₖ |s R xₖ + t - yₖ|².

    Raises:
        ValueError: If shapes do not match.

    References:
        Umeyama (1991), Least-squares estimation of transformation parameters between two point
        patterns, Eqs. 39 to 43; Dryden and Mardia (2016), Statistical shape analysis, Ch. 7.
    """
    if moving.ndim != 2 or moving.shape != target.shape or 0 in moving.shape:
        raise ValueError(
            "moving and target must both have shape (landmarks, dims), none of them 0; got "
            f"{moving.shape} and {target.shape}"
        )
    weights = landmark_weights(weight, moving)
    from_centre, to_centre = centroid(moving, weight=weight), centroid(target, weight=weight)
    source, goal = moving - from_centre[None], target - to_centre[None]
    # In units of the source's extent; its square, and the square of that in the gradient, would
    # leave the dtype's range.
    unit = unit_of(source)
    source, goal = source / unit, goal / unit
    cross = product((weights[:, None] * goal).T, source)
    rotation = best_rotation(cross, reflection)
    scale = jnp.ones((), dtype=moving.dtype)
    if scaling:
        square = jnp.sum(weights[:, None] * source**2)
        # At the best rotation the trace is non-negative, up to rounding.
        trace = jnp.maximum(jnp.sum(rotation * cross), 0.0)
        scale = jnp.where(square > 0.0, trace / jnp.where(square > 0.0, square, 1.0), scale)
    shift = to_centre - scale * product(rotation, from_centre)
    return Similarity(scale, rotation, shift)


def procrustes_residual(
    moving: Landmarks,
    target: Landmarks,
    *,
    scaling: bool = True,
    reflection: bool = False,
    weight: LandmarkWeights | None = None,
) -> Scalar:
    """Squared distance that remains between two configurations after `procrustes`.

    With scaling it is in the target's units and not symmetric; if the target has unit
    `centroid_size`, it is the squared full Procrustes distance.

    Args:
        moving: The configuration to be moved.
        target: The configuration to match, of the same shape and dtype.
        scaling: Whether it may be scaled.
        reflection: Whether it may be reflected.
        weight: Weight of each landmark, non-negative and not all zero; None for ones.

    Returns:
        The minimum of Σ wₖ |s R xₖ + t - yₖ|², at least 0.

    Raises:
        ValueError: If shapes do not match.

    References:
        Dryden and Mardia (2016), Statistical shape analysis, Ch. 4 (full and partial Procrustes
        distance).
    """
    fitted = procrustes(moving, target, scaling=scaling, reflection=reflection, weight=weight)
    source, goal = (x - centroid(x, weight=weight)[None] for x in (moving, target))
    # Not expanded as |y|² - s tr(Rᵀ C), which for similar shapes would cancel down to rounding.
    left = fitted.scale * product(source, fitted.rotation.T) - goal
    return jnp.sum(landmark_weights(weight, moving)[:, None] * left**2)


def landmark_weights(weight: LandmarkWeights | None, like: Landmarks) -> LandmarkWeights:
    """Weights as given, or ones.

    Args:
        weight: Weight of each landmark, or None.
        like: A configuration, for its number of landmarks and dtype.

    Returns:
        One weight for each landmark.

    Raises:
        ValueError: If the number of weights differs from the number of landmarks, or coordinates
            are integers.
    """
    if not jnp.issubdtype(like.dtype, jnp.floating):
        raise ValueError(f"landmarks must be floating-point numbers, not {like.dtype}")
    if weight is None:
        return jnp.ones_like(like[:, 0])
    check.shaped(weight, like.shape[:1], "weight", "one for each landmark")
    return weight.astype(like.dtype)


def best_rotation(cross: Float[Array, "dims dims"], reflection: bool) -> Float[Array, "dims dims"]:
    """The rotation R with the largest tr(Rᵀ C).

    Args:
        cross: C, the sum of wₖ yₖ xₖᵀ over the landmarks of two centred configurations.
        reflection: Whether R may be a reflection.

    Returns:
        R, for which R xₖ is closest to yₖ; its gradient is finite, and exact if R is unique.

    References:
        Umeyama (1991), Least-squares estimation of transformation parameters between two point
        patterns, Eqs. 39 to 43.
    """
    if cross.shape[0] != 2:
        return _polar(cross, reflection)
    # In the plane a rotation is a complex number of modulus 1 and needs no decomposition.
    (a, b), (c, d) = cross
    cosine, sine, gain = _direction(a + d, c - b)
    rotation = jnp.stack([cosine, -sine, sine, cosine]).reshape(2, 2)
    if not reflection:
        return rotation
    cosine, sine, mirrored_gain = _direction(a - d, b + c)
    mirrored = jnp.stack([cosine, sine, sine, -cosine]).reshape(2, 2)
    return jnp.where(mirrored_gain > gain, mirrored, rotation)


def _direction(x: Scalar, y: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """(x, y) / |(x, y)| and the norm; (1, 0) and 0 at the origin, with gradient 0."""
    # Scaled first, since products of four coordinates soon leave the range of float32. The
    # direction does not depend on the scale, so neither does its gradient.
    largest = jax.lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
    # NaN is not at the origin, and must be returned as NaN.
    at_origin = largest == 0.0
    scale = jnp.where(at_origin, 1.0, largest)
    x, y = jnp.where(at_origin, 1.0, x / scale), jnp.where(at_origin, 0.0, y / scale)
    norm = jnp.sqrt(x**2 + y**2)
    return x / norm, y / norm, jnp.where(at_origin, 0.0, norm * scale)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _polar(cross: Float[Array, "dims dims"], reflection: bool) -> Float[Array, "dims dims"]:
    """The orthogonal factor of C, turned into a rotation if reflections are not allowed."""
    left, values, right = jnp.linalg.svd(cross)
    if not reflection:
        mirrored = jnp.linalg.det(product(left, right)) < 0.0
        left *= jnp.ones_like(values).at[-1].set(jnp.where(mirrored, -1.0, 1.0))[None]
    return product(left, right)


@_polar.defjvp
def _polar_jvp(
    reflection: bool,
    primals: tuple[Float[Array, "dims dims"]],
    tangents: tuple[Float[Array, "dims dims"]],
) -> tuple[Float[Array, "dims dims"], Float[Array, "dims dims"]]:
    """The derivative of R only, from C = R P with P symmetric: Ω P + P Ω = Rᵀ dC - dCᵀ R.

    The singular vectors' derivatives have poles where singular values coincide, but R's has none
    there.
    """
    rotation = _polar(primals[0], reflection)
    turned = product(rotation.T, tangents[0])
    stretch = product(rotation.T, primals[0])
    spin = lyapunov(0.5 * (stretch + stretch.T), turned - turned.T)
    return rotation, product(rotation, spin)


def principal_rotation(consensus: Landmarks) -> Float[Array, "dims dims"]:
    """The rotation that aligns the principal axes of a centred configuration with the coordinates'.

    Of all such rotations (in the plane they are a quarter turn apart), it is the one that rotates
    the configuration least. Anything diagonal in that frame, such as the variance of each
    coordinate, is then the same for every orientation of the given shapes, up to the order of the
    axes and their signs.

    Args:
        consensus: A configuration whose centroid is the origin.

    Returns:
        The rotation R, to be applied as x ↦ R x; the identity in more than 4 dimensions. It is not
        meaningful if two principal axes are equally long.
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
