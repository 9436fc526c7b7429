import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust.distances import LandmarkNegativeLogLikelihood, SquaredEuclidean
from diffclust.energies import LandmarkEnergy
from diffclust.parallel.chunks import Chunks, cut
from diffclust.prototypes import MeanShapes
from diffclust.solvers import kmeans_plus_plus
from diffclust.solvers.seeding import distances_to_seeds

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


def test_of_many_trials_the_one_that_leaves_the_lowest_weighted_distortion_is_taken() -> None:
    places, weight = np.array([0.0, 1.0, 4.0, 5.0, 9.0, 10.0]), [8, 1, 1, 1, 1, 6]
    for seed in range(6):
        first, second = seeds(places.tolist(), 2, seed, weight, trials=200)
        to_first = (places - places[first]) ** 2
        left = [weight @ np.minimum(to_first, (places - place) ** 2) for place in places]
        assert second == np.argmin(left)


def test_likelihoods_seed_by_how_much_worse_another_cluster_is() -> None:
    shapes = np.random.default_rng(0).normal(size=(4, 3, 2)).astype(np.float32)
    variances = np.full((3, 2), 0.04, np.float32)
    family = MeanShapes(jnp.zeros((3, 2)), jnp.asarray(variances), jnp.asarray(1e-3))
    energy = LandmarkEnergy(LandmarkNegativeLogLikelihood())
    result = distances_to_seeds(energy, family, jnp.asarray(shapes[0]), jnp.asarray(shapes))
    # Of Gaussians with equal variances, half a squared Mahalanobis distance.
    expected = 0.5 * np.sum((shapes[0] - shapes) ** 2 / variances, axis=(1, 2))
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
