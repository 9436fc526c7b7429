"""What is said of movements: known ones, none, and what K-means does."""

import itertools
from pathlib import Path
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import strategies
from sklearn import cluster

from diffclust import metrics
from diffclust.analysis import describe_movement, movement
from diffclust.analysis.movement import _displacement
from diffclust.analysis.nuisances import explained_variance, nuisances_explained
from diffclust.data import open_stream
from diffclust.models import (
    MODELS,
    AbstractModel,
    AffineInvariantKMeans,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Result,
    TransformationInvariantKMeans,
)
from diffclust.models import images as model_images
from diffclust.models.settings import Training
from diffclust.report.text import describe_frames
from diffclust.transforms import Affine, Compose


def bars(count: int, shift: int) -> np.ndarray:
    """Upright and level bars of 16 × 16 pixels, moved by up to some pixels."""
    random, images = np.random.default_rng(0), np.zeros((count, 16, 16, 1), np.float32)
    for i, image in enumerate(images):
        x, y = 6 + random.integers(-shift, shift + 1, 2)
        image[(slice(y, y + 4), slice(2, 14)) if i % 2 else (slice(2, 14), slice(x, x + 4))] = 1.0
    return 0.95 * images + random.uniform(0.0, 0.05, images.shape).astype(np.float32)


def fitted(images: Any, key: jax.Array, **start: Any) -> Result:
    model = AffineInvariantKMeans(2, num_restarts=1, max_passes=4, split_merge=False)
    return model.fit(images, key=key, **start)


def of_alignment(figures: dict[str, float]) -> set[str]:
    """The names of figures that do not say what clusters are of."""
    return {name for name in figures if not name.endswith("_explained")}


@pytest.mark.slow
def test_moved_bars(key: jax.Array) -> None:
    images = bars(24, 3)
    result = fitted(images, key)
    actual = movement(result, images, key=key)
    assert 1.0 < actual["displacement"] < 6.0
    assert actual["gain"] > 0.3
    assert of_alignment(actual) == {"displacement", "gain", "kmeans_ari"}
    assert "next to nothing" not in describe_movement(actual)


@pytest.mark.slow
def test_one_cluster_is_compared_with_no_method(key: jax.Array) -> None:
    images = bars(8, 3)
    model = AffineInvariantKMeans(1, num_restarts=1, max_passes=2)
    figures = movement(model.fit(images, key=key), images, key=key)
    assert of_alignment(figures) == {"displacement", "gain"}


def test_bars_that_stand_still(key: jax.Array) -> None:
    images = bars(24, 0)
    start = np.arange(24) % 2
    start[:6] = 1
    result = fitted(images, key, assignments=start)
    actual = movement(result, images, key=key, assignments=start)
    assert actual["displacement"] < 0.5
    assert actual["kmeans_ari"] == pytest.approx(1.0)
    assert actual["start_kept"] == np.mean(result.assignments == start)
    text = describe_movement({**actual, "gain": 0.01})
    assert "took away 1% of their distances. That is next to nothing:" in text
    assert metrics.accuracy(np.arange(24) % 2, result.assignments) == 1.0


def test_a_start_whose_images_weigh_nothing_is_their_mean(key: jax.Array) -> None:
    images, start = bars(24, 0), np.arange(24) % 2
    weight = np.where(start == 0, 0.0, 1.0)
    result = fitted(images, key, assignments=start, sample_weight=weight)
    figures = movement(result, images, key=key, assignments=start, sample_weight=weight)
    assert np.isfinite(figures["kmeans_ari"])


def test_methods_that_move_nothing(key: jax.Array) -> None:
    images = bars(8, 1)
    result = KMeans(2, num_restarts=1).fit(images, key=key)
    assert of_alignment(movement(result, images, key=key)) == set()
    assert describe_movement({}) == ""


