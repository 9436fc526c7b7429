import dataclasses

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from diffclust.alignment import GridSearch, NoAlignment
from diffclust.distances import LandmarkNegativeLogLikelihood
from diffclust.energies import Entropic, LandmarkEnergy, TransformedDistance
from diffclust.models import Clustering, DTIKMeans, Training
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import MeanImages, MeanShapes, UnitNormImages
from diffclust.solvers import (
    Lloyd,
    LloydPlan,
    SplitMerge,
    Stopping,
    compiled_lloyd,
    random_assignments,
)
from diffclust.solvers.compiled import _worst
from diffclust.transforms import Identity, Translation, params_grid
from tests.fits import fit_prototypes

N, K = 48, 3


def shapes_and_solver():
    rng = np.random.default_rng(1)
    means = rng.normal(size=(K, 5, 2))
    kind = np.arange(N) % K
    shapes = (means[kind] + 0.4 * rng.normal(size=(N, 5, 2))).astype(np.float32)
    family = MeanShapes(
        jnp.asarray(shapes.mean(0)), jnp.asarray(shapes.var(0)), jnp.float32(1e-4), prior=2.0
    )
    return shapes, Lloyd(LandmarkEnergy(LandmarkNegativeLogLikelihood()), NoAlignment(), family)


def images_and_solver():
    images = np.random.default_rng(2).uniform(size=(N, 4, 5, 1)).astype(np.float32)
    return images, Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())


@pytest.mark.parametrize("make", [shapes_and_solver, images_and_solver])
def test_a_whole_run_ends_where_the_loop_on_the_host_does(make):
    samples, solver = make()
    given = random_assignments(jax.random.key(3), N, K)
    whole = jax.jit(lambda x, a: compiled_lloyd(solver, Batch(x, jnp.ones(N)), a, num_clusters=K))(
        samples, given
    )
    plan = LloydPlan(K, (), 1, Stopping(100, 0.0), SplitMerge(rounds=0))
    host = fit_prototypes(
        solver,
        plan,
        samples,
        None,
        key=jax.random.key(0),
        chunk_size=N,
        start=("assignments", given),
    )
    np.testing.assert_array_equal(whole.cluster, host.assignment.clusters)
    np.testing.assert_allclose(whole.loss, host.loss, rtol=1e-5)
    assert bool(whole.converged)
    assert int(whole.passes) == host.num_passes


@pytest.mark.slow
def test_runs_are_mapped_over_restarts():
    shapes, solver = shapes_and_solver()
    batch = Batch(jnp.asarray(shapes), jnp.ones(N))
    starts = jnp.stack([random_assignments(jax.random.key(s), N, K) for s in range(4)])
    mapped = jax.vmap(lambda a: compiled_lloyd(solver, batch, a, num_clusters=K))(starts)
    alone = [compiled_lloyd(solver, batch, a, num_clusters=K) for a in starts]
    np.testing.assert_allclose(mapped.loss, [run.loss for run in alone], rtol=1e-5)
    np.testing.assert_array_equal(mapped.cluster, [run.cluster for run in alone])


def moving_solver():
    """Shifts on a grid, each of which costs as the penalty weight says."""
    grid = params_grid((-0.4, 0.0, 0.4), (-0.5, 0.0, 0.5))
    return Lloyd(TransformedDistance(Translation()), GridSearch(grid, fourier=False))


@pytest.mark.slow
def test_whole_fits_are_mapped_over_penalties_and_compiled_once():
    images, solver, traced = images_and_solver()[0], moving_solver(), []
    batch, start = (
        Batch(jnp.asarray(images), jnp.ones(N)),
        random_assignments(jax.random.key(3), N, K),
    )

    def fit(penalty):
        traced.append(penalty)
        settings = {"num_clusters": K, "penalty": penalty, "max_passes": 5}
        return compiled_lloyd(solver, batch, start, **settings)

    penalties, alone = jnp.asarray([[0.0], [0.3], [100.0]]), jax.jit(fit)
    mapped = jax.jit(jax.vmap(fit))(penalties)
    runs = [alone(penalty) for penalty in penalties]
    assert len(traced) == 2  # one program for all at once, one for each alone
    np.testing.assert_allclose(mapped.loss, [run.loss for run in runs], rtol=1e-5)
    np.testing.assert_array_equal(mapped.cluster, [run.cluster for run in runs])
    moved = np.abs(np.asarray(mapped.params)).max(axis=(1, 2))
    assert moved[0] > 0.0
    assert moved[2] == 0.0  # too dear


