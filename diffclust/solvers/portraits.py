"""Prototypes for clusters that were found some other way: the means of their aligned samples."""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PyTree

from diffclust.alignment import Alignment
from diffclust.chunkwise import Rows, all_rows, in_flight, num_workers
from diffclust.parallel import gathered, own_part, replicate, rowwise, settled, sharded
from diffclust.processes import even_share, joined_rows, row_counts, rows_at
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.solvers.progress import Callback, Progress, ignore
from diffclust.solvers.start import Plan, begin_at_assignments, level_of
from diffclust.types import Key


def align_to_own(
    solver: Lloyd, learned: Learned, samples: PyTree, memory: Memory, prepared: PyTree
) -> Alignment:
    """Aligns every sample of a batch to the prototype of the cluster that it is in.

    Args:
        solver: Energy and aligner.
        learned: The prototypes.
        samples: A batch of samples.
        memory: Their clusters, and params to start from.
        prepared: What the aligner's `prepare` returned for the prototypes.

    Returns:
        Alignments with a leading batch axis and one candidate, the sample's cluster.
    """
    clusters, shared = learned.clusters, learned.shared

    def one(sample: PyTree, past: Memory) -> Alignment:
        own = clusters.take(past.cluster[:1])
        first = jnp.zeros((1,), dtype=jnp.int32)
        start = Alignment(first, past.params[:1], past.energy[:1])
        found = solver.aligner.align(solver.energy, sample, own, shared, start, prepared)
        return Alignment(past.cluster[:1], found.params, found.energy)

    return jax.vmap(one)(samples, memory)


def _aligned(solver: Lloyd, learned: Learned, samples: PyTree, memory: Memory) -> Alignment:
    prepared = solver.aligner.prepare(solver.energy, learned.clusters, learned.shared)
    return align_to_own(solver, learned, samples, memory, prepared)


@eqx.filter_jit
def _align(
    solver: Lloyd, learned: Learned, samples: PyTree, memory: Memory, mesh: Mesh | None
) -> Alignment:
    def run(everywhere: PyTree, rows: PyTree) -> Alignment:
        return _aligned(*everywhere, *rows)

    return rowwise(run, mesh)((solver, learned), (samples, memory))


def _add(
    solver: Lloyd, state: LloydState, batch: Batch, memory: Memory, *, axis_name: str | None = None
) -> tuple[LloydState, Memory]:
    found = _aligned(solver, state.learned, batch.samples, memory)
    state = solver.accumulate(state, batch, found, memory.cluster[:, 0], axis_name=axis_name)
    energy = memory.energy.at[:, 0].set(found.energy[:, 0])
    return state, Memory(memory.cluster, energy, found.params)


@eqx.filter_jit
def _step(
    solver: Lloyd, state: LloydState, batch: Batch, memory: Memory, mesh: Mesh | None
) -> tuple[LloydState, Memory]:
    return sharded(eqx.Partial(_add, solver), mesh)(state, batch, memory)


