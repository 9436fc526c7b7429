"""A model of the user's own, of samples of any kind."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import sklearn.neighbors
from jaxtyping import Array

from diffclust import load, save
from diffclust.alignment import Descent, GridSearch, InvariantDistance, NoAlignment, Stage
from diffclust.analysis import eigengaps
from diffclust.data import Dataset, SeriesSet, simulated_shapes
from diffclust.distances import (
    AbstractDistance,
    LandmarkDistance,
    SquaredEuclidean,
    diagonal_fisher_rao,
)
from diffclust.energies import (
    AbstractReduction,
    AbstractSampleEnergy,
    AbstractUnalignedEnergy,
    Entropic,
    HardMinimum,
    LandmarkEnergy,
    TransformedDistance,
)
from diffclust.masks import as_mask
from diffclust.metrics import adjusted_rand_index
from diffclust.models import (
    Clustering,
    DTIKMeans,
    GradientClustering,
    KMeans,
    Result,
    ScatteringKMeans,
    SpectralClustering,
    graph,
)
from diffclust.models.graph import _in_units
from diffclust.models.images import restored
from diffclust.models.settings import Register
from diffclust.parallel import Data, data_mesh
from diffclust.plotting import save_prototypes
from diffclust.prototypes import (
    AbstractPrototypeFamily,
    Clusters,
    Learned,
    MeanImages,
    MeanShapes,
    UnitNormImages,
)
from diffclust.report import write_report
from diffclust.report.series import SeriesRenderer
from diffclust.solvers import (
    GradientEM,
    GradientPlan,
    GradientProblem,
    Lloyd,
    LloydPlan,
    LloydProblem,
    Phase,
    SplitMerge,
    Stopping,
    clusters_of,
    run,
)
from diffclust.solvers.base import check_parts
from diffclust.storage import SnapshotFolder
from diffclust.testing import check_energy
from diffclust.transforms import (
    AbstractTransform,
    Affine,
    Identity,
    Rotation,
    Translation,
    compose,
    params_grid,
)
from diffclust.types import Key
from tests.registry import blobs
from tests.solvers.test_compiled import shapes_and_solver

K = 3
KIND = np.arange(60) % K


def plain() -> Clustering:
    energy = TransformedDistance(Identity(), SquaredEuclidean())
    return Clustering(K, Lloyd(energy, NoAlignment(), MeanImages()), split_merge=False)


def series() -> np.ndarray:
    rng = np.random.default_rng(0)
    t = np.linspace(0, 6, 20)
    waves = np.stack([np.sin(t), np.cos(2 * t), t / 6], axis=0)[KIND]
    return (waves + 0.1 * rng.normal(size=waves.shape))[..., None].astype(np.float32)


def together(clusters: np.ndarray) -> bool:
    """Whether the clusters are the kinds, by other numbers."""
    return len({*zip(clusters.tolist(), KIND.tolist(), strict=True)}) == K


class Pair(AbstractSampleEnergy):
    """Samples of two parts: a place, and a few lengths, each with a distance of its own."""

    num_params: ClassVar[int] = 0
    num_penalties: ClassVar[int] = 0
    affine_embedding: ClassVar[None] = None

    def bind(self, sample, *, scale=1.0):
        return lambda params, x, cluster: scale * self._between(x, cluster.prototype)

    def _between(self, x: dict, c: dict) -> Array:
        return jnp.sum((x["place"] - c["place"]) ** 2) + jnp.sum((x["size"] - c["size"]) ** 2)

    def penalties(self, params: Array) -> Array:
        return jnp.zeros((0,), params.dtype)

    def unaligned(self, sample, clusters) -> Array:
        return jax.vmap(self._between, in_axes=(None, 0))(sample, clusters.prototype)

    def exemplar(self, prototype):
        return prototype

    def aligned(self, params: Array, sample):
        return sample

    def pixel_weight(self, params: Array, sample) -> None:
        return None

    def coarser(self, sample, factor: int, *, sigma=None):
        if factor > 1 or sigma:
            raise ValueError("there is no coarser one; leave coarser= at 1")
        return sample


class PairMeans(AbstractPrototypeFamily):
    """The mean of each part."""

    is_additive: ClassVar[bool] = True

    @property
    def initial_family(self) -> "PairMeans":
        return self

    def init(self, sample):
        return sample

    def normalise(self, sample):
        return sample

    def statistics(self, aligned, pixel_weight, membership: Array, prototypes):
        return jax.tree.map(lambda x: membership.T @ x, aligned), jnp.sum(membership, axis=0)

    def update(self, statistics, previous):
        sums, count = statistics
        safe = jnp.maximum(count, 1e-30)[:, None]
        return jax.tree.map(
            lambda s, old: jnp.where(count[:, None] > 0, s / safe, old), sums, previous
        )


def pairs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    place = np.asarray([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])[KIND] + 0.2 * rng.normal(size=(60, 2))
    return {"place": place, "size": rng.uniform(size=(60, 5)) + KIND[:, None]}


def same(one: Result, other: Result) -> None:
    np.testing.assert_array_equal(one.assignments, other.assignments)
    assert one.history == other.history


def test_series_are_fitted_predicted_saved_and_loaded(key: jax.Array, tmp_path: Path) -> None:
    samples, model = series(), plain()
    result = model.fit(samples, key=key)
    assert together(result.assignments)
    np.testing.assert_array_equal(result.predict(samples).clusters, result.assignments)
    np.testing.assert_array_equal(result.align(samples, result.outcome.assignment.params), samples)
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model)
    np.testing.assert_array_equal(again.prototypes, result.prototypes)
    np.testing.assert_array_equal(again.predict(samples).clusters, result.assignments)
    other = dataclasses.replace(model.lloyd, reduction=Entropic(0.5))
    with pytest.raises(ValueError, match=r"HardMinimum\), and like= is Lloyd\(.*Entropic\)"):
        load(tmp_path / "model", like=dataclasses.replace(model, lloyd=other))
    with pytest.raises(ValueError, match="one of the user's own; give the model as like="):
        load(tmp_path / "model")


def test_series_have_a_report(key: jax.Array, tmp_path: Path) -> None:
    result = plain().fit(series(), key=key)
    write_report(tmp_path / "report.html", result, SeriesSet(series()))
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "20\N{NO-BREAK SPACE}values of 1\N{NO-BREAK SPACE}channel" in text
    assert "Image size" not in text
    # Members are drawn on the scale of their means.
    drawn = SeriesRenderer(result, SeriesSet(series()), seed=0)
    np.testing.assert_array_equal(drawn.aligned, series())
    save_prototypes(tmp_path / "prototypes.png", result)


def test_a_graph_is_cut_as_a_model_compares_samples(
    key: jax.Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, model = series(), SpectralClustering(K, plain())
    result = model.fit(samples, key=key)
    assert together(result.assignments)
    gaps, gap = eigengaps(result), result.outcome.figures["eigengap"]
    assert gaps[K] == pytest.approx(gap) == max(gaps.values())
    # The neighbours are the nearest, by scikit-learn, and of the graph no more is used.
    flat = samples.reshape(len(samples), -1)
    nearest = sklearn.neighbors.NearestNeighbors(n_neighbors=8).fit(flat).kneighbors(flat)[0]
    np.testing.assert_allclose(result.outcome.extras["scales"][-1], nearest[:, 7], rtol=1e-4)
    predicted = result.predict(samples + 1e-3)
    np.testing.assert_array_equal(predicted.clusters, result.assignments)
    monkeypatch.setattr(graph, "_MOST_PAIRS", 7 * len(samples))
    again = result.predict(samples + 1e-3)
    np.testing.assert_allclose(again.nonconformity, predicted.nonconformity, rtol=1e-5)
    np.testing.assert_array_equal(result.align(samples, result.outcome.assignment.params), samples)
    means = [samples[result.assignments == k].mean(axis=0) for k in range(K)]
    np.testing.assert_allclose(result.prototypes, means, atol=1e-5)
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=dataclasses.replace(model, num_neighbours=(5,)))
    assert again.model.settings() == model.settings()
    np.testing.assert_array_equal(again.predict(samples).clusters, result.assignments)
    other = dataclasses.replace(model.clustering, penalties=(), has_missing=True)
    with pytest.raises(ValueError, match="has clustering.has_missing False, and like= has True"):
        load(tmp_path / "model", like=dataclasses.replace(model, clustering=other))
    # In the first of the parts that are compared, and in a later one.
    for number in (4, 25):
        with pytest.raises(ValueError, match=f"sample {number} are not finite: .* rescale"):
            result.predict(np.where(np.arange(60)[:, None, None] == number, 1e25, samples))
    # The hook that checks annotations under test is there first.
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match="ScatteringKMeans"):
        SpectralClustering(K, ScatteringKMeans(K))  # pyright: ignore[reportArgumentType]
    for settings in ({"register": "place"}, {"ground": "colour"}):
        with pytest.raises(ValueError, match="does not register images"):
            SpectralClustering(K, KMeans(K, **settings))
    with pytest.raises(ValueError, match="spectral-clustering takes samples of one array"):
        model.fit((samples, samples), key=key)
    with pytest.raises(ValueError, match="sample 7 has missing values"):
        dataclasses.replace(
            model, clustering=dataclasses.replace(model.clustering, has_missing=True)
        ).fit(np.where(np.arange(60)[:, None, None] == 7, np.nan, samples), key=key)
    with pytest.raises(ValueError, match="num_candidates must be .* 7"):
        SpectralClustering(K, plain(), num_candidates=6)


def in_a_row() -> tuple[np.ndarray, np.ndarray]:
    """Three groups of six places each, with eight samples that are much alike at each."""
    draw = np.random.default_rng(0)
    group, place = np.divmod(np.repeat(np.arange(18), 8), 6)
    samples, rows = draw.normal(scale=0.05, size=(len(group), 20, 1)), np.arange(len(group))
    samples[rows, 3 * group, 0] += 6.0
    for axis, wave in enumerate((np.cos, np.sin)):
        samples[rows, 3 * group + 1 + axis, 0] += wave(np.pi / 3 * place)
    return samples.astype(np.float32), group


@pytest.mark.slow
def test_groups_within_a_cluster_are_joined_by_more_neighbours(
    key: jax.Array, tmp_path: Path
) -> None:
    samples, groups = in_a_row()
    few = SpectralClustering(K, plain(), num_neighbours=(4, 5, 6, 7)).fit(samples, key=key)
    assert adjusted_rand_index(groups, few.assignments) < 0.3
    assert few.outcome.figures["stability"] < 0.5
    model = SpectralClustering(K, plain())
    result = model.fit(samples, key=key)
    assert adjusted_rand_index(groups, result.assignments) == 1.0
    assert result.outcome.extras["num_neighbours"].tolist() == [8, 10, 12, 14]
    assert result.outcome.extras["scales"].shape == (4, len(samples))
    assert result.outcome.figures["stability"] == 1.0
    np.testing.assert_array_equal(result.predict(samples).clusters, result.assignments)
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model).predict(samples)
    np.testing.assert_array_equal(again.clusters, result.assignments)
    # With no more candidates than the usual numbers ask for, these are taken.
    least = SpectralClustering(K, plain(), num_candidates=8).fit(samples, key=key)
    assert least.outcome.extras["num_neighbours"].tolist() == [4, 5, 6, 7]


def test_trees_are_samples_without_a_class_of_the_library(key: jax.Array, tmp_path: Path) -> None:
    samples, model = pairs(), Clustering(K, Lloyd(Pair(), NoAlignment(), PairMeans()))
    result = model.fit(samples, key=key)
    assert together(result.assignments)
    assert result.sample_shape == ((2,), (5,))
    assert result.sample_kind == "any"
    assert result._repr_html_() == f"<p>{result}</p>"
    np.testing.assert_array_equal(result.predict(samples).clusters, result.assignments)
    save(tmp_path / "model", result)
    one = jax.tree.map(lambda leaf: leaf[0], samples)
    again = load(tmp_path / "model", like=model, sample=one)
    np.testing.assert_array_equal(again.predict(samples).clusters, result.assignments)
    with pytest.raises(ValueError, match="trees of arrays; give one of them as sample="):
        load(tmp_path / "model", like=model)
    with pytest.raises(ValueError, match=r"of shape \(\(2,\), \(5,\)\), and sample= has"):
        load(tmp_path / "model", like=model, sample=samples)
    with pytest.raises(ValueError, match="must have the fitted shape"):
        result.predict({"place": samples["place"], "size": samples["size"][:, :4]})


def test_trees_start_from_prototypes(key: jax.Array) -> None:
    samples, model = pairs(), Clustering(K, Lloyd(Pair(), NoAlignment(), PairMeans()))
    first = np.asarray([np.flatnonzero(kind == KIND)[0] for kind in range(K)])
    start = jax.tree.map(lambda leaf: leaf[first], samples)
    result = model.fit(samples, key=key, prototypes=start)
    # Cluster k stays where its prototype was.
    np.testing.assert_array_equal(result.assignments, KIND)
    with pytest.raises(ValueError, match=r"prototypes must have shape \(3, 2\), \(3, 5\), not"):
        model.fit(samples, key=key, prototypes=jax.tree.map(lambda leaf: leaf[:2], start))


@pytest.mark.slow
def test_images_have_snapshots_devices_and_a_report(key: jax.Array, tmp_path: Path) -> None:
    images = blobs(24)
    lloyd = Lloyd(TransformedDistance(Affine()), Descent((Stage(4),)), UnitNormImages())
    model = Clustering(K, lloyd, penalties=(0.5,), max_passes=6)
    result = model.fit(images, key=key, chunk_size=16)
    with SnapshotFolder(tmp_path / "states", run={}, every=0.0) as snapshots:
        same(model.fit(images, key=key, chunk_size=16, snapshots=snapshots), result)
    shared = model.fit(images, key=key, chunk_size=8, mesh=data_mesh())
    np.testing.assert_allclose(shared.loss, result.loss, rtol=1e-4)
    write_report(tmp_path / "report.html", result, Dataset(images))
    assert "clustering of one&#x27;s own" in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.slow
def test_soft_memberships_cover_the_candidates_of_the_aligner(key: jax.Array) -> None:
    energy = TransformedDistance(Identity())
    soft = Lloyd(energy, NoAlignment(candidates=K), MeanImages(), Entropic(0.5))
    result = Clustering(K, soft, split_merge=False).fit(series(), key=key)
    assert together(result.assignments)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((4, 3), int), "samples must be floating numbers, not int64"),
        (np.zeros((0, 3)), "one leading axis for at least one sample"),
        (
            {"a": np.zeros((4, 1)), "b": np.zeros((5, 1))},
            "one leading axis for at least one sample",
        ),
        (np.asarray([[0.0], [np.nan], [1.0]]), "NaN or infinity at index 1"),
        (np.zeros((2, 3)), "num_clusters is 3, more than the 2 samples|3"),
    ],
)
def test_bad_samples_are_one_line(samples, message: str, key: jax.Array) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        plain().fit(samples, key=key)
    assert "\n" not in str(caught.value)


def test_samples_far_from_zero_are_warned_of(key: jax.Array) -> None:
    samples = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    samples[::2] += 8.0
    model = dataclasses.replace(plain(), num_clusters=2, num_restarts=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near, far = (model.fit(samples + offset, key=key) for offset in (0.0, 1e4))
    assert np.ptp(near.assignments[::2]) == np.ptp(near.assignments[1::2]) == 0
    np.testing.assert_array_equal(far.assignments, near.assignments)
    np.testing.assert_allclose(far.distances, near.distances, atol=0.05)
    with pytest.warns(UserWarning, match="times as far from zero as from each other.*subtract"):
        model.fit(samples + 1e6, key=key)


def test_problems_check_what_they_are_given(key: jax.Array) -> None:
    solver = plain().lloyd
    plan = LloydPlan(K, (), 1, Stopping(5, 0.0), SplitMerge(rounds=0))

    def solve(samples: np.ndarray, start: object = None, size: int | None = 8) -> None:
        run((LloydProblem(solver, plan, start),), Data(samples, None, size), key)

    good = np.zeros((6, 2, 2, 1), np.float32)
    for message, given in {
        "samples must be floating numbers, not int64": (np.zeros((6, 2), int),),
        "at least one sample": (good[:0],),
        "num_clusters": (good[:2],),
        "need a chunk_size": (good, None, None),
        "prototypes to start from must have shape": (good, ("prototypes", jnp.asarray(good[:2]))),
        "assignments must be 6 whole numbers": (good, ("assignments", jnp.zeros(5, int))),
    }.items():
        with pytest.raises(ValueError, match=message):
            solve(*given)


def test_gradient_problems_check_what_they_are_given(key: jax.Array) -> None:
    learned = Learned(clusters_of(plain().lloyd, jnp.zeros((K, 2, 2, 1)), ()))
    solver = GradientEM(plain().lloyd.energy, NoAlignment(), HardMinimum())
    problem = GradientProblem(
        (solver,),
        solver,
        GradientPlan((Phase(0, 2, 1e-3),), 4),
        init_learned=lambda data, key: learned,
        template=lambda: learned,
    )
    good = np.zeros((6, 2, 2, 1), np.float32)
    for message, given in {
        "samples must be floating numbers, not int64": np.zeros((6, 2), int),
        "num_clusters": good[:2],
    }.items():
        with pytest.raises(ValueError, match=message):
            run((problem,), Data(given, None, 8), key)
    assert run((problem,), Data(good, None, 8), key).loss == 0.0


def test_settings_that_mean_nothing_are_refused() -> None:
    lloyd, energy = plain().lloyd, plain().lloyd.energy
    plan = LloydPlan(K, (), 1, Stopping(5, 0.0), SplitMerge(rounds=0))
    soft = dataclasses.replace(lloyd, reduction=Entropic(1.0), aligner=NoAlignment(candidates=None))
    refused: dict[str, Callable[[], object]] = {
        "adjoint.*envelop": lambda: dataclasses.replace(lloyd, adjoint="envelop"),
        "adjoint.*envelop.": lambda: InvariantDistance(energy, NoAlignment(), adjoint="envelop"),
        "followed must be at least 1": lambda: GradientEM(
            energy, NoAlignment(candidates=None), followed=0
        ),
        "warm_starts must be at least 1": lambda: dataclasses.replace(lloyd, warm_starts=0),
        "seeding.*Random": lambda: dataclasses.replace(plan, seeding="Random"),
        "window must be at least 1": lambda: GradientPlan((Phase(0, 2, 1e-3),), 4, window=0),
        "penalty_rounds must be 0": lambda: LloydProblem(
            soft, dataclasses.replace(plan, penalty_rounds=1)
        ),
    }
    for message, make in refused.items():
        # The first to see a word that is none of the choices are the types that tests check.
        with pytest.raises((ValueError, TypeError), match=f"(?s){message}"):
            make()


def test_clusters_are_split_whatever_their_prototypes_are(key: jax.Array) -> None:
    shapes, solver = shapes_and_solver()
    model = Clustering(K, solver, num_restarts=1, seeding="random")
    result = model.fit(shapes, key=key)
    assert result.loss <= dataclasses.replace(model, split_merge=False).fit(shapes, key=key).loss


def test_a_model_is_loaded_like_the_one_that_was_fitted(key: jax.Array, tmp_path: Path) -> None:
    images = blobs(12)

    def model(temperature: float, restarts: int = 1) -> Clustering:
        energy = TransformedDistance(Identity())
        solver = Lloyd(energy, NoAlignment(), reduction=Entropic(temperature))
        return Clustering(K, solver, num_restarts=restarts, split_merge=False)

    save(tmp_path / "model", model(0.5).fit(images, key=key))
    same(load(tmp_path / "model", like=model(0.5, 2)), model(0.5).fit(images, key=key))
    with pytest.raises(ValueError, match=r"lloyd.reduction.temperature 0.5, and like= has 0.25"):
        load(tmp_path / "model", like=model(0.25))


class Featured(AbstractUnalignedEnergy):
    """Squared distances of features of images."""

    features: Callable[[Array], Array]

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum((self.features(sample) - self.features(prototype)) ** 2)


def test_a_model_with_other_transforms_or_features_is_not_the_one_that_was_fitted(
    key: jax.Array, tmp_path: Path
) -> None:
    images = blobs(12)

    def model(energy: TransformedDistance | Featured) -> Clustering:
        lloyd = Lloyd(energy, NoAlignment(), MeanImages())
        penalties = (0.0,) * energy.num_penalties
        return Clustering(K, lloyd, split_merge=False, penalties=penalties)

    def moved(*parts: Any) -> Clustering:
        return model(TransformedDistance(compose(*parts)))

    def featured(features: Callable[[Array], Array]) -> Clustering:
        return model(Featured(features))

    save(tmp_path / "moved", moved(Translation(), Affine()).fit(images, key=key))
    load(tmp_path / "moved", like=moved(Translation(), Affine()))
    for other in ((Translation(), Rotation()), (Translation(),), (Affine(), Translation())):
        with pytest.raises(ValueError, match="give the one that was fitted"):
            load(tmp_path / "moved", like=moved(*other))
    save(tmp_path / "featured", featured(jnp.square).fit(images, key=key))
    load(tmp_path / "featured", like=featured(jnp.square))
    with pytest.raises(ValueError, match="energy.features 'square', and like= has 'tanh'"):
        load(tmp_path / "featured", like=featured(jnp.tanh))


class BoundAnew(AbstractUnalignedEnergy):
    """An energy that says in `bind` alone how a cluster's own weight counts."""

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum((sample - prototype) ** 2)

    def bind(self, sample: Array, *, scale: float = 1.0) -> Callable[..., Array]:
        def energy(params: Array, sample: Array, cluster: Clusters) -> Array:
            weight = jnp.exp(cluster.predictor)
            return scale * weight * self.between(sample, cluster.prototype)

        return energy


