"""What lies between the Gaussians of two landmarks, by name, and what their variances came to."""

from collections.abc import Callable

import numpy as np

from diffclust.distances import DiagonalGaussian
from diffclust.distances.fisher_rao import diagonal_fisher_rao, fisher_rao, round_fisher_rao
from diffclust.distances.wasserstein import (
    printed_wasserstein,
    squared_wasserstein,
    wasserstein,
)
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
    return round_fisher_rao(
        DiagonalGaussian(p.mean, p.variance[0]), DiagonalGaussian(q.mean, q.variance[0])
    )


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
