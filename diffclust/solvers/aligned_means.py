"""Prototypes for clusters that were found in another way: the means of their aligned samples."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from diffclust._random import numpy_generator
from diffclust.alignment import Alignment
from diffclust.parallel.chunks import Batch
from diffclust.parallel.data import Data
from diffclust.parallel.in_flight import Chunkwise, in_flight, num_workers
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import Memory
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.lloyd_problem import LloydProblem
from diffclust.solvers.lloyd_run import assigned_memory, means_of_aligned
from diffclust.solvers.result import Callback, Progress, ignore
from diffclust.types import Key

_PASSES = 4


def align_to_own(
    solver: Lloyd, learned: Learned, samples: PyTree, memory: Memory, prepared: PyTree
) -> Alignment:
    """Aligns every sample of a batch to the prototype of its cluster.

    Args:
        solver: Energy and aligner.
        learned: The prototypes.
        samples: A batch of samples.
        memory: Their clusters, and the params to start from.
        prepared: What the aligner's `prepare` returned for the prototypes.

    Returns:
        Alignments with a leading batch axis and one candidate, the sample's cluster.
    """
    clusters, shared = learned.clusters, learned.shared

    def one(sample: PyTree, past: Memory) -> Alignment:
        own = clusters.take(past.cluster[:1])
        first = jnp.zeros((1,), dtype=jnp.int32)
        start = Alignment(first, past.params[:1], past.energy[:1])
        alignment = solver.aligner.align(solver.energy, sample, own, shared, start, prepared)
        return Alignment(past.cluster[:1], alignment.params, alignment.energy)

    return jax.vmap(one)(samples, memory)


def _aligned(everywhere: PyTree, rows: PyTree) -> Memory:
    (solver, learned), (samples, memory) = everywhere, rows
    prepared = solver.aligner.prepare(solver.energy, learned.clusters, learned.shared)
    alignment = align_to_own(solver, learned, samples, memory, prepared)
    energy = memory.energy.at[:, 0].set(alignment.energy[:, 0])
    return Memory(memory.cluster, energy, alignment.params)


def aligned_means(
    problem: LloydProblem,
    data: Data,
    assignments: Int[np.ndarray, " n"],
    *,
    key: Key,
    most: int = 200,
) -> Clusters:
    """Computes a prototype for each given cluster: the mean of its aligned samples.

    This works as in Lloyd's algorithm, but no sample changes its cluster. A few hundred samples of
    a cluster are enough for its mean.

    Args:
        problem: Energy, aligner and prototype family; K and penalty weights.
        data: The samples, with positive weights.
        assignments: The cluster of each sample of all processes; the prototype of an empty cluster
            is blank.
        key: Random key that draws the samples used for the means.
        most: Maximum number of samples used for the mean of a cluster.

    Returns:
        The clusters.
    """
    solver, count = problem.solver, problem.plan.num_clusters
    weight, rng = data.relative_weights, numpy_generator(key)
    weight = np.ones(len(assignments)) if weight is None else weight
    groups = [np.flatnonzero(assignments == cluster) for cluster in range(count)]
    drawn = [_sample_of(group, weight[group], most, rng) for group in groups]
    chosen, weight = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    order = np.argsort(chosen)
    chosen, subset = chosen[order], data.subset(chosen[order], weight[order])
    chosen = np.append(chosen, chosen[:1].repeat(subset.num_samples - chosen.size))
    level = problem.level(subset, 1)
    memory = assigned_memory(solver, level, count, assignments[chosen])
    state = means_of_aligned(solver, level, memory, count, problem.plan.penalty)
    step = eqx.Partial(solver.step, assign=False)
    for _ in range(_PASSES):
        state, new = data.replicate(state), []
        for batch, past in zip(level.batches, memory, strict=True):
            # The same program as for the final alignment of all samples, so that it is compiled
            # once.
            new.append(level.map(_aligned, (solver, state.learned), (batch.samples, past)))
            state, _ = level.step(step, state, batch, new[-1])
        memory, state = tuple(new), solver.end_pass(state)
    return data.unreplicate(state.learned.clusters)


def alignment_chunks(
    problem: LloydProblem,
    clusters: Clusters,
    data: Data,
    assignments: Int[np.ndarray, " n"],
    *,
    callback: Callback = ignore,
) -> Chunkwise:
    """Aligns every sample to the prototype of its given cluster, in chunks.

    Args:
        problem: Energy, aligner and prototype family.
        clusters: The prototypes.
        data: The samples.
        assignments: The cluster of each sample of all processes.
        callback: Called after every chunk.

    Returns:
        An iterator over the params of this process's samples, chunk by chunk.
    """
    solver, level = problem.solver, problem.level(data, 1)
    memory = assigned_memory(solver, level, problem.plan.num_clusters, assignments)
    size, count = level.own_size, data.own.stop - data.own.start
    learned = data.replicate(Learned(clusters))

    def compute(chunk: tuple[Batch, Memory]) -> Array:
        batch, past = chunk
        return level.map(_aligned, (solver, learned), (batch.samples, past)).params

    def chunks(first_row: int) -> Iterator[np.ndarray]:
        every = list(zip(level.batches, memory, strict=True))
        done = sum(min((number + 1) * size, count) <= first_row for number in range(len(every)))
        computed = in_flight(compute, every[done:], workers=num_workers(data.mesh))
        for number, params in enumerate(computed, done):
            start = number * size
            yield data.unshard(params)[max(first_row - start, 0) : max(count - start, 0), 0]
            callback(Progress("alignments", 0, 0, number + 1, level.count))

    return chunks


def _sample_of(
    group: np.ndarray, weight: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws some of a group's samples, and their weights."""
    if group.size <= most:
        return group, weight
    if np.ptp(weight) == 0:
        return rng.choice(group, most, replace=False), weight[:most]
    # At even steps along the cumulative weight: a heavy sample is drawn more than once.
    order = rng.permutation(group.size)
    ends = np.cumsum(weight[order])
    steps = (rng.random() + np.arange(most)) * (ends[-1] / most)
    drawn, times = np.unique(np.searchsorted(ends[:-1], steps, side="right"), return_counts=True)
    return group[order[drawn]], times.astype(weight.dtype)