def test_an_unaligned_energy_is_the_one_that_is_bound(key: jax.Array) -> None:
    def draw(key: Key) -> Array:
        return jax.random.normal(key, (3,))

    check_energy(BoundAnew(), key=key, draw=draw, draw_predictor=lambda k: jax.random.normal(k, ()))
    clusters = Clusters(jnp.ones((2, 3)), jnp.zeros((2, 0)), jnp.log(jnp.array([1.0, 4.0])))
    np.testing.assert_allclose(BoundAnew().unaligned(jnp.zeros(3), clusters), [3.0, 12.0])


class Wrong(AbstractUnalignedEnergy):
    """An energy that returns a number for each value, or whole numbers."""

    whole: bool = eqx.field(static=True, default=False)

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum((sample - prototype) ** 2)

    def unaligned(self, sample: Array, clusters: Clusters) -> Array:
        if self.whole:
            return jnp.sum(clusters.prototype > sample[None], axis=1)
        return (clusters.prototype - sample[None]) ** 2


@pytest.mark.parametrize(
    ("whole", "given"), [(False, r"float32 of shape \(2, 3\)"), (True, r"int32 of shape \(2,\)")]
)
def test_an_energy_that_is_no_number_is_refused(whole: bool, given: str, key: jax.Array) -> None:
    samples = np.random.default_rng(0).random((12, 3), np.float32)
    lloyd = Lloyd(Wrong(whole), NoAlignment(), MeanImages())
    gradient = GradientEM(Wrong(whole), NoAlignment(candidates=2), HardMinimum())
    message = rf"unaligned of Wrong must return a floating array of shape \(2,\), .*{given}"
    for model in (Clustering(2, lloyd), GradientClustering(2, gradient)):
        with pytest.raises(ValueError, match=message):
            model.fit(samples, key=key)


