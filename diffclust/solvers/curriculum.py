"""A fit by gradient steps: transforms are added one by one, and tiny clusters refilled."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from diffclust.parallel import replicate, settled
from diffclust.prototypes import Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.chunks import HostSamples
from diffclust.solvers.gradient import GradientEM, GradientState
from diffclust.solvers.gradient_moves import apply, chosen, propose
from diffclust.solvers.gradient_steps import resident_step, rows_of, sharded_step
from diffclust.solvers.progress import Callback, FitError, Progress, Status, ignore
from diffclust.types import Count, Key


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a fit under one solver and one learning rate.

    Attributes:
        solver: Which solver, by number: one transform more than the one before.
        steps: Most steps.
        rate: The learning rate.
        moves: Whether clusters may be split and removed in it.
    """

    solver: int
    steps: int
    rate: float
    moves: bool = True


@dataclasses.dataclass(frozen=True)
class GradientPlan:
    """How a fit by gradient steps proceeds.

    Attributes:
        phases: What is done, in turn.
        batch_size: Samples a step.
        tolerance: A phase ends early where the loss of a window falls by less than this fraction
            below the least so far, `patience` windows in a row; 0 does all steps.
        patience: How many windows.
        window: Steps over which losses are averaged, and after which tiny clusters are refilled.
        least_share: A cluster is tiny that holds less than this share of an even one; 0 refills
            none.
        noise: Standard deviation of the noise that parts a refilled cluster from its source.
        moves_every: Windows between two attempts to split one cluster and remove another; 0 tries
            none.
        least_gain: The least net gain that is worth such a move, as a fraction of the loss.
        move_samples: Most samples by which it is judged.
    """

    phases: tuple[Phase, ...]
    batch_size: int
    tolerance: float = 0.0
    patience: int = 3
    window: int = 50
    least_share: float = 0.2
    noise: float = 1e-4
    moves_every: int = 0
    least_gain: float = 0.005
    move_samples: int = 2048


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a run stands, in numbers that JSON can hold.

    Attributes:
        phase: Number of the phase; as many as there are phases where all are done.
        steps: Steps taken in it.
        history: The mean loss of every window so far.
        starts: For each phase begun, how many windows went before.
        refills: How many clusters were refilled so far.
        moves: How many were split, and another removed.
        ended: Why the phase before it ended, the value of a `Status`; None in the first.
    """

    phase: int = 0
    steps: int = 0
    history: tuple[float, ...] = ()
    starts: tuple[int, ...] = (0,)
    refills: int = 0
    moves: int = 0
    ended: str | None = None


Standing = tuple[GradientState, Memory | None, Position]
"""A run's state, the memory of all samples, where alignments start from it, and its position."""

Keep = Callable[[GradientState, Memory | None, Position], None]
"""Called after every window with where a run stands; see `Standing`."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run that is done.

    Attributes:
        learned: What was learned.
        position: Where it ended: after all phases.
    """

    learned: Learned
    position: Position


class Stream:
    """The order in which samples come: shuffled anew for every pass, without a break between them.

    A batch depends on the key and its number alone, so that a run goes on where it stopped. Of
    several processes each draws its part of the batch from its own samples; all know all parts.
    """

    def __init__(self, counts: Sequence[int], batch_size: int, key: Key) -> None:
        """Draws nothing yet.

        Args:
            counts: How many samples each process has.
            batch_size: Samples a batch; a multiple of the number of processes.
            key: Random key.
        """
        seed = np.asarray(jax.random.key_data(key)).astype(np.uint32).tolist()
        each = batch_size // len(counts)
        starts = [0, *itertools.accumulate(counts)]
        self._shares = [
            # The first draws what it would if it were alone.
            _Share(start, count, each, [*seed, *([number] if number else [])])
            for number, (start, count) in enumerate(zip(starts, counts, strict=False))
        ]

    def batch(self, step: int) -> Int[np.ndarray, " batch"]:
        """Indices of one batch.

        Args:
            step: Number of the step, from 0.

        Returns:
            Indices of its samples, those of each process beside each other.
        """
        return np.concatenate([share.batch(step) for share in self._shares])


