"""A fit of a few samples, watched: how long its parts take, apart from compiling them."""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from diffclust.estimate.result import StageCost
from diffclust.models import AbstractModel, Result
from diffclust.solvers import Cancelled, Progress
from diffclust.types import Key


class _Compiling:
    """Seconds that this process has spent on tracing, lowering and compiling programs."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._listens = False

    def listen(self) -> None:
        """Starts to count; JAX keeps its listeners for good, so there is one."""
        if not self._listens:
            jax.monitoring.register_event_duration_secs_listener(self._count)
            self._listens = True

    def _count(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self.seconds += duration_secs


_compiling = _Compiling()


@dataclasses.dataclass(frozen=True)
class Interval:
    """What went on between two reports of a fit.

    Attributes:
        stage: The stage that the second tells of; `"seeding"` where the first told of it, which is
            done before; `"begin"` before the first of all and before a seeding, and `"end"` for
            what follows the last.
        progress: The second report; None at the end.
        wall: Seconds on the wall clock, compiling left out.
        cpu: Seconds of all cores together, compiling left out.
        compiling: Seconds on the wall clock that were spent on it.
        compiling_cpu: Seconds of all cores that were spent on it.
    """

    stage: str
    progress: Progress | None
    wall: float
    cpu: float
    compiling: float
    compiling_cpu: float


class Watch:
    """A callback that notes the time of each report, and ends the fit when it has seen enough."""

    def __init__(self, *, seconds: float, until: Callable[[Progress], bool] | None = None) -> None:
        """Starts the clock.

        Args:
            seconds: After so many, compiling left out, the fit is ended, but not before a report
                that nothing was compiled for.
            until: The fit is ended where it is true of a report; None for never.
        """
        _compiling.listen()
        self.intervals: list[Interval] = []
        self._left, self._until = seconds, until
        self._mark = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), _compiling.seconds

    def _note(self, stage: str, progress: Progress | None) -> None:
        before, self._mark = self._mark, self._now()
        wall, cpu, compiling = (now - then for now, then in zip(self._mark, before, strict=True))
        part = min(compiling / wall, 1.0) if wall > 0 else 0.0
        self.intervals.append(
            Interval(stage, progress, wall * (1 - part), cpu * (1 - part), wall * part, cpu * part)
        )

    def __call__(self, progress: Progress) -> None:
        """Notes a report.

        Args:
            progress: What the fit tells.
        """
        # What it learned stays on the device for as long as somebody holds it.
        bare = dataclasses.replace(progress, learned=None)
        before = self.intervals[-1].progress if self.intervals else None
        stage = progress.stage
        if before is not None and before.stage == "seeding":
            stage = "seeding"
        elif before is None or stage == "seeding":
            stage = "begin"
        self._note(stage, bare)
        last = self.intervals[-1]
        # Where other programs take the processor, the wall clock says little.
        self._left -= min(last.wall, last.cpu)
        # What surrounds a compilation is long, and says nothing of the steps to come.
        spent = self._left < 0 and not last.compiling
        if spent or (self._until is not None and self._until(progress)):
            raise Cancelled("seen enough")

    def end(self) -> None:
        """Notes what follows the last report."""
        self._note("end", None)


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """A fit that was watched.

    Attributes:
        intervals: What it spent its time on.
        result: What came of it; None where it was ended.
    """

    intervals: Sequence[Interval]
    result: Result | None

    def of(self, *stages: str) -> list[Interval]:
        """The intervals of some stages.

        Args:
            stages: Names of stages.

        Returns:
            Their intervals, in order.
        """
        return [interval for interval in self.intervals if interval.stage in stages]

    def cost(self, stage: str, *, typical: bool = False) -> StageCost:
        """What a stage took.

        Args:
            stage: The stage.
            typical: Whether its intervals are alike, so that one in which something was compiled
                is taken for the median of the others.

        Returns:
            The cost; zero where there was no such stage.
        """
        here = self.of(stage)
        wall, cpu = [i.wall for i in here], [i.cpu for i in here]
        clean = [i for i in here if not i.compiling] if typical else []
        if clean:
            # What surrounds a compilation is no part of it, and does not come again either.
            middle = [
                statistics.median(getattr(i, name) for i in clean) for name in ("wall", "cpu")
            ]
            wall = [i.wall if not i.compiling else middle[0] for i in here]
            cpu = [i.cpu if not i.compiling else middle[1] for i in here]
        total = math.fsum(wall)
        return StageCost(stage, total, math.fsum(cpu), total, total)

    def compiling(self, *stages: str) -> StageCost:
        """What compiling the programs of some stages took.

        Args:
            stages: Names of stages.

        Returns:
            The cost.
        """
        here = self.of(*stages)
        seconds = math.fsum(interval.compiling for interval in here)
        cpu = math.fsum(interval.compiling_cpu for interval in here)
        return StageCost("compiling", seconds, cpu, seconds, seconds)


def rehearse(
    model: AbstractModel,
    samples: Any,
    *,
    key: Key,
    chunk_size: int | None,
    seconds: float,
    until: Callable[[Progress], bool] | None = None,
) -> Rehearsal:
    """Fits a model and watches.

    Args:
        model: The model.
        samples: What is fitted.
        key: Random key.
        chunk_size: Samples a chunk, or None for the model's own choice.
        seconds: The fit is ended after so many, compiling left out.
        until: The fit is ended where it is true of a report, or None.

    Returns:
        What was seen.
    """
    watch, result = Watch(seconds=seconds, until=until), None
    try:
        result = model.fit(samples, key=key, chunk_size=chunk_size, callback=watch)
        watch.end()
    except Cancelled:
        pass
    return Rehearsal(tuple(watch.intervals), result)


def some_of(samples: Any, count: int, key: Key) -> np.ndarray:
    """Samples drawn at random, in their order.

    Args:
        samples: Samples with a leading axis: an array, or a source that reads them.
        count: How many.
        key: Random key.

    Returns:
        The samples; all of them where there are not more.
    """
    if count >= len(samples):
        return np.asarray(samples[:])
    seed = int(jax.random.randint(key, (), 0, 2**30))
    chosen = np.random.default_rng(seed).choice(len(samples), count, replace=False)
    return np.asarray(samples[np.sort(chosen)])
