import dataclasses
import functools
from collections.abc import Callable

import chex
import equinox as eqx
import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.cluster
from hypothesis import strategies
from jax.sharding import PartitionSpec

from diffclust._random import checked_key
from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.data import load_digits
from diffclust.energies import AbstractSampleEnergy, TransformedDistance
from diffclust.models import AffineInvariantKMeans, KMeans
from diffclust.parallel import Data
from diffclust.parallel.chunks import Batch, Chunks, cut
from diffclust.prototypes import Clusters, MeanImages, Sums, UnitNormImages
from diffclust.solvers import (
    FitError,
    Lloyd,
    LloydPlan,
    LloydProblem,
    LloydState,
    Memory,
    Outcome,
    SplitMerge,
    Status,
    Stopping,
    best_restart,
    lloyd_iterations,
    lloyd_run,
)
from diffclust.solvers import run as drive
from diffclust.solvers.lloyd_run import refilled, sum_over_chunks
from diffclust.transforms import Affine, Identity, ThinPlateSpline
from tests.fits import fit_prototypes
from tests.registry import EMPTY_ARRAYS_CRASH, QUICK, blobs

PLAIN = Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())
ALIGNED = Lloyd(TransformedDistance(Affine()), Descent((Stage(3),)), UnitNormImages())
FIRST_PASS = Stopping(1, 0.0)


def prepared(solver: Lloyd, samples: np.ndarray, size: int, weight: np.ndarray | None = None):
    return cut(samples, weight, size=size, normalise=solver.family.normalise)


def started(solver: Lloyd, chunks: Chunks, prototypes: np.ndarray, penalty: float = 0.1):
    """A state with these prototypes, and memory of nothing."""
    weights = np.full((len(prototypes), solver.energy.num_penalties), penalty, prototypes.dtype)
    prototype = jax.vmap(solver.family.normalise)(jnp.asarray(prototypes))
    state = solver.init(Clusters(prototype, jnp.asarray(weights)))
    memory = tuple(
        solver.init_memory(chunks.size, len(prototypes), prototype.dtype) for _ in chunks.batches
    )
    return state, memory


def run(solver: Lloyd, samples, prototypes, size: int, stopping: Stopping, weight=None):
    chunks = prepared(solver, samples, size, weight)
    return lloyd_iterations(solver, chunks, *started(solver, chunks, prototypes), stopping)


def assigned(memory: tuple[Memory, ...], count: int) -> np.ndarray:
    return np.concatenate([np.asarray(m.cluster[:, 0]) for m in memory])[:count]


# ST K-means, Prop. 2: what holds of it is that the objective never rises.

MONOTONE = {
    "affine": Lloyd(TransformedDistance(Affine()), Descent((Stage(3),)), MeanImages()),
    "affine-jacobian": Lloyd(
        TransformedDistance(Affine(), pixel_weights="jacobian"),
        Descent((Stage(3),)),
        UnitNormImages(),
    ),
    "spline": Lloyd(TransformedDistance(ThinPlateSpline((2, 3))), QUICK, UnitNormImages()),
    "spline-jacobian": Lloyd(
        TransformedDistance(ThinPlateSpline((3, 3)), pixel_weights="jacobian"),
        Descent((Stage(3),)),
        MeanImages(),
    ),
}


@functools.cache
def monotone_passes(name: str):
    solver = MONOTONE[name]

    @eqx.filter_jit
    def step(state: LloydState, batch: Batch, memory: Memory):
        passed, memory = solver.step(state, batch, memory)
        state = solver.end_pass(passed)

        def frozen(prototypes: jax.Array) -> jax.Array:
            """The distortion where every sample stays as it is aligned."""

            def one(sample: jax.Array, params: jax.Array, cluster: jax.Array) -> jax.Array:
                at = Clusters(prototypes, state.learned.clusters.penalty).take(cluster)
                return solver.energy.bind(sample)(params, sample, at)

            energies = jax.vmap(one)(batch.samples, memory.params[:, 0], memory.cluster[:, 0])
            return jnp.dot(energies, batch.weight)

        slopes = jax.grad(frozen)(state.learned.clusters.prototype)
        return state, passed.tally, memory, slopes

    return solver, step


