"""Progress of fits on the terminal or in a notebook: a bar, or a line for each restart or phase."""

import contextlib
import importlib.util
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from diffclust.solvers import Callback, Progress, ignore


def is_on_terminal() -> bool:
    """Whether the standard error is a terminal; some programs have none, or one that cannot say."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def is_drawn() -> bool:
    """Whether a bar can be drawn: on a terminal, or by the widgets of a notebook."""
    in_notebook = "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets") is not None
    return in_notebook or is_on_terminal()


_STAGES = {
    "predict": "assigning samples",
    "race": "several runs race",
    "features": "computing features",
    "directions": "finding principal directions",
    "neighbours": "finding neighbours",
    "pairs": "aligning pairs of neighbours",
    "cut": "cutting the graph",
    "alignments": "averaging aligned images",
}

_ACTIVITIES = {"seeding": "seeding", "split": "split and merge"}

_RESERVED_COLUMNS = 20
"""Columns that are reserved for the bar and the time beside it."""

_BAR_LENGTH = 1000
"""Length of the bar for a whole fit."""

_WEIGHTS = {
    "features": 4.0,
    "neighbours": 2.0,
    "representatives": 2.0,
    "pairs": 8.0,
    "cut": 4.0,
    "alignments": 2.0,
}
"""How long the stages of a spectral method take relative to the others, which count 1."""

_EXPECTED_PASSES = 12
"""Passes that are expected of the first restart."""

_MIN_SECONDS, _MIN_DONE = 3.0, 0.05
"""Seconds and share of the fit after which the time that is left is estimated."""


class Fraction:
    """The share of a whole fit that is done.

    Gradient steps are counted. Passes of Lloyd's algorithm are as many as they were in the restarts
    before, and the best restart on the full images takes half as long as another. Of a spectral
    method the stages that this fit has share the bar. What is done never shrinks.

    Attributes:
        done: What is done of the whole fit, from 0 to 1.
    """

    done: float = 0.0

    def __init__(self, restarts: int = 1) -> None:
        """Nothing is done yet.

        Args:
            restarts: How many restarts there will be.
        """
        self._restarts = restarts
        self._passes: dict[int, float] = {}
        self._is_fit = False

    def __call__(self, progress: Progress) -> float:
        """Takes note of a report.

        Args:
            progress: What the solver reports.

        Returns:
            What is done of the whole fit, from 0 to 1.
        """
        self.done = max(self.done, min(self._fraction_of(progress), 1.0))
        return self.done

    def _fraction_of(self, progress: Progress) -> float:
        stage, part = progress.stage, progress.done / max(progress.total, 1)
        self._is_fit |= stage != "predict" or bool(progress.stages)
        if progress.stages:
            # Their names say, after the kind, which of several it is: `features_relative`.
            kinds = [re.split("[_ ]", name)[0] for name in progress.stages]
            weights = [_WEIGHTS.get(kind, 1.0) for kind in kinds]
            now = progress.stages_done
            # A stage ends with what its own reports do not count.
            own = {kinds[now]: 0.9 * part, "directions": 0.9 + 0.1 * part}.get(stage, 0.0)
            return 0.98 * (sum(weights[:now]) + own * weights[now]) / sum(weights)
        if stage == "step":
            return (progress.restart + part) / self._restarts
        if stage == "predict":
            return 0.98 + 0.02 * part if self._is_fit else part
        if stage == "race":
            return 0.0
        here = self._restarts if stage == "refine" else progress.restart
        passes = progress.iteration + (part if stage in ("pass", "refine") else 0.0)
        self._passes[here] = max(passes, self._passes.get(here, 0.0))
        before = [count for at, count in self._passes.items() if at != here]
        expected = max(sum(before) / len(before), 1.0) if before else _EXPECTED_PASSES
        # Ever more slowly towards the end of a restart that is longer than usual.
        now = passes / max(expected, 1.25 * passes)
        weight = 0.5 if stage == "refine" else 1.0
        return (here + weight * now) / (self._restarts + 0.5)


class ProgressBar:
    """A callback for `model.fit` and `result.predict`, to be used as a context.

    It writes to stderr, so that what a command prints can be piped. The bar is that of the whole
    fit, as far as that can be known (`Fraction`), with the time that has passed and that is left.
    """

    def __init__(self, restarts: int = 1) -> None:
        """Starts nothing yet.

        Args:
            restarts: How many restarts there will be.
        """
        self._restarts, self._last, self._compiled = restarts, ("", 0), True
        self._bar: Any = None
        self._fraction = Fraction(restarts)
        self._start: tuple[float, float] | None = None
        self._phase: tuple[int, int] | None = None
        self._pace: tuple[float, int, int] | None = None

    def __enter__(self) -> "ProgressBar":
        """Shows the bar."""
        if is_drawn():
            from rich import progress
            from rich.console import Console

            self._bar = progress.Progress(
                progress.SpinnerColumn(),
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(bar_width=None),
                progress.TimeElapsedColumn(),
                progress.TextColumn("{task.fields[left]}", markup=False),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.add_task("starting", total=None, left="")
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
        now = time.monotonic()
        is_new, words = self._starts_phase(progress), self._description(progress, now)
        if self._bar is not None:
            done = self._fraction(progress)
            left = self._time_left(progress, now, done)
            room = self._bar.console.width - _RESERVED_COLUMNS - len(left)
            while len(words) > 1 and len(", ".join(words)) > room:
                words.pop()
            self.show(", ".join(words), round(_BAR_LENGTH * done), _BAR_LENGTH, left=left)
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
        if now[0] == "refine" != self._last[0]:
            print("now the best restart at full size (another loss)", file=sys.stderr, flush=True)
        self._last = now

    def _time_left(self, progress: Progress, now: float, done: float) -> str:
        """The time that the rest of the fit may take, in words."""
        # A fit that goes on has done a part already.
        self._start = (now, done) if self._start is None else self._start
        seconds, since = now - self._start[0], done - self._start[1]
        # Steps have their own estimate, of one phase.
        if progress.stage == "step" or seconds < _MIN_SECONDS or since < _MIN_DONE:
            return ""
        return f"about {_clock(seconds * (1.0 - done) / since)} left"

    def reading(self, done: int, total: int) -> None:
        """Shows how many files have been read.

        Args:
            done: Files read.
            total: Files there are.
        """
        self.show("reading files", done, total)

    def show(self, text: str, done: int = 0, total: int | None = None, left: str = "") -> None:
        """Shows a line of text before the bar; without a terminal, nothing.

        Args:
            text: What is being done.
            done: How much of it is done.
            total: How much there is to do, or None where nobody knows.
            left: The time that is left, in words.
        """
        if self._bar is not None:
            task, total = self._bar.task_ids[0], total or None
            self._bar.update(task, description=text, completed=done, total=total, left=left)

    def following(
        self,
        prefix: str = "",
        number: float | int = 0,
        total: int = 1,
        *,
        share: float = 1.0,
        restarts: int | None = None,
    ) -> Callback:
        """A callback for a fit that is one of several, which share the bar.

        Args:
            prefix: What stands before `restart 2 of 4, pass 5, loss 123.4, least 120.1`.
            number: Its position among the fits.
            total: How many there are.
            share: How much of its part of the bar it takes.
            restarts: How many restarts it has, where they are not the bar's.

        Returns:
            The callback.
        """
        fraction = Fraction(restarts or self._restarts)
        if number == 0:
            self._start = None

        def show(progress: Progress) -> None:
            now, done = time.monotonic(), (number + share * fraction(progress)) / total
            words = ", ".join(self._description(progress, now))
            left = self._time_left(progress, now, done)
            self.show(prefix + words, round(_BAR_LENGTH * done), _BAR_LENGTH, left=left)

        return show

    def _description(self, progress: Progress, now: float) -> list[str]:
        """Describes in words what the fit is doing, the most important first."""
        stage, least = progress.stage, progress.least
        if stage in _STAGES:
            return [_STAGES[stage]]
        restart = f"restart {progress.restart + 1} of {self._restarts}"
        if stage == "step":
            return [*([restart] if self._restarts > 1 else []), *self._steps(progress, now)]
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

    def _steps(self, progress: Progress, now: float) -> list[str]:
        """Describes a fit by gradient steps: its progress, its speed, and the time left."""
        words = [f"step {progress.done} of {progress.total}"]
        if progress.loss is not None:
            words.append(f"loss {progress.loss:.4g} an image")
        here = (now, progress.done, progress.samples or 0)
        if self._pace is None and self._compiled:
            self._pace = here
        seconds, steps, samples = (b - a for a, b in zip(self._pace or here, here, strict=True))
        if seconds > 0 and steps > 0:
            restarts = max(self._restarts - 1 - progress.restart, 0)
            to_do = progress.total - progress.done + restarts * progress.total
            # Of the whole fit; later phases have more transforms, and are slower.
            words.append(f"{_clock(to_do * seconds / steps)} left or more")
            words.append(f"{samples / seconds:.0f} images/s")
        if progress.sizes is not None:
            words.append(
                f"clusters {100 * min(progress.sizes):.0f} to {100 * max(progress.sizes):.0f} %"
            )
        if progress.least is not None:
            words.append(f"least of a restart {progress.least:.6g}")
        return words


def _clock(seconds: float) -> str:
    """Minutes and seconds, after an hour hours too, as a clock shows them."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextlib.contextmanager
def on_terminal(callback: Callback | None, restarts: int = 1) -> Iterator[Callback]:
    """A callback, or where none is given a progress bar if one can be drawn.

    Args:
        callback: The callback, or None.
        restarts: How many restarts there will be.

    Yields:
        What is to be called.
    """
    if callback is None and is_drawn():
        with ProgressBar(restarts) as bar:
            yield bar
    else:
        yield callback or ignore
