"""Checks of what users pass in, on the host, before anything is compiled.

Every message says which argument, what came, and what would do.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int


def _first(indices: np.ndarray, most: int = 5) -> str:
    shown = ", ".join(str(int(i)) for i in indices[:most])
    return f"{shown}, ... ({indices.size} in all)" if indices.size > most else shown


def images(value: Any, name: str = "images") -> np.ndarray:
    """Checks a batch of images.

    Args:
        value: Anything array-like of shape `(n, height, width, channels)`, or `(n, height, width)`
            for grey images; whole numbers of 8 bits are divided by 255.
        name: The argument's name in messages.

    Returns:
        A floating array of shape `(n, height, width, channels)`, in JAX's default precision.

    Raises:
        ValueError: For any other shape or type, an empty batch, NaN or infinity.
    """
    array = np.asarray(value)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape (n, height, width, channels) or (n, height, width), none of "
            f"them 0; got {np.shape(value)}"
        )
    if array.dtype == np.uint8:
        array = array.astype(jnp.result_type(float)) / 255
    if array.dtype == bool or not (
        np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)
    ):
        raise ValueError(f"{name} must hold numbers, not {array.dtype}; convert it to float first")
    array = array.astype(jnp.result_type(float), copy=False)
    finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if not finite.all():
        raise ValueError(
            f"{name} holds NaN or infinity at index {_first(np.flatnonzero(~finite))}; remove or "
            "repair these images"
        )
    return array


def not_blank(array: np.ndarray, name: str = "images") -> None:
    """Refuses images without any ink, which have no unit norm.

    Args:
        array: Images.
        name: The argument's name in messages.

    Raises:
        ValueError: With the indices of the blank images.
    """
    blank = np.flatnonzero(~np.any(array.reshape(len(array), -1), axis=1))
    if blank.size:
        raise ValueError(
            f"{name} holds blank images (all zero) at index {_first(blank)}; they cannot be scaled "
            "to unit norm: remove them"
        )


def cluster_count(clusters: int, samples: int, what: str = "images") -> None:
    """Checks K against the number of samples.

    Args:
        clusters: Number of clusters.
        samples: Number of samples.
        what: What the samples are called in the message.

    Raises:
        ValueError: If K is below 1 or above the number of samples.
    """
    if clusters > samples:
        raise ValueError(
            f"num_clusters is {clusters}, but there are only {samples} {what}; ask for at most "
            f"{samples} clusters"
        )


def positive(value: Any, name: str, *, least: float | int = 1) -> None:
    """Checks a number.

    Args:
        value: The number.
        name: The argument's name in messages.
        least: The least that is allowed.

    Raises:
        ValueError: If it is below.
    """
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def count(value: Any, name: str, *, least: int = 1) -> None:
    """Checks a whole number.

    Args:
        value: The number.
        name: The argument's name in messages.
        least: The least that is allowed.

    Raises:
        ValueError: If it is not an integer, or below.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    positive(value, name, least=least)


def landmarks_fit(landmarks: Sequence[int], height: int, width: int) -> None:
    """Checks that an image has at least as many pixels a side as there are landmarks.

    Args:
        landmarks: Rows and columns of the landmark grid.
        height: Rows of the images.
        width: Columns of the images.

    Raises:
        ValueError: If it has fewer.
    """
    rows, columns = landmarks
    if height < rows or width < columns:
        raise ValueError(
            f"images of {height}×{width} pixels are smaller than the landmark grid of "
            f"{rows}×{columns}; use fewer landmarks or larger images"
        )


def weights(value: Any, samples: int, name: str = "sample_weight") -> np.ndarray | None:
    """Checks sample weights.

    Args:
        value: Non-negative numbers, one a sample, or None.
        samples: Number of samples.
        name: The argument's name in messages.

    Returns:
        A floating array, or None.

    Raises:
        ValueError: For a wrong length, a negative or infinite weight, or no positive one.
    """
    if value is None:
        return None
    array = np.asarray(value, dtype=jnp.result_type(float))
    if array.shape != (samples,):
        raise ValueError(
            f"{name} must have shape ({samples},), one for each image; got {array.shape}"
        )
    if not (np.isfinite(array).all() and (array >= 0).all() and (array > 0).any()):
        raise ValueError(f"{name} must be finite, at least 0, and positive somewhere")
    return array


def shapes(value: Any, name: str = "shapes") -> np.ndarray:
    """Checks landmark configurations.

    Args:
        value: Anything array-like of shape `(n, landmarks, dims)`.
        name: The argument's name in messages.

    Returns:
        An array of 64 bits: coordinates may be far larger than shapes.

    Raises:
        ValueError: For any other shape or type, a missing landmark, or a shape whose landmarks lie
            in one point or on one line.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(
            f"{name} have different numbers of landmarks or dimensions; give the same landmarks "
            "for each"
        ) from error
    if array.ndim != 3 or len(array) == 0 or array.shape[1] < 3 or array.shape[2] < 2:
        raise ValueError(
            f"{name} must have shape (n, landmarks, dims), with at least 3 landmarks in 2 or more "
            f"dimensions; got {np.shape(value)}"
        )
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must hold numbers, not {array.dtype}; convert it to float first")
    array = array.astype(np.float64)
    missing = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if missing.any():
        raise ValueError(
            f"{name} has landmarks that are missing (NaN or infinity) at index "
            f"{_first(np.flatnonzero(missing))}; remove or complete these shapes"
        )
    centred = array - array.mean(axis=1, keepdims=True)
    values = np.linalg.svd(centred, compute_uv=False)
    for wrong, what in (
        (values[:, 0] <= 1e-14 * np.abs(array).max(axis=(1, 2)), "all landmarks in one point"),
        (values[:, 1] <= 1e-6 * values[:, 0], "all landmarks on one line"),
    ):
        if wrong.any():
            raise ValueError(
                f"{name} has {what} at index {_first(np.flatnonzero(wrong))}; remove these shapes"
            )
    return array


def groups(value: Any, samples: int, clusters: int, what: str = "image") -> Int[np.ndarray, " n"]:
    """Checks assignments that a fit is to start from.

    Args:
        value: A cluster for each sample.
        samples: Number of samples.
        clusters: Number of clusters.
        what: What a sample is called in the message.

    Returns:
        Integers of 32 bits.

    Raises:
        ValueError: For a wrong length or type, a cluster that there is not, or one left empty.
    """
    array = np.asarray(value)
    if array.shape != (samples,) or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(
            f"assignments must be {samples} whole numbers, one for each {what}; got "
            f"{array.dtype} of shape {array.shape}"
        )
    if array.min() < 0 or array.max() >= clusters:
        raise ValueError(
            f"assignments must lie in 0 to {clusters - 1}; got {array.min()} to {array.max()}"
        )
    vacant = np.setdiff1d(np.arange(clusters), array)
    if vacant.size:
        raise ValueError(
            f"assignments leave cluster {int(vacant[0])} empty; give every cluster at least one "
            f"{what}, or ask for fewer clusters"
        )
    return array.astype(np.int32)
