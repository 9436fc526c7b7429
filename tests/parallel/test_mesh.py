"""Steps over several devices are the step on one: under vmap, pmap and shard_map, and whole fits.

`conftest.py` makes one CPU look like four before JAX starts.
"""

import functools
import operator
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.data import simulated_shapes
from diffclust.distances import SquaredEuclidean
from diffclust.energies import TransformedDistance
from diffclust.features import Moments
from diffclust.features.moments import feature_moments
from diffclust.features.orthogonal_complement import fit_projection, project_images
from diffclust.graphs import candidate_distances, nearest_neighbours, nested_neighbours
from diffclust.models import (
    AffineInvariantKMeans,
    DeformationInvariantSpectralClustering,
    DTIGaussianMixture,
    DTIKMeans,
    KMeans,
    ProjectedScatteringSpectralClustering,
    ScatteringKMeans,
    ShapeKMeans,
    Training,
    TransformationInvariantKMeans,
)
from diffclust.models.scattering import AbstractScatteringModel
from diffclust.parallel import (
    AXIS,
    data_mesh,
    map_rows,
    replicate,
    shard_batch,
    shard_rows,
    sharded,
    share,
    unreplicated,
)
from diffclust.parallel.chunks import Batch
from diffclust.parallel.mesh import check_batch_size, map_in_chunks
from diffclust.prototypes import Clusters, MeanImages, UnitNormImages
from diffclust.solvers import Lloyd
from diffclust.solvers.gradient import GradientEM
from diffclust.transforms import Affine, Identity, ThinPlateSpline, compose
from tests.registry import blobs

DEVICES = 4
COUNT = 13
"""Samples, which four devices cannot share evenly."""
CLUSTERS = 3
WEIGHT = np.linspace(0.5, 2.0, COUNT).astype(np.float32)


class Case(NamedTuple):
    """A step with all that it takes; `others` are the same for every sample."""

    step: Callable
    state: PyTree
    batch: Batch
    remember: Callable
    others: tuple = ()


def by_lloyd(solver: Lloyd, samples: np.ndarray) -> Case:
    normal = jax.vmap(solver.family.normalise)(jnp.asarray(samples))
    prototype = jax.vmap(solver.family.init)(normal[:CLUSTERS])
    penalty = jnp.full((CLUSTERS, solver.energy.num_penalties), 0.1)
    state = solver.init(Clusters(prototype, penalty))
    batch = Batch(normal, jnp.asarray(WEIGHT))
    return Case(solver.step, state, batch, lambda n: solver.init_memory(n, CLUSTERS, normal.dtype))


def kmeans() -> Case:
    return by_lloyd(
        Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages()), blobs(COUNT)
    )


def di_kmeans() -> Case:
    energy = TransformedDistance(compose(Affine(), ThinPlateSpline((2, 2))))
    return by_lloyd(Lloyd(energy, Descent((Stage(3),)), UnitNormImages()), blobs(COUNT))


