"""One run of Lloyd's algorithm: passes over the chunks until nothing moves."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from diffclust.parallel import replicate, settled, shard_rows, sharded
from diffclust.processes import agreed
from diffclust.prototypes import Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.chunks import Chunks
from diffclust.solvers.lloyd import Lloyd, LloydState, Tally
from diffclust.solvers.progress import FitError, Status
from diffclust.solvers.result import Assignment

_BLOCK = 2**16
"""Samples that are sorted at once."""


@dataclasses.dataclass(frozen=True)
class Run:
    """Where a run stands after a whole pass: everything refers to the same prototypes.

    Attributes:
        learned: The prototypes under which the samples were assigned.
        memory: Memory of each chunk.
        tally: Sums of the pass.
        history: The loss of every pass.
        status: Why it stopped.
    """

    learned: Learned
    memory: tuple[Memory, ...]
    tally: Tally
    history: tuple[float, ...]
    status: Status

    @property
    def loss(self) -> float:
        """The penalised distortion of the last pass."""
        return self.history[-1]


@dataclasses.dataclass(frozen=True)
class Going:
    """Where a run stands that is not done: all it takes to go on.

    Attributes:
        state: The state of the next pass.
        memory: Memory of each chunk.
        history: The loss of every pass so far.
    """

    state: LloydState
    memory: tuple[Memory, ...]
    history: tuple[float, ...] = ()


KeepRun = Callable[[Going], None]
"""Called after every pass but the last with where a run stands."""


@dataclasses.dataclass(frozen=True)
class Stopping:
    """When a run stops.

    Attributes:
        max_passes: Most passes of a run.
        tolerance: Least relative fall of the loss that is worth another pass.
    """

    max_passes: int
    tolerance: float


@eqx.filter_jit
def _step(
    solver: Lloyd,
    state: LloydState,
    batch: Batch,
    memory: Memory,
    kept: bool,
    mesh: Mesh | None,
) -> tuple[LloydState, Memory]:
    return sharded(solver.step, mesh)(state, batch, memory, kept=kept)


@eqx.filter_jit
def _end_pass(solver: Lloyd, state: LloydState, keep: bool) -> LloydState:
    return solver.end_pass(state, keep=keep)


Report = Callable[[int, int, int, float | None, Learned], None]
"""Called with pass, chunks done, chunks in all, the last loss and what the pass goes by."""


def one_pass(
    solver: Lloyd,
    chunks: Chunks,
    state: LloydState,
    memory: Iterable[Memory],
    *,
    kept: bool = False,
    report: Callable[[int, int], None] | None = None,
) -> tuple[LloydState, tuple[Memory, ...]]:
    """Steps over all chunks.

    Args:
        solver: The solver.
        chunks: The data.
        state: A state with empty sums, or with those of the last pass.
        memory: Memory of each chunk.
        kept: Whether the state's statistics are those of the last pass; see `Lloyd.step`.
        report: Called with chunks done and chunks in all, or None.

    Returns:
        The state with all sums, and the new memory.
    """
    new = []
    for number, (batch, past) in enumerate(zip(chunks.batches, memory, strict=True)):
        stepped = _step(solver, state, batch, past, kept, chunks.mesh)
        state, present = settled(stepped, chunks.mesh)
        new.append(present)
        if report is not None:
            jax.block_until_ready(present)
            report(number + 1, chunks.count)
    return state, tuple(new)


def _let_go(held: list[Memory]) -> Iterator[Memory]:
    """Each in turn, and none of them held any longer."""
    held.reverse()
    while held:
        yield held.pop()


def run_lloyd(
    solver: Lloyd,
    chunks: Chunks,
    state: LloydState,
    memory: tuple[Memory, ...],
    stopping: Stopping,
    *,
    history: Sequence[float] = (),
    report: Report | None = None,
    keep: KeepRun | None = None,
) -> Run:
    """Passes over the data until assignments or loss stand still.

    Empty clusters are refilled with the samples that lie farthest from their prototypes.

    Args:
        solver: The solver.
        chunks: The data.
        state: The state to start from.
        memory: Memory of each chunk.
        stopping: When to stop.
        history: The loss of every pass that was done before, where a run goes on.
        report: Called after every chunk, or None.
        keep: Called after every pass but the last, or None.

    Returns:
        The run, after its last whole pass.

    Raises:
        FitError: If the loss is not a number.
    """
    history = list(history)
    # What one machine computed alone, another may have rounded differently.
    state = agreed(state, chunks.mesh)
    while True:
        iteration, last = len(history), history[-1] if history else None

        # Placed alike in every pass, so that no step is compiled twice.
        state, past = replicate(state, chunks.mesh), list(shard_rows(memory, chunks.mesh))
        learned = state.learned
        # Each chunk's memory is let go when the new one is there: of millions, one copy is enough.
        del memory

        def tell(done: int, total: int, told: tuple = (iteration, last, learned)):
            if report is not None:
                report(told[0], done, total, *told[1:])

        # The first pass counts afresh: the memory may be of other sums than the state's.
        kept = solver.sums_persist and bool(history)
        state, memory = one_pass(solver, chunks, state, _let_go(past), kept=kept, report=tell)
        tally = state.tally
        loss = float(tally.loss)
        if not np.isfinite(loss):
            raise FitError(
                f"pass {iteration}: the loss is {loss}; a prototype or an alignment left the "
                "range of its dtype. Check the samples' scale and the penalty weights"
            )
        history.append(loss)
        state = _end_pass(solver, state, solver.sums_persist)
        empty = np.flatnonzero(np.asarray(tally.count) == 0)
        status = None if empty.size else _verdict(solver, history, int(tally.changed), stopping)
        if status is None and len(history) >= stopping.max_passes:
            status = Status.MAX_PASSES
        if status is not None:
            return Run(learned, memory, tally, tuple(history), status)
        if empty.size:
            state = refill(solver, state, chunks, memory, empty)
        if keep is not None:
            keep(Going(state, memory, tuple(history)))


def _verdict(
    solver: Lloyd, history: list[float], changed: int, stopping: Stopping
) -> Status | None:
    """Whether the loss stands still; the first pass has nothing to be compared with."""
    if len(history) < 2:
        return None
    if stopping.tolerance == 0.0:
        # The loss's last digits say nothing: only assignments tell.
        rests = changed == 0 and solver.is_at_rest(history[-1], history[-2])
        return Status.ASSIGNMENTS if rests else None
    if history[-2] - history[-1] > stopping.tolerance * abs(history[-2]):
        return None
    return Status.ASSIGNMENTS if changed == 0 else Status.LOSS


def refill(
    solver: Lloyd,
    state: LloydState,
    chunks: Chunks,
    memory: tuple[Memory, ...],
    empty: np.ndarray,
) -> LloydState:
    """Gives each empty cluster the sample that fits its own prototype worst.

    All that belongs to the cluster is copied from the one that sample was in; its prototype is
    begun with the sample.

    Args:
        solver: The solver, whose family starts prototypes.
        state: The state of the next pass.
        chunks: The data.
        memory: Memory of each chunk.
        empty: Indices of the empty clusters.

    Returns:
        The state with the clusters replaced.
    """
    energy = chunks.collect(memory, lambda past: past.energy[:, 0])
    worst = _largest(energy * chunks.weights[: chunks.num_samples], empty.size)
    clusters = state.learned.clusters
    source = np.arange(len(clusters))
    source[empty[: worst.size]] = chunks.recall(memory, worst).cluster[:, 0]
    clusters = clusters.take(jnp.asarray(source))
    prototype = jax.tree.map(
        lambda old, new: old.at[jnp.asarray(empty[: worst.size])].set(new),
        clusters.prototype,
        jax.vmap(solver.family.init)(chunks.gather(worst)),
    )
    clusters = eqx.tree_at(lambda c: c.prototype, clusters, prototype)
    return eqx.tree_at(lambda s: s.learned.clusters, state, clusters)


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the largest values, in falling order; without as many indices as values."""
    found = np.zeros(0, np.int64)
    for start in range(0, len(values), _BLOCK):
        pool = np.append(found, np.arange(start, min(start + _BLOCK, len(values))))
        found = pool[np.argsort(-values[pool], kind="stable")[:count]]
    return found


def host_assignment(chunks: Chunks, memory: tuple[Memory, ...]) -> Assignment:
    """The memory of all samples on the host, without the padding.

    Args:
        chunks: The data.
        memory: Memory of each chunk.

    Returns:
        The assignment.
    """
    return Assignment(*chunks.collect(memory, assigned))


def assigned(memory: Memory) -> tuple[np.ndarray, ...]:
    """What an `Assignment` keeps of a memory.

    Args:
        memory: Memory on the host.

    Returns:
        Clusters, energies, margins, second-best clusters and params.
    """
    cluster, energy, params = map(np.asarray, (memory.cluster, memory.energy, memory.params))
    if cluster.shape[1] > 1:
        margins, second = energy[:, 1] - energy[:, 0], cluster[:, 1]
    else:
        margins = np.full(len(energy), np.inf, energy.dtype)
        second = np.full(len(cluster), -1, cluster.dtype)
    return cluster[:, 0], energy[:, 0], margins, second, params[:, 0]
