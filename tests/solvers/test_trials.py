"""Moves on trial: a run and those after its best moves race, and the best one goes on."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from diffclust.models import GaussianMixture, Training
from diffclust.parallel import Data
from diffclust.solvers import Outcome, gradient_problem
from diffclust.solvers.gradient_problem import GradientRun, after_trial
from tests.registry import blobs
from tests.solvers.test_race import KEY, problem_of_losses
from tests.storage.test_snapshots import Breaking, assert_same, chained, shapes

TRAINING = Training(steps=(200, 25), batch_size=20, refill_every=10)


def four_kinds() -> np.ndarray:
    noise = 0.05 * np.random.default_rng(1).normal(size=(80, 8, 8, 1))
    return np.clip(blobs(4, seed=1)[np.arange(80) % 4] + noise, 0, 1).astype(np.float32)


def tried(snapshots: Any, *, mesh: Any = None) -> Outcome:
    model = GaussianMixture(4, training=TRAINING)
    return model.fit(four_kinds(), key=jax.random.key(1), snapshots=snapshots, mesh=mesh).outcome


@pytest.fixture(scope="module")
def watched() -> tuple[Outcome, list[dict[str, Any]]]:
    """A fit in which moves are tried, with all its positions."""
    states = Breaking()
    return tried(states), [about["position"] for about in states.reported]


def test_the_best_move_goes_on_beside_the_run_as_it_was(
    watched: tuple[Outcome, list[dict[str, Any]]],
) -> None:
    positions = watched[1]
    assert {len(at["waiting"]) for at in positions} == {0, 1, 3}
    for before, after in itertools.pairwise(positions):
        if len(after["waiting"]) >= len(before["waiting"]):
            continue
        others = [one["score"] for one in before["waiting"]]
        kept = [after["run"], *after["waiting"]]
        assert None not in others
        # Half of them, or one move alone, which gained at once what was expected.
        assert len(kept) == (len(others) + 1) // 2 or len(kept) == kept[0]["moves"] == 1
        # All of them have come as far, and are compared anew.
        assert len({(one["steps"], one["until"], one["score"]) for one in kept}) == 1
        assert (kept[0]["until"] is None) == (len(kept) == 1)


def test_where_no_move_wins_the_run_is_what_it_would_have_been(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(gradient_problem, "Z_THRESHOLD", np.inf)
        states = Breaking()
        never = tried(states)
    positions = [about["position"] for about in states.reported]
    assert max(len(at["waiting"]) for at in positions) == 3
    last = positions[-1]["best_run"]
    assert (last["tried"], last["until"]) == (1, None)
    monkeypatch.setattr(gradient_problem, "TRIALS", 0)
    assert_same(tried(None), never)


@pytest.mark.slow
def test_broken_off_it_goes_on_bit_for_bit(watched: tuple[Outcome, list[dict[str, Any]]]) -> None:
    assert_same(chained(tried, 5)[0], watched[0])


def test_a_move_that_wins_beyond_chance_is_taken(
    watched: tuple[Outcome, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradient_problem, "TRIALS", 0)
    without = tried(None)
    assert watched[0].figures["moves"] >= 1 > without.figures["moves"]
    assert watched[0].loss < without.loss


def goes_on(
    before: float | None,
    gap: float,
    *,
    steps: int = 100,
    better: bool = False,
    expected: float | None = None,
) -> list[Any]:
    """Moves made, end, last comparison and last gap of runs that go on from a trial.

    Args:
        before: By how much the move was behind when it was compared last.
        gap: By how much it is now, 20 steps after that, or after the trial began.
        steps: Steps taken in a phase of 200.
        better: Whether the move is better beyond chance.
        expected: By how much it was to be better.
    """
    plan = TRAINING.plan(0, Data(four_kinds()).description)
    at = GradientRun(steps=steps, since=80, until=100, gap=before, score=1.0)
    runs = [at, dataclasses.replace(at, moves=1, score=1.0 + gap, expected_gain=expected)]
    runs.sort(key=lambda run: run.score)
    after = after_trial(plan, runs, lambda *_: better)
    return sorted(((run.moves, run.until, run.since, run.gap) for run in after), key=str)


def test_a_move_that_comes_nearer_fast_is_given_more_time() -> None:
    both = [(0, 140, 100, 0.5), (1, 140, 100, 0.5)]
    stays, taken = [(0, None, None, None)], [(1, None, None, None)]
    # The first comparison chooses among moves.
    assert goes_on(None, 0.5) == both
    assert goes_on(1.0, 0.5) == both
    assert goes_on(1.0, 0.6) == stays
    assert goes_on(1.0, 0.6, better=True) == taken
    # At the first comparison, if it is ahead by as much as was expected.
    assert goes_on(None, -0.5, better=True, expected=0.4) == taken
    for expected in (0.6, -0.1):
        assert len(goes_on(None, -0.5, better=True, expected=expected)) == 2
    assert len(goes_on(None, -0.5, expected=0.4)) == 2
    # One that was ahead and has fallen behind is dropped; one that is ahead has more time.
    assert goes_on(-0.1, 0.01) == stays
    assert [each[:3] for each in goes_on(1.0, -0.1)] == [(0, 140, 100), (1, 140, 100)]
    # The rest of the phase, unless that is too little; nothing, where the phase is over.
    assert [each[1] for each in goes_on(1.0, 0.5, steps=170)] == [130, 130]
    assert goes_on(1.0, 0.5, steps=190) == stays
    assert goes_on(1.0, 0.5, steps=0) == stays


def test_of_several_moves_the_best_goes_on() -> None:
    plan = TRAINING.plan(0, Data(four_kinds()).description)
    at = GradientRun(steps=100, since=80, until=100, score=1.0)
    moved = [dataclasses.replace(at, moves=1, score=score) for score in (1.2, 1.1, 1.3)]
    runs = sorted([at, *moved], key=lambda run: run.score or 0.0)
    kept = after_trial(plan, runs, lambda *_: False)
    assert {(run.moves, run.score) for run in kept} == {(0, 1.0), (1, 1.1)}


def test_steps_are_counted() -> None:
    plan = TRAINING.plan(0, Data(four_kinds()).description)
    # Three more runs of 10 steps, and one of 20.
    assert plan.trial == (10, 30)
    assert plan.num_steps == 225 + 3 * 10 + 20
    assert [plan.tries(0, steps) for steps in (60, 70, 170, 180)] == [False, True, True, False]
    assert [plan.is_early(0, steps) for steps in (60, 70)] == [True, False]
    assert not plan.tries(1, 10)
    still = Training(steps=(200, 25), batch_size=20, refill_every=10, split_merge=False)
    assert still.plan(0, Data(four_kinds()).description).num_steps == 225


@pytest.mark.parametrize("heavy", [1.0, 5.0])
def test_a_move_is_better_by_two_standard_errors(
    monkeypatch: pytest.MonkeyPatch, heavy: float
) -> None:
    random = np.random.default_rng(0)
    gain, weight = random.normal(size=200), np.where(np.arange(200) < 50, heavy, 1.0)
    share = weight / weight.sum()
    gain -= share @ gain
    # The variance of a weighted mean of independent gains.
    error = np.sqrt(np.sum((share * gain) ** 2))
    base = random.uniform(size=200)
    for errors, is_better in ((1.9, False), (2.1, True), (-2.1, False)):
        after = base - gain - errors * error
        problem = problem_of_losses(monkeypatch, weight, base, after)
        runs = GradientRun(start=1), GradientRun(start=0)
        assert problem._is_better(Data(shapes(40)), KEY, *runs) == is_better
