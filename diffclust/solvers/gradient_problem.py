"""Gradient EM as a problem: transforms are added one by one, and tiny clusters refilled."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from diffclust._random import key_data_template, key_of, split_key
from diffclust.parallel.chunks import Batch
from diffclust.parallel.data import Data, Description, rows_of
from diffclust.parallel.mesh import check_batch_size
from diffclust.prototypes import Learned
from diffclust.solvers.assign import SoftAssignment, assign_softly
from diffclust.solvers.base import Memory
from diffclust.solvers.driver import AbstractProblem, Position, State, check_data, static_fields
from diffclust.solvers.gradient import (
    TRIALS,
    Z_THRESHOLD,
    BatchOrder,
    GradientEM,
    GradientPlan,
    GradientState,
)
from diffclust.solvers.result import (
    Callback,
    FitError,
    Outcome,
    Progress,
    Status,
    best_restart,
    ignore,
)
from diffclust.solvers.split_merge import apply_split_merge, best_pairs, propose_splits
from diffclust.types import Key


class GradientRun(eqx.Module):
    """A run of gradient steps from one start, between two windows.

    Attributes:
        state: The learned arrays and the optimiser's moments; None before the first window.
        memory: Its memory of all samples, if alignments start from it.
        phase: Index of the phase; the number of phases if all are done.
        steps: Steps taken in it.
        history: The mean loss of every window so far.
        starts: For each phase begun, the number of windows before it.
        refills: Number of clusters refilled so far.
        moves: Number of clusters split so far, with another removed each time.
        tried: In phases whose index is below this number no more moves are tried.
        ended: Why the previous phase ended, the value of a `Status`; None in the first.
        start: Index of its start, if several runs race.
        until: The step at which it is compared with the runs of trial moves; None without them.
        since: The step at which it was last compared, or trial moves began.
        gap: By how much the loss after the best move was higher then; None before the first
            comparison.
        expected_gain: By how much its move lowered the mean loss before any step.
        score: Its loss on the samples by which runs are compared; None until it reaches that step.
    """

    state: GradientState | None = None
    memory: Memory | None = None
    phase: int = eqx.field(static=True, default=0)
    steps: int = eqx.field(static=True, default=0)
    history: tuple[float, ...] = eqx.field(static=True, default=())
    starts: tuple[int, ...] = eqx.field(static=True, default=(0,))
    refills: int = eqx.field(static=True, default=0)
    moves: int = eqx.field(static=True, default=0)
    tried: int = eqx.field(static=True, default=0)
    ended: str | None = eqx.field(static=True, default=None)
    start: int = eqx.field(static=True, default=0)
    until: int | None = eqx.field(static=True, default=None)
    since: int | None = eqx.field(static=True, default=None)
    gap: float | None = eqx.field(static=True, default=None)
    expected_gain: float | None = eqx.field(static=True, default=None)
    score: float | None = eqx.field(static=True, default=None)


class GradientFit(eqx.Module):
    """The state of a whole fit by gradient steps, between two steps.

    Its arrays, and those of its runs, are those of its `State`; the static fields form the
    position.

    Attributes:
        key: Data of the random key.
        run: The run in progress.
        waiting: The other runs that are still in a race, in the order of their turns.
        best_run: The best restart so far, without its arrays, or None.
        best: What the best restart has learned.
        losses: Final losses of the finished restarts.
        round: Number of finished rounds of the race.
    """

    key: Array
    run: GradientRun = GradientRun()
    waiting: tuple[GradientRun, ...] = ()
    best_run: GradientRun | None = None
    best: Learned | None = None
    losses: tuple[float, ...] = eqx.field(static=True, default=())
    round: int = eqx.field(static=True, default=0)


def _state(fit: GradientFit) -> State:
    best = fit.best_run and static_fields(fit.best_run)
    waiting = tuple(map(static_fields, fit.waiting))
    runs = {"run": static_fields(fit.run), "waiting": waiting, "best_run": best}
    return State(fit, static_fields(fit) | runs)


class GradientProblem(AbstractProblem):
    """Prototypes, networks and mixture weights fitted by gradient steps on batches.

    A plan may let several runs from different starts race (successive halving): all take the same
    number of steps of the curriculum and are compared by their losses on the same samples; the
    better half continues, until one is left, which is trained to the end. In the same way, a run is
    compared with copies of it after the best moves, since the gain of a move shows only once the
    networks have adapted to it.

    References:
        Jamieson and Talwalkar (2016), Non-stochastic best arm identification and hyperparameter
        optimization, Sec. 2. Ueda et al. (2000), SMEM algorithm for mixture models.
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
        """Stores the arguments; nothing is computed yet.

        Args:
            solvers: The solvers to which the plan's phases refer.
            final: The solver of the final assignment.
            plan: The plan of the fit.
            init_learned: Makes the learned arrays that a restart starts from, given its key.
            template: Makes arrays like those with arbitrary values, without reading data.
            num_restarts: Number of runs; the one with the lowest loss is kept.
        """
        self.solvers, self.final, self.plan = tuple(solvers), final, plan
        self.num_restarts = num_restarts
        self._init_learned, self._template = init_learned, template
        self._best_assignment: SoftAssignment | None = None
        self._order: tuple[tuple[int, int], BatchOrder] | None = None

    def init(self, data: Data, key: Key) -> State:
        """The state before the first restart."""
        check_data(data, len(eqx.filter_eval_shape(self._template).clusters))
        check_batch_size(self.plan.batch_size, data.mesh, most=data.num_samples)
        return _state(GradientFit(data.replicate(jax.random.key_data(key))))

    def done(self, state: State) -> bool:
        """Whether all restarts are done."""
        return len(state.position["losses"]) >= self.num_restarts

    def advance(self, data: Data, state: State, callback: Callback) -> State:
        """Makes a window of steps, the first of which starts the restart, or a final assignment."""
        fit: GradientFit = state.arrays
        del state
        key = split_key(key_of(fit.key), self.num_restarts, len(fit.losses))
        if fit.run.phase == len(self.plan.phases):
            return _state(self._restart_done(data, fit, callback))
        run = fit.run
        own_key = jax.random.fold_in(key, 2 + run.start) if run.start else key
        if run.state is None:
            learned = self._init_learned(data, jax.random.fold_in(own_key, 2))
            solver = self._solver(run.phase)
            memory = solver.training_memory(data.num_samples, len(learned.clusters), data.dtype)
            run = replace(run, state=solver.init(learned), memory=memory)
        fit = self._window(data, replace(fit, run=run), own_key, callback)
        # A window may pass several rounds.
        while (until := self._until(fit)) is not None and fit.run.state is not None:
            if int(fit.run.state.step) < until:
                break
            fit = self._next_in_race(data, fit, key)
        return _state(fit)

    def _until(self, fit: GradientFit) -> int | None:
        """The step at which the run is compared with others; None if it has no rivals."""
        race = self.plan.race
        return race[fit.round] if fit.round < len(race) else fit.run.until

    def _next_in_race(self, data: Data, fit: GradientFit, key: Key) -> GradientFit:
        """The run whose turn it is; if all have reached the same step, those that continue.

        The run whose turn it is becomes the one in progress; the others wait. The better half
        continue, or the runs that `after_trial` keeps.
        """
        losses, weight = self._losses(data, fit.run, key)
        score = float(np.average(losses, weights=weight))
        # NaN comes last; it would not be equal to itself.
        score = score if np.isfinite(score) else np.finfo(np.float64).max
        runs = [*fit.waiting, replace(fit.run, score=score)]
        in_race = fit.round < len(self.plan.race)
        if in_race and fit.round == 0 and len(runs) < self.plan.num_starts:
            return replace(fit, run=GradientRun(start=fit.run.start + 1), waiting=tuple(runs))
        if all(run.score is not None for run in runs):
            runs.sort(key=lambda run: (run.score, run.start))
            if fit.run.until is not None:
                runs = after_trial(self.plan, runs, partial(self._is_better, data, key))
            else:
                runs = runs[: math.ceil(len(runs) / 2)]
            runs = [replace(run, score=None) for run in runs]
            fit = replace(fit, round=fit.round + in_race)
        return replace(fit, run=runs[0], waiting=tuple(runs[1:]))

    def _losses(self, data: Data, run: GradientRun, key: Key) -> tuple[np.ndarray, np.ndarray]:
        """The losses of the samples by which runs are compared, and their weights."""
        assert run.state is not None
        batch, past = _evaluation_batch(data, self.plan, run.memory, key, 0)
        losses = _sample_losses(self._solver(run.phase), run.state.learned, batch, past)
        return np.asarray(losses, np.float64), np.asarray(batch.weight, np.float64)

    def _is_better(self, data: Data, key: Key, run: GradientRun, than: GradientRun) -> bool:
        """Whether a run's mean loss is lower than another's, beyond chance."""
        (one, weight), (other, _) = (self._losses(data, each, key) for each in (run, than))
        share, gain = weight / weight.sum(), other - one
        mean = float(share @ gain)
        return mean > Z_THRESHOLD * math.sqrt(float(share**2 @ (gain - mean) ** 2))

    def _solver(self, phase: int) -> GradientEM:
        return self.solvers[self.plan.phases[min(phase, len(self.plan.phases) - 1)].solver]

    def _steps(
        self, data: Data, fit: GradientFit, key: Key, steps: int
    ) -> tuple[GradientState, Memory | None]:
        """The state and memory after a window of steps."""
        run, number = fit.run, (len(fit.losses), fit.run.start)
        phase, solver = self.plan.phases[run.phase], self._solver(run.phase)
        if self._order is None or self._order[0] != number:
            order = BatchOrder(data.counts, self.plan.batch_size, jax.random.fold_in(key, 0))
            self._order = number, order
        # Placed in the same way in every window, so that no step is compiled twice.
        rate = jax.device_put(np.asarray(phase.rate, data.dtype))
        state, memory, rate = data.replicate((run.state, run.memory, rate))
        taken = int(state.step)
        for step in range(taken, taken + steps):
            index = self._order[1].batch(step)
            state, memory = data.step(solver.step, state, memory, index, rate)
        return state, memory

    def _window(self, data: Data, fit: GradientFit, key: Key, callback: Callback) -> GradientFit:
        """A window of steps, followed by the refill, the moves and the change of phase."""
        plan, run, number = self.plan, fit.run, fit.run.phase
        phase, racing = plan.phases[number], self._until(fit) is not None
        solver, noise_key = self._solver(number), jax.random.fold_in(key, 1)
        assert run.state is not None
        steps = min(plan.window, phase.steps - run.steps)
        if run.until is not None:
            steps = min(steps, run.until - int(run.state.step))
        state, memory = self._steps(data, fit, key, steps)
        loss, sizes = _window_loss(state, fit)
        taken = int(state.step)
        is_last = number + 1 == len(plan.phases)
        # In less than a whole window, too few images of each cluster are seen.
        may_refill = steps == plan.window and (plan.refills_to_the_end or not is_last)
        share = plan.least_share if may_refill else 0.0
        refill_key = jax.random.fold_in(noise_key, state.step)
        # Only the reduction matters here: one program serves all phases.
        one = self.solvers[0]
        one = one if eqx.tree_equal(one.reduction, solver.reduction) else solver
        state, refilled = one.refill(state, refill_key, least_share=share, noise=plan.noise)
        history, refills = (*run.history, loss), run.refills + int(refilled)
        run = replace(run, steps=run.steps + steps, history=history, refills=refills)
        run = replace(run, state=state, memory=memory)
        rivals: tuple[GradientRun, ...] = ()
        if not is_last and _is_time_to_split(plan, run):
            run, rivals = self._split_merge(data, solver, run, noise_key, alone=not racing)
            state = run.state or state
        status = _verdict(plan, run, racing=racing or bool(rivals))
        if status is not None:
            after = {"phase": number + 1, "steps": 0, "ended": status.value}
            run = replace(run, starts=(*run.starts, len(run.history)), **after)
            if not is_last:
                given = (data.num_samples, len(state.learned.clusters), data.dtype)
                memory = self._solver(run.phase).training_memory(*given, past=memory)
                run = replace(run, memory=memory)
        total, least = sum(each.steps for each in plan.phases), min(fit.losses, default=None)
        progress = (len(fit.losses), run.phase, taken, total, loss, least)
        seen = taken * plan.batch_size
        # A run in a race may still be dropped, so what it learned is not shown.
        stage, learned = ("race", None) if racing else ("step", state.learned)
        callback(Progress(stage, *progress, sizes=sizes, samples=seen, learned=learned))
        return replace(fit, run=run, waiting=(*fit.waiting, *rivals))

    def _split_merge(
        self, data: Data, solver: GradientEM, run: GradientRun, key: Key, *, alone: bool
    ) -> tuple[GradientRun, tuple[GradientRun, ...]]:
        """The unchanged run and rivals after the best trial moves, or the run after the best move.

        A move is the split of one cluster and the removal of another. Its gain before the networks
        have adapted says little, so the best moves are tried, once per phase and again after each
        one that wins. A move that is a gain on some samples is made at once in two cases: in a
        race, and if too few steps of a phase are left for a trial and none was lost in it.
        """
        state, tries = run.state, alone and self.plan.tries(run.phase, run.steps)
        assert state is not None
        if alone and (run.tried > run.phase or self.plan.is_early(run.phase, run.steps)):
            return run, ()
        step = int(state.step)
        # Every device evaluates all pairs, on few samples and rarely.
        some, past = _evaluation_batch(data, self.plan, run.memory, key, step)
        proposed = propose_splits(solver, state.learned, some, past)
        gains, costs = (np.asarray(x, np.float64).tolist() for x in (proposed.gain, proposed.cost))
        gains = [gain if math.isfinite(gain) else None for gain in gains]
        most = TRIALS if tries else 1
        moved, mass = [], float(np.sum(np.asarray(some.weight, np.float64)))
        for pair in best_pairs(gains, costs, lambda net, _: tries or net > 0.0, most=most):
            places = jax.device_put(tuple(map(np.asarray, pair)))
            after = apply_split_merge(state, proposed.children, *places)
            net = ((gains[pair[0]] or 0.0) - costs[pair[1]]) / mass if tries else None
            moved.append(replace(run, state=after, moves=run.moves + 1, expected_gain=net))
        if not tries:
            return (*moved, run)[0], ()
        trial = {"until": step + self.plan.trial[0], "since": step} if moved else {}
        run = replace(run, tried=run.phase + 1, **trial)
        return run, tuple(replace(rival, **trial) for rival in moved)

    def _restart_done(self, data: Data, fit: GradientFit, callback: Callback) -> GradientFit:
        """Assigns all samples, and keeps the restart with the lower loss over all of them."""
        assert fit.run.state is not None
        learned = fit.run.state.learned
        is_last = len(fit.losses) + 1 == self.num_restarts
        # Nothing is reported for the other restarts: it would look like the end of the fit.
        assigned = self._assign(learned, data, callback if is_last else ignore)
        loss = float(np.sum(assigned[1] * data.all_weights, dtype=np.float64))
        if not np.isfinite(loss):
            raise FitError(f"the loss after the last step is {loss}; lower the learning rate")
        best, best_run = fit.best, fit.best_run
        losses = (*fit.losses, loss)
        if best_restart(losses) == len(fit.losses):
            best, self._best_assignment = learned, assigned
            best_run = replace(fit.run, state=None, memory=None)
        return GradientFit(fit.key, best_run=best_run, best=best, losses=losses)

    def _assign(self, learned: Learned, data: Data, callback: Callback) -> SoftAssignment:
        # If the data exceed memory, all responsibilities may as well.
        return assign_softly(self.final, learned, data, greatest=data.streamed, callback=callback)

    def outcome(self, data: Data, state: State, callback: Callback) -> Outcome:
        """The best restart, with the assignment of all samples."""
        losses, best, run = state.arrays.losses, state.arrays.best, state.arrays.best_run
        assignment, _, responsibilities = self._best_assignment or self._assign(
            best, data, callback
        )
        mass = float(np.sum(data.all_weights, dtype=np.float64))
        extras = {"responsibilities": responsibilities}
        if data.streamed:
            extras = {"certainties": responsibilities[:, 0]}
        extras |= {"phases": np.asarray(run.starts[:-1], np.int32)}
        figures = {"refills": float(run.refills), "moves": float(run.moves)}
        history = (*(mass * loss for loss in run.history), losses[best_restart(losses)])
        learned, status, size = data.unreplicate(best), Status(run.ended), data.chunk_size or 0
        return Outcome(
            learned, assignment, history, losses, status, size, extras=extras, figures=figures
        )

    def template(self, description: Description, position: Position) -> PyTree:
        """Zeros in place of every array that a snapshot at the position holds."""
        at, learned = dict(position), self._template()
        size, dtype, count = description.num_samples, description.dtype, len(learned.clusters)

        def run(static: dict[str, Any]) -> GradientRun:
            if not static["history"]:
                return GradientRun(**static)
            solver = self._solver(static["phase"])
            memory = solver.training_memory(size, count, dtype)
            return GradientRun(solver.init(learned), memory, **static)

        at |= {"run": run(at["run"]), "waiting": tuple(map(run, at["waiting"]))}
        if at["best_run"] is not None:
            at |= {"best_run": GradientRun(**at["best_run"]), "best": learned}
        return GradientFit(key_data_template(), **at)