def test_samples_may_be_nested_lists(key: jax.Array) -> None:
    samples = [[float(n % 2), 0.01 * n] for n in range(12)]
    lists, array = (plain().fit(each, key=key) for each in (samples, np.asarray(samples)))
    np.testing.assert_array_equal(lists.assignments, array.assignments)


def test_weights_of_penalties_are_zero_by_default(key: jax.Array) -> None:
    lloyd = Lloyd(TransformedDistance(Affine()), Descent((Stage(2),)))
    samples = np.asarray(jax.random.uniform(key, (8, 6, 6, 1)))
    none, zero = (
        Clustering(2, lloyd, penalties=given, num_restarts=1, max_passes=2)
        for given in ((), (0.0,))
    )
    results = none.fit(samples, key=key), zero.fit(samples, key=key)
    assert results[0].loss == results[1].loss
    np.testing.assert_array_equal(results[0].prototypes, results[1].prototypes)


def test_penalties_must_be_the_energys() -> None:
    with pytest.raises(ValueError, match="penalties must have length 0"):
        Clustering(K, plain().lloyd, penalties=(1.0,))


def test_other_parts_than_are_asked_for_are_refused() -> None:
    energy, none, hard = TransformedDistance(Identity()), NoAlignment(), HardMinimum()
    for message, parts in {
        "energy must be .* not the class TransformedDistance": (TransformedDistance, none, hard),
        "energy must be .* not Identity": (Identity(), none, hard),
        "aligner must be .* not the class NoAlignment": (energy, NoAlignment, hard),
        "reduction must be .* not MeanImages": (energy, none, MeanImages()),
    }.items():
        with pytest.raises(ValueError, match=message):
            check_parts(*parts)
    # Run-time checks of types, which tests switch on, come first.
    refused = (ValueError, jaxtyping.TypeCheckError)
    with pytest.raises(refused, match="not the class Identity|transform"):
        TransformedDistance(Identity)  # pyright: ignore[reportArgumentType]
    with pytest.raises(refused, match="family must be .* not HardMinimum|family"):
        Lloyd(energy, none, HardMinimum())  # pyright: ignore[reportArgumentType]
    with pytest.raises(refused, match="takes no GradientEM|lloyd"):
        Clustering(K, GradientEM(energy, none))  # pyright: ignore[reportArgumentType]


