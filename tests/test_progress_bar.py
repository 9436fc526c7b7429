"""The bar that a fit from Python shows where standard error is a terminal."""

import io
import sys

import jax
import pytest

from diffclust import KMeans
from diffclust.progress_bar import ProgressBar, on_terminal
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