@pytest.mark.slow
def test_prototypes_that_are_moved(key: jax.Array) -> None:
    images = bars(24, 2)
    training = Training(steps=(10, 5, 10, 5), batch_size=8, split_merge=False)
    model = TransformationInvariantKMeans(2, transforms="col-aff", training=training)
    result = model.fit(images, key=key)
    figures = movement(result, images, key=key)
    assert of_alignment(figures) == {"prototype_displacement", "gain", "raw_kmeans_ari"}
    # Of the affine steps' params alone; colours move no pixel.
    params = result.outcome.assignment.params
    assert params.shape[1] == 2 + Affine().num_params
    y, x = (np.arange(16) + 0.5) / 8 - 1, (np.arange(16) + 0.5) / 8 - 1
    grid = np.stack(np.meshgrid(x, y))
    expected = []
    for a, b, c, d, e, f in params[:, 2:]:
        moved = np.stack([a * grid[0] + b * grid[1] + e, c * grid[0] + d * grid[1] + f])
        expected.append(8 * np.sqrt(np.mean(np.sum(moved**2, 0))))
    assert figures["prototype_displacement"] == pytest.approx(np.mean(expected), rel=1e-4)
    assert 0.0 < figures["gain"] < 1.0
    text = describe_movement(figures)
    assert text.startswith("Alignment moved prototypes by ")
    assert "between these clusters and those of plain K-means is" in text


@pytest.mark.slow
def test_a_mixture_gains_density(key: jax.Array) -> None:
    images = bars(24, 2)
    training = Training(steps=(10, 10, 5), batch_size=8, split_merge=False)
    settings = {"transforms": "aff", "training": training}
    result = MODELS["dti-gmm"].from_settings({"num_clusters": 2, **settings}).fit(images, key=key)
    figures = movement(result, images, key=key)
    assert of_alignment(figures) == {"prototype_displacement", "log_density_gain", "raw_kmeans_ari"}
    assert "nats to the log density of each" in describe_movement(figures)


SPECTRAL = {"num_neighbours": (4,), "num_removed": (0,), "num_dimensions": 8}
SPECTRAL |= {"num_scales": 1, "num_angles": 2}


@pytest.mark.parametrize(
    "name",
    [
        "pssc",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("di-spectral", "scattering-kmeans")),
    ],
)
def test_graphs_tell_of_registration_and_of_plain_kmeans(key: jax.Array, name: str) -> None:
    images = bars(24, 3)
    settings = SPECTRAL if name != "scattering-kmeans" else {"num_removed": 0, "num_angles": 2}
    model: AbstractModel = MODELS[name].from_settings(
        {"num_clusters": 2, "register": "place", "ground": "none", **settings}
    )
    result = model.fit(images, key=key)
    figures = movement(result, images, key=key)
    aligned = {"displacement", "gain"} if name == "di-spectral" else set()
    always = {"registration_displacement", "raw_kmeans_ari", "registered_kmeans_ari"}
    always |= {"registered_stability"}  # of one graph alone there is no other
    assert of_alignment(figures) == always | aligned
    assert 0.5 < figures["registration_displacement"] < 8.0
    views = {"raw": images, "registered": result.registered(images)}
    for view, array in views.items():
        plain = cluster.KMeans(2, n_init=4, random_state=0).fit_predict(array.reshape(24, -1))
        expected = metrics.adjusted_rand_index(result.assignments, plain)
        assert figures[f"{view}_kmeans_ari"] == pytest.approx(expected)
    text = describe_movement(figures)
    assert "Registration moved images by" in text
    assert f"(the images as they came), {figures['registered_kmeans_ari']:.2f} (registered)" in text


