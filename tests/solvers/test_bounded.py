"""K-means that reads samples in doubt alone is K-means: the same passes, samples by samples."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import KMeans
from diffclust.alignment import NoAlignment
from diffclust.energies import TransformedDistance
from diffclust.models import Clustering
from diffclust.parallel import Data, data_mesh
from diffclust.solvers import Lloyd, Status, bounded, lloyd_run
from diffclust.transforms import Identity

SHAPE = (12, 12, 1)


@pytest.fixture(autouse=True)
def small_sets(monkeypatch):
    """Bounds and sums that are kept for sets of any size."""
    monkeypatch.setattr(bounded, "_LEAST_WORK", 0)
    monkeypatch.setattr(bounded, "LEAST_PASSES", 1)
    monkeypatch.setattr(lloyd_run, "_LARGE", 0)


@pytest.fixture
def read(monkeypatch):
    """How many samples each pass with bounds reads."""
    numbers, sums = [], bounded.sum_over_chunks

    def counted(*args, **kwargs):
        carry, memory = sums(*args, **kwargs)
        numbers.append(int(carry[1]))
        return carry, memory

    monkeypatch.setattr(bounded, "sum_over_chunks", counted)
    return numbers


def blobs(seed, count=400, clusters=8, spread=0.7, offset=0.0, noise=0.05):
    """Images about centres, all of them near a space of few dimensions."""
    draw = np.random.default_rng(seed)
    axes = draw.normal(size=(6, *SHAPE))
    centres = draw.normal(size=(clusters, 6))
    points = centres[draw.integers(clusters, size=count)]
    points = points + spread * draw.normal(size=(count, 6))
    images = np.tensordot(points, axes, axes=1) + noise * draw.normal(size=(count, *SHAPE))
    return (images + offset).astype(jnp.result_type(float))


def plainly(model, images, monkeypatch, **settings):
    """The same fit without bounds."""
    with monkeypatch.context() as patch:
        patch.setattr("diffclust.solvers.bounded.bounds_for", lambda *_: None)
        return model.fit(images, **settings)


def model_of(clusters=8, **settings):
    settings = {"num_restarts": 2, "split_merge": False} | settings
    return KMeans(clusters, **settings)


def assert_same(one, other, tolerance):
    np.testing.assert_array_equal(one.assignments, other.assignments)
    assert len(one.history) == len(other.history)
    np.testing.assert_allclose(one.history, other.history, rtol=tolerance)
    ours, theirs = one.outcome.assignment, other.outcome.assignment
    np.testing.assert_array_equal(ours.runners_up, theirs.runners_up)
    scale = np.abs(theirs.distances).max()
    np.testing.assert_allclose(ours.distances, theirs.distances, atol=tolerance * scale)
    np.testing.assert_allclose(ours.margins, theirs.margins, atol=tolerance * scale)
    np.testing.assert_allclose(one.prototypes, other.prototypes, atol=10 * tolerance)
    assert one.outcome.status == other.outcome.status


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"split_merge": True}, marks=pytest.mark.slow),
        {"tolerance": 1e-3},
        {"max_passes": 3},
    ],
)
def test_it_is_the_same_fit(read, monkeypatch, key, settings):
    with jax.enable_x64(True):
        images, model = blobs(0, spread=1.0), model_of(**settings)
        result = model.fit(images, key=key, chunk_size=112)
        assert read
        assert_same(result, plainly(model, images, monkeypatch, key=key, chunk_size=112), 1e-9)


def test_most_samples_are_not_read(read, key):
    images = blobs(1, count=2000)
    result = model_of(num_restarts=1).fit(images, key=key)
    assert len(read) == len(result.history) - 1
    assert read[-1] < 0.05 * len(images)
    assert sum(read) < 0.3 * len(images) * len(read)


def test_where_nearly_all_are_in_doubt_passes_read_them_all_again(read, monkeypatch, key):
    with jax.enable_x64(True):
        images = np.random.default_rng(2).normal(size=(300, *SHAPE))
        model = model_of(num_restarts=1)
        result = model.fit(images, key=key)
        assert 0 < len(read) < len(result.history) - 1
        assert_same(result, plainly(model, images, monkeypatch, key=key), 1e-9)


@pytest.mark.slow
def test_weights_and_padding(read, monkeypatch, key):
    with jax.enable_x64(True):
        images = blobs(3, spread=1.0)
        weight = np.random.default_rng(3).choice([0.0, 1.0, 2.5], size=len(images))
        model, settings = model_of(), {"key": key, "sample_weight": weight, "chunk_size": 144}
        result = model.fit(images, **settings)
        assert read
        assert_same(result, plainly(model, images, monkeypatch, **settings), 1e-9)


@pytest.mark.slow
def test_empty_clusters_are_refilled(read, monkeypatch, key):
    with jax.enable_x64(True):
        images, model = blobs(4), model_of(num_restarts=1)
        # Seven of eight prototypes lie where no image is, at first all far from the first.
        start = np.concatenate([images[:1], np.full((7, *SHAPE), 50.0)])
        result = model.fit(images, key=key, prototypes=start)
        assert read
        assert np.bincount(result.assignments, minlength=8).all()
        assert_same(result, plainly(model, images, monkeypatch, key=key, prototypes=start), 1e-9)


def test_devices_share_it(read, monkeypatch, key):
    with jax.enable_x64(True):
        images, model = blobs(5, count=402, spread=1.0), model_of()
        result = model.fit(images, key=key, mesh=data_mesh(), chunk_size=30)
        assert read
        assert_same(result, plainly(model, images, monkeypatch, key=key), 1e-9)


@pytest.mark.filterwarnings("ignore:two clusters are .* lose digits")
@pytest.mark.parametrize("change", ["offset", "outlier", "far and without weight"])
def test_in_single_precision_others_decide_no_more_than_before(read, monkeypatch, key, change):
    images = np.random.default_rng(9).normal(size=(600, *SHAPE)).astype("f4")
    images += 5.0 * (change == "offset")
    weight = np.ones(600)
    if change != "offset":
        images[5] *= 1000.0
        weight[5] = change == "outlier"
    model, settings = model_of(4, num_restarts=1), {"key": key, "sample_weight": weight}
    settings["prototypes"] = images[[0, 1, 2, 5 if change == "outlier" else 3]]
    result = model.fit(images, **settings)
    # The sums of so far an image do not tell the loss.
    assert bool(read) == (change != "outlier")
    assert_same(result, plainly(model, images, monkeypatch, **settings), 1e-4)


def test_coarse_samples_have_their_own(read, monkeypatch, key):
    images = np.repeat(np.repeat(blobs(10, spread=1.0), 2, axis=1), 2, axis=2)
    plain = Lloyd(TransformedDistance(Identity()), NoAlignment())
    model = Clustering(8, plain, coarser=2, num_restarts=2, tolerance=0.0, max_passes=100)
    with jax.enable_x64(True):
        result = model.fit(images.astype("f8"), key=key)
        assert read
        assert_same(result, plainly(model, images.astype("f8"), monkeypatch, key=key), 1e-9)


def test_an_aligner_that_follows_all_clusters_reads_all_samples(read, key):
    plain = Lloyd(TransformedDistance(Identity()), NoAlignment(candidates=None))
    model = Clustering(8, plain, num_restarts=1, split_merge=False)
    assert len(model.fit(blobs(11), key=key).history) > 2
    assert not read


def test_ties_come_to_rest(read, key):
    """Copies of few images of whole numbers, many of them as near to one mean as to another."""
    draw = np.random.default_rng(8)
    ends = draw.integers(0, 2, size=(6, *SHAPE)).astype("f4")
    middles = (ends[:, None] + ends[None]).reshape(-1, *SHAPE) / 2.0
    images = np.repeat(middles, 11, axis=0)
    result = model_of(6, max_passes=1000).fit(images, key=key, chunk_size=112)
    assert read
    assert result.outcome.status == Status.ASSIGNMENTS
    assert len(result.history) < 50


@pytest.mark.parametrize(
    "changes", [{"offset": 1000.0}, pytest.param({"clusters": 1}, marks=pytest.mark.slow)]
)
def test_where_bounds_do_not_help(read, key, changes):
    clusters = changes.pop("clusters", 8)
    model_of(clusters, num_restarts=1).fit(blobs(7, **changes), key=key)
    assert not read


@hypothesis.given(
    seed=st.integers(0, 2**31), steps=st.lists(st.floats(0.0, 2.0), min_size=1, max_size=4)
)
def test_bounds_hold_in_every_pass(seed, steps):
    """In float32, against distances in float64; clusters are the nearest but for rounding."""
    draw = np.random.default_rng(seed)
    images = blobs(seed, count=160, noise=0.3)
    model = model_of()
    solver = model.solver()
    chunks = Data(jnp.asarray(images), chunk_size=160).level(1, solver.normalise)
    bounds = bounded.bounds_for(solver, chunks, 8)
    prototypes = jnp.asarray(images[draw.choice(160, 8, replace=False)])
    state = solver.init(lloyd_run.clusters_of(solver, prototypes, ()))
    memory = (solver.init_memory(160, 8, chunks.dtype),)
    state, memory = lloyd_run.sum_over_chunks(solver.step, chunks, state, memory)
    for step in steps:
        previous = state.learned
        state = solver.end_pass(state, keep=True)
        moved = state.learned.clusters.prototype + step * draw.normal(size=(8, *SHAPE)).astype("f4")
        learned = dataclasses.replace(
            state.learned, clusters=dataclasses.replace(state.learned.clusters, prototype=moved)
        )
        state = dataclasses.replace(state, learned=learned)
        make = bounds.next_pass(bounded.NO_BACKOFF, learned, previous, np.inf)
        state, memory = make(state, iter(memory), report=None)
        flat, centres = (np.asarray(x, float).reshape(len(x), -1) for x in (images, moved))
        squared = ((flat[:, None] - centres[None]) ** 2).sum(axis=2)
        own, every = np.asarray(memory[0].cluster[:, 0]), np.arange(160)
        upper, lower = np.asarray(memory[0].energy, float).T
        mine, rest = squared[every, own], squared.copy()
        rest[every, own] = np.inf
        assert (mine <= upper * (1 + 1e-5)).all()
        assert (rest.min(axis=1) >= lower * (1 - 1e-5)).all()
        assert (mine <= rest.min(axis=1) + 1e-5 * squared.max()).all()
        sums = np.stack([images[own == k].sum(axis=0) for k in range(8)])
        np.testing.assert_allclose(state.statistics.image, sums, atol=1e-3)
        assert float(state.tally.loss) == pytest.approx(mine.sum(), rel=1e-5)
        np.testing.assert_array_equal(state.tally.count, np.bincount(own, minlength=8))