class _Share:
    """The stream of one process."""

    def __init__(self, start: int, num_samples: int, batch_size: int, seed: list[int]) -> None:
        self._start, self._size, self._batch = start, num_samples, batch_size
        self._seed = seed
        self._orders: dict[int, np.ndarray] = {}

    def _order(self, number: int) -> Int[np.ndarray, " n"]:
        if number not in self._orders:
            # One at a time, and of 32 bits: there may be millions of samples.
            self._orders.clear()
            order = np.arange(self._size, dtype=np.int32)
            np.random.default_rng([*self._seed, number]).shuffle(order)
            self._orders[number] = order
        return self._orders[number]

    def batch(self, step: int) -> Int[np.ndarray, " batch"]:
        place, stop = step * self._batch, (step + 1) * self._batch
        parts = []
        while place < stop:
            number, offset = divmod(place, self._size)
            parts.append(self._order(number)[offset : offset + stop - place])
            place += len(parts[-1])
        return np.concatenate(parts) + np.int32(self._start)


@eqx.filter_jit
def _refill(
    solver: GradientEM, state: GradientState, key: Key, least_share: float, noise: float
) -> tuple[GradientState, Count]:
    key = jax.random.fold_in(key, state.step)
    return solver.refill(state, key, least_share=least_share, noise=noise)


def _fresh(
    solver: GradientEM, num_clusters: int, data: Batch | HostSamples, past: Memory | None
) -> Memory | None:
    """The memory for a solver whose params go on where the last one's end."""
    memory = solver.training_memory(data.weight.shape[0], num_clusters, data.weight.dtype)
    if memory is None or past is None or past.cluster.shape != memory.cluster.shape:
        return memory
    width = min(past.params.shape[2], memory.params.shape[2])
    params = memory.params.at[:, :, :width].set(past.params[:, :, :width])
    return Memory(past.cluster, past.energy, params)


def train(
    solvers: Sequence[GradientEM],
    plan: GradientPlan,
    data: Batch | HostSamples,
    learned: Learned,
    *,
    key: Key,
    begin: Standing | None = None,
    keep: Keep | None = None,
    callback: Callback = ignore,
    restart: int = 0,
    least: float | None = None,
) -> Trained:
    """One run: all phases of a plan.

    Args:
        solvers: The solvers that phases name.
        plan: What to do.
        data: All samples, on the device, or on the host where several devices share batches or
            the samples are read as they are needed.
        learned: What is learned, to start from.
        key: Random key of the order of samples and of the noise.
        begin: Where to go on, as `keep` was told it; None to start.
        keep: Called after every window, or None.
        callback: Told of every window.
        restart: Number of the run, for the callback.
        least: The least loss of earlier runs, for the callback.

    Returns:
        The run.

    Raises:
        FitError: If a loss or a gradient is not a number.
    """
    counts = (data.weight.shape[0],) if isinstance(data, Batch) else data.counts
    stream = Stream(counts, plan.batch_size, jax.random.fold_in(key, 0))
    noise_key = jax.random.fold_in(key, 1)
    mesh = None if isinstance(data, Batch) else data.mesh
    count = len(learned.clusters)
    if begin is None:
        state, position = solvers[plan.phases[0].solver].init(learned), Position()
        memory = _fresh(solvers[plan.phases[0].solver], count, data, None)
    else:
        state, memory, position = begin
    total = sum(phase.steps for phase in plan.phases)
    taken = int(state.step)
    while position.phase < len(plan.phases):
        phase = plan.phases[position.phase]
        solver = solvers[phase.solver]
        rate = jnp.asarray(phase.rate, dtype=data.weight.dtype)
        steps = min(plan.window, phase.steps - position.steps)
        # Placed alike in every window, so that no step is compiled twice.
        state, memory, rate = replicate((state, memory, rate), mesh)
        for _ in range(steps):
            index = stream.batch(taken)
            if isinstance(data, Batch):
                state, memory = resident_step(solver, state, memory, data, jnp.asarray(index), rate)
            else:
                batch, places = data.take(index), replicate(index, data.mesh)
                stepped = sharded_step(solver, state, memory, batch, places, rate, data.mesh)
                state, memory = settled(stepped, mesh)
            taken += 1
        loss, sizes = _read(state, position, restart)
        # The last phase ends with what it has: there is no time left to part twins.
        is_last = position.phase + 1 == len(plan.phases)
        share = 0.0 if is_last else plan.least_share
        state, refilled = _refill(solver, state, noise_key, share, plan.noise)
        position = dataclasses.replace(
            position,
            steps=position.steps + steps,
            history=(*position.history, loss),
            refills=position.refills + int(refilled),
        )
        if not is_last and _is_time_to_move(plan, position):
            moved = _move(solver, plan, state, memory, data, noise_key)
            if moved is not None:
                state = moved
                position = dataclasses.replace(position, moves=position.moves + 1)
        status = _verdict(plan, phase, position)
        if status is not None:
            position = dataclasses.replace(
                position,
                phase=position.phase + 1,
                steps=0,
                starts=(*position.starts, len(position.history)),
                ended=status.value,
            )
            if not is_last:
                upcoming = solvers[plan.phases[position.phase].solver]
                memory = _fresh(upcoming, count, data, memory)
        callback(
            Progress(
                "step",
                restart,
                position.phase,
                taken,
                total,
                loss,
                least,
                sizes=sizes,
                samples=taken * plan.batch_size,
                learned=state.learned,
            )
        )
        if keep is not None:
            keep(state, memory, position)
    return Trained(state.learned, position)


