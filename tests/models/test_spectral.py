import contextlib
import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
import scipy.spatial
from sklearn.metrics import adjusted_rand_score

import diffclust
from diffclust import (
    ProjectedScatteringSpectralClustering,
    metrics,
)
from diffclust.data import load_digits
from diffclust.features import local_contrast
from diffclust.graphs import bipartite_cut, normalised_cut
from diffclust.models import MODELS, AbstractScatteringModel, Result, ScatteringKMeans
from diffclust.parallel import Data
from diffclust.solvers import Progress
from tests.models.cuts import (
    CHUNK,
    assert_same,
    check_cut,
    check_saved,
    check_start,
    far_groups,
    quick_portraits,
    stages,
    strokes,
)

KEY = jax.random.key(0)
LABELS = np.arange(CHUNK) % 3
FAST = {
    "num_removed": (0,),
    "num_neighbours": (5,),
    "num_dimensions": 20,
    "num_scales": 1,
    "num_angles": 3,
    "num_restarts": 1,
    "register": "none",
}


def pssc(clusters: int = 3, **settings) -> ProjectedScatteringSpectralClustering:
    return ProjectedScatteringSpectralClustering(clusters, **{**FAST, **settings})


def fitted(images: np.ndarray, clusters: int = 3, **settings) -> Result:
    return pssc(clusters, **settings).fit(images, key=KEY, chunk_size=CHUNK)


QUICK = pytest.fixture(quick_portraits, scope="module", autouse=True)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return strokes(LABELS)


@pytest.fixture(scope="module", params=["graph", "representatives"])
def spectral_result(request: pytest.FixtureRequest, images: np.ndarray) -> Result:
    return fitted(images, affinity=request.param, num_representatives=20)


def test_near_duplicates_have_no_cluster_of_their_own(images: np.ndarray) -> None:
    noise = np.random.default_rng(0).normal(scale=1e-3, size=(15, *images.shape[1:]))
    copies = (images[:1] + noise).clip(0, 1).astype(np.float32)
    spectral_result = fitted(np.concatenate([images, copies]))
    labels = np.concatenate([LABELS, np.full(15, LABELS[0])])
    assert metrics.adjusted_rand_index(labels, spectral_result.assignments) > 0.9


def test_clusters_are_the_classes(spectral_result: Result, images: np.ndarray) -> None:
    check_cut(spectral_result, images)
    assert metrics.adjusted_rand_index(LABELS, spectral_result.assignments) > 0.9
    assert sorted(spectral_result.counts.tolist()) == pytest.approx([16, 16, 16], abs=2)
    assert len(spectral_result.outcome.extras["eigenvalues"]) == 3 + 5
    assert spectral_result.outcome.figures["eigengap"] > 0


def test_images_that_were_fitted_are_assigned_as_they_were(
    spectral_result: Result, images: np.ndarray
) -> None:
    again = spectral_result.predict(images)
    assert np.mean(again.clusters == spectral_result.assignments) > 0.95
    same = again.clusters == spectral_result.assignments
    np.testing.assert_allclose(again.distances[same], spectral_result.distances[same], atol=0.3)
    # What is assigned alone is assigned as in company.
    few = spectral_result.predict(images[5:8])
    np.testing.assert_array_equal(few.clusters, again.clusters[5:8])
    np.testing.assert_allclose(few.distances, again.distances[5:8], atol=1e-3)


def test_new_images_go_to_their_class(spectral_result: Result, images: np.ndarray) -> None:
    del images
    labels = np.arange(30) % 3
    means = [np.bincount(spectral_result.assignments[k == LABELS]).argmax() for k in range(3)]
    new = strokes(labels, seed=1)
    assert np.mean(spectral_result.predict(new).clusters == np.array(means)[labels]) > 0.9


def test_a_key_gives_the_same_bits(spectral_result: Result, images: np.ndarray) -> None:
    assert_same(spectral_result.model.fit(images, key=KEY, chunk_size=CHUNK), spectral_result)


def test_what_is_saved_predicts_the_same_bits(
    spectral_result: Result, images: np.ndarray, tmp_path
) -> None:
    check_saved(spectral_result, images, tmp_path / "model")


