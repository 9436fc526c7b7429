"""Procrustes registration of landmarks: the similarity that lays one configuration on another.

A configuration is `Float[Array, "landmarks dims"]`: the same landmarks in the same order, in any
dimension. Everything is in closed form and runs under `jit` and `vmap`. Many at once are laid on
their common mean by `diffclust.alignment.generalised_procrustes`.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.alignment._rotation import best_rotation, landmark_weights, product
from diffclust.types import Scalar


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

    def __call__(
        self, configuration: Float[Array, "landmarks dims"]
    ) -> Float[Array, "landmarks dims"]:
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
    configuration: Float[Array, "landmarks dims"],
    *,
    weight: Float[Array, " landmarks"] | None = None,
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
    share = weight.astype(configuration.dtype)
    return first + product(share / jnp.sum(share), shifted)


def centroid_size(
    configuration: Float[Array, "landmarks dims"],
    *,
    weight: Float[Array, " landmarks"] | None = None,
) -> Scalar:
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
    return _safe_root(jnp.sum(weights[:, None] * centred**2))


def procrustes(
    moving: Float[Array, "landmarks dims"],
    target: Float[Array, "landmarks dims"],
    *,
    scaling: bool = True,
    reflection: bool = False,
    weight: Float[Array, " landmarks"] | None = None,
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
        ValueError: If shapes or types do not go together.

    References:
        Umeyama (1991), Least-squares estimation of transformation parameters between two point
        patterns, Eqs. 39 to 43; Dryden and Mardia (2016), Statistical shape analysis, Ch. 7.
    """
    return _fit(moving, target, scaling, reflection, weight).similarity()


def procrustes_residual(
    moving: Float[Array, "landmarks dims"],
    target: Float[Array, "landmarks dims"],
    *,
    scaling: bool = True,
    reflection: bool = False,
    weight: Float[Array, " landmarks"] | None = None,
) -> Scalar:
    """What is left between two configurations after `procrustes`, as a squared distance.

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
        ValueError: If shapes or types do not go together.

    References:
        Dryden and Mardia (2016), Statistical shape analysis, Ch. 4 (full and partial Procrustes
        distance).
    """
    fit = _fit(moving, target, scaling, reflection, weight)
    # Summed, not expanded as |y|² - s tr(Rᵀ C): for like shapes that would cancel to rounding.
    left = fit.scale * product(fit.moving, fit.rotation.T) - fit.target
    return jnp.sum(landmark_weights(weight, moving)[:, None] * left**2)


class _Fit(NamedTuple):
    """A fitted similarity, and both configurations less their centroids."""

    scale: Scalar
    rotation: Float[Array, "dims dims"]
    moving: Float[Array, "landmarks dims"]
    target: Float[Array, "landmarks dims"]
    from_centre: Float[Array, " dims"]
    to_centre: Float[Array, " dims"]

    def similarity(self) -> Similarity:
        shift = self.to_centre - self.scale * product(self.rotation, self.from_centre)
        return Similarity(self.scale, self.rotation, shift)


def _fit(
    moving: Float[Array, "landmarks dims"],
    target: Float[Array, "landmarks dims"],
    scaling: bool,
    reflection: bool,
    weight: Float[Array, " landmarks"] | None,
) -> _Fit:
    """Ordinary Procrustes analysis."""
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
        spread = jnp.sum(weights[:, None] * source**2)
        # At the best rotation the trace is at least 0, but for rounding.
        trace = jnp.maximum(jnp.sum(rotation * cross), 0.0)
        scale = jnp.where(spread > 0.0, trace / jnp.where(spread > 0.0, spread, 1.0), scale)
    return _Fit(scale, rotation, source, goal, from_centre, to_centre)


def _safe_root(square: Scalar) -> Scalar:
    """A square root with gradient 0 at 0."""
    return jnp.where(square == 0.0, 0.0, jnp.sqrt(jnp.where(square == 0.0, 1.0, square)))
