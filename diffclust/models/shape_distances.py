"""What lies between the Gaussians of two landmarks, by name, and what variances these have."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.distances import DiagonalGaussian
from diffclust.distances.fisher_rao import diagonal_fisher_rao, fisher_rao, isotropic_fisher_rao
from diffclust.distances.wasserstein import (
    printed_wasserstein,
    squared_wasserstein,
    wasserstein,
)
from diffclust.prototypes.base import Covariance
from diffclust.types import Scalar

_DISTANCES = {
    "fisher-rao": diagonal_fisher_rao,
    "wasserstein": wasserstein,
    "squared-wasserstein": squared_wasserstein,
    "printed-wasserstein": printed_wasserstein,
}


def between_gaussians(distance: str, variances: str) -> Callable[..., Scalar]:
    """A distance between two Gaussians.

    Args:
        distance: Its name.
        variances: `"full"` for covariance matrices, `"round"` for one variance, else variances.

    Returns:
        The distance.
    """
    if distance == "fisher-rao" and variances == "full":
        return fisher_rao
    if distance == "fisher-rao" and variances == "round":
        return _round
    return _DISTANCES[distance]


def _round(p: DiagonalGaussian, q: DiagonalGaussian) -> Scalar:
    """Fisher–Rao among Gaussians whose axes all have the variance of the first."""
    return isotropic_fisher_rao(
        DiagonalGaussian(p.mean, p.variance[0]), DiagonalGaussian(q.mean, q.variance[0])
    )


def spread_about(
    reference: Float[Array, "landmarks dims"],
    registered: Float[Array, "n landmarks dims"],
    weight: Float[Array, " n"] | None,
    *,
    full: bool,
    alike: bool,
    least: float,
) -> Covariance:
    """Variances or covariances of all shapes about their mean.

    Args:
        reference: The mean.
        registered: Registered shapes.
        weight: How much each counts, or None for all alike.
        full: Whether covariances are wanted.
        alike: Whether all landmarks and coordinates have one variance.
        least: The least variance, as a fraction of the mean variance.

    Returns:
        Variances or covariances of each landmark.
    """
    moved = registered - reference[None]
    if weight is not None:
        # Only means of squares follow.
        moved = moved * jnp.sqrt(weight / jnp.mean(weight))[:, None, None]
    floor = least * jnp.mean(moved**2)
    if not full:
        spread = jnp.maximum(jnp.mean(moved**2, axis=0), floor)
        return jnp.full_like(spread, jnp.mean(spread)) if alike else spread
    eye = jnp.eye(moved.shape[2], dtype=moved.dtype)
    squares = jnp.einsum("nkd,nke->kde", moved, moved, precision=jax.lax.Precision.HIGHEST)
    spread = squares / moved.shape[0]
    if alike:
        spread = jnp.broadcast_to(jnp.mean(moved**2) * eye[None], spread.shape)
    return spread + floor * eye[None]


def floored(spread: np.ndarray, floor: float) -> int:
    """How many variances, or eigenvalues of covariances, stand at the floor.

    Args:
        spread: Variances, or covariance matrices.
        floor: The least variance.

    Returns:
        Their number.
    """
    values = np.linalg.eigvalsh(spread) if spread.ndim == 4 else spread
    return int(np.count_nonzero(values <= floor * (1.0 + 1e-3)))
