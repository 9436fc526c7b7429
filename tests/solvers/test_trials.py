"""Moves on trial: a run and those after its best moves race, and the best one goes on."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from diffclust.models import GaussianMixture, Training
from diffclust.parallel import Data
from diffclust.solvers import Outcome, gradient_problem
from diffclust.solvers.split_merge import best_pairs
from tests.registry import blobs
from tests.storage.test_snapshots import Breaking, assert_same, chained

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
        assert len(kept) == (len(others) + 1) // 2
        # All of them have come as far, and are compared anew.
        assert len({(one["steps"], one["until"], one["score"]) for one in kept}) == 1
        assert (kept[0]["until"] is None) == (len(kept) == 1)


def test_where_no_move_wins_the_run_is_what_it_would_have_been(
    watched: tuple[Outcome, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    last = watched[1][-1]["best_run"]
    assert (last["tried"], last["until"]) == (1, None)
    monkeypatch.setattr(gradient_problem, "TRIALS", 0)
    assert_same(tried(None), watched[0])


def test_broken_off_it_goes_on_bit_for_bit(watched: tuple[Outcome, list[dict[str, Any]]]) -> None:
    assert_same(chained(tried, 5)[0], watched[0])


def none_at_once(*args: Any, most: int) -> list[tuple[int, int]]:
    return best_pairs(*args, most=most) if most > 1 else []


def test_a_move_that_wins_beyond_chance_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_problem, "best_pairs", none_at_once)
    with_trials = tried(None)
    with monkeypatch.context() as patch:
        patch.setattr(gradient_problem, "Z_THRESHOLD", np.inf)
        never = tried(None)
    monkeypatch.setattr(gradient_problem, "TRIALS", 0)
    without = tried(None)
    assert_same(never, without)
    assert with_trials.figures["moves"] >= 1 > without.figures["moves"]
    assert with_trials.loss < without.loss


def test_steps_are_counted() -> None:
    plan = TRAINING.plan(0, Data(four_kinds()).description)
    # Three more runs of 10 steps, and one of 20.
    assert plan.trial == (10, 30)
    assert plan.num_steps == 225 + 3 * 10 + 20
    assert [plan.tries(0, steps) for steps in (60, 70, 170, 180)] == [False, True, True, False]
    assert not plan.tries(1, 10)
    still = Training(steps=(200, 25), batch_size=20, refill_every=10, split_merge=False)
    assert still.plan(0, Data(four_kinds()).description).num_steps == 225
