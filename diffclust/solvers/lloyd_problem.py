"""Lloyd's algorithm as a problem: restarts, split-and-merge moves, penalty weights, refinement."""

import dataclasses
import functools
from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from diffclust import _validation
from diffclust._random import key_data_template, key_of, numpy_generator, split_key
from diffclust.parallel.chunks import Chunks
from diffclust.parallel.data import Data, Description, PerSample, with_rows
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers import bounded
from diffclust.solvers.assign import assignment_of, memberships_of
from diffclust.solvers.base import Memory, zeros_of
from diffclust.solvers.driver import AbstractProblem, Position, State, check_data, static_fields
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.solvers.lloyd_run import (
    LloydRun,
    Reassign,
    Report,
    Stopping,
    assigned_memory,
    check_penalty,
    clusters_of,
    keeps_sums,
    learned_template,
    means_of_aligned,
    run_pass,
)
from diffclust.solvers.penalty_learning import learned_penalties
from diffclust.solvers.result import Callback, Outcome, Progress, Status, best_restart
from diffclust.solvers.seeding import distances_to_seeds, kmeans_plus_plus, random_assignments
from diffclust.solvers.split_merge import SplitMerge, best_pairs, changed_clusters, try_split
from diffclust.types import Key

Start = tuple[Literal["prototypes", "assignments"], PyTree] | None
"""Prototypes `(clusters, ...)`, or a tree of these if samples are trees; or a cluster for each
sample; or None for seeds."""


@dataclasses.dataclass(frozen=True)
class LloydPlan:
    """The plan of a fit by Lloyd's algorithm.

    Attributes:
        num_clusters: K.
        penalty: Weights of the penalty terms, initially the same for every cluster.
        num_restarts: Number of runs from different seeds; the one with the lowest loss is kept.
        stopping: When a run stops.
        split_merge: Split-and-merge moves.
        coarsening: The factor by which samples are coarsened for restarts; 1 uses the samples
            themselves.
        penalty_rounds: Rounds in which the penalty weights are learned; 0 keeps them.
        penalty_per_cluster: Whether every cluster learns its own penalty weights.
        seeding: Whether restarts begin with prototypes drawn by k-means++, or with the means of
            equally large clusters to which samples are assigned at random.
    """

    num_clusters: int
    penalty: tuple[float, ...]
    num_restarts: int
    stopping: Stopping
    split_merge: SplitMerge
    coarsening: int = 1
    penalty_rounds: int = 0
    penalty_per_cluster: bool = False
    seeding: Literal["k-means++", "random"] = "k-means++"

    def __post_init__(self) -> None:
        """Refuses an unknown seeding."""
        _validation.one_of(self.seeding, ("k-means++", "random"), "seeding")


# An Equinox module would check every loss of its history each time one is made, twice per pass.
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LloydFit:
    """The state of a whole fit by Lloyd's algorithm, between two steps.

    Its arrays are those of its `State`. Its static fields, with the history and status of the two
    runs, form the position.

    Attributes:
        key: Data of the random key.
        state: The state of the run in progress for the next pass; None between two runs.
        memory: Its memory of all samples.
        previous: As for `run_pass`; None before the second pass.
        run: The restart's run, which moves or learned penalty weights should improve; None before.
        best: The best restart so far.
        children: `(clusters, 2, ...)`: the two halves of every cluster that was split on trial.
        stage: `"restarts"`, `"penalties"` (the penalty weights are learned), `"refine"` (the best
            run is finished on the samples themselves), or `"done"`.
        restart: Number of finished restarts.
        losses: Their final losses.
        history: The loss of every pass of the run in progress; None between two runs.
        backoff: How many passes of the run to make without bounds; see `solvers.bounded`.
        round: Moves accepted, or rounds of penalty learning done.
        attempt: Index of the proposed move that is being tried, or comes next.
        gains: For each cluster, what its trial split would save; None if it was not tried, or is
            too small.
        splits: For each cluster, whether its split was `"tried"` or is `"due"`, or the cluster is
            `"small"`.
        rng: State of the generator that draws the samples of trial splits; None initially.
    """

    key: Any  # an array of JAX, or of NumPy in a snapshot
    state: LloydState | None = None
    memory: PerSample | None = None
    previous: Learned | None = None
    run: LloydRun | None = None
    best: LloydRun | None = None
    children: Clusters | None = None
    stage: Literal["restarts", "penalties", "refine", "done"] = eqx.field(
        static=True, default="restarts"
    )
    restart: int = eqx.field(static=True, default=0)
    losses: tuple[float, ...] = eqx.field(static=True, default=())
    history: tuple[float, ...] | None = eqx.field(static=True, default=None)
    backoff: bounded.Backoff = eqx.field(static=True, default=bounded.NO_BACKOFF)
    round: int = eqx.field(static=True, default=0)
    attempt: int = eqx.field(static=True, default=0)
    gains: tuple[float | None, ...] = eqx.field(static=True, default=())
    splits: tuple[Literal["due", "tried", "small"], ...] = eqx.field(static=True, default=())
    rng: dict[str, Any] | None = eqx.field(static=True, default=None)

    @property
    def least(self) -> float | None:
        """The lowest loss of the finished restarts."""
        return min(self.losses, default=None)


