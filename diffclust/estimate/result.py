"""What a fit is expected to take."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class StageCost:
    """The expected cost of one stage of a fit.

    Attributes:
        name: The stage, as `Progress` names it, or `"compiling"`.
        seconds: Wall-clock time.
        cpu_seconds: Time of all processor cores together.
        least: Wall-clock time at least.
        most: Wall-clock time at most.
    """

    name: str
    seconds: float
    cpu_seconds: float
    least: float
    most: float

    @classmethod
    def of(cls, name: str, seconds: float, cpu_seconds: float) -> "StageCost":
        """The cost of a stage that takes so long, no less and no more.

        Args:
            name: The stage.
            seconds: Wall-clock time.
            cpu_seconds: Time of all processor cores together.

        Returns:
            The cost.
        """
        return cls(name, seconds, cpu_seconds, seconds, seconds)

    def scaled(self, factor: float | int, *, least: float = 1.0, most: float = 1.0) -> "StageCost":
        """The same stage with its counts and seconds multiplied.

        Args:
            factor: How many times.
            least: How much less it may be, as a fraction of that.
            most: How much more, as a multiple of that.

        Returns:
            The cost, its range widened.
        """
        seconds, cpu_seconds = self.seconds * factor, self.cpu_seconds * factor
        ends = self.least * factor * least, self.most * factor * most
        return StageCost(self.name, seconds, cpu_seconds, *ends)


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The expected cost of a fit that starts now, in this process.

    Attributes:
        stages: The stages, in the order in which they come.
        host_bytes: The most memory that the process will hold, all that it holds now included; on
            a CPU the arrays of JAX too.
        device_bytes: The most memory on an accelerator; None where there is none.
        host_limit: Bytes of memory that the process may have; None where nobody knows.
        device_limit: Bytes of memory on the accelerator; None where nobody knows.
    """

    stages: tuple[StageCost, ...]
    host_bytes: int
    device_bytes: int | None = None
    host_limit: int | None = None
    device_limit: int | None = None

    @property
    def seconds(self) -> float:
        """Wall-clock time of the whole fit."""
        return math.fsum(stage.seconds for stage in self.stages)

    @property
    def cpu_seconds(self) -> float:
        """Time of all processor cores together."""
        return math.fsum(stage.cpu_seconds for stage in self.stages)

    @property
    def least(self) -> float:
        """Wall-clock time at least: fewer passes come to rest than usual."""
        return math.fsum(stage.least for stage in self.stages)

    @property
    def most(self) -> float:
        """Wall-clock time at most: more passes, up to the limit that was set."""
        return math.fsum(stage.most for stage in self.stages)

    @property
    def shortage(self) -> str | None:
        """Names the memory that would not suffice; None where it does, or nobody knows."""
        for name, needed, limit in self._memories():
            if needed > limit:
                return (
                    f"the fit needs about {_gigabytes(needed)} of {name}, and there are "
                    f"{_gigabytes(limit)}"
                )
        return None

    @property
    def is_hopeless(self) -> bool:
        """Whether more than twice the memory is needed that there is."""
        return any(needed > 2 * limit for _, needed, limit in self._memories())

    def _memories(self) -> list[tuple[str, int, int]]:
        """Name, bytes needed and bytes there, where both are known."""
        host, device = (self.host_bytes, self.host_limit), (self.device_bytes, self.device_limit)
        both = (("memory", *host), ("memory on the device", *device))
        return [(name, n, limit) for name, n, limit in both if n is not None and limit is not None]

    def describe(self) -> str:
        """The estimate in one line.

        Returns:
            For example `about 12 min (8 to 20 min), 1.4 GB of memory`.
        """
        span = f"about {_duration(self.seconds)}"
        if self.most > 1.3 * max(self.least, 1.0):
            span += f" ({_duration(self.least)} to {_duration(self.most)})"
        memory = f"{_gigabytes(self.host_bytes)} of memory"
        if self.device_bytes is not None:
            memory += f", {_gigabytes(self.device_bytes)} on the device"
        return f"{span}, {memory}"


def _duration(seconds: float) -> str:
    """A time with two digits or so, in the unit in which people say it."""
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.3g} h" if hours < 100 else f"{hours:.0f} h"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.2g} GB" if count < 99.5e9 else f"{count / 1e9:.0f} GB"
