"""The estimators beside the models that they stand for, and in scikit-learn's own tools."""

import inspect
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import diffclust
from diffclust import models, sklearn
from diffclust.alignment import NoAlignment
from diffclust.energies import AbstractUnalignedEnergy
from diffclust.methods import method_of
from diffclust.models import Clustering
from diffclust.prototypes import MeanImages
from diffclust.sklearn import ModelClusterer
from diffclust.solvers import Lloyd
from tests.registry import blobs

ESTIMATORS = {name: kind for name, kind in vars(sklearn).items() if hasattr(kind, "_settings")}
FEW = {"n_clusters": 2, "n_init": 1, "random_state": 0}


def test_every_model_has_its_estimator() -> None:
    assert {kind._model for kind in ESTIMATORS.values()} == set(models.MODELS.values())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_an_estimator_offers_follows_from_the_descriptor(name: str) -> None:
    kind = ESTIMATORS[name]
    method = method_of(kind)
    has_distances = method.has_prototypes and not method.words.is_density
    assert hasattr(kind, "transform") == has_distances
    assert hasattr(kind, "predict_proba") == method.is_mixture


@pytest.mark.parametrize("name", ESTIMATORS)
def test_parameters_are_the_models_settings(name: str) -> None:
    kind = ESTIMATORS[name]
    estimator = kind(n_clusters=3)
    assert kind._model.from_settings(estimator._settings()) == kind._model(3)
    assert kind(3).get_params() == estimator.get_params()
    changed = clone(estimator).set_params(n_init=7)
    assert changed._settings()["num_restarts"] == 7
    assert estimator.get_params()["n_init"] != 7
    with pytest.raises(TypeError, match="nonsense"):
        kind(nonsense=1)


def test_kmeans_is_scikit_learns() -> None:
    from sklearn.cluster import KMeans

    rows = load_iris().data
    ours = sklearn.KMeans(n_clusters=3, random_state=0).fit(rows)
    theirs = KMeans(n_clusters=3, n_init=10, random_state=0).fit(rows)
    assert ours.inertia_ == pytest.approx(theirs.inertia_, rel=1e-9)
    assert adjusted_rand_score(ours.labels_, theirs.labels_) == 1.0
    order = np.lexsort(ours.cluster_centers_.T)
    same = np.lexsort(theirs.cluster_centers_.T)
    np.testing.assert_allclose(ours.cluster_centers_[order], theirs.cluster_centers_[same])
    np.testing.assert_allclose(ours.transform(rows)[:, order], theirs.transform(rows)[:, same])
    assert ours.score(rows) == pytest.approx(theirs.score(rows))


def test_order_and_copies_of_samples_do_not_matter() -> None:
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(40, 3)), rng.integers(0, 4, 40)
    shuffled = rng.permutation(40)
    whole = sklearn.KMeans(**FEW).fit(rows, sample_weight=weight)
    mixed = sklearn.KMeans(**FEW).fit(rows[shuffled], sample_weight=weight[shuffled])
    copies = sklearn.KMeans(**FEW).fit(np.repeat(rows, weight, axis=0))
    np.testing.assert_array_equal(mixed.labels_, whole.labels_[shuffled])
    np.testing.assert_array_equal(copies.predict(rows), whole.labels_)
    np.testing.assert_allclose(copies.cluster_centers_, whole.cluster_centers_)


