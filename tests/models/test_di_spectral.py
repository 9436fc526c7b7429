import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffclust
from diffclust import (
    DeformationInvariantSpectralClustering,
    metrics,
)
from diffclust.data import load_digits
from diffclust.models import MODELS, Result
from diffclust.parallel import Data
from diffclust.solvers import Progress
from tests.models.cuts import (
    CHUNK,
    assert_same,
    check_cut,
    check_saved,
    check_start,
    far_groups,
    quick_alignments,
    stages,
    strokes,
)

KEY = jax.random.key(0)
LABELS = np.arange(CHUNK) % 3
FAST = {
    "num_candidates": 6,
    "num_neighbours": (4, 5),
    "landmarks": (2, 2),
    "num_removed": (0,),
    "num_dimensions": 20,
    "num_scales": 1,
    "num_angles": 3,
    "num_restarts": 1,
    "register": "none",
}


def by_bending(clusters: int = 3, **settings) -> DeformationInvariantSpectralClustering:
    return DeformationInvariantSpectralClustering(clusters, **{**FAST, **settings})


def fitted(images: np.ndarray, clusters: int = 3, **settings) -> Result:
    return by_bending(clusters, **settings).fit(images, key=KEY, chunk_size=CHUNK)


QUICK = pytest.fixture(quick_alignments, scope="module", autouse=True)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return strokes(LABELS)


@pytest.fixture(scope="module")
def spectral_result(images: np.ndarray) -> Result:
    return fitted(images)


def test_clusters_are_the_classes(spectral_result: Result, images: np.ndarray) -> None:
    check_cut(spectral_result, images)
    assert metrics.adjusted_rand_index(LABELS, spectral_result.assignments) > 0.9
    assert spectral_result.outcome.figures["eigengap"] > 0
    # Of one distance the graphs for each number of neighbours are compared.
    assert 0.9 < spectral_result.outcome.figures["stability"] <= 1


@pytest.mark.slow
def test_images_that_were_fitted_are_assigned_as_they_were(
    spectral_result: Result, images: np.ndarray
) -> None:
    again = spectral_result.predict(images)
    assert np.mean(again.clusters == spectral_result.assignments) > 0.95
    few = spectral_result.predict(images[5:8])
    np.testing.assert_array_equal(few.clusters, again.clusters[5:8])
    np.testing.assert_allclose(few.distances, again.distances[5:8], atol=1e-3)


@pytest.mark.slow
def test_new_images_go_to_their_class(spectral_result: Result) -> None:
    labels = np.arange(30) % 3
    means = [np.bincount(spectral_result.assignments[k == LABELS]).argmax() for k in range(3)]
    new = strokes(labels, seed=1)
    assert np.mean(spectral_result.predict(new).clusters == np.array(means)[labels]) > 0.9


def test_a_key_gives_the_same_bits(spectral_result: Result, images: np.ndarray) -> None:
    assert_same(fitted(images), spectral_result)


def test_what_is_saved_predicts_the_same_bits(
    spectral_result: Result, images: np.ndarray, tmp_path
) -> None:
    check_saved(spectral_result, images, tmp_path / "model")


@pytest.mark.parametrize("direction", ["min", "mean"])
def test_both_directions(direction: str, spectral_result: Result, images: np.ndarray) -> None:
    other = fitted(images, direction=direction)
    check_cut(other, images)
    assert metrics.adjusted_rand_index(LABELS, other.assignments) > 0.9
    assert (
        np.abs(other.outcome.extras["scales"] - spectral_result.outcome.extras["scales"]).max()
        > 1e-3
    )
    if direction == "min":
        # Neighbours can only have come nearer.
        assert (
            other.outcome.extras["scales"] <= spectral_result.outcome.extras["scales"] + 1e-6
        ).all()
    again = other.predict(images)
    assert np.mean(again.clusters == other.assignments) > 0.9


@pytest.mark.slow
def test_scales_are_roots_of_the_invariant_distance(
    spectral_result: Result, images: np.ndarray
) -> None:
    model = spectral_result.model
    assert isinstance(model, DeformationInvariantSpectralClustering)
    units = images / np.sqrt((images**2).sum((1, 2, 3), keepdims=True))
    distance = model.distance(units)
    energy = jax.jit(jax.vmap(lambda c: distance(jnp.asarray(units[7]), c)))(jnp.asarray(units))
    squared = np.sort(np.delete(np.asarray(energy), 7))
    # Candidates are few, and so not all of the nearest; none of them is nearer.
    scales = spectral_result.outcome.extras["scales"][:, 7]
    assert scales.shape == (2,)
    for scale, nearest in zip(scales, np.sqrt(squared[3:5]), strict=True):
        assert scale >= nearest - 1e-6
        assert np.abs(np.sqrt(squared) - scale).min() < 1e-5