def after_trial(
    plan: GradientPlan,
    runs: Sequence[GradientRun],
    is_better: Callable[[GradientRun, GradientRun], bool],
) -> list[GradientRun]:
    """The runs that continue, of a run and its copies after trial moves, at the same step.

    A move wins if its loss is lower beyond chance; at the first comparison, only if it also lowered
    the loss before any step and is ahead by as much. If none wins, the best move continues
    alongside the unchanged run: after the first comparison in any case, later if it is ahead or at
    most half as far behind as before, each time for twice as many steps. If fewer steps of the
    phase are left than were taken last time, the unchanged run is kept.

    Args:
        plan: The plan.
        runs: The runs, the one with the lowest loss first.
        is_better: Whether the first of two runs has a lower loss, beyond chance.

    Returns:
        The unchanged run and the one after the best move; or a single run that is no longer on
        trial.
    """
    as_it_was = min(runs, key=lambda run: run.moves)
    best = next(run for run in runs if run is not as_it_was)
    last, now, before = as_it_was.since or 0, as_it_was.until or 0, as_it_was.gap
    gap, expected = (best.score or 0.0) - (as_it_was.score or 0.0), best.expected_gain or 0.0
    # The phase may have ended with the trial.
    steps = as_it_was.steps
    left = plan.phases[as_it_was.phase].steps - steps if steps else 0
    after = {"until": None, "since": None, "gap": None, "expected_gain": None}
    if (before is not None or 0.0 < expected <= -gap) and is_better(best, as_it_was):
        return [replace(best, **after)]
    if (before is not None and gap > max(before, 0.0) / 2) or left < now - last:
        return [replace(as_it_was, **after)]
    after = {"until": now + min(left, 2 * (now - last)), "since": now, "gap": gap}
    return [replace(run, **after) for run in (best, as_it_was)]


