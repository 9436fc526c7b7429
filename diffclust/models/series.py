"""K-means of series over time, each warped onto the mean of its cluster."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from diffclust import _validation
from diffclust.alignment import (
    AbstractAligner,
    Descent,
    GridSearch,
    NoAlignment,
    Sequential,
    Stage,
)
from diffclust.energies import TransformedDistance
from diffclust.models.kmeans import AbstractLloydModel
from diffclust.models.settings import SearchSettings
from diffclust.parallel.mesh import map_in_chunks
from diffclust.prototypes import AbstractPrototypeFamily, MeanSeries
from diffclust.solvers import Outcome
from diffclust.transforms import TimeWarp, params_grid


class SeriesKMeans(SearchSettings, AbstractLloydModel):
    """K-means of series of one or several channels, under monotone warps of time.

    Series of unit norm are compared by the squared Euclidean distance. Where values are missing
    (NaN), as beyond the end of the shorter ones, what was seen counts for all.

    Attributes:
        warps: Whether series are warped, rather than compared as they are.
        num_intervals: Intervals of a warp of time, which is linear in each of them.
        warp_penalty: Weight of the variance over time of the logarithm of a warp's slope.
        standardise: Whether each channel of a series has zero mean and unit variance first.

    References:
        Srivastava and Klassen (2016), Functional and shape data analysis, Ch. 8.
    """

    warps: bool = eqx.field(static=True, default=True, kw_only=True)
    num_intervals: int = eqx.field(static=True, default=8, kw_only=True)
    warp_penalty: float = eqx.field(static=True, default=0.05, kw_only=True)
    standardise: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.count(self.num_intervals, "num_intervals", least=2)
        _validation.positive(self.warp_penalty, "warp_penalty", least=0)

    @property
    def least_size(self) -> int:
        """Two values."""
        return 2

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance after the warp."""
        del channels
        return TransformedDistance(TimeWarp(self.num_intervals), missing=True)

    def aligner(self) -> AbstractAligner:
        """The best of 45 smooth warps, and descent from there."""
        if not self.warps:
            return NoAlignment()
        # Slopes that rise or fall over time, and in the middle.
        at = (np.arange(self.num_intervals) + 0.5) / self.num_intervals * 2 - 1
        shapes = np.stack([at, at**2 - np.mean(at**2)])
        rates = params_grid(np.linspace(-1.5, 1.5, 9), np.linspace(-1, 1, 5))
        grid = rates @ jnp.asarray(shapes, dtype=rates.dtype)
        return Sequential(GridSearch(grid), Descent((Stage(10),)))

    def family(self) -> AbstractPrototypeFamily:
        """Means of series of unit norm."""
        return MeanSeries()

    def penalty(self) -> tuple[float, ...]:
        return (self.warp_penalty,)

    def validated(self, series: Any, /) -> np.ndarray:
        """Checks series, and standardises them where that is asked for."""
        array = _validation.series(series)
        if not self.standardise:
            return array
        mean = np.nanmean(array, axis=1, keepdims=True)
        deviation = np.nanstd(array, axis=1, keepdims=True)
        return (array - mean) / np.where(deviation > 0, deviation, 1.0)

    def aligned(
        self, outcome: Outcome, series: np.ndarray, params: np.ndarray, /
    ) -> Float[np.ndarray, "n length channels"]:
        """Warped series; NaN where nothing was seen."""
        seen = np.isfinite(series).all(axis=2, keepdims=True).astype(series.dtype)
        moved, share = (
            map_in_chunks(self.energy().aligned, outcome.chunk_size, params, each)
            for each in (series, seen)
        )
        return np.where(share > 0, moved, np.nan)

    def warped_times(self, params: np.ndarray, times: np.ndarray, /) -> np.ndarray:
        """By the warps of time."""
        given = jnp.asarray(params)
        warp = jax.vmap(TimeWarp(self.num_intervals).warp, (0, None))
        return np.asarray(warp(given, jnp.asarray(times, dtype=given.dtype)))[..., None]
