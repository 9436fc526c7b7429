"""Runs of Lloyd's algorithm: where they start, their passes over the chunks, and when they stop."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from diffclust import _validation
from diffclust.parallel.chunks import Chunks
from diffclust.parallel.data import PerSample
from diffclust.prototypes import Clusters, Learned
from diffclust.prototypes.base import column
from diffclust.solvers.base import Memory, zeros_of
from diffclust.solvers.lloyd import Lloyd, LloydState, Tally, empty_state, has_converged, misfit
from diffclust.solvers.result import FitError, Status
from diffclust.types import Scalar

_LARGE = 2**22
"""Total number of values in all samples above which sums are kept and only changes are added: with
fewer, a second program takes longer to compile than it saves."""

_EVEN = 16.0
"""The largest ratio of two weights for which sums are kept: when heavy samples leave a cluster,
their rounding errors would exceed the sum of light ones."""


class LloydRun(eqx.Module):
    """A run after a whole pass: all fields refer to the same prototypes.

    Attributes:
        learned: The prototypes under which the samples were assigned.
        per_sample: Memory of all samples.
        tally: Sums of the pass.
        history: The loss of every pass.
        status: Why the run stopped.
    """

    learned: Learned
    per_sample: PerSample
    tally: Tally
    history: tuple[float, ...] = eqx.field(static=True)
    status: Status = eqx.field(static=True)

    @property
    def memory(self) -> tuple[Memory, ...]:
        """Memory of each chunk."""
        return self.per_sample.rows

    @property
    def loss(self) -> float:
        """The penalised distortion of the last pass."""
        return self.history[-1]


@dataclasses.dataclass(frozen=True)
class Stopping:
    """The stopping rule of a run.

    Attributes:
        max_passes: Maximum number of passes in a run.
        tolerance: Smallest relative decrease of the loss that justifies another pass. 0 continues
            until no assignment changes, None makes all passes.
    """

    max_passes: int
    tolerance: float | None


Penalty = tuple[float | Scalar, ...] | Float[Array, " terms"] | Float[Array, "clusters terms"]
"""Weights of the penalty terms, the same for all clusters or one row per cluster."""

Report = Callable[[Learned, int, int], None]
"""Called with the prototypes under which a pass assigns, chunks done and the total."""

Reassign = Callable[..., tuple[LloydState, tuple[Memory, ...]]]
"""`sum_over_chunks` with its first two arguments bound: a pass that finds the clusters of all
samples and the loss, but neither energies nor margins."""


def sum_over_chunks(
    step: Callable,
    chunks: Chunks,
    state: PyTree,
    memory: Iterator[Memory] | Sequence[Memory],
    *,
    report: Callable[[int, int], None] | None = None,
) -> tuple[Any, tuple[Memory, ...]]:
    """Applies a step to all chunks.

    Args:
        step: A function like `Lloyd.step`.
        chunks: The data.
        state: A state with empty sums, or with those of the last pass.
        memory: Memory of each chunk.
        report: Called with chunks done and the total, or None.

    Returns:
        The state with all sums, and the new memory.
    """
    new = []
    for number, (batch, past) in enumerate(zip(chunks.batches, memory, strict=True)):
        state, present = chunks.step(step, state, batch, past)
        new.append(present)
        if report is not None:
            jax.block_until_ready(present)
            report(number + 1, chunks.count)
    return state, tuple(new)


def _finite_loss(tally: Tally, iteration: int) -> float:
    loss = float(tally.loss)
    if not np.isfinite(loss):
        raise FitError(
            f"pass {iteration}: the loss is {loss}; a prototype or an alignment left the "
            "range of its dtype. Check the samples' scale and the penalty weights"
        )
    return loss


def keeps_sums(solver: Lloyd, chunks: Chunks) -> bool:
    """Whether passes keep the sums of the last one and add only what has changed.

    Args:
        solver: The solver.
        chunks: The data.

    Returns:
        True if sums persist, there are many samples and weights are even.
    """
    size = sum(leaf.size for leaf in jax.tree.leaves(chunks.sample))
    is_large = chunks.num_samples * size >= _LARGE
    return solver.sums_persist and is_large and _are_even(chunks.weights)


def _are_even(weights: np.ndarray) -> bool:
    """Whether weights are similar enough for differences of their sums to keep their digits."""
    positive = weights[weights > 0]
    return not len(positive) or bool(positive.max() <= _EVEN * positive.min())


def run_pass(
    solver: Lloyd,
    chunks: Chunks,
    state: LloydState,
    memory: tuple[Memory, ...],
    stopping: Stopping,
    *,
    history: tuple[float, ...] = (),
    previous: Learned | None = None,
    report: Report | None = None,
    reassign: Reassign | None = None,
    changed: int | None = None,
) -> LloydRun | tuple[LloydState, tuple[Memory, ...], tuple[float, ...], Learned]:
    """Makes one pass over the data.

    Empty clusters are refilled with the samples whose energy times weight is largest.

    Args:
        solver: The solver.
        chunks: The data.
        state: The state to start from.
        memory: Memory of each chunk.
        stopping: When the run stops.
        history: The loss of every pass before.
        previous: What was learned before the last pass, to be restored if the loss rises; after a
            refill, what this pass starts from, so that losses are not compared.
        report: Called after every chunk, or None.
        reassign: Makes this pass instead, if sums are kept and it is not a run's first; if the run
            stops, or a cluster is empty, energies and margins are computed afterwards. None
            computes them in every pass.
        changed: How many samples this pass has moved to another cluster, if known.

    Returns:
        The run if it stopped with this pass, otherwise the arguments of the next one: state,
        memory, history and previous.

    Raises:
        FitError: If the loss is not finite.
    """
    iteration, last = len(history), history[-1] if history else None
    # Other machines may have rounded what one computed alone differently. Placed in the same way in
    # every pass, so that no step is compiled twice.
    state = chunks.replicate(state if history else chunks.broadcast(state))
    past, learned = list(chunks.shard(memory)), state.learned
    # Each chunk's memory is freed when the new one exists: for millions of samples, one copy is
    # enough.
    del memory
    released = (past.pop(0) for _ in range(len(past)))
    chunk_done, keep = report and functools.partial(report, learned), keeps_sums(solver, chunks)
    # The first pass starts from scratch: the memory may not belong to the state's sums.
    step = eqx.Partial(solver.step, incremental=keep and iteration > 0)
    whole = functools.partial(sum_over_chunks, step, chunks)
    summed, memory = (reassign or whole)(state, released, report=chunk_done)
    tally, loss = summed.tally, _finite_loss(summed.tally, iteration)
    history = (*history, loss)
    state = solver.end_pass(summed, keep=keep)
    empty = np.asarray(tally.count) == 0
    # If all samples are copies of a few, refills would go on for ever.
    copies = empty.any() and iteration and abs(loss) <= rounding_of_zero(learned, tally.count)
    changed = 0 if copies else int(tally.changed) if changed is None else changed
    # A cluster that a refill left empty, while nothing else changed, stays empty.
    may_stop = not (empty.any() and changed > 0)
    may_stop &= bool(has_converged(state.learned.objective, learned.objective))
    status = _verdict(solver, history, changed, stopping) if may_stop else None
    risen = previous and has_risen(solver, learned, previous, loss, last, tally.count)
    if status is None and len(history) >= stopping.max_passes:
        status = Status.MAX_PASSES
    if reassign is not None and (risen or status is not None or empty.any()):
        # Energies, margins and the last digits of the loss are missing.
        cleared = jax.tree.map(jnp.zeros_like, tally)
        again = LloydState(learned, summed.statistics, cleared)
        known = {"history": history[:-1], "previous": previous, "changed": changed}
        return run_pass(solver, chunks, again, memory, stopping, **known)
    if risen:
        # The better pass is repeated, as its assignments were not kept.
        again = empty_state(solver, chunks.replicate(previous))
        run = run_pass(solver, chunks, again, memory, Stopping(1, stopping.tolerance))
        assert isinstance(run, LloydRun)
        return replace(run, history=(*history[:-2], run.loss), status=Status.ROSE)
    if status is not None:
        return LloydRun(learned, PerSample(memory), tally, history, status)
    if empty.any():
        state = _refill(solver, state, chunks, memory, empty)
        learned = state.learned
    return state, memory, history, learned


def lloyd_iterations(
    solver: Lloyd, chunks: Chunks, state: LloydState, memory: tuple[Memory, ...], stopping: Stopping
) -> LloydRun:
    """Makes passes over the data until the assignments or the loss no longer change.

    Args:
        solver: The solver.
        chunks: The data.
        state: The state to start from.
        memory: Memory of each chunk.
        stopping: When to stop.

    Returns:
        The run, after its last whole pass.

    Raises:
        FitError: If the loss is not finite.
    """
    history, previous = (), None
    while True:
        run = run_pass(solver, chunks, state, memory, stopping, history=history, previous=previous)
        if isinstance(run, LloydRun):
            return run
        state, memory, history, previous = run


def has_risen(
    solver: Lloyd,
    learned: Learned,
    previous: Learned,
    loss: Scalar | float,
    last: Scalar | float | None,
    count: Float[Array, " clusters"],
) -> Bool[Array, ""] | bool:
    """Whether the loss has risen beyond rounding although only the clusters have changed.

    A rise within the rounding of squared distances, which grows with the prototypes' squares, does
    not count.

    Args:
        solver: The solver.
        learned: What was learned before this pass.
        previous: What was learned before the last one.
        loss: The loss of this pass.
        last: The loss of the pass before; None if there was none.
        count: The weights of all samples, summed over each cluster.

    Returns:
        Whether it has risen.
    """
    if last is None or not solver.family.descends:
        return False
    higher = loss > last + rounding_of(last, learned)
    if higher is False:
        return False
    higher &= loss - last > rounding_of_zero(learned, count)
    is_same = eqx.tree_equal(learned.objective, previous.objective)
    return higher & is_same & jnp.logical_not(eqx.tree_equal(learned, previous))


def rounding_of_zero(learned: Learned, count: Float[Array, " clusters"]) -> Scalar:
    """A bound on the rounding of squared distances that are all zero.

    Args:
        learned: Determines the precision, and the rounding, which grows with the prototypes'
            squares.
        count: The weights of all samples, summed over each cluster.

    Returns:
        A bound on their sum.
    """
    eps = 10.0 * float(jnp.finfo(learned.clusters.dtype).eps)
    squares = [jnp.mean(leaf**2, axis=0) for leaf in jax.tree.leaves(learned.clusters.prototype)]
    return eps * jnp.sum(count) * sum(map(jnp.sum, squares))


def rounding_of(loss: Scalar | float, learned: Learned) -> Scalar | float:
    """How much equal losses may differ through rounding.

    Args:
        loss: One of the losses.
        learned: Determines the precision.

    Returns:
        The difference.
    """
    return 100.0 * float(jnp.finfo(learned.clusters.dtype).eps) * abs(loss)


def _verdict(
    solver: Lloyd, history: tuple[float, ...], changed: int, stopping: Stopping
) -> Status | None:
    """Whether the loss no longer changes; the first pass has nothing to be compared with."""
    if len(history) < 2 or stopping.tolerance is None:
        return None
    if stopping.tolerance == 0.0:
        # The loss's last digits are not significant: only assignments decide.
        rests = changed == 0 and solver.loss_has_converged(history[-1], history[-2])
        return Status.ASSIGNMENTS if rests else None
    if history[-2] - history[-1] > stopping.tolerance * abs(history[-2]):
        return None
    return Status.ASSIGNMENTS if changed == 0 else Status.LOSS


def refilled(
    solver: Lloyd,
    state: LloydState,
    empty: Bool[Array, " clusters"],
    source: Int[Array, " clusters"],
    samples: PyTree,
) -> LloydState:
    """Restarts every empty cluster with one sample.

    Everything that belongs to the cluster is copied from the cluster that the sample was in.

    Args:
        solver: The solver, whose family initialises prototypes.
        state: The state.
        empty: Which of its clusters are empty.
        source: For each cluster, the one that its new sample was in.
        samples: For each cluster, a sample; those for clusters that are not empty are not used.

    Returns:
        The state with these clusters.
    """
    number = jnp.arange(empty.shape[0], dtype=source.dtype)
    clusters = state.learned.clusters.take(jnp.where(empty, source, number))
    initial = jax.vmap(solver.family.init)(samples)
    prototype = jax.tree.map(
        lambda old, new: jnp.where(column(empty, old.ndim), new, old), clusters.prototype, initial
    )
    clusters = eqx.tree_at(lambda c: c.prototype, clusters, prototype)
    return eqx.tree_at(lambda s: s.learned.clusters, state, clusters)


def _refill(
    solver: Lloyd, state: LloydState, chunks: Chunks, memory: tuple[Memory, ...], empty: np.ndarray
) -> LloydState:
    """Gives each empty cluster the sample whose misfit times weight is largest."""
    reduction = solver.reduction_of(state.learned)

    def misfits(past: Memory) -> np.ndarray:
        return np.asarray(misfit(reduction, jnp.asarray(past.energy)))

    weight = chunks.weights[: chunks.num_samples]
    # Misfits may be negative; samples of weight zero must never come before others.
    weighted = np.where(weight > 0, chunks.collect(memory, misfits) * weight, -np.inf)
    count = int(np.count_nonzero(empty))
    chosen = np.zeros(empty.size, int)
    # If there are fewer samples than clusters, some are taken twice.
    chosen[empty] = np.resize(np.argsort(-weighted, kind="stable")[:count], count)
    samples, source = chunks.gather(chosen), chunks.rows_of(memory, chosen).cluster[:, 0]
    return refilled(solver, state, *jax.tree.map(jnp.asarray, (empty, source, samples)))


# Where a run starts.


def clusters_of(solver: Lloyd, samples: PyTree, penalty: Penalty) -> Clusters:
    """Clusters that are initialised with one sample each.

    Args:
        solver: The solver, whose family initialises prototypes.
        samples: One sample for each cluster.
        penalty: Weights of the penalty terms, or a row of them for each cluster.

    Returns:
        The clusters.
    """
    if isinstance(penalty, tuple) and any(isinstance(weight, jax.Array) for weight in penalty):
        penalty = jnp.stack(penalty)
    check_penalty(solver, penalty)
    # An array, so that nothing is compiled anew for other values.
    dtype = jnp.result_type(float)
    weights = jax.device_put(np.asarray(penalty, dtype)) if isinstance(penalty, tuple) else penalty
    return _clusters_of(solver, samples, weights)


def check_penalty(solver: Lloyd, penalty: Penalty) -> None:
    """Refuses anything but one non-negative weight for each penalty term.

    Args:
        solver: The solver.
        penalty: Weights of the penalty terms, or a row of them for each cluster.

    Raises:
        ValueError: If the number of weights is wrong, or some are negative.
    """
    terms, given = solver.energy.num_penalties, np.shape(cast(Any, penalty))
    if given[-1:] != (terms,):
        raise ValueError(f"the energy has {terms} penalties, one weight for each; got {given}")
    _validation.positive(penalty, "penalty", least=0)


@eqx.filter_jit
def _clusters_of(solver: Lloyd, samples: PyTree, penalty: Float[Array, "... terms"]) -> Clusters:
    prototype = jax.vmap(solver.family.init)(jax.tree.map(jnp.asarray, samples))
    leaves = jax.tree.leaves(prototype)
    weights = jnp.broadcast_to(penalty, (leaves[0].shape[0], penalty.shape[-1]))
    return Clusters(prototype, weights.astype(jnp.result_type(*leaves)))


def learned_template(
    solver: Lloyd,
    sample: PyTree,
    num_clusters: int,
    penalty: tuple[float, ...],
    prepare: Callable[[PyTree], PyTree] | None = None,
) -> Learned:
    """Zeros in place of every array that is learned; no sample is read.

    Args:
        solver: The solver.
        sample: Shape and dtype of one sample, as `jax.ShapeDtypeStruct`s.
        num_clusters: K.
        penalty: Weights of the penalty terms.
        prepare: Applied to each sample before it is clustered; None for `solver.normalise`.

    Returns:
        What `Lloyd.init_learned` returns, with zeros.
    """

    def init(samples: PyTree) -> Learned:
        seeds = jax.vmap(prepare or solver.normalise)(samples)
        return solver.init_learned(clusters_of(solver, seeds, penalty))

    every = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((num_clusters, *leaf.shape), leaf.dtype), sample
    )
    return zeros_of(init, every)


def assigned_memory(
    solver: Lloyd, chunks: Chunks, num_clusters: int, assignments: Int[np.ndarray, " n"]
) -> tuple[Memory, ...]:
    """The memory of samples that are assigned to given clusters, with identity params.

    Args:
        solver: The solver.
        chunks: The data.
        num_clusters: K.
        assignments: The cluster of each sample.

    Returns:
        Memory of each chunk.
    """
    memory = solver.init_memory(chunks.num_samples, num_clusters, chunks.dtype)
    cluster = np.array(memory.cluster)
    cluster[:, 0] = assignments
    return chunks.scatter(eqx.tree_at(lambda m: m.cluster, memory, jax.device_put(cluster)))


def means_of_aligned(
    solver: Lloyd, chunks: Chunks, memory: tuple[Memory, ...], num_clusters: int, penalty: Penalty
) -> LloydState:
    """A state whose prototypes are the means of samples that are already aligned.

    Args:
        solver: The solver.
        chunks: The data, at any resolution: params do not depend on it.
        memory: Clusters and params of the samples.
        num_clusters: K; the prototype of an empty cluster is blank.
        penalty: Weights of the penalty terms.

    Returns:
        A state with empty sums. What an adaptive reduction learns begins anew, as energies have
        another scale at another resolution.
    """
    blank = jax.tree.map(
        lambda leaf: np.zeros((num_clusters, *leaf.shape), leaf.dtype), chunks.sample
    )
    initial = Lloyd(solver.energy, solver.aligner, solver.family.initial_family)
    state = initial.init(clusters_of(solver, blank, penalty))
    step = eqx.Partial(initial.step, assign=False)
    for batch, past in zip(chunks.batches, memory, strict=True):
        state = chunks.step(step, state, batch, past)[0]
        # Chunks that nothing waits for would pile up before the device.
        jax.block_until_ready(state)
    return solver.init(initial.end_pass(state).learned.clusters)
