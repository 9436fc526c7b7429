"""Procrustes registration of landmarks: the similarity that lays one configuration on another.

A configuration is `Landmarks`: the same landmarks in the same order, in any
dimension. Everything is in closed form and runs under `jit` and `vmap`. Many at once are laid on
their common mean by `diffclust.registration.generalised_procrustes`.
"""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.linalg import lyapunov, product
from diffclust.types import Landmarks, LandmarkWeights, Scalar

_MOST_DIMS = 4
"""In more, the signed permutations of the axes are too many to try."""


class Similarity(eqx.Module):
    """The map p ↦ s R p + t of points: a scale, a rotation or reflection, and a shift.

    Attributes:
        scale: s, at least 0.
        rotation: R, orthogonal; a reflection where its determinant is -1.
        translation: t, in the units of the configurations.
    """

    scale: Scalar
    rotation: Float[Array, "dims dims"]
    translation: Float[Array, " dims"]

    def __call__(self, configuration: Landmarks) -> Landmarks:
        """Moves every landmark.

        Args:
            configuration: Landmarks, one a row.

        Returns:
            The landmarks moved.
        """
        return self.scale * product(configuration, self.rotation.T) + self.translation[None]

    def inverse(self) -> "Similarity":
        """The similarity that undoes this one.

        Returns:
            p ↦ Rᵀ (p - t) / s; infinite or NaN where s is 0.
        """
        back = -product(self.rotation.T, self.translation) / self.scale
        return Similarity(1.0 / self.scale, self.rotation.T, back)


def centroid(
    configuration: Landmarks, *, weight: LandmarkWeights | None = None
) -> Float[Array, " dims"]:
    """The (weighted) mean of the landmarks.

    Args:
        configuration: Landmarks, one a row.
        weight: Weight of each landmark, at least 0 and positive somewhere; None weighs all alike.

    Returns:
        One point.
    """
    # Shifted to a landmark first: in float32 a mean of coordinates far from 0 is off by more.
    first = jax.lax.stop_gradient(configuration[0])
    shifted = configuration - first[None]
    if weight is None:
        return first + jnp.mean(shifted, axis=0)
    share = landmark_weights(weight, configuration)
    return first + product(share / jnp.sum(share), shifted)


def centroid_size(configuration: Landmarks, *, weight: LandmarkWeights | None = None) -> Scalar:
    """The size of a configuration: the root of its sum of squares about the centroid.

    Args:
        configuration: Landmarks, one a row.
        weight: Weight of each landmark, at least 0 and positive somewhere; None counts each once.

    Returns:
        sqrt(Σ wₖ |xₖ - x̄|²), in the units of the configuration; its gradient is 0 where it is 0.

    References:
        Dryden and Mardia (2016), Statistical shape analysis, Definition 2.2.
    """
    weights = landmark_weights(weight, configuration)
    centred = configuration - centroid(configuration, weight=weight)[None]
    square = jnp.sum(weights[:, None] * centred**2)
    return jnp.where(square == 0.0, 0.0, jnp.sqrt(jnp.where(square == 0.0, 1.0, square)))


