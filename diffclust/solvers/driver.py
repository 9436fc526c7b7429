"""The loop of every fit: it restores, advances, reports, saves and counts the seconds."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from jaxtyping import PyTree

from diffclust.parallel.data import Data
from diffclust.solvers.problem import AbstractProblem, ClosedForm, Stages, State
from diffclust.solvers.progress import Callback, FitError, Snapshots, ignore
from diffclust.solvers.result import Outcome
from diffclust.types import Key

STATE_FORMAT = 3
"""Number of the format of snapshots: to be raised when their trees or positions change."""


def run(
    stages: Stages,
    data: Data,
    key: Key,
    *,
    callback: Callback = ignore,
    snapshots: Snapshots | None = None,
) -> Outcome:
    """Runs a fit, from the beginning or from its last snapshot.

    After every step the state is offered to the snapshots. Of several processes all run this with
    their own samples.

    Args:
        stages: Closed forms, which are always computed, and last the problem.
        data: The samples, and the devices and processes that share them.
        key: Random key.
        callback: Called with the progress; an exception that it raises ends the fit.
        snapshots: Where states are saved and found, or None.

    Returns:
        The outcome; its extras hold what the closed forms have found, too.

    Raises:
        FitError: If the fit breaks down.
        ValueError: If a snapshot is of another format.
    """
    start = time.perf_counter()
    problem, data, found = _prepared(stages, data)
    restored = None if snapshots is None else _restored(problem, data, snapshots)
    # A list, so that the step that takes the state out of it has the only reference.
    state = [problem.init(data, key) if restored is None else restored[0]]
    if restored is not None:
        start -= restored[1]
        del restored
    while not problem.done(state[0]):
        try:
            state.append(problem.advance(data, state.pop(), callback))
        except FitError as error:
            saved = None if snapshots is None else snapshots.last()
            if saved is None:
                raise
            raise FitError(f"{error}. The last good state is {saved}") from error
        if snapshots is not None:
            _save(snapshots, data, state[0], time.perf_counter() - start)
    outcome = problem.outcome(data, state.pop(), callback)
    extras, seconds = {**found, **outcome.extras}, time.perf_counter() - start
    return dataclasses.replace(outcome, extras=extras, seconds=seconds)


def _prepared(stages: Stages, data: Data) -> tuple[AbstractProblem, Data, dict[str, np.ndarray]]:
    """The problem, the data that it is for, and what the closed forms have found."""
    found: dict[str, np.ndarray] = {}
    *closed_forms, last = stages
    for closed_form in closed_forms:
        data, arrays = cast(ClosedForm, closed_form)(data)
        found.update(arrays)
    if isinstance(last, AbstractProblem):
        return last, data, found
    return cast(Callable[..., AbstractProblem], last)(found), data, found


def _save(snapshots: Snapshots, data: Data, state: State, seconds: float) -> None:
    def canonical() -> tuple[PyTree, dict[str, Any]]:
        about = {"format": STATE_FORMAT, "seconds": seconds, "position": state.position}
        return data.canonical(state.arrays), about

    snapshots.save(canonical)


def _restored(
    problem: AbstractProblem, data: Data, snapshots: Snapshots
) -> tuple[State, float] | None:
    """The state that was saved last, and how long it took to get there."""
    description = data.description

    def template(about: dict[str, Any]) -> PyTree:
        if about.get("format") != STATE_FORMAT:
            raise ValueError(
                f"the snapshot is of format {about.get('format', 'before 3')}, and this version "
                f"goes on from format {STATE_FORMAT} only; remove the folder to start anew"
            )
        return problem.template(description, about["position"])

    latest = snapshots.latest(template)
    if latest is None:
        return None
    arrays, about = latest
    return State(data.placed(arrays), about["position"]), float(about["seconds"])
