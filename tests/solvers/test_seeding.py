import jax
import numpy as np
import pytest

from diffclust.distances import SquaredEuclidean
from diffclust.parallel.chunks import Chunks, cut
from diffclust.solvers import kmeans_plus_plus

TO_ALL = SquaredEuclidean().to_all


def line(places: list[float]) -> np.ndarray:
    """Images of one pixel: points on a line."""
    return np.asarray(places, np.float32)[:, None, None, None]


def chunks_of(places: list[float], weight=None) -> Chunks:
    weight = None if weight is None else np.asarray(weight, np.float32)
    return cut(line(places), weight, size=4)


def seeds(places: list[float], clusters: int, seed: int = 0, weight=None, **settings) -> np.ndarray:
    chunks = chunks_of(places, weight)
    return kmeans_plus_plus(chunks, clusters, TO_ALL, key=jax.random.key(seed), **settings)


def many(places: list[float], weight: list[float], count: int) -> np.ndarray:
    """Two seeds of the same samples, as often as that, each time with another key."""
    chunks, keys = chunks_of(places, weight), jax.random.split(jax.random.key(0), count)
    return np.stack([kmeans_plus_plus(chunks, 2, TO_ALL, key=key, trials=1) for key in keys])


@pytest.mark.parametrize("clusters", [1, 3, 7])
def test_seeds_are_samples_and_all_different(clusters: int) -> None:
    for seed in range(5):
        result = seeds([0, 1, 2, 4, 8, 16, 32], clusters, seed)
        assert result.shape == (clusters,)
        assert len(set(result.tolist())) == clusters
        assert 0 <= result.min() <= result.max() < 7


def test_same_key_gives_the_same_seeds() -> None:
    places = list(np.random.default_rng(0).normal(size=20))
    first = seeds(places, 4, 3)
    np.testing.assert_array_equal(first, seeds(places, 4, 3))
    assert any(np.any(seeds(places, 4, seed) != first) for seed in range(5))


@pytest.mark.slow
def test_second_seed_is_drawn_by_squared_distance() -> None:
    # The last sample is padding to all intents: it has no weight.
    places, weight, count = [0.0, 1.0, 3.0, 100.0], [1, 1, 1, 0], 400
    result = many(places, weight, count)
    assert 3 not in result
    np.testing.assert_allclose(np.mean(result[:, 0] == 1), 1 / 3, atol=4 * 0.47 / count**0.5)
    # From 0 the squared distances are 1 and 9.
    from_zero = result[result[:, 0] == 0, 1]
    np.testing.assert_allclose(np.mean(from_zero == 2), 0.9, atol=4 * 0.3 / len(from_zero) ** 0.5)


def test_weights_count() -> None:
    # From 0 the masses are 1 · 1 and 9 · 0.125 for the same number of points.
    result = many([0.0, 1.0, 3.0], [1, 1, 0.125], 300)
    from_zero = result[result[:, 0] == 0, 1]
    expected = 1.125 / 2.125
    np.testing.assert_allclose(
        np.mean(from_zero == 2), expected, atol=4 * 0.5 / len(from_zero) ** 0.5
    )


@pytest.mark.slow
def test_trials_make_better_seeds() -> None:
    places = list(np.random.default_rng(0).uniform(size=40))

    def distortion(trials: int) -> float:
        result = [np.take(places, seeds(places, 6, s, trials=trials)) for s in range(30)]
        gaps = [np.abs(np.subtract.outer(places, at)).min(1) for at in result]
        return float(np.mean([np.sum(gap**2) for gap in gaps]))

    assert distortion(6) < 0.8 * distortion(1)


def test_duplicates_run_out() -> None:
    result = seeds([1.0, 1.0, 1.0, 2.0, 2.0], 4)
    assert len(set(result.tolist())) == 4
    assert {1.0, 2.0} == set(np.take([1.0, 1.0, 1.0, 2.0, 2.0], result))


def test_fewer_weighted_samples_than_clusters() -> None:
    result = seeds([1.0, 2.0, 3.0], 3, 0, [1.0, 0.0, 0.0])
    assert result.shape == (3,)
    assert 0 in result
