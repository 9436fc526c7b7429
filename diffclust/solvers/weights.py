"""Penalty weights learned from the data: EM steps on the evidence between runs of Lloyd's."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust.alignment import hessian_at_rest
from diffclust.objectives.evidence import (
    Hyperparameters,
    Warps,
    effective_pixels,
    em_step,
    noise_of,
    quadratic_forms,
)
from diffclust.prototypes import Clusters
from diffclust.solvers.chunks import Chunks
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.run import Report, Run, Stopping, run_lloyd

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


def warps_of(solver: Lloyd, chunks: Chunks, run: Run) -> Warps:
    """What the evidence needs to know of a run.

    Args:
        solver: The solver.
        chunks: The data.
        run: A finished run.

    Returns:
        Sums over its samples, and the curvature of its prototypes.
    """
    clusters, tally = run.learned.clusters, run.tally
    parts, seen = [], 0
    for batch, memory in zip(chunks.batches, run.memory, strict=True):
        take = min(chunks.num_samples - seen, chunks.size, _RESIDUALS - seen)
        if take <= 0:
            break
        residuals = _residuals(
            solver, clusters, batch.samples, memory.params[:, 0], memory.cluster[:, 0]
        )
        parts.append(np.asarray(residuals)[:take])
        seen += take
    penalised = jnp.sum(tally.penalties * clusters.penalty, axis=1)
    return Warps(
        tally.count,
        tally.energy - penalised,
        tally.penalties,
        _hessians(solver, clusters),
        quadratic_forms(solver.energy),
        effective_pixels(jnp.asarray(np.concatenate(parts))),
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

    Returns:
        A run under the learned weights; its loss is not comparable with the given one's.
    """
    for _ in range(rounds):
        warps = warps_of(solver, chunks, run)
        old = run.learned.clusters.penalty
        found: Hyperparameters = noise_of(warps, old)
        # The posterior moves with the weights: a few inner steps settle it under these warps.
        for _ in range(5):
            found = em_step(warps, found, shared=shared)
        weights = found.weights
        clusters = eqx.tree_at(lambda c: c.penalty, run.learned.clusters, weights)
        trial = run_lloyd(
            solver, chunks, solver.init(clusters), run.memory, stopping, report=report
        )
        run = dataclasses.replace(trial, history=run.history + trial.history)
        if bool(jnp.max(jnp.abs(jnp.log(weights / old))) < 0.05):
            break
    return run
