"""What can be measured: the time that a fit of a few samples takes, and the process's memory."""

import contextlib
import dataclasses
import functools
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from diffclust.estimate.result import StageCost
from diffclust.models import AbstractModel, Result
from diffclust.solvers import Cancelled, Progress


@functools.cache
def _compile_seconds() -> list[float]:
    """The seconds that this process has spent on compiling since the first call, in a list of one.

    JAX keeps its listeners for good, so there is one.
    """
    total = [0.0]

    def add(event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            total[0] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(add)
    return total


@dataclasses.dataclass(frozen=True)
class Interval:
    """The work between two reports of a fit.

    Attributes:
        stage: The stage that the second names; `"seeding"` where the first names it, as seeds are
            drawn after its report; `"setup"` before the first of all and before a seeding, and
            `"end"` for what follows the last.
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
        self.intervals: list[Interval] = []
        self._left, self._until = seconds, until
        self._mark = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), _compile_seconds()[0]

    def _note(self, stage: str, progress: Progress | None) -> Interval:
        before, self._mark = self._mark, self._now()
        wall, cpu, compiling = (now - then for now, then in zip(self._mark, before, strict=True))
        part = min(compiling / wall, 1.0) if wall > 0 else 0.0
        times = (wall * (1 - part), cpu * (1 - part), wall * part, cpu * part)
        self.intervals.append(Interval(stage, progress, *times))
        return self.intervals[-1]

    def __call__(self, progress: Progress) -> None:
        """Records a report.

        Args:
            progress: What the fit reports.
        """
        before = self.intervals[-1].progress if self.intervals else None
        stage = progress.stage
        if before is not None and before.stage == "seeding":
            stage = "seeding"
        elif before is None or stage == "seeding":
            stage = "setup"
        # What it learned stays on the device for as long as somebody holds it.
        last = self._note(stage, dataclasses.replace(progress, learned=None))
        # Where other programs take the processor, the wall clock says little.
        self._left -= min(last.wall, last.cpu)
        # What surrounds a compilation is long, and says nothing of the steps to come.
        stepped = progress.stage != "seeding"
        spent = self._left < 0 and stepped and not last.compiling
        if spent or (self._until is not None and self._until(progress)):
            raise Cancelled("seen enough")

    def end(self) -> None:
        """Records what follows the last report."""
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

    def reports(self, stage: str) -> list[Progress]:
        """The reports of a stage.

        Args:
            stage: Name of the stage.

        Returns:
            The reports, in order.
        """
        return [report for _, report in self.reported(stage)]

    def reported(self, stage: str) -> list[tuple[Interval, Progress]]:
        """The reports of a stage, each with the time before it.

        Args:
            stage: Name of the stage.

        Returns:
            Intervals and reports, in order.
        """
        pairs = ((interval, interval.progress) for interval in self.intervals)
        return [(i, report) for i, report in pairs if report is not None and report.stage == stage]

    def chunks(self, stage: str) -> int:
        """The most chunks, or steps, that a report of a stage speaks of.

        Args:
            stage: Name of the stage.

        Returns:
            Their number; 1 where there was no such stage.
        """
        return max((report.total for report in self.reports(stage)), default=1)

    def cost(self, stage: str, *, robust: bool = False) -> StageCost:
        """Computes what a stage took.

        Args:
            stage: The stage.
            robust: Whether its intervals are alike, so that the median of those in which nothing
                was compiled stands for all: what surrounds a compilation is no part of it, and
                does not come again either.

        Returns:
            The cost; zero where there was no such stage.
        """
        here = self.of(stage)
        if robust and any(not interval.compiling for interval in here):
            return median_cost(stage, here).scaled(len(here))
        return StageCost.of(stage, math.fsum(i.wall for i in here), math.fsum(i.cpu for i in here))

    def compiling(self, *stages: str) -> StageCost:
        """Computes what compiling the programs of some stages took.

        Args:
            stages: Names of stages.

        Returns:
            The cost.
        """
        here = self.of(*stages)
        wall, cpu = (i.compiling for i in here), (i.compiling_cpu for i in here)
        return StageCost.of("compiling", math.fsum(wall), math.fsum(cpu))


def median_cost(stage: str, intervals: Sequence[Interval]) -> StageCost:
    """Computes what one of several similar intervals takes.

    Args:
        stage: Name of the stage.
        intervals: At least one; those in which something was compiled count where all are such.

    Returns:
        The medians of wall-clock and processor seconds.
    """
    clean = [interval for interval in intervals if not interval.compiling] or intervals
    walls, cpus = [interval.wall for interval in clean], [interval.cpu for interval in clean]
    return StageCost.of(stage, statistics.median(walls), statistics.median(cpus))


def rehearse(
    model: AbstractModel,
    samples: Any,
    *,
    seconds: float,
    until: Callable[[Progress], bool] | None = None,
    **arguments: Any,
) -> Rehearsal:
    """Fits a model and watches.

    Args:
        model: The model.
        samples: What is fitted.
        seconds: The fit is ended after so many, compiling left out.
        until: The fit is ended where it is true of a report, or None.
        **arguments: Others of `model.fit`, such as `key` and `chunk_size`.

    Returns:
        What was seen.
    """
    watch, result = Watch(seconds=seconds, until=until), None
    with contextlib.suppress(Cancelled):
        result = model.fit(samples, callback=watch, **arguments)
        watch.end()
    return Rehearsal(tuple(watch.intervals), result)


def held_bytes() -> int:
    """Memory that this process holds now; where nobody knows, the most that it ever held."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return peak_bytes()


def peak_bytes() -> int:
    """The most memory that this process ever held; 0 where nobody knows."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    # The unit is bytes on macOS, KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_limit() -> int | None:
    """Memory of the accelerator that JAX may use; None on a CPU, or where nobody knows."""
    stats = jax.devices()[0].memory_stats()
    return None if not stats else stats.get("bytes_limit")


def working_bytes() -> int:
    """Working memory of the hungriest program that is loaded: temporary arrays and results."""
    programs = jax.devices()[0].client.live_executables()
    stats = [program.get_compiled_memory_stats() for program in programs]
    return max((s.temp_size_in_bytes + s.output_size_in_bytes for s in stats), default=0)
