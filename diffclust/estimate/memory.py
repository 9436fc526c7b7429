"""How much memory there is, and how much is taken."""

import contextlib
import os
import sys
from pathlib import Path

import jax


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


def installed_bytes() -> int | None:
    """Memory that a process may have: that of the machine, or of its control group if less."""
    limits = []
    with contextlib.suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text("ascii")))
        except (OSError, ValueError):  # There is no such group, or it is "max".
            continue
    return min(limits, default=None)


def device_limit() -> int | None:
    """Memory of the accelerator that JAX may use; None on a CPU, or where nobody knows."""
    stats = jax.devices()[0].memory_stats()
    return None if not stats else stats.get("bytes_limit")


def working_bytes() -> int:
    """Working memory of the hungriest program that is loaded: temporary arrays and results."""
    most = 0
    for program in jax.devices()[0].client.live_executables():
        stats = program.get_compiled_memory_stats()
        most = max(most, stats.temp_size_in_bytes + stats.output_size_in_bytes)
    return most