def procrustes(
    moving: Landmarks,
    target: Landmarks,
    *,
    scaling: bool = True,
    reflection: bool = False,
    weight: LandmarkWeights | None = None,
) -> Similarity:
    """The similarity that brings a configuration closest to another, by least squares.

    Gradients are finite and exact wherever the best rotation is unique. Where it is not (all
    landmarks in one point, a line in three dimensions), one of the best is returned, and the
    directions that do not matter have gradient 0.

    Args:
        moving: The configuration that is moved. All landmarks in one point: it is shifted only.
        target: The configuration that it is brought to, of the same shape and type.
        scaling: Whether it may be scaled (full Procrustes) or not (partial Procrustes).
        reflection: Whether it may be reflected.
        weight: Weight of each landmark, at least 0 and positive somewhere; None weighs all alike.

    Returns:
        The similarity that minimises Σ wₖ |s R xₖ + t - yₖ|².

    Raises:
        ValueError: If shapes do not go together.

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
    cross = product((weights[:, None] * goal).T, source)
    rotation = best_rotation(cross, reflection)
    scale = jnp.ones((), dtype=moving.dtype)
    if scaling:
        square = jnp.sum(weights[:, None] * source**2)
        # At the best rotation the trace is at least 0, but for rounding.
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
    """Squared distance that is left between two configurations after `procrustes`.

    With scaling it is in the target's units and not symmetric; it is the squared full Procrustes
    distance where the target has unit `centroid_size`.

    Args:
        moving: The configuration that is moved.
        target: The configuration that it is brought to, of the same shape and type.
        scaling: Whether it may be scaled.
        reflection: Whether it may be reflected.
        weight: Weight of each landmark, at least 0 and positive somewhere; None counts each once.

    Returns:
        The least Σ wₖ |s R xₖ + t - yₖ|², at least 0.

    Raises:
        ValueError: If shapes do not go together.

    References:
        Dryden and Mardia (2016), Statistical shape analysis, Ch. 4 (full and partial Procrustes
        distance).
    """
    fitted = procrustes(moving, target, scaling=scaling, reflection=reflection, weight=weight)
    source, goal = (x - centroid(x, weight=weight)[None] for x in (moving, target))
    # Summed, not expanded as |y|² - s tr(Rᵀ C): for like shapes that would cancel to rounding.
    left = fitted.scale * product(source, fitted.rotation.T) - goal
    return jnp.sum(landmark_weights(weight, moving)[:, None] * left**2)


def landmark_weights(weight: LandmarkWeights | None, like: Landmarks) -> LandmarkWeights:
    """Weights as given, or ones.

    Args:
        weight: Weight of each landmark, or None.
        like: A configuration, for its number of landmarks and type.

    Returns:
        One weight for each landmark.

    Raises:
        ValueError: If there is another number of weights than of landmarks, or coordinates are
            whole numbers.
    """
    if not jnp.issubdtype(like.dtype, jnp.floating):
        raise ValueError(f"landmarks must be floating-point numbers, not {like.dtype}")
    if weight is None:
        return jnp.ones_like(like[:, 0])
    if weight.shape != like.shape[:1]:
        raise ValueError(
            f"weight must have shape {like.shape[:1]}, one for each landmark; got {weight.shape}"
        )
    return weight.astype(like.dtype)


def best_rotation(cross: Float[Array, "dims dims"], reflection: bool) -> Float[Array, "dims dims"]:
    """The rotation R with the largest tr(Rᵀ C).

    Args:
        cross: C, the sum of wₖ yₖ xₖᵀ over the landmarks of two centred configurations.
        reflection: Whether R may be a reflection.

    Returns:
        R, for which R xₖ is closest to yₖ; its gradient is finite, and exact where R is unique.

    References:
        Umeyama (1991), Least-squares estimation of transformation parameters between two point
        patterns, Eqs. 39 to 43.
    """
    if cross.shape[0] != 2:
        return _polar(cross, reflection)
    # In the plane a rotation is a complex number of modulus 1, and needs no decomposition.
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
    # Scaled first: products of four coordinates leave the range of float32 early. The direction
    # does not depend on the scale, so that its gradient needs none of it.
    largest = jax.lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
    # NaN is not at the origin, and has to come out again.
    at_origin = largest == 0.0
    scale = jnp.where(at_origin, 1.0, largest)
    x, y = jnp.where(at_origin, 1.0, x / scale), jnp.where(at_origin, 0.0, y / scale)
    norm = jnp.sqrt(x**2 + y**2)
    return x / norm, y / norm, jnp.where(at_origin, 0.0, norm * scale)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _polar(cross: Float[Array, "dims dims"], reflection: bool) -> Float[Array, "dims dims"]:
    """The orthogonal factor of C, made a rotation where reflections are not allowed."""
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
    """The derivative of R alone, from C = R P with P symmetric: Ω P + P Ω = Rᵀ dC - dCᵀ R.

    That of the singular vectors has poles where singular values meet, though R has none there.
    """
    rotation = _polar(primals[0], reflection)
    turned = product(rotation.T, tangents[0])
    stretch = product(rotation.T, primals[0])
    spin = lyapunov(0.5 * (stretch + stretch.T), turned - turned.T)
    return rotation, product(rotation, spin)


def principal_rotation(consensus: Landmarks) -> Float[Array, "dims dims"]:
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
