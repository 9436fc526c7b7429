"""Arrays whose rows are found chunk by chunk, perhaps not by one process alone."""

from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Shaped

Chunkwise = Callable[[int], Iterator[Shaped[np.ndarray, "m ..."]]]
"""Yields chunk after chunk of an array's rows, from a given row on."""

Rows = Callable[[Chunkwise], Shaped[np.ndarray, "n ..."]]
"""Makes the whole array of it: `all_rows`, or one that begins where an earlier process ended."""


def all_rows(chunks: Chunkwise) -> Shaped[np.ndarray, "n ..."]:
    """An array from its chunks.

    Args:
        chunks: Yields them.

    Returns:
        All rows.
    """
    return np.concatenate(list(chunks(0)))
