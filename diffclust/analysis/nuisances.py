"""How much of the place, size and lightness of the images' content lies between clusters."""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from diffclust.masks import as_mask, mask_weights

_LEAST_SPREAD = {"place": 0.05, "size": 0.1, "lightness": 0.05}
"""Standard deviations below which a quantity hardly varies: as fractions of the shorter side, of a
size, and of the range of all images."""

_FAINT = 0.2
"""Share of the strongest contrast below which a pixel belongs to the background."""

EXPLAINED = 0.75
"""Share of a variance above which clusters may reflect nothing else; for the kinds of digits it is
at most .68."""

NUISANCES = {
    "place": "where figures lie",
    "size": "how large figures are",
    "lightness": "how light images are",
}


def explained_variance(
    values: Float[np.ndarray, "n dims"], assignments: Int[np.ndarray, " n"]
) -> float:
    """The share of a variance that lies between clusters, adjusted for chance: ε².

    If n samples are put into K clusters at random, the mean of the correlation ratio η² is (K - 1)
    / (n - 1), and that of ε² = 1 - (1 - η²) (n - 1) / (n - K) is 0.

    Args:
        values: One or several numbers per sample, whose variances are summed.
        assignments: The cluster of each sample.

    Returns:
        A share, at least 0; 0 if nothing varies, or clusters have one sample each.

    References:
        Kelley (1935), An unbiased correlation ratio measure.
    """
    centred = values - values.mean(axis=0)
    total = float(np.sum(centred**2))
    _, groups, counts = np.unique(assignments, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(groups, column) for column in centred.T], axis=1)
    between, free = float(np.sum(sums**2 / counts[:, None])), len(values) - len(counts)
    if total == 0.0 or free == 0:
        return 0.0
    return max(0.0, 1.0 - (1.0 - between / total) * (len(values) - 1) / free)


def nuisances_explained(
    images: Float[np.ndarray, "n height width channels"],
    assignments: Int[np.ndarray, " n"],
    *,
    mask: Any = None,
) -> dict[str, float]:
    """How much of each nuisance's variance lies between clusters, if it varies.

    Args:
        images: Images as given.
        assignments: The cluster of each image.
        mask: Weights of the pixels, as for `diffclust.masks.as_mask`; hidden ones do not count.

    Returns:
        Shares as `place_explained`, `size_explained` and `lightness_explained`; none if there are
        fewer than two images per cluster.
    """
    figures, text = {}, as_mask(mask)
    if len(images) < 2 * len(np.unique(assignments)):
        return figures
    seen = np.ones(images.shape[1:3], bool)
    if text is not None:
        seen = mask_weights(text, *images.shape[1:3])[..., 0] > 0
    for name, values in _nuisances(images, seen).items():
        if np.sqrt(np.sum(np.var(values, axis=0))) > _LEAST_SPREAD[name]:
            figures[f"{name}_explained"] = explained_variance(values, assignments)
    return figures


def _nuisances(
    images: Float[np.ndarray, "n height width channels"], seen: Bool[np.ndarray, "height width"]
) -> dict[str, np.ndarray]:
    """Centres of contrast in shorter sides, logarithms of sizes, and mean intensities."""
    _, height, width, _ = images.shape
    border = np.zeros_like(seen)
    border[[0, -1]] = border[:, [0, -1]] = True
    border &= seen
    ground = np.median(images[:, border if border.any() else seen], axis=1)[:, None, None]
    contrast = np.abs(images - ground).sum(axis=3, dtype=np.float64) * seen
    largest = contrast.max(axis=(1, 2), keepdims=True)
    contrast = np.where(contrast > _FAINT * largest, contrast, 0.0)
    # The centre of a blank image is the middle.
    weight = np.where(largest > 0, contrast, 1.0)
    weight /= weight.sum(axis=(1, 2), keepdims=True)
    across, down = np.arange(width) / min(height, width), np.arange(height) / min(height, width)
    x, y = weight.sum(axis=1) @ across, weight.sum(axis=2) @ down
    second = weight.sum(axis=1) @ across**2 - x**2 + weight.sum(axis=2) @ down**2 - y**2
    smallest, lightness = 1.0 / min(height, width) ** 2, images[:, seen]
    spread = float(np.ptp(lightness))
    return {
        "place": np.column_stack([x, y]),
        "size": 0.5 * np.log(np.maximum(second, smallest))[:, None],
        "lightness": lightness.mean(axis=(1, 2), dtype=np.float64)[:, None] / (spread or 1.0),
    }
