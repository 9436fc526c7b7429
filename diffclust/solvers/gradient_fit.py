"""A whole fit by gradient steps: restarts, saving and going on, and the final assignment."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from diffclust.prototypes import Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.curriculum import GradientPlan, Keep, Position, Trained, train
from diffclust.solvers.fit import assign_chunks, host_assignment
from diffclust.solvers.gradient import GradientEM, GradientState
from diffclust.solvers.progress import Callback, FitError, Snapshots, Status, ignore
from diffclust.solvers.result import Assignment, Outcome
from diffclust.solvers.run import candidates
from diffclust.types import Key


@dataclasses.dataclass(frozen=True)
class _Best:
    """The best run so far, and the losses of all.

    Attributes:
        learned: What the best run learned.
        position: Where it ended.
        status: Why.
        losses: The final loss of every run that is done.
        seconds: Time spent before this process took over.
    """

    learned: Learned
    position: Position
    status: Status
    losses: tuple[float, ...]
    seconds: float = 0.0


def assign_softly(
    solver: GradientEM,
    learned: Learned,
    samples: PyTree,
    *,
    chunk_size: int,
    callback: Callback = ignore,
) -> tuple[Assignment, Float[np.ndarray, " n"], Float[np.ndarray, "n clusters"]]:
    """Assigns samples to clusters that stay as they are.

    Args:
        solver: What assigns.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        chunk_size: Samples a chunk.
        callback: Told of every chunk.

    Returns:
        The assignment, the loss of each sample and its responsibilities.
    """
    chunks, memory = assign_chunks(
        solver, learned, samples, chunk_size=chunk_size, callback=callback
    )
    cluster, scores = candidates(chunks, memory)
    reduction = solver.reduction
    losses = np.asarray(reduction(jnp.asarray(scores)))
    share = np.asarray(reduction.responsibilities(jnp.asarray(scores)))
    responsibilities = np.zeros((len(cluster), len(learned.clusters)), share.dtype)
    np.put_along_axis(responsibilities, cluster, share, axis=1)
    return host_assignment(chunks, memory), losses, responsibilities


def fit_by_gradient(
    solvers: Sequence[GradientEM],
    final: GradientEM,
    plan: GradientPlan,
    samples: Float[np.ndarray, "n height width channels"],
    weight: Float[np.ndarray, " n"] | None,
    *,
    begin: Callable[[Key], Learned],
    num_restarts: int,
    chunk_size: int,
    key: Key,
    callback: Callback = ignore,
    snapshots: Snapshots | None = None,
    keep: Keep | None = None,
) -> Outcome:
    """Fits prototypes, and networks that align them, to samples.

    Args:
        solvers: The solvers that the plan's phases name.
        final: Assigns the samples in the end.
        plan: What to do.
        samples: Samples with a leading axis.
        weight: Sample weights, or None.
        begin: What is learned, to start a run from its key.
        num_restarts: Runs, of which the one of least loss is kept.
        chunk_size: Samples a chunk of an assignment.
        key: Random key.
        callback: Told of every window of steps.
        snapshots: Where the fit saves its state and goes on from, or None.
        keep: Called with the state after every window, or None.

    Returns:
        The outcome.

    Raises:
        FitError: If a loss or a gradient is not a number.
    """
    started = time.perf_counter()
    data = Batch(
        jnp.asarray(samples),
        jnp.ones(len(samples), samples.dtype) if weight is None else jnp.asarray(weight),
    )
    keys = jax.random.split(key, num_restarts)
    found = None if snapshots is None else _found(snapshots, solvers, plan, data, begin, key)
    best, going = (None, None) if found is None else found
    spent = 0.0 if best is None else best.seconds
    done = 0 if best is None else len(best.losses)
    for number in range(done, num_restarts):
        run_key = keys[number]
        least = None if best is None else min(best.losses)

        def note(
            state: GradientState,
            memory: Memory,
            position: Position,
            number: int = number,
            best: _Best | None = best,
        ) -> None:
            if keep is not None:
                keep(state, memory, position)
            if snapshots is not None:
                seconds = spent + time.perf_counter() - started
                snapshots.save(*_snapshot(state, memory, position, number, best, seconds))

        try:
            run = train(
                solvers,
                plan,
                data,
                begin(jax.random.fold_in(run_key, 2)),
                key=run_key,
                begin=going,
                keep=note,
                callback=callback,
                restart=number,
                least=least,
            )
        except FitError as error:
            last = None if snapshots is None else snapshots.last()
            if last is None:
                raise
            raise FitError(f"{error}. The last good state is {last}") from error
        going = None
        best = _better(best, run, _loss(final, run.learned, samples, weight, chunk_size))
    assert best is not None
    assignment, losses, responsibilities = assign_softly(
        final, best.learned, samples, chunk_size=chunk_size, callback=callback
    )
    total = np.sum(losses if weight is None else losses * weight, dtype=np.float64)
    mass = float(np.sum(np.asarray(data.weight), dtype=np.float64))
    return Outcome(
        best.learned,
        assignment,
        (*(mass * loss for loss in best.position.history), float(total)),
        best.losses,
        best.status,
        chunk_size,
        spent + time.perf_counter() - started,
        {
            "responsibilities": responsibilities,
            "phases": np.asarray(best.position.starts[:-1], np.int32),
        },
        {"refills": float(best.position.refills), "moves": float(best.position.moves)},
    )


def _loss(
    solver: GradientEM,
    learned: Learned,
    samples: PyTree,
    weight: np.ndarray | None,
    chunk_size: int,
) -> float:
    """The loss of all samples together, which is what runs are compared by."""
    _, losses, _ = assign_softly(solver, learned, samples, chunk_size=chunk_size)
    return float(np.sum(losses if weight is None else losses * weight, dtype=np.float64))


def _better(best: _Best | None, run: Trained, loss: float) -> _Best:
    if not np.isfinite(loss):
        raise FitError(f"the loss after the last step is {loss}; lower the learning rate")
    if best is None:
        return _Best(run.learned, run.position, run.status, (loss,))
    losses = (*best.losses, loss)
    if loss < min(best.losses):
        return _Best(run.learned, run.position, run.status, losses)
    return dataclasses.replace(best, losses=losses)


def _snapshot(
    state: GradientState,
    memory: Memory,
    position: Position,
    number: int,
    best: _Best | None,
    seconds: float,
) -> tuple[PyTree, dict[str, Any]]:
    """A state as arrays, and what JSON can hold."""
    about: dict[str, Any] = {
        "restart": number,
        "position": dataclasses.asdict(position),
        "seconds": seconds,
        "best": None,
    }
    if best is not None:
        about["best"] = {
            "position": dataclasses.asdict(best.position),
            "status": best.status.value,
            "losses": list(best.losses),
        }
    return (state, memory, None if best is None else best.learned), about


def _position(described: dict[str, Any]) -> Position:
    return Position(
        int(described["phase"]),
        int(described["steps"]),
        tuple(described["history"]),
        tuple(described["starts"]),
        int(described["refills"]),
        int(described["moves"]),
    )


def _found(
    snapshots: Snapshots,
    solvers: Sequence[GradientEM],
    plan: GradientPlan,
    data: Batch,
    begin: Callable[[Key], Learned],
    key: Key,
) -> tuple[_Best | None, tuple[GradientState, Memory, Position]] | None:
    """What was saved last: the best of the runs done, and the one to go on with."""

    def like(about: dict[str, Any]) -> PyTree:
        learned = begin(key)
        phase = min(int(about["position"]["phase"]), len(plan.phases) - 1)
        solver = solvers[plan.phases[phase].solver]
        size = data.weight.shape[0]
        memory = solver.remember(size, len(learned.clusters), data.weight.dtype)
        return solver.init(learned), memory, None if about["best"] is None else learned

    latest = snapshots.latest(like)
    if latest is None:
        return None
    (state, memory, learned), about = latest
    going = (state, memory, _position(about["position"]))
    told, best = about["best"], None
    if told is not None:
        best = _Best(
            learned, _position(told["position"]), Status(told["status"]), tuple(told["losses"])
        )
    if int(about["restart"]) and best is None:
        raise ValueError("the saved state tells of earlier restarts, but not of their losses")
    return _timed(best, about, going)


def _timed(
    best: _Best | None, about: dict[str, Any], going: tuple[GradientState, Memory, Position]
) -> tuple[_Best | None, tuple[GradientState, Memory, Position]]:
    if best is None:
        return None, going
    return dataclasses.replace(best, seconds=float(about["seconds"])), going
