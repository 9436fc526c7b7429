"""How a fit proceeds, and where its runs start: levels of resolution, seeds, given clusters."""

import dataclasses
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Int, PyTree

from diffclust.alignment import Alignment
from diffclust.distances import SquaredEuclidean
from diffclust.parallel import settled, sharded
from diffclust.prototypes import Clusters
from diffclust.sampling import low_pass
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.chunks import Chunks, cut
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.solvers.moves import Moves
from diffclust.solvers.run import Stopping
from diffclust.solvers.seeding import kmeans_plus_plus
from diffclust.solvers.whole import random_assignments
from diffclust.types import Key


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a fit proceeds.

    Attributes:
        num_clusters: K.
        penalty: Weights of the penalty terms, the same for every cluster at the start.
        num_restarts: Runs from different seeds, of which the one of least loss is kept.
        stopping: When a run stops.
        moves: Split-and-merge moves.
        coarsening: Restarts run on images this many times coarser; 1 runs them on the images.
        chunk_size: Samples a chunk, and a device.
        weight_rounds: Rounds in which the penalty weights are learned; 0 keeps them.
        weights_per_cluster: Whether every cluster learns its own.
        seeding: Whether restarts begin with prototypes drawn by k-means++, or with the means of
            clusters to which samples are assigned at random, as many to each.
        mesh: Devices that share every chunk, or None for one.
    """

    num_clusters: int
    penalty: tuple[float, ...]
    num_restarts: int
    stopping: Stopping
    moves: Moves
    coarsening: int
    chunk_size: int
    weight_rounds: int = 0
    weights_per_cluster: bool = False
    seeding: Literal["k-means++", "random"] = "k-means++"
    mesh: Mesh | None = None


Start = tuple[Literal["prototypes", "assignments"], Array] | None
"""Prototypes `(clusters, ...)` or a cluster for each sample; None for k-means++."""


def coarsen(sample: PyTree, factor: int) -> PyTree:
    """A sample with every image in it made coarser.

    Args:
        sample: A tree; leaves of rank 3 are images.
        factor: How many times coarser; 1 changes nothing.

    Returns:
        The coarser sample.
    """
    sigma = 0.4 * factor if factor > 1 else 0.0
    return jax.tree.map(
        lambda x: low_pass(x, sigma=sigma, factor=factor) if x.ndim == 3 else x, sample
    )


def _normalise(sample: PyTree, *, solver: Lloyd, factor: int) -> PyTree:
    return solver.family.normalise(coarsen(sample, factor))


def level_of(
    solver: Lloyd, plan: Plan, samples: PyTree, weight: np.ndarray | None, factor: int
) -> Chunks:
    """The data at one resolution, normalised and cut.

    Args:
        solver: Its family normalises the samples.
        plan: Its chunk size is used.
        samples: Samples with a leading axis.
        weight: Sample weights, or None.
        factor: How many times coarser.

    Returns:
        The chunks.
    """
    normalise = eqx.Partial(_normalise, solver=solver, factor=factor)
    return cut(samples, weight, size=plan.chunk_size, normalise=normalise, mesh=plan.mesh)


def _blank(solver: Lloyd, chunks: Chunks, plan: Plan) -> tuple[Memory, ...]:
    blank = solver.remember(chunks.own_size, plan.num_clusters, chunks.dtype)
    return (blank,) * chunks.count


def blank_state(solver: Lloyd, plan: Plan, chunks: Chunks) -> LloydState:
    """A state that means nothing, for the shapes of its arrays.

    Args:
        solver: The solver.
        plan: Number of clusters and penalty weights.
        chunks: The data.

    Returns:
        The state.
    """
    count = plan.num_clusters
    samples = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), chunks.blank)
    return solver.init(_clusters(solver, plan, samples))


def _clusters(solver: Lloyd, plan: Plan, samples: PyTree) -> Clusters:
    """Clusters that are begun with one sample each."""
    prototype = jax.vmap(solver.family.init)(jax.tree.map(jnp.asarray, samples))
    dtype = jnp.result_type(*jax.tree.leaves(prototype))
    penalty = jnp.tile(jnp.asarray(plan.penalty, dtype=dtype)[None], (plan.num_clusters, 1))
    return Clusters(prototype, penalty)


def started(
    solver: Lloyd, plan: Plan, level: Chunks, finest: Chunks, start: Start, key: Key
) -> tuple[LloydState, tuple[Memory, ...]]:
    """A state and a memory to start a run from.

    Args:
        solver: The solver.
        plan: Number of clusters, penalty weights and seeding.
        level: The data that will be fitted.
        finest: The data at full resolution, on which seeds are drawn.
        start: Where to start; None for seeds.
        key: Random key.

    Returns:
        The state, and the memory of each chunk.
    """
    if start is None and plan.seeding == "random":
        drawn = random_assignments(key, level.num_samples, plan.num_clusters)
        return begin_at_assignments(solver, plan, level, np.asarray(drawn))
    memory = _blank(solver, level, plan)
    if start is None:
        # Seeds are drawn on the images themselves, so that they do not depend on the coarsening.
        seeds = kmeans_plus_plus(finest, plan.num_clusters, SquaredEuclidean().to_all, key=key)
        return solver.init(_clusters(solver, plan, level.gather(seeds))), memory
    kind, given = start
    if kind == "prototypes":
        normalise = eqx.Partial(_normalise, solver=solver, factor=plan.coarsening)
        given = jax.vmap(normalise)(jnp.asarray(given))
        return solver.init(_clusters(solver, plan, given)), memory
    return begin_at_assignments(solver, plan, level, np.asarray(given))


def begin_at_assignments(
    solver: Lloyd,
    plan: Plan,
    chunks: Chunks,
    assignments: Int[np.ndarray, " n"],
    *,
    average: bool = True,
) -> tuple[LloydState, tuple[Memory, ...]]:
    """A state and a memory for samples whose clusters are given, none of them moved yet.

    Args:
        solver: The solver.
        plan: Number of clusters and penalty weights.
        chunks: The data.
        assignments: The cluster of each sample.
        average: Whether prototypes become the means of the clusters; else they mean nothing.

    Returns:
        A state with empty sums, and the memory of each chunk.
    """
    first = jax.tree.map(
        lambda leaf: np.repeat(leaf, plan.num_clusters, axis=0), chunks.gather(np.zeros(1, int))
    )
    unseen = solver.remember(chunks.num_samples, plan.num_clusters, chunks.dtype)
    cluster = unseen.cluster.at[:, 0].set(jnp.asarray(assignments, dtype=jnp.int32))
    memory = chunks.spread(eqx.tree_at(lambda m: m.cluster, unseen, cluster))
    clusters = _clusters(solver, plan, first)
    if not average:
        return solver.init(clusters), memory
    return from_alignments(solver, chunks, memory, clusters), memory


def _add(
    solver: Lloyd, state: LloydState, batch: Batch, memory: Memory, *, axis_name: str | None = None
) -> tuple[LloydState, Memory]:
    found = jax.vmap(lambda m: Alignment(m.cluster[:1], m.params[:1], m.energy[:1]))(memory)
    previous = memory.cluster[:, 0]
    return solver.accumulate(state, batch, found, previous, axis_name=axis_name), memory


@eqx.filter_jit
def _accumulate(
    solver: Lloyd, state: LloydState, batch: Batch, memory: Memory, mesh: Mesh | None
) -> LloydState:
    return sharded(eqx.Partial(_add, solver), mesh)(state, batch, memory)[0]


def from_alignments(
    solver: Lloyd, chunks: Chunks, memory: tuple[Memory, ...], clusters: Clusters
) -> LloydState:
    """A state whose prototypes are the means of samples as they are aligned already.

    Args:
        solver: The solver.
        chunks: The data, at any resolution: params do not depend on it.
        memory: Clusters and params of the samples.
        clusters: Clusters whose prototypes are replaced.

    Returns:
        A state with empty sums.
    """
    blank = jax.tree.map(
        lambda leaf: jnp.zeros((len(clusters), *leaf.shape), leaf.dtype), chunks.blank
    )
    prototype = jax.vmap(solver.family.init)(blank)
    starting = eqx.tree_at(lambda s: s.family, solver, solver.family.initial_family)
    state = starting.init(eqx.tree_at(lambda c: c.prototype, clusters, prototype))
    for batch, past in zip(chunks.batches, memory, strict=True):
        state = settled(_accumulate(starting, state, batch, past, chunks.mesh), chunks.mesh)
        # Chunks that are waited for by nobody would pile up before the device.
        jax.block_until_ready(state)
    return solver.init(starting.end_pass(state).learned.clusters)
