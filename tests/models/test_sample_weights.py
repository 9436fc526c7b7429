"""What sample weights do in models of scattering coefficients."""

from typing import Any

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse

from diffclust import (
    DeformationInvariantSpectralClustering,
    ProjectedScatteringSpectralClustering,
    ScatteringKMeans,
)
from diffclust.analysis import conformal_p_values
from diffclust.graphs import bipartite_cut, normalised_cut, self_tuning_affinity
from diffclust.models import Result
from diffclust.models.scattering import AbstractScatteringModel
from diffclust.parallel import Data, data_mesh
from diffclust.solvers import nearest_centres
from tests.models.cuts import CHUNK, check_cut, quick_alignments, strokes

KEY = jax.random.key(0)
LABELS = np.arange(CHUNK) % 3
FAST: dict[str, Any] = {
    "num_dimensions": 20,
    "num_scales": 1,
    "num_angles": 3,
    "num_restarts": 1,
}
SPECTRAL: dict[str, Any] = {"num_removed": (0,), "num_neighbours": (5,), **FAST}
AS_IT_IS: dict[str, Any] = {"register": "none", **SPECTRAL}
FEW: dict[str, Any] = {"affinity": "representatives", "num_representatives": 20}
MODELS: dict[str, AbstractScatteringModel] = {
    "kmeans": ScatteringKMeans(3, num_removed=0, **FAST),
    "graph": ProjectedScatteringSpectralClustering(3, **AS_IT_IS),
    "representatives": ProjectedScatteringSpectralClustering(3, **FEW, **AS_IT_IS),
    "registered": ScatteringKMeans(3, num_removed=0, register="place", **FAST),
    "pairs": DeformationInvariantSpectralClustering(
        3, num_candidates=6, landmarks=(2, 2), **SPECTRAL
    ),
}
SOME = [name for name in MODELS if name not in ("registered", "pairs")]
ALL = [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in ("registered", "pairs"))]
WEIGHT = np.random.default_rng(1).uniform(0.2, 3.0, CHUNK)


def fitted(name: str, images: np.ndarray, weight: Any = None, **given: Any) -> Result:
    return MODELS[name].fit(images, key=KEY, chunk_size=CHUNK, sample_weight=weight, **given)


QUICK = pytest.fixture(quick_alignments, scope="module", autouse=True)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    # So noisy that there are edges between the classes.
    noise = np.random.default_rng(5).uniform(size=(CHUNK, 8, 8, 1))
    return (0.6 * strokes(LABELS) + 0.4 * noise).astype(np.float32)


