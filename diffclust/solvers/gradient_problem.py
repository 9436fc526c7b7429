"""Gradient EM as a problem: transforms are added one by one, and tiny clusters refilled."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.parallel.chunks import Batch
from diffclust.parallel.data import Data, Description
from diffclust.parallel.mesh import check_batch_size
from diffclust.prototypes import Learned
from diffclust.solvers.assign import SoftAssignment, assign_softly
from diffclust.solvers.base import Memory
from diffclust.solvers.driver import AbstractProblem, Position, State, check_data, tuples
from diffclust.solvers.gradient import BatchOrder, GradientEM, GradientPlan, GradientState, Phase
from diffclust.solvers.result import Callback, FitError, Outcome, Progress, Status, ignore
from diffclust.solvers.split_merge import apply_move, best_move, propose
from diffclust.types import Count, Key


@dataclasses.dataclass(frozen=True)
class GradientPosition:
    """Where a fit by gradient steps is; the position of its `State`.

    Attributes:
        phase: Number of the phase; as many as there are phases where all are done.
        steps: Steps taken in it.
        history: The mean loss of every window so far.
        starts: For each phase begun, how many windows went before.
        refills: How many clusters were refilled so far.
        moves: How many were split, and another removed.
        ended: Why the phase before it ended, the value of a `Status`; None in the first.
        losses: Final losses of the restarts that are done.
        best: The position where the best of them ended, or None.
        running: Whether a restart is in progress.
        start: Number of the start of the run in progress, where several race.
        score: Its loss on the samples by which runs are compared; None until it has come there.
        round: Rounds of the race that are over.
        candidates: Where the other runs that are still in the race are.
    """

    phase: int = 0
    steps: int = 0
    history: tuple[float, ...] = ()
    starts: tuple[int, ...] = (0,)
    refills: int = 0
    moves: int = 0
    ended: str | None = None
    losses: tuple[float, ...] = ()
    best: dict[str, Any] | None = None
    running: bool = False
    start: int = 0
    score: float | None = None
    round: int = 0
    candidates: tuple[dict[str, Any], ...] = ()


class GradientArrays(eqx.Module):
    """The arrays of a fit by gradient steps.

    Attributes:
        key: Data of the random key.
        state: The restart in progress, or None.
        memory: Its memory of all samples, where alignments start from it.
        best: What the best restart so far learned, or None.
        candidates: State and memory of the other runs that are still in a race.
    """

    key: Array
    state: GradientState | None = None
    memory: Memory | None = None
    best: Learned | None = None
    candidates: tuple[tuple[GradientState, Memory | None], ...] = ()


_RUN = ("phase", "steps", "history", "starts", "refills", "moves", "ended", "start", "score")
"""What a position says of the run in progress alone."""


class GradientProblem(AbstractProblem):
    """Prototypes, networks and mixture weights fitted by gradient steps on batches.

    A plan may let several runs from different starts race (successive halving): all take as many
    steps of the curriculum, are compared by their losses on the same samples, and the better half
    goes on, until one is left, which is trained to the end.

    References:
        Jamieson and Talwalkar (2016), Non-stochastic best arm identification and hyperparameter
        optimization, Sec. 2.
    """

    def __init__(
        self,
        solvers: Sequence[GradientEM],
        final: GradientEM,
        plan: GradientPlan,
        *,
        init_learned: Callable[[Data, Key], Learned],
        template: Callable[[], Learned],
        num_restarts: int = 1,
    ) -> None:
        """Computes nothing yet.

        Args:
            solvers: The solvers that the plan's phases name.
            final: Assigns the samples in the end.
            plan: What to do.
            init_learned: What is learned, to start a restart from its key.
            template: Arrays like those, of any values, without reading data.
            num_restarts: Runs, of which the one of least loss is kept.
        """
        self.solvers, self.final, self.plan = tuple(solvers), final, plan
        self.num_restarts = num_restarts
        self._init_learned, self._template = init_learned, template
        self._best_assignment: SoftAssignment | None = None
        self._order: tuple[tuple[int, int], BatchOrder] | None = None

    def init(self, data: Data, key: Key) -> State:
        """The state before the first restart."""
        check_data(data, len(eqx.filter_eval_shape(self._template).clusters))
        check_batch_size(self.plan.batch_size, data.mesh)
        arrays = GradientArrays(data.replicate(jax.random.key_data(key)))
        return State(arrays, dataclasses.asdict(GradientPosition()))

    def done(self, state: State) -> bool:
        """Whether all restarts are done."""
        return len(state.position["losses"]) >= self.num_restarts

    def advance(self, data: Data, state: State, callback: Callback) -> State:
        """One window of steps (the first begins the restart), or a restart's final assignment."""
        at, arrays = GradientPosition(**tuples(state.position)), state.arrays
        del state
        key = jax.random.wrap_key_data(jnp.asarray(np.asarray(arrays.key)))
        key = jax.random.split(key, self.num_restarts)[len(at.losses)]
        if at.phase == len(self.plan.phases):
            return self._restart_done(data, arrays, at, callback)
        own_key = jax.random.fold_in(key, 2 + at.start) if at.start else key
        if not at.running:
            learned = self._init_learned(data, jax.random.fold_in(own_key, 2))
            solver = self._solver(at)
            memory = _memory(solver, data.num_samples, len(learned.clusters), data.dtype)
            arrays = dataclasses.replace(arrays, state=solver.init(learned), memory=memory)
            at = dataclasses.replace(at, running=True)
        arrays, at = self._window(data, arrays, at, own_key, callback)
        rounds = self.plan.race
        # A window may lead past several rounds.
        while at.round < len(rounds) and arrays.state is not None:
            if int(arrays.state.step) < rounds[at.round]:
                break
            arrays, at = self._next_in_race(data, arrays, at, key)
        return State(arrays, dataclasses.asdict(at))

    def _next_in_race(
        self, data: Data, arrays: GradientArrays, at: GradientPosition, key: Key
    ) -> tuple[GradientArrays, GradientPosition]:
        """The run whose turn it is; where all have come to the same step, the better half of them.

        A run in its turn is the one in progress; the others wait, first those that come next.
        """
        assert arrays.state is not None
        at = dataclasses.replace(at, score=self._score(data, arrays, at, key))
        waiting = list(zip(at.candidates, arrays.candidates, strict=True))
        waiting.append(({name: getattr(at, name) for name in _RUN}, (arrays.state, arrays.memory)))
        position: dict[str, Any] = {}
        if at.round == 0 and len(waiting) < self.plan.num_starts:
            blank = dataclasses.asdict(GradientPosition())
            position = {**{n: blank[n] for n in _RUN}, "start": at.start + 1, "running": False}
            run = None, None
        else:
            if all(about["score"] is not None for about, _ in waiting):
                waiting.sort(key=lambda one: (one[0]["score"], one[0]["start"]))
                better = waiting[: -(-len(waiting) // 2)]
                waiting = [({**about, "score": None}, run) for about, run in better]
                position = {"round": at.round + 1}
            about, run = waiting.pop(0)
            position |= about
        others, runs = ([one[part] for one in waiting] for part in (0, 1))
        arrays = dataclasses.replace(arrays, state=run[0], memory=run[1], candidates=tuple(runs))
        return arrays, dataclasses.replace(at, **position, candidates=tuple(others))

    def _score(self, data: Data, arrays: GradientArrays, at: GradientPosition, key: Key) -> float:
        """The mean loss of the samples by which the runs of a race are compared."""
        assert arrays.state is not None
        some = _evaluation_batch(data, self.plan, arrays.memory, key, 0)
        loss = float(_mean_loss(self._solver(at), arrays.state.learned, *some))
        # What is no number comes last, and would not be equal to itself.
        return loss if np.isfinite(loss) else np.finfo(np.float64).max

    def _solver(self, at: GradientPosition) -> GradientEM:
        return self.solvers[self.plan.phases[min(at.phase, len(self.plan.phases) - 1)].solver]

    def _steps(
        self, data: Data, arrays: GradientArrays, at: GradientPosition, key: Key
    ) -> tuple[GradientState, Memory | None]:
        """The state and memory after a window of steps."""
        plan, phase = self.plan, self.plan.phases[at.phase]
        solver = self.solvers[phase.solver]
        run = len(at.losses), at.start
        if self._order is None or self._order[0] != run:
            order = BatchOrder(data.counts, plan.batch_size, jax.random.fold_in(key, 0))
            self._order = run, order
        # Placed alike in every window, so that no step is compiled twice.
        rate = jnp.asarray(phase.rate, dtype=data.dtype)
        state, memory, rate = data.replicate((arrays.state, arrays.memory, rate))
        taken = int(state.step)
        for step in range(taken, taken + min(plan.window, phase.steps - at.steps)):
            index = self._order[1].batch(step)
            state, memory = data.step(solver.step, state, memory, index, rate)
        return state, memory

    def _window(
        self,
        data: Data,
        arrays: GradientArrays,
        at: GradientPosition,
        key: Key,
        callback: Callback,
    ) -> tuple[GradientArrays, GradientPosition]:
        """A window of steps, with the refill, the move and the change of phase that follow it."""
        plan, phase = self.plan, self.plan.phases[at.phase]
        solver, noise_key = self.solvers[phase.solver], jax.random.fold_in(key, 1)
        steps = min(plan.window, phase.steps - at.steps)
        state, memory = self._steps(data, arrays, at, key)
        loss, sizes = _window_loss(state, at)
        taken = int(state.step)
        is_last = at.phase + 1 == len(plan.phases)
        share = 0.0 if is_last and not plan.refills_to_the_end else plan.least_share
        state, refilled = _refill(solver, state, noise_key, share, plan.noise)
        history, refills = (*at.history, loss), at.refills + int(refilled)
        at = dataclasses.replace(at, steps=at.steps + steps, history=history, refills=refills)
        if not is_last and _is_time_to_move(plan, at):
            moved = _move(solver, plan, state, memory, data, noise_key)
            if moved is not None:
                state, at = moved, dataclasses.replace(at, moves=at.moves + 1)
        status = _verdict(plan, phase, at)
        if status is not None:
            after = {"phase": at.phase + 1, "steps": 0, "ended": status.value}
            at = dataclasses.replace(at, starts=(*at.starts, len(at.history)), **after)
            if not is_last:
                clusters = len(state.learned.clusters)
                memory = _memory(
                    self._solver(at), data.num_samples, clusters, data.dtype, past=memory
                )
        total, least = sum(each.steps for each in plan.phases), min(at.losses, default=None)
        progress = (len(at.losses), at.phase, taken, total, loss, least)
        seen = taken * plan.batch_size
        # A run of a race may yet be dropped: what it learned is not shown.
        racing = at.round < len(plan.race)
        stage, learned = ("race", None) if racing else ("step", state.learned)
        callback(Progress(stage, *progress, sizes=sizes, samples=seen, learned=learned))
        return dataclasses.replace(arrays, state=state, memory=memory), at

    def _restart_done(
        self, data: Data, arrays: GradientArrays, at: GradientPosition, callback: Callback
    ) -> State:
        """Assigns all samples, and keeps the better restart by the loss of all together."""
        assert arrays.state is not None
        learned = arrays.state.learned
        is_last = len(at.losses) + 1 == self.num_restarts
        # Of the other restarts nothing is reported: it would look like the end of the fit.
        assigned = self._assign(learned, data, callback if is_last else ignore)
        loss = float(np.sum(assigned[1] * data.all_weights, dtype=np.float64))
        if not np.isfinite(loss):
            raise FitError(f"the loss after the last step is {loss}; lower the learning rate")
        best, ended = arrays.best, at.best
        if best is None or loss < min(at.losses):
            best, self._best_assignment = learned, assigned
            ended = {**dataclasses.asdict(at), "best": None, "losses": ()}
        arrays = dataclasses.replace(arrays, state=None, memory=None, best=best)
        after = GradientPosition(losses=(*at.losses, loss), best=ended)
        return State(arrays, dataclasses.asdict(after))

    def _assign(self, learned: Learned, data: Data, callback: Callback) -> SoftAssignment:
        # Of what is larger than memory, all responsibilities may be as well.
        return assign_softly(self.final, learned, data, greatest=data.streamed, callback=callback)

    def outcome(self, data: Data, state: State, callback: Callback) -> Outcome:
        """The best restart, with the assignment of all samples."""
        at, best = GradientPosition(**tuples(state.position)), state.arrays.best
        assert at.best is not None
        ended = GradientPosition(**at.best)
        assignment, _, responsibilities = self._best_assignment or self._assign(
            best, data, callback
        )
        mass = float(np.sum(data.all_weights, dtype=np.float64))
        soft = (
            {"certainties": responsibilities[:, 0]}
            if data.streamed
            else {"responsibilities": responsibilities}
        )
        return Outcome(
            data.unreplicate(best),
            assignment,
            (*(mass * loss for loss in ended.history), min(at.losses)),
            at.losses,
            Status(ended.ended),
            data.chunk_size or 0,
            extras={**soft, "phases": np.asarray(ended.starts[:-1], np.int32)},
            figures={"refills": float(ended.refills), "moves": float(ended.moves)},
        )

    def template(self, description: Description, position: Position) -> PyTree:
        """Zeros in the place of every array that a snapshot at the position holds."""
        at, learned = GradientPosition(**tuples(position)), self._template()
        size, dtype, count = description.num_samples, description.dtype, len(learned.clusters)

        def run(at: GradientPosition) -> tuple[GradientState, Memory | None]:
            solver = self._solver(at)
            return solver.init(learned), _memory(solver, size, count, dtype)

        return GradientArrays(
            jnp.zeros((2,), jnp.uint32),
            *(run(at) if at.running else (None, None)),
            None if at.best is None else learned,
            tuple(run(GradientPosition(**about)) for about in at.candidates),
        )


@eqx.filter_jit
def _refill(
    solver: GradientEM, state: GradientState, key: Key, least_share: float, noise: float
) -> tuple[GradientState, Count]:
    key = jax.random.fold_in(key, state.step)
    return solver.refill(state, key, least_share=least_share, noise=noise)


def _memory(
    solver: GradientEM,
    size: int,
    num_clusters: int,
    dtype: np.dtype,
    *,
    past: Memory | None = None,
) -> Memory | None:
    """The memory for a solver whose params go on where the last one's end."""
    memory = solver.training_memory(size, num_clusters, jnp.dtype(dtype))
    if memory is None or past is None or past.cluster.shape != memory.cluster.shape:
        return memory
    width = min(past.params.shape[2], memory.params.shape[2])
    params = memory.params.at[:, :, :width].set(past.params[:, :, :width])
    return Memory(past.cluster, past.energy, params)


def _is_time_to_move(plan: GradientPlan, at: GradientPosition) -> bool:
    if not plan.phases[at.phase].moves:
        return False
    windows = len(at.history) - at.starts[-1]
    over = at.steps >= plan.phases[at.phase].steps
    return plan.moves_every > 0 and (over or windows % plan.moves_every == 0)


def _move(
    solver: GradientEM,
    plan: GradientPlan,
    state: GradientState,
    memory: Memory | None,
    data: Data,
    key: Key,
) -> GradientState | None:
    """The state after the best split and removal, evaluated on some samples; None for none."""
    # Where devices share the samples, there are few of these, and seldom: each weighs all moves.
    some, past = _evaluation_batch(data, plan, memory, key, int(state.step))
    move = propose(solver, state.learned, some, past)
    pair = best_move(move, least=plan.least_gain)
    if pair is None:
        return None
    split, removed = (jnp.asarray(k, dtype=jnp.result_type(int)) for k in pair)
    return apply_move(state, move.children, split, removed)


def _evaluation_batch(
    data: Data, plan: GradientPlan, memory: Memory | None, key: Key, step: int
) -> tuple[Batch, Memory | None]:
    """The samples on which moves and races are evaluated at a step, and the memory of them."""
    rng = np.random.default_rng([step, *np.asarray(jax.random.key_data(key)).tolist()])
    count = min(data.num_samples, plan.move_samples)
    # One of few numbers, eight to a doubling: other data sets run the same program.
    count -= count % 2 ** max(0, count.bit_length() - 4)
    index = rng.choice(data.num_samples, count, replace=False)
    places = jnp.asarray(index)
    return data.some(index), jax.tree.map(lambda leaf: leaf[places], memory)


@eqx.filter_jit
def _mean_loss(solver: GradientEM, learned: Learned, batch: Batch, memory: Memory | None) -> Array:
    alignment = solver.assign(learned, batch.samples, memory)
    losses = solver.reduction_of(learned)(alignment.energy)
    return jnp.dot(losses, batch.weight) / jnp.sum(batch.weight)


def _window_loss(state: GradientState, at: GradientPosition) -> tuple[float, tuple[float, ...]]:
    """The mean loss and the responsibilities of the clusters in the window that has ended."""
    if int(state.failed) >= 0:
        raise FitError(
            f"step {int(state.failed)} of restart {len(at.losses)}, phase {at.phase}: the loss or "
            "its gradient is not a number, and the step was not taken. Lower the learning rate, or "
            "check the images' scale"
        )
    count = np.asarray(state.tally.count, np.float64)
    mass = max(float(state.tally.mass), np.finfo(np.float64).tiny)
    return float(state.tally.loss) / mass, tuple((count / mass).tolist())


def _verdict(plan: GradientPlan, phase: Phase, at: GradientPosition) -> Status | None:
    """Whether a phase is over."""
    if at.steps >= phase.steps:
        return Status.MAX_PASSES
    losses = at.history[at.starts[-1] :]
    racing = at.round < len(plan.race)
    if racing or plan.tolerance == 0.0 or len(losses) <= plan.patience:
        return None
    before, after = min(losses[: -plan.patience]), min(losses[-plan.patience :])
    return Status.LOSS if before - after <= plan.tolerance * abs(before) else None
