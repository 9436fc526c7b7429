"""Series over time under warps: K-means by mean series, and a graph of neighbours."""

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from diffclust import _validation
from diffclust._validation import some
from diffclust.alignment import AbstractAligner, Descent, GridSearch, NoAlignment, Sequential, Stage
from diffclust.energies import TransformedDistance
from diffclust.models.graph import AbstractInvariantSpectralModel
from diffclust.models.kmeans import AbstractLloydModel
from diffclust.models.settings import values_of
from diffclust.parallel import Data
from diffclust.parallel.mesh import map_in_chunks
from diffclust.prototypes import AbstractPrototypeFamily, UnitNormSeries
from diffclust.solvers import Lloyd, Outcome
from diffclust.transforms import TimeWarp, params_grid

Representation = Literal["values", "srvf"]


class SeriesSettings(eqx.Module):
    """Settings of the comparison of series.

    Attributes:
        warps: Whether series are warped rather than compared as they are.
        num_intervals: Number of intervals of a time warp, which is linear in each of them.
        warp_penalty: Weight of the variance over time of the logarithm of a warp's slope.
        standardise: Whether each channel of a series is first scaled to zero mean and unit
            variance.
        representation: What is compared: the `values`, or the square-root velocities (`srvf`),
            whose distance after warping is the elastic distance. Prototypes are in the same
            representation.
    """

    warps: bool = eqx.field(static=True, default=True, kw_only=True)
    num_intervals: int = eqx.field(static=True, default=8, kw_only=True, metadata={"least": 2})
    warp_penalty: float = eqx.field(static=True, default=0.05, kw_only=True)
    standardise: bool = eqx.field(static=True, default=True, kw_only=True)
    representation: Representation = eqx.field(static=True, default="values", kw_only=True)
    least_size: ClassVar[int] = 2


class SeriesKMeans(SeriesSettings, AbstractLloydModel):
    """K-means of series of one or several channels, under monotone warps of time.

    Series of unit norm are compared by the squared Euclidean distance. If values are missing (NaN),
    for example beyond the end of shorter series, the observed values stand for the whole series.

    References:
        Srivastava and Klassen (2016), Functional and shape data analysis, Ch. 8.
    """

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance after the warp."""
        warp = TimeWarp(self.num_intervals, preserve_norm=self.representation == "srvf")
        return TransformedDistance(warp, missing=True)

    def aligner(self) -> AbstractAligner:
        """The best of 45 smooth warps, followed by descent from there."""
        if not self.warps:
            return NoAlignment()
        # Slopes that change over time, from start to end and in the middle.
        at = (np.arange(self.num_intervals) + 0.5) / self.num_intervals * 2 - 1
        shapes = np.stack([at, at**2 - np.mean(at**2)])
        rates = params_grid(np.linspace(-1.5, 1.5, 9), np.linspace(-1, 1, 5))
        grid = rates @ jnp.asarray(shapes, dtype=rates.dtype)
        return Sequential(GridSearch(grid), Descent((Stage(10),)))

    def solver_for(self, outcome: Outcome, data: Data) -> tuple[Lloyd, Data]:
        """Takes as many steps as all passes did, at most 100: new series have no past params."""
        solver, data = super().solver_for(outcome, data)
        if isinstance(solver.aligner, Sequential):
            descent = Descent((Stage(min(10 * len(outcome.history), 100)),))
            aligner = dataclasses.replace(solver.aligner, second=descent)
            solver = dataclasses.replace(solver, aligner=aligner)
        return solver, data

    def family(self) -> AbstractPrototypeFamily:
        """Means of series of unit norm."""
        return UnitNormSeries()

    def penalty(self) -> tuple[float, ...]:
        return (self.warp_penalty,)

    def validated(self, series: Any, /) -> np.ndarray:
        """Checks series."""
        return _validation.series(series)

    def preprocessed(self, series: np.ndarray, /) -> np.ndarray:
        """Standardises series and takes their velocities, as far as asked for."""
        if self.standardise:
            mean = np.nanmean(series, axis=1, keepdims=True)
            deviation = np.nanstd(series, axis=1, keepdims=True)
            # Constant channels vary only by rounding.
            varies = deviation > 16 * np.finfo(series.dtype).eps * np.abs(mean)
            series = (series - mean) * varies / np.where(varies, deviation, 1.0)
        if self.representation == "values":
            return series
        # Central differences, of which there are as many as values.
        velocity = np.gradient(series, axis=1)
        unknown = np.isfinite(velocity).all(axis=2).sum(axis=1) < 2
        if unknown.any():
            raise ValueError(
                f"the series at index {some(np.flatnonzero(unknown))} have too few velocities: "
                "gaps lie between almost all values; fill them, or compare values"
            )
        size = np.sqrt(np.sum(velocity**2, axis=2, keepdims=True))
        return velocity / np.sqrt(np.where(size > 0, size, 1.0))

    def aligned(
        self, outcome: Outcome, series: np.ndarray, params: np.ndarray, /
    ) -> Float[np.ndarray, "n length channels"]:
        """Warped series, with NaN where nothing was observed."""
        seen = np.isfinite(series).all(axis=2, keepdims=True).astype(series.dtype)
        moved, share = (
            map_in_chunks(self.energy().aligned, outcome.chunk_size, params, each)
            for each in (series, seen)
        )
        return np.where(share > 0, moved, np.nan)

    def warped_times(self, params: np.ndarray, times: np.ndarray, /) -> np.ndarray:
        """Applies the warps of time."""
        given = jnp.asarray(params)
        warp = jax.vmap(TimeWarp(self.num_intervals).warp, (0, None))
        return np.asarray(warp(given, jnp.asarray(times, dtype=given.dtype)))[..., None]


class SeriesSpectralClustering(SeriesSettings, AbstractInvariantSpectralModel):
    """A normalised cut of a graph of whole series, compared under monotone warps of time.

    Two series are compared in the same way as `SeriesKMeans` compares a series with a mean.
    """

    def alignment_model(self) -> SeriesKMeans:
        """K-means with the same settings."""
        return SeriesKMeans(self.num_clusters, **values_of(SeriesSettings, self))
