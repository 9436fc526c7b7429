"""What `diffclust fit` may be told of several processes, in types that need no JAX."""

import dataclasses
from typing import Annotated

from tyro.conf import arg

from diffclust.cli.option_types import Flag


@dataclasses.dataclass(frozen=True)
class ProcessOptions:
    """One fit by several processes, on one machine or many.

    Attributes:
        processes: How many processes fit together; give the same command to each.
        process_id: The number of this one, from 0.
        coordinator: Where process 0 can be reached by the others, such as 10.0.0.1:1234.
        distributed: Fit with the other processes that the scheduler has started (SLURM, Open MPI
            and others that JAX knows), in place of these three.
        process_timeout: Seconds after which processes end where one of them is not heard of.
    """

    processes: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    process_id: Annotated[int | None, arg(metavar="I", help_behavior_hint="")] = None
    coordinator: Annotated[str | None, arg(metavar="HOST:PORT", help_behavior_hint="")] = None
    distributed: Flag = False
    process_timeout: Annotated[int, arg(metavar="SECONDS")] = 100

    @property
    def several(self) -> bool:
        """Whether several processes were asked for."""
        given = (self.processes, self.process_id, self.coordinator)
        return self.distributed or any(value is not None for value in given)

    def check(self) -> None:
        """Refuses what does not go together.

        Raises:
            ValueError: With what is missing.
        """
        given = (self.processes, self.process_id, self.coordinator)
        if self.distributed and any(value is not None for value in given):
            raise ValueError(
                "--distributed takes the processes from the scheduler; leave out --processes, "
                "--process-id and --coordinator, or --distributed"
            )
        if not self.distributed and any(value is None for value in given):
            raise ValueError(
                "--processes, --process-id and --coordinator go together; give all three, or "
                "--distributed under a scheduler"
            )
        if self.coordinator is not None:
            host, _, port = self.coordinator.rpartition(":")
            if not host or not port.isdigit() or not 0 < int(port) < 65536:
                raise ValueError(
                    f"--coordinator must be like 10.0.0.1:1234, not {self.coordinator!r}"
                )


ALONE = ProcessOptions()
"""One process."""
