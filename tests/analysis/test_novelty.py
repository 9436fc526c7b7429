"""New samples against those that were fitted."""

from pathlib import Path

import jax
import numpy as np
import pytest

from diffclust.analysis import SIGNIFICANCE, conformal_p_values, novelty, p_values
from diffclust.models import (
    DTIKMeans,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Training,
)
from diffclust.solvers import Assignment
from diffclust.storage import load, save
from tests.registry import blobs


def assigned(clusters: list[int], distances: list[float]) -> Assignment:
    count, none = len(clusters), np.zeros(len(clusters))
    where = np.array(clusters, np.int32), np.array(distances)
    return Assignment(*where, none, np.zeros(count, np.int32), np.zeros((count, 0)))


def test_shares_of_the_fitted_samples_that_are_as_far() -> None:
    fitted = assigned([0, 0, 0, 0, 1], [1.0, 2.0, 3.0, 4.0, 9.0])
    new = assigned([0, 0, 0, 1, 2], [0.5, 3.0, 5.0, 8.0, 1.0])
    np.testing.assert_allclose(p_values(fitted, new), [5 / 5, 3 / 5, 1 / 5, 2 / 2, 1 / 1])


def test_they_are_uniform_where_new_samples_are_like_the_fitted() -> None:
    random = np.random.default_rng(0)
    clusters = random.integers(0, 3, 4000)
    distances = random.exponential(1.0 + clusters)
    parts = [
        (clusters[half].tolist(), distances[half].tolist()) for half in np.split(np.arange(4000), 2)
    ]
    values = p_values(*(assigned(*part) for part in parts))
    for share in (0.05, 0.3, 0.8):
        assert abs((values <= share).mean() - share) < 0.04


def test_by_distances_where_these_decide(key: jax.Array) -> None:
    images = blobs(30)
    result = KMeans(2, num_restarts=1).fit(images[:20], key=key)
    new = result.predict(images[20:])
    by_distance = p_values(result.outcome.assignment, new)
    np.testing.assert_array_equal(conformal_p_values(result, new), by_distance)


def test_samples_of_weight_zero_have_no_say(key: jax.Array, tmp_path: Path) -> None:
    images = blobs(30)
    images[15:20] = 1.0 - images[15:20]
    weight = (np.arange(20) < 15).astype(float)
    model = KMeans(2, num_restarts=1)
    fitted = model.fit(images[:20], key=key, sample_weight=weight)
    save(tmp_path / "model", fitted)
    expected = p_values(
        jax.tree.map(lambda x: x[:15], fitted.outcome.assignment),
        new := (fitted.predict(images[20:])),
    )
    assert (expected != p_values(fitted.outcome.assignment, new)).any()
    for result in (fitted, load(tmp_path / "model")):
        np.testing.assert_array_equal(conformal_p_values(result, new), expected)


@pytest.mark.parametrize(
    "affinity", ["graph", pytest.param("representatives", marks=pytest.mark.slow)]
)
def test_a_graph_knows_strangers_by_their_neighbours(key: jax.Array, affinity: str) -> None:
    """In the embedding every image lies near some centre: noise lay among the digits."""
    images = np.zeros((100, 16, 16, 1), np.float32)
    random = np.random.default_rng(0)
    for i, image in enumerate(images):
        x = y = 6
        image[(slice(y, y + 4), slice(2, 14)) if i % 2 else (slice(2, 14), slice(x, x + 4))] = 0.9
    images += random.uniform(0.0, 0.1, images.shape).astype(np.float32)
    noise = random.uniform(size=(20, 16, 16, 1)).astype(np.float32)
    settings = {"num_neighbours": (4,), "num_removed": (0,), "register": "none"}
    settings |= {"num_scales": 1, "num_angles": 2}
    model = ProjectedScatteringSpectralClustering(
        2, affinity=affinity, num_representatives=10, num_dimensions=8, **settings
    )
    result = model.fit(images[:60], key=key)
    shares = []
    for new in (images[60:], noise):
        values = conformal_p_values(result, result.predict(new))
        assert values.shape == (len(new),)
        shares.append(float(np.mean(values <= SIGNIFICANCE)))
    if affinity == "graph":
        assert shares[0] < 0.4
        assert shares[1] == 1.0


def test_of_few_fitted_samples_those_are_far_that_are_beyond_all(key: jax.Array) -> None:
    images = blobs(24)
    result = KMeans(2, num_restarts=1).fit(images[:12], key=key)
    strangers = np.concatenate([5.0 + images[12:], images[:12]])
    new = result.predict(strangers)
    values = conformal_p_values(result, new)
    assert values.min() > SIGNIFICANCE
    sizes = np.bincount(result.assignments, minlength=2)
    usual = 1 / (1 + sizes[new.clusters])
    found = novelty(result, new, values)
    assert found == {"far": float(np.sum(values <= usual)), "far_usual": pytest.approx(usual.sum())}
    assert 12 <= found["far"] < 18


@pytest.mark.slow
def test_networks_conform_to_the_samples_that_they_were_trained_on(key: jax.Array) -> None:
    images = blobs(30)
    model = DTIKMeans(2, transforms="aff", training=Training(max_steps=10))
    result = model.fit(images[:20], key=key)
    assert conformal_p_values(result, result.predict(images[20:])) is None