class OfAll(AbstractReduction):
    """One loss of all samples, by mistake."""

    def __call__(self, scores: Array) -> Array:
        return jnp.min(scores)


class FirstMeans(MeanImages):
    """The mean of the first cluster alone, by mistake."""

    def update(self, statistics, previous):
        return super().update(statistics, previous)[0]


def test_other_results_of_parts_than_are_needed_are_refused(key: jax.Array) -> None:
    """Before a fit, and not by an error of some shapes in the middle of it."""
    energy, rows = TransformedDistance(Identity()), np.eye(6)[:, :, None]
    for message, lloyd in {
        "OfAll must return one loss for each sample": Lloyd(
            energy, NoAlignment(), reduction=OfAll()
        ),
        "update of FirstMeans must return prototypes": Lloyd(energy, NoAlignment(), FirstMeans()),
    }.items():
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
            Clustering(2, lloyd).fit(rows, key=key)


class OfImages(AbstractUnalignedEnergy):
    """The squared distance of the first channel."""

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum((sample[:, :, 0] - prototype[:, :, 0]) ** 2)


def test_an_error_of_the_energy_names_the_shape_of_samples(key: jax.Array) -> None:
    rows = np.random.default_rng(0).random((12, 16), np.float32)
    model = Clustering(K, Lloyd(OfImages(), NoAlignment(), MeanImages()))
    with pytest.raises(IndexError) as caught:
        model.fit(rows, key=key)
    assert any("has shape (16,); that of an image is" in note for note in caught.value.__notes__)


