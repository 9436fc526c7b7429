"""Runs of Lloyd's algorithm as one compiled program, for many small data sets at once.

`run_lloyd` loops on the host, over chunks, and can stop and report; `compiled_lloyd` is one
`jax.lax.while_loop` over data that fit in memory, to be mapped with `jax.vmap` over restarts,
samples of a simulation or settings.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from diffclust.alignment import Alignment
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Learned
from diffclust.solvers.base import Memory
from diffclust.solvers.lloyd import Lloyd, clusters_of, refilled
from diffclust.types import Count, Scalar


class CompiledRun(eqx.Module):
    """Where a run ended.

    Attributes:
        learned: The clusters under which the samples were assigned last.
        cluster: The cluster of each sample.
        loss: The summed energies; NaN where the run broke down.
        passes: Passes that were made.
        at_rest: Whether the last one changed no assignment.
    """

    learned: Learned
    cluster: Int[Array, " n"]
    loss: Scalar
    passes: Count
    at_rest: Bool[Array, ""]


def compiled_lloyd(
    solver: Lloyd,
    batch: Batch,
    assignments: Int[Array, " n"],
    *,
    num_clusters: int,
    penalty: tuple[float, ...] = (),
    max_passes: int = 100,
) -> CompiledRun:
    """Runs Lloyd's algorithm from given assignments until none changes.

    Args:
        solver: The solver.
        batch: All samples.
        assignments: The cluster of each sample at the start.
        num_clusters: K.
        penalty: Weights of the energy's penalty terms.
        max_passes: Most passes.

    Returns:
        Where it ended.
    """
    dtype = batch.weight.dtype
    first = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], num_clusters, axis=0), batch.samples)
    clusters = clusters_of(solver, first, penalty)
    memory = solver.init_memory(assignments.shape[0], num_clusters, dtype)
    memory = eqx.tree_at(lambda m: m.cluster, memory, memory.cluster.at[:, 0].set(assignments))
    given = jax.vmap(lambda m: Alignment(m.cluster[:1], m.params[:1], m.energy[:1]))(memory)
    initial = Lloyd(solver.energy, solver.aligner, solver.family.initial_family)
    state = initial.accumulate(initial.init(clusters), batch, given, assignments)
    state = solver.init(initial.end_pass(state).learned.clusters)

    def goes_on(carry: tuple[PyTree, ...]) -> Bool[Array, ""]:
        _, _, _, loss, passes, at_rest = carry
        return (passes < max_passes) & ~at_rest & ~jnp.isnan(loss)

    def one_pass(carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        state, memory, _, last, passes, _ = carry
        learned = state.learned
        state, memory = solver.step(state, batch, memory)
        empty = state.tally.count == 0
        loss = state.tally.loss
        at_rest = (state.tally.changed == 0) & ~jnp.any(empty) & solver.is_at_rest(loss, last)
        state = solver.end_pass(state)
        chosen = _worst(memory, batch, empty)
        clusters = refilled(
            solver,
            state.learned.clusters,
            empty,
            memory.cluster[chosen, 0],
            jax.tree.map(lambda leaf: leaf[chosen], batch.samples),
        )
        state = eqx.tree_at(lambda s: s.learned.clusters, state, clusters)
        return state, memory, learned, loss, passes + 1, at_rest

    none = jnp.zeros((), dtype=jnp.int32)
    start = (state, memory, state.learned, jnp.asarray(jnp.inf, dtype), none, none > 0)
    _, memory, learned, loss, passes, at_rest = jax.lax.while_loop(goes_on, one_pass, start)
    return CompiledRun(learned, memory.cluster[:, 0], loss, passes, at_rest)


def _worst(
    memory: Memory, batch: Batch, empty: Bool[Array, " clusters"]
) -> Int[Array, " clusters"]:
    """For each empty cluster another one of the samples that fit their clusters worst."""
    worst = jnp.argsort(-memory.energy[:, 0] * batch.weight)[: empty.shape[0]]
    places = jnp.minimum(jnp.cumsum(empty, dtype=jnp.int32) - 1, worst.shape[0] - 1)
    return worst[jnp.maximum(places, 0)]
