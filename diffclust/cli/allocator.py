"""Has the C library give freed memory back to the system, for data that are larger than memory.

glibc, once it has seen blocks of megabytes freed, takes the next from a heap that small blocks then
keep from shrinking: a process would grow by several chunks for every million images. Where there is
no glibc, nothing is done.
"""

import contextlib
import ctypes

from diffclust.solvers import Callback, Progress

_MMAP_THRESHOLD = -3
"""`M_MMAP_THRESHOLD` of its `malloc.h`: from how many bytes on a block is mapped by itself."""


def map_large_blocks() -> None:
    """From now on every block of 128 KiB and more goes back to the system when it is freed.

    That is where glibc begins; set by hand, the bound no longer rises.
    """
    # Others have no `mallopt`, or no C library under that name.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 2**17)


def trim() -> None:
    """Gives back what small blocks have left free."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class Trimming:
    """A callback that trims whenever a fit has come to another stage, restart or pass."""

    def __init__(self, callback: Callback) -> None:
        """Trims nothing yet.

        Args:
            callback: Told of everything as well.
        """
        self._callback = callback
        self._seen: tuple[str, int, int] | None = None

    def __call__(self, progress: Progress) -> None:
        """Trims where something has ended.

        Args:
            progress: What the solver tells.
        """
        here = (progress.stage, progress.restart, progress.iteration)
        if here != self._seen:
            self._seen = here
            trim()
        self._callback(progress)