class Manhattan(AbstractDistance):
    """Of which means are no minimisers."""

    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        return jnp.sum(jnp.abs(sample - prototype))


def test_a_family_that_does_not_minimise_the_distance_is_told_of(key: jax.Array) -> None:
    samples = (np.random.default_rng(3).exponential(size=(80, 1, 1, 3)) ** 3).astype(np.float32)
    energy = TransformedDistance(Identity(), Manhattan())
    model = Clustering(K, Lloyd(energy, NoAlignment(), MeanImages()), split_merge=False)
    with pytest.warns(UserWarning, match="the loss rose.*`check_family` and"):
        model.fit(samples, key=key)


def test_a_result_is_a_pytree(key: jax.Array) -> None:
    samples = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    result = dataclasses.replace(plain(), num_restarts=1).fit(samples, key=key)
    leaves, tree = jax.tree.flatten(result)
    assert any(leaf is result.outcome.assignment.clusters for leaf in leaves)
    again = jax.tree.unflatten(tree, leaves)
    assert again.summary() == result.summary()
    doubled = jax.jit(lambda r: jax.tree.map(lambda leaf: 2 * leaf, r))(result)
    np.testing.assert_array_equal(doubled.prototypes, 2 * result.prototypes)


class Likelihood(AbstractUnalignedEnergy):
    """A squared distance less a constant, as a negative log density may be."""

    @property
    def family(self) -> MeanImages:
        return MeanImages()

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum((sample - prototype) ** 2) - 100.0


