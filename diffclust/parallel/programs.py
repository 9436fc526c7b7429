"""Compiled programs, of which a process cannot hold as many as it likes."""

from pathlib import Path

import jax

_MAPS = Path("/proc/self/maps")
_MOST_MAPS = Path("/proc/sys/vm/max_map_count")


def forget_programs() -> None:
    """Drops all that JAX has compiled where three quarters of the process's memory maps are in use.

    Every program has some, and where none is left the process ends: after some ninety fits of
    different sizes. What is needed again is compiled again. Only Linux has this limit.
    """
    if not (_MAPS.is_file() and _MOST_MAPS.is_file()):
        return
    if _MAPS.read_bytes().count(b"\n") > 0.75 * int(_MOST_MAPS.read_text()):
        jax.clear_caches()