@pytest.mark.parametrize("name", ALL)
def test_images_of_weight_zero_are_left_out_and_assigned(name: str, images: np.ndarray) -> None:
    zero = np.isin(np.arange(CHUNK), [0, 7, 20, 47])
    images = images.copy()
    # Unlike all others, so that they would show.
    images[zero] = np.random.default_rng(0).uniform(size=images[zero].shape)
    whole = fitted(name, images, np.where(zero, 0.0, 1.0))
    part = fitted(name, images[~zero])
    assert len(whole.assignments) == CHUNK
    np.testing.assert_array_equal(whole.assignments[~zero], part.assignments)
    np.testing.assert_allclose(whole.prototypes, part.prototypes, atol=1e-4)
    assert whole.loss == pytest.approx(part.loss, rel=1e-4)
    new = part.predict(images[zero])
    np.testing.assert_array_equal(whole.assignments[zero], new.clusters)
    np.testing.assert_allclose(whole.distances[zero], new.distances, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(whole.outcome.assignment.params[zero], new.params, atol=1e-2)
    assert conformal_p_values(whole, new).shape == (4,)
    if new.nonconformity is not None:
        own = whole.outcome.assignment.nonconformity
        fitted_ones = part.model.nonconformity(part.outcome)
        np.testing.assert_allclose(own[~zero], fitted_ones, rtol=1e-3)
        np.testing.assert_allclose(own[zero], new.nonconformity, rtol=1e-3)
    if name not in ("kmeans", "registered"):
        check_cut(whole, images)
    if name in ("graph", "pairs"):
        # Ambiguous images are told by their places among all.
        pairs = part.outcome.extras["bridges"]
        assert len(pairs)
        np.testing.assert_array_equal(whole.outcome.extras["bridges"], np.flatnonzero(~zero)[pairs])


@pytest.mark.parametrize("name", SOME)
def test_equal_weights_change_nothing(name: str, images: np.ndarray) -> None:
    # Even a unit that single precision has no square of.
    unit = 1e-30
    plain, weighed = fitted(name, images), fitted(name, images, np.full(CHUNK, unit))
    np.testing.assert_array_equal(plain.assignments, weighed.assignments)
    np.testing.assert_allclose(plain.distances, weighed.distances, atol=1e-4)
    np.testing.assert_allclose(plain.prototypes, weighed.prototypes, atol=1e-4)
    # A distortion is a sum over images; a cut is made of shares.
    loss = weighed.loss / (unit if name == "kmeans" else 1.0)
    assert loss == pytest.approx(plain.loss, rel=1e-4)


@pytest.mark.slow
def test_whole_weights_are_repetitions_in_scattering_space(images: np.ndarray) -> None:
    counts = np.random.default_rng(3).integers(1, 4, CHUNK)
    with jax.enable_x64(True):
        images = images.astype(np.float64)
        weighed = fitted("kmeans", images, counts)
        copies = fitted("kmeans", np.repeat(images, counts, axis=0))
        plain = fitted("kmeans", images)
        for name in ("feature_mean", "feature_variances", "feature_basis"):
            result, wanted, other = (r.outcome.extras[name] for r in (weighed, copies, plain))
            np.testing.assert_allclose(result, wanted, atol=1e-9)
            assert np.abs(result - other).max() > 1e-3 * np.abs(other).max()
        # The same loss of the same centres, wherever k-means began.
        model, outcome = MODELS["kmeans"], weighed.outcome
        assert isinstance(model, ScatteringKMeans)
        coordinates = model.coordinates_of(copies.outcome, Data(images), lambda _: None)
        rows = nearest_centres(coordinates, outcome.extras["centres"])
    assert weighed.loss == pytest.approx(np.sum(counts * rows.distances**2), rel=1e-9)
    assert weighed.loss == pytest.approx(copies.loss, rel=1e-6)
    for k in range(3):
        mine = rows.assignments == k
        mean = np.average(coordinates[mine], axis=0, weights=counts[mine])
        np.testing.assert_allclose(mean, outcome.extras["centres"][k], atol=1e-6)


def test_the_cut_is_that_of_the_weighed_graph(images: np.ndarray) -> None:
    result = fitted("graph", images, WEIGHT)
    check_cut(result, images)
    model, extras = result.model, result.outcome.extras
    assert isinstance(model, ProjectedScatteringSpectralClustering)
    (near,) = model.neighbours(extras["coordinates"])
    plain = self_tuning_affinity(near, num_neighbours=5)
    graph = plain.toarray() * WEIGHT[:, None] * WEIGHT[None, :]
    cut = normalised_cut(scipy.sparse.csr_array(graph), result.assignments, num_clusters=3)
    assert result.loss == pytest.approx(cut, rel=1e-6)
    assert abs(cut - normalised_cut(plain, result.assignments, num_clusters=3)) > 1e-3
    root = np.sqrt(graph.sum(axis=1))
    values = scipy.linalg.eigvalsh(graph / root[:, None] / root[None, :])[::-1]
    np.testing.assert_allclose(extras["eigenvalues"], values[:8], atol=1e-6)


def test_the_cut_through_representatives_counts_weights(images: np.ndarray) -> None:
    result = fitted("representatives", images, WEIGHT)
    check_cut(result, images)
    model, extras = result.model, result.outcome.extras
    assert isinstance(model, ProjectedScatteringSpectralClustering)
    coordinates = model.coordinates_of(result.outcome, Data(images), lambda _: None)
    chosen = extras["representatives_0"]
    distance = np.linalg.norm(coordinates[:, None] - chosen[None], axis=2)
    near = np.sort(distance, axis=1)[:, 4:5]
    affinities = np.exp(-0.5 * (distance / extras["sigmas"][0, 0]) ** 2) * (distance <= near)
    weighed = scipy.sparse.csr_array(WEIGHT[:, None] * affinities)
    assert result.loss == pytest.approx(bipartite_cut(weighed, result.assignments, 3), rel=1e-3)


def test_a_new_image_lies_where_its_neighbours_do_as_far_as_these_count(
    images: np.ndarray,
) -> None:
    result = fitted("graph", images, np.where(LABELS == 0, 50.0, 1.0) * WEIGHT)
    model, extras = result.model, result.outcome.extras
    assert isinstance(model, ProjectedScatteringSpectralClustering)
    new = np.roll(images, 1, axis=1)
    points = model.coordinates_of(result.outcome, Data(new), lambda _: None)
    distance = np.linalg.norm(points[:, None] - extras["coordinates"][None], axis=2)
    own = np.sort(distance, axis=1)[:, 4:5]
    affinity = np.exp(-(distance**2) / (own * extras["scales"])) * (distance <= own)
    weighed = affinity * np.where(LABELS == 0, 50.0, 1.0) * WEIGHT
    rows = [(a @ extras["basis"]) / a.sum(axis=1, keepdims=True) for a in (weighed, affinity)]
    rows = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in rows]
    wanted, other = (nearest_centres(each, extras["centres"]) for each in rows)
    again = result.predict(new)
    np.testing.assert_array_equal(again.clusters, wanted.assignments)
    np.testing.assert_allclose(again.distances, wanted.distances, atol=1e-4)
    assert np.abs(other.distances - wanted.distances).max() > 0.1


