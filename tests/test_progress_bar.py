"""The bar that a fit from Python shows where standard error is a terminal."""

import functools
import importlib.machinery
import io
import itertools
import sys
import types

import jax
import numpy as np
import pytest

from diffclust import KMeans
from diffclust.parallel import Data
from diffclust.progress_bar import Fraction, ProgressBar, _clock, is_on_terminal, on_terminal
from diffclust.solvers import Context, FitStage, Progress, ignore
from diffclust.solvers.staged_problem import StagedProblem
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
    reported: list[Progress] = []
    fit(callback=reported.append)
    assert reported
    with on_terminal(None) as shown:
        assert isinstance(shown, ProgressBar)
    with on_terminal(ignore) as shown:
        assert shown is ignore


def reports(restarts: int, passes: int, refine: int) -> list[Progress]:
    """What a fit by Lloyd's algorithm says: every pass in two chunks."""
    reported = [
        Progress("pass", restart, i, chunk, 2)
        for restart in range(restarts)
        for i in range(passes)
        for chunk in (1, 2)
    ]
    reported += [Progress("refine", 0, i, chunk, 2) for i in range(refine) for chunk in (1, 2)]
    return [*reported, Progress("predict", 0, 0, 1, 1)]


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


@pytest.mark.parametrize(
    "stages",
    [
        ("features", "neighbours", "cut", "means", "alignments"),
        ("features", "features_relative", "neighbours", "cut", "means", "alignments"),
        ("features", "neighbours", "pairs", "pairs place", "cut", "means", "alignments"),
        ("features", "representatives_1", "representatives_2", "cut", "means", "alignments"),
    ],
)
def test_the_bar_is_shared_by_the_stages_that_a_fit_has(stages: tuple[str, ...]) -> None:
    fraction, seen = Fraction(), []
    for number, name in enumerate(stages):
        kind = "neighbours" if name[:4] == "repr" else name.split("_")[0].split(" ")[0]
        reported = [kind, "directions"] if kind == "features" else [kind]
        seen += [
            fraction(Progress(stage, 0, 0, n, 4, stages=stages, stages_done=number))
            for stage in reported
            for n in (1, 2, 3, 4)
        ]
    # It never stands still, never leaps, and ends at the end.
    assert seen == sorted(seen)
    if "representatives_1" not in stages:
        assert len(set(seen)) == len(seen)
    assert max(b - a for a, b in itertools.pairwise([0.0, *seen])) < 0.2
    assert seen[-1] > 0.9


def test_a_fit_tells_of_the_stages_that_it_has() -> None:
    reported: list[Progress] = []
    problem = StagedProblem(
        (
            FitStage("features", lambda given: _told(given, "features")),
            FitStage("cut", lambda given: _told(given, "cut")),
        ),
        lambda _: None,  # pyright: ignore
    )
    data, state = Data(blobs(20)), problem.init(Data(blobs(20)), jax.random.key(0))
    while not problem.done(state):
        state = problem.advance(data, state, reported.append)
    assert [(p.stage, p.stages_done) for p in reported] == [("features", 0), ("cut", 1)]
    assert {p.stages for p in reported} == {("features", "cut")}


def _told(given: Context, stage: str) -> dict[str, np.ndarray]:
    given.callback(Progress(stage, 0, 0, 1, 1))
    return {"array": np.zeros(1)}


def test_losses_of_coarse_images_do_not_stand_beside_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bar, step = ProgressBar(2), functools.partial(Progress, done=1, total=1)
    reported = [
        step("pass", 0, 0, loss=9.0),
        step("pass", 1, 0, loss=8.0, least=9.0),
        step("refine", 1, 0, loss=70.0, least=8.0),
        step("refine", 1, 1, loss=60.0, least=8.0),
    ]
    for progress in reported:
        bar(progress)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "restart 1 of 2 done, least loss so far 9",
        "restart 2 of 2 done, least loss so far 8",
        "now the best restart at full size (another loss)",
    ]
    assert any("least 9" in word for word in bar._description(reported[1], 0.0))
    refining = bar._description(reported[2], 0.0)
    assert refining[0] == "best restart on the full images"
    assert not any("least" in word for word in refining)


