"""Progress of fits on the terminal: a bar, or a line for each restart or phase."""

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from diffclust.solvers import Callback, Progress, ignore

_STAGES = {
    "predict": "assigning images",
    "race": "several starts race",
    "features": "computing features",
    "directions": "finding principal directions",
    "neighbours": "finding neighbours",
    "pairs": "aligning pairs of neighbours",
    "cut": "cutting the graph",
    "alignments": "averaging aligned images",
}

_ACTIVITIES = {"seeding": "seeding", "split": "split and merge"}

_BESIDE = 20
"""Columns that are kept for the bar and the time beside it."""


class ProgressBar:
    """A callback for `model.fit` and `result.predict`, to be used as a context.

    It writes to stderr, so that what a command prints can be piped. The bar is that of the chunks
    of one pass, as nobody knows how many passes there will be; of fits by gradient steps it is that
    of all steps.
    """

    def __init__(self, restarts: int = 1) -> None:
        """Starts nothing yet.

        Args:
            restarts: How many restarts there will be.
        """
        self._restarts, self._last, self._compiled = restarts, ("", 0), True
        self._bar: Any = None
        self._phase: tuple[int, int] | None = None
        self._pace: tuple[float, int, int] | None = None

    def __enter__(self) -> "ProgressBar":
        """Shows the bar."""
        if sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}"),
                progress.BarColumn(bar_width=None),
                progress.TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("starting", total=None)
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Takes the bar away.

        Args:
            *error: What ended the block, if anything.
        """
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Shows how far a fit has come.

        Args:
            progress: What the solver reports.
        """
        is_new, words = self._starts_phase(progress), self._words(progress)
        if self._bar is not None:
            room = self._bar.console.width - _BESIDE
            while len(words) > 1 and len(", ".join(words)) > room:
                words.pop()
            self.show(", ".join(words), progress.done, progress.total)
            return
        self._print_restart(progress)
        if is_new and progress.iteration > 0:
            done = f"{progress.iteration} phase{'s' if progress.iteration > 1 else ''} done"
            words.insert(int(self._restarts > 1), done)
            print(", ".join(words), file=sys.stderr, flush=True)

    def _print_restart(self, progress: Progress) -> None:
        """Prints that a restart is done, where there are several."""
        other = progress.stage == "refine" or progress.stage in _STAGES
        now = (progress.stage if other else "restart", progress.restart)
        if self._restarts > 1 and now != self._last and self._last[0] == "restart":
            loss = "" if progress.least is None else f", least loss so far {progress.least:.6g}"
            number = self._last[1] + 1
            print(f"restart {number} of {self._restarts} done{loss}", file=sys.stderr, flush=True)
        self._last = now

    def reading(self, done: int, total: int) -> None:
        """Shows how many files have been read.

        Args:
            done: Files read.
            total: Files there are.
        """
        self.show("reading images", done, total)

    def show(self, text: str, done: int = 0, total: int | None = None) -> None:
        """Shows a line of text before the bar; without a terminal, nothing.

        Args:
            text: What is being done.
            done: How much of it is done.
            total: How much there is to do, or None where nobody knows.
        """
        if self._bar is not None:
            task, total = self._bar.task_ids[0], total or None
            self._bar.update(task, description=text, completed=done, total=total)

    def describe(self, progress: Progress) -> str:
        """What a fit is doing, in a few words.

        Args:
            progress: What the solver reports.

        Returns:
            For example `restart 2 of 4, pass 5, loss 123.4, least 120.1`.
        """
        return ", ".join(self._words(progress))

    def _words(self, progress: Progress) -> list[str]:
        """What a fit is doing, the most important first."""
        stage, least = progress.stage, progress.least
        if stage in _STAGES:
            return [_STAGES[stage]]
        restart = f"restart {progress.restart + 1} of {self._restarts}"
        if stage == "step":
            return [*([restart] if self._restarts > 1 else []), *self._steps(progress)]
        words = ["best restart on the full images" if stage == "refine" else restart]
        words.append(_ACTIVITIES.get(stage, f"pass {progress.iteration + 1}"))
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.6g}")
        if least is not None and stage != "refine":
            words.append(f"least {least:.6g}")
        return words

    def _starts_phase(self, progress: Progress) -> bool:
        """Whether a fit by gradient steps was in another phase at its last report."""
        here, before = (progress.restart, progress.iteration), self._phase
        if progress.stage != "step":
            return False
        if here != before:
            self._pace = None
        # The first window of a later phase is spent on compiling, too.
        self._compiled = here == before or before is None or before[0] != progress.restart
        self._phase = here
        return here != before

    def _steps(self, progress: Progress) -> list[str]:
        """How far a fit by gradient steps is, how fast in this phase, and how long it may take."""
        words = [f"step {progress.done} of {progress.total}"]
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.4g} an image")
        here = (time.monotonic(), progress.done, progress.samples or 0)
        if self._pace is None and self._compiled:
            self._pace = here
        seconds, steps, samples = (b - a for a, b in zip(self._pace or here, here, strict=True))
        if seconds > 0 and steps > 0:
            minutes, rest = divmod(round((progress.total - progress.done) * seconds / steps), 60)
            # Later phases have more transforms, and are slower.
            words.append(f"{minutes}:{rest:02d} left or more")
            words.append(f"{samples / seconds:.0f} images/s")
        if progress.sizes is not None:
            words.append(
                f"clusters {100 * min(progress.sizes):.0f} to {100 * max(progress.sizes):.0f} %"
            )
        if progress.least is not None:
            words.append(f"least of a restart {progress.least:.6g}")
        return words


@contextlib.contextmanager
def on_terminal(callback: Callback | None, restarts: int = 1) -> Iterator[Callback]:
    """A callback, or where none is given a progress bar if standard error is a terminal.

    Args:
        callback: The callback, or None.
        restarts: How many restarts there will be.

    Yields:
        What is to be called.
    """
    if callback is None and sys.stderr.isatty():
        with ProgressBar(restarts) as bar:
            yield bar
    else:
        yield callback or ignore
