"""A whole fit by gradient steps: restarts, saving and going on, and the final assignment."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, PyTree

from diffclust.image_source import Images, ImageSource
from diffclust.parallel import gathered
from diffclust.processes import joined_rows, row_counts
from diffclust.prototypes import Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.chunks import HostSamples
from diffclust.solvers.curriculum import (
    GradientPlan,
    Keep,
    Position,
    Standing,
    Trained,
    train,
)
from diffclust.solvers.fit import assign_chunks
from diffclust.solvers.gradient import GradientEM, GradientState
from diffclust.solvers.progress import Callback, FitError, Snapshots, Status, ignore
from diffclust.solvers.result import Assignment, Outcome
from diffclust.solvers.run import assigned
from diffclust.types import Key

SoftAssignment = tuple[Assignment, Float[np.ndarray, " n"], Float[np.ndarray, "n clusters"]]
"""Samples assigned: how, the loss of each, and its responsibilities."""


@dataclasses.dataclass(frozen=True)
class _Best:
    """The best run so far, and the losses of all.

    Attributes:
        learned: What the best run learned.
        position: Where it ended.
        losses: The final loss of every run that is done.
        assigned: How it assigns the samples; None where it comes from a snapshot.
    """

    learned: Learned
    position: Position
    losses: tuple[float, ...]
    assigned: SoftAssignment | None = None


@dataclasses.dataclass(frozen=True)
class _Found:
    """What an earlier process left.

    Attributes:
        best: The best of the runs that are done.
        going: Where the next one stands.
        seconds: How long all that took.
    """

    best: _Best | None = None
    going: Standing | None = None
    seconds: float = 0.0


def assign_softly(
    solver: GradientEM,
    learned: Learned,
    samples: PyTree,
    *,
    chunk_size: int,
    greatest: bool = False,
    callback: Callback = ignore,
    mesh: Mesh | None = None,
) -> SoftAssignment:
    """Assigns samples to clusters that stay as they are.

    Args:
        solver: What assigns.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        chunk_size: Samples a chunk, and a device.
        greatest: Whether only the greatest responsibility of each sample is kept.
        callback: Told of every chunk.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        The assignment, the loss of each sample and its responsibilities.
    """
    reduction, count = solver.reduction, len(learned.clusters)

    def part(memory: Memory) -> PyTree:
        scores = jnp.asarray(memory.energy)
        share = np.asarray(reduction.responsibilities(scores))
        if greatest:
            responsibilities = share[:, :1]
        else:
            responsibilities = np.zeros((len(share), count), share.dtype)
            np.put_along_axis(responsibilities, np.asarray(memory.cluster), share, axis=1)
        return assigned(memory), np.asarray(reduction(scores)), responsibilities

    found, losses, responsibilities = assign_chunks(
        solver,
        learned,
        samples,
        part=part,
        chunk_size=chunk_size,
        callback=callback,
        mesh=mesh,
    )
    return Assignment(*found), losses, responsibilities


def fit_by_gradient(
    solvers: Sequence[GradientEM],
    final: GradientEM,
    plan: GradientPlan,
    samples: Images,
    weight: Float[np.ndarray, " n"] | None,
    *,
    begin: Callable[[Key], Learned],
    num_restarts: int,
    chunk_size: int,
    key: Key,
    callback: Callback = ignore,
    snapshots: Snapshots | None = None,
    keep: Keep | None = None,
    mesh: Mesh | None = None,
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
        chunk_size: Samples a chunk of an assignment, and a device.
        key: Random key.
        callback: Told of every window of steps.
        snapshots: Where the fit saves its state and goes on from, or None.
        keep: Called with the state after every window, or None.
        mesh: Devices that share every batch, or None for one.

    Returns:
        The outcome.

    Raises:
        FitError: If a loss or a gradient is not a number.
    """
    started = time.perf_counter()
    data: Batch | HostSamples
    streamed = isinstance(samples, ImageSource)
    if mesh is None and not streamed:
        ones = jnp.ones(len(samples), samples.dtype)
        data = Batch(jnp.asarray(samples), ones if weight is None else jnp.asarray(weight))
    else:
        ones = np.ones(len(samples), samples.dtype)
        every = joined_rows(ones if weight is None else weight, mesh)
        data = HostSamples(samples, every, mesh, row_counts(len(samples), mesh))
    # Of what is larger than memory, all responsibilities may be as well.
    assign = functools.partial(
        assign_softly,
        final,
        samples=samples,
        chunk_size=chunk_size,
        greatest=streamed,
        mesh=mesh,
    )
    keys = jax.random.split(key, num_restarts)
    found = _Found()
    if snapshots is not None:
        found = _found(snapshots, solvers, plan, data, begin, key)
    best, going = found.best, found.going
    done = 0 if best is None else len(best.losses)
    for number in range(done, num_restarts):
        run_key = keys[number]
        least = None if best is None else min(best.losses)

        def note(
            state: GradientState,
            memory: Memory | None,
            position: Position,
            number: int = number,
            best: _Best | None = best,
        ) -> None:
            if keep is not None:
                keep(state, memory, position)
            if snapshots is not None:
                seconds = found.seconds + time.perf_counter() - started
                found_out = (state, memory, position, number, best, seconds)
                snapshots.save(lambda: _snapshot(*found_out))

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
        # Of the other runs nobody is told: they would look like the end of the fit.
        tell = callback if number + 1 == num_restarts else ignore
        found_last = assign(run.learned, callback=tell)
        best = _better(best, run, found_last, np.asarray(data.weight))
    assert best is not None
    assignment, _, shares = best.assigned or assign(best.learned, callback=callback)
    mass = float(np.sum(np.asarray(data.weight), dtype=np.float64))
    return Outcome(
        gathered(best.learned, mesh),
        assignment,
        (*(mass * loss for loss in best.position.history), min(best.losses)),
        best.losses,
        Status(best.position.ended),
        chunk_size,
        found.seconds + time.perf_counter() - started,
        {
            **({"certainties": shares[:, 0]} if streamed else {"responsibilities": shares}),
            "phases": np.asarray(best.position.starts[:-1], np.int32),
        },
        {"refills": float(best.position.refills), "moves": float(best.position.moves)},
    )


