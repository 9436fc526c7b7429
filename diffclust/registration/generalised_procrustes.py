"""Generalised Procrustes analysis: many landmark configurations aligned to their own mean."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from diffclust import _validation as check
from diffclust._sharding import varying_like, with_auto_axes
from diffclust.linalg import einsum, product
from diffclust.registration.procrustes import (
    Similarity,
    best_rotation,
    centroid,
    centroid_size,
    landmark_weights,
    unit_of,
)
from diffclust.types import Count, Landmarks, LandmarkWeights, Scalar, Shapes


class Registration(eqx.Module):
    """Configurations aligned to each other.

    Attributes:
        registered: The moved configurations, with their centroids at the origin.
        consensus: Their mean, not scaled to a particular size.
        similarities: The similarity that moved each configuration, with a leading axis n.
        sums_of_squares: Sum of squares of the registered configurations about the consensus, summed
            over weighted shapes and landmarks, after every pass; after the last pass its value is
            repeated.
        iterations: Number of passes made.
        converged: Whether the sum of squares had converged by then.
    """

    registered: Shapes
    consensus: Landmarks
    similarities: Similarity
    sums_of_squares: Float[Array, " max_iterations"]
    iterations: Count
    converged: Bool[Array, ""]


@with_auto_axes
def generalised_procrustes(
    configurations: Shapes,
    *,
    scaling: bool = True,
    rescale: bool = False,
    reflection: bool = False,
    weight: LandmarkWeights | None = None,
    sample_weight: Float[Array, " n"] | None = None,
    tolerance: float | None = None,
    max_iterations: int = 100,
) -> Registration:
    """Registers many configurations to their own mean, which is estimated at the same time.

    Every configuration is centred; with `scaling` it is divided by its `centroid_size`, so that all
    have size 1. Then, starting from the first configuration as mean, all are rotated to the mean
    and the mean is recomputed, until the sum of squares no longer falls. Sizes stay 1 unless
    `rescale` is set, which also fits them as Gower does: configurations far from the mean shrink,
    with the sum of squared sizes kept fixed. Without `scaling`, sizes do not change.

    At the end all are rotated together so that the first configuration has its original
    orientation, up to rounding. Moving the inputs by similarities (by rigid motions, without
    `scaling`) therefore changes the result only by the rotation of the first one.

    Only forward-mode gradients (`jax.jvp`) are supported, as a loop of unknown length has no
    reverse mode.

    Args:
        configurations: The configurations. One whose landmarks all coincide is only shifted.
        scaling: Whether each is scaled to unit centroid size.
        rescale: Whether sizes are then fitted as well; only with `scaling`.
        reflection: Whether each may be reflected.
        weight: Weight of each landmark in centroids, sizes and fits, non-negative and not all zero;
            None for equal weights.
        sample_weight: Weight of each configuration in the mean and in sums of squares, non-negative
            and not all zero: a configuration of weight 2 counts as two. None for equal weights.
        tolerance: The pass that lowers the sum of squares by less than this share of the sum of
            squared sizes is the last; by default the rounding unit of the dtype.
        max_iterations: Maximum number of passes.

    Returns:
        The registered configurations, their mean, and how each was moved.

    Raises:
        ValueError: If shapes do not match, coordinates are whole numbers, `rescale` is set without
            `scaling`, or `max_iterations` is below 1.

    References:
        Gower (1975), Generalized Procrustes analysis; ten Berge (1977), Orthogonal Procrustes
        rotation for two or more matrices (the scales); Goodall (1991), Procrustes methods in the
        statistical analysis of shape.
    """
    if configurations.ndim != 3 or 0 in configurations.shape:
        raise ValueError(
            "configurations must have shape (n, landmarks, dims), none of them 0; got "
            f"{configurations.shape}"
        )
    check.floating(configurations, "configurations")
    if rescale and not scaling:
        raise ValueError("rescale fits sizes, which scaling=False keeps; set only one of the two")
    check.count(max_iterations, "max_iterations")
    if tolerance is None:
        tolerance = float(jnp.finfo(configurations.dtype).eps)
    if sample_weight is not None:
        count = configurations.shape[:1]
        check.shaped(sample_weight, count, "sample_weight", "one for each configuration")
    settings = (tolerance, scaling, rescale, reflection, max_iterations)
    return _register(configurations, weight, sample_weight, *settings)


class _State(NamedTuple):
    """The state of the iteration between passes."""

    rotations: Float[Array, "n dims dims"]
    factors: Float[Array, " n"]
    registered: Shapes
    mean: Landmarks
    sums_of_squares: Float[Array, " max_iterations"]
    decrease: Scalar
    iterations: Count


def _standardised(
    configurations: Shapes, weight: LandmarkWeights | None, scaling: bool
) -> tuple[Float[Array, "n dims"], Float[Array, " n"], Shapes, Scalar]:
    """Centroids, scale factors, the configurations centred and scaled, and the unit of these."""
    centres = jax.vmap(lambda x: centroid(x, weight=weight))(configurations)
    shapes = configurations - centres[:, None]
    if not scaling:
        unit = unit_of(shapes)
        return centres, jnp.ones_like(centres[:, 0]), shapes / unit, unit
    sizes = jax.vmap(lambda x: centroid_size(x, weight=weight))(configurations)
    units = jnp.where(sizes > 0.0, 1.0 / jnp.where(sizes > 0.0, sizes, 1.0), 1.0)
    return centres, units, units[:, None, None] * shapes, jnp.ones_like(units[0])


def _oriented(
    end: _State,
    units: Float[Array, " n"],
    centres: Float[Array, "n dims"],
    converged: Bool[Array, ""],
    unit: Scalar,
) -> Registration:
    """Rotates all together, so that the first has its original orientation, and restores units."""
    first = end.rotations[0]
    rotations = product(first.T[None], end.rotations)
    scales = units * end.factors
    shifts = -scales[:, None] * einsum("nde,ne->nd", rotations, centres)
    return Registration(
        registered=unit * product(end.registered, first[None]),
        consensus=unit * product(end.mean, first),
        similarities=jax.vmap(Similarity)(scales, rotations, shifts),
        sums_of_squares=unit * (unit * end.sums_of_squares),
        iterations=end.iterations,
        converged=converged,
    )


def _best_factors(
    traces: Float[Array, " n"], each: Float[Array, " n"] | None, total: Scalar, before: Array
) -> Float[Array, " n"]:
    """The best sizes for a given mean, among those whose squares sum to the total.

    A mean that is a single point, as the first shape may be, says nothing about sizes.
    """
    squares = jnp.sum(traces**2 if each is None else each * traces**2)
    factors = traces * jnp.sqrt(total / jnp.where(squares > 0.0, squares, 1.0))
    return jnp.where(squares > 0.0, factors, before)


@eqx.filter_jit
def _register(
    configurations: Shapes,
    weight: LandmarkWeights | None,
    sample_weight: Float[Array, " n"] | None,
    tolerance: float | Scalar,
    scaling: bool,
    rescale: bool,
    reflection: bool,
    max_iterations: int,
) -> Registration:
    """`generalised_procrustes` with checked arguments."""
    n, _, dims = configurations.shape
    dtype, weights = configurations.dtype, landmark_weights(weight, configurations[0])
    centres, units, shapes, unit = _standardised(configurations, weight, scaling)
    each = None if sample_weight is None else sample_weight.astype(dtype)
    # The weight of each square.
    counts = (
        weights[None, :, None] if each is None else each[:, None, None] * weights[None, :, None]
    )
    total = jnp.sum(counts * shapes**2)
    is_extended = jnp.sum(shapes**2, axis=(1, 2)) > 0.0

    def step(state: _State) -> _State:
        cross = einsum("k,kd,nke->nde", weights, state.mean, shapes)
        rotations = jax.vmap(lambda c: best_rotation(c, reflection))(cross)
        factors = state.factors
        if rescale:
            best = _best_factors(jnp.sum(rotations * cross, axis=(1, 2)), each, total, factors)
            factors = jnp.where(is_extended, best, factors)
        registered = factors[:, None, None] * product(shapes, jnp.swapaxes(rotations, 1, 2))
        if each is None:
            mean = jnp.mean(registered, axis=0)
        else:
            mean = einsum("n,nkd->kd", each / jnp.sum(each), registered)
        residual = jnp.sum(counts * (registered - mean[None]) ** 2)
        i = state.iterations
        passes = jnp.arange(max_iterations, dtype=i.dtype)
        sums = jnp.where(passes < i, state.sums_of_squares, residual)
        decrease = jnp.where(i > 0, state.sums_of_squares[i - 1] - residual, jnp.inf)
        return _State(rotations, factors, registered, mean, sums, decrease, i + 1)

    def unconverged(state: _State) -> Bool[Array, ""]:
        return (state.iterations < max_iterations) & (state.decrease > tolerance * total)

    start = _State(
        rotations=jnp.broadcast_to(jnp.eye(dims, dtype=dtype), (n, dims, dims)),
        factors=jnp.ones((n,), dtype=dtype),
        registered=shapes,
        mean=shapes[0],
        sums_of_squares=jnp.zeros((max_iterations,), dtype=dtype),
        decrease=jnp.full((), jnp.inf, dtype=dtype),
        iterations=jnp.zeros((), dtype=jnp.int32),
    )
    end = jax.lax.while_loop(unconverged, step, varying_like(start, total, each))
    return _oriented(end, units, centres, end.decrease <= tolerance * total, unit)