def _state(fit: LloydFit) -> State:
    runs = {"run": fit.run, "best": fit.best}
    words = {name: run and (run.history, run.status.value) for name, run in runs.items()}
    return State(fit, static_fields(fit) | words)


def _prepare(solver: Lloyd, factor: int, sample: PyTree) -> PyTree:
    return solver.family.normalise(solver.energy.coarser(sample, factor))


class LloydProblem(AbstractProblem):
    """Prototypes fitted by Lloyd's algorithm.

    Restarts run on coarse samples, each with split-and-merge moves; penalty weights are learned
    from the best one, which is then finished on the samples themselves. From a given start all
    restarts would be the same, so there is only one.
    """

    def __init__(self, solver: Lloyd, plan: LloydPlan, start: Start = None) -> None:
        """Stores the arguments; nothing is computed yet.

        Args:
            solver: Energy, aligner, prototype family and reduction.
            plan: How the fit proceeds.
            start: The starting point; None for seeds.
        """
        check_penalty(solver, plan.penalty)
        if plan.penalty_rounds and not solver.reduction.is_hard:
            raise ValueError(
                "penalty weights are learned from each sample's best cluster alone; with soft "
                "memberships, penalty_rounds must be 0"
            )
        self.solver, self.plan, self.start = solver, plan, start
        self._num_restarts = plan.num_restarts if start is None else 1
        self._last_stage = "refine" if plan.coarsening > 1 else "done"
        self._bounds: tuple[Chunks, bounded.Bounds | None] | None = None

    def _pixels(self, data: Data) -> float:
        """Original pixels per pixel of a coarse sample, the factor by which its energies are lower.

        Penalties must be scaled likewise to keep their weight. If the family removes the scale of
        samples, energies are the same at both levels.
        """
        (sample, *_) = jax.tree.leaves(data.description.sample)
        is_alike = self.plan.coarsening == 1 or self.solver.family.removes_scale
        return 1.0 if is_alike else float(self.plan.coarsening ** (len(sample.shape) - 1))

    def level(self, data: Data, factor: int) -> Chunks:
        """The samples at one resolution, normalised and divided into chunks.

        Args:
            data: The samples.
            factor: The factor by which samples are coarser.

        Returns:
            The chunks.
        """
        return data.level(factor, eqx.Partial(_prepare, self.solver, factor))

    def init(self, data: Data, key: Key) -> State:
        """The state before the first restart."""
        check_data(data, self.plan.num_clusters)
        self._check_start(data)
        return _state(LloydFit(data.replicate(jax.random.key_data(key))))

    def _check_start(self, data: Data) -> None:
        if self.start is None:
            return
        kind, given = self.start
        count = self.plan.num_clusters
        if kind == "assignments":
            _validation.groups(given, data.num_samples, count, "sample")
            return
        for leaf, sample in zip(
            jax.tree.leaves(given), jax.tree.leaves(data.description.sample), strict=True
        ):
            if leaf.shape != (count, *sample.shape):
                raise ValueError(
                    f"prototypes to start from must have shape {(count, *sample.shape)}, not "
                    f"{leaf.shape}"
                )

    def done(self, state: State) -> bool:
        """Whether the best run is finished."""
        return state.position["stage"] == "done"

    def advance(self, data: Data, state: State, callback: Callback) -> State:
        """Makes a pass (after seeding or a move, if any), a trial split, or a restart's end."""
        fit: LloydFit = state.arrays
        del state
        chunks = self.level(data, 1 if fit.stage == "refine" else self.plan.coarsening)
        if fit.state is None:
            improving = fit.stage == "restarts" and fit.run is not None
            if improving and "due" in fit.splits and self._may_split_merge(fit):
                return _state(self._split(chunks, fit, callback))
            proposed = self._proposed(fit) if improving else None
            if improving and proposed is None:
                return _state(self._restart_done(fit))
            fit = self._next_run(data, chunks, fit, proposed, callback)
        assert fit.state is not None
        assert fit.memory is not None
        lloyd, memory, report = fit.state, [fit.memory.rows], self._report(callback, fit)
        settings = {"history": fit.history or (), "previous": fit.previous, "report": report}
        settings["reassign"] = self._reassign(chunks, lloyd.learned, fit)
        fit = replace(fit, state=None, memory=None, previous=None, history=None)
        after = run_pass(self.solver, chunks, lloyd, memory.pop(), self.plan.stopping, **settings)
        if isinstance(after, LloydRun):
            return _state(self._run_done(chunks, fit, after))
        lloyd, rows, history, previous = after
        in_run = {"state": lloyd, "memory": PerSample(rows), "previous": previous}
        if len(history) > bounded.LEAST_PASSES and self._bounds is not None and self._bounds[1]:
            in_run["backoff"] = self._bounds[1].next_backoff(fit.backoff)
        return _state(replace(fit, history=history, **in_run))

    def _reassign(self, chunks: Chunks, learned: Learned, fit: LloydFit) -> Reassign | None:
        """A pass that leaves most samples unread, if there is one; never for a run's first few."""
        if fit.history is None or len(fit.history) < bounded.LEAST_PASSES:
            return None
        if self._bounds is None or self._bounds[0] is not chunks:
            given = self.solver, chunks, self.plan.num_clusters
            self._bounds = chunks, bounded.bounds_for(*given) if keeps_sums(*given[:2]) else None
        if self._bounds[1] is None:
            return None
        assert fit.previous is not None
        return self._bounds[1].next_pass(fit.backoff, learned, fit.previous, fit.history[-1])

    def _report(self, callback: Callback, fit: LloydFit) -> Report:
        in_restart, history = fit.stage == "restarts", fit.history or ()
        number = fit.restart if in_restart else best_restart(fit.losses)
        at = ("pass" if in_restart else "refine", number, len(history))
        losses = (history[-1] if history else None, fit.least)

        # It must not hold the fit, whose memory each pass frees.
        return lambda learned, done, total: callback(
            Progress(*at, done, total, *losses, learned=learned)
        )

    # How runs start.

    def _next_run(
        self,
        data: Data,
        chunks: Chunks,
        fit: LloydFit,
        proposed: tuple[int, int] | None,
        callback: Callback,
    ) -> LloydFit:
        """The fit before the first pass of its next run."""
        solver, run, best, total = self.solver, fit.run, fit.best, self.plan.num_clusters
        if fit.stage == "refine":
            assert best is not None
            weights, pixels = best.learned.clusters.penalty, self._pixels(data)
            weights = weights if pixels == 1.0 else pixels * weights
            memory, given = best.per_sample, (total, weights)
            state, best = means_of_aligned(solver, chunks, memory.rows, *given), None
        elif run is None:
            if self.start is None:
                callback(Progress("seeding", fit.restart, 0, 0, total, None, fit.least))
            state, rows = self._seeded(data, chunks, self._restart_key(fit))
            memory = PerSample(rows)
        else:
            clusters, memory = run.learned.clusters, run.per_sample
            if proposed is None:
                shared = not self.plan.penalty_per_cluster
                weights = learned_penalties(solver, chunks, run, shared=shared)
                clusters = eqx.tree_at(lambda c: c.penalty, clusters, weights)
            else:
                assert fit.children is not None
                # The second half takes the place of the cluster that is removed.
                both, split = jax.device_put((np.array(proposed), np.array(proposed[0])))
                clusters = with_rows(clusters, both, fit.children.take(split))
            state = solver.init(clusters, run.learned.objective)
        given = {"state": state, "memory": memory, "best": best}
        return replace(fit, history=(), backoff=bounded.NO_BACKOFF, **given)

    def _restart_key(self, fit: LloydFit) -> Key:
        return split_key(key_of(fit.key), self._num_restarts, fit.restart)

    def _seeded(
        self, data: Data, chunks: Chunks, key: Key
    ) -> tuple[LloydState, tuple[Memory, ...]]:
        """A state and a memory from seeds, or from the start that the fit was given."""
        solver, plan, count = self.solver, self.plan, self.plan.num_clusters
        penalty = tuple(weight / self._pixels(data) for weight in plan.penalty)
        kind, given = (plan.seeding, None) if self.start is None else self.start
        if kind in ("random", "assignments"):
            groups = random_assignments(key, chunks.num_samples, count) if given is None else given
            groups = np.asarray(groups)
            memory, weight = assigned_memory(solver, chunks, count, groups), data.weights_in(groups)
            if not np.array_equal(weight, data.all_weights):
                replaced = dataclasses.replace(data, weight=weight[data.own])
                chunks = self.level(replaced, plan.coarsening)
            return means_of_aligned(solver, chunks, memory, count, penalty), memory
        if given is None:
            # On the samples themselves, so that seeds do not depend on the coarsening.
            distances = eqx.Partial(distances_to_seeds, solver.energy, solver.family)
            seeds = chunks.gather(kmeans_plus_plus(self.level(data, 1), count, distances, key=key))
        else:
            prepare = jax.vmap(eqx.Partial(_prepare, solver, plan.coarsening))
            seeds = prepare(jax.tree.map(jnp.asarray, given))
        unseen = solver.init_memory(chunks.own_size, count, chunks.dtype)
        return solver.init(clusters_of(solver, seeds, penalty)), (unseen,) * chunks.count

    # How runs end.

    def _run_done(self, chunks: Chunks, fit: LloydFit, run: LloydRun) -> LloydFit:
        """Ends a run: a restart's first, a trial split, a round of penalties, or the refinement."""
        if fit.stage == "refine":
            return replace(fit, best=run, stage="done")
        before, count = fit.run, self.plan.num_clusters
        if before is None:
            return replace(fit, run=run, splits=("due",) * count, gains=(None,) * count)
        longer = replace(run, history=before.history + run.history)
        if fit.stage == "penalties":
            old, new = (r.learned.clusters.penalty for r in (before, run))
            converged = bool(jnp.max(jnp.abs(jnp.log(new / old))) < 0.05)
            fit = replace(fit, round=fit.round + 1)
            if not converged and fit.round < self.plan.penalty_rounds:
                return replace(fit, run=longer)
            return replace(fit, run=None, best=longer, stage=self._last_stage)
        if not run.loss < before.loss - 1e-4 * abs(before.loss):
            return replace(fit, attempt=fit.attempt + 1)
        proposed = self._proposed(fit)
        assert proposed is not None
        changed = {*proposed} | changed_clusters(chunks, before, run)
        # Trials of clusters whose samples hardly changed are still valid.
        splits = tuple("due" if k in changed else s for k, s in enumerate(fit.splits))
        gains = tuple(None if k in changed else g for k, g in enumerate(fit.gains))
        changes = {"splits": splits, "gains": gains, "round": fit.round + 1, "attempt": 0}
        return replace(fit, run=longer, **changes)

    def _restart_done(self, fit: LloydFit) -> LloydFit:
        """Ends a restart, and keeps the better one."""
        run, best = fit.run, fit.best
        assert run is not None
        losses = (*fit.losses, run.loss)
        if best_restart(losses) == len(fit.losses):
            best = run
        fit = LloydFit(fit.key, best=best, restart=fit.restart + 1, losses=losses)
        if fit.restart < self._num_restarts:
            return fit
        if self.plan.penalty_rounds > 0:
            return replace(fit, run=best, best=None, stage="penalties")
        return replace(fit, stage=self._last_stage)

    # Split-and-merge moves.

    def _may_split_merge(self, fit: LloydFit) -> bool:
        return self.plan.num_clusters > 2 and fit.round < self.plan.split_merge.rounds

    def _split(self, chunks: Chunks, fit: LloydFit, callback: Callback) -> LloydFit:
        """Splits the next cluster on trial."""
        cluster, run = fit.splits.index("due"), fit.run
        assert run is not None
        rng = numpy_generator(self._restart_key(fit))
        if fit.rng is not None:
            rng.bit_generator.state = fit.rng
        trial = try_split(self.solver, chunks, run, cluster, self.plan.split_merge, rng)
        splits, gains, children = list(fit.splits), list(fit.gains), fit.children
        splits[cluster] = "small" if trial is None else "tried"
        if trial is not None:
            gains[cluster], halves = trial
            place = jax.device_put(np.array(cluster))
            children = _with_halves(run.learned.clusters, children, place, halves)
        at = (fit.restart, len(run.history), cluster + 1, self.plan.num_clusters)
        callback(Progress("split", *at, run.loss, fit.least))
        changes = {"splits": tuple(splits), "gains": tuple(gains), "children": children}
        return replace(fit, rng=dict(rng.bit_generator.state), **changes)

    def _proposed(self, fit: LloydFit) -> tuple[int, int] | None:
        """The move to be tried next; None if none is left."""
        assert fit.run is not None
        if not self._may_split_merge(fit):
            return None
        costs = np.asarray(fit.run.tally.margin).tolist()
        # Margins overstate the cost of a removal, since the others adapt, but by less than a factor
        # of two.
        most = self.plan.split_merge.attempts
        pairs = best_pairs(fit.gains, costs, lambda net, gain: net >= -0.5 * gain, most=most)
        return pairs[fit.attempt] if fit.attempt < len(pairs) else None

    # Results and snapshots.

    def outcome(self, data: Data, state: State, callback: Callback) -> Outcome:
        """The best run, with the assignment of all samples."""
        losses, best = state.arrays.losses, state.arrays.best
        chunks, learned = self.level(data, 1), data.unreplicate(best.learned)
        reduction = self.solver.reduction_of(learned)
        extras = {}
        if not reduction.is_hard:
            part = functools.partial(memberships_of, reduction, num_clusters=self.plan.num_clusters)
            extras = {"responsibilities": chunks.collect(best.memory, part)}
        assignment, size = chunks.collect(best.memory, assignment_of), data.chunk_size or 0
        return Outcome(learned, assignment, best.history, losses, best.status, size, extras=extras)

    def template(self, description: Description, position: Position) -> PyTree:
        """Zeros in place of every array that a snapshot at the position holds."""
        at = {**position, "run": None, "best": None}
        fit, plan = LloydFit(key_data_template(), **at), self.plan
        given = (self.solver, description.sample, plan.num_clusters, plan.penalty)
        learned = (
            learned_template(*given, prepare=eqx.Partial(_prepare, self.solver, factor))
            for factor in (plan.coarsening, 1)
        )
        coarse, fine = (zeros_of(self.solver.init, each.clusters) for each in learned)
        size, dtype = description.num_samples, jnp.dtype(description.dtype)
        memory = PerSample(self.solver.init_memory(size, plan.num_clusters, dtype))
        last = fine if fit.stage == "done" else coarse

        def run(name: str) -> LloydRun | None:
            if position[name] is None:
                return None
            history, status = position[name]
            return LloydRun(last.learned, memory, last.tally, history, Status(status))

        fit = replace(fit, run=run("run"), best=run("best"))
        if fit.stage == "restarts" and ("tried" in fit.splits or fit.round > 0):
            fit = replace(fit, children=_pairs(coarse.learned.clusters))
        if fit.history is None:
            return fit
        now = fine if fit.stage == "refine" else coarse
        return replace(fit, state=now, memory=memory, previous=now.learned if fit.history else None)


@eqx.filter_jit
def _with_halves(
    clusters: Clusters, children: Clusters | None, cluster: Int[Array, ""], halves: Clusters
) -> Clusters:
    children = _pairs(clusters) if children is None else children
    return jax.tree.map(lambda a, new: a.at[cluster].set(new), children, halves)


def _pairs(clusters: Clusters) -> Clusters:
    """Room for the two halves of every cluster."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], axis=1), clusters)
