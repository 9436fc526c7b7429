"""Monotone warps of the time of a series."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.transforms.base import AbstractTransform, at_least_single
from diffclust.types import Params, Series


class TimeWarp(AbstractTransform):
    """(T x)(t) = x(γ(t)), where γ rises from 0 to 1 and is linear between equally spaced knots.

    The params are the logarithms of γ's slopes, one per interval, up to a constant that has no
    effect, so γ is always strictly monotone. A sample of length n is read at t = ½/n, 1½/n, ... by
    linear interpolation.

    Attributes:
        num_intervals: Number of intervals between knots.
        preserve_norm: Whether values are multiplied by √γ′, as for square-root velocities; then
            warping two functions in the same way does not change the distance between them.

    References:
        Srivastava and Klassen (2016), Functional and shape data analysis, Sec. 4.3.
    """

    num_intervals: int = eqx.field(static=True, default=8)
    preserve_norm: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses too few intervals for a warp."""
        check.count(self.num_intervals, "num_intervals", least=2)

    @property
    def num_params(self) -> int:
        """The number of intervals."""
        return self.num_intervals

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The name of the only term."""
        return ("warp",)

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """The variance over time of the logarithm of γ′."""
        return jnp.mean((params - jnp.mean(params)) ** 2)[None]

    def warp(self, params: Params, times: Float[Array, " times"]) -> Float[Array, " times"]:
        """The map of time.

        Args:
            params: Parameters of shape `(num_params,)`.
            times: Times in [0, 1].

        Returns:
            The time γ(t) in [0, 1] at which each time reads the sample.
        """
        moved, _ = self._warped(params, times)
        return times + moved

    def _warped(self, params: Params, times: Array) -> tuple[Array, Array]:
        """γ(t) - t and log γ′(t); both are exact for zero params."""
        even = jnp.zeros_like(params)
        excess = jax.nn.softmax(params) - jax.nn.softmax(even)
        place = times * self.num_intervals
        cell = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, self.num_intervals - 1)
        before = jnp.cumsum(excess) - excess
        moved = before[cell] + (place - cell.astype(place.dtype)) * excess[cell]
        return moved, (jax.nn.log_softmax(params) - jax.nn.log_softmax(even))[cell]

    def bind(self, height: int, width: int) -> Callable[[Params, Series], Series]:
        """Prepares to warp series of one length.

        Args:
            height: Length of the series to come.
            width: Number of channels, which has no effect.

        Returns:
            A function of params and series.
        """
        return self._bound(height, 0.5)

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Series], Series]:
        """Reads variances in the same way as values, and multiplies them by γ′ instead of its root.

        Args:
            height: Length of the series to come.
            width: Number of channels, which has no effect.

        Returns:
            A function of params and variances.
        """
        return self._bound(height, 1.0)

    def _bound(self, length: int, power: float) -> Callable[[Params, Series], Series]:
        times, index = (np.arange(length) + 0.5) / length, np.arange(length, dtype=float)

        def apply(params: Params, series: Series) -> Series:
            if series.ndim != 2:
                raise ValueError(
                    f"series must be (length, channels), not of shape {series.shape}; "
                    "series[:, None] adds a channel"
                )
            dtype = jnp.promote_types(params.dtype, series.dtype)
            held = at_least_single(dtype)
            params, series = params.astype(held), series.astype(held)
            moved, log_slope = self._warped(params, jnp.asarray(times, dtype=held))
            place = jnp.asarray(index, dtype=held) + length * moved
            place = jnp.clip(place, 0.0, length - 1.0)
            first = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, max(length - 2, 0))
            share = (place - first.astype(place.dtype))[:, None]
            last = jnp.minimum(first + 1, length - 1)
            read = series[first] * (1.0 - share) + series[last] * share
            # Not a power of γ′, which a steep warp rounds to 0.
            read = read * jnp.exp(power * log_slope)[:, None] if self.preserve_norm else read
            return read.astype(dtype)

        return apply
