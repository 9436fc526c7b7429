"""What a fit tells its caller while it runs, and how it ends."""

import dataclasses
import enum
from collections.abc import Callable


class Status(enum.Enum):
    """Why a fit stopped.

    Attributes:
        ASSIGNMENTS: No sample changed its cluster.
        LOSS: The loss fell by less than the tolerance.
        MAX_PASSES: The limit on passes was reached first.
        SOLVED: There was nothing to repeat: a direct solution.
    """

    ASSIGNMENTS = "assignments"
    LOSS = "loss"
    MAX_PASSES = "max_passes"
    SOLVED = "solved"


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """One report of a running fit.

    Attributes:
        stage: What is being done: `"seeding"`, `"pass"`, `"split"`, `"refine"` or `"predict"`; of
            staged methods `"features"`, `"directions"`, `"neighbours"`, `"pairs"`, `"cut"` and
            `"portraits"`.
        restart: Number of the restart, from 0.
        iteration: Number of the pass within the restart, from 0.
        done: Chunks done in it.
        total: Chunks there are.
        loss: The last whole pass's loss, or None before the first.
        least: The least loss of the restarts done, or None.
    """

    stage: str
    restart: int
    iteration: int
    done: int
    total: int
    loss: float | None = None
    least: float | None = None


Callback = Callable[[Progress], None]
"""Called after every chunk; raise an exception in it to stop the fit."""


class FitError(RuntimeError):
    """A fit that cannot go on: names the pass and the cause."""


def ignore(progress: Progress) -> None:
    """The callback that does nothing.

    Args:
        progress: Not used.
    """
    del progress
