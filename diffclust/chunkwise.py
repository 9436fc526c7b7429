"""Arrays whose rows are found chunk by chunk, perhaps not by one process alone."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from jaxtyping import Shaped

_Item = TypeVar("_Item")

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


def one_ahead(items: Iterator[_Item]) -> Iterator[_Item]:
    """The same items, each only after the next one was asked for.

    What JAX computes is not waited for: so one computes while the host prepares the next.

    Args:
        items: The items.

    Yields:
        All of them, in order.
    """
    last: list[_Item] = []
    for item in items:
        yield from last
        last = [item]
    yield from last