def test_several_fits_share_the_bar() -> None:
    bar, shown = ProgressBar(), []
    bar.show = lambda text, done=0, total=None, left="": shown.append((text, done))
    for number in range(2):
        follow = bar.following(f"K = {number} ({number + 1} of 2), ", number, 2)
        for n in (1, 2):
            follow(Progress("step", 0, 0, n, 2))
    assert [done for _, done in shown] == [250, 500, 750, 1000]
    assert shown[-1][0].startswith("K = 1 (2 of 2), step 2 of 2")


def test_a_second_fit_goes_on_where_the_first_one_ended() -> None:
    bar, shown = ProgressBar(3), []
    bar.show = lambda text, done=0, total=None, left="": shown.append(done)
    bar.following("", 1, 2, share=0.75)(Progress("step", 2, 0, 2, 2))
    again = bar.following("again, ", 1.75, 2, share=0.25, restarts=1)
    for n in (1, 2):
        again(Progress("step", 0, 0, n, 2))
    assert shown == [875, 938, 1000]


def test_the_time_left_of_several_fits_is_that_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, shown, clock = ProgressBar(), [], iter(range(0, 100, 10))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    bar.show = lambda text, done=0, total=None, left="": shown.append(left)
    for number in range(2):
        follow = bar.following("", number, 2)
        for n in (1, 2):
            follow(Progress("predict", 0, 0, n, 2))
    # A quarter of all was done at first, and one more every ten seconds.
    assert shown == ["", "about 0:20 left", "about 0:10 left", "about 0:00 left"]


def test_after_an_hour_the_time_has_hours() -> None:
    assert list(map(_clock, (5.2, 3599.0, 3725.0))) == ["0:05", "59:59", "1:02:05"]


def test_the_time_left_is_that_of_this_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, shown, clock = ProgressBar(), [], iter(range(0, 1000, 100))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    bar.show = lambda text, done=0, total=None, left="": shown.append((done, left))
    for chunk in (1, 2):
        bar.following()(Progress("predict", 0, 0, chunk, 4))
    # Another one, as of a comparison; and one that goes on where it had been broken off.
    for step in (30, 40):
        bar.following()(Progress("predict", 0, 0, step, 40))
    follow = bar.following()
    for chunk in (8, 9):
        follow(Progress("predict", 0, 0, chunk, 10))
    assert shown[-2:] == [(800, ""), (900, "about 1:40 left")]
    assert shown[0] == (250, "")


def test_the_time_left_of_steps_is_that_of_all_restarts() -> None:
    bar = ProgressBar(3)
    step = functools.partial(Progress, "step", 1, 0, total=100, samples=0)
    assert not any("left" in word for word in bar._description(step(done=10), 0.0))
    words = bar._description(step(done=20), 10.0)
    # A second a step: 80 of this restart, and 100 of the third.
    assert "3:00 left or more" in words


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
    # Two minutes for 1.25 of 2.5 restarts, less the 0.04 that the first report had done.
    assert "about 2:04 left" in capsys.readouterr().err


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_shows_a_bar_by_its_widgets(
    has_widgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    widgets = types.ModuleType("ipywidgets")
    widgets.__spec__ = importlib.machinery.ModuleSpec("ipywidgets", None)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets if has_widgets else None)
    with on_terminal(None) as shown:
        assert isinstance(shown, ProgressBar) == has_widgets


@pytest.mark.parametrize("stream", [None, object(), "closed"])
def test_a_program_may_have_no_standard_error(
    stream: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stream == "closed":
        stream = io.StringIO()
        stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    assert not is_on_terminal()