def test_results_are_in_the_order_in_which_samples_came() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    result = sklearn.KMeans(n_clusters=3, n_init=1, random_state=0).fit(rows)
    distances = ((rows[:, None] - result.cluster_centers_[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(result.labels_, distances.argmin(axis=1))
    np.testing.assert_array_equal(result.result_.assignments, result.labels_)
    np.testing.assert_allclose(result.result_.distances, distances.min(axis=1))
    shapes = rng.normal(size=(20, 12))
    shuffled = rng.permutation(20)
    one, other = (sklearn.ShapeKMeans(**FEW).fit(x) for x in (shapes, shapes[shuffled]))
    np.testing.assert_array_equal(other.labels_, one.labels_[shuffled])
    np.testing.assert_array_equal(other.result_.distances, one.result_.distances[shuffled])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_model_takes_weights(name: str) -> None:
    assert "sample_weight" in inspect.signature(ESTIMATORS[name]._model.fit).parameters


def test_weights_are_given_to_the_model() -> None:
    rng = np.random.default_rng(0)
    shapes = rng.normal(size=(2, 5, 2))[np.arange(24) % 2] + 0.2 * rng.normal(size=(24, 5, 2))
    weight = np.arange(24) % 3
    result = sklearn.ShapeKMeans(**FEW).fit(shapes.reshape(24, -1), sample_weight=weight)
    plain = sklearn.ShapeKMeans(**FEW).fit(shapes.reshape(24, -1))
    centres = [
        np.average(
            result.result_.align(shapes, result.result_.outcome.assignment.params)[mine],
            axis=0,
            weights=weight[mine],
        )
        for mine in (result.labels_ == k for k in range(2))
    ]
    np.testing.assert_allclose(result.cluster_centers_.reshape(2, 5, 2), centres, atol=1e-5)
    assert np.abs(result.cluster_centers_ - plain.cluster_centers_).max() > 1e-3


def test_images_of_bytes_are_intensities() -> None:
    levels = np.rint(255 * blobs(24, 12, 10)).astype(np.uint8)
    ours, theirs = (sklearn.KMeans(**FEW).fit(x) for x in (levels, levels / 255))
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_)


@pytest.mark.slow
def test_rows_of_bytes_are_images_but_where_rows_are_any_numbers() -> None:
    levels = np.rint(255 * blobs(24, 12, 10)).astype(np.uint8)
    rows = levels.reshape(24, -1)
    few = {**FEW, "steps": (20, 5), "batch_size": 24}
    ours = sklearn.GaussianMixture(image_shape=(12, 10), **few).fit(rows)
    assert ours.result_.prototypes.max() <= 1.0
    assert ours.score(rows) == pytest.approx(ours.score(levels), rel=1e-5)
    # Rows that are no array, as those of a data frame.
    assert ours.score(list(rows)) == ours.score(rows)
    assert sklearn.KMeans(**FEW).fit(rows).cluster_centers_.max() > 1.0


def test_rows_in_another_precision_are_compared_in_that_of_the_fit() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3))
    for dtype in (np.float32, np.float64):
        fitted = sklearn.KMeans(3, n_init=1, random_state=0).fit(rows.astype(dtype))
        for given in (rows.tolist(), rows.astype(np.float32)):
            np.testing.assert_array_equal(fitted.predict(given), fitted.labels_)


def test_numbers_of_clusters_may_be_numpys_and_scores_are_weighed() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    grid = {"n_clusters": np.arange(2, 4)}
    search = GridSearchCV(sklearn.KMeans(n_init=1, random_state=0), grid, cv=2).fit(rows)
    fitted, weight = search.best_estimator_, np.arange(30.0)
    theirs = -np.sum(weight * np.min(fitted.transform(rows) ** 2, axis=1))
    assert fitted.score(rows, sample_weight=weight) == pytest.approx(theirs, rel=1e-4)


@pytest.mark.slow
def test_rows_are_images() -> None:
    images = blobs(24, 12, 10)
    kind = sklearn.AffineInvariantKMeans
    as_rows = kind(image_shape=(12, -1), **FEW).fit(images.reshape(24, -1))
    as_images = kind(**FEW).fit(images)
    assert as_rows.cluster_centers_.shape == (2, 120)
    assert as_images.cluster_centers_.shape == images[:2].shape
    np.testing.assert_array_equal(as_rows.labels_, as_images.labels_)
    np.testing.assert_array_equal(as_rows.predict(images.reshape(24, -1)), as_rows.labels_)
    assert (as_rows.transform(images.reshape(24, -1)).argmin(axis=1) == as_rows.labels_).all()
    assert as_rows.n_features_in_ == 120
    again = pickle.loads(pickle.dumps(as_rows))
    np.testing.assert_array_equal(again.predict(images.reshape(24, -1)), as_rows.labels_)


@pytest.mark.slow
@pytest.mark.parametrize("as_rows", [True, False])
def test_centres_of_registered_images_have_their_size(as_rows: bool) -> None:
    images = np.zeros((6, 9, 12), np.float32)
    for number, image in enumerate(images):
        image[2:7, 3 + number % 3] = image[3 + number % 2, 2:8] = 1.0
    settings = {"num_angles": 2, "num_dimensions": 2, "num_scales": 1, "num_removed": 0}
    model = sklearn.ScatteringKMeans(
        **FEW, **settings, max_iter=2, register="upright", image_shape=(9, 12)
    )
    model.fit(images.reshape(6, -1) if as_rows else images)
    given = model.result_.model.registered_shape((9, 12, 1))
    shape = (int(np.prod(given)),) if as_rows else given
    assert model.cluster_centers_.shape == (2, *shape)
    np.testing.assert_array_equal(model.predict(images), model.labels_)


