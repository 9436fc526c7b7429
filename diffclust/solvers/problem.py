"""What a fit consists of: closed forms, and problems that are solved step by step."""

import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree

from diffclust.parallel.data import Data, Description
from diffclust.solvers.progress import Callback
from diffclust.solvers.result import Outcome
from diffclust.types import Key

Position = dict[str, Any]
"""Where a fit is: restart, level, phase, histories, losses: what JSON can hold."""


class State(NamedTuple):
    """The state of a fit between two steps; a snapshot is the same in canonical form.

    Attributes:
        arrays: A tree of arrays whose structure and shapes follow from the problem, a description
            of the data and the position; parts that are not needed yet, or any more, are None.
        position: Where the fit is.
    """

    arrays: PyTree
    position: Position


class AbstractProblem(abc.ABC):
    """What is minimised, and how it goes on from one state to the next.

    A problem belongs to one fit. What it keeps beside the state are caches: it goes on from any
    state that `template` describes.
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
        """One step: a pass, a window of gradient steps, a trial split, a stage or a chunk of one.

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
        """Whether nothing is left to be done.

        Args:
            state: The state.

        Returns:
            True after the last step.
        """

    @abc.abstractmethod
    def outcome(self, data: Data, state: State, callback: Callback) -> Outcome:
        """What the fit has found.

        Args:
            data: The samples and the devices that share them.
            state: The state after the last step.
            callback: Called with the progress of the assignment, where one is left to be made.

        Returns:
            The outcome; its seconds are the driver's to set.
        """

    @abc.abstractmethod
    def template(self, description: Description, position: Position) -> PyTree:
        """Arrays of the shapes and dtypes that a snapshot at a position holds.

        A pure function: it reads no data and calls no collective.

        Args:
            description: What is known of the samples.
            position: Where the fit was.

        Returns:
            A tree like the state's in canonical form.
        """


ClosedForm = Callable[[Data], tuple[Data, Mapping[str, np.ndarray]]]
"""Computes something before clustering, such as a registration: the data that follow, and arrays by
name."""

Stages = tuple[ClosedForm | AbstractProblem | Callable[[Mapping], AbstractProblem], ...]
"""What a fit consists of: closed forms in turn, and last a problem, or a function that makes it of
what these have found."""