@pytest.mark.parametrize(
    "name",
    [
        "affine-jacobian",
        pytest.param("spline", marks=pytest.mark.slow),
        pytest.param("affine", marks=pytest.mark.slow),
        pytest.param("spline-jacobian", marks=pytest.mark.slow),
    ],
)
@hypothesis.given(
    seed=strategies.integers(0, 2**16),
    noise=strategies.floats(0.0, 1.0),
    penalty=strategies.sampled_from([0.0, 0.1, 10.0]),
)
@hypothesis.settings(max_examples=6)
def test_objective_never_rises(name: str, seed: int, noise: float, penalty: float) -> None:
    solver, step = monotone_passes(name)
    rng = np.random.default_rng(seed)
    samples = blobs(16, seed=seed) + np.float32(noise) * rng.uniform(size=(16, 8, 8, 1))
    chunks = prepared(solver, samples.astype(np.float32), 16, rng.uniform(0.5, 2, 16))
    state, (memory,) = started(solver, chunks, samples[:3].astype(np.float32), penalty)
    losses = []
    for _ in range(6):
        state, tally, memory, slopes = step(state, chunks.batches[0], memory)
        losses.append(float(tally.loss))
        # The loss is the sum of the samples' energies, penalties included.
        energy = float(np.asarray(memory.energy[:, 0]) @ np.asarray(chunks.batches[0].weight))
        np.testing.assert_allclose(losses[-1], energy, rtol=1e-5)
        # Prop. 1: no change of a prototype lowers it, where it stays on the unit sphere.
        prototypes, slopes = np.asarray(state.learned.clusters.prototype), np.asarray(slopes)
        if isinstance(solver.family, UnitNormImages):
            slopes = slopes - np.sum(slopes * prototypes, (1, 2, 3), keepdims=True) * prototypes
        np.testing.assert_allclose(slopes, 0.0, atol=1e-3)
    rises = np.diff(losses)
    assert np.all(rises <= 1e-5 * losses[0]), losses


# Against scikit-learn.


def test_kmeans_is_scikit_learns() -> None:
    images = load_digits().images
    start = images[np.random.default_rng(0).choice(len(images), 10, replace=False)]
    model = KMeans(10, num_restarts=1, split_merge=False)
    result = model.fit(images, key=jax.random.key(0), prototypes=start)
    expected = sklearn.cluster.KMeans(
        10, init=start.reshape(10, -1).astype(float), n_init=1, algorithm="lloyd", tol=0.0
    ).fit(images.reshape(len(images), -1).astype(float))
    assert result.outcome.status is Status.ASSIGNMENTS
    np.testing.assert_array_equal(result.assignments, expected.labels_)
    np.testing.assert_allclose(result.loss, expected.inertia_, rtol=1e-5)
    centres = expected.cluster_centers_.reshape(result.prototypes.shape)
    np.testing.assert_allclose(result.prototypes, centres, atol=1e-5)
    assert np.all(np.diff(result.history) <= 1e-5 * result.loss)


# Weights, chunks, devices.


@pytest.mark.parametrize("solver", [PLAIN, ALIGNED], ids=["plain", "aligned"])
def test_weights_are_duplicates(solver: Lloyd) -> None:
    samples = blobs(10)
    times = np.asarray([1, 3, 1, 2, 1, 1, 2, 1, 3, 1])
    stopping = Stopping(4, 0.0)
    weighted = run(solver, samples, samples[:3], 16, stopping, times.astype(np.float32))
    repeated = run(solver, np.repeat(samples, times, axis=0), samples[:3], 16, stopping)
    np.testing.assert_allclose(weighted.history, repeated.history, rtol=1e-5)
    np.testing.assert_allclose(
        weighted.learned.clusters.prototype, repeated.learned.clusters.prototype, atol=1e-5
    )
    np.testing.assert_array_equal(
        np.repeat(assigned(weighted.memory, 10), times), assigned(repeated.memory, 16)
    )
    np.testing.assert_allclose(weighted.tally.count, repeated.tally.count)