def test_a_graph_of_negative_energies_is_refused(key: jax.Array) -> None:
    model = SpectralClustering(K, Clustering(K, Lloyd(Likelihood(), NoAlignment())))
    with pytest.raises(ValueError, match="a graph needs squared distances, .* down to -99.9"):
        model.fit(series(), key=key)


def test_pixels_under_the_mask_of_the_energy_do_not_count(key: jax.Array) -> None:
    rng, mask = np.random.default_rng(0), np.ones((6, 8))
    mask[:, :2] = 0.0
    images = 0.1 * rng.uniform(size=(60, 6, 8, 1))
    images[np.arange(60), 2 * KIND] = 1.0
    hidden = images.copy()
    hidden[:, :, :2] = 5.0 * rng.integers(2, size=(60, 1, 1, 1))
    energy = TransformedDistance(Identity(), mask=as_mask(mask))
    model = Clustering(K, Lloyd(energy, NoAlignment(), UnitNormImages()), split_merge=False)
    results = [model.fit(given.astype(np.float32), key=key) for given in (images, hidden)]
    assert together(results[0].assignments)
    np.testing.assert_array_equal(results[0].prototypes, results[1].prototypes)
    predicted = [results[0].predict(given.astype(np.float32)) for given in (images, hidden)]
    np.testing.assert_array_equal(predicted[0].distances, predicted[1].distances)
    with pytest.raises(ValueError, match="mask"):
        model.fit(images[:, :5].astype(np.float32), key=key)


