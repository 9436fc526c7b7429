import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import metrics
from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.energies import TransformedDistance
from diffclust.models import KMeans
from diffclust.parallel import Data
from diffclust.prototypes import UnitNormImages
from diffclust.solvers import Lloyd, LloydProblem, SplitMerge, Stopping, ignore
from diffclust.solvers.lloyd_problem import LloydPlan
from diffclust.transforms import Affine, Identity
from tests.fits import fit_prototypes
from tests.registry import blobs

LABELS = np.repeat(np.arange(4), 10)


@pytest.fixture(scope="module")
def classes() -> np.ndarray:
    """Four well-separated classes of ten images each."""
    rng = np.random.default_rng(0)
    means = blobs(4, seed=1)
    return np.repeat(means, 10, axis=0) + rng.normal(size=(40, 8, 8, 1), scale=0.03).astype("f4")


@pytest.fixture(scope="module")
def poor_start(classes: np.ndarray) -> np.ndarray:
    """Classes 0 and 1 share a prototype, and class 2 has two."""
    means = [classes[label == LABELS].mean(0) for label in range(4)]
    halves = [classes[20:25].mean(0), classes[25:30].mean(0)]
    return np.stack([(means[0] + means[1]) / 2, *halves, means[3]])


def test_move_repairs_a_poor_start(classes: np.ndarray, poor_start: np.ndarray) -> None:
    result = {}
    for split_merge in (False, True):
        model = KMeans(4, split_merge=split_merge)
        result[split_merge] = model.fit(classes, key=jax.random.key(0), prototypes=poor_start)
    stuck, free = result[False], result[True]
    assert metrics.adjusted_rand_index(LABELS, stuck.assignments) < 0.8
    assert metrics.adjusted_rand_index(LABELS, free.assignments) == 1.0
    assert free.loss < 0.5 * stuck.loss
    # The history goes on where the first run came to rest.
    assert free.history[: len(stuck.history)] == stuck.history
    assert free.history[-1] == min(free.history)


def test_good_optimum_is_left_alone(classes: np.ndarray) -> None:
    start = np.stack([classes[label == LABELS].mean(0) for label in range(4)])
    result = KMeans(4).fit(classes, key=jax.random.key(0), prototypes=start)
    np.testing.assert_array_equal(result.assignments, LABELS)
    plain = KMeans(4, split_merge=False).fit(classes, key=jax.random.key(0), prototypes=start)
    assert result.history == plain.history


@pytest.mark.parametrize("clusters", [1, 2])
def test_too_few_clusters_for_a_move(classes: np.ndarray, clusters: int) -> None:
    result = KMeans(clusters, num_restarts=1).fit(classes, key=jax.random.key(0))
    assert np.all(result.counts > 0)
    assert np.all(np.isinf(result.margins)) == (clusters == 1)


@pytest.mark.parametrize("loss", [100.0, -100.0])
def test_moves_that_raise_the_loss_are_refused(classes: np.ndarray, loss: float) -> None:
    solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), UnitNormImages())
    problem = LloydProblem(solver, LloydPlan(2, (), 1, Stopping(10, 1e-3), SplitMerge()))
    data = Data(classes, None, 16)
    state = problem.init(data, jax.random.key(0))
    while state.arrays.run is None:
        state = problem.advance(data, state, ignore)
    before, after = (
        dataclasses.replace(state.arrays.run, history=(x,)) for x in (loss, loss + 0.005)
    )
    fit = dataclasses.replace(state.arrays, run=before)
    kept = problem._run_done(problem.level(data, 1), fit, after)
    assert kept.run is before
    assert kept.attempt == 1


@pytest.mark.slow
def test_move_repairs_an_aligned_run(classes: np.ndarray, poor_start: np.ndarray) -> None:
    solver = Lloyd(TransformedDistance(Affine()), Descent((Stage(4),)), UnitNormImages())
    stuck, free = (
        fit_prototypes(
            solver,
            LloydPlan(4, (1.0,), 1, Stopping(10, 1e-3), moves),
            classes,
            None,
            key=jax.random.key(0),
            start=("prototypes", jnp.asarray(poor_start)),
        )
        for moves in (SplitMerge(rounds=0), SplitMerge())
    )
    assert free.loss < 0.7 * stuck.loss
    assert metrics.adjusted_rand_index(LABELS, free.assignment.clusters) == 1.0