def shapes(count: int = COUNT) -> np.ndarray:
    means = jax.random.normal(jax.random.key(0), (2, 5, 2))
    drawn, _ = simulated_shapes(means, 0.1, per_group=(count + 1) // 2, key=jax.random.key(1))
    return np.asarray(drawn)[:count]


def shape_likelihood() -> Case:
    model, registered = ShapeKMeans(CLUSTERS), jnp.asarray(shapes())
    reference = jnp.mean(registered, axis=0)
    return by_lloyd(
        model.solver(reference, model.initial_covariance(registered, reference)), shapes()
    )


def by_gradient(model: DTIKMeans | DTIGaussianMixture) -> Case:
    """Plain descent, whose step is the gradient: Adam would hide a factor."""
    images = jnp.asarray(blobs(COUNT))
    noise = jax.random.key(1)

    @eqx.filter_jit
    def begun(images):
        learned = model.init(images, jax.random.key(0))
        stirred = jax.tree.map(
            lambda leaf: leaf + 0.02 * jax.random.normal(noise, leaf.shape, leaf.dtype),
            learned.clusters.predictor,
        )
        return eqx.tree_at(lambda tree: tree.clusters.predictor, learned, stirred)

    learned = begun(images[:CLUSTERS])
    whole = model.solver(1, 1)
    solver = GradientEM(
        whole.energy,
        whole.aligner,
        whole.reduction,
        followed=whole.followed,
        optimizer=optax.scale(-1.0),
    )
    batch = Batch(images, jnp.asarray(WEIGHT))
    return Case(
        solver.step, solver.init(learned), batch, lambda n: None, (jnp.asarray(1.0, jnp.float32),)
    )


CASES: dict[str, Callable[[], Case]] = {
    "kmeans": kmeans,
    "di-kmeans": di_kmeans,
    "shape-likelihood": shape_likelihood,
    "dti-kmeans": lambda: by_gradient(DTIKMeans(CLUSTERS, transforms="aff")),
    "dti-gmm": lambda: by_gradient(DTIGaussianMixture(CLUSTERS, transforms="aff")),
}


@functools.cache
def case_of(name: str) -> Case:
    return CASES[name]()


@functools.cache
def on_one_device(name: str) -> tuple[Case, PyTree, PyTree]:
    """The case, and what its step gives under plain jit, without any padding."""
    case = case_of(name)
    given = (case.state, case.batch, case.remember(COUNT), *case.others)
    return case, *eqx.filter_jit(case.step)(*given)


def by_axis(case: Case, mapping: Callable) -> tuple[PyTree, PyTree]:
    """Under a map with a named axis; every device must come to the same state."""
    batch = shard_batch(case.batch, data_mesh())
    rows = (batch, case.remember(len(batch.weight)))
    padded = len(batch.weight)
    split = jax.tree.map(
        lambda x: np.asarray(x).reshape(DEVICES, padded // DEVICES, *x.shape[1:]), rows
    )

    def step(state: PyTree, batch: Batch, memory: PyTree) -> tuple[PyTree, PyTree]:
        return case.step(state, batch, memory, *case.others, axis_name=AXIS)

    state, memory = mapping(step, axis_name=AXIS, in_axes=(None, 0, 0))(case.state, *split)
    for leaf in jax.tree.leaves(state):
        np.testing.assert_array_equal(leaf, np.broadcast_to(leaf[:1], leaf.shape))
    joined = jax.tree.map(lambda x: x.reshape(padded, *x.shape[2:]), memory)
    return jax.tree.map(lambda x: x[0], state), joined


def placed(case: Case) -> tuple[Callable, tuple]:
    """The step over a mesh, and its arguments."""
    mesh = data_mesh()
    batch = shard_batch(case.batch, mesh)
    memory = shard_rows(case.remember(len(batch.weight)), mesh)
    state, others = replicate((case.state, case.others), mesh)
    return sharded(case.step, mesh), (state, batch, memory, *others)


def by_mesh(case: Case) -> tuple[PyTree, PyTree]:
    step, given = placed(case)
    state, memory = eqx.filter_jit(step)(*given)
    for leaf in jax.tree.leaves(state):
        assert leaf.sharding.is_fully_replicated
        first, *others = [np.asarray(part.data) for part in leaf.addressable_shards]
        assert len(others) == DEVICES - 1
        for other in others:
            np.testing.assert_array_equal(other, first)
    for leaf in jax.tree.leaves(memory):
        assert leaf.size == 0 or leaf.sharding.spec[0] == AXIS
    return state, memory


def by_shard_map(case: Case) -> tuple[PyTree, PyTree]:
    """By JAX's own transform with its checks, over a mesh of explicit axes."""
    batch = shard_batch(case.batch, data_mesh())
    memory = case.remember(len(batch.weight))
    rows, everywhere = PartitionSpec(AXIS), PartitionSpec()

    def step(state: PyTree, batch: Batch, memory: PyTree) -> tuple[PyTree, PyTree]:
        return case.step(state, batch, memory, *case.others, axis_name=AXIS)

    mesh = jax.make_mesh((DEVICES,), (AXIS,))
    specs = {"in_specs": (everywhere, rows, rows), "out_specs": (everywhere, rows)}
    with jax.set_mesh(mesh):
        given = (
            jax.device_put(tree, NamedSharding(mesh, spec))
            for tree, spec in zip((case.state, batch, memory), specs["in_specs"], strict=True)
        )
        return jax.device_get(jax.jit(jax.shard_map(step, **specs))(*given))


WAYS: dict[str, Callable[[Case], tuple[PyTree, PyTree]]] = {
    "vmap": lambda case: by_axis(case, lambda f, **axes: jax.jit(jax.vmap(f, **axes))),
    "pmap": lambda case: by_axis(case, jax.pmap),
    "mesh": by_mesh,
    "shard_map": by_shard_map,
}


def close(actual: PyTree, wanted: PyTree, start: PyTree, tolerance: float = 1e-4) -> None:
    """Every leaf moved from where it started as far as it should, by its own scale."""
    for got, want, old in zip(*map(jax.tree.leaves, (actual, wanted, start)), strict=True):
        got, want, old = (np.asarray(x, np.float64) for x in (got, want, old))
        scale = np.max(np.abs(want - old), initial=1e-5)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


BRISK = {"kmeans": WAYS, "shape-likelihood": WAYS, "dti-kmeans": ("pmap", "mesh")}
"""What compiles in a few seconds; over the mesh, all do."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(
            name, way, marks=[] if way in BRISK.get(name, ("mesh",)) else [pytest.mark.slow]
        )
        for name in CASES
        for way in WAYS
    ],
)
def test_step_over_devices_is_the_step(name: str, way: str) -> None:
    assert jax.device_count() == DEVICES
    case, state, memory = on_one_device(name)
    result, present = WAYS[way](case)
    close(result, state, case.state)
    for got, want in zip(jax.tree.leaves(present), jax.tree.leaves(memory), strict=True):
        assert got.shape[0] == 16
        np.testing.assert_allclose(got[:COUNT], want, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("dti")])
def test_gradients_of_all_that_is_learned_are_there(name: str) -> None:
    """Else equal numbers would say nothing of the backbone."""
    case, state, _ = on_one_device(name)
    for part in ("clusters.prototype", "clusters.predictor", "shared"):
        new, old = (operator.attrgetter(part)(s.learned) for s in (state, case.state))
        moved = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), new, old)
        assert max(jax.tree.leaves(moved)) > 1e-6, part


TALK = re.compile(
    r"\b(psum\w*|pmax|pmin|ppermute|all_gather\w*|all_to_all|reduce_scatter|pbroadcast)\["
)
"""The operations in which devices talk, as a traced program prints them."""


@pytest.mark.parametrize("name", CASES)
def test_devices_only_add(name: str) -> None:
    step, given = placed(case_of(name))
    result = TALK.findall(str(jax.make_jaxpr(step)(*given)))
    assert set(result) == {"psum"}, result


@pytest.mark.parametrize("count", [1, 12, 13])
def test_padding_is_copies_that_weigh_nothing(count: int) -> None:
    mesh, images = data_mesh(), blobs(count)
    batch = shard_batch(Batch(jnp.asarray(images), jnp.asarray(WEIGHT[:count])), mesh)
    each = share(count, mesh)
    assert {part.data.shape for part in batch.samples.addressable_shards} == {(each, 8, 8, 1)}
    assert len(batch.samples.addressable_shards) == DEVICES
    padding = DEVICES * each - count
    np.testing.assert_array_equal(batch.samples, np.concatenate([images, *[images[:1]] * padding]))
    np.testing.assert_array_equal(batch.weight, np.append(WEIGHT[:count], [0.0] * padding))
    assert batch.weight.dtype == np.float32


def test_double_precision_is_kept() -> None:
    with jax.enable_x64(True):
        batch = shard_batch(Batch(jnp.asarray(blobs(5), jnp.float64), jnp.ones(5)), data_mesh())
        assert {leaf.dtype for leaf in jax.tree.leaves(batch)} == {np.dtype(np.float64)}


def test_a_step_takes_numbers_and_arrays_without_elements() -> None:
    def step(state, batch, memory, factor, *, axis_name):
        return {**state, "sum": factor * jax.lax.psum(jnp.sum(batch), axis_name)}, memory

    state, memory = {"sum": jnp.zeros(()), "params": jnp.zeros((3, 0))}, jnp.zeros((8, 1, 0))
    result, remembered = jax.jit(sharded(step, data_mesh()))(state, jnp.ones(8), memory, 2.0)
    assert float(result["sum"]) == 16.0
    assert (result["params"].shape, remembered.shape) == ((3, 0), (8, 1, 0))


def test_no_mesh_changes_nothing() -> None:
    tree, step = {"rows": jnp.arange(3)}, kmeans().step
    assert replicate(tree, None) is tree
    assert shard_rows(tree, None) is tree
    assert unreplicated(tree, None) is tree
    assert sharded(step, None) is step
    assert map_rows(step, None) is step
    assert share(5, None) == 5


def test_what_cannot_be_shared_is_refused() -> None:
    mesh, images = data_mesh(), blobs(COUNT)
    with pytest.raises(ValueError, match="13 rows cannot be shared evenly by 4 devices.*to 16"):
        shard_rows(jnp.zeros(COUNT), mesh)
    for devices in ([], [jax.devices()[0]] * 2):
        with pytest.raises(ValueError, match="devices must be one or more"):
            data_mesh(devices)
    key = jax.random.key(0)
    strange = jax.make_mesh((2, 2), (AXIS, "model"), axis_types=(AxisType.Auto,) * 2)
    for model, samples in ((KMeans(2), images), (ShapeKMeans(2), shapes())):
        with pytest.raises(ValueError, match="mesh must have one axis"):
            model.fit(samples, key=key, mesh=strange)
    training = Training(steps=(2, 2, 2), batch_size=10)
    with pytest.raises(
        ValueError, match="a batch of 10 .* by 4 devices; set batch_size to 8 or 12"
    ):
        DTIKMeans(2, transforms="aff", training=training).fit(images, key=key, mesh=mesh)
    with pytest.raises(ValueError, match="mesh must have"):
        DTIKMeans(2, transforms="aff", training=training).fit(images, key=key, mesh=strange)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_any_mesh_of_one_axis_shares_samples(kind: AxisType) -> None:
    mesh = jax.make_mesh((4,), ("rows",), axis_types=(kind,))
    key, images = jax.random.key(0), blobs(COUNT)
    wanted = KMeans(2).fit(images, key=key, mesh=data_mesh())
    result = KMeans(2).fit(images, key=key, mesh=mesh)
    np.testing.assert_array_equal(result.assignments, wanted.assignments)
    assigned = result.predict(images, mesh=mesh).clusters
    np.testing.assert_array_equal(assigned, wanted.assignments)


BRIEF = Training(steps=(6, 6, 2), batch_size=12)
FITS: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "kmeans": lambda: (KMeans(CLUSTERS, num_restarts=2), blobs(37)),
    "shape-kmeans": lambda: (ShapeKMeans(CLUSTERS, num_restarts=1), shapes(37)),
    "ai-kmeans": lambda: (AffineInvariantKMeans(CLUSTERS, num_restarts=1), blobs(37)),
    "dti-kmeans": lambda: (DTIKMeans(CLUSTERS, transforms="aff", training=BRIEF), blobs(37)),
    "dti-gmm": lambda: (DTIGaussianMixture(CLUSTERS, transforms="aff", training=BRIEF), blobs(37)),
    # The one whose steps start from a memory of each sample.
    "ti-kmeans": lambda: (
        TransformationInvariantKMeans(CLUSTERS, transforms="aff", training=BRIEF, align_steps=3),
        blobs(37),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices", "double"),
    [
        ("kmeans", 3, False),
        ("shape-kmeans", 4, False),
        # A descent of many steps makes much of a last digit of single precision.
        *[pytest.param(name, 4, True, marks=pytest.mark.slow) for name in FITS],
        pytest.param("dti-kmeans", 3, True, marks=pytest.mark.slow),
    ],
)
def test_fit_over_devices_is_the_fit(name: str, devices: int, double: bool) -> None:
    model, samples = FITS[name]()
    with jax.enable_x64(double):
        compare_fits(model, samples, devices, 1e-6 if double else 1e-4)


STAGED: dict[str, Callable[[], Any]] = {
    "scattering-kmeans": lambda: ScatteringKMeans(CLUSTERS, num_dimensions=10),
    "pssc": lambda: ProjectedScatteringSpectralClustering(
        CLUSTERS, num_dimensions=10, num_neighbours=(4,)
    ),
    "u-spec": lambda: ProjectedScatteringSpectralClustering(
        CLUSTERS,
        affinity="representatives",
        num_dimensions=10,
        num_neighbours=(4,),
        num_removed=(1, 2),
        num_representatives=9,
        num_candidates=20,
    ),
    "di-spectral": lambda: DeformationInvariantSpectralClustering(
        CLUSTERS, num_dimensions=10, num_candidates=8, num_neighbours=(4,), landmarks=(2, 2)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STAGED)
def test_staged_fit_over_devices_is_the_fit(name: str) -> None:
    with jax.enable_x64(True):
        compare_fits(STAGED[name](), blobs(37), 3, 1e-6)


@pytest.mark.parametrize("devices", [3, 4])
@pytest.mark.parametrize("count", [37, 13], ids=["moments", "products"])
def test_directions_over_devices_are_the_directions(count: int, devices: int) -> None:
    images, mesh = blobs(count), data_mesh(jax.devices()[:devices])
    settings = {"num_directions": 5, "path_size": 4, "normalisation": "largest", "chunk_size": 3}
    settings["weight"] = np.linspace(0.5, 2.0, count)
    wanted, coordinates = fit_projection(jnp.ravel, images, **settings)
    result, over_devices = fit_projection(jnp.ravel, images, **settings, mesh=mesh)
    # Eigenvectors make a little more of a last digit than sums do.
    for got, want in zip(jax.tree.leaves(result), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-4 * np.max(np.abs(want)))
    np.testing.assert_allclose(over_devices, coordinates, atol=1e-4 * np.max(np.abs(coordinates)))
    again = project_images(jnp.ravel, wanted, images, mesh=mesh)
    np.testing.assert_allclose(again, coordinates, atol=1e-6 * np.max(np.abs(coordinates)))


def test_moments_over_devices_are_the_moments() -> None:
    features = np.random.default_rng(0).normal(3.0, 1.0, (COUNT, 6)).astype(np.float32)
    result = feature_moments(features, path_size=2, chunk_size=5, mesh=data_mesh())
    wanted = (COUNT, features.mean(0), COUNT * np.cov(features.T, bias=True))
    for got, want in zip((result.count, result.mean, result.scatter), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    largest = (features.reshape(COUNT, 3, 2) ** 2).sum(2).max(0)
    np.testing.assert_allclose(result.largest, largest, rtol=1e-6)
    parts = [feature_moments(part, path_size=2) for part in (features[:4], features[4:])]
    both = Moments.merge(*parts)
    np.testing.assert_allclose(both.mean, result.mean, rtol=1e-5)
    np.testing.assert_allclose(both.scatter, result.scatter, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("devices", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_neighbours_and_pairs_over_devices_are_the_same(devices: int) -> None:
    rows = np.random.default_rng(1).normal(size=(37, 12)).astype(np.float32)
    rows[5] = rows[20]
    mesh = data_mesh(jax.devices()[:devices])
    for settings in ({"exclude_self": True}, {"exclude_self": True, "chunk_size": 3}):
        wanted = nearest_neighbours(rows, rows, 4, **settings)
        result = nearest_neighbours(rows, rows, 4, **settings, mesh=mesh)
        np.testing.assert_array_equal(result.index, wanted.index)
        np.testing.assert_array_equal(result.distance, wanted.distance)
    wanted = nested_neighbours(rows, (1, 3), 6, 4)
    result = nested_neighbours(rows, (1, 3), 6, 4, mesh=mesh)
    for got, want in zip(result, wanted, strict=True):
        np.testing.assert_array_equal(got.index, want.index)
    pairs = [
        candidate_distances(
            wanted, SquaredEuclidean(), rows, direction="mean", chunk_size=7, mesh=m
        )
        for m in (None, mesh)
    ]
    for near, *judged in zip(wanted, *pairs, strict=True):
        by_hand = np.sum((rows[near.index] - rows[:, None]) ** 2, axis=2)
        for got in judged:
            np.testing.assert_allclose(got, by_hand, rtol=1e-5)


def compare_fits(model: Any, samples: np.ndarray, devices: int, tolerance: float) -> None:
    mesh = data_mesh(jax.devices()[:devices])
    # The same samples in each chunk, so that only the order within sums differs.
    whole = model.fit(samples, key=jax.random.key(3), chunk_size=5 * devices)
    result = model.fit(samples, key=jax.random.key(3), chunk_size=5, mesh=mesh)
    assert result.outcome.status == whole.outcome.status
    assert result.outcome.chunk_size == 5
    # Eigenvectors turn at the last digit, and then clusters may come in another order.
    pairs = zip(result.assignments, whole.assignments, strict=True)
    order = np.asarray([number for number, _ in sorted(set(pairs), key=lambda pair: pair[1])])
    if not isinstance(model, AbstractScatteringModel):
        order = np.arange(model.num_clusters)
    np.testing.assert_array_equal(result.assignments, order[whole.assignments])
    np.testing.assert_allclose(result.history, whole.history, rtol=tolerance)
    scale = np.mean(np.abs(whole.distances))
    np.testing.assert_allclose(result.distances, whole.distances, atol=20 * tolerance * scale)
    np.testing.assert_allclose(result.prototypes[order], whole.prototypes, atol=20 * tolerance)
    # The result is on one device, and is used as any other.
    for leaf in jax.tree.leaves(result.outcome.learned):
        assert len(leaf.devices()) == 1
    alone = result.predict(samples)
    if not isinstance(model, DeformationInvariantSpectralClustering):
        # There, a new image is its own nearest neighbour.
        np.testing.assert_array_equal(alone.clusters, result.assignments)
    predicted = result.predict(samples, mesh=mesh)
    np.testing.assert_array_equal(predicted.clusters, alone.clusters)
    np.testing.assert_allclose(predicted.distances, alone.distances, atol=20 * tolerance * scale)


@pytest.mark.slow
def test_a_fit_inside_a_mesh_of_explicit_axes_is_the_fit() -> None:
    images, key = blobs(13), jax.random.key(0)
    model = KMeans(2, num_restarts=1, split_merge=False)
    explicit = jax.make_mesh((4,), ("rows",))
    plain = model.fit(images, key=key, mesh=data_mesh())
    with jax.set_mesh(explicit):
        for mesh in (explicit, data_mesh()):
            result = model.fit(images, key=key, mesh=mesh)
            np.testing.assert_array_equal(result.assignments, plain.assignments)
            again = result.predict(images, mesh=mesh)
            np.testing.assert_array_equal(again.clusters, plain.assignments)


def test_a_batch_of_fewer_samples_than_devices_asks_for_fewer_devices() -> None:
    with pytest.raises(ValueError, match="by 4 devices; give a mesh of fewer devices"):
        check_batch_size(1, data_mesh(), most=3)


def test_rows_of_trees_are_counted_by_their_arrays() -> None:
    rows = np.arange(9.0, dtype=np.float32)
    both = map_in_chunks(lambda pair: pair[0] + pair[1], 4, (rows, rows))
    np.testing.assert_array_equal(both, 2.0 * rows)