def test_rows_that_are_no_images_are_refused() -> None:
    rows = blobs(12, 12, 10).reshape(12, -1)
    with pytest.raises(ValueError, match="120 features, which make no square"):
        sklearn.AffineInvariantKMeans(**FEW).fit(rows)
    with pytest.raises(ValueError, match="of 120 features"):
        sklearn.AffineInvariantKMeans(image_shape=(12, 12), **FEW).fit(rows)
    for shape in ((-1, 7), (-1, -1), (-1, 0), (-120, -1), (120,), 120, "12x10"):
        with pytest.raises(ValueError, match="of 120 features; one of them may be -1"):
            sklearn.AffineInvariantKMeans(image_shape=shape, **FEW).fit(rows)


@pytest.mark.slow
def test_energies_of_the_best_clusters_are_the_distances() -> None:
    images = blobs(24)
    model = diffclust.AffineInvariantKMeans(3, num_restarts=1, max_passes=3, split_merge=False)
    result = model.fit(images, key=_key(), chunk_size=16)
    energies = result.energies(images)
    actual = result.predict(images)
    np.testing.assert_array_equal(energies.argmin(axis=1), actual.clusters)
    np.testing.assert_allclose(energies.min(axis=1), actual.distances, rtol=1e-5)
    second = np.sort(energies, axis=1)[:, 1]
    np.testing.assert_allclose(second - energies.min(axis=1), actual.margins, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_energies_of_a_search_that_goes_on_with_few_clusters_are_all_there() -> None:
    series = np.random.default_rng(0).normal(size=(30, 12)).astype(np.float32)
    model = diffclust.SeriesKMeans(6, num_restarts=1, max_passes=2, split_merge=False)
    result = model.fit(series, key=_key())
    energies, actual = result.energies(series), result.predict(series)
    assert (np.isfinite(energies) & (energies >= 0.0) & (energies < 1e6)).all()
    assert (energies.min(axis=1) <= actual.distances * (1 + 1e-4)).all()


@pytest.mark.slow
def test_series_may_have_missing_values_and_unequal_lengths() -> None:
    generator = np.random.default_rng(0)
    series = np.linspace(-1, 1, 10) * np.repeat([[1.0], [-1.0]], 6, axis=0)
    series += 0.1 * generator.normal(size=series.shape)
    series[3, 7:] = np.nan
    given = [row[~np.isnan(row)] for row in series]
    settings = {"n_init": 1, "max_iter": 2, "split_merge": False}
    for samples in (series, given):
        labels = sklearn.SeriesKMeans(2, **settings, random_state=0).fit(samples).labels_
        assert len({*labels[:6]}) == len({*labels[6:]}) == 1 != len({*labels})
    with pytest.raises(ValueError, match="contains infinity"):
        sklearn.SeriesKMeans(2, **settings).fit(np.where(np.isnan(series), np.inf, series))


@pytest.mark.slow
def test_spectral_methods_have_no_energies() -> None:
    images = blobs(24)
    result = diffclust.ScatteringKMeans(2).fit(images, key=_key())
    with pytest.raises(ValueError, match="does not compare images with clusters"):
        result.energies(images)


@pytest.mark.slow
def test_score_is_minus_the_loss_of_scattering_k_means() -> None:
    images = blobs(24)
    result = sklearn.ScatteringKMeans(2, n_init=1, random_state=0).fit(images)
    assert result.score(images) == pytest.approx(-result.inertia_, rel=1e-3)


@pytest.mark.slow
def test_mixture_is_one_of_probabilities() -> None:
    images = blobs(24)
    result = sklearn.GaussianMixture(steps=(20, 5), batch_size=24, **FEW).fit(images)
    shares = result.predict_proba(images)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(shares.argmax(axis=1), result.predict(images))
    np.testing.assert_allclose(
        shares, result.result_.outcome.extras["responsibilities"], rtol=1e-4, atol=1e-6
    )
    # The loss is the negative log-likelihood of all images together.
    assert result.score(images) * len(images) == pytest.approx(-result.inertia_, rel=1e-5)


def test_in_a_pipeline_and_a_grid_search() -> None:
    rows = load_iris().data
    pipeline = make_pipeline(StandardScaler(), sklearn.KMeans(n_clusters=3, random_state=0))
    labels = pipeline.fit_predict(rows)
    assert adjusted_rand_score(load_iris().target, labels) > 0.5
    search = GridSearchCV(sklearn.KMeans(random_state=0, n_init=1), {"n_clusters": [1, 3]}, cv=2)
    search.fit(rows)
    # More clusters lie nearer to samples that were not seen, too.
    assert search.best_params_ == {"n_clusters": 3}


@pytest.mark.slow
def test_digits_in_a_grid_search() -> None:
    digits = load_digits(n_class=3)
    model = sklearn.DeformationInvariantKMeans(3, landmarks=(3, 3), n_init=1, random_state=0)
    grid = {"bending_penalty": [0.015, 0.15]}
    search = GridSearchCV(model, grid, cv=2, scoring="adjusted_rand_score")
    search.fit(digits.data[:120] / 16, digits.target[:120])
    assert search.best_score_ > 0.7


def _key() -> Any:
    import jax

    return jax.random.key(0)


def test_whole_landmarks_are_not_divided() -> None:
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 255, (12, 10), dtype=np.uint8)
    model = sklearn.ShapeKMeans(2, registration="none", random_state=0).fit(shapes)
    assert model.cluster_centers_.max() > 50
    np.testing.assert_array_equal(model.predict(shapes.astype(int)), model.labels_)


