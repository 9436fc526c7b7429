"""What is said of movements: known ones, none, and what K-means does."""

import jax
import numpy as np
import pytest

from diffclust import metrics
from diffclust.analysis import describe_movement, movement
from diffclust.models import AffineInvariantKMeans, KMeans, Result


def bars(count: int, shift: int) -> np.ndarray:
    """Upright and level bars of 16 × 16 pixels, moved by up to some pixels."""
    random, images = np.random.default_rng(0), np.zeros((count, 16, 16, 1), np.float32)
    for i, image in enumerate(images):
        x, y = 6 + random.integers(-shift, shift + 1, 2)
        image[(slice(y, y + 4), slice(2, 14)) if i % 2 else (slice(2, 14), slice(x, x + 4))] = 1.0
    return images + random.uniform(0.0, 0.05, images.shape).astype(np.float32)


def fitted(images: np.ndarray, key: jax.Array, **start: np.ndarray) -> Result:
    model = AffineInvariantKMeans(2, num_restarts=1, max_passes=4, split_merge=False)
    return model.fit(images, key=key, **start)


def test_moved_bars(key: jax.Array) -> None:
    images = bars(24, 3)
    result = fitted(images, key)
    found = movement(result, images, key=key)
    assert 1.0 < found["displacement"] < 6.0
    assert found["gain"] > 0.3
    assert set(found) == {"displacement", "gain", "kmeans_ari"}
    assert "next to nothing" not in describe_movement(found)
    given = movement(result, images, key=key, kmeans=result)
    assert given["kmeans_ari"] == pytest.approx(1.0)


def test_bars_that_stand_still(key: jax.Array) -> None:
    images = bars(24, 0)
    start = np.arange(24) % 2
    start[:6] = 1
    result = fitted(images, key, assignments=start)
    found = movement(result, images, key=key, assignments=start)
    assert found["displacement"] < 0.5
    assert found["kmeans_ari"] == pytest.approx(1.0)
    assert found["start_kept"] == np.mean(result.assignments == start)
    text = describe_movement({**found, "gain": 0.01})
    assert "took away 1% of their distances. That is next to nothing:" in text
    assert metrics.accuracy(np.arange(24) % 2, result.assignments) == 1.0


def test_methods_that_move_nothing(key: jax.Array) -> None:
    images = bars(8, 1)
    result = KMeans(2, num_restarts=1).fit(images, key=key)
    assert movement(result, images, key=key) == {}
    assert describe_movement({}) == ""
