from typing import Any

import jax
import numpy as np
import pytest
import sklearn.cluster
import sklearn.datasets

from diffclust.metrics import scores
from diffclust.solvers import kmeans, nearest_centres, point_clusters

BY_EITHER = pytest.mark.parametrize(
    ("bound", "value"),
    [("_SCIKIT_LEARN", 0), ("_SCIKIT_LEARN", 2**24), ("_MANY_STARTS", 0)],
    ids=["own Lloyd", "scikit-learn", "fewer starts"],
)
"""Few points are clustered by scikit-learn, more of them by the library's own Lloyd."""


def rows(count: int = 300, clusters: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    points, labels = sklearn.datasets.make_blobs(count, 5, centers=clusters, random_state=seed)[:2]
    return points / np.linalg.norm(points, axis=1, keepdims=True), labels


@BY_EITHER
def test_loss_is_that_of_scikit_learns_kmeans(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(point_clusters, bound, value)
    x, _ = rows(seed=1)
    ours = kmeans(x, 6, key=jax.random.key(0))
    theirs = sklearn.cluster.KMeans(6, n_init=20, random_state=0).fit(x)
    assert ours.loss <= theirs.inertia_ * 1.0005
    assert scores(theirs.labels_, ours.assignments)["acc"] > 0.98


def test_margins_and_distances_are_euclidean(key) -> None:
    x, _ = rows()
    result = kmeans(x, 6, key=key)
    distances = np.sort(np.linalg.norm(x[:, None] - result.centres[None], axis=2), axis=1)
    np.testing.assert_allclose(result.distances, distances[:, 0])
    np.testing.assert_allclose(result.margins, distances[:, 1] - distances[:, 0], atol=1e-12)
    again = nearest_centres(x, result.centres)
    np.testing.assert_array_equal(again.assignments, result.assignments)


def test_reassigned_points_lie_on_the_border(key) -> None:
    x, _ = rows()
    result = kmeans(x, 6, key=key)
    moved = np.argsort(result.margins)[:9]
    assignments = result.assignments.copy()
    assignments[moved] = result.runners_up[moved]
    changed = result.reassigned(x, assignments)
    np.testing.assert_array_equal(changed.assignments, assignments)
    own = np.linalg.norm(x - changed.centres[assignments], axis=1)
    np.testing.assert_allclose(changed.distances, own)
    assert not changed.margins[moved].any()
    np.testing.assert_array_equal(changed.runners_up[moved], result.assignments[moved])
    others = np.setdiff1d(np.arange(len(x)), moved)
    np.testing.assert_array_equal(changed.margins[others], result.margins[others])


def test_same_key_gives_the_same_clusters(key) -> None:
    x, _ = rows()
    first, second = (kmeans(x, 6, key=key, num_restarts=2) for _ in range(2))
    np.testing.assert_array_equal(first.assignments, second.assignments)
    np.testing.assert_array_equal(first.centres, second.centres)


def test_one_cluster(key) -> None:
    x, _ = rows()
    result = kmeans(x, 1, key=key)
    assert not result.assignments.any()
    assert np.isinf(result.margins).all()


def test_rows_all_alike(key) -> None:
    result = kmeans(np.ones((20, 3)), 3, key=key)
    assert np.isfinite(result.centres).all()
    np.testing.assert_array_equal(result.distances, 0.0)
    np.testing.assert_array_equal(result.margins, 0.0)
    two = kmeans(np.repeat([[0.0, 1.0], [1.0, 0.0]], [5, 3], axis=0), 3, key=key)
    np.testing.assert_array_equal(two.assignments, np.repeat([0, 1], [5, 3]))


@pytest.mark.parametrize(
    ("x", "clusters", "message"),
    [
        (np.ones(3), 1, "shape"),
        (np.full((3, 2), np.nan), 1, "finite"),
        (np.ones((3, 2)), 4, "number of points is 3"),
        (np.ones((3, 2)), 0, "num_clusters"),
        (np.array([["a"]]), 1, "finite numbers"),
    ],
)
def test_bad_input_is_named(x: np.ndarray, clusters: int, message: str, key) -> None:
    with pytest.raises(ValueError, match=message):
        kmeans(x, clusters, key=key)


def test_a_limit_of_no_passes_is_named(key) -> None:
    with pytest.raises(ValueError, match="max_passes must be at least 1, not 0"):
        kmeans(np.eye(3), 2, key=key, max_passes=0)


@pytest.mark.parametrize("scale", [2.0**60, 2.0**-80])
def test_squares_of_points_stay_in_range(scale: float, key) -> None:
    points = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    points[20:] += 5.0
    result, expected = (kmeans(each, 2, key=key) for each in (points * np.float32(scale), points))
    np.testing.assert_array_equal(result.assignments, expected.assignments)
    np.testing.assert_array_equal(result.centres, expected.centres * scale)


def test_points_far_from_zero_are_warned_of(key) -> None:
    points = np.arange(30.0)[:, None] % 3 + 1e7
    with pytest.warns(UserWarning, match="points lie .* times as far from zero"):
        kmeans(points, 3, key=key)


@BY_EITHER
def test_weights_are_scikit_learns(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch, key
) -> None:
    monkeypatch.setattr(point_clusters, bound, value)
    x, _ = rows()
    weight = np.random.default_rng(0).integers(0, 4, len(x))
    result = kmeans(x, 6, key=key, weight=weight)
    theirs = sklearn.cluster.KMeans(6, n_init=20, random_state=0).fit(x, sample_weight=weight)
    ours = float(np.sum(weight * result.distances**2))
    assert ours == pytest.approx(theirs.inertia_, rel=1e-3)
    plain = kmeans(x, 6, key=key)
    assert np.sum(weight * plain.distances**2) > 1.0001 * ours
    # Rows that weigh nothing make no places of their own.
    three = kmeans([[0.0], [1.0], [9.0]], 2, key=key, weight=[1.0, 2.0, 0.0])
    np.testing.assert_array_equal(three.centres, [[0.0], [1.0]])
    np.testing.assert_array_equal(three.assignments, [0, 1, 1])
    with pytest.raises(ValueError, match=r"weight must have shape \(2,\), one for each point"):
        kmeans(np.ones((2, 1)), 1, key=key, weight=[1.0])


def test_points_of_all_blocks_go_to_their_nearest_centres() -> None:
    random = np.random.default_rng(0)
    points, centres = random.normal(size=(70_000, 2)), random.normal(size=(3, 2))
    result = nearest_centres(points, centres)
    distances = np.linalg.norm(points[:, None] - centres[None], axis=2)
    order, ranked = np.argsort(distances, axis=1), np.sort(distances, axis=1)
    np.testing.assert_array_equal(result.assignments, order[:, 0])
    np.testing.assert_array_equal(result.runners_up, order[:, 1])
    np.testing.assert_allclose(result.distances, ranked[:, 0])
    np.testing.assert_allclose(result.margins, ranked[:, 1] - ranked[:, 0], atol=1e-12)


def test_few_points_have_several_times_as_many_starts(monkeypatch: pytest.MonkeyPatch, key) -> None:
    starts, make = [], sklearn.cluster.KMeans

    def noted(*args: Any, **settings: Any) -> sklearn.cluster.KMeans:
        starts.append(settings["n_init"])
        return make(*args, **settings)

    monkeypatch.setattr(sklearn.cluster, "KMeans", noted)
    kmeans(np.random.default_rng(0).normal(size=(30, 2)), 6, key=key, num_restarts=3)
    assert starts[0] >= 2 * 3