def _is_time_to_move(plan: GradientPlan, position: Position) -> bool:
    if not plan.phases[position.phase].moves:
        return False
    windows = len(position.history) - position.starts[-1]
    over = position.steps >= plan.phases[position.phase].steps
    return plan.moves_every > 0 and (over or windows % plan.moves_every == 0)


def _move(
    solver: GradientEM,
    plan: GradientPlan,
    state: GradientState,
    memory: Memory | None,
    data: Batch | HostSamples,
    key: Key,
) -> GradientState | None:
    """The state after the best split and removal, judged by some samples; None for none."""
    size = data.weight.shape[0]
    rng = np.random.default_rng([int(state.step), *np.asarray(jax.random.key_data(key)).tolist()])
    judged = min(size, plan.move_samples)
    # One of few numbers, eight to a doubling: other data sets are judged by the same program.
    judged -= judged % 2 ** max(0, judged.bit_length() - 4)
    index = rng.choice(size, judged, replace=False)
    places = jnp.asarray(index)
    if isinstance(data, Batch):
        some = rows_of(data, places)
    else:
        # Few samples, and seldom: every device weighs the same moves.
        some = data.take(index, replicate)
    past = jax.tree.map(lambda leaf: leaf[places], memory)
    move = propose(solver, state.learned, some, past)
    pair = chosen(move, least=plan.least_gain)
    if pair is None:
        return None
    split, removed = (jnp.asarray(k, dtype=jnp.result_type(int)) for k in pair)
    return apply(state, move.children, split, removed)


def _read(
    state: GradientState, position: Position, restart: int
) -> tuple[float, tuple[float, ...]]:
    """The mean loss and the shares of the clusters in the window that has ended."""
    if int(state.failed) >= 0:
        raise FitError(
            f"step {int(state.failed)} of restart {restart}, phase {position.phase}: the loss or "
            "its gradient is not a number, and the step was not taken. Lower the learning rate, or "
            "check the images' scale"
        )
    count = np.asarray(state.tally.count, np.float64)
    mass = max(float(count.sum()), np.finfo(np.float64).tiny)
    return float(state.tally.loss) / mass, tuple((count / mass).tolist())


def _verdict(plan: GradientPlan, phase: Phase, position: Position) -> Status | None:
    """Whether a phase is over."""
    if position.steps >= phase.steps:
        return Status.MAX_PASSES
    losses = position.history[position.starts[-1] :]
    if plan.tolerance == 0.0 or len(losses) <= plan.patience:
        return None
    before, after = min(losses[: -plan.patience]), min(losses[-plan.patience :])
    return Status.LOSS if before - after <= plan.tolerance * abs(before) else None