@pytest.mark.parametrize(
    ("solver", "sizes"), [(PLAIN, (7, 16, 64)), (ALIGNED, (5, 16))], ids=["plain", "aligned"]
)
def test_chunks_and_their_padding_do_not_matter(solver: Lloyd, sizes: tuple[int, ...]) -> None:
    samples = blobs(16)
    runs = [run(solver, samples, samples[:3], size, Stopping(4, 0.0)) for size in sizes]
    for other in runs[1:]:
        np.testing.assert_allclose(other.history, runs[0].history, rtol=1e-5)
        np.testing.assert_array_equal(assigned(other.memory, 16), assigned(runs[0].memory, 16))
        np.testing.assert_allclose(
            other.learned.clusters.prototype, runs[0].learned.clusters.prototype, atol=1e-4
        )
        np.testing.assert_allclose(other.tally.count, runs[0].tally.count)
    assert float(np.sum(runs[0].tally.count)) == 16


def step(solver: Lloyd, state: LloydState, batch: Batch, memory: Memory):
    return solver.step(state, batch, memory, axis_name="devices")


def by_vmap(step, state, batch, memory):
    return by_axis(jax.jit(jax.vmap(step, (None, 0, 0), axis_name="devices")), state, batch, memory)


def by_pmap(step, state, batch, memory):
    return by_axis(jax.pmap(step, "devices", in_axes=(None, 0, 0)), state, batch, memory)


def by_axis(mapped, state, batch, memory):
    split = jax.tree.map(lambda x: x.reshape(4, 4, *x.shape[1:]), (batch, memory))
    state, memory = mapped(state, *split)
    for leaf in jax.tree.leaves(state):  # the same sums on every device
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    joined = jax.tree.map(lambda x: x.reshape(16, *x.shape[2:]), memory)
    return jax.tree.map(lambda x: x[0], state), joined


def by_shard_map(step, state, batch, memory):
    mesh = jax.make_mesh((4,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, everywhere = PartitionSpec("devices"), PartitionSpec()
    specs = {"in_specs": (everywhere, rows, rows), "out_specs": (everywhere, rows)}
    return jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))(state, batch, memory)