def test_a_new_temperature_compiles_nothing():
    images, plain = images_and_solver()
    traced = []

    @jax.jit
    def fit(reduction):
        traced.append(reduction)
        solver = dataclasses.replace(plain, aligner=NoAlignment(candidates=K), reduction=reduction)
        batch = Batch(jnp.asarray(images), jnp.ones(N))
        start = random_assignments(jax.random.key(3), N, K)
        return compiled_lloyd(solver, batch, start, num_clusters=K, max_passes=3).loss

    losses = [float(fit(Entropic(temperature))) for temperature in (0.1, 1.0, 10.0)]
    assert len(traced) == 1
    assert losses == sorted(losses, reverse=True)


@pytest.fixture
def compiled():
    """What is compiled, or read from the cache of programs, from now on."""
    events = []

    def listen(event, seconds, **about):
        if "backend_compile" in event:
            events.append((about, seconds))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    jax.monitoring.unregister_event_duration_listener(listen)


def own_model(penalty):
    return Clustering(K, moving_solver(), penalties=(penalty,), max_passes=5, num_restarts=1)


def trained_model(penalty):
    training = Training(steps=(2, 2, 2), batch_size=8)
    return DTIKMeans(K, transforms="aff", deformation_penalty=penalty, training=training)


@pytest.mark.slow
@pytest.mark.parametrize("model_of", [own_model, trained_model])
def test_a_new_penalty_of_a_model_compiles_nothing(compiled, model_of):
    images = images_and_solver()[0]

    def fit(penalty):
        return model_of(penalty).fit(images, key=jax.random.key(0)).loss

    cheap = fit(0.3)
    assert compiled
    compiled.clear()
    assert fit(0.4) != cheap
    assert not compiled


def test_an_empty_cluster_is_begun_anew():
    images, solver = images_and_solver()
    run = compiled_lloyd(
        solver, Batch(jnp.asarray(images), jnp.ones(N)), jnp.zeros(N, jnp.int32), num_clusters=K
    )
    assert np.bincount(run.cluster, minlength=K).min() > 0
    assert bool(run.converged)


def test_a_cluster_that_no_refill_helps_does_not_keep_it_going():
    images, solver = images_and_solver()
    two = jnp.asarray(np.repeat(images[:2], 4, axis=0))
    run = compiled_lloyd(solver, Batch(two, jnp.ones(8)), jax.random.key(0), num_clusters=3)
    assert bool(run.converged)
    assert int(run.passes) < 10


def test_groups_that_weigh_nothing_begin_as_their_plain_means():
    images, solver = images_and_solver()
    images[::3] += 5.0
    groups = jnp.arange(N, dtype=jnp.int32) % K
    weight = jnp.where(groups == 0, 0.0, 1.0)
    run = compiled_lloyd(
        solver, Batch(jnp.asarray(images), weight), groups, num_clusters=K, max_passes=1
    )
    np.testing.assert_allclose(
        run.learned.clusters.prototype[0], images[::3].mean(axis=0), rtol=1e-5
    )


def test_samples_of_weight_zero_refill_nothing_where_energies_are_negative():
    batch = Batch(jnp.zeros((4, 1)), jnp.asarray([1.0, 1.0, 1.0, 0.0]))
    energy, empty = jnp.asarray([-50.0, -10.0, -3.0, -40.0]), jnp.asarray([True, False])
    assert int(_worst(energy, batch, empty)[0]) == 2


def test_samples_are_brought_to_the_scale_of_the_family():
    images, solver = images_and_solver()
    solver = dataclasses.replace(solver, family=UnitNormImages())
    given = random_assignments(jax.random.key(3), N, K)
    first = compiled_lloyd(solver, Batch(images, jnp.ones(N)), given, num_clusters=K)
    again = compiled_lloyd(solver, Batch(5 * images, jnp.ones(N)), given, num_clusters=K)
    np.testing.assert_allclose(first.loss, again.loss, rtol=1e-5)
    cosines = np.einsum(
        "nhwc,khwc->nk",
        images / np.sqrt(np.sum(images**2, axis=(1, 2, 3), keepdims=True)),
        np.asarray(first.learned.clusters.prototype),
    )
    np.testing.assert_array_equal(first.cluster, cosines.argmax(axis=1))
    np.testing.assert_allclose(first.loss, np.sum(2 - 2 * cosines.max(axis=1)), rtol=1e-4)