@pytest.mark.slow
def test_every_image_twice(images: np.ndarray) -> None:
    twice = np.repeat(images[:24], 2, axis=0)
    spectral_result = fitted(twice, num_neighbours=(3,))
    check_cut(spectral_result, twice)
    np.testing.assert_array_equal(
        spectral_result.assignments[::2], spectral_result.assignments[1::2]
    )


@pytest.mark.slow
def test_equal_images_are_taken(images: np.ndarray) -> None:
    for equal in (np.full_like(images, 0.5), np.repeat(images[:1], CHUNK, axis=0)):
        spectral_result = fitted(equal)
        check_cut(spectral_result, equal)
        again = spectral_result.predict(equal)
        assert np.isfinite(again.distances).all()
        assert np.isin(again.clusters, np.arange(3)).all()


def test_blank_images_are_refused(images: np.ndarray, spectral_result: Result) -> None:
    blank = images.copy()
    blank[[4, 9]] = 0
    with pytest.raises(ValueError, match=r"blank images at index 4, 9"):
        fitted(blank)
    with pytest.raises(ValueError, match=r"blank images at index 4, 9"):
        spectral_result.predict(blank)


def test_fewer_pixels_than_landmarks_are_refused() -> None:
    with pytest.raises(ValueError, match="images of 3×4 pixels are smaller than .* 5×5"):
        fitted(np.ones((8, 3, 4, 1), np.float32), landmarks=(5, 5))


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_a_graph_in_parts(groups: int, tmp_path) -> None:
    labels = np.arange(CHUNK) % groups
    parts = far_groups(labels)
    spectral_result = fitted(parts)
    check_cut(spectral_result, parts)
    np.testing.assert_allclose(
        spectral_result.outcome.extras["eigenvalues"][:groups], 1.0, atol=1e-6
    )
    if groups == 3:
        assert metrics.adjusted_rand_index(labels, spectral_result.assignments) == 1.0
        assert spectral_result.outcome.extras["bridges"].shape == (0, 2)
        diffclust.save(tmp_path / "model", spectral_result)
        assert_same(diffclust.load(tmp_path / "model"), spectral_result)
    again = spectral_result.predict(parts)
    assert np.isfinite(again.distances).all()


@pytest.mark.slow
def test_colour_and_images_that_are_not_square() -> None:
    wide = strokes(LABELS, 7, 10, 3)
    spectral_result = fitted(wide)
    check_cut(spectral_result, wide)
    assert metrics.adjusted_rand_index(LABELS, spectral_result.assignments) > 0.9


@pytest.mark.slow
def test_fewer_images_than_candidates(images: np.ndarray) -> None:
    few = images[:9]
    spectral_result = fitted(few, num_candidates=30, num_neighbours=(3, 20), num_removed=(0, 1))
    check_cut(spectral_result, few)
    assert spectral_result.outcome.figures["stability"] <= 1
    assert spectral_result.outcome.extras["scales"].shape == (4, 9)
    assert spectral_result.predict(few[:2]).clusters.shape == (2,)


def test_too_few_images_are_refused(images: np.ndarray) -> None:
    with pytest.raises(ValueError, match="num_clusters is 3, but the number of images is 2"):
        fitted(images[:2])
    with pytest.raises(ValueError, match="3 images have no more than 2 .* give at least 4 images"):
        fitted(images[:3], num_removed=(2,))


@pytest.mark.slow
def test_di_kmeans_starts_from_a_cut(spectral_result: Result, images: np.ndarray) -> None:
    check_start(spectral_result, images)


def test_prototypes_are_those_of_di_kmeans_with_the_same_warps(spectral_result: Result) -> None:
    norms = np.sqrt((spectral_result.prototypes**2).sum((1, 2, 3)))
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    params = spectral_result.outcome.assignment.params
    assert params.shape == (CHUNK, spectral_result.model.energy().num_params) == (CHUNK, 8)
    assert np.abs(params).max() > 1e-3


@pytest.mark.slow
def test_stages_are_told_in_their_order(images: np.ndarray) -> None:
    reported: list[Progress] = []
    model = by_bending(num_removed=(0, 1))
    spectral_result = model.fit(images, key=KEY, chunk_size=CHUNK, callback=reported.append)
    assert stages(reported) == [
        "features",
        "directions",
        "neighbours",
        "pairs",
        "cut",
        "alignments",
    ]
    assert [(p.done, p.total) for p in reported if p.stage == "cut"] == [(0, 3), (1, 3), (2, 3)]
    reported.clear()
    spectral_result.predict(images, callback=reported.append)
    assert stages(reported) == ["features", "pairs", "alignments"]


