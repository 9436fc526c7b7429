"""What a fit returns."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from diffclust.prototypes import Learned
from diffclust.solvers.progress import Status


@dataclasses.dataclass(frozen=True, eq=False)
class Assignment:
    """How samples were assigned, prototypes fixed.

    Attributes:
        clusters: Cluster of each sample.
        distances: How far it is from its cluster, by what decided: the penalised invariant
            distance to its prototype, or the distance to a centre in an embedding.
        margins: How much farther the second-best cluster is; infinite with one cluster.
        runners_up: The second-best cluster; -1 with one cluster.
        params: How each sample was aligned to its prototype.
    """

    clusters: Int[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]
    margins: Float[np.ndarray, " n"]
    runners_up: Int[np.ndarray, " n"]
    params: Float[np.ndarray, "n params"]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.clusters)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What a solver found; a model's result adds the model.

    Attributes:
        learned: Prototypes, and what else was learned.
        assignment: The assignment of the samples that were fitted.
        history: The loss after every pass of the best restart, at the finest resolution reached.
        restarts: The final loss of every restart, in the order they ran.
        status: Why the best one stopped.
        chunk_size: Samples a chunk: sums, and so the last digits, depend on it.
        seconds: Wall-clock time of the fit.
        extras: Whatever else the model needs to assign new samples, or tells of the fit, by name.
        figures: Numbers that the method has to tell beside the loss, by name.
    """

    learned: Learned
    assignment: Assignment
    history: tuple[float, ...]
    restarts: tuple[float, ...]
    status: Status
    chunk_size: int
    seconds: float = 0.0
    extras: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    figures: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def loss(self) -> float:
        """What was made small: the penalised distortion (Eq. 2) summed over samples, or a cut."""
        return self.history[-1]

    @property
    def num_passes(self) -> int:
        """Passes of the best restart."""
        return len(self.history)

    def summary(self) -> dict[str, Any]:
        """The figures of the fit, in types that JSON can hold."""
        return {
            "n": len(self.assignment),
            "k": len(self.learned.clusters),
            "loss": self.loss,
            "iterations": self.num_passes,
            "status": self.status.value,
            "restarts": list(self.restarts),
            "chunk_size": self.chunk_size,
            "seconds": self.seconds,
            **self.figures,
        }
