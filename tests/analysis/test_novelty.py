"""New samples against those that were fitted."""

import numpy as np

from diffclust.analysis import p_values
from diffclust.solvers import Assignment


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
