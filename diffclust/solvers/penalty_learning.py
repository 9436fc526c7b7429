"""Penalty weights learned from the data: EM steps on the evidence between runs of Lloyd's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust.energies import hessian_at_identity
from diffclust.energies.evidence import (
    FitStatistics,
    effective_pixels,
    em_step,
    estimate_noise,
    quadratic_forms,
)
from diffclust.parallel.chunks import Chunks
from diffclust.prototypes import Clusters
from diffclust.solvers.lloyd import Lloyd, Tally
from diffclust.solvers.lloyd_run import LloydRun
from diffclust.solvers.split_merge import flat_rows

_RESIDUALS = 1024
"""Maximum number of samples whose residuals are compared."""


@eqx.filter_jit
def _residuals(
    solver: Lloyd, clusters: Clusters, samples: PyTree, params: Array, cluster: Array
) -> Float[Array, "n pixels"]:
    """Differences of aligned samples from their prototypes, by the roots of their weights."""
    aligned = jax.vmap(solver.energy.aligned)(params, samples)
    difference = jax.tree.map(lambda a, c: a - c[cluster], aligned, clusters.prototype)
    weight = jax.vmap(solver.energy.pixel_weight)(params, samples)
    if weight is not None:
        difference = jax.tree.map(lambda leaf: leaf * jnp.sqrt(weight), difference)
    return flat_rows(difference)


@eqx.filter_jit
def _statistics(
    solver: Lloyd, clusters: Clusters, tally: Tally, residuals: Array, weights: Array
) -> FitStatistics:
    """The statistics, from the sums over a run and the residuals of some samples."""
    free = eqx.tree_at(lambda c: c.penalty, clusters, jnp.zeros_like(clusters.penalty))
    one = jax.tree.map(lambda leaf: leaf[0], clusters.prototype)
    bound = solver.energy.bind(one)
    hessian = jax.lax.map(lambda c: 0.5 * hessian_at_identity(solver.energy, bound, c, None), free)
    return FitStatistics(
        count=tally.count,
        distance=tally.energy - jnp.sum(tally.penalties * clusters.penalty, axis=1),
        sizes=tally.penalties,
        hessian=hessian,
        forms=quadratic_forms(solver.energy),
        pixels=effective_pixels(residuals, weights),
    )


@eqx.filter_jit
def _learned(fit: FitStatistics, penalty: Array, *, shared: bool) -> Array:
    """The most likely penalty weights, or those given if there are none."""
    hyperparameters = estimate_noise(fit, penalty)
    # The posterior depends on the weights: a few inner steps settle it for these warps.
    for _ in range(5):
        hyperparameters = em_step(fit, hyperparameters, shared=shared)
    weights = hyperparameters.weights
    return jnp.where(jnp.all(jnp.isfinite(weights)), weights, penalty).astype(penalty.dtype)


def warp_statistics(solver: Lloyd, chunks: Chunks, run: LloydRun) -> FitStatistics:
    """Sums over a run from which the evidence of its penalty weights is computed.

    Args:
        solver: The solver.
        chunks: The data.
        run: A finished run.

    Returns:
        Sums over its samples, and the curvature of its prototypes.
    """
    clusters = run.learned.clusters
    weighted = np.flatnonzero(chunks.weights[: chunks.num_samples] > 0)
    take = min(len(weighted), _RESIDUALS)
    # Evenly spaced, as neighbours in the data may belong to one cluster.
    index = weighted[np.minimum(np.arange(_RESIDUALS), take - 1) * len(weighted) // take]
    past = chunks.rows_of(run.memory, index)
    residuals = _residuals(
        solver, clusters, chunks.gather(index), past.params[:, 0], past.cluster[:, 0]
    )
    weights = chunks.weights[index[:take]].astype(residuals.dtype)
    compared = jax.device_put((np.asarray(residuals)[:take], weights))
    return _statistics(solver, clusters, run.tally, *compared)


def learned_penalties(
    solver: Lloyd, chunks: Chunks, run: LloydRun, *, shared: bool
) -> Float[Array, "clusters terms"]:
    """The penalty weights that a run's warps make most likely.

    Args:
        solver: The solver.
        chunks: The data.
        run: A converged run.
        shared: Whether all clusters share their weights.

    Returns:
        Weights of the penalty terms for each cluster; those of the run if nothing is left to
        explain, so that no weights are most likely.
    """
    fit = warp_statistics(solver, chunks, run)
    return _learned(fit, run.learned.clusters.penalty, shared=shared)
