"""Progress on the terminal: a bar, or where there is none a line for each restart or phase."""

import sys
import time
from types import TracebackType
from typing import Any

from diffclust.solvers import Progress

_STAGES = {
    "predict": "assigning images",
    "features": "computing features",
    "directions": "finding principal directions",
    "neighbours": "finding neighbours",
    "pairs": "aligning pairs of neighbours",
    "cut": "cutting the graph",
    "alignments": "averaging aligned images",
}

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
        self._restarts = restarts
        self._bar: Any = None
        self._task: Any = None
        self._last = ("", 0)
        self._phase: tuple[int, int] | None = None
        self._pace: tuple[float, int, int] | None = None
        self._warm = True

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
            self._task = self._bar.add_task("starting", total=None)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Takes the bar away.

        Args:
            kind: Type of the error that ended the block, or None.
            error: That error.
            traceback: Where it was raised.
        """
        del kind, error, traceback
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        """Shows where a fit stands.

        Args:
            progress: What the solver tells.
        """
        begun = progress.stage == "step" and self._begins_phase(progress)
        if self._bar is not None:
            words = self._words(progress)
            room = self._bar.console.width - _BESIDE
            while len(words) > 1 and len(", ".join(words)) > room:
                words.pop()
            self.show(", ".join(words), progress.done, progress.total)
            return
        self._tell_restart(progress)
        if begun and progress.iteration > 0:
            done = f"{progress.iteration} phase{'s' if progress.iteration > 1 else ''} done"
            words = self._words(progress)
            words.insert(int(self._restarts > 1), done)
            print(", ".join(words), file=sys.stderr, flush=True)

    def _tell_restart(self, progress: Progress) -> None:
        """Prints that a restart is done, where there are several."""
        other = progress.stage == "refine" or progress.stage in _STAGES
        stage = progress.stage if other else "restart"
        begun = (stage, progress.restart)
        if self._restarts > 1 and begun != self._last and self._last[0] == "restart":
            loss = "" if progress.least is None else f", least loss so far {progress.least:.6g}"
            number = self._last[1] + 1
            print(f"restart {number} of {self._restarts} done{loss}", file=sys.stderr, flush=True)
        self._last = begun

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
            self._bar.update(self._task, description=text, completed=done, total=total or None)

    def describe(self, progress: Progress) -> str:
        """What a fit is doing, in a few words.

        Args:
            progress: What the solver tells.

        Returns:
            For example `restart 2 of 4, pass 5, loss 123.4, least 120.1`.
        """
        return ", ".join(self._words(progress))

    def _words(self, progress: Progress) -> list[str]:
        """What a fit is doing, the most important first."""
        if progress.stage in _STAGES:
            return [_STAGES[progress.stage]]
        if progress.stage == "step":
            return self._steps(progress)
        if progress.stage == "refine":
            words = ["best restart on the full images"]
        else:
            words = [f"restart {progress.restart + 1} of {self._restarts}"]
        if progress.stage == "seeding":
            words.append("seeding")
        elif progress.stage == "split":
            words.append("split and merge")
        else:
            words.append(f"pass {progress.iteration + 1}")
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.6g}")
        if progress.least is not None and progress.stage != "refine":
            words.append(f"least {progress.least:.6g}")
        return words

    def _begins_phase(self, progress: Progress) -> bool:
        """Whether a fit by gradient steps was in another phase when it was last heard of."""
        here = (progress.restart, progress.iteration)
        begun = here != self._phase
        if begun:
            self._pace = None
        # The first window of a later phase is spent on compiling, too.
        self._warm = not begun or self._phase is None or self._phase[0] != progress.restart
        self._phase = here
        return begun

    def _steps(self, progress: Progress) -> list[str]:
        """How far a fit by gradient steps is, how fast in this phase, and how long it may take."""
        words = []
        if self._restarts > 1:
            words.append(f"restart {progress.restart + 1} of {self._restarts}")
        words.append(f"step {progress.done} of {progress.total}")
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.4g} an image")
        now, seen = time.monotonic(), progress.samples or 0
        if self._pace is None and self._warm:
            self._pace = (now, progress.done, seen)
        begun, done, samples = self._pace or (now, progress.done, seen)
        if now > begun and progress.done > done:
            left = (progress.total - progress.done) * (now - begun) / (progress.done - done)
            minutes, seconds = divmod(round(left), 60)
            # Later phases have more transforms, and are slower.
            words.append(f"{minutes}:{seconds:02d} left or more")
            words.append(f"{(seen - samples) / (now - begun):.0f} images/s")
        if progress.sizes is not None:
            words.append(
                f"clusters {100 * min(progress.sizes):.0f} to {100 * max(progress.sizes):.0f} %"
            )
        if progress.least is not None:
            words.append(f"least of a restart {progress.least:.6g}")
        return words
