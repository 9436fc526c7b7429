"""What a fit reports while it runs, how it ends, and what it returns."""

import dataclasses
import enum
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int, PyTree

from diffclust.prototypes import Learned

_ROUNDING = 1e-5


class Status(enum.Enum):
    """Why a fit stopped.

    Attributes:
        ASSIGNMENTS: No sample changed its cluster.
        LOSS: The loss fell by less than the tolerance.
        ROSE: The loss rose, which happens if the prototype family does not minimise the distance;
            the pass before is kept.
        MAX_PASSES: The limit on passes was reached first.
        SOLVED: The solution was direct, without iterations.
        PREDICTED: Nothing was fitted: samples were assigned to the clusters of a model.
    """

    ASSIGNMENTS = "assignments"
    LOSS = "loss"
    ROSE = "rose"
    MAX_PASSES = "max_passes"
    SOLVED = "solved"
    PREDICTED = "predicted"


def best_restart(losses: Sequence[float]) -> int:
    """The restart that is kept: the one with the lowest loss, and of equal ones the first.

    Losses count as equal up to rounding, which depends on chunks and devices and should not decide.

    Args:
        losses: The loss of each restart.

    Returns:
        Its index.
    """
    best = 0
    for number, loss in enumerate(losses):
        if loss < losses[best] and not math.isclose(loss, losses[best], rel_tol=_ROUNDING):
            best = number
    return best


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """One report of a running fit.

    Attributes:
        stage: What is being done: `"seeding"`, `"pass"`, `"split"`, `"refine"` or `"predict"`; for
            fits by gradient steps `"step"`, and `"race"` while several runs race; for staged
            methods `"features"`, `"directions"`, `"neighbours"`, `"pairs"`, `"cut"` and
            `"alignments"`. `"refine"` is everything that continues from the best restart, including
            the learning of penalties.
        restart: Index of the restart, from 0.
        iteration: Index of the pass within the restart, or of a curriculum's phase, from 0.
        done: Chunks done in the pass, or total steps done.
        total: Total number of chunks, or maximum number of steps.
        loss: The last whole pass's loss, or None before the first; for gradient steps, the mean
            loss per sample in the last window.
        least: The lowest loss of the finished restarts, or None.
        sizes: Each cluster's share of the samples, or None if unknown.
        samples: Number of samples seen in this run, or None if they are seen once per pass.
        learned: The learned arrays that the pass or window uses, including prototypes. They are on
            the device and must be read at once. None in other stages.
        stages: For staged methods, the names of all stages of the fit, in order.
        stages_done: Number of finished stages.
    """

    stage: str
    restart: int
    iteration: int
    done: int
    total: int
    loss: float | None = None
    least: float | None = None
    sizes: tuple[float, ...] | None = None
    samples: int | None = None
    learned: Learned | None = None
    stages: tuple[str, ...] = ()
    stages_done: int = 0


@runtime_checkable
class Snapshots(Protocol):
    """A store of a long fit's states."""

    def save(self, state: Callable[[], tuple[PyTree, dict[str, Any]]]) -> None:
        """Saves a state, or keeps it for later if the last saved state is recent enough.

        Args:
            state: Returns the state, now or later: a tree of arrays, and metadata that JSON can
                hold and that determine the arrays' shapes. It must keep returning the same.
        """

    def latest(
        self, like: Callable[[dict[str, Any]], PyTree]
    ) -> tuple[PyTree, dict[str, Any]] | None:
        """The state that was last saved.

        Args:
            like: Makes arrays of the right shapes from the metadata; NumPy arrays are restored as
                NumPy arrays.

        Returns:
            The arrays and the metadata; None if nothing was saved.
        """

    def last(self) -> str | None:
        """Describes the last good state in words; None if nothing was saved."""


@runtime_checkable
class Callback(Protocol):
    """Listens to a fit, and may end it; any function that takes a `Progress` will do."""

    def __call__(self, progress: Progress, /) -> None:
        """Called after every chunk or window of steps, in the thread of the fit.

        Args:
            progress: The progress of the fit, with its loss and what it has learned so far.

        Raises:
            Cancelled: To end the fit. Any other exception also ends it, and is raised by `fit`
                unchanged.
        """


class Cancelled(Exception):
    """A callback has ended the fit early; `fit` re-raises it and returns nothing.

    Nothing is left half done. If `snapshots` are given, the last whole state is saved when they are
    closed, and the same call of `fit` continues from it. (If several processes share the fit, this
    is the last state that was due to be saved.)
    """


class FitError(RuntimeError):
    """A fit that cannot continue; the message names the pass and the cause."""


def ignore(progress: Progress) -> None:
    """The callback that does nothing.

    Args:
        progress: Not used.
    """
    del progress


class Assignment(eqx.Module):
    """The assignment of samples to fixed prototypes.

    Attributes:
        clusters: Cluster of each sample.
        distances: Distance of each sample to its cluster, as used for the assignment: the penalised
            invariant distance to its prototype, or the distance to a centre in an embedding.
        margins: How much farther the second-best cluster is; infinite with one cluster.
        runners_up: The second-best cluster; -1 with one cluster.
        params: How each sample was aligned to its prototype.
        nonconformity: How poorly each sample conforms to the fitted ones; None if this is the
            distance.
    """

    clusters: Int[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]
    margins: Float[np.ndarray, " n"]
    runners_up: Int[np.ndarray, " n"]
    params: Float[np.ndarray, "n params"]
    nonconformity: Float[np.ndarray, " n"] | None = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.clusters)


class Outcome(eqx.Module):
    """The result of a solver, as a pytree; a model's result adds the model.

    Attributes:
        learned: Prototypes, and everything else that was learned.
        assignment: The assignment of the fitted samples.
        history: The loss after every pass of the best restart, at the finest resolution reached.
        restarts: The final loss of every restart, in the order they ran.
        status: Why the best restart stopped.
        chunk_size: Samples per chunk, which affects the last digits of sums.
        seconds: Wall-clock time of the fit.
        extras: What else the model needs to assign new samples, or reports about the fit, by name.
        figures: Numbers that the method reports in addition to the loss, by name.
    """

    learned: Learned
    assignment: Assignment
    history: tuple[float, ...]
    restarts: tuple[float, ...]
    status: Status = eqx.field(static=True)
    chunk_size: int = eqx.field(static=True)
    seconds: float = 0.0
    extras: Mapping[str, np.ndarray] = eqx.field(default_factory=dict)
    figures: Mapping[str, float] = eqx.field(default_factory=dict)

    @property
    def loss(self) -> float:
        """The loss: the penalised distortion (Eq. 2) summed over samples, or a cut."""
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


def warn_if_risen(outcome: Outcome) -> None:
    """Warns, at the line that called `fit`, if a fit stopped because the loss had risen.

    Args:
        outcome: The outcome of the fit.
    """
    if outcome.status is Status.ROSE:
        warnings.warn(
            "the loss rose, so that the fit stopped at the pass before: a prototype family must "
            "minimise the distance, and an aligner keep each sample's incumbent (`check_family` "
            "and `check_aligner` of diffclust.testing test it)",
            stacklevel=5,
        )
