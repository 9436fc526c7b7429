"""How much of the place, size and lightness of what images show lies between clusters."""

import numpy as np
from jaxtyping import Float, Int

_LEAST_SPREAD = {"place": 0.05, "size": 0.1, "lightness": 0.05}
"""Standard deviations below which a quantity hardly varies: shares of the shorter side, of a size,
and of the range of the images."""

_FAINT = 0.2
"""The share of the strongest contrast below which a pixel belongs to the ground."""

EXPLAINED = 0.75
"""The share of a variance from which clusters may be of nothing else; digits' kinds have .68 at
most."""

NUISANCES = {
    "place": "where figures lie",
    "size": "how large figures are",
    "lightness": "how light images are",
}


def explained_variance(
    values: Float[np.ndarray, "n dims"], assignments: Int[np.ndarray, " n"]
) -> float:
    """The share of a variance that lies between clusters, the correlation ratio η².

    Args:
        values: One or several numbers of each sample, whose variances are summed.
        assignments: The cluster of each sample.

    Returns:
        A share; 0 where nothing varies.
    """
    centred = values - values.mean(axis=0)
    total = float(np.sum(centred**2))
    _, groups, counts = np.unique(assignments, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(groups, column) for column in centred.T], axis=1)
    between = float(np.sum(sums**2 / counts[:, None]))
    return between / total if total > 0.0 else 0.0


def nuisances_explained(
    images: Float[np.ndarray, "n height width channels"], assignments: Int[np.ndarray, " n"]
) -> dict[str, float]:
    """How much of each nuisance lies between clusters, where it varies at all.

    Args:
        images: Images as they came.
        assignments: The cluster of each.

    Returns:
        Shares as `place_explained`, `size_explained` and `lightness_explained`.
    """
    figures = {}
    for name, values in _nuisances(images).items():
        if np.sqrt(np.sum(np.var(values, axis=0))) > _LEAST_SPREAD[name]:
            figures[f"{name}_explained"] = explained_variance(values, assignments)
    return figures


def _nuisances(images: Float[np.ndarray, "n height width channels"]) -> dict[str, np.ndarray]:
    """Centres of contrast in shorter sides, logarithms of sizes, and mean intensities."""
    _, height, width, _ = images.shape
    edges = [images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1]]
    ground = np.median(np.concatenate(edges, axis=1), axis=1)[:, None, None]
    contrast = np.abs(images - ground).sum(axis=3, dtype=np.float64)
    largest = contrast.max(axis=(1, 2), keepdims=True)
    contrast = np.where(contrast > _FAINT * largest, contrast, 0.0)
    # A blank image is in the middle.
    weight = np.where(largest > 0, contrast, 1.0)
    weight /= weight.sum(axis=(1, 2), keepdims=True)
    across, down = np.arange(width) / min(height, width), np.arange(height) / min(height, width)
    x, y = weight.sum(axis=1) @ across, weight.sum(axis=2) @ down
    second = weight.sum(axis=1) @ across**2 - x**2 + weight.sum(axis=2) @ down**2 - y**2
    smallest = 1.0 / min(height, width) ** 2
    return {
        "place": np.column_stack([x, y]),
        "size": 0.5 * np.log(np.maximum(second, smallest))[:, None],
        "lightness": images.mean(axis=(1, 2, 3), dtype=np.float64)[:, None],
    }