@pytest.mark.parametrize("affinity", ["graph", "representatives"])
def test_several_graphs(affinity: str, images: np.ndarray) -> None:
    settings = {"num_removed": (0, 2), "num_neighbours": (4, 5), "num_representatives": 20}
    spectral_result = fitted(images, affinity=affinity, **settings)
    check_cut(spectral_result, images)
    assert np.mean(spectral_result.predict(images).clusters == spectral_result.assignments) > 0.9
    stability = spectral_result.outcome.figures["stability"]
    assert 0 < stability <= 1
    assert str(spectral_result).endswith(f", stability {stability:.2f}")
    if affinity == "graph":
        # Every sample has a scale in each: the distance to its fourth and fifth neighbour.
        scales = spectral_result.outcome.extras["scales"]
        assert scales.shape == (4, CHUNK)
        assert (scales[0] <= scales[1]).all()
        assert (scales[2] < scales[0]).all()
    else:
        assert spectral_result.outcome.extras["sigmas"].shape == (2, 2)


def test_groups_of_very_unequal_size_survive() -> None:
    labels = np.repeat(np.arange(3), (240, 60, 8))
    spectral_result = fitted(strokes(labels))
    assert metrics.accuracy(labels, spectral_result.assignments) > 0.98
    assert np.bincount(spectral_result.assignments[-8:], minlength=3).max() == 8
    assert sorted(spectral_result.counts)[0] <= 10


@pytest.mark.slow
def test_a_small_group_takes_no_cluster_from_two_large_ones(key: jax.Array) -> None:
    """28 ones of the bundled digits had a cluster, while eights and threes shared two others."""
    digits = load_digits()
    result = ProjectedScatteringSpectralClustering(10).fit(digits.images, key=key)
    assert result.counts.min() > 100
    assert metrics.accuracy(digits.labels, result.assignments) > 0.95
    # The steadier embedding is by five vectors more than clusters.
    assert result.outcome.extras["basis"].shape == (len(digits.images), 15)


@pytest.mark.slow
def test_graphs_of_one_distance_agree_or_not_by_their_neighbours() -> None:
    noise = np.random.default_rng(0).uniform(size=(60, 10, 10, 1)).astype(np.float32)
    settings = {"num_removed": None, "num_neighbours": (3, 4, 5), "num_scales": None}
    steady, unsteady = (fitted(x, 2, **settings) for x in (strokes(LABELS % 2), noise))
    # As it comes with few clusters.
    assert steady.model.num_removed == unsteady.model.num_removed == (0,)
    assert steady.outcome.figures["stability"] > 0.95
    assert unsteady.outcome.figures["stability"] < 0.8
    assert fitted(noise, 2, **settings | {"num_neighbours": (4,)}).outcome.figures.keys() == {
        "eigengap"
    }


def test_a_single_graph_has_none_to_agree_with(spectral_result: Result) -> None:
    assert "stability" not in spectral_result.outcome.figures


