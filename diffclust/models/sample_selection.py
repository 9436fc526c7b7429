"""Samples of weight zero: some methods leave them out of a fit, and assign them when it is done."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from diffclust import _validation
from diffclust.parallel import Data, own_mesh
from diffclust.parallel.processes import allgather_rows
from diffclust.solvers import Assignment, Outcome

_FIELDS = tuple(field.name for field in dataclasses.fields(Assignment))


@dataclasses.dataclass(frozen=True)
class Selection:
    """The samples that a fit is given.

    Attributes:
        every: All samples.
        data: Those that are fitted.
        kept: Whether each sample of all processes is fitted; None where all are.
        num_positive: How many samples have a positive weight.
    """

    every: Data
    data: Data
    kept: Bool[np.ndarray, " n"] | None
    num_positive: int

    @staticmethod
    def of(every: Data, *, drop: bool) -> "Selection":
        """Leaves out samples of weight zero where that is asked for.

        Args:
            every: All samples.
            drop: Whether samples of weight zero are left out.

        Returns:
            The selection.
        """
        weight, mesh = every.weight, every.mesh
        if not np.any(allgather_rows(np.asarray([weight is not None]), mesh)):
            return Selection(every, every, None, every.num_samples)
        if weight is None:
            weight = np.ones(every.own.stop - every.own.start)
        if drop:
            weight = weight.astype(np.float64)
            every = dataclasses.replace(every, weight=weight)
        kept = every.all_weights > 0
        if not drop or kept.all():
            return Selection(every, every, None, int(kept.sum()))
        own = weight > 0
        data = dataclasses.replace(every, samples=every.samples[own], weight=weight[own])
        return Selection(every, data, kept, int(kept.sum()))

    def groups(
        self, num_clusters: int, noun: str, assignments: Any
    ) -> Int[np.ndarray, " m"] | None:
        """Assignments that a fit is to start from, checked.

        Args:
            num_clusters: K.
            noun: What a sample is called in messages.
            assignments: A cluster for each of this process's samples, or None.

        Returns:
            A cluster for each sample that is fitted, of all processes; None for None.

        Raises:
            ValueError: If they are not what they should be.
        """
        if assignments is None:
            return None
        every = allgather_rows(np.asarray(assignments), self.every.mesh)
        groups = _validation.groups(every, self.every.num_samples, num_clusters, noun)
        if self.kept is None:
            return groups
        groups = groups[self.kept]
        return _validation.groups(groups, len(groups), num_clusters, f"{noun} of positive weight")

    def completed(self, outcome: Outcome, assign: Callable[[Outcome, Data], Assignment]) -> Outcome:
        """The outcome of a fit, with the samples assigned that it left out.

        Args:
            outcome: The outcome for the samples that were fitted.
            assign: Assigns new samples by an outcome.

        Returns:
            The same with an assignment of all samples, in their order.
        """
        if self.kept is None:
            return outcome
        mesh, own = self.every.mesh, self.every.own
        others = np.flatnonzero(~self.kept[own])
        # A process in which all are fitted assigns one in vain, for arrays of the right kinds.
        asked = others if others.size else np.zeros(1, np.int64)
        part = Data(self.every.samples[asked], None, outcome.chunk_size, own_mesh(mesh))
        rest = assign(outcome, part)
        parts = allgather_rows([getattr(rest, name)[: others.size] for name in _FIELDS], mesh)
        fitted = np.flatnonzero(self.kept)
        order = np.argsort(np.concatenate([fitted, np.flatnonzero(~self.kept)]))
        fields = (
            np.concatenate([getattr(outcome.assignment, name), part])[order]
            for name, part in zip(_FIELDS, parts, strict=True)
        )
        extras = dict(outcome.extras)
        if "bridges" in extras:
            extras["bridges"] = fitted[extras["bridges"]].astype(extras["bridges"].dtype)
        return dataclasses.replace(outcome, assignment=Assignment(*fields), extras=extras)