@pytest.mark.slow
def test_digits_without_labels() -> None:
    digits = load_digits().take(range(150))
    model = DeformationInvariantSpectralClustering(10, landmarks=(3, 3), num_restarts=1)
    spectral_result = model.fit(digits.images, key=KEY)
    check_cut(spectral_result, digits.images)
    assert metrics.scores(digits.labels, spectral_result.assignments)["acc"] > 0.7


SETTINGS_REFUSED = [
    ({"num_clusters": 0}, "num_clusters must be at least 1, not 0"),
    ({"num_candidates": 4}, "num_candidates must be at least 7, not 4"),
    ({"num_neighbours": ()}, "num_neighbours is empty"),
    ({"num_neighbours": (0,)}, "num_neighbours must be at least 1, not 0"),
    ({"num_removed": ()}, "num_removed is empty"),
    ({"num_removed": (-2,)}, "num_removed must be at least 0, not -2"),
    ({"num_dimensions": 0}, "num_dimensions must be at least 1, not 0"),
    ({"num_scales": 0}, "num_scales must be at least 1, not 0"),
    ({"num_angles": 0}, "num_angles must be at least 1, not 0"),
    ({"num_restarts": 0}, "num_restarts must be at least 1, not 0"),
    ({"landmarks": (1, 5)}, r"landmarks must be \(rows, columns\)"),
    ({"affine_penalty": -1.0}, "affine_penalty must be at least 0"),
    ({"bending_penalty": float("nan")}, "bending_penalty must be at least 0"),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS_REFUSED)
def test_settings_that_mean_nothing_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeformationInvariantSpectralClustering(**{"num_clusters": 2, **settings})


@pytest.mark.parametrize("name", ["direction", "normalisation"])
def test_words_that_are_not_known_are_refused(name: str) -> None:
    # Under test the check of types comes first, and raises a TypeError.
    with pytest.raises((ValueError, TypeError), match=f"{name}.*'other'"):
        DeformationInvariantSpectralClustering(2, **{name: "other"})


def test_settings_make_the_model_again() -> None:
    model = by_bending(direction="mean")
    assert MODELS["di-spectral"](**model.settings()) == model


def test_candidates_of_turned_images_lie_at_any_angle() -> None:
    rng, side = np.random.default_rng(0), np.arange(16) - 7.5
    labels, angle = np.arange(36) % 3, rng.uniform(-np.pi, np.pi, (36, 1, 1))
    x, y = np.meshgrid(side, side)
    along, across = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
    bar = np.exp(-(across**2) / 2 - along**2 / 20)
    kinds = [bar, bar + np.exp(-((along - 4) ** 2) / 2 - (across - 3) ** 2 / 3), bar + bar[:, ::-1]]
    # Smaller than the canvas, in whose middle they lie.
    turned = np.choose(labels[:, None, None], kinds)[..., None].astype(np.float32)

    def purity(transforms: str) -> float:
        model = by_bending(transforms=transforms)
        _, coordinates = model.project(Data(turned))
        (near,) = model.neighbours(coordinates)
        return float(np.mean(labels[near.index] == labels[:, None]))

    assert purity("turn-tps") > 0.95
    assert purity("rot-tps") > 0.9
    assert purity("tps") < 0.8


def test_what_is_turned_is_placed_and_not_made_upright(images: np.ndarray) -> None:
    large = np.kron(images, np.ones((1, 4, 4, 1), np.float32))
    resolved = {
        transforms: by_bending(register="auto", transforms=transforms)
        .resolved(Data(large))
        .register
        for transforms in ("tps", "turn-tps")
    }
    assert resolved == {"tps": "auto", "turn-tps": "place"}
    of_turned = DeformationInvariantSpectralClustering(3, transforms="turn-tps")
    assert (of_turned.num_compared(99), by_bending().num_compared(99)) == (40, 6)
    assert DeformationInvariantSpectralClustering(3).num_compared(99) == 15
    model = diffclust.AffineInvariantKMeans(3, register="auto", transforms="rot")
    assert model.resolved(Data(large)).register == "place"


def test_one_number_stands_for_a_list_of_one_and_for_height_and_width() -> None:
    given = {"num_neighbours": 4, "num_removed": [2, 0]}
    settings = by_bending(landmarks=np.int64(3), **given).settings()
    expected = {"num_neighbours": (4,), "num_removed": (2, 0), "landmarks": (3, 3)}
    assert {name: settings[name] for name in expected} == expected
    assert all(type(number) is int for name in expected for number in settings[name])