def test_the_most_passes_are_kept():
    images, solver = images_and_solver()
    given = random_assignments(jax.random.key(3), N, K)
    batch = Batch(jnp.asarray(images), jnp.ones(N))
    run = compiled_lloyd(solver, batch, given, num_clusters=K, max_passes=1)
    assert int(run.passes) == 1
    assert not bool(run.converged)


def test_random_assignments_are_even():
    counts = np.bincount(random_assignments(jax.random.key(0), 11, 3))
    assert sorted(counts) == [3, 4, 4]


def test_what_does_not_fit_is_one_line():
    images, solver = images_and_solver()
    start = jnp.zeros(N, jnp.int32)

    def solve(images, start, count=K, weight=N, **settings):
        batch = Batch(jnp.asarray(images), jnp.ones(weight))
        return compiled_lloyd(solver, batch, start, num_clusters=count, **settings)

    clusters = solve(images, start).learned.clusters
    smaller = jax.tree.map(lambda leaf: leaf[:, :1], clusters)
    for message, given in {
        "samples must be floating numbers, not int32": (images.astype(np.int32), start),
        "number of samples is 48": (images, start, 100),
        "48 whole numbers, one for each sample; got int32": (images, start[:1]),
        "the start has 3 clusters, num_clusters is 5": (images, clusters, 5),
        r"clusters must have shapes \[\(3, 4, 5, 1\), \(3, 0\)\], not \[\(3, 1": (images, smaller),
        r"48 samples have 48 weights, not \(1,\)": (images, start, K, 1),
    }.items():
        with pytest.raises(ValueError, match=message):
            solve(*given)
    with pytest.raises(ValueError, match="the energy has 0 penalties, one weight for each"):
        solve(images, start, penalty=(1.0,))
    with pytest.raises(ValueError, match="max_passes must be at least 1, not 0"):
        solve(images, start, max_passes=0)
    # The hook that checks annotations under test is there first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="list|'start'"):
        solve(images, [0] * N)
    with pytest.raises(ValueError, match="clusters have weights of penalties; leave out penalty"):
        solve(images, clusters, penalty=(0.5,))


@pytest.mark.slow
def test_penalties_are_mapped_over():
    images, _ = images_and_solver()
    search = GridSearch(params_grid(np.linspace(-0.5, 0.5, 3), np.zeros(1)), fourier=False)
    solver = Lloyd(TransformedDistance(Translation()), search, MeanImages())
    batch = Batch(jnp.asarray(images), jnp.ones(N))
    keys, penalties = jax.random.split(jax.random.key(0), 2), jnp.asarray([0.01, 0.5])

    def loss(key, penalty):
        return compiled_lloyd(solver, batch, key, num_clusters=K, penalty=(penalty,)).loss

    mapped = jax.vmap(loss)(keys, penalties)
    one_by_one = [loss(*one) for one in zip(keys, penalties.tolist(), strict=True)]
    np.testing.assert_allclose(mapped, one_by_one, rtol=1e-5)


def test_weights_may_be_counts():
    images, solver = images_and_solver()
    count = np.random.default_rng(0).integers(0, 3, N).astype(np.int32)
    for start in (jax.random.key(0), jnp.arange(N) % K):
        whole, real = (
            compiled_lloyd(solver, Batch(jnp.asarray(images), w), start, num_clusters=K)
            for w in (jnp.asarray(count), jnp.asarray(count, jnp.float32))
        )
        np.testing.assert_array_equal(whole.cluster, real.cluster)
        np.testing.assert_array_equal(whole.loss, real.loss)


def test_a_heavy_sample_is_worse_than_a_light_one_that_is_farther():
    batch = Batch(jnp.zeros((3, 1)), jnp.asarray([1.0, 2.0, 1.0]))
    worst = _worst(jnp.asarray([5.0, 4.0, 1.0]), batch, jnp.asarray([True, False, True]))
    assert np.asarray(worst)[[0, 2]].tolist() == [1, 0]


def test_parts_in_double_precision_do_not_change_the_type_of_single_samples() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(N, 4, 5, 1)).astype(np.float32)
    with jax.enable_x64(True):
        reduction = Entropic(jnp.float64(0.5))
        solver = Lloyd(
            TransformedDistance(Identity()), NoAlignment(candidates=K), MeanImages(), reduction
        )
        batch = Batch(jnp.asarray(samples), jnp.ones(N, np.float32))
        run = compiled_lloyd(solver, batch, jax.random.key(0), num_clusters=K)
    assert np.isfinite(run.loss)
    assert run.learned.clusters.prototype.dtype == np.float32
