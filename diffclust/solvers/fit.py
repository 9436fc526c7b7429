"""A whole fit: seeding, restarts on coarse images, moves, and the best run finished on the fine."""

import dataclasses
import time
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from diffclust.alignment import Alignment
from diffclust.distances import SquaredEuclidean
from diffclust.parallel import gathered, rowwise, settled, sharded
from diffclust.prototypes import Clusters, Learned
from diffclust.sampling import low_pass
from diffclust.solvers.base import AbstractSolver, Batch, Memory, remembered
from diffclust.solvers.chunks import Chunks, cut
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.solvers.moves import Moves, improve
from diffclust.solvers.progress import Callback, Progress, ignore
from diffclust.solvers.result import Assignment, Outcome
from diffclust.solvers.run import Report, Run, Stopping, host_assignment, run_lloyd
from diffclust.solvers.seeding import kmeans_plus_plus
from diffclust.solvers.weights import learn_weights
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


def fit_prototypes(
    solver: Lloyd,
    plan: Plan,
    samples: PyTree,
    weight: Float[np.ndarray, " n"] | None,
    *,
    key: Key,
    start: Start = None,
    callback: Callback = ignore,
) -> Outcome:
    """Fits prototypes to samples.

    Args:
        solver: Energy, aligner and prototype family.
        plan: How to proceed.
        samples: Samples with a leading axis.
        weight: Sample weights, or None.
        key: Random key.
        start: Where to start; a given start makes all restarts alike, so there is one.
        callback: Told of every chunk.

    Returns:
        The outcome, for the restart of least loss.

    Raises:
        FitError: If a loss is not a number.
    """
    begun = time.perf_counter()
    finest = level_of(solver, plan, samples, weight, 1)
    level = (
        finest if plan.coarsening == 1 else level_of(solver, plan, samples, weight, plan.coarsening)
    )
    restarts = plan.num_restarts if start is None else 1
    best: Run | None = None
    losses: list[float] = []
    for number, restart_key in enumerate(jax.random.split(key, restarts)):
        least = min(losses) if losses else None
        report = _reporter(callback, "pass", number, least)
        if start is None:
            callback(Progress("seeding", number, 0, 0, plan.num_clusters, None, least))
        state, memory = _start(solver, plan, level, finest, start, restart_key)
        run = run_lloyd(solver, level, state, memory, plan.stopping, report=report)
        run = improve(
            solver,
            level,
            run,
            plan.stopping,
            plan.moves,
            seed=int(jax.random.randint(restart_key, (), 0, 2**30)),
            report=report,
            split_report=lambda done, total, number=number, run=run, least=least: callback(
                Progress("split", number, len(run.history), done, total, run.loss, least)
            ),
        )
        losses.append(run.loss)
        if best is None or run.loss < best.loss:
            best = run
    assert best is not None
    if plan.weight_rounds > 0:
        best = learn_weights(
            solver,
            level,
            best,
            plan.stopping,
            rounds=plan.weight_rounds,
            shared=not plan.weights_per_cluster,
            report=_reporter(callback, "refine", int(np.argmin(losses)), min(losses)),
        )
    if plan.coarsening > 1:
        state = from_alignments(solver, finest, best.memory, best.learned.clusters)
        report = _reporter(callback, "refine", int(np.argmin(losses)), min(losses))
        best = run_lloyd(solver, finest, state, best.memory, plan.stopping, report=report)
    return Outcome(
        gathered(best.learned, plan.mesh),
        host_assignment(finest, best.memory),
        best.history,
        tuple(losses),
        best.status,
        plan.chunk_size,
        time.perf_counter() - begun,
    )


def _reporter(callback: Callback, stage: str, restart: int, least: float | None) -> Report:
    def report(iteration: int, done: int, total: int, loss: float | None) -> None:
        callback(Progress(stage, restart, iteration, done, total, loss, least))

    return report


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


