"""Penalty weights learned from the data: EM steps on the evidence between runs of Lloyd's."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust.energies import hessian_at_rest
from diffclust.energies.evidence import (
    FitStatistics,
    Hyperparameters,
    effective_pixels,
    em_step,
    estimate_noise,
    quadratic_forms,
)
from diffclust.prototypes import Clusters
from diffclust.solvers.chunks import Chunks
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.run import Going, Report, Run, Stopping
from diffclust.solvers.standing import KeepTrying, Trying, attempt

_RESIDUALS = 1024
"""Most samples whose residuals are compared."""


@eqx.filter_jit
def _residuals(
    solver: Lloyd, clusters: Clusters, samples: PyTree, params: Array, cluster: Array
) -> Float[Array, "n pixels"]:
    aligned = jax.vmap(solver.energy.aligned)(params, samples)
    difference = jax.tree.map(lambda a, c: a - c[cluster], aligned, clusters.prototype)
    leaves = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(difference)]
    return jnp.concatenate(leaves, axis=1)


@eqx.filter_jit
def _hessians(solver: Lloyd, clusters: Clusters) -> Float[Array, "clusters params params"]:
    free = eqx.tree_at(lambda c: c.penalty, clusters, jnp.zeros_like(clusters.penalty))
    one = jax.tree.map(lambda leaf: leaf[0], clusters.prototype)
    bound = solver.energy.bind(one)
    return jax.lax.map(lambda c: 0.5 * hessian_at_rest(solver.energy, bound, c, None), free)


def warps_of(solver: Lloyd, chunks: Chunks, run: Run) -> FitStatistics:
    """What the evidence needs to know of a run.

    Args:
        solver: The solver.
        chunks: The data.
        run: A finished run.

    Returns:
        Sums over its samples, and the curvature of its prototypes.
    """
    clusters, tally = run.learned.clusters, run.tally
    take = min(chunks.num_samples, _RESIDUALS)
    index = np.minimum(np.arange(_RESIDUALS), take - 1)
    past = chunks.recall(run.memory, index)
    residuals = _residuals(
        solver, clusters, chunks.gather(index), past.params[:, 0], past.cluster[:, 0]
    )
    penalised = jnp.sum(tally.penalties * clusters.penalty, axis=1)
    return FitStatistics(
        tally.count,
        tally.energy - penalised,
        tally.penalties,
        _hessians(solver, clusters),
        quadratic_forms(solver.energy),
        effective_pixels(jnp.asarray(np.asarray(residuals)[:take])),
    )


def learn_weights(
    solver: Lloyd,
    chunks: Chunks,
    run: Run,
    stopping: Stopping,
    *,
    rounds: int,
    shared: bool,
    report: Report | None = None,
    begin: Trying | None = None,
    keep: KeepTrying | None = None,
) -> Run:
    """Alternates EM steps on the penalty weights with runs of Lloyd's algorithm.

    Args:
        solver: The solver.
        chunks: The data.
        run: A run that has come to rest.
        stopping: When a run stops.
        rounds: Most rounds; it ends earlier when no weight changes by more than 5 %.
        shared: Whether all clusters share their weights.
        report: Called after every chunk, or None.
        begin: Where to go on, as `keep` was told it; None to begin with `run`.
        keep: Called after every pass and round, or None.

    Returns:
        A run under the learned weights; its loss is not comparable with the given one's.
    """
    at = Trying(run) if begin is None else begin
    while at.round < rounds:
        run, going = at.run, at.going
        if going is None:
            weights = _learned(solver, chunks, run, shared=shared)
            clusters = eqx.tree_at(lambda c: c.penalty, run.learned.clusters, weights)
            going = Going(solver.init(clusters), run.memory)
        weights, old = (c.penalty for c in (going.state.learned.clusters, run.learned.clusters))
        trial = attempt(solver, chunks, at, going, stopping, report=report, keep=keep)
        trial = dataclasses.replace(trial, history=run.history + trial.history)
        settles = bool(jnp.max(jnp.abs(jnp.log(weights / old))) < 0.05)
        at = Trying(trial, rounds if settles else at.round + 1)
        if keep is not None:
            keep(at)
    return at.run


def _learned(
    solver: Lloyd, chunks: Chunks, run: Run, *, shared: bool
) -> Float[Array, "clusters terms"]:
    """The penalty weights that the run's warps make most likely."""
    warps = warps_of(solver, chunks, run)
    found: Hyperparameters = estimate_noise(warps, run.learned.clusters.penalty)
    # The posterior moves with the weights: a few inner steps settle it under these warps.
    for _ in range(5):
        found = em_step(warps, found, shared=shared)
    return found.weights