def _is_time_to_split(plan: GradientPlan, run: GradientRun) -> bool:
    phase, windows = plan.phases[run.phase], len(run.history) - run.starts[-1]
    if not phase.split_merge or plan.split_merge_every <= 0 or run.until is not None:
        return False
    # At least twice per phase.
    every = max(1, min(plan.split_merge_every, phase.steps // plan.window // 2))
    return run.steps >= phase.steps or windows % every == 0


def _evaluation_batch(
    data: Data, plan: GradientPlan, memory: Memory | None, key: Key, step: int
) -> tuple[Batch, Memory | None]:
    """The samples on which moves and races are evaluated at a step, and their memory."""
    rng = np.random.default_rng([step, *np.asarray(jax.random.key_data(key)).tolist()])
    # Samples of weight zero are left out.
    weighed = np.flatnonzero(data.all_weights > 0)
    count = min(len(weighed), plan.evaluation_samples)
    # One of a few counts, eight per doubling: other data sets then run the same program.
    count -= count % 2 ** max(0, count.bit_length() - 4)
    index = weighed[rng.choice(len(weighed), count, replace=False)]
    return data.some(index), rows_of(memory, jax.device_put(index))


@eqx.filter_jit
def _sample_losses(
    solver: GradientEM, learned: Learned, batch: Batch, memory: Memory | None
) -> Array:
    alignment = solver.assign(learned, batch.samples, memory)
    return solver.reduction_of(learned)(alignment.energy)


def _window_loss(state: GradientState, fit: GradientFit) -> tuple[float, tuple[float, ...]]:
    """The mean loss and the clusters' responsibilities in the window that has ended."""
    if int(state.failed) >= 0:
        raise FitError(
            f"step {int(state.failed)} of restart {len(fit.losses)}, phase {fit.run.phase}: the "
            "loss or its gradient is not a number, and the step was not taken. Lower the learning "
            "rate, or check the images' scale"
        )
    count = np.asarray(state.tally.count, np.float64)
    mass = max(float(state.tally.mass), np.finfo(np.float64).tiny)
    return float(state.tally.loss) / mass, tuple((count / mass).tolist())


def _verdict(plan: GradientPlan, run: GradientRun, *, racing: bool) -> Status | None:
    """Whether a phase is over."""
    if run.steps >= plan.phases[run.phase].steps:
        return Status.MAX_PASSES
    losses = run.history[run.starts[-1] :]
    if racing or plan.tolerance == 0.0 or len(losses) <= plan.patience:
        return None
    before, after = min(losses[: -plan.patience]), min(losses[-plan.patience :])
    return Status.LOSS if before - after <= plan.tolerance * abs(before) else None
