"""SIGTERM, by which schedulers end a job: an exception, so that what is at hand is saved."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class Terminated(KeyboardInterrupt):
    """The process was asked to end; to what runs it is what Ctrl-C is."""


@contextlib.contextmanager
def termination_raises() -> Iterator[None]:
    """Makes an exception of SIGTERM while the block runs.

    Raises:
        Terminated: When the signal comes.
    """

    def stop(number: int, frame: Any) -> None:
        del frame
        # Asked twice is asked once: what is being saved shall be whole.
        signal.signal(number, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