def test_auto_is_the_graph_for_few_images(
    images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_graph = fitted(images, affinity="graph")
    assert_same(fitted(images), by_graph)
    monkeypatch.setattr("diffclust.models.spectral._MOST_IN_GRAPH", CHUNK - 1)
    many = fitted(images, num_representatives=20)
    assert "bridges" not in many.outcome.extras
    assert many.outcome.extras["representatives_0"].shape == (20, 20)


def test_more_representatives_than_images(images: np.ndarray) -> None:
    spectral_result = fitted(images, affinity="representatives")
    check_cut(spectral_result, images)
    assert len(spectral_result.outcome.extras["representatives_0"]) == CHUNK
    assert metrics.adjusted_rand_index(LABELS, spectral_result.assignments) > 0.9


@pytest.mark.parametrize("affinity", ["graph", "representatives"])
def test_every_image_twice(affinity: str, images: np.ndarray) -> None:
    twice = np.repeat(images[:24], 2, axis=0)
    spectral_result = fitted(twice, affinity=affinity, num_neighbours=(3,))
    check_cut(spectral_result, twice)
    # Duplicates stay together.
    np.testing.assert_array_equal(
        spectral_result.assignments[::2], spectral_result.assignments[1::2]
    )


@pytest.mark.parametrize(
    "affinity", ["graph", pytest.param("representatives", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kind", ["all-blank", "all-equal", "half-blank", "one-blank"])
def test_constant_and_blank_images_are_taken(affinity: str, kind: str, images: np.ndarray) -> None:
    odd = {
        "all-blank": np.zeros_like(images),
        "all-equal": np.full_like(images, 0.5),
        "half-blank": np.where((np.arange(CHUNK) < 24)[:, None, None, None], 0, images),
        "one-blank": np.where((np.arange(CHUNK) < 1)[:, None, None, None], 0, images),
    }[kind]
    warned = contextlib.nullcontext()
    if kind.startswith("all"):
        warned = pytest.warns(UserWarning, match="all samples are equal")
    with warned:
        spectral_result = fitted(odd, affinity=affinity)
    check_cut(spectral_result, odd)
    if kind == "half-blank":
        assert len(set(spectral_result.assignments[:24].tolist())) == 1
    again = spectral_result.predict(odd)
    assert np.isfinite(again.distances).all()
    assert np.isin(again.clusters, np.arange(3)).all()


@pytest.mark.parametrize(("removed", "count"), [((0,), 20), ((0, 1), 20), ((0, 1), 3000)])
def test_representatives_of_equal_samples_are_warned_of(
    removed: tuple[int, ...], count: int, key
) -> None:
    # Representatives of more samples are means, and rounded.
    model = ProjectedScatteringSpectralClustering(2, num_removed=removed)
    samples = np.full((count, 8), 0.1, np.float32) * np.arange(1, 9, dtype=np.float32)
    near = [model.near_representatives(samples, n, key) for n in removed]
    with pytest.warns(UserWarning, match="all samples are equal"):
        clustering = model.cut_through_representatives(near, key)
    assert clustering.figures["stability"] == 0.0


@pytest.mark.parametrize("affinity", ["graph", "representatives"])
@pytest.mark.parametrize("groups", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_a_graph_in_parts(affinity: str, groups: int, tmp_path) -> None:
    labels = np.arange(CHUNK) % groups
    parts = far_groups(labels)
    spectral_result = fitted(parts, affinity=affinity, num_representatives=24)
    check_cut(spectral_result, parts)
    if affinity == "graph":
        np.testing.assert_allclose(
            spectral_result.outcome.extras["eigenvalues"][:groups], 1.0, atol=1e-6
        )
    if groups == 3:
        assert metrics.adjusted_rand_index(labels, spectral_result.assignments) == 1.0
        assert spectral_result.loss == pytest.approx(0.0, abs=1e-3)
    again = spectral_result.predict(parts)
    assert np.isfinite(again.distances).all()
    if groups == 3 and affinity == "graph":
        # There is nothing between the clusters, and that can be saved.
        assert spectral_result.outcome.extras["bridges"].shape == (0, 2)
        diffclust.save(tmp_path / "model", spectral_result)
        assert_same(diffclust.load(tmp_path / "model"), spectral_result)


@pytest.mark.slow
def test_colour_and_images_that_are_not_square() -> None:
    wide = strokes(LABELS, 6, 11, 3)
    spectral_result = fitted(wide)
    check_cut(spectral_result, wide)
    assert metrics.adjusted_rand_index(LABELS, spectral_result.assignments) > 0.9
    assert np.mean(spectral_result.predict(wide).clusters == spectral_result.assignments) > 0.95


@pytest.mark.slow
def test_digits_without_labels() -> None:
    digits = load_digits().take(range(150))
    spectral_result = pssc(10, num_scales=None, num_dimensions=40, num_removed=(1, 2)).fit(
        digits.images, key=KEY
    )
    check_cut(spectral_result, digits.images)
    assert metrics.scores(digits.labels, spectral_result.assignments)["acc"] > 0.7


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [1, CHUNK])
def test_one_cluster_and_as_many_as_images(clusters: int, images: np.ndarray) -> None:
    few = images[:8]
    spectral_result = fitted(few, min(clusters, 8), num_neighbours=(3,))
    check_cut(spectral_result, few)
    # No eigenvalue follows the last one.
    assert (spectral_result.outcome.figures["eigengap"] == 0) == (clusters > 1)


@pytest.mark.slow
def test_more_neighbours_and_dimensions_than_there_are(images: np.ndarray) -> None:
    few = images[:6]
    spectral_result = fitted(few, 3, num_neighbours=(9, 40), num_dimensions=300, num_removed=(0, 4))
    check_cut(spectral_result, few)
    assert spectral_result.predict(few[:1]).clusters.shape == (1,)


def test_as_published(images: np.ndarray) -> None:
    model = ProjectedScatteringSpectralClustering.as_published(3)
    assert model.settings() | {"num_restarts": 0} == {
        "num_clusters": 3,
        "affinity": "representatives",
        "num_removed": (2,),
        "num_neighbours": (5,),
        "num_dimensions": 998,
        "normalisation": "largest",
        "num_scales": None,
        "num_angles": 8,
        "relative": False,
        "contrast": "none",
        "num_representatives": 1000,
        "num_candidates": 9000,
        "mask": None,
        "register": "none",
        "ground": "auto",
        "canvas": None,
        "num_restarts": 0,
    }
    spectral_result = model.fit(images, key=KEY, chunk_size=CHUNK)
    check_cut(spectral_result, images)
    assert spectral_result.outcome.extras["representatives_2"].shape == (CHUNK, 998)


@pytest.mark.slow
def test_di_kmeans_starts_from_a_cut(images: np.ndarray) -> None:
    check_start(fitted(images), images)


def test_stages_are_told_in_their_order(images: np.ndarray) -> None:
    for affinity in ("graph", "representatives"):
        reported: list[Progress] = []
        model = pssc(affinity=affinity, num_representatives=20)
        spectral_result = model.fit(images, key=KEY, chunk_size=CHUNK, callback=reported.append)
        expected = ["features", "directions", "neighbours", "cut", "alignments"]
        assert stages(reported) == expected
        reported.clear()
        spectral_result.predict(images, callback=reported.append)
        assert stages(reported) == ["features", "alignments"]


def test_a_callback_can_stop_it(images: np.ndarray) -> None:
    def stop(progress: Progress) -> None:
        if progress.stage == "cut":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pssc().fit(images, key=KEY, chunk_size=CHUNK, callback=stop)


def test_too_few_images_are_refused(images: np.ndarray) -> None:
    with pytest.raises(ValueError, match="num_clusters is 3, but the number of images is 2"):
        pssc().fit(images[:2], key=KEY)
    with pytest.raises(
        ValueError,
        match="5 images have no more than 4 principal directions, of which 4 would be removed; "
        "give at least 6 images",
    ):
        ProjectedScatteringSpectralClustering(2, num_removed=(1, 4)).fit(images[:5], key=KEY)
    with pytest.raises(ValueError, match="one image has no .* directions; give at least 2 images"):
        ProjectedScatteringSpectralClustering(1, num_removed=(0,)).fit(images[:1], key=KEY)
    check_cut(fitted(images[:6], num_removed=(4,)), images[:6])


def test_images_with_too_many_coefficients_are_refused() -> None:
    with pytest.raises(ValueError, match="coefficients each, more than 65536; make the images"):
        pssc(2, num_scales=1).fit(np.ones((4, 260, 260, 1), np.float32), key=KEY)
    # Of more images than half the coefficients a covariance is needed, of fewer it is not.
    many = np.broadcast_to(np.float32(1), (10009, 64, 64, 3))
    with pytest.raises(ValueError, match="20016 scattering coefficients each, more than 16384"):
        ProjectedScatteringSpectralClustering(2, num_removed=(1,)).project(Data(many))


def test_scales_larger_than_the_images_are_refused() -> None:
    with pytest.raises(ValueError, match="num_scales=7 averages over 128 pixels.*at most 5"):
        pssc(2, num_scales=7).feature_map(8, 8)
    assert pssc(2, num_scales=5).feature_map(8, 8) is not None


SETTINGS_REFUSED = [
    ({"num_clusters": 0}, "num_clusters must be at least 1, not 0"),
    ({"num_dimensions": 0}, "num_dimensions must be at least 1, not 0"),
    ({"num_angles": -1}, "num_angles must be at least 1, not -1"),
    ({"num_scales": 0}, "num_scales must be at least 1, not 0"),
    ({"num_removed": ()}, "num_removed is empty; give at least one whole number"),
    ({"num_removed": (1, -1)}, "num_removed must be at least 0, not -1"),
    ({"num_neighbours": ()}, "num_neighbours is empty"),
    ({"num_neighbours": (5, 0)}, "num_neighbours must be at least 1, not 0"),
    ({"num_representatives": 0}, "num_representatives must be at least 1, not 0"),
    ({"num_candidates": 0}, "num_candidates must be at least 1, not 0"),
    ({"num_restarts": 0}, "num_restarts must be at least 1, not 0"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS_REFUSED)
def test_settings_that_mean_nothing_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProjectedScatteringSpectralClustering(**{"num_clusters": 2, **settings})


@pytest.mark.parametrize("name", ["affinity", "normalisation"])
def test_words_that_are_not_known_are_refused(name: str) -> None:
    # Under test the check of types comes first, and raises a TypeError.
    with pytest.raises((ValueError, TypeError), match=f"{name}.*'other'"):
        ProjectedScatteringSpectralClustering(2, **{name: "other"})


def test_settings_make_the_model_again() -> None:
    settings = pssc(num_removed=(1, 2)).settings()
    assert MODELS["pssc"](**settings) == pssc(num_removed=(1, 2))


def test_the_bipartite_cut_is_that_of_the_graph_of_both() -> None:
    rng = np.random.default_rng(0)
    affinities = rng.uniform(size=(20, 7)) * (rng.uniform(size=(20, 7)) < 0.5)
    assignments = np.arange(20) % 3
    assignments[assignments == 1] = 0
    # Cluster 1 is empty, which counts 1.
    weight = np.stack([affinities[k == assignments].sum(0) for k in range(4)])
    both = scipy.sparse.csr_array(
        np.block([[np.zeros((20, 20)), affinities], [affinities.T, np.zeros((7, 7))]])
    )
    expected = normalised_cut(
        both, np.concatenate([assignments, weight.argmax(axis=0)]), num_clusters=3
    )
    spectral_result = bipartite_cut(scipy.sparse.csr_array(affinities), assignments, 3)
    assert spectral_result == pytest.approx(expected, rel=1e-12)
    assert spectral_result > 1


@pytest.mark.parametrize("model", [ProjectedScatteringSpectralClustering, ScatteringKMeans])
def test_two_plain_kinds_are_told_apart(model: type[AbstractScatteringModel]) -> None:
    # What tells two kinds apart is one direction, the leading one.
    images = np.zeros((24, 10, 20, 1), np.float32)
    for number, image in enumerate(images):
        row, column = 2 + number % 3, 4 + number // 2 % 4
        image[row : row + 5, column : column + 2] = 0.8 if number % 2 else 0.0
        image[row : row + 2, column : column + 9] += 0.0 if number % 2 else 0.9
    settings = {name: FAST[name] for name in ("num_dimensions", "num_angles", "num_restarts")}
    spectral_result = model(2, register="none", **settings).fit(images, key=KEY)
    assert metrics.accuracy(np.arange(24) % 2, spectral_result.assignments) == 1.0
    assert spectral_result.model.settings()["num_removed"] in (0, (0,))


def test_more_directions_are_removed_for_more_clusters() -> None:
    removed = [ProjectedScatteringSpectralClustering(k).removed for k in (1, 4, 5, 7, 8, 30)]
    assert removed == [(0,), (0,), (0, 1, 2, 3), (0, 1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4)]
    assert [ScatteringKMeans(k).most_removed for k in (1, 4, 5, 30)] == [0, 0, 2, 2]
    assert ProjectedScatteringSpectralClustering(2, num_removed=(3,)).removed == (3,)


def test_where_the_ground_is_kept_nothing_black_is_moved_in(images: np.ndarray) -> None:
    lit = jnp.asarray(np.maximum(images[0], 0.5))
    least = {}
    for ground in ("keep", "dark"):
        model = pssc(ground=ground).alignment_model()
        energy = model.problem(jax.eval_shape(lambda: lit)).solver.energy
        moved = energy.aligned(jnp.full((energy.num_params,), 0.2), lit)
        least[ground] = float(moved.min())
    assert least["keep"] >= 0.5 > least["dark"]


@pytest.mark.slow
def test_where_the_ground_is_kept_two_kinds_of_features_are_averaged(
    images: np.ndarray, tmp_path: Path
) -> None:
    """With all graphs equal to those of each kind alone, in their order."""
    ground = np.linspace(0.2, 0.6, images.shape[2], dtype=np.float32)[:, None]
    lit = np.concatenate([np.maximum(images, ground)] * 3, axis=-1)
    settings = {"register": "none", "ground": "keep"}
    both = fitted(lit, **settings)
    plain, relative = (fitted(lit, **settings, relative=each) for each in (False, True))
    extras = both.outcome.extras
    assert both.model.contrast == "local"
    for end, alone in (("", plain), ("_relative", relative)):
        np.testing.assert_array_equal(
            extras[f"coordinates{end}"], alone.outcome.extras["coordinates"]
        )
    scales = [each.outcome.extras["scales"] for each in (plain, relative)]
    np.testing.assert_array_equal(extras["scales"], np.concatenate(scales))
    assert "coordinates_relative" not in plain.outcome.extras
    diffclust.save(tmp_path / "model", both)
    loaded = diffclust.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(lit).clusters, both.predict(lit).clusters)
    assert np.mean(both.predict(lit).clusters == both.assignments) > 0.9
    for given, resolved in ((None, False), (True, True)):
        few = pssc(**settings, affinity="representatives", relative=given).resolved(Data(lit))
        assert few.relative is resolved


def test_where_the_ground_is_kept_features_are_of_local_contrast(
    images: np.ndarray, tmp_path: Path
) -> None:
    plain, image = pssc().feature_map(*images.shape[1:3]), jnp.asarray(images[0])
    cases = (({"ground": "keep"}, "local"), ({"ground": "keep", "contrast": "none"}, "none"))
    for given, expected in (*cases, ({}, "none")):
        model = pssc(**given).resolved(Data(images))
        assert model.contrast == expected
        features = model.feature_map(*images.shape[1:3])(image)
        np.testing.assert_allclose(
            features, plain(local_contrast(image) if expected == "local" else image)
        )
    # One that was saved before there was a local contrast goes on without.
    result = fitted(images, ground="keep", contrast="none", relative=False)
    diffclust.save(tmp_path / "model", result)
    description = json.loads((tmp_path / "model" / "model.json").read_text())
    del description["settings"]["contrast"]
    (tmp_path / "model" / "model.json").write_text(json.dumps(description))
    loaded = diffclust.load(tmp_path / "model")
    assert loaded.model == result.model
    np.testing.assert_array_equal(loaded.predict(images).clusters, result.predict(images).clusters)


def test_sigmas_are_mean_distances_to_as_many_representatives(key: jax.Array) -> None:
    model = ProjectedScatteringSpectralClustering(
        3,
        affinity="representatives",
        num_representatives=12,
        num_removed=(1,),
        num_neighbours=(2, 5),
        num_dimensions=4,
    )
    coordinates = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    near = model.near_representatives(coordinates, 1, key)
    result = model.cut_through_representatives([near], key)
    distances = np.sort(scipy.spatial.distance.cdist(coordinates[:, 1:], near["chosen"]), axis=1)
    expected = [distances[:, :2].mean(), distances[:, :5].mean()]
    np.testing.assert_allclose(result.extras["sigmas"], [expected], rtol=1e-4)


@pytest.mark.parametrize("varied", ["num_removed", "num_neighbours"])
def test_representatives_are_as_stable_as_each_number_agrees_with_all(
    varied: str, key: jax.Array
) -> None:
    settings = {"num_removed": (1,), "num_neighbours": (4,), varied: (1, 2, 4)}
    model = ProjectedScatteringSpectralClustering(
        3, affinity="representatives", num_representatives=12, num_dimensions=4, **settings
    )
    coordinates = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    near = [model.near_representatives(coordinates, n, key) for n in model.removed]
    result = model.cut_through_representatives(near, key)
    indices = []
    for place, number in enumerate((1, 2, 4)):
        single = dataclasses.replace(model, **{varied: (number,), "num_restarts": 1})
        own = near[place : place + 1] if varied == "num_removed" else near
        alone = single.cut_through_representatives(own, key)
        assert "stability" not in alone.figures
        indices.append(adjusted_rand_score(alone.points.assignments, result.points.assignments))
    assert result.figures["stability"] == pytest.approx(np.mean(indices))
    assert np.ptp(indices) > 0


@pytest.mark.parametrize(
    ("height", "width", "scales"), [(32, 120, 3), (120, 32, 3), (64, 64, 4), (64, 200, 4)]
)
def test_the_shorter_side_has_about_four_coefficients(height, width, scales) -> None:
    description = Data(np.zeros((4, height, width, 1), np.float32)).description
    model = ScatteringKMeans(2, register="none")
    assert model.automatic_settings(description)["num_scales"] == scales