def seeded(
    solver: Lloyd, plan: Plan, level: Chunks, finest: Chunks, key: Key
) -> tuple[LloydState, tuple[Memory, ...]]:
    """A state with prototypes drawn by k-means++, and a blank memory.

    Args:
        solver: The solver.
        plan: Number of clusters and penalty weights.
        level: The data that will be fitted.
        finest: The data at full resolution, on which the seeds are drawn.
        key: Random key.

    Returns:
        State and memory to start a run from.
    """
    return _start(solver, plan, level, finest, None, key)


def _blank(solver: Lloyd, chunks: Chunks, plan: Plan) -> tuple[Memory, ...]:
    blank = solver.remember(chunks.size, plan.num_clusters, chunks.dtype)
    return (blank,) * chunks.count


def _clusters(solver: Lloyd, plan: Plan, samples: PyTree) -> Clusters:
    """Clusters that are begun with one sample each."""
    prototype = jax.vmap(solver.family.begin)(jax.tree.map(jnp.asarray, samples))
    dtype = jnp.result_type(*jax.tree.leaves(prototype))
    penalty = jnp.tile(jnp.asarray(plan.penalty, dtype=dtype)[None], (plan.num_clusters, 1))
    return Clusters(prototype, penalty)


def _start(
    solver: Lloyd, plan: Plan, level: Chunks, finest: Chunks, start: Start, key: Key
) -> tuple[LloydState, tuple[Memory, ...]]:
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
    prototype = jax.vmap(solver.family.begin)(blank)
    starting = eqx.tree_at(lambda s: s.family, solver, solver.family.starting)
    state = starting.init(eqx.tree_at(lambda c: c.prototype, clusters, prototype))
    for batch, past in zip(chunks.batches, memory, strict=True):
        state = settled(_accumulate(starting, state, batch, past, chunks.mesh), chunks.mesh)
    return solver.init(starting.end_pass(state).learned.clusters)


@eqx.filter_jit
def _assign(
    solver: AbstractSolver,
    learned: PyTree,
    samples: PyTree,
    memory: Memory,
    mesh: Mesh | None,
) -> Memory:
    def run(everywhere: PyTree, rows: PyTree) -> Memory:
        (solver, learned), (samples, memory) = everywhere, rows
        return remembered(solver.assign(learned, samples, memory), memory.params.shape[1])

    return rowwise(run, mesh)((solver, learned), (samples, memory))


def assign_chunks(
    solver: AbstractSolver,
    learned: Learned,
    samples: PyTree,
    *,
    chunk_size: int,
    callback: Callback = ignore,
    mesh: Mesh | None = None,
) -> tuple[Chunks, tuple[Memory, ...]]:
    """Assigns samples to clusters that stay as they are, with all candidates.

    Args:
        solver: What assigns.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        chunk_size: Samples a chunk, and a device.
        callback: Told of every chunk.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        The chunks and the memory of each.
    """
    chunks = cut(samples, None, size=chunk_size, normalise=solver.normalise, mesh=mesh)
    found = []
    for number, batch in enumerate(chunks.batches):
        blank = solver.remember(chunks.size, len(learned.clusters), batch.weight.dtype)
        found.append(_assign(solver, learned, batch.samples, blank, mesh))
        jax.block_until_ready(found[-1])
        callback(Progress("predict", 0, 0, number + 1, chunks.count))
    return chunks, tuple(found)


def assign_samples(
    solver: AbstractSolver,
    learned: Learned,
    samples: PyTree,
    *,
    chunk_size: int,
    callback: Callback = ignore,
) -> Assignment:
    """Assigns samples to clusters that stay as they are.

    Args:
        solver: What assigns.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        chunk_size: Samples a chunk.
        callback: Told of every chunk.

    Returns:
        The assignment.
    """
    return host_assignment(
        *assign_chunks(solver, learned, samples, chunk_size=chunk_size, callback=callback)
    )