@pytest.mark.parametrize(
    ("solver", "mapped"),
    [
        (PLAIN, by_vmap),
        *([] if EMPTY_ARRAYS_CRASH else [(PLAIN, by_pmap), (PLAIN, by_shard_map)]),
        pytest.param(ALIGNED, by_vmap, marks=pytest.mark.slow),
        pytest.param(ALIGNED, by_pmap, marks=pytest.mark.slow),
        pytest.param(ALIGNED, by_shard_map, marks=pytest.mark.slow),
    ],
    ids=lambda part: getattr(part, "__name__", type(getattr(part, "aligner", None)).__name__),
)
def test_step_over_devices_is_the_step(solver: Lloyd, mapped: Callable) -> None:
    assert jax.device_count() == 4
    chunks = prepared(solver, blobs(16), 16, np.linspace(0.5, 2, 16))
    state, memory = started(solver, chunks, blobs(16)[:3])
    expected, (remembered,) = sum_over_chunks(solver.step, chunks, state, memory)
    result = mapped(functools.partial(step, solver), state, chunks.batches[0], memory[0])
    chex.assert_trees_all_close(result, (expected, remembered), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("moving", [0, 3, 40])
def test_kept_sums_are_the_sums_counted_anew(moving: int) -> None:
    samples, weight = blobs(64), np.linspace(0.0, 2.0, 64)
    chunks = prepared(PLAIN, samples, 64, weight)
    state, memory = started(PLAIN, chunks, samples[:3])
    passed, memory = sum_over_chunks(PLAIN.step, chunks, state, memory)
    # Some samples are said to have been elsewhere, as if they had changed since.
    was = np.asarray(memory[0].cluster[:, 0]).copy()
    was[:moving] = (was[:moving] + 1) % 3
    past = eqx.tree_at(lambda m: m.cluster, memory[0], memory[0].cluster.at[:, 0].set(was))
    member = np.eye(3)[was] * weight[:, None]
    flat = np.asarray(chunks.batches[0].samples).reshape(64, -1)
    sums = (member.T @ flat).reshape(passed.statistics.image.shape).astype(np.float32)
    count = member.sum(0).astype(np.float32)
    before = Sums(
        jnp.asarray(sums),
        jnp.broadcast_to(jnp.asarray(count)[:, None, None, None], passed.statistics.weight.shape),
        jnp.asarray(count),
    )
    kept = eqx.tree_at(lambda s: s.statistics, state, before)
    expected, _ = sum_over_chunks(PLAIN.step, chunks, state, (past,))
    incremental = eqx.Partial(PLAIN.step, incremental=True)
    result, _ = sum_over_chunks(incremental, chunks, kept, (past,))
    chex.assert_trees_all_close(result, expected, rtol=1e-5, atol=1e-4)


def test_fits_that_keep_their_sums_are_those_that_count_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fit(large: int) -> Outcome:
        monkeypatch.setattr("diffclust.solvers.lloyd_run._LARGE", large)
        settings = plan(penalty=(), stopping=Stopping(20, 0.0))
        return fit_prototypes(PLAIN, settings, blobs(64), None, key=jax.random.key(0))

    kept, anew = fit(0), fit(2**40)
    np.testing.assert_array_equal(kept.assignment.clusters, anew.assignment.clusters)
    np.testing.assert_allclose(kept.history, anew.history, rtol=1e-5)


@pytest.mark.slow
def test_double_precision_is_kept() -> None:
    samples = blobs(16)
    single = run(ALIGNED, samples, samples[:3], 16, Stopping(2, 0.0))
    with jax.enable_x64(True):
        double = samples.astype(np.float64)
        result = run(ALIGNED, double, double[:3], 16, Stopping(2, 0.0))
    for leaf in jax.tree.leaves((result.learned, result.tally, result.memory)):
        assert leaf.dtype in (jnp.float64, jnp.int32)
    np.testing.assert_allclose(result.history, single.history, rtol=1e-3)


# Whole fits.


def plan(**settings) -> LloydPlan:
    default = LloydPlan(3, (0.1,), 2, Stopping(4, 1e-3), SplitMerge(rounds=0))
    return dataclasses.replace(default, **settings)


def test_same_key_gives_the_same_bits() -> None:
    samples = blobs(16, seed=3)
    runs = [
        fit_prototypes(ALIGNED, plan(), samples, None, key=jax.random.key(s)) for s in (7, 7, 8)
    ]
    same, other = (
        [
            np.array_equal(a, b)
            for a, b in zip(
                jax.tree.leaves((runs[0].learned, runs[0].assignment.params, runs[0].restarts)),
                jax.tree.leaves((run.learned, run.assignment.params, run.restarts)),
                strict=True,
            )
        ]
        for run in runs[1:]
    )
    assert all(same)
    assert not all(other)


def test_best_of_several_restarts_is_kept() -> None:
    outcome = fit_prototypes(
        PLAIN, plan(penalty=(), num_restarts=5), blobs(16, seed=3), None, key=jax.random.key(0)
    )
    assert len(outcome.restarts) == 5
    assert outcome.loss == pytest.approx(min(outcome.restarts), rel=2e-5)
    assert outcome.loss < max(outcome.restarts)
    assert outcome.num_passes == len(outcome.history)


@pytest.mark.slow
def test_restarts_on_coarse_images_are_finished_on_the_fine() -> None:
    samples = blobs(16, 15, 20, seed=3)
    settings = plan(penalty=(), coarsening=2, stopping=Stopping(20, 0.0))
    result = fit_prototypes(PLAIN, settings, samples, None, key=jax.random.key(0))
    prototypes = np.asarray(result.learned.clusters.prototype)
    assert prototypes.shape == (3, 15, 20, 1)
    means = [samples[result.assignment.clusters == k].mean(0) for k in range(3)]
    np.testing.assert_allclose(prototypes, means, atol=1e-5)
    # The restarts' losses are those on coarse images, four times fewer pixels.
    assert max(result.restarts) < result.loss
    assert result.status is Status.ASSIGNMENTS


def test_empty_clusters_are_refilled() -> None:
    samples = blobs(16)
    far = np.stack([samples[0], samples[1] + 50, samples[2] - 50])
    first = run(PLAIN, samples, far, 16, FIRST_PASS)
    np.testing.assert_array_equal(first.tally.count, [16, 0, 0])
    later = run(PLAIN, samples, far, 16, Stopping(10, 0.0))
    assert np.all(np.asarray(later.tally.count) > 0)
    assert later.status is Status.ASSIGNMENTS
    # The worst samples found the new clusters.
    second = run(PLAIN, samples, far, 16, Stopping(2, 0.0))
    worst = np.argsort(-np.asarray(first.memory[0].energy[:, 0]))[:2]
    np.testing.assert_array_equal(assigned(second.memory, 16)[worst], [1, 2])
    np.testing.assert_allclose(np.asarray(second.memory[0].energy[worst, 0]), 0.0, atol=1e-5)


# The mean of six copies is not, to the last digit, what they are copies of.
@pytest.mark.parametrize(
    ("images", "copies"), [(blobs(2), 4), (np.random.default_rng(0).random((1, 8, 8, 1)), 6)]
)
def test_fewer_different_samples_than_clusters_come_to_an_end(
    images: np.ndarray, copies: int
) -> None:
    samples = np.repeat(images, copies, axis=0)
    result = KMeans(3, num_restarts=1, max_passes=50).fit(samples, key=jax.random.key(0))
    np.testing.assert_allclose(result.loss, 0.0, atol=1e-5)
    # A cluster that no refill helps does not keep it going.
    assert result.outcome.num_passes < 10
    assert result.outcome.status is Status.ASSIGNMENTS


def test_very_unequal_weights_raise_nothing_beyond_rounding() -> None:
    random = np.random.default_rng(3)
    samples = random.uniform(size=(300, 4, 4, 1)).astype(np.float32)
    weight = np.where(np.arange(300) < 4, 1e7, 1.0)
    for seed in range(4):
        model = KMeans(8, num_restarts=1, split_merge=False)
        result = model.fit(samples, key=jax.random.key(seed), sample_weight=weight)
        assert result.outcome.status is Status.ASSIGNMENTS


def test_a_group_that_weighs_nothing_begins_as_its_mean() -> None:
    samples, groups = blobs(32, seed=2), np.arange(32) % 2
    model = KMeans(2, num_restarts=1, split_merge=False, max_passes=1)
    weight = np.where(groups == 0, 1.0, 0.0)
    result = model.fit(samples, key=jax.random.key(0), assignments=groups, sample_weight=weight)
    means = [samples[groups == k].mean(0) for k in range(2)]
    np.testing.assert_allclose(result.prototypes, means, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("stopping", "status"),
    [
        (Stopping(1, 0.0), Status.MAX_PASSES),
        (Stopping(50, 0.0), Status.ASSIGNMENTS),
        (Stopping(50, 0.9), Status.LOSS),
    ],
    ids=["passes", "assignments", "loss"],
)
def test_reason_for_stopping_is_told(stopping: Stopping, status: Status) -> None:
    samples = blobs(64, seed=5)
    result = run(PLAIN, samples, samples[:3], 64, stopping)
    assert result.status is status
    assert len(result.history) <= stopping.max_passes


def test_loss_that_is_no_number_is_an_error() -> None:
    samples = blobs(16)
    samples[3] = 1e30
    with pytest.raises(FitError, match="pass 0: the loss is (nan|inf)"):
        KMeans(2).fit(samples, key=jax.random.key(0), prototypes=samples[:2])


class Observed(AbstractSampleEnergy):
    """Squared distances over what was observed: a sample's second channel says where."""

    num_params = num_penalties = 0
    family = MeanImages()

    def bind(self, sample):
        def energy(params, sample, clusters):
            del params
            difference = (sample[..., :1] - clusters.prototype[..., :1]) ** 2
            return jnp.sum(difference * sample[..., 1:])

        return energy

    def unaligned(self, sample, clusters):
        return jax.vmap(lambda c: self.bind(sample)(None, sample, c))(clusters)

    def coarser(self, sample, factor, *, sigma=None):
        raise NotImplementedError

    def penalties(self, params):
        return jnp.zeros((0,), params.dtype)

    def aligned(self, params, sample):
        del params
        return sample

    def pixel_weight(self, params, sample):
        del params
        return sample[..., 1:]


def test_sums_that_are_kept_weigh_pixels_as_new_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    samples = blobs(60)[..., :1]
    seen = (rng.random(samples.shape) < 0.5).astype(np.float32)
    samples = np.concatenate([samples * seen, seen], axis=3)
    solver = Lloyd(Observed(), NoAlignment())
    runs = []
    for large in (1 << 30, 1):
        monkeypatch.setattr(lloyd_run, "_LARGE", large)
        runs.append(run(solver, samples, samples[:4], 30, Stopping(8, None)))
    assert len(runs[0].history) == 8
    np.testing.assert_allclose(runs[1].history, runs[0].history, rtol=1e-5)


@hypothesis.given(strategies.lists(strategies.floats(-1e3, 1e3), min_size=1, max_size=6))
def test_of_restarts_that_end_alike_the_first_is_kept(losses: list[float]) -> None:
    best = best_restart(losses)
    least = min(losses)
    assert losses[best] - least <= len(losses) * 1e-5 * max(map(abs, losses))
    # Rounding does not choose.
    assert best_restart(
        [loss * (1 + 1e-7 * (i % 3)) for i, loss in enumerate([*losses] * 2)]
    ) < len(losses)
    assert best_restart([np.inf, *losses]) > 0


def test_one_set_of_samples_serves_several_problems() -> None:
    samples, key, plan = (
        3.0 * blobs(20),
        jax.random.key(0),
        LloydPlan(3, (), 1, Stopping(3, 0.0), SplitMerge(rounds=0)),
    )
    shared = Data(samples, chunk_size=20)
    for family in (MeanImages(), UnitNormImages()):
        solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), family)
        alone = Data(samples, chunk_size=20)
        losses = [
            drive((LloydProblem(solver, plan),), data, key).history for data in (shared, alone)
        ]
        assert losses[0] == losses[1]


