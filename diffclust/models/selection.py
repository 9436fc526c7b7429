"""The samples given to a fit, without those of weight zero."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int

from diffclust import _validation
from diffclust.parallel import Data
from diffclust.solvers import Assignment, Outcome, Status

IS_POSITIVE = "is_positive"
"""Name of the extra that marks, by 1 and 0, which samples have a positive weight."""

_OF_FITTED = ("bridges", "certainties", "responsibilities", "phases", "eigenvalues", IS_POSITIVE)
"""Extras of an outcome that describe the fitted samples only."""


def counted(outcome: Outcome) -> Int[np.ndarray, " m"]:
    """Finds the samples that a fit counts.

    Args:
        outcome: What came of the fit.

    Returns:
        Positions of those with a positive weight; the others were assigned, but not fitted.
    """
    count = len(outcome.assignment.clusters)
    return np.flatnonzero(outcome.extras.get(IS_POSITIVE, np.ones(count)))


def predicted(outcome: Outcome, assignment: Assignment) -> Outcome:
    """Replaces the assignment by that of other samples.

    Args:
        outcome: What came of the fit.
        assignment: What was predicted for the other samples.

    Returns:
        The outcome without the extras that describe fitted samples.
    """
    extras = {name: a for name, a in outcome.extras.items() if name not in _OF_FITTED}
    return dataclasses.replace(
        outcome, assignment=assignment, status=Status.PREDICTED, extras=extras
    )


@dataclasses.dataclass(frozen=True)
class Selection:
    """The samples given to a fit.

    Attributes:
        data: All samples.
        is_positive: Whether each sample of all processes has a positive weight; None if all do.
        is_fitted: Whether each sample is fitted; None if all are.
        num_positive: How many samples have a positive weight.
    """

    data: Data
    is_positive: Bool[np.ndarray, " n"] | None
    is_fitted: Bool[np.ndarray, " n"] | None
    num_positive: int

    @staticmethod
    def of(data: Data, *, drop: bool) -> "Selection":
        """Leaves out samples of weight zero if that is asked for.

        Args:
            data: All samples.
            drop: Whether samples of weight zero are left out.

        Returns:
            The selection.
        """
        weight = data.weight
        if not np.any(data.allgather(np.asarray([weight is not None]))):
            return Selection(data, None, None, data.num_samples)
        if weight is None:
            weight = np.ones(data.own.stop - data.own.start)
        if drop:
            weight = weight.astype(np.float64)
            data = dataclasses.replace(data, weight=weight)
        is_positive = data.all_weights > 0
        some = None if is_positive.all() else is_positive
        return Selection(data, some, some if drop else None, int(is_positive.sum()))

    def select(self, data: Data) -> tuple[Data, dict[str, np.ndarray]]:
        """A stage of a fit that leaves out samples of weight zero.

        Args:
            data: All samples, as they are clustered.

        Returns:
            The data of the fitted samples, and no arrays.
        """
        if self.is_fitted is None:
            return data, {}
        own, weight = self.is_fitted[self.data.own], self.data.weight
        assert weight is not None
        return dataclasses.replace(data, samples=data.samples[own], weight=weight[own]), {}

    def groups(
        self, num_clusters: int, noun: str, assignments: Any
    ) -> Int[np.ndarray, " m"] | None:
        """Checks assignments that a fit is to start from.

        Args:
            num_clusters: K.
            noun: What a sample is called in error messages.
            assignments: A cluster for each of this process's samples, or None.

        Returns:
            A cluster for each fitted sample of all processes; None for None.

        Raises:
            ValueError: If the assignments are invalid.
        """
        if assignments is None:
            return None
        groups = self.data.allgather(np.asarray(assignments))
        groups = _validation.groups(groups, self.data.num_samples, num_clusters, noun)
        if self.is_fitted is None:
            return groups
        groups = groups[self.is_fitted]
        return _validation.groups(groups, len(groups), num_clusters, f"{noun} of positive weight")

    def completed(
        self,
        outcome: Outcome,
        assign: Callable[[Outcome, Data], Assignment],
        nonconformity: Callable[[Outcome], np.ndarray],
    ) -> Outcome:
        """Completes the outcome of a fit by assigning the samples that it left out.

        Args:
            outcome: The outcome for the fitted samples.
            assign: Assigns new samples, given an outcome.
            nonconformity: Computes that of the fitted samples, given an outcome.

        Returns:
            The same outcome with an assignment of all samples, in their order. If some weights are
            zero, its extras mark the samples with a positive weight.
        """
        if self.is_positive is not None:
            extras = {**outcome.extras, IS_POSITIVE: self.is_positive.astype(np.int32)}
            outcome = dataclasses.replace(outcome, extras=extras)
        if self.is_fitted is None:
            return outcome
        others = np.flatnonzero(~self.is_fitted[self.data.own])
        # A process with nothing left to assign still assigns one sample, to get arrays of the right
        # kinds.
        asked = others if others.size else np.zeros(1, np.int64)
        rest = assign(outcome, self.data.local(asked, outcome.chunk_size))
        rest = self.data.allgather(jax.tree.map(lambda part: part[: others.size], rest))
        fitted = np.flatnonzero(self.is_fitted)
        order = np.argsort(np.concatenate([fitted, np.flatnonzero(~self.is_fitted)]))
        own = outcome.assignment
        if rest.nonconformity is not None:
            own = dataclasses.replace(own, nonconformity=nonconformity(outcome))
        assignment = jax.tree.map(lambda *parts: np.concatenate(parts)[order], own, rest)
        extras = dict(outcome.extras)
        if "bridges" in extras:
            extras["bridges"] = fitted[extras["bridges"]].astype(extras["bridges"].dtype)
        return dataclasses.replace(outcome, assignment=assignment, extras=extras)