def _better(
    best: _Best | None, run: Trained, assigned: SoftAssignment, weight: np.ndarray
) -> _Best:
    """The better one by the loss of all samples together."""
    each = assigned[1]
    loss = float(np.sum(each * weight, dtype=np.float64))
    if not np.isfinite(loss):
        raise FitError(f"the loss after the last step is {loss}; lower the learning rate")
    losses = (loss,) if best is None else (*best.losses, loss)
    if best is None or loss < min(best.losses):
        return _Best(run.learned, run.position, losses, assigned)
    return dataclasses.replace(best, losses=losses)


def _snapshot(
    state: GradientState,
    memory: Memory | None,
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
        described["ended"],
    )


def _found(
    snapshots: Snapshots,
    solvers: Sequence[GradientEM],
    plan: GradientPlan,
    data: Batch | HostSamples,
    begin: Callable[[Key], Learned],
    key: Key,
) -> _Found:
    """What was saved last: the best of the runs done, and the one to go on with."""
    # All processes begin; not all of them ask what a state is like.
    learned = begin(key)

    def like(about: dict[str, Any]) -> PyTree:
        phase = min(_position(about["position"]).phase, len(plan.phases) - 1)
        solver = solvers[plan.phases[phase].solver]
        size = data.weight.shape[0]
        memory = solver.training_memory(size, len(learned.clusters), data.weight.dtype)
        return solver.init(learned), memory, None if about["best"] is None else learned

    latest = snapshots.latest(like)
    if latest is None:
        return _Found()
    (state, memory, found), about = latest
    told, best = about["best"], None
    if told is not None:
        best = _Best(found, _position(told["position"]), tuple(told["losses"]))
    if int(about["restart"]) and best is None:
        raise ValueError("the saved state tells of earlier restarts, but not of their losses")
    going = (state, memory, _position(about["position"]))
    return _Found(best, going, float(about["seconds"]))
