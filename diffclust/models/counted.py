"""Samples of weight zero: a fit leaves them out, and assigns them when it is done."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int

from diffclust import _validation
from diffclust.parallel import own_mesh
from diffclust.processes import joined_rows, row_counts, together
from diffclust.solvers import Assignment, Callback, Outcome

_FIELDS = tuple(field.name for field in dataclasses.fields(Assignment))


@dataclasses.dataclass(frozen=True)
class Counted:
    """Which samples count, and how much.

    Attributes:
        total: Samples of all processes.
        weight: Weights of the samples that count, those of all processes; None for ones.
        own: Whether each of this process's samples counts; None where all do.
        every: Whether each sample of all processes does; None likewise.
        mesh: Devices that share the samples, or None for one.
    """

    total: int
    weight: Float[np.ndarray, " counted"] | None
    own: Bool[np.ndarray, " own"] | None
    every: Bool[np.ndarray, " n"] | None
    mesh: Mesh | None

    @property
    def relative(self) -> Float[np.ndarray, " counted"] | None:
        """The weights divided by their mean."""
        return None if self.weight is None else self.weight / self.weight.mean()

    def of(self, samples: np.ndarray) -> np.ndarray:
        """Those of this process's samples that count.

        Args:
            samples: This process's samples.

        Returns:
            The samples themselves where all count.
        """
        return samples if self.own is None else samples[self.own]

    def groups(self, assignments: Any, num_clusters: int, what: str) -> Int[np.ndarray, " counted"]:
        """Assignments that a fit is to start from, checked.

        Args:
            assignments: A cluster for each of this process's samples.
            num_clusters: K.
            what: What a sample is called in messages.

        Returns:
            A cluster for each sample that counts, of all processes.

        Raises:
            ValueError: If they are not what they should be.
        """
        every = joined_rows(np.asarray(assignments), self.mesh)
        groups = _validation.groups(every, self.total, num_clusters, what)
        if self.every is None:
            return groups
        groups = groups[self.every]
        return _validation.groups(groups, len(groups), num_clusters, f"{what} of positive weight")

    def places(self, index: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Where samples that count lie among all.

        Args:
            index: Indices among those that count, of all processes.

        Returns:
            Indices of the same type.
        """
        if self.every is None:
            return index
        return np.flatnonzero(self.every)[index].astype(index.dtype)

    def completed(
        self,
        outcome: Outcome,
        samples: np.ndarray,
        assign: Callable[..., Assignment],
        callback: Callback,
    ) -> Outcome:
        """What a fit found, with the samples assigned that it left out.

        Args:
            outcome: What it found of the samples that count.
            samples: This process's samples.
            assign: The model's `assign`, to which those left out are new.
            callback: Told of every chunk.

        Returns:
            The same with an assignment of all samples, in their order.
        """
        if self.own is None or self.every is None:
            return outcome
        others = np.flatnonzero(~self.own)
        # A process in which all count assigns one in vain, for arrays of the right kinds.
        asked = others if others.size else np.zeros(1, np.int64)
        rest = assign(outcome, samples[asked], callback=callback, mesh=own_mesh(self.mesh))
        parts = joined_rows([getattr(rest, name)[: others.size] for name in _FIELDS], self.mesh)
        order = np.argsort(
            np.concatenate([np.flatnonzero(self.every), np.flatnonzero(~self.every)])
        )
        every = (
            np.concatenate([getattr(outcome.assignment, name), part])[order]
            for name, part in zip(_FIELDS, parts, strict=True)
        )
        return dataclasses.replace(outcome, assignment=Assignment(*every))


def counted_samples(
    sample_weight: Any, samples: np.ndarray, num_clusters: int, what: str, mesh: Mesh | None
) -> Counted:
    """Which samples count, checked.

    Args:
        sample_weight: Weights of this process's samples, or None.
        samples: These samples.
        num_clusters: K.
        what: What a sample is called in messages.
        mesh: Devices that share the samples, or None for one.

    Returns:
        Which ones, and how much.

    Raises:
        ValueError: If weights are not what they should be, or samples fewer than clusters.
    """
    count = len(samples)
    with together(mesh):
        weight = _validation.weights(sample_weight, count, what=what)
    total = sum(row_counts(count, mesh))
    _validation.cluster_count(num_clusters, total, f"{what}s")
    if not np.any(joined_rows(np.asarray([weight is not None]), mesh)):
        return Counted(total, None, None, None, mesh)
    own = np.ones(count) if weight is None else weight.astype(np.float64)
    every = joined_rows(own, mesh)
    positive = every > 0
    _validation.cluster_count(num_clusters, int(positive.sum()), f"{what}s of positive weight")
    if positive.all():
        return Counted(total, every, None, None, mesh)
    return Counted(total, every[positive], own > 0, positive, mesh)
