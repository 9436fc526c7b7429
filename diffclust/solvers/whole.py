"""Whole runs of Lloyd's algorithm inside one compiled program, for many small data sets at once.

`run_lloyd` loops on the host, over chunks, and can stop and report; `run_whole` is one
`jax.lax.while_loop` over data that fit in memory, to be mapped with `jax.vmap` over restarts,
samples of a simulation or settings.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from diffclust.alignment import Alignment
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.types import Count, Key, Scalar


class WholeRun(eqx.Module):
    """Where a run ended.

    Attributes:
        learned: The clusters under which the samples were assigned last.
        cluster: The cluster of each sample.
        loss: The summed energies; NaN where the run broke down.
        passes: Passes that were made.
        settled: Whether the last one changed no assignment.
    """

    learned: Learned
    cluster: Int[Array, " n"]
    loss: Scalar
    passes: Count
    settled: Bool[Array, ""]


def random_assignments(key: Key, size: int, num_clusters: int) -> Int[Array, " n"]:
    """A cluster for each sample, drawn so that clusters are of even size.

    Args:
        key: Random key.
        size: Number of samples.
        num_clusters: Number of clusters.

    Returns:
        Whole numbers below `num_clusters`.
    """
    return (jax.random.permutation(key, size) % num_clusters).astype(jnp.int32)


def run_whole(
    solver: Lloyd,
    batch: Batch,
    assigned: Int[Array, " n"],
    *,
    num_clusters: int,
    penalty: tuple[float, ...] = (),
    max_passes: int = 100,
) -> WholeRun:
    """Runs Lloyd's algorithm from given assignments until none changes.

    Args:
        solver: The solver.
        batch: All samples.
        assigned: The cluster of each sample at the start.
        num_clusters: K.
        penalty: Weights of the energy's penalty terms.
        max_passes: Most passes.

    Returns:
        Where it ended.
    """
    first = jax.tree.map(lambda leaf: leaf[:1], batch.samples)
    one = jax.vmap(solver.family.init)(first)
    prototype = jax.tree.map(lambda leaf: jnp.repeat(leaf, num_clusters, axis=0), one)
    dtype = batch.weight.dtype
    weights = jnp.tile(jnp.asarray(penalty, dtype=dtype)[None], (num_clusters, 1))
    memory = solver.remember(assigned.shape[0], num_clusters, dtype)
    memory = eqx.tree_at(lambda m: m.cluster, memory, memory.cluster.at[:, 0].set(assigned))
    given = jax.vmap(lambda m: Alignment(m.cluster[:1], m.params[:1], m.energy[:1]))(memory)
    starting = eqx.tree_at(lambda s: s.family, solver, solver.family.initial_family)
    state = starting.accumulate(starting.init(Clusters(prototype, weights)), batch, given, assigned)
    state = solver.init(starting.end_pass(state).learned.clusters)

    def goes_on(carry: tuple[PyTree, ...]) -> Bool[Array, ""]:
        _, _, _, loss, passes, settled = carry
        return (passes < max_passes) & ~settled & ~jnp.isnan(loss)

    def one_pass(carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        state, memory, _, last, passes, _ = carry
        learned = state.learned
        state, memory = solver.step(state, batch, memory)
        empty = state.tally.count == 0
        loss = state.tally.loss
        settled = (state.tally.changed == 0) & ~jnp.any(empty) & solver.is_at_rest(loss, last)
        state = _refilled(solver, solver.end_pass(state), batch, memory, empty)
        return state, memory, learned, loss, passes + 1, settled

    none = jnp.zeros((), dtype=jnp.int32)
    start = (state, memory, state.learned, jnp.asarray(jnp.inf, dtype), none, none > 0)
    _, memory, learned, loss, passes, settled = jax.lax.while_loop(goes_on, one_pass, start)
    return WholeRun(learned, memory.cluster[:, 0], loss, passes, settled)


def _refilled(
    solver: Lloyd, state: LloydState, batch: Batch, memory: Memory, empty: Bool[Array, " clusters"]
) -> LloydState:
    """Begins every empty cluster anew with one of the samples that fit their clusters worst."""
    clusters = state.learned.clusters
    worst = jnp.argsort(-memory.energy[:, 0] * batch.weight)[: empty.shape[0]]
    places = jnp.minimum(jnp.cumsum(empty, dtype=jnp.int32) - 1, worst.shape[0] - 1)
    chosen = worst[jnp.maximum(places, 0)]
    number = jnp.arange(empty.shape[0], dtype=jnp.int32)
    clusters = clusters.take(jnp.where(empty, memory.cluster[chosen, 0], number))
    begun = jax.vmap(solver.family.init)(jax.tree.map(lambda x: x[chosen], batch.samples))

    def filled(old: Float[Array, "..."], new: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.where(empty.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    prototype = jax.tree.map(filled, clusters.prototype, begun)
    clusters = eqx.tree_at(lambda c: c.prototype, clusters, prototype)
    return eqx.tree_at(lambda s: s.learned.clusters, state, clusters)