def aligned_means(
    solver: Lloyd,
    plan: Plan,
    samples: PyTree,
    assignments: Int[np.ndarray, " n"],
    *,
    key: Key,
    weight: Float[np.ndarray, " n"] | None = None,
    passes: int = 4,
    most: int = 200,
) -> Clusters:
    """A prototype for each cluster of a given clustering: the mean of its aligned samples.

    As in Lloyd's algorithm, but no sample changes its cluster. A few hundred samples of a cluster
    are enough for its mean.

    Args:
        solver: Energy, aligner and prototype family.
        plan: Number of clusters, penalty weights, chunk size and mesh; nothing else of it is used.
        samples: Samples with a leading axis; of several processes, each gives its own.
        assignments: The cluster of each sample of all; the prototype of an empty one is blank.
        key: Draws the samples that the means are made of.
        weight: Positive weights of the samples of all, or None for ones.
        passes: Passes over these.
        most: Samples of a cluster that its mean is made of.

    Returns:
        The clusters.
    """
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
    chosen, counts_as = _some_of_each(assignments, weight, plan.num_clusters, most, rng)
    mesh, counts = plan.mesh, row_counts(jax.tree.leaves(samples)[0].shape[0], plan.mesh)
    # Every process needs a sample.
    spare = max(0, len(counts) - chosen.size)
    chosen, counts_as = (np.append(x, x[:1].repeat(spare)) for x in (chosen, counts_as))
    own = even_share(chosen.size, mesh)
    part = rows_at(lambda i: jax.tree.map(lambda leaf: leaf[i], samples), chosen, counts, mesh)
    part = jax.tree.map(lambda leaf: leaf[own], part)
    level = level_of(solver, plan, part, counts_as[own], 1)
    state, memory = begin_at_assignments(solver, plan, level, assignments[chosen])
    for _ in range(passes):
        state, new = replicate(state, mesh), []
        for batch, past in zip(level.batches, memory, strict=True):
            state, present = settled(_step(solver, state, batch, past, mesh), mesh)
            new.append(present)
        memory, state = tuple(new), solver.end_pass(state)
    return gathered(state.learned.clusters, mesh)


def align_all(
    solver: Lloyd,
    plan: Plan,
    clusters: Clusters,
    samples: PyTree,
    assignments: Int[np.ndarray, " n"],
    *,
    callback: Callback = ignore,
    rows: Rows = all_rows,
) -> Float[np.ndarray, "n params"]:
    """How every sample aligns to the prototype of the cluster it is said to be in.

    Args:
        solver: Energy, aligner and prototype family.
        plan: Number of clusters, chunk size and mesh; nothing else of it is used.
        clusters: The prototypes.
        samples: Samples with a leading axis; of several processes, each gives its own.
        assignments: The cluster of each sample of all.
        callback: Told of every chunk.
        rows: Makes an array of the chunks.

    Returns:
        The params of each sample of all.
    """
    level = level_of(solver, plan, samples, None, 1)
    _, memory = begin_at_assignments(solver, plan, level, assignments, average=False)
    mesh, size = plan.mesh, level.own_size
    count = jax.tree.leaves(samples)[0].shape[0]
    learned = replicate(Learned(clusters), mesh)

    def compute(chunk: tuple[Batch, Memory]) -> Array:
        batch, past = chunk
        return settled(_align(solver, learned, batch.samples, past, mesh), mesh).params

    def chunks(begin: int) -> Iterator[np.ndarray]:
        every = list(zip(level.batches, memory, strict=True))
        done = sum(min((number + 1) * size, count) <= begin for number in range(len(every)))
        computed = in_flight(compute, every[done:], workers=num_workers(mesh))
        for number, params in enumerate(computed, done):
            start = number * size
            yield own_part(params, mesh)[max(begin - start, 0) : max(count - start, 0), 0]
            callback(Progress("portraits", 0, 0, number + 1, level.count))

    return joined_rows(rows(chunks), mesh)


def _some_of_each(
    assignments: np.ndarray,
    weight: np.ndarray | None,
    clusters: int,
    most: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Some samples of each cluster, in their order, and how much each counts."""
    each = np.ones(len(assignments)) if weight is None else weight
    groups = [np.flatnonzero(assignments == cluster) for cluster in range(clusters)]
    drawn = [_some(group, each[group], most, rng) for group in groups]
    chosen, counts = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    order = np.argsort(chosen)
    return chosen[order], counts[order]


def _some(
    group: np.ndarray, weight: np.ndarray, most: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Some of a group's samples, and how much each counts."""
    if group.size <= most:
        return group, weight
    if np.ptp(weight) == 0:
        return rng.choice(group, most, replace=False), weight[:most]
    # At even steps along the sum of weights: a heavy sample is met more than once.
    order = rng.permutation(group.size)
    ends = np.cumsum(weight[order])
    steps = (rng.random() + np.arange(most)) * (ends[-1] / most)
    met, times = np.unique(np.searchsorted(ends[:-1], steps, side="right"), return_counts=True)
    return group[order[met]], times.astype(weight.dtype)
