"""Warnings where numbers lose the digits that decide a clustering."""

import math
import warnings

import numpy as np


def warn_of_offset(array: np.ndarray, name: str) -> None:
    """Warns of numbers so far from zero that their own digits are lost in rounding.

    Args:
        array: The numbers, as they are computed with.
        name: The argument's name in messages.
    """
    rows = np.nan_to_num(array.reshape(len(array), -1).astype(np.float64))
    offset = float(np.sum(np.mean(rows, axis=0) ** 2))
    spread = float(np.sum(np.var(rows, axis=0)))
    ratio = math.sqrt(offset / spread) if spread > 0 else 0.0
    # What varies by double precision's rounding alone is constant.
    if 1e-2 / np.finfo(array.dtype).eps < ratio < 1e-2 / np.finfo(np.float64).eps:
        warnings.warn(
            f"{name} lie {ratio:.0f} times as far from zero as from each "
            f"other, which loses digits in {array.dtype}; subtract their mean or use float64",
            stacklevel=4,
        )


_MOST_PROTOTYPES = 4096
"""Number of prototypes up to which all pairs are compared."""


def warn_of_close(prototypes: np.ndarray, dtype: np.dtype) -> None:
    """Warns of prototypes between which squared distances, as K-means computes them, cannot decide.

    Args:
        prototypes: One a cluster, along the first axis.
        dtype: The type in which distances were computed.
    """
    limits = np.finfo(dtype)
    if dtype == np.float64 or len(prototypes) > _MOST_PROTOTYPES:
        return
    rows = prototypes.reshape(len(prototypes), -1).astype(np.float64)
    middle = rows.mean(axis=0)
    if np.sum(middle**2) > 100.0 * np.mean(np.sum((rows - middle) ** 2, axis=1)):
        rows = rows - middle
    squares = np.sum(rows**2, axis=1)
    apart, largest = squares[:, None] + squares - 2.0 * rows @ rows.T, float(squares.max())
    # Below, prototypes are equal but for the rounding of this sum.
    least = float(np.min(apart, where=apart > 1e-12 * largest, initial=np.inf))
    if 0.0 < largest < limits.tiny:
        warnings.warn(
            f"values are so small that their squares vanish in {limits.dtype}; multiply them by a "
            "power of ten, or use float64",
            stacklevel=7,
        )
    elif least < 30.0 * limits.eps * largest:
        warnings.warn(
            f"two clusters are {math.sqrt(least):.3g} apart, and another one is "
            f"{math.sqrt(largest):.3g} away: distances lose digits in {limits.dtype}, and samples "
            "may be in the wrong cluster; leave out what lies far away, or use float64",
            stacklevel=7,
        )
