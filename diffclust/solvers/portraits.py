"""Prototypes for clusters that were found some other way: the means of their aligned samples."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from diffclust.alignment import Alignment
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.fit import Plan, begin_at_assignments, level_of
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.solvers.progress import Callback, Progress, ignore
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


@eqx.filter_jit
def _align(solver: Lloyd, learned: Learned, samples: PyTree, memory: Memory) -> Alignment:
    prepared = solver.aligner.prepare(solver.energy, learned.clusters, learned.shared)
    return align_to_own(solver, learned, samples, memory, prepared)


@eqx.filter_jit
def _step(
    solver: Lloyd, state: LloydState, batch: Batch, memory: Memory
) -> tuple[LloydState, Memory]:
    found = _align(solver, state.learned, batch.samples, memory)
    state = solver.accumulate(state, batch, found, memory.cluster[:, 0])
    energy = memory.energy.at[:, 0].set(found.energy[:, 0])
    return state, Memory(memory.cluster, energy, found.params)


def aligned_means(
    solver: Lloyd,
    plan: Plan,
    samples: PyTree,
    assignments: Int[np.ndarray, " n"],
    *,
    key: Key,
    passes: int = 4,
    most: int = 200,
) -> Clusters:
    """A prototype for each cluster of a given clustering: the mean of its aligned samples.

    As in Lloyd's algorithm, but no sample changes its cluster. A few hundred samples of a cluster
    are enough for its mean.

    Args:
        solver: Energy, aligner and prototype family.
        plan: Number of clusters, penalty weights and chunk size; nothing else of it is used.
        samples: Samples with a leading axis.
        assignments: The cluster of each sample; the prototype of an empty one is blank.
        key: Draws the samples that the means are made of.
        passes: Passes over these.
        most: Samples of a cluster that its mean is made of.

    Returns:
        The clusters.
    """
    rng = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**30)))
    chosen = _some_of_each(assignments, plan.num_clusters, most, rng)
    part = jax.tree.map(lambda leaf: leaf[chosen], samples)
    level = level_of(solver, plan, part, None, 1)
    state, memory = begin_at_assignments(solver, plan, level, assignments[chosen])
    for _ in range(passes):
        new = []
        for batch, past in zip(level.batches, memory, strict=True):
            state, present = _step(solver, state, batch, past)
            new.append(present)
        memory, state = tuple(new), solver.end_pass(state)
    return state.learned.clusters


def align_all(
    solver: Lloyd,
    plan: Plan,
    clusters: Clusters,
    samples: PyTree,
    assignments: Int[np.ndarray, " n"],
    *,
    callback: Callback = ignore,
) -> Float[np.ndarray, "n params"]:
    """How every sample aligns to the prototype of the cluster it is said to be in.

    Args:
        solver: Energy, aligner and prototype family.
        plan: Number of clusters and chunk size; nothing else of it is used.
        clusters: The prototypes.
        samples: Samples with a leading axis.
        assignments: The cluster of each sample.
        callback: Told of every chunk.

    Returns:
        The params of each sample.
    """
    level = level_of(solver, plan, samples, None, 1)
    _, memory = begin_at_assignments(solver, plan, level, assignments, average=False)
    learned = Learned(clusters)
    params = []
    for number, (batch, past) in enumerate(zip(level.batches, memory, strict=True)):
        params.append(np.asarray(_align(solver, learned, batch.samples, past).params[:, 0]))
        callback(Progress("portraits", 0, 0, number + 1, level.count))
    return np.concatenate(params)[: level.num_samples]


def _some_of_each(
    assignments: np.ndarray, clusters: int, most: int, rng: np.random.Generator
) -> np.ndarray:
    groups = [np.flatnonzero(assignments == cluster) for cluster in range(clusters)]
    drawn = [g if g.size <= most else rng.choice(g, most, replace=False) for g in groups]
    return np.sort(np.concatenate(drawn))