def test_sums_of_heavy_samples_leave_no_rounding_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heavy ones leave the middle cluster, and light ones stay."""
    grey = [0.1, 0.26, 0.3, 0.45, 0.6, 0.64, 0.8]
    images = np.random.default_rng(0).normal(size=(700, 6, 6, 1)) * 0.001
    kind = np.arange(700) % 7
    images = (images + np.take(grey, kind)[:, None, None, None]).astype(np.float32)
    weight = np.where(kind == 3, 1.0, 1e7)
    model, start = KMeans(3, num_restarts=1, split_merge=False), images[[0, 3, 6]]
    results = []
    for large in (0, 2**40):
        monkeypatch.setattr(lloyd_run, "_LARGE", large)
        settings = {"sample_weight": weight, "prototypes": start}
        results.append(model.fit(images, key=jax.random.key(0), **settings))
    np.testing.assert_allclose(results[0].prototypes, results[1].prototypes, rtol=1e-4)
    np.testing.assert_array_equal(results[0].assignments, results[1].assignments)


@pytest.mark.parametrize("count", [3, 40])
def test_candidates_without_alignment_are_sorted(count: int) -> None:
    """Of few by one minimum after another, of many by a sort."""
    samples = jnp.asarray(blobs(5))
    prototypes = jnp.asarray(np.random.default_rng(0).random((50, *samples.shape[1:])), jnp.float32)
    solver = dataclasses.replace(PLAIN, aligner=NoAlignment(candidates=count))
    clusters = Clusters(prototypes, jnp.zeros((50, 0)))
    found = solver.assign(solver.init(clusters).learned, samples, None)
    distances = np.sum((np.asarray(samples)[:, None] - np.asarray(prototypes)) ** 2, (2, 3, 4))
    np.testing.assert_array_equal(found.cluster, np.argsort(distances, axis=1)[:, :count])
    np.testing.assert_allclose(found.energy, np.sort(distances, axis=1)[:, :count], rtol=1e-5)
    missing = solver.assign(solver.init(clusters).learned, samples.at[0, 0, 0].set(jnp.nan), None)
    assert np.isnan(missing.energy[0]).all()


def test_penalties_of_a_perfect_fit_stay_as_they_are() -> None:
    images = np.repeat(blobs(3), 4, axis=0)
    model = AffineInvariantKMeans(3, penalty_rounds=1, unit_norm=False, split_merge=False)
    model = dataclasses.replace(model, num_restarts=1, max_passes=3)
    result = model.fit(images, key=jax.random.key(0), prototypes=images[::4])
    np.testing.assert_allclose(result.loss, 0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (0, "not int"),
        (jax.random.split(jax.random.key(0)), r"not key<fry>\[2\]"),
        (jax.random.key(0, impl="rbg"), "not key<rbg>"),
        (np.zeros(3, np.uint32), r"not uint32\[3\]"),
    ],
)
def test_what_is_no_key_is_refused(key: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"key must be a random key.*{message}"):
        checked_key(key)


def test_keys_of_the_older_kind_are_the_same() -> None:
    images, model = blobs(12), KMeans(2, num_restarts=1)
    old, new = (model.fit(images, key=f(3)) for f in (jax.random.PRNGKey, jax.random.key))
    np.testing.assert_array_equal(old.prototypes, new.prototypes)


@pytest.mark.parametrize("unit", [0.01, 10.0])
def test_a_pass_must_lower_the_loss_by_a_share_of_it(unit: float) -> None:
    samples = np.float32(unit) * blobs(64, seed=5)
    result = run(PLAIN, samples, samples[:3], 64, Stopping(50, 0.02))
    falls = -np.diff(result.history) / result.history[:-1]
    assert (falls[:-1] > 0.02).all()
    assert falls[-1] <= 0.02
    assert result.status is Status.LOSS


def test_a_refilled_cluster_has_the_penalties_of_its_source() -> None:
    samples, penalty = jnp.asarray(blobs(6)), jnp.asarray([[0.1], [0.2], [0.3]])
    state = ALIGNED.init(Clusters(samples[:3], penalty))
    empty, source = jnp.asarray([False, True, False]), jnp.asarray([1, 2, 0])
    clusters = refilled(ALIGNED, state, empty, source, samples[3:]).learned.clusters
    np.testing.assert_array_equal(clusters.penalty[:, 0], penalty[jnp.asarray([0, 2, 2]), 0])
    for new, old in zip(clusters.prototype, (samples[0], samples[4], samples[2]), strict=True):
        scale = jnp.sqrt(jnp.sum(old**2)) / jnp.sqrt(jnp.sum(new**2))
        np.testing.assert_allclose(scale * new, old, atol=1e-5)


def test_a_heavy_sample_refills_before_a_light_one_that_is_farther() -> None:
    samples = np.asarray([0.0, 0.1, -0.1, 3.0, 4.0], np.float32)[:, None, None, None]
    far, weight = np.asarray([0.0, 99.0], np.float32)[:, None, None, None], [1, 1, 1, 4, 1]
    result = run(PLAIN, samples, far, 16, Stopping(2, 0.0), np.asarray(weight, np.float32))
    np.testing.assert_array_equal(assigned(result.memory, 5), [0, 0, 0, 1, 1])
    np.testing.assert_allclose(result.memory[0].energy[3:5, 0], [0.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("per_cluster", [False, True])
def test_clusters_share_learned_penalty_weights_unless_asked(per_cluster: bool) -> None:
    settings = plan(penalty_rounds=1, penalty_per_cluster=per_cluster, num_restarts=1)
    result = fit_prototypes(ALIGNED, settings, blobs(16), None, key=jax.random.key(0))
    weights = np.asarray(result.learned.clusters.penalty)[:, 0]
    assert np.abs(np.log(weights / 0.1)).min() > 0.01
    assert (np.ptp(np.log(weights)) > 0.01) == per_cluster


@pytest.mark.parametrize(
    ("shape", "unit"), [((64, 64, 1), False), ((64, 64, 1), True), ((64, 2), False)]
)
def test_penalties_are_lowered_as_distances_of_coarse_samples_are(
    shape: tuple[int, ...], unit: bool
) -> None:
    family = UnitNormImages() if unit else MeanImages()
    solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), family)
    problem = LloydProblem(solver, plan(penalty=(), coarsening=4))
    # Little of the difference lies at the edge, which is smoothed.
    samples = np.ones((4, *shape), np.float32)
    samples[1:, 32:] = 3.0
    data = Data(samples, None, 4)
    fine, coarse = (
        np.asarray(problem.level(data, factor).gather(np.arange(2)), np.float64)
        for factor in (1, 4)
    )
    ratio = np.sum((fine[0] - fine[1]) ** 2) / np.sum((coarse[0] - coarse[1]) ** 2)
    assert problem._pixels(data) == pytest.approx(ratio, rel=0.2)
