"""Runs that race: who is compared, who is kept, and that they go on where they stopped."""

import dataclasses
import itertools
from typing import Any

import jax
import numpy as np
import pytest

from diffclust.models import DTIKMeans, GaussianMixture, Training
from diffclust.parallel import Data
from diffclust.solvers import Outcome, Status
from diffclust.solvers.gradient_problem import (
    GradientFit,
    GradientProblem,
    GradientRun,
    _evaluation_batch,
    _verdict,
)
from tests.storage.test_snapshots import Breaking, assert_same, chained, shapes

KEY = jax.random.key(1)
RACE = Training(steps=(75, 25), batch_size=20, num_starts=5, refill_every=10)


def raced(snapshots: Any, *, mesh: Any = None, **given: Any) -> Outcome:
    model = GaussianMixture(3, training=RACE, num_restarts=2)
    return model.fit(shapes(40), key=KEY, snapshots=snapshots, mesh=mesh, **given).outcome


@pytest.fixture(scope="module")
def watched() -> tuple[Outcome, Breaking]:
    """A fit of two restarts that is not broken off, with all that was saved."""
    states = Breaking()
    return raced(states), states


@pytest.fixture(scope="module")
def reported(watched: tuple[Outcome, Breaking]) -> list[dict[str, Any]]:
    """Every position of that fit."""
    return [about["position"] for about in watched[1].reported]


def test_plan_halves_the_runs_around_half_of_the_steps() -> None:
    plan = RACE.plan(0, Data(shapes(40)).description)
    assert plan.race == (40, 50, 60)
    # Five runs of 40 steps, three of 10, two of 10, and one of the other 40.
    assert plan.num_steps == 5 * 40 + 3 * 10 + 2 * 10 + 40
    assert Training().plan(0, Data(shapes(40)).description).race == ()


def test_the_better_half_goes_on_from_the_same_step(reported: list[dict[str, Any]]) -> None:
    assert max(at["round"] for at in reported) == 3
    first = [at for at in reported if not at["losses"]]
    for before, after in itertools.pairwise(first):
        if after["round"] == before["round"]:
            continue
        # Of the runs that wait all have a score but the one in progress, which gets its own now.
        others = {one["start"]: one["score"] for one in before["waiting"]}
        assert None not in others.values()
        kept = {after["run"]["start"], *(one["start"] for one in after["waiting"])}
        assert len(kept) == -(-(len(others) + 1) // 2)
        lost = set(others) - kept
        least_lost = min((others[start] for start in lost), default=np.inf)
        assert all(others[start] <= least_lost for start in kept & set(others))
        # All of them have come as far.
        assert len({(one["phase"], one["steps"]) for one in (after["run"], *after["waiting"])}) == 1


def test_every_start_is_another(reported: list[dict[str, Any]]) -> None:
    runs = [one for at in reported if not at["losses"] for one in at["waiting"]]
    losses = {one["start"]: one["history"][0] for one in runs}
    assert len(losses) == 5
    assert len(set(losses.values())) == 5


@pytest.mark.slow
def test_broken_off_after_every_step_it_goes_on_bit_for_bit(
    watched: tuple[Outcome, Breaking],
) -> None:
    whole = raced(None)
    assert_same(watched[0], whole)
    result, states = chained(raced, 1)
    assert_same(result, whole)
    assert {len(about["position"]["waiting"]) for about in states.reported} == {0, 1, 2, 3, 4}
    # One run in the end, with a history like any other's: eight windows, three, and the end.
    assert len(whole.history) == 8 + 3 + 1


def test_given_prototypes_are_one_start() -> None:
    alone = dataclasses.replace(RACE, num_starts=1)
    single, images = GaussianMixture(3, training=alone), shapes(40)
    expected = single.fit(images, key=KEY, prototypes=images[:3]).outcome
    model = GaussianMixture(3, training=RACE)
    assert_same(model.fit(images, key=KEY, prototypes=images[:3]).outcome, expected)


def test_a_window_may_be_longer_than_the_race() -> None:
    training = Training(steps=(60, 20), batch_size=20, num_starts=5)
    assert training.plan(0, Data(shapes(40)).description).race == (32, 40, 48)
    watched = Breaking()
    outcome = (
        GaussianMixture(3, training=training).fit(shapes(40), key=KEY, snapshots=watched).outcome
    )
    assert [about["position"]["round"] for about in watched.reported[:6]] == [0, 0, 0, 0, 3, 3]
    assert len(outcome.history) == 4


@pytest.mark.slow
def test_networks_race_too() -> None:
    training = Training(steps=(50, 100, 50), batch_size=20, num_starts=3)

    def fit(snapshots: Any, *, mesh: Any = None) -> Outcome:
        model = DTIKMeans(3, transforms="aff", training=training)
        return model.fit(shapes(40), key=KEY, snapshots=snapshots, mesh=mesh).outcome

    whole = fit(None)
    assert_same(chained(fit, 2)[0], whole)
    assert whole.loss < whole.history[0]


def test_what_weighs_nothing_has_no_say_in_comparisons() -> None:
    weight = np.zeros(6000)
    weight[[5, 70, 800, 4000, 5999]] = 1.0
    data = Data(np.zeros((6000, 2), np.float32), weight, 64)
    plan = Training().plan(0, Data(shapes(40)).description)
    for step in range(5):
        batch, _ = _evaluation_batch(data, plan, None, KEY, step)
        assert np.asarray(batch.weight).tolist() == [1.0] * 5


def problem_of_losses(
    monkeypatch: pytest.MonkeyPatch, weight: np.ndarray, *losses: np.ndarray
) -> GradientProblem:
    """A race in which the losses of runs are given, by the numbers of their starts."""
    (problem,) = GaussianMixture(3, training=RACE).compose(Data(shapes(40)).description, None)
    assert isinstance(problem, GradientProblem)
    monkeypatch.setattr(problem, "_losses", lambda _, run, __: (losses[run.start], weight))
    return problem


def test_runs_are_compared_by_their_weighted_mean_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, weight = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 6.0])
    problem = problem_of_losses(monkeypatch, weight, losses)
    fit = problem._next_in_race(Data(shapes(40)), GradientFit(jax.random.key_data(KEY)), KEY)
    assert fit.waiting[0].score == pytest.approx((1.0 + 2.0 + 6 * 4.0) / 8)


@pytest.mark.parametrize(
    ("losses", "status"),
    [
        ([5.0, 9.0, 8.0, 7.0, 6.0], Status.LOSS),
        ([10.0, 9.0, 5.0, 9.0, 9.0], None),
        ([10.0, 9.8, 9.7, 9.6], Status.LOSS),
        ([10.0, 9.8, 9.7, 9.4], None),
        ([10.0, 10.0, 10.0], None),
    ],
)
def test_a_phase_ends_unless_one_of_the_last_windows_is_clearly_the_lowest(losses, status) -> None:
    training = Training(steps=(500, 50), batch_size=20, tolerance=0.05)
    plan = training.plan(0, Data(shapes(40)).description)
    # Of the phase before, losses do not count.
    run = GradientRun(steps=len(losses) * 50, history=(1.0, *losses), starts=(0, 1))
    assert _verdict(plan, run, racing=False) is status
    assert _verdict(plan, run, racing=True) is None
