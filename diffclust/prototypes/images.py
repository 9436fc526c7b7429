"""Prototypes that are means of aligned samples: images, other arrays, trees of arrays."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.prototypes.base import AbstractPrototypeFamily, Membership, column, weighted_sums
from diffclust.types import Scalar


class Sums(eqx.Module):
    """Sums over the aligned samples of each cluster.

    Attributes:
        image: Σ of the weighted aligned samples.
        weight: Σ of the pixel weights.
        count: Σ of the sample weights.
    """

    image: Float[Array, "clusters *shape"]
    weight: Float[Array, "clusters *weights"]
    count: Float[Array, " clusters"]


def _keep_empty(new: Array, previous: Array, count: Float[Array, " clusters"]) -> Array:
    return jnp.where(column(count > 0, new.ndim), new, previous)


class AbstractSummedImages(AbstractPrototypeFamily):
    """Prototypes that depend only on the sums of the aligned samples."""

    is_additive: ClassVar[bool] = True

    def init(self, sample: PyTree) -> PyTree:
        """The sample, with NaN replaced by zero."""
        return jax.tree.map(lambda leaf: jnp.where(jnp.isnan(leaf), 0.0, leaf), sample)

    def statistics(
        self,
        aligned: PyTree,
        pixel_weight: Array | None,
        membership: Membership,
        prototypes: PyTree = None,
    ) -> PyTree:
        """`Sums` of every array of a sample."""
        return jax.tree.map(lambda leaf: _sums(leaf, pixel_weight, membership), aligned)

    def update(self, statistics: PyTree, previous: PyTree) -> PyTree:
        """By default the means."""
        return jax.tree.map(_mean, statistics, previous, is_leaf=lambda each: type(each) is Sums)


def _sums(
    aligned: Float[Array, "n ..."], pixel_weight: Array | None, membership: Membership
) -> Sums:
    count = jnp.sum(membership, axis=0)
    if pixel_weight is None:
        shape = (*count.shape, *aligned.shape[1:-1], *[1] * (aligned.ndim > 1))
        weight = jnp.broadcast_to(column(count, aligned.ndim), shape)
        return Sums(weighted_sums(aligned, membership), weight, count)
    sums = weighted_sums(aligned * pixel_weight, membership)
    return Sums(sums, weighted_sums(pixel_weight, membership), count)


def _mean(sums: Sums, previous: Array) -> Array:
    # If all weights are zero, the gradient is zero and not NaN.
    mean = sums.image / jnp.where(sums.weight > 0, sums.weight, 1.0)
    return _keep_empty(mean, previous, sums.count)


class MeanImages(AbstractSummedImages):
    """The (pixel-weighted) mean of the aligned samples, which may be any arrays or trees of arrays.

    References:
        Cosentino et al., DI K-means, Prop. 1 and Algorithm 1.
    """


class UnitNormImages(AbstractSummedImages):
    """The minimiser of the distortion among images of unit norm (Eq. 2's constraint).

    With uniform pixel weights this is the mean divided by its norm. With weights W and weighted
    sums S it is S / (W + λ), where λ is the root at which the norm is one. Samples are also scaled
    to unit norm: otherwise moving everything off the canvas would cost the least.

    References:
        Cosentino et al., DI K-means, Eqs. 2 and 7.
    """

    def update(self, statistics: Sums, previous: Array) -> Array:
        new = jax.vmap(_unit_norm_minimiser)(statistics.image, statistics.weight)
        return _keep_empty(new, previous, statistics.count)

    def normalise(self, sample: Array) -> Array:
        """Divides by the Euclidean norm; a blank sample stays blank."""
        return _of_unit_norm(sample, jnp.sum)


class UnitNormSeries(AbstractSummedImages):
    """The mean of aligned series that were scaled to unit norm; NaN marks missing values."""

    def normalise(self, sample: Array) -> Array:
        """Divides by the norm, estimated from the times at which all channels were observed.

        The square of the norm is taken to be as much larger than the sum of the squares at these
        times as there are more times in all.
        """
        seen = jnp.all(jnp.isfinite(sample), axis=-1, keepdims=True)
        share = jnp.mean(seen, dtype=sample.dtype)

        def total(squares: Array) -> Array:
            return jnp.sum(jnp.where(seen, squares, 0.0)) / jnp.where(share > 0, share, 1.0)

        return _of_unit_norm(sample, total)


def _of_unit_norm(sample: Array, total: Callable[[Array], Array]) -> Array:
    """Divides by the root of the sum of squares, even if that leaves the float's range."""
    squared = total(sample**2)
    root = float(jnp.finfo(sample.dtype).max) ** 0.5
    is_held = (squared > 1 / root) & (squared < root)
    # Multiplication by a power of two changes no digit.
    exponent = jnp.frexp(jax.lax.stop_gradient(jnp.nanmax(jnp.abs(sample))))[1]
    most = jnp.finfo(sample.dtype).maxexp - 2
    scaled = sample * jnp.ldexp(jnp.ones_like(sample[:1]), -jnp.clip(exponent, -most, most))
    return jnp.where(
        is_held,
        _divide_by_root(sample, jnp.where(is_held, squared, 1.0)),
        _divide_by_root(scaled, total(scaled**2)),
    )


def _divide_by_root(array: Array, squared: Scalar) -> Array:
    """Divides by the square root of a number; leaves the array unchanged if that is zero."""
    return array / jnp.sqrt(jnp.where(squared > 0, squared, 1.0))


def _unit_norm_minimiser(
    total: Float[Array, "*size channels"], weight: Float[Array, "*size 1"]
) -> Float[Array, "*size channels"]:
    """Minimises Σ W c² - 2 S c over ‖c‖ = 1, by bisection on the multiplier λ.

    With μ = λ + min W, ‖S / (W - min W + μ)‖ decreases in μ, from above 1 to below it on the
    bracket [‖S‖ - (max W - min W), ‖S‖], whose ends coincide if the weights are uniform. It may
    stay below 1 down to μ = 0: then the rest of the norm costs least where the weight is lowest.
    Pixels of weight zero stay zero.
    """
    # A common factor changes nothing; scaling by a power of two keeps squares within the float's
    # range.
    exponent = jnp.frexp(jax.lax.stop_gradient(jnp.max(weight)))[1]
    most = jnp.finfo(weight.dtype).maxexp - 2
    factor = jnp.ldexp(jnp.ones((), weight.dtype), -jnp.clip(exponent, -most, most))
    total, weight = total * factor, weight * factor
    excess = weight - jnp.min(jnp.where(weight > 0, weight, jnp.inf))
    norm = jnp.sqrt(jnp.sum(total**2))

    def solution(multiplier: Scalar) -> Array:
        divisor = excess + multiplier
        return total / jnp.where(divisor > 0, divisor, 1.0)

    def halve(_: Array | int, bracket: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = bracket
        middle = 0.5 * (low + high)
        too_long = jnp.sum(solution(middle) ** 2) > 1.0
        return jnp.where(too_long, middle, low), jnp.where(too_long, high, middle)

    bracket = (jnp.maximum(norm - jnp.max(excess), 0.0), norm)
    low, high = jax.lax.stop_gradient(jax.lax.fori_loop(0, 40, halve, bracket))
    multiplier = 0.5 * (low + high)
    # Each step makes one more derivative right.
    minimiser = solution(_with_slope(_with_slope(multiplier, solution), solution))
    squared = jnp.sum(minimiser**2)
    least = jnp.broadcast_to((excess <= 0) & (weight > 0), total.shape).astype(total.dtype)
    # A deficit larger than rounding is real; a smaller one is scaled away.
    short = squared < 1.0 - 1e-4
    missing = jnp.sqrt(jnp.where(short, 1.0 - squared, 1.0) / jnp.maximum(jnp.sum(least), 1.0))
    filled = jnp.where(short, minimiser + missing * least, minimiser)
    return _divide_by_root(filled, jnp.sum(filled**2))


def _with_slope(multiplier: Scalar, solution: Callable[[Scalar], Array]) -> Scalar:
    """The multiplier with one more right derivative, by the constraint of unit norm."""

    def squared(at: Scalar) -> Scalar:
        return jnp.sum(solution(at) ** 2)

    value, slope = jax.lax.stop_gradient(jax.value_and_grad(squared)(multiplier))
    converged = (jnp.abs(value - 1.0) < 1e-3) & (slope < 0)
    change = (value - squared(multiplier)) / jnp.where(converged, slope, 1.0)
    return multiplier + jnp.where(converged, change, 0.0)
