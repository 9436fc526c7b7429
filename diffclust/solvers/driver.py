"""The parts of a fit, and its loop, which restores, advances, saves and measures time."""

import abc
import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jaxtyping import PyTree

from diffclust import _validation
from diffclust._random import checked_key
from diffclust.parallel.data import Data, Description
from diffclust.parallel.programs import forget_programs
from diffclust.solvers.result import Callback, FitError, Outcome, Snapshots, ignore
from diffclust.types import Key

Position = dict[str, Any]
"""Where a fit is: restart, level, phase, histories and losses, as values that JSON can hold."""


def static_fields(fit: Any) -> Position:
    """The static fields of a fit.

    Args:
        fit: A dataclass: a fit, or a run within one.

    Returns:
        Their values by name.
    """
    fields = dataclasses.fields(fit)
    return {f.name: getattr(fit, f.name) for f in fields if f.metadata.get("static")}


class State(NamedTuple):
    """The state of a fit between two steps; a snapshot is a state in canonical form.

    Attributes:
        arrays: A tree of arrays whose structure and shapes follow from the problem, a description
            of the data and the position; parts that are not needed yet, or no longer needed, are
            None.
        position: Where the fit is.
    """

    arrays: PyTree
    position: Position


class AbstractProblem(abc.ABC):
    """What is minimised, and the steps from one state to the next.

    A problem belongs to one fit. Anything it keeps in addition to the state is a cache: it can
    continue from any state that `template` describes.
    """

    @abc.abstractmethod
    def init(self, data: Data, key: Key) -> State:
        """The state before the first step; reads no samples.

        Args:
            data: The samples and the devices that share them.
            key: Random key.

        Returns:
            The state.
        """

    @abc.abstractmethod
    def advance(self, data: Data, state: State, callback: Callback) -> State:
        """Makes a step: a pass, a window of gradient steps, a trial split, a stage or its chunk.

        Args:
            data: The samples and the devices that share them.
            state: The state; the caller keeps no reference to it.
            callback: Called with the progress; an exception that it raises ends the fit.

        Returns:
            The next state.

        Raises:
            FitError: If the fit breaks down.
        """

    @abc.abstractmethod
    def done(self, state: State) -> bool:
        """Whether the fit is finished.

        Args:
            state: The state.

        Returns:
            True after the last step.
        """

    @abc.abstractmethod
    def outcome(self, data: Data, state: State, callback: Callback) -> Outcome:
        """The result of the fit.

        Args:
            data: The samples and the devices that share them.
            state: The state after the last step.
            callback: Called with the progress of the final assignment, if that is still to be made.

        Returns:
            The outcome, without the time taken, which the driver adds.
        """

    @abc.abstractmethod
    def template(self, description: Description, position: Position) -> PyTree:
        """Arrays with the shapes and dtypes of a snapshot at a position.

        This is a pure function: it reads no data and calls no collective.

        Args:
            description: What is known about the samples.
            position: Where the fit was, with tuples in place of JSON's lists.

        Returns:
            A tree like the state's in canonical form.
        """


def check_data(data: Data, num_clusters: int) -> None:
    """Refuses data for which a problem cannot be solved.

    Args:
        data: The samples.
        num_clusters: K.

    Raises:
        ValueError: If the data are refused; the message says what is wrong and what would work.
    """
    leaves = jax.tree.leaves(data.samples)
    _validation.sample_arrays(leaves)
    _validation.weights(data.weight, leaves[0].shape[0], "weight", "sample")
    _validation.count(num_clusters, "num_clusters")
    _validation.cluster_count(num_clusters, data.num_samples, "samples")
    if data.chunk_size is None:
        raise ValueError("the data need a chunk_size: how many samples are computed at once")
    _validation.count(data.chunk_size, "chunk_size")


ClosedForm = Callable[[Data], tuple[Data, Mapping[str, np.ndarray]]]
"""Computes something before clustering, such as a registration: returns the resulting data, and
arrays by name."""

Stages = tuple[ClosedForm | AbstractProblem | Callable[[Mapping], AbstractProblem], ...]
"""The parts of a fit: closed forms in order, then a problem, or a function that makes a problem
from their results."""

