"""The bar that a fit from Python shows where standard error is a terminal."""

import io
import itertools
import sys
import types

import jax
import pytest

from diffclust import KMeans
from diffclust.progress_bar import Fraction, ProgressBar, on_terminal
from diffclust.solvers import Progress, ignore
from tests.registry import blobs


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def fit(**settings: object) -> None:
    KMeans(2, num_restarts=2, max_passes=3).fit(blobs(20), key=jax.random.key(0), **settings)


def test_a_fit_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", shown)
    fit()
    assert "restart" in shown.getvalue()
    shown.truncate(0)
    fit(callback=ignore)
    assert not shown.getvalue().strip("\0")


def test_it_says_nothing_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    fit()
    assert capfd.readouterr() == ("", "")


def test_a_callback_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    told: list[Progress] = []
    fit(callback=told.append)
    assert told
    with on_terminal(None) as shown:
        assert isinstance(shown, ProgressBar)
    with on_terminal(ignore) as shown:
        assert shown is ignore


def reports(restarts: int, passes: int, refine: int) -> list[Progress]:
    """What a fit by Lloyd's algorithm says: every pass in two chunks."""
    told = [
        Progress("pass", restart, i, chunk, 2)
        for restart in range(restarts)
        for i in range(passes)
        for chunk in (1, 2)
    ]
    told += [Progress("refine", 0, i, chunk, 2) for i in range(refine) for chunk in (1, 2)]
    return [*told, Progress("predict", 0, 0, 1, 1)]


@pytest.mark.parametrize(("restarts", "passes", "refine"), [(4, 9, 4), (1, 40, 0), (3, 3, 9)])
def test_what_is_done_of_a_fit_grows_to_the_whole(restarts: int, passes: int, refine: int) -> None:
    fraction = Fraction(restarts)
    seen = [fraction(progress) for progress in reports(restarts, passes, refine)]
    assert seen == sorted(seen)
    assert 0.0 < seen[0] < 0.2
    assert seen[-1] == 1.0
    # Equal restarts take equal parts of the bar.
    if restarts == 4:
        assert abs(seen[2 * 2 * 9 - 1] - 2 / 4.5) < 0.05


def test_what_is_done_of_the_steps_and_stages() -> None:
    fraction = Fraction(2)
    assert fraction(Progress("step", 1, 3, 50, 100)) == 0.75
    fraction = Fraction()
    stages = ("features", "directions", "neighbours", "cut")
    seen = [fraction(Progress(name, 0, 0, n, 2)) for name in stages for n in (1, 2)]
    assert seen == sorted(set(seen))
    assert 0.85 < seen[-1] < 1.0


def test_the_time_that_is_left_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    clock = itertools.count(0, 30)
    watch = types.SimpleNamespace(monotonic=lambda: float(next(clock)) + 1)
    monkeypatch.setattr("diffclust.progress_bar.time", watch)
    with ProgressBar(2) as bar:
        for progress in reports(2, 2, 0)[:5]:
            bar(progress)
        bar._bar.refresh()
    # Two minutes for 1.25 of 2.5 restarts.
    assert "about 2:00 left" in capsys.readouterr().err
