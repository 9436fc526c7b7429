"""Ctrl-C and SIGTERM where their exceptions would break what runs."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Defers Ctrl-C and SIGTERM until the block, or the function that this decorates, is done.

    Raised within orbax they would corrupt its state, and an import that is broken off is broken for
    all that follows, or fails as if by itself: extension modules turn them into `ImportError`.

    Yields:
        Nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # One that was not set from Python could not be put back.
    before = {number: handler for number, handler in handlers.items() if handler is not None}
    for number in before:
        signal.signal(number, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in seen[:1]:
            signal.raise_signal(number)