STATE_FORMAT = 10
"""Version of the snapshot format, which is recorded in their folder; to be increased when their
trees or positions change."""


def run(
    stages: Stages,
    data: Data,
    key: Key,
    *,
    callback: Callback = ignore,
    snapshots: Snapshots | None = None,
    about: Mapping[str, Any] | None = None,
) -> Outcome:
    """Runs a fit, from the beginning or from its last snapshot.

    After every step the state is offered to the snapshots. With several processes, all run this
    with their own samples.

    Args:
        stages: Closed forms, which are always computed, followed by the problem.
        data: The samples, and the devices and processes that share them.
        key: Random key.
        callback: Called with the progress; an exception that it raises ends the fit.
        snapshots: Where states are saved and found, or None.
        about: What tells this fit from others, in types that JSON can hold: the model, checksums of
            the samples. It is saved with each state.

    Returns:
        The outcome; its extras include the results of the closed forms.

    Raises:
        FitError: If the fit breaks down.
        ValueError: If the snapshots are of another fit.
    """
    start, key = time.perf_counter(), checked_key(key)
    identity = {**(about or {}), "key": np.asarray(jax.random.key_data(key)).ravel().tolist()}
    forget_programs()
    results: dict[str, np.ndarray] = {}
    *closed_forms, last = stages
    for closed_form in closed_forms:
        data, arrays = cast(ClosedForm, closed_form)(data)
        results.update(arrays)
    make = cast(Callable[..., AbstractProblem], last)
    problem = last if isinstance(last, AbstractProblem) else make(results)
    restored = None if snapshots is None else _restored(problem, data, snapshots, identity)
    # A list from which each step takes the state, so that no reference here keeps its memory alive.
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
            place = {"seconds": time.perf_counter() - start, "position": state[0].position}
            place["fit"] = identity
            snapshots.save(functools.partial(_canonical, data, state[0].arrays, place))
    outcome = problem.outcome(data, state.pop(), callback)
    extras, seconds = {**results, **outcome.extras}, time.perf_counter() - start
    return dataclasses.replace(outcome, extras=extras, seconds=seconds)


class OtherFitError(ValueError):
    """A state is of another fit."""


def difference(name: str, was: Any, value: Any) -> str:
    """Describes in a few words how a fit differs from the one whose state was saved.

    Args:
        name: What differs.
        was: Its value in that fit.
        value: Its value in this one.

    Returns:
        The end of a sentence about that fit.
    """
    # Of these only checksums are known.
    if name in ("samples", "weights"):
        return f"is of other {name}"
    if name in ("start", "key"):
        return f"began with another {name}"
    if isinstance(was, dict) and isinstance(value, dict):
        others = [key for key in sorted({*was, *value}) if was.get(key) != value.get(key)]
        return "had " + ", ".join(
            f"{key} {was.get(key)!r}, not {value.get(key)!r}" if key != "mask" else "another mask"
            for key in others
        )
    return f"had {name} {was!r}, not {value!r}"


def _canonical(data: Data, arrays: PyTree, about: dict[str, Any]) -> tuple[PyTree, dict[str, Any]]:
    return data.canonical(arrays), about


def _restored(
    problem: AbstractProblem, data: Data, snapshots: Snapshots, identity: Mapping[str, Any]
) -> tuple[State, float] | None:
    """The state that was last saved, and the time it took to get there."""
    description = data.description  # all processes must ask; the template is made by one alone

    def template(about: dict[str, Any]) -> PyTree:
        for name, was in about.get("fit", {}).items():
            if was != identity.get(name):
                raise OtherFitError(difference(name, was, identity.get(name)))
        return problem.template(description, as_tuples(about["position"]))

    latest = snapshots.latest(template)
    if latest is None:
        return None
    arrays, about = latest
    return State(data.placed(arrays), as_tuples(about["position"])), float(about["seconds"])


def as_tuples(value: Any) -> Any:
    """Replaces lists by tuples, also in dictionaries and lists.

    Args:
        value: What JSON can hold.

    Returns:
        The same with tuples.
    """
    if isinstance(value, dict):
        return {name: as_tuples(each) for name, each in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list | tuple) else value