def own(transform: AbstractTransform, register: Register = "none") -> Clustering:
    energy = TransformedDistance(transform)
    lloyd = Lloyd(energy, NoAlignment(), UnitNormImages())
    penalties = (0.5,) * energy.num_penalties
    return Clustering(K, lloyd, penalties=penalties, register=register, split_merge=False)


@pytest.mark.slow
def test_registered_images_are_weighted_and_brought_back(key: jax.Array) -> None:
    """Bars of three kinds at other places and of another contrast, each once or three times."""
    rng, images = np.random.default_rng(0), np.zeros((60, 32, 32, 1), np.float32)
    shape = [(12, 2), (2, 12), (6, 6)]
    for kind, image in zip(KIND, images, strict=True):
        row, column = rng.integers(3, 16, size=2)
        height, width = np.add(shape[kind], rng.integers(3, size=2))
        image[row : row + height, column : column + width] = rng.choice([0.3, 1.0])
    model = own(Identity(), "upright")
    weight = np.where(np.arange(60) < 30, 3.0, 1.0)
    result = model.fit(images, key=key, sample_weight=weight)
    assert together(result.assignments)
    np.testing.assert_allclose(result.counts, np.bincount(result.assignments, minlength=K))
    drawn = restored(result, images, result.prototypes[result.assignments])
    # Units would be drawn far too dark.
    assert np.mean(np.abs(drawn - images)) < 0.4 * np.mean(images)
    again = model.fit(np.concatenate([images, images[:30], images[:30]]), key=key)
    assert together(again.assignments[:60])
    np.testing.assert_allclose(result.loss, again.loss, rtol=1e-4)


def test_images_that_are_turned_by_any_angle_keep_their_slant() -> None:
    assert own(Affine()).auto_register == "upright"
    assert own(Rotation()).auto_register == "place"
    assert own(compose(Rotation(), Translation())).auto_register == "place"
    assert KMeans(K).auto_register == "upright"
    assert DTIKMeans(K, transforms="turn-morpho").auto_register == "place"
    pair = Clustering(K, Lloyd(Pair(), NoAlignment(), PairMeans()))
    assert pair.auto_register == "upright"


class Observed(AbstractUnalignedEnergy):
    """Squared differences of what was observed."""

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.nansum((sample - prototype) ** 2)


class ObservedMeans(AbstractPrototypeFamily):
    """The mean of what was observed."""

    is_additive: ClassVar[bool] = True

    @property
    def initial_family(self) -> "ObservedMeans":
        return self

    def init(self, sample):
        return jnp.nan_to_num(sample)

    def normalise(self, sample):
        return sample

    def statistics(self, aligned, pixel_weight, membership: Array, prototypes):
        seen = jnp.isfinite(aligned).astype(membership.dtype)
        return membership.T @ jnp.nan_to_num(aligned), membership.T @ seen

    def update(self, statistics, previous):
        sums, count = statistics
        return jnp.where(count > 0, sums / jnp.where(count > 0, count, 1.0), previous)