def test_errors_name_samples_by_their_places() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((12, 64))
    rows[7] = 0.0
    with pytest.raises(ValueError, match="index 7"):
        sklearn.AffineInvariantKMeans(2).fit(rows)


@pytest.mark.parametrize("count", [0, None, "2"])
def test_a_number_of_dimensions_is_checked(count: object) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="num_dimensions must be"):
        sklearn.ShapeKMeans(2, num_dimensions=count).fit(rng.random((6, 8)))


@pytest.mark.slow
def test_lists_of_series_of_one_length() -> None:
    rng = np.random.default_rng(0)
    series = [rng.random((16, 2)) for _ in range(4)]
    model = sklearn.SeriesKMeans(2, n_init=1, max_iter=1, random_state=0)
    assert len(model.fit(series).labels_) == 4


def test_lists_are_taken_as_arrays_are() -> None:
    images = list(np.random.default_rng(0).random((12, 4, 4)))
    one, two = (
        sklearn.KMeans(2, random_state=0).fit(given) for given in (images, np.asarray(images))
    )
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.predict(images[:3]), one.labels_[:3])


def test_distances_that_overflow_are_refused() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((12, 64)).astype(np.float32)
    model = sklearn.KMeans(2, random_state=0).fit(rows)
    rows[[3, 5]] *= 1e25
    for method in (model.predict, model.transform, model.score):
        with pytest.raises(ValueError, match="finite distance from the samples at index 3, 5"):
            method(rows)


def test_shorter_series_are_filled_up_as_those_that_were_fitted() -> None:
    rng = np.random.default_rng(0)
    series = [rng.normal(size=length) for length in (12, 11, 12, 10)]
    estimator = sklearn.SeriesKMeans(2, n_init=1, max_iter=2, warps=False).fit(series)
    shorter = [one[:9] for one in series]
    labels = estimator.predict(shorter)
    whole = [np.append(one, [np.nan] * 3) for one in shorter]
    np.testing.assert_array_equal(labels, estimator.predict(np.stack(whole)))
    ragged = [shorter[0].tolist(), series[1].tolist()]
    assert estimator.predict(ragged)[0] == labels[0]
    with pytest.raises(ValueError, match="features"):
        estimator.predict([np.zeros(13)])


def test_what_was_left_out_is_known_in_the_order_of_the_samples() -> None:
    X = np.random.default_rng(0).normal(size=(12, 3))
    weight = np.where(np.arange(12) % 3 == 0, 0.0, 1.0)
    estimator = sklearn.KMeans(2, random_state=0).fit(X, sample_weight=weight)
    np.testing.assert_array_equal(estimator.result_.outcome.extras["is_positive"], weight)


def test_any_model_is_an_estimator() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 3)) + 8.0 * (np.arange(60) % 2)[:, None]
    composition = Lloyd(TransformedVectors(), NoAlignment(), MeanImages())
    models = [Clustering(k, composition, num_restarts=1, split_merge=False) for k in (1, 2)]
    estimator = ModelClusterer(models[0], random_state=0)
    search = GridSearchCV(estimator, {"model": models}, cv=3).fit(rows)
    best = search.best_estimator_
    assert best.model.num_clusters == 2
    assert best.cluster_centers_.shape == (2, 3)
    np.testing.assert_array_equal(best.predict(rows), best.labels_)
    assert best.score(rows) == pytest.approx(-best.inertia_, rel=1e-4)
    again = clone(best).fit(rows)
    np.testing.assert_array_equal(again.labels_, best.labels_)
    assert len({*zip(best.labels_.tolist(), (np.arange(60) % 2).tolist(), strict=True)}) == 2


