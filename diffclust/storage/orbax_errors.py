"""What orbax and tensorstore raise and print where they cannot write."""

import contextlib
import logging
import os
import re
import sys
from typing import Any

from diffclust._validation import reason_of


def silence_orbax() -> contextlib.ExitStack:
    """Keeps orbax and asyncio from printing, with tracebacks, the very error that is raised.

    Returns:
        Its `close` ends that. One that is dropped unclosed, unlike a generator, ends nothing.
    """
    quiet, hook = contextlib.ExitStack(), sys.unraisablehook

    def is_other(record: logging.LogRecord) -> bool:
        # Asyncio names the task that failed, and where it is defined, in the message.
        return "orbax" not in record.pathname + record.getMessage()

    def show(unraisable: Any) -> None:
        # Where one write of several fails, the others have no loop to come back to.
        if str(unraisable.exc_value) != "Event loop is closed":
            hook(unraisable)

    for log in map(logging.getLogger, ("absl", "asyncio")):
        log.addFilter(is_other)
        quiet.callback(log.removeFilter, is_other)
    sys.unraisablehook = show
    quiet.callback(setattr, sys, "unraisablehook", hook)
    return quiet


def save_reason(error: BaseException) -> str:
    """Why something was not saved, in a few words.

    Args:
        error: What orbax raised.

    Returns:
        The reason, the system's own where there is one.
    """
    text = reason_of(error)
    # Tensorstore's words are long; the system's are at their end.
    code = re.search(r"os_error_code='(\d+)'", text)
    return text[:200] if code is None else os.strerror(int(code[1]))