def test_clusters_of_samples_with_gaps_are_split(key: jax.Array) -> None:
    """From a poor start: two groups share a prototype, and the third has two."""
    rng, centres = np.random.default_rng(0), 4.0 * np.eye(K)
    rows = (centres[KIND] + 0.3 * rng.normal(size=(60, K))).astype(np.float32)
    prototypes = np.stack([rows[KIND == 0][0], rows[KIND == 0][1], rows[KIND > 0].mean(0)])
    rows[np.arange(60), rng.integers(K, size=60)] = np.nan
    lloyd = Lloyd(Observed(), NoAlignment(), ObservedMeans())
    model = Clustering(K, lloyd, has_missing=True)
    losses = [
        dataclasses.replace(model, split_merge=moves).fit(rows, key=key, prototypes=prototypes).loss
        for moves in (True, False)
    ]
    assert losses[0] < 0.5 * losses[1]


@pytest.mark.parametrize(
    "family", [MeanImages(), pytest.param(UnitNormImages(), marks=pytest.mark.slow)]
)
def test_penalties_keep_their_weight_on_coarse_samples(
    key: jax.Array, family: AbstractPrototypeFamily
) -> None:
    """Two places, and at each squares with a hole and without: a strong penalty tells places."""
    place, images = np.arange(40) // 2 % 2, np.zeros((40, 32, 32, 1), np.float32)
    for number, image in enumerate(images):
        column = 4 + 12 * place[number]
        image[8:24, column : column + 12] = 1.0
        if number % 2:
            image[12:20, column + 3 : column + 9] = 0.0
    if family.removes_scale:
        images /= 10.0
    search = GridSearch(params_grid(np.linspace(-0.75, 0.75, 9), (0.0,)))
    lloyd = Lloyd(TransformedDistance(Translation()), search, family)
    penalty = (0.001,) if family.removes_scale else (5.0,)
    losses = []
    for coarser in (1, 4):
        model = Clustering(2, lloyd, penalties=penalty, coarser=coarser, split_merge=False)
        result = model.fit(images, key=key)
        penalties = np.asarray(result.outcome.learned.clusters.penalty)
        np.testing.assert_allclose(penalties, penalty[0], rtol=1e-6)
        losses.append(result.loss)
    assert losses[1] == pytest.approx(losses[0], rel=0.2)


def test_rotations_of_images_that_are_not_square_know_their_aspect(key: jax.Array) -> None:
    images = np.random.default_rng(0).random((6, 4, 6, 1)).astype(np.float32)
    for aspect in (1.0, 1.5):
        rotation = Rotation(aspect=aspect)
        lloyd = Lloyd(TransformedDistance(rotation), GridSearch(rotation.grid(4)), MeanImages())
        model = Clustering(2, lloyd, penalties=(0.0,), num_restarts=1, max_passes=2)
        if aspect == 1.5:
            model.fit(images, key=key)
        else:
            with pytest.raises(ValueError, match=r"4x6 pixels would be sheared .*\(aspect=6 / 4\)"):
                model.fit(images, key=key)


def test_the_unit_of_a_distance_makes_no_difference() -> None:
    fitted = np.random.default_rng(0).uniform(1, 2, (2, 9))
    new, units = np.random.default_rng(1).uniform(1, 2, (2, 4)), np.array([[1.0], [1000.0]])
    result = _in_units(units * new, units * fitted)
    np.testing.assert_allclose(result, _in_units(new, fitted))
    np.testing.assert_allclose(_in_units(fitted, fitted), sum(x / np.median(x) for x in fitted))


def test_a_graph_of_shapes_under_a_distance_of_landmarks(key: jax.Array, tmp_path: Path) -> None:
    means = np.random.default_rng(0).normal(size=(2, 6, 2))
    shapes, groups = simulated_shapes(
        means, 0.1, per_group=15, key=key, rotation=False, translation=0.0
    )
    middle = shapes.mean(axis=0)
    family = MeanShapes(middle, jnp.full_like(middle, 0.01), jnp.asarray(1e-6))
    energy = LandmarkEnergy(LandmarkDistance(diagonal_fisher_rao, norm="l2"))
    model = SpectralClustering(2, Clustering(2, Lloyd(energy, NoAlignment(), family)))
    result = model.fit(np.asarray(shapes), key=key)
    assert adjusted_rand_index(groups, result.assignments) == 1.0
    save(tmp_path / "model", result)
    again = load(tmp_path / "model", like=model)
    np.testing.assert_array_equal(again.predict(np.asarray(shapes)).clusters, result.assignments)


def test_a_graph_of_images_has_a_report(key: jax.Array, tmp_path: Path) -> None:
    images = blobs(24)
    result = SpectralClustering(2, plain()).fit(images, key=key)
    write_report(tmp_path / "report.html", result, Dataset(images))
    text = (tmp_path / "report.html").read_text("utf-8")
    assert "24 samples in 2 clusters" in text.replace("\u00a0", " ")
