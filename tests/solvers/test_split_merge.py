import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.cluster

from diffclust import metrics
from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.energies import Entropic, TransformedDistance
from diffclust.models import Clustering, KMeans
from diffclust.parallel import Data
from diffclust.parallel.chunks import Chunks
from diffclust.parallel.data import PerSample
from diffclust.prototypes import MeanImages, UnitNormImages
from diffclust.solvers import Lloyd, LloydProblem, Memory, SplitMerge, Stopping, ignore
from diffclust.solvers import split_merge as moves
from diffclust.solvers.lloyd_problem import LloydFit, LloydPlan
from diffclust.solvers.lloyd_run import LloydRun
from diffclust.solvers.split_merge import changed_clusters, try_split
from diffclust.transforms import Affine, Identity
from tests.fits import fit_prototypes
from tests.registry import blobs
from tests.solvers.test_lloyd import PLAIN, prepared, run

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


def with_clusters(
    samples: np.ndarray, clusters: np.ndarray, weight: np.ndarray | None = None
) -> tuple[Chunks, LloydRun]:
    """Samples, and a run in which they are in given clusters, each at its mean."""
    size = len(samples)
    weight = np.ones(size) if weight is None else weight
    groups = [clusters == k for k in range(clusters.max() + 1)]
    means = np.stack([np.average(samples[g], axis=0, weights=weight[g]) for g in groups])
    means = means.astype(np.float32)
    once = run(PLAIN, samples, means, size, Stopping(1, 0.0), weight)
    own = np.square(samples - means[clusters]).sum((1, 2, 3))
    (past,) = once.memory
    cluster = past.cluster.at[:, 0].set(clusters.astype(np.int32))
    rows = (Memory(cluster, past.energy.at[:, 0].set(own), past.params),)
    chunks = prepared(PLAIN, samples, size, weight)
    return chunks, dataclasses.replace(once, per_sample=PerSample(rows))


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


def test_a_split_of_some_samples_tells_what_one_of_all_would_save() -> None:
    rng = np.random.default_rng(0)
    samples = blobs(3, seed=1)[np.repeat([0, 1, 2], 40)]
    samples = (samples + rng.normal(scale=0.03, size=samples.shape)).astype(np.float32)
    weight = np.tile([1.0, 2.0], 60)
    # Two kinds in one cluster.
    chunks, found = with_clusters(samples, np.repeat([0, 0, 1], 40), weight)
    rows = samples[:80].reshape(80, -1).astype(float)
    one, two = (
        sklearn.cluster.KMeans(k, n_init=5, random_state=0).fit(rows, sample_weight=weight[:80])
        for k in (1, 2)
    )
    for most, off in ((80, 1e-4), (24, 0.1)):
        trial = try_split(
            PLAIN, chunks, found, 0, SplitMerge(split_samples=most), np.random.default_rng(0)
        )
        assert trial is not None
        assert trial[0] == pytest.approx(one.inertia_ - two.inertia_, rel=off)


def test_samples_that_weigh_nothing_make_no_cluster_large_enough_for_a_split() -> None:
    clusters = np.arange(20) % 2
    for heavy, is_small in ((3, True), (4, False)):
        weight = np.where((clusters == 1) | (np.arange(20) < 2 * heavy), 1.0, 0.0)
        chunks, found = with_clusters(blobs(20), clusters, weight)
        trial = try_split(PLAIN, chunks, found, 0, SplitMerge(), np.random.default_rng(0))
        assert (trial is None) == is_small


def test_clusters_that_samples_left_or_joined_have_changed() -> None:
    before = np.repeat([0, 1, 2, 3], 20)
    after = before.copy()
    after[:3] = 1  # more than a tenth of both
    after[[40, 41]] = 3  # a tenth of both
    chunks, first = with_clusters(blobs(80), before)
    second = with_clusters(blobs(80), after)[1]
    assert changed_clusters(chunks, first, second) == {0, 1}
    assert changed_clusters(chunks, second, second) == set()


@pytest.mark.parametrize("moving", [0, 5])
def test_after_a_move_clusters_that_changed_are_split_on_trial_again(moving: int) -> None:
    before = np.repeat([0, 1, 2, 3], 20)
    problem = LloydProblem(PLAIN, LloydPlan(4, (), 1, Stopping(10, 1e-3), SplitMerge()))
    chunks, run = with_clusters(blobs(80), before)
    run = dataclasses.replace(run, history=(100.0,))
    tried, gains = ("tried",) * 4, (1e6, 1.0, 2.0, 3.0)
    fit = LloydFit(jax.random.key_data(jax.random.key(0)), run=run, splits=tried, gains=gains)
    move = problem._proposed(fit)
    assert move is not None
    first, second = sorted({0, 1, 2, 3} - {*move})
    after = before.copy()
    after[np.flatnonzero(before == first)[:moving]] = second
    moved = dataclasses.replace(with_clusters(blobs(80), after)[1], history=(50.0,))
    kept = problem._run_done(chunks, fit, moved)
    due = {*move, first, second} if moving else {*move}
    assert [k for k, split in enumerate(kept.splits) if split == "due"] == sorted(due)
    assert [k for k, gain in enumerate(kept.gains) if gain is None] == sorted(due)
    assert (kept.round, kept.attempt, kept.run.history) == (1, 0, (100.0, 50.0))


def test_losses_of_members_are_computed_for_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, losses = set(), moves._losses

    def recorded(reduction: Any, energy: Any) -> Any:
        sizes.add(energy.shape)
        return losses(reduction, energy)

    monkeypatch.setattr(moves, "_losses", recorded)
    energy = TransformedDistance(Identity())
    lloyd = Lloyd(energy, NoAlignment(), MeanImages(), reduction=Entropic(0.5))
    model = Clustering(4, lloyd, num_restarts=1, max_passes=5)
    model.fit(blobs(50), key=jax.random.key(0))
    assert len(sizes) == 1