@pytest.mark.parametrize("stability", [0.79, 0.81])
def test_methods_without_a_graph_say_how_stable_registered_images_are(
    stability: float, key: jax.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def judge(model: object, register: str, ground: str, *, images: np.ndarray) -> float:
        seen.append((register, ground, len(images)))
        return stability

    monkeypatch.setattr(model_images, "_JUDGES", [judge])
    images = bars(24, 3)
    settings = {"register": "place", "ground": "none", "split_merge": False}
    for clusters in (1, 2, 5):
        result = KMeans(clusters, **settings).fit(images, key=key)
        figures = movement(result, images, key=key)
        # One cluster is stable anyway, and of so few images there are not five for each of five.
        assert figures.get("registered_stability") == (stability if clusters == 2 else None)
        text = describe_frames(figures)
        assert ("have a stability of" in text) == (clusters == 2)
        assert ("may not have helped" in text) == (clusters == 2 and stability < 0.8)
    assert seen == [("place", "none", 24)]


@pytest.mark.parametrize(("highest", "is_warned"), [(0.79, True), (0.8, False)])
def test_where_no_frame_is_steady_it_is_said(highest: float, is_warned: bool) -> None:
    figures = {"stability_found": 0.3, "stability_kept": highest, "stability_unregistered": 0.4}
    assert ("may not have helped" in describe_frames(figures)) == is_warned
    assert "may not have helped" not in describe_frames({**figures, "stability": 0.5})


@pytest.mark.slow
def test_a_graph_that_adds_nothing_says_so(key: jax.Array) -> None:
    images = bars(24, 0)
    model = ProjectedScatteringSpectralClustering(2, register="none", **SPECTRAL)
    figures = movement(model.fit(images, key=key), images, key=key)
    assert of_alignment(figures) == {"raw_kmeans_ari"}
    assert figures["raw_kmeans_ari"] == pytest.approx(1.0)
    assert "the method added next to nothing" in describe_movement(figures)


def test_what_registration_did_is_not_denied() -> None:
    figures = {"registration_displacement": 3.0, "kmeans_ari": 1.0}
    text = describe_movement(figures)
    assert "1.00 (registered, from the same start)" in text
    assert "alignment added next to nothing" in text
    assert "the method added next to nothing" in describe_movement({"kmeans_ari": 1.0})


def test_large_numbers_are_written_out() -> None:
    figures = {"prototype_displacement": 123.0, "log_density_gain": 704.0}
    text = "Alignment moved prototypes by 120 pixels on average, which added 700 nats"
    assert text in describe_movement(figures)


def test_several_nuisances_are_named_in_one_sentence() -> None:
    figures = {"place_explained": 0.84, "size_explained": 0.5, "lightness_explained": 0.9}
    text = describe_movement(figures)
    assert "no more than where figures lie (84%) and how light images are (90%)" in text
    assert text.endswith("Registration takes them out.")
    # They are the pitch and the loudness of recordings.
    assert describe_movement(figures, "recording") == ""


def test_streamed_images(key: jax.Array, tmp_path: Path) -> None:
    images = bars(24, 3)
    np.save(tmp_path / "images.npy", images)
    stream = open_stream(tmp_path / "images.npy").images
    resident, streamed = (movement(fitted(each, key), each, key=key) for each in (images, stream))
    for name in ("displacement", "gain"):
        assert streamed[name] == pytest.approx(resident[name], rel=1e-3)
    # Not from the same start: k-means++ of all would read them all again.
    assert of_alignment(streamed) == {"displacement", "gain", "raw_kmeans_ari"}


def squares(places: np.ndarray, sides: np.ndarray, light: np.ndarray) -> np.ndarray:
    """A square in each image of 30 × 40 pixels, of a contrast of a half."""
    images = np.tile(light[:, None, None, None], (1, 30, 40, 2)).astype(np.float32)
    for image, (x, y), side in zip(images, places, sides, strict=True):
        image[y : y + side, x : x + side] += 0.5
    return images


@pytest.mark.parametrize("what", ["place", "size", "lightness"])
def test_clusters_of_a_nuisance_are_said_to_be(what: str, key: jax.Array) -> None:
    rng = np.random.default_rng(0)
    groups = np.arange(40) % 2
    places, light = 12 + rng.integers(-2, 3, (40, 2)), rng.uniform(0.2, 0.25, 40)
    sides = rng.integers(5, 7, 40)
    if what == "place":
        places[:, 0] += 12 * groups
    elif what == "size":
        sides += 5 * groups
        places -= (sides // 2)[:, None]
    else:
        light += 0.2 * groups
    images = squares(places, sides, light)
    result = KMeans(2, num_restarts=1).fit(images, key=key, assignments=groups)
    figures = movement(result, images, key=key)
    named = {"place": "where figures lie", "size": "how large", "lightness": "how light"}
    assert figures[f"{what}_explained"] > 0.9
    text = describe_movement(figures)
    for name, words in named.items():
        assert (words in text) == (name == what)
    assert "Registration takes it out." in text
    assert "Registration takes it out." not in describe_movement(
        {**figures, "registration_displacement": 1.0}
    )


def test_what_hardly_varies_is_not_compared(key: jax.Array) -> None:
    images = squares(np.full((10, 2), 10), np.full(10, 8), np.full(10, 0.1))
    images[::2, 0, 0] += 0.01
    result = KMeans(2, num_restarts=1).fit(images, key=key)
    assert movement(result, images, key=key) == {}


def test_many_clusters_explain_nothing_by_chance() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(500, 1))
    shares = [explained_variance(values, rng.integers(0, 200, 500)) for _ in range(20)]
    assert np.mean(shares) < 0.1
    assert explained_variance(values, np.arange(500)) == 0.0
    images = squares(rng.integers(2, 20, (9, 2)), np.full(9, 5), np.full(9, 0.2))
    assert nuisances_explained(images, np.arange(9) % 5) == {}
    assert nuisances_explained(images, np.arange(9) % 4)


def test_what_a_mask_hides_is_no_nuisance() -> None:
    """A stamp in one of two corners, and a figure that lies anywhere."""
    rng, groups = np.random.default_rng(0), np.arange(40) % 2
    images = squares(rng.integers(8, 20, (40, 2)), np.full(40, 5), np.full(40, 0.1))
    for image, group in zip(images, groups, strict=True):
        image[:6, 34 * group : 34 * group + 6] = 0.9 + 0.1 * group
    assert nuisances_explained(images, groups)["place_explained"] > 0.75
    mask = np.ones((30, 40))
    mask[:6, :6] = mask[:6, -6:] = 0.0
    hidden = nuisances_explained(images, groups, mask=mask)
    assert hidden["place_explained"] < 0.1
    # Figures hardly differ in lightness, whatever the unit.
    assert set(nuisances_explained(255 * images, groups, mask=mask)) == set(hidden)


def test_of_a_ground_that_is_taken_out_no_displacement_is_told(key: jax.Array) -> None:
    rng, groups = np.random.default_rng(0), np.arange(40) % 2
    places = 12 + rng.integers(-2, 3, (40, 2))
    places[:, 0] += 12 * groups
    images = squares(places, np.full(40, 6), np.full(40, 0.1))
    model = KMeans(2, num_restarts=1, ground="dark")
    result = model.fit(images, key=key, assignments=groups)
    figures = movement(result, images, key=key)
    assert "registration_displacement" not in figures
    assert "Registration takes it out." in describe_movement(figures)


@hypothesis.given(strategies.integers(0, 99), strategies.integers(2, 5))
def test_explained_variance_is_that_of_an_analysis_of_variance(seed: int, groups: int) -> None:
    rng = np.random.default_rng(seed)
    assignments = np.concatenate([np.arange(groups), rng.integers(0, groups, 30)])
    values = rng.normal(size=len(assignments)) + assignments * rng.uniform(0, 2)
    share = explained_variance(values[:, None], assignments)
    statistic = scipy.stats.f_oneway(*[values[assignments == k] for k in range(groups)]).statistic
    # The unexplained share is the mean square within groups, by that of all.
    within = (len(values) - 1) / ((groups - 1) * statistic + len(values) - groups)
    np.testing.assert_allclose(share, max(0.0, 1.0 - within), atol=1e-12)
    assert explained_variance(np.ones((4, 2)), np.arange(4)) == 0.0


@pytest.mark.slow
def test_k_means_from_the_same_start_counts_weights():
    draw = np.random.default_rng(4)
    images = draw.uniform(size=(40, 6, 6, 1)).astype(np.float32)
    weight, start = draw.choice([0.1, 1.0, 10.0], 40), np.arange(40) % 2
    model = AffineInvariantKMeans(2, num_restarts=1, max_passes=2, split_merge=False)
    settings = {"assignments": start, "sample_weight": weight}
    result = model.fit(images, key=jax.random.key(0), **settings)
    rows, agreement = images.reshape(40, -1), {}
    for of_start, of_fit in itertools.product([weight, None], repeat=2):
        init = [np.average(rows[start == k], 0, None if of_start is None else of_start[start == k])
                for k in range(2)]  # fmt: skip
        plain = cluster.KMeans(2, init=np.array(init), n_init=1, random_state=0)
        labels = plain.fit_predict(rows, sample_weight=of_fit)
        agreement[of_start is None, of_fit is None] = metrics.adjusted_rand_index(
            result.assignments, labels
        )
    expected = agreement.pop((False, False))
    # Else this would be no test of the weights.
    assert all(abs(other - expected) > 1e-3 for other in agreement.values())
    assert movement(result, images, key=jax.random.key(0), **settings)[
        "kmeans_ari"
    ] == pytest.approx(expected)


def test_displacements_are_in_pixels_of_either_side() -> None:
    params = jnp.asarray([[0, 0, 0, 0, 0.5, 0.0], [0, 0, 0, 0, 0.0, 0.5]], jnp.float32)
    # Half of half the width, and of half the height.
    assert float(_displacement(Affine(), params[:1], 20, 40)) == pytest.approx(10.0)
    assert float(_displacement(Affine(), params[1:], 20, 40)) == pytest.approx(5.0)


def test_displacements_of_composed_maps_are_in_the_order_of_the_transform() -> None:
    both = Compose((Affine(), Affine()))
    grow, shift = [1.0, 0, 0, 1, 0, 0], [0.0, 0, 0, 0, 0.25, 0]
    params = jnp.asarray([grow + shift], jnp.float32)
    image = jnp.broadcast_to((jnp.arange(40.0) + 0.5)[None, :, None] / 20 - 1, (40, 40, 1))
    read = both(params[0], image)[20, 12:16, 0]
    x = (np.arange(12, 16) + 0.5) / 20 - 1
    np.testing.assert_allclose(read, 2 * (x + 0.25), atol=1e-5)  # the ramp says where it is read
    grid = (np.arange(40) + 0.5) / 20 - 1
    moved = 20 * np.sqrt(np.mean((grid + 0.5) ** 2) + np.mean(grid**2))
    assert float(_displacement(both, params, 40, 40)) == pytest.approx(moved, rel=1e-5)


def test_places_of_some_images_go_with_the_clusters_of_these() -> None:
    draw = np.random.default_rng(0)
    groups = draw.integers(0, 2, 1000)
    images = np.zeros((1000, 8, 8, 1), np.float32)
    images[:, 2:5, 0:3] += (groups == 0)[:, None, None, None]
    images[:, 2:5, 5:8] += (groups == 1)[:, None, None, None]
    result = KMeans(2, num_restarts=1).fit(images, key=jax.random.key(0), assignments=groups)
    np.testing.assert_array_equal(result.assignments, groups)
    assert movement(result, images, key=jax.random.key(0))["place_explained"] == pytest.approx(1.0)


@pytest.mark.slow
def test_the_gain_on_some_images_is_a_share_of_these() -> None:
    draw = np.random.default_rng(0)
    images = np.zeros((1000, 6, 6, 1), np.float32)
    images[:, 2:4, 2:4] = 1.0
    images += draw.uniform(0, 0.05, images.shape).astype(np.float32)
    model = AffineInvariantKMeans(2, num_restarts=1, max_passes=1, split_merge=False)
    given = {"key": jax.random.key(0), "assignments": np.arange(1000) % 2}
    assert -0.01 < movement(model.fit(images, **given), images, **given)["gain"] < 1.0


def test_hidden_borders_say_nothing_of_the_ground() -> None:
    groups, mask = np.arange(40) % 2, np.zeros((20, 20))
    mask[1:-1, 1:-1] = 1.0
    images = np.full((40, 20, 20, 1), 0.1, np.float32)
    for image, group in zip(images, groups, strict=True):
        image[8:12, 3 + 9 * group : 7 + 9 * group] = 0.3
    spoilt = np.where(mask[..., None] > 0, images, np.float32(1.0))
    expected = nuisances_explained(images, groups, mask=mask)
    assert expected["place_explained"] == pytest.approx(1.0)
    assert nuisances_explained(spoilt, groups, mask=mask) == pytest.approx(expected)