class TransformedVectors(AbstractUnalignedEnergy):
    """Squared distances of vectors."""

    def between(self, sample: Array, prototype: Array) -> Array:
        return jnp.sum((sample - prototype) ** 2)


def test_kmeans_takes_images_where_pixels_have_places() -> None:
    images, settings = np.zeros((12, 8, 6), np.float32), FEW
    for i, image in enumerate(images):
        image[1 + i % 3 : 3 + i % 3, 1:5] = 0.9
        image[1 + i % 3 : 6 + i % 3, 1:3] = 0.9 * (i % 2)
    fitted = sklearn.KMeans(register="upright", **settings).fit(images)
    expected = diffclust.KMeans(2, register="upright", num_restarts=1)
    assert fitted.cluster_centers_.shape == (2, *expected.registered_shape((8, 6, 1)))
    found = expected.fit(images, key=jax.random.key(0)).assignments
    assert (
        adjusted_rand_score(fitted.labels_, found)
        == 1
        == adjusted_rand_score(found, np.arange(12) % 2)
    )
    mask = np.ones(images.shape[1:3])
    mask[:, 3:] = 0
    plain = sklearn.KMeans(mask=mask, **settings).fit(images)
    assert plain.result_.sample_shape == (8, 6, 1)
    with pytest.raises(ValueError, match="mask is of 8x6 pixels and the images are of 1x48"):
        plain.predict(images.reshape(len(images), 1, -1, 1))
    for more in ({"register": "upright"}, {"mask": mask}):
        with pytest.raises(ValueError, match="X has rows of numbers; give an array of shape"):
            sklearn.KMeans(**more, **settings).fit(images.reshape(len(images), -1))


def test_images_of_another_shape_with_as_many_pixels_are_refused() -> None:
    images = blobs(12, 8, 6)
    model = sklearn.KMeans(**FEW).fit(images)
    with pytest.raises(ValueError, match=r"images of \(6, 8\) pixels, and the fitted .* \(8, 6\)"):
        model.predict(images.reshape(12, 6, 8))
    same = model.predict(images.reshape(12, 48))
    np.testing.assert_array_equal(same, model.predict(images[..., None]))


def test_bytes_and_floats_of_another_range_are_refused() -> None:
    images = blobs(12, 8, 6)
    levels = np.round(255 * images / images.max())
    model = sklearn.AffineInvariantKMeans(max_iter=1, **FEW)
    for first, second in ((levels, levels.astype(np.uint8)), (levels.astype(np.uint8), levels)):
        with pytest.raises(ValueError, match=r"scaled to \[0, 1\], and other numbers are not"):
            model.fit(first).predict(second)
    np.testing.assert_array_equal(
        model.predict(levels / 255), model.predict(levels.astype("uint8"))
    )


def test_a_fit_that_fails_leaves_the_one_before() -> None:
    images = 255.0 * blobs(12, 8, 6)
    model = sklearn.AffineInvariantKMeans(max_iter=1, **FEW).fit(images)
    expected = model.predict(images)
    with pytest.raises(ValueError, match="should be >= n_clusters"):
        model.fit(blobs(1, 8, 6).astype(np.uint8))
    np.testing.assert_array_equal(model.predict(images), expected)
    model._range = tuple(model._range)  # as an earlier version pickled it
    np.testing.assert_array_equal(model.predict(images), expected)


@pytest.mark.slow
def test_lists_that_are_no_series_are_refused_as_arrays_are() -> None:
    series = np.random.default_rng(0).normal(size=(8, 10))
    model = sklearn.SeriesKMeans(2, n_init=1, max_iter=1, random_state=0).fit(series)
    for rows in ([], [1.0, 2.0]):
        with pytest.raises(ValueError, match=r"Expected 2D array|minimum of 1 is required"):
            model.predict(rows)


def test_errors_name_parameters_as_estimators_do() -> None:
    rows = np.random.default_rng(0).random((6, 4))
    for given, message in (
        ({"n_clusters": 0}, "^n_clusters must be"),
        ({"n_clusters": 2, "n_init": 0}, "^n_init must be"),
    ):
        with pytest.raises(ValueError, match=message):
            sklearn.KMeans(**given).fit(rows)
