"""Feature matrices as users pass them in: checked on the host, cut into chunks of one shape."""

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_CPU_CHUNK = 64 * 2**20
_DEVICE_CHUNK = 512 * 2**20


def checked_rows(value: Any, name: str, *, width: int | None = None, offset: int = 0) -> np.ndarray:
    """A matrix of features.

    Args:
        value: Anything array-like of shape `(n, features)`.
        name: The argument's name in messages.
        width: How many features there must be, or None for any number.
        offset: Number of the first row in messages.

    Returns:
        A floating array of JAX's default precision.

    Raises:
        ValueError: For another shape, an empty matrix, no numbers, NaN or infinity.
    """
    array = np.asarray(value)
    if array.ndim != 2 or 0 in array.shape or (width is not None and array.shape[1] != width):
        wanted = "(n, features)" if width is None else f"(n, {width})"
        raise ValueError(f"{name} must have shape {wanted}, n at least 1; got {array.shape}")
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"{name} must hold numbers, not {array.dtype}; convert it to float first")
    array = array.astype(jnp.result_type(float), copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        total = array.sum(dtype=np.float64)
    # One number tells without a mask of the matrix's size, unless the sum itself overflows.
    if not np.isfinite(total) and not (finite := np.isfinite(array).all(axis=1)).all():
        first = ", ".join(str(int(i) + offset) for i in np.flatnonzero(~finite)[:5])
        raise ValueError(
            f"{name} holds NaN or infinity in row {first}; remove or repair these samples"
        )
    return array


def default_rows(width: int) -> int:
    """Rows a chunk.

    Args:
        width: Number of features.

    Returns:
        A multiple of 16, at most 8,192, such that a chunk is small beside the machine's memory.
    """
    budget = _CPU_CHUNK if jax.default_backend() == "cpu" else _DEVICE_CHUNK
    return int(np.clip(budget // (4 * width) // 16 * 16, 16, 8192))


def equal_chunks(
    features: Any, name: str, *, size: int | None = None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cuts features into chunks of one size, so that nothing compiles twice.

    Args:
        features: A matrix `(n, features)`, or an iterable of such matrices, read once.
        name: The argument's name in messages.
        size: Rows a chunk; chosen from the number of features where it is not given, and no more
            than there are rows.

    Yields:
        A chunk, and weights that are zero for the padding of the last one.

    Raises:
        ValueError: If a matrix is not what it should be, or there is none.
    """
    width: int | None = None
    seen = 0
    given, whole = size, False
    waiting: list[np.ndarray] = []
    for part in matrices(features):
        part = checked_rows(part, name, width=width, offset=seen)
        width, seen = part.shape[1], seen + len(part)
        size = default_rows(part.shape[1]) if size is None else size
        waiting.append(part)
        while sum(map(len, waiting)) >= size:
            rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            yield rows[:size], np.ones(size, rows.dtype)
            whole = True
            waiting = [rows[size:]] if len(rows) > size else []
    if width is None or size is None:
        raise ValueError(f"{name} is an iterable without any chunk; give at least one")
    if waiting:
        rows = np.concatenate(waiting)
        if given is None and not whole:
            size = 16 * -(-len(rows) // 16)
        padding = np.zeros((size - len(rows), width), rows.dtype)
        weight = np.concatenate(
            [np.ones(len(rows), rows.dtype), np.zeros(len(padding), rows.dtype)]
        )
        yield np.concatenate([rows, padding]), weight


def matrices(features: Any) -> Iterable[Any]:
    """What was given as an iterable of matrices.

    Args:
        features: A matrix, or an iterable of matrices.

    Returns:
        An iterable of matrices, or what may be made one.
    """
    """Parts of a matrix, so that it is not converted as a whole, or the matrices as they come."""
    if isinstance(features, list | tuple) and features and np.ndim(features[0]) < 2:
        features = np.asarray(features)
    if getattr(features, "ndim", 0) == 2 and len(features) > 8192:
        return (features[start : start + 8192] for start in range(0, len(features), 8192))
    if hasattr(features, "shape") or not isinstance(features, Iterable):
        return (features,)
    return features
