import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import (
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DTIKMeans,
    KMeans,
    metrics,
)
from diffclust.models import MODELS, AbstractModel, AbstractPrototypeModel, Result, unaligned
from diffclust.solvers import Progress
from tests.registry import blobs

LABELS = np.arange(16) % 2
KEY = jax.random.key(0)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Two classes of eight images each, not square and in colour, every image moved a little."""
    rng = np.random.default_rng(0)
    means = blobs(2, 8, 10, 3, seed=1)
    moved = [np.roll(means[label], rng.integers(-1, 2, 2), axis=(0, 1)) for label in LABELS]
    return (np.stack(moved) + rng.uniform(0, 0.02, (16, 8, 10, 3))).astype(np.float32)


def quick(model: type[AbstractPrototypeModel], **settings) -> AbstractPrototypeModel:
    return model(2, num_restarts=1, split_merge=False, **settings)


def check_result(result: Result, images: np.ndarray) -> None:
    """What holds of every result."""
    count, clusters = len(images), result.model.num_clusters
    assert result.assignments.shape == result.distances.shape == result.margins.shape == (count,)
    assert result.prototypes.shape == (clusters, *images.shape[1:])
    np.testing.assert_array_equal(
        result.counts, np.bincount(result.assignments, minlength=clusters)
    )
    sizes = sorted(result.counts)
    assert str(result) == (
        f"{result.model.method}: {count} samples in {clusters} clusters of {sizes[0]} to "
        f"{sizes[-1]}, loss {result.loss:.6g}"
    )
    np.testing.assert_allclose(result.loss, result.distances.sum(), rtol=1e-4)
    assert np.all(result.margins >= 0)
    assert np.all(result.distances >= 0)
    summary = json.loads(json.dumps(result.summary()))
    assert summary["method"] == result.model.method
    assert (summary["n"], summary["k"], summary["loss"]) == (count, clusters, result.loss)
    # Prototypes fixed, the images that were fitted find nearly the same alignments again.
    again = result.predict(images)
    assert len(again) == count
    assert np.mean(again.clusters == result.assignments) >= 0.9
    same = again.clusters == result.assignments
    np.testing.assert_allclose(again.distances[same], result.distances[same], rtol=0.3, atol=0.02)
    if clusters > 1:
        assert np.all(again.clusters != again.runners_up)


@pytest.fixture(scope="module")
def deformation(images: np.ndarray) -> Result:
    model = quick(DeformationInvariantKMeans, landmarks=(2, 3), max_passes=6)
    return model.fit(images, key=KEY)


def test_di_kmeans(deformation: Result, images: np.ndarray) -> None:
    check_result(deformation, images)
    assert metrics.adjusted_rand_index(LABELS, deformation.assignments) == 1.0
    norms = np.sqrt((deformation.prototypes**2).sum((1, 2, 3)))
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    assert deformation.outcome.assignment.params.shape == (16, 12)


def test_aligned_images_lie_nearer_to_their_prototypes(
    deformation: Result, images: np.ndarray
) -> None:
    params = deformation.outcome.assignment.params
    aligned = deformation.align(images, params)
    assert aligned.shape == images.shape
    own = deformation.prototypes[deformation.assignments]

    def distances(pictures: np.ndarray) -> np.ndarray:
        norms = np.sqrt((images**2).sum((1, 2, 3), keepdims=True))
        return ((pictures / norms - own) ** 2).sum((1, 2, 3))

    assert np.all(distances(aligned) <= distances(images) + 1e-5)
    assert distances(aligned).sum() < 0.7 * distances(images).sum()
    # The distance that decided holds the penalties as well.
    penalties = deformation.distances - distances(aligned)
    assert np.all(penalties >= -1e-4)
    np.testing.assert_allclose(deformation.align(images, 0 * params), images, atol=1e-5)
    # And their prototypes, moved back, to them.
    back = unaligned(deformation, params, own)
    norms = np.sqrt((images**2).sum((1, 2, 3), keepdims=True))
    assert ((back - images / norms) ** 2).sum() < 0.7 * distances(images).sum()
    np.testing.assert_allclose(unaligned(deformation, 0 * params, own), own, atol=1e-5)
    with pytest.raises(ValueError, match=r"params must have shape \(16, 12\)"):
        unaligned(deformation, params[:5], own)


def test_kmeans(images: np.ndarray) -> None:
    result = KMeans(2).fit(images, key=KEY)
    check_result(result, images)
    np.testing.assert_allclose(
        result.prototypes,
        np.stack([images[result.assignments == k].mean(0) for k in range(2)]),
        atol=1e-5,
    )
    # Without a transform there is nothing to move.
    nothing = result.outcome.assignment.params
    assert nothing.shape == (16, 0)
    np.testing.assert_array_equal(result.align(images, nothing), images)
    with pytest.raises(ValueError, match="kmeans does not move images"):
        unaligned(result, nothing, images)


def test_distances_that_lose_their_digits_are_warned_of() -> None:
    values = np.repeat([1e4, 1e4 + 3, -1e4], 20)[:, None, None]
    far = values + 0.5 * np.random.default_rng(0).normal(size=(60, 3, 3))
    with pytest.warns(UserWarning, match=r"two clusters are .* apart, .* lose digits"):
        KMeans(3, num_restarts=1).fit(far, key=KEY)
    with pytest.warns(UserWarning, match="so small that their squares vanish in float32"):
        KMeans(2, num_restarts=1).fit(far[:40] * 1e-25, key=KEY)


def test_single_cluster(images: np.ndarray) -> None:
    result = KMeans(1).fit(images, key=KEY)
    check_result(result, images)
    np.testing.assert_array_equal(result.outcome.assignment.runners_up, -1)


def test_as_many_clusters_as_images(images: np.ndarray) -> None:
    result = KMeans(16, num_restarts=1).fit(images, key=KEY)
    assert sorted(result.assignments.tolist()) == list(range(16))
    np.testing.assert_allclose(result.loss, 0.0, atol=1e-3)


def test_bytes_and_grey_images_are_taken(images: np.ndarray) -> None:
    grey = images.mean(-1)
    levels = np.round(grey / grey.max() * 255).astype(np.uint8)
    from_bytes = KMeans(2).fit(levels, key=KEY)
    assert from_bytes.sample_shape == (8, 10, 1)
    assert from_bytes.prototypes.max() <= 1.0
    from_floats = KMeans(2).fit((levels / 255)[..., None].tolist(), key=KEY)
    np.testing.assert_allclose(from_bytes.prototypes, from_floats.prototypes, atol=1e-6)
    words = KMeans(2).fit(levels.astype(np.uint16) * 257, key=KEY)
    np.testing.assert_allclose(words.prototypes, from_bytes.prototypes, atol=1e-6)
    from_device = KMeans(2).fit(jnp.asarray(levels), key=KEY)
    np.testing.assert_array_equal(from_device.assignments, from_bytes.assignments)
    again = from_bytes.predict(levels[:3])
    np.testing.assert_array_equal(again.clusters, from_bytes.assignments[:3])


def test_given_prototypes_and_assignments_are_where_it_starts(images: np.ndarray) -> None:
    # Clusters keep the order that they are given in.
    means = np.stack([images[LABELS == 1].mean(0), images[LABELS == 0].mean(0)])
    by_prototypes = KMeans(2).fit(images, key=KEY, prototypes=means)
    by_assignments = KMeans(2).fit(images, key=KEY, assignments=1 - LABELS)
    np.testing.assert_array_equal(by_prototypes.assignments, by_assignments.assignments)
    swapped = KMeans(2).fit(images, key=KEY, prototypes=means[::-1])
    np.testing.assert_array_equal(swapped.assignments, 1 - by_prototypes.assignments)
    np.testing.assert_allclose(by_prototypes.history, by_assignments.history, rtol=1e-5)
    assert len(by_prototypes.outcome.restarts) == 1


def test_sample_weights_pull_the_mean(images: np.ndarray) -> None:
    weight = np.zeros(16)
    weight[[3, 5]] = [1.0, 3.0]
    result = KMeans(1).fit(images, key=KEY, sample_weight=weight)
    expected = 0.25 * images[3] + 0.75 * images[5]
    np.testing.assert_allclose(result.prototypes[0], expected, atol=1e-5)


@pytest.mark.parametrize(("count", "size"), [(9, 16), (20, 32), (40, 50)])
def test_a_chunk_is_not_mostly_padding(count: int, size: int) -> None:
    images = np.random.default_rng(0).random((count, 5, 5), np.float32)
    result = KMeans(2, num_restarts=1).fit(images, key=KEY, chunk_size=50)
    assert result.outcome.chunk_size == size


def test_callback_is_told_and_can_stop(images: np.ndarray) -> None:
    seen: list[Progress] = []
    KMeans(2, num_restarts=2).fit(images, key=KEY, callback=seen.append, chunk_size=5)
    passes = [report for report in seen if report.stage == "pass"]
    assert {report.restart for report in passes} == {0, 1}
    assert {(report.done, report.total) for report in passes} == {(n, 4) for n in (1, 2, 3, 4)}

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        KMeans(2).fit(images, key=KEY, callback=stop)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        quick(AffineInvariantKMeans, max_passes=3),
        quick(DeformationInvariantKMeans, landmarks=(3, 2), pixel_weights="jacobian"),
    ],
    ids=["ai", "di-jacobian"],
)
def test_double_precision_throughout(model: AbstractPrototypeModel, images: np.ndarray) -> None:
    with jax.enable_x64(True):
        result = model.fit(images.astype(np.float64), key=jax.random.key(0))
        for leaf in jax.tree.leaves(result.outcome.learned):
            assert leaf.dtype == jnp.float64
        assignment = result.outcome.assignment
        for array in (assignment.distances, assignment.margins, assignment.params):
            assert array.dtype == np.float64
        assert result.align(images, assignment.params).dtype == np.float64
    assert metrics.adjusted_rand_index(LABELS, result.assignments) == 1.0
    norms = np.sqrt((result.prototypes**2).sum((1, 2, 3)))
    np.testing.assert_allclose(norms, 1.0, rtol=1e-10)


def test_kmeans_in_double_precision(images: np.ndarray) -> None:
    with jax.enable_x64(True):
        result = KMeans(2).fit(images, key=jax.random.key(0))
        assert result.prototypes.dtype == result.distances.dtype == np.float64
        again = result.predict(images)
    np.testing.assert_allclose(again.distances, result.distances, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ai-kmeans", "di-kmeans"])
@pytest.mark.parametrize("settings", [{"boundary": "reflect"}, {"unit_norm": False}])
def test_models_with_other_settings(name: str, settings: dict, images: np.ndarray) -> None:
    check_result(MODELS[name](2, max_passes=4, **settings).fit(images, key=KEY), images)


def broken(images: np.ndarray, index: tuple, value: float) -> np.ndarray:
    array = images.copy()
    array[index] = value
    return array


IMAGES_REFUSED = {
    "rank": (
        np.zeros((8, 10)),
        r"images must have shape \(n, height, width, channels\).*\(8, 10\)",
    ),
    "empty": (np.zeros((0, 8, 10)), r"none of them 0; got \(0, 8, 10\)"),
    "text": (np.full((2, 3, 3), "a"), "images must hold numbers, not <U1"),
    "complex": (np.zeros((2, 3, 3), complex), "images must hold numbers, not complex128"),
    "bool": (np.zeros((2, 3, 3), bool), "images must hold numbers, not bool; convert it to float"),
    "too-few": (np.zeros((1, 3, 3)), "num_clusters is 2, but the number of images is 1"),
}


@pytest.mark.parametrize("case", IMAGES_REFUSED)
def test_wrong_images_are_refused(case: str) -> None:
    images, message = IMAGES_REFUSED[case]
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(images, key=KEY)


def test_numbers_that_are_not_finite_are_refused(images: np.ndarray) -> None:
    two = broken(broken(images, (3, 0, 0, 0), np.nan), (5, 1, 1, 1), np.inf)
    with pytest.raises(ValueError, match="images holds NaN or infinity at index 3, 5; remove"):
        KMeans(2).fit(two, key=KEY)
    many = broken(images, (slice(1, 9), 0), np.nan)
    with pytest.raises(ValueError, match="at index 1, 2, 3, 4, 5 and 3 more"):
        KMeans(2).fit(many, key=KEY)


def test_blank_images_are_refused_where_norms_are_one(images: np.ndarray) -> None:
    blank = broken(images, (4,), 0.0)
    with pytest.raises(ValueError, match=r"blank images at index 4"):
        AffineInvariantKMeans(2).fit(blank, key=KEY)
    with pytest.raises(ValueError, match=r"blank images at index 4"):
        DeformationInvariantKMeans(2).fit(blank, key=KEY)
    assert KMeans(2).fit(blank, key=KEY).loss > 0


def test_images_smaller_than_the_landmark_grid_are_refused(images: np.ndarray) -> None:
    with pytest.raises(ValueError, match="images of 8×10 pixels are smaller than .* 9×3"):
        DeformationInvariantKMeans(2, landmarks=(9, 3)).fit(images, key=KEY)


STARTS_REFUSED = {
    "both": ({"prototypes": 0, "assignments": 0}, "prototypes or assignments .*, not both"),
    "shape": (
        {"prototypes": np.zeros((3, 8, 10, 3))},
        r"prototypes must have shape \(2, 8, 10, 3\), not \(3, 8, 10, 3\)",
    ),
    "nan": (
        {"prototypes": np.full((2, 8, 10, 3), np.nan)},
        "prototypes holds NaN or infinity at index 0, 1",
    ),
    "count": ({"assignments": [0, 1]}, r"16 whole numbers, .* got int64 of shape \(2,\)"),
    "fractions": ({"assignments": np.zeros(16)}, "16 whole numbers, .* got float64"),
    "range": ({"assignments": np.arange(16)}, "assignments must lie in 0 to 1; got 0 to 15"),
    "negative": ({"assignments": -LABELS}, "assignments must lie in 0 to 1; got -1 to 0"),
    "weights": ({"sample_weight": [1.0, 2.0]}, r"shape \(16,\), one for each image; got \(2,\)"),
    "negative-weights": (
        {"sample_weight": -np.ones(16)},
        "sample_weight must be finite and at least",
    ),
    "no-weights": ({"sample_weight": np.zeros(16)}, "zero for all"),
    "nan-weights": ({"sample_weight": np.full(16, np.nan)}, "sample_weight must be finite"),
    "chunks": ({"chunk_size": 0}, "chunk_size must be at least 1, not 0"),
}


@pytest.mark.parametrize("case", STARTS_REFUSED)
def test_wrong_arguments_are_refused(case: str, images: np.ndarray) -> None:
    arguments, message = STARTS_REFUSED[case]
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(images, key=KEY, **arguments)


SETTINGS_REFUSED = [
    (KMeans, {"num_clusters": 0}, "num_clusters must be at least 1, not 0"),
    (KMeans, {"num_restarts": 0}, "num_restarts must be at least 1, not 0"),
    (KMeans, {"max_passes": -1}, "max_passes must be at least 1, not -1"),
    (KMeans, {"tolerance": -0.5}, "tolerance must be at least 0, not -0.5"),
    (KMeans, {"tolerance": float("nan")}, "tolerance must be at least 0, not nan"),
    (AffineInvariantKMeans, {"affine_penalty": -1.0}, "affine_penalty must be at least 0"),
    (AffineInvariantKMeans, {"num_clusters": 0}, "num_clusters must be at least 1, not 0"),
    (DeformationInvariantKMeans, {"affine_penalty": -1.0}, "affine_penalty must be at least 0"),
    (DeformationInvariantKMeans, {"bending_penalty": -1.0}, "bending_penalty must be at least 0"),
    (DeformationInvariantKMeans, {"landmarks": (1, 5)}, r"landmarks must be \(rows, columns\)"),
    (DeformationInvariantKMeans, {"regularisation": -1.0}, "regularisation must be at least 0"),
    (AffineInvariantKMeans, {"penalty_rounds": -1}, "penalty_rounds must be at least 0, not -1"),
    (AffineInvariantKMeans, {"penalty_per_cluster": True}, "needs penalty_rounds of at least 1"),
    (
        DeformationInvariantKMeans,
        {"penalty_rounds": 2, "bending_penalty": 0.0},
        "cannot be learned from: penalty_rounds needs all of them positive",
    ),
    (
        AffineInvariantKMeans,
        {"penalty_rounds": 2, "transforms": "rot-aff"},
        "and transforms without turn, rot and shift, which cost nothing",
    ),
]


@pytest.mark.parametrize(
    ("model", "name", "value", "message"),
    [
        (AffineInvariantKMeans(2), "unit_norm", "false", "unit_norm must be True or False, not 'f"),
        (DeformationInvariantKMeans(2), "transforms", ["aff"], "transforms must be a string"),
        (DTIKMeans(2), "transforms", None, "transforms must be a string, not None"),
        (DTIKMeans(2), "training", {"max_steps": 10}, "training must be a Training, not {'max"),
    ],
)
def test_settings_of_other_kinds_are_refused(
    model: AbstractModel, name: str, value: object, message: str
) -> None:
    # Under test, jaxtyping's hook would refuse it before the model's own check.
    object.__setattr__(model, name, value)
    with pytest.raises(ValueError, match=message):
        AbstractModel.__check_init__(model)


@pytest.mark.parametrize(("model", "settings", "message"), SETTINGS_REFUSED)
def test_settings_that_mean_nothing_are_refused(
    model: type[AbstractPrototypeModel], settings: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model(**{"num_clusters": 2, **settings})


def test_predict_and_align_refuse_what_does_not_fit(images: np.ndarray) -> None:
    result = KMeans(2).fit(images, key=KEY)
    with pytest.raises(ValueError, match=r"the fitted shape \(8, 10, 3\), not \(10, 8, 3\)"):
        result.predict(images.transpose(0, 2, 1, 3))
    with pytest.raises(ValueError, match="NaN or infinity at index 2"):
        result.predict(broken(images, (2, 0, 0, 0), np.nan))
    with pytest.raises(ValueError, match=r"params must have shape \(16, 0\).*got \(16, 6\)"):
        result.align(images, np.zeros((16, 6)))


@pytest.mark.parametrize("name", MODELS)
def test_settings_are_json_and_make_the_model_again(name: str) -> None:
    model = MODELS[name](3, num_restarts=2)
    assert model.method == name
    assert model.criterion
    settings = model.settings()
    assert json.loads(json.dumps(settings)).keys() == settings.keys()
    assert MODELS[name].from_settings(settings) == model
    assert hash(MODELS[name].from_settings(settings)) == hash(model)


def test_starts_that_cannot_be_are_refused(images: np.ndarray) -> None:
    with pytest.raises(ValueError, match="assignments leave cluster 1 empty"):
        KMeans(2).fit(images, key=KEY, assignments=np.zeros(len(images), int))
    blank = np.zeros((2, *images.shape[1:]), np.float32)
    with pytest.raises(ValueError, match="blank images"):
        AffineInvariantKMeans(2).fit(images, key=KEY, prototypes=blank)


@pytest.mark.slow
def test_images_of_weight_zero_do_not_decide_penalties(images: np.ndarray) -> None:
    model = quick(AffineInvariantKMeans, penalty_rounds=2, max_passes=4)
    alone = model.fit(images, key=KEY, assignments=LABELS)
    noise = np.random.default_rng(1).uniform(0.1, 1, images.shape).astype(np.float32)
    both, weight = np.concatenate([noise, images]), np.repeat([0.0, 1.0], len(images))
    result = model.fit(both, key=KEY, assignments=np.tile(LABELS, 2), sample_weight=weight)
    penalties = (r.outcome.learned.clusters.penalty for r in (result, alone))
    np.testing.assert_allclose(*penalties, rtol=1e-3)
    one = AffineInvariantKMeans(1, num_restarts=1, penalty_rounds=1, max_passes=2)
    assert np.isfinite(one.fit(images[:1], key=KEY).loss)
