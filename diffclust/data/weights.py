"""Weights of samples, from a file."""

from pathlib import Path

import numpy as np

from diffclust._validation import some
from diffclust.data.archives import read_archive
from diffclust.data.dataset import DataError


def load_weights(path: str | Path, indices: np.ndarray, *, total: int | None = None) -> np.ndarray:
    """Load weights from a `.npy` file: one number for each sample of a source.

    Args:
        path: The file, `[n]`, of non-negative numbers, in the order of the source.
        indices: Positions in the source of the samples that are wanted, integers `[m]`, such as
            `Dataset.indices`: fewer than n after a limit or where bad files were left out.
        total: How many samples the source has, if that is known.

    Returns:
        float64 `[m]`.

    Raises:
        DataError: If the file is missing, damaged, of another shape, type or length, or has a
            weight that is negative, NaN or infinite, or no positive one.
    """
    path = Path(path)
    stored = read_archive(path).images
    where = f"weights in {str(path)!r}"
    if stored.ndim != 1 or stored.dtype.kind not in "iuf":
        raise DataError(
            f"{where} must be one number for each sample: got {stored.dtype} "
            f"{list(stored.shape)}; save them with np.save as [n] floats."
        )
    least = int(indices.max()) + 1 if len(indices) else 0
    if len(stored) < least or total not in (None, len(stored)):
        raise DataError(
            f"{where} must be one for each sample of the source: got {len(stored)} for "
            f"{f'at least {least}' if total is None else total}; save one for each, in the same "
            f"order."
        )
    weights = stored.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if bad.size:
        raise DataError(
            f"{where} must be finite and at least 0: {bad.size} are not, at {some(bad.tolist())}; "
            f"correct them."
        )
    chosen = weights[indices]
    if not np.any(chosen > 0.0):
        raise DataError(f"{where} must be positive somewhere: all are 0; correct them.")
    return chosen
