"""Where a fit by Lloyd's algorithm stands: what it takes to go on, and how it is written down."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import PyTree

from diffclust.parallel import replicate
from diffclust.prototypes import Clusters
from diffclust.solvers.base import Memory
from diffclust.solvers.chunks import Chunks
from diffclust.solvers.lloyd import Lloyd, LloydState
from diffclust.solvers.progress import Snapshots, Status
from diffclust.solvers.run import Going, Report, Run, Stopping, run_lloyd


@dataclasses.dataclass(frozen=True)
class Split:
    """What a trial split of a cluster found.

    Attributes:
        gain: By how much two prototypes lower the loss.
        children: The two.
    """

    gain: float
    children: Clusters


@dataclasses.dataclass(frozen=True)
class Trying:
    """A run, and where the attempts to better it stand.

    Attributes:
        run: The run.
        round: How many rounds are done: moves accepted, or weights learned.
        going: The attempt that goes on, or None between two.
        attempt: Number of the proposed move that it tries, or that is next.
        splits: The trial splits that stand; None for a cluster too small to be split.
        rng: State of the generator that draws their samples; None where nothing is drawn.
    """

    run: Run
    round: int = 0
    going: Going | None = None
    attempt: int = 0
    splits: Mapping[int, Split | None] = dataclasses.field(default_factory=dict)
    rng: dict[str, Any] | None = None


KeepTrying = Callable[[Trying], None]
"""Called with where the attempts stand whenever one has got on."""


def attempt(
    solver: Lloyd,
    chunks: Chunks,
    at: Trying,
    going: Going,
    stopping: Stopping,
    *,
    report: Report | None = None,
    keep: KeepTrying | None = None,
) -> Run:
    """An attempt to better a run, from its beginning or where it was broken off.

    Args:
        solver: The solver.
        chunks: The data.
        at: Where the attempts stand.
        going: Where this one stands.
        stopping: When it stops.
        report: Called after every chunk, or None.
        keep: Called after every pass but the last, or None.

    Returns:
        The run that was tried.
    """

    def note(going: Going) -> None:
        if keep is not None:
            keep(dataclasses.replace(at, going=going))

    start = (going.state, going.memory, stopping)
    return run_lloyd(solver, chunks, *start, history=going.history, report=report, keep=note)


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a fit stands.

    Attributes:
        stage: `"restarts"`, `"weights"` (the penalty weights are learned) or `"refine"` (the best
            run is finished on the samples themselves).
        restart: How many restarts are done.
        losses: Their final losses.
        best: The best of them; None as soon as the stage does not need it.
        going: The run of this restart, or of the refinement, or None before and after it.
        trying: Where its moves stand, or the learning of weights; None before.
        seconds: How long all that took.
    """

    stage: Literal["restarts", "weights", "refine"] = "restarts"
    restart: int = 0
    losses: tuple[float, ...] = ()
    best: Run | None = None
    going: Going | None = None
    trying: Trying | None = None
    seconds: float = 0.0

    @property
    def least(self) -> float | None:
        """The least loss of the restarts that are done."""
        return min(self.losses, default=None)


@dataclasses.dataclass(frozen=True)
class Blank:
    """What has the shapes of a fit's arrays.

    Attributes:
        coarse: A state at the resolution of the restarts.
        fine: A state at that of the samples.
        memory: Memory of all samples.
    """

    coarse: LloydState
    fine: LloydState
    memory: Memory


def written(at: Standing, chunks: Chunks) -> tuple[PyTree, dict[str, Any]]:
    """Where a fit stands, as arrays and what JSON can hold.

    The samples' memory is written in their order, so that another number of devices, or other
    chunks, can go on.

    Args:
        at: Where it stands.
        chunks: The data, at either resolution.

    Returns:
        What `Snapshots` save.
    """
    trying, going = at.trying, at.going
    if trying is not None:
        going = trying.going
    arrays = {
        "best": _run_arrays(at.best, chunks),
        "run": _run_arrays(None if trying is None else trying.run, chunks),
        "going": None if going is None else (going.state, chunks.collect(going.memory)),
        "splits": {},
    }
    about: dict[str, Any] = {
        "stage": at.stage,
        "restart": at.restart,
        "losses": list(at.losses),
        "seconds": at.seconds,
        "best": _run_words(at.best),
        "going": None if going is None else list(going.history),
        "trying": None,
    }
    if trying is not None:
        found = {str(k): split for k, split in trying.splits.items() if split is not None}
        arrays["splits"] = {k: split.children for k, split in found.items()}
        about["trying"] = {
            "run": _run_words(trying.run),
            "round": trying.round,
            "attempt": trying.attempt,
            "gains": {k: split.gain for k, split in found.items()},
            "too_small": [k for k, split in trying.splits.items() if split is None],
            "rng": trying.rng,
        }
    return arrays, about


def read(snapshots: Snapshots, chunks: Chunks, blank: Blank) -> Standing:
    """Where a fit stood that was broken off.

    Args:
        snapshots: Where its states are.
        chunks: The data, at either resolution.
        blank: What has the shapes of its arrays.

    Returns:
        Where it stood; the beginning where nothing was saved.
    """
    run = (blank.coarse.learned, blank.coarse.tally, blank.memory)

    def like(about: dict[str, Any]) -> PyTree:
        trying, clusters = about["trying"], blank.coarse.learned.clusters
        state = blank.fine if about["stage"] == "refine" else blank.coarse
        children = jax.tree.map(lambda leaf: leaf[np.zeros(2, int)], clusters)
        return {
            "best": None if about["best"] is None else run,
            "run": None if trying is None else run,
            "going": None if about["going"] is None else (state, blank.memory),
            "splits": {} if trying is None else dict.fromkeys(trying["gains"], children),
        }

    latest = snapshots.latest(like)
    if latest is None:
        return Standing()
    arrays, about = latest
    going, trying = None, None
    if arrays["going"] is not None:
        state, memory = arrays["going"]
        state = replicate(state, chunks.mesh)
        going = Going(state, chunks.spread(memory), tuple(about["going"]))
    if about["trying"] is not None:
        told = about["trying"]
        splits: dict[int, Split | None] = {int(k): None for k in told["too_small"]}
        for k, gain in told["gains"].items():
            splits[int(k)] = Split(gain, replicate(arrays["splits"][k], chunks.mesh))
        trying = Trying(
            _run(arrays["run"], told["run"], chunks),
            int(told["round"]),
            going,
            int(told["attempt"]),
            splits,
            told["rng"],
        )
        going = None
    best = None if about["best"] is None else _run(arrays["best"], about["best"], chunks)
    return Standing(
        about["stage"],
        int(about["restart"]),
        tuple(about["losses"]),
        best,
        going,
        trying,
        float(about["seconds"]),
    )


def _run_arrays(run: Run | None, chunks: Chunks) -> PyTree:
    return None if run is None else (run.learned, run.tally, chunks.collect(run.memory))


def _run_words(run: Run | None) -> dict[str, Any] | None:
    return None if run is None else {"history": list(run.history), "status": run.status.value}


def _run(arrays: PyTree, words: dict[str, Any], chunks: Chunks) -> Run:
    learned, tally, memory = arrays
    # Placed as they were before, so that nothing is compiled twice.
    learned, tally = replicate((learned, tally), chunks.mesh)
    status = Status(words["status"])
    return Run(learned, chunks.spread(memory), tally, tuple(words["history"]), status)
