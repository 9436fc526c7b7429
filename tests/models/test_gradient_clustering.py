"""A model of the user's own under gradient steps, of samples of any kind."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from diffclust import DTIKMeans, Training, load, save
from diffclust.alignment import Descent, GridSearch, NoAlignment, Prediction, Sequential, Stage
from diffclust.data import Dataset
from diffclust.energies import (
    AbstractUnalignedEnergy,
    Entropic,
    MixtureLikelihood,
    TransformedDistance,
    TransformedPrototype,
)
from diffclust.models import GradientClustering, Result, warped_prototypes
from diffclust.models.trained import _sums
from diffclust.networks import StridedBackbone, make_heads
from diffclust.parallel import Data, data_mesh
from diffclust.plotting import Film, loss_history, prototype_sheet
from diffclust.prototypes import Clusters, Learned
from diffclust.report import write_report
from diffclust.solvers import GradientEM
from diffclust.storage import SnapshotFolder
from diffclust.transforms import Identity, TimeWarp, Translation
from tests.models.test_own import K, Pair, pairs, series, together
from tests.registry import blobs

FEW = Training(max_steps=20, batch_size=8, split_merge=False, curriculum=False)
LONG = Training(max_steps=400, batch_size=30, learning_rate=0.05)


def same(one: Result, other: Result) -> None:
    np.testing.assert_array_equal(one.assignments, other.assignments)
    np.testing.assert_array_equal(one.outcome.assignment.params, other.outcome.assignment.params)
    assert one.history == other.history


def test_the_parts_of_a_named_method_give_its_result(key: jax.Array) -> None:
    images = blobs(16)
    named = DTIKMeans(K, transforms="aff", training=FEW)
    expected = named.fit(images, key=key)
    own = {"initialise": named.init, "penalties": (0.0,), "training": FEW}
    model = GradientClustering(K, named.solver(1, 1), **own)
    result = model.fit(images, key=key)
    same(result, expected)
    np.testing.assert_array_equal(result.prototypes, expected.prototypes)
    assert result.model.transform_names == ("Affine",)
    shown = result.predict(images)
    for number in (None, 0, 1):
        moved = (
            warped_prototypes(each, shown.clusters, shown.params, transforms=number)
            for each in (result, expected)
        )
        np.testing.assert_array_equal(*moved)
    aligned = (each.align(images, shown.params) for each in (result, expected))
    np.testing.assert_array_equal(*aligned)


@pytest.mark.slow
def test_prototypes_become_the_means_that_lloyds_algorithm_has(key: jax.Array) -> None:
    samples, weight = pairs(), np.where(np.arange(60) % 5 == 0, 3.0, 1.0)
    model = GradientClustering(K, GradientEM(Pair(), NoAlignment()), training=LONG)
    # A sample of no weight that lies elsewhere moves nothing.
    samples["place"][7] += 50.0
    weight[7] = 0.0
    result = model.fit(samples, key=key, sample_weight=weight)
    own = np.flatnonzero(weight > 0)
    for k in range(K):
        member = own[result.assignments[own] == k]
        for name, leaf in samples.items():
            mean = np.average(leaf[member], axis=0, weights=weight[member])
            np.testing.assert_allclose(result.prototypes[name][k], mean, atol=0.05)


@pytest.mark.slow
def test_trees_are_saved_resumed_and_begun_from_clusters(key: jax.Array, tmp_path: Path) -> None:
    samples = pairs()
    model = GradientClustering(K, GradientEM(Pair(), NoAlignment()), training=LONG)
    result = model.fit(samples, key=key)
    assert together(result.assignments)
    assert result.sample_kind == "any"
    save(tmp_path / "model", result)
    one = jax.tree.map(lambda leaf: leaf[0], samples)
    again = load(tmp_path / "model", like=model, sample=one)
    np.testing.assert_array_equal(again.predict(samples).clusters, result.assignments)
    with SnapshotFolder(tmp_path / "states", run={}, every=0.0) as snapshots:
        same(model.fit(samples, key=key, snapshots=snapshots), result)
    # Clusters that are given are the means that it begins with, and keep their numbers.
    begun = model.fit(samples, key=key, assignments=np.arange(60) % K)
    np.testing.assert_array_equal(begun.assignments, np.arange(60) % K)


def test_devices_share_the_batches(key: jax.Array) -> None:
    model = GradientClustering(K, GradientEM(Pair(), NoAlignment()), training=FEW)
    result, shared = (model.fit(pairs(), key=key, mesh=mesh) for mesh in (None, data_mesh()))
    np.testing.assert_allclose(shared.history, result.history, rtol=1e-5)
    np.testing.assert_array_equal(shared.assignments, result.assignments)


class Robust(AbstractUnalignedEnergy):
    """A distance without a formula for its best prototype, to which outliers matter little."""

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum(jnp.log1p((sample - prototype) ** 2 / 0.02))


@pytest.mark.slow
def test_a_distance_needs_no_family(key: jax.Array) -> None:
    samples = np.array(series())
    samples[np.random.default_rng(3).random(samples.shape) < 0.1] = 10.0
    model = GradientClustering(K, GradientEM(Robust(), NoAlignment()), training=LONG)
    result = model.fit(samples, key=key)
    assert together(result.assignments)
    # Outliers have not moved them, but where a prototype began as one.
    clean = np.stack([series()[result.assignments == k].mean(axis=0) for k in range(K)])
    assert (np.abs(result.prototypes - clean) < 0.15).mean() > 0.9


def test_samples_are_aligned_and_in_the_end_by_more_steps(key: jax.Array) -> None:
    energy, samples = TransformedDistance(TimeWarp()), series()
    few = GradientEM(energy, Descent((Stage(1),), candidates=None))
    refined = GradientClustering(K, few, penalties=(0.5,), training=FEW).fit(samples, key=key)
    model = dataclasses.replace(refined.model, final=few)
    result = model.fit(samples, key=key)
    descent = Descent((Stage(3), Stage(1)), candidates=None)
    aligner = GradientEM(
        energy, Sequential(GridSearch(jnp.zeros((1, TimeWarp().num_params))), descent)
    )
    longer = GradientClustering(K, aligner, penalties=(0.5,)).assigning_solver(None).aligner
    assert longer.second.stages == (Stage(3), Stage(50))
    # They were trained alike.
    assert refined.history[:-1] == result.history[:-1]
    assert refined.loss < result.loss
    aligned = refined.align(samples, refined.outcome.assignment.params)
    distance = ((aligned - refined.prototypes[refined.assignments]) ** 2).sum(axis=(1, 2))
    assert (distance <= refined.distances + 1e-4).all()


@pytest.mark.slow
def test_images_have_a_report(key: jax.Array, tmp_path: Path) -> None:
    aligner = Descent((Stage(2),), candidates=None)
    gradient = GradientEM(TransformedPrototype(Translation()), aligner)
    images = blobs(16)
    model = GradientClustering(K, gradient, penalties=(0.1,), training=FEW)
    result = model.fit(images, key=key)
    write_report(tmp_path / "report.html", result, Dataset(images))
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "Translation" in text
    assert ">identity<" not in text


def test_what_means_nothing_is_refused(key: jax.Array) -> None:
    plain = GradientEM(TransformedDistance(Identity()), NoAlignment())

    def initialise(prototypes: Array, key: Array) -> Learned:
        return Learned(Clusters(prototypes[:2], jnp.zeros((2, 0), prototypes.dtype)))

    def mlp(prototypes: Array, key: Array) -> Learned:
        network = eqx.nn.MLP(20, 2, 4, 1, key=key)
        return Learned(Clusters(prototypes, jnp.zeros((K, 0))), network)

    def three_params(prototypes: Array, key: Array) -> Learned:
        network = StridedBackbone(*prototypes.shape[1:], key=key)
        heads = (make_heads(K, network.num_features, 3, key=key),)
        return Learned(Clusters(prototypes, jnp.zeros((K, 1)), heads), network)

    predicted = GradientEM(TransformedPrototype(Translation()), Prediction())

    class Unread(Entropic):
        def init(self, num_clusters: int, dtype: jnp.dtype) -> Array:
            return jnp.zeros(num_clusters, dtype)

    refused: dict[str, Callable[[], object]] = {
        "Unread.init returns.*nothing would be learned": lambda: GradientEM(
            TransformedDistance(Identity()), NoAlignment(), Unread(1.0)
        ),
        "penalties must have length 0.*TransformedDistance": lambda: GradientClustering(
            K, plain, penalties=(1.0,)
        ),
        "short list.*screening=.*leave out 2": lambda: GradientClustering(
            K, plain, training=Training(shortlist=2)
        ),
        "initialise must return 3 clusters.* not 2": lambda: GradientClustering(
            K, plain, initialise=initialise, training=FEW
        ).fit(series(), key=key),
        "shared.activation is a .*: make that a static field": lambda: GradientClustering(
            K, plain, initialise=mlp
        ).fit(series(), key=key),
        "Prediction reads a network, Learned.shared, and a tuple of heads": lambda: (
            GradientClustering(K, predicted, penalties=(0.0,)).fit(blobs(8), key=key)
        ),
        "heads predict 3 params, and the energy has 2": lambda: GradientClustering(
            K, predicted, penalties=(0.0,), initialise=three_params
        ).fit(blobs(8), key=key),
        "NaN or infinity at index 1": lambda: GradientClustering(K, plain).fit(
            np.asarray([[0.0], [np.nan], [1.0]]), key=key
        ),
    }
    for message, make in refused.items():
        with pytest.raises(ValueError, match=message) as caught:
            make()
        assert "\n" not in str(caught.value)


def test_an_objective_that_initialise_leaves_out_is_the_reductions(key: jax.Array) -> None:
    gradient = GradientEM(TransformedPrototype(Identity()), NoAlignment(), MixtureLikelihood())
    prototypes = jnp.asarray(series()[:K])

    def begun(prototypes: Array, key: Array) -> Learned:
        return Learned(Clusters(prototypes, jnp.ones((K, 0))))

    plain = GradientClustering(K, gradient)
    model = dataclasses.replace(plain, initialise=begun)
    learned, expected = (each.init(prototypes, key) for each in (model, plain))
    np.testing.assert_array_equal(learned.objective, expected.objective)


def test_missing_values_of_the_first_prototypes_are_filled(key: jax.Array) -> None:
    samples = np.array(series())
    samples[np.random.default_rng(4).random(samples.shape) < 0.2] = np.nan
    gradient = GradientEM(Seen(), NoAlignment())
    model = GradientClustering(K, gradient, has_missing=True, training=LONG)
    begun = model.fit(samples, key=key, assignments=np.arange(60) % K)
    for result in (model.fit(samples, key=key), begun):
        assert together(result.assignments)
        assert np.isfinite(result.prototypes).all()


class Seen(AbstractUnalignedEnergy):
    """The squared distance of what was seen."""

    def between(self, sample: Array, prototype: Array) -> Array:
        seen = jnp.isfinite(sample)
        return jnp.sum(jnp.where(seen, jnp.where(seen, sample, 0.0) - prototype, 0.0) ** 2)


def test_files_know_the_final_solver_and_trees_of_one_array(key: jax.Array, tmp_path: Path) -> None:
    plain = GradientEM(One(), NoAlignment())
    model = GradientClustering(K, plain, training=FEW)
    samples = {"x": np.asarray(series())[:, :3, 0]}
    result = model.fit(samples, key=key)
    save(tmp_path / "one", result)
    with pytest.raises(ValueError, match="trees of arrays; give one of them as sample="):
        load(tmp_path / "one", like=model)
    one = jax.tree.map(lambda leaf: leaf[0], samples)
    again = load(tmp_path / "one", like=model, sample=one)
    np.testing.assert_array_equal(again.prototypes["x"], result.prototypes["x"])
    with pytest.raises(ValueError, match="give the one that was fitted"):
        load(tmp_path / "one", like=dataclasses.replace(model, final=plain), sample=one)


class Scaled(AbstractUnalignedEnergy):
    """Samples are arrays; prototypes have a place and a scale."""

    def between(self, sample: Array, prototype: dict[str, Array]) -> Array:
        scaled = (sample - prototype["place"]) * jnp.exp(-prototype["log_scale"])
        return jnp.sum(jnp.log1p(scaled**2) + prototype["log_scale"])

    def exemplar(self, prototype: dict[str, Array]) -> Array:
        return prototype["place"]


def test_prototypes_may_have_another_form_than_samples(key: jax.Array, tmp_path: Path) -> None:
    def initialise(samples: Array, key: Array) -> dict[str, Array]:
        return {"place": samples, "log_scale": jnp.zeros_like(samples)}

    gradient = GradientEM(Scaled(), NoAlignment(), MixtureLikelihood())
    model = GradientClustering(K, gradient, initialise=initialise, training=FEW)
    samples = np.asarray(series())[:, :3, 0]
    result = model.fit(samples, key=key)
    assert result.prototypes["log_scale"].shape == (K, 3)
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model)
    expected = result.predict(samples).clusters
    np.testing.assert_array_equal(again.predict(samples).clusters, expected)


class One(AbstractUnalignedEnergy):
    """The squared distance of trees of one array."""

    def between(self, sample: dict, prototype: dict) -> Array:
        return jnp.sum((sample["x"] - prototype["x"]) ** 2)


def test_devices_share_few_samples(key: jax.Array) -> None:
    def initialise(prototypes: Array, key: Array) -> Learned:
        return Learned(Clusters(prototypes, jnp.ones((K, 0), prototypes.dtype)))

    plain = GradientEM(Robust(), NoAlignment())
    training = Training(max_steps=10, split_merge=False)
    model = GradientClustering(K, plain, initialise=initialise, training=training)
    # 59 samples cannot be shared evenly by four devices; 56 of them can.
    result = model.fit(series()[:59], key=key, mesh=data_mesh())
    assert (
        result.model.automatic_settings(Data(series()[:59], mesh=data_mesh()).description)[
            "batch_size"
        ]
        == 56
    )


def test_prototypes_may_be_a_tuple_of_unlike_arrays(key: jax.Array) -> None:
    one, two = np.asarray(series())[:, :3, 0], np.asarray(series())[:, :8].reshape(60, 4, 2)
    model = GradientClustering(K, GradientEM(Two(), NoAlignment()), training=FEW)
    film = Film()
    result = model.fit((one, two), key=key, prototypes=(one[:K], two[:K]), callback=film)
    np.testing.assert_array_equal(result.assignments, np.arange(60) % K)
    # They have losses, and no pictures.
    assert loss_history(result).final == result.loss
    assert film.frames(result) == ()
    with pytest.raises(ValueError, match="have no picture"):
        prototype_sheet(result)


class Two(AbstractUnalignedEnergy):
    """The squared distance of pairs."""

    def between(self, sample: tuple, prototype: tuple) -> Array:
        squares = jax.tree.map(lambda x, c: jnp.sum((x - c) ** 2), sample, prototype)
        return sum(squares)


def test_means_of_many_samples_count_weights_and_leave_out_gaps() -> None:
    random = np.random.default_rng(0)
    samples, groups = random.normal(size=(2500, 3)), random.integers(0, 4, 2500)
    samples[random.uniform(size=samples.shape) < 0.1] = np.nan
    weight = random.uniform(0.1, 2.0, 2500)
    sums = _sums(samples, groups, weight, 4)
    for k in range(4):
        mine = samples[groups == k] * weight[groups == k, None]
        np.testing.assert_allclose(sums[0, k], np.nansum(mine, axis=0))
        seen = np.isfinite(mine) * weight[groups == k, None]
        np.testing.assert_allclose(sums[1, k], seen.sum(axis=0))