def test_prototypes_are_weighed_means(images: np.ndarray) -> None:
    # One image outweighs all others of its cluster.
    first = fitted("graph", images)
    weight = np.where(np.arange(CHUNK) == 4, 1e6, 1.0)
    result = fitted("graph", images, weight)
    prototype = result.prototypes[result.assignments[4]]
    unit = images[4] / np.linalg.norm(images[4])
    assert np.abs(prototype - unit).max() < 1e-2
    assert np.abs(first.prototypes[first.assignments[4]] - unit).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_weights_over_devices_are_the_weights(name: str, images: np.ndarray) -> None:
    weight = np.where(np.arange(CHUNK) % 11 == 5, 0.0, WEIGHT)
    with jax.enable_x64(True):
        one = fitted(name, images.astype(np.float64), weight)
        mesh = data_mesh(jax.devices()[:3])
        two = fitted(name, images.astype(np.float64), weight, mesh=mesh)
    # Where seeds fall together in a digit, clusters may come in another order.
    order = [two.assignments[one.assignments == k][0] for k in range(3)]
    np.testing.assert_array_equal(np.asarray(order)[one.assignments], two.assignments)
    assert one.loss == pytest.approx(two.loss, rel=1e-6)
    np.testing.assert_allclose(one.prototypes, two.prototypes[order], atol=1e-6)


@pytest.mark.parametrize("name", ["kmeans", "graph"])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(3), r"sample_weight must have shape \(48,\), one for each image; got \(3,\)"),
        (-np.ones(CHUNK), "sample_weight must be finite and at least 0"),
        (np.zeros(CHUNK), "sample_weight is zero for all images"),
        (np.full(CHUNK, 1e-40), "sample_weight is too small for all images"),
        (1.0 * (np.arange(CHUNK) < 2), "images of positive weight is 2"),
    ],
    ids=["length", "negative", "zero", "tiny", "few"],
)
def test_weights_that_mean_nothing_are_refused(
    name: str, weight: np.ndarray, message: str, images: np.ndarray
) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(name, images, weight)
