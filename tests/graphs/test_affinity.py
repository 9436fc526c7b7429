import inspect
from typing import Any, cast

import hypothesis
import numpy as np
import pytest
import scipy.sparse
from hypothesis import strategies

from diffclust.graphs import (
    Neighbours,
    affinity_to_references,
    gaussian_affinity,
    mean_graph,
    nearest_neighbours,
    self_tuning_affinity,
    self_tuning_scales,
    weighted_graph,
)


def around(points: np.ndarray, count: int = 8) -> Neighbours:
    return nearest_neighbours(points, points, count, exclude_self=True)


def points(count: int = 40, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


@pytest.mark.parametrize("symmetrise", ["mean", "max"])
def test_self_tuning_affinity_is_the_formula(symmetrise: str) -> None:
    x = points()
    result = self_tuning_affinity(around(x), num_neighbours=4, symmetrise=symmetrise)
    distance = np.linalg.norm(x[:, None] - x[None], axis=2).astype(float)
    ranks = np.argsort(np.argsort(distance, axis=1), axis=1)
    scale = np.sort(distance, axis=1)[:, 4]
    directed = np.exp(-(distance**2) / np.outer(scale, scale)) * ((ranks > 0) & (ranks <= 4))
    expected = (directed + directed.T) / 2
    if symmetrise == "max":
        expected = np.maximum(directed, directed.T)
    np.testing.assert_allclose(result.toarray(), expected, atol=1e-6)


@hypothesis.given(
    seed=strategies.integers(0, 1000),
    exponent=strategies.floats(-15, 15),
    far=strategies.floats(0, 12),
    copies=strategies.integers(0, 12),
)
def test_graph_is_sound_whatever_the_points(
    seed: int, exponent: float, far: float, copies: int
) -> None:
    x = points(24, seed)
    x[1 : 1 + copies] = x[0]
    x[-1] += np.float32(10.0**far)
    graph = self_tuning_affinity(around(x * np.float32(10.0**exponent)), num_neighbours=5)
    dense = graph.toarray()
    assert np.isfinite(dense).all()
    assert ((dense >= 0) & (dense <= 1)).all()
    np.testing.assert_array_equal(dense, dense.T)
    assert not np.diagonal(dense).any()
    assert (dense.sum(1) > 1e-10).all()


def test_scale_changes_nothing() -> None:
    first = self_tuning_affinity(around(points()))
    second = self_tuning_affinity(around(points() * np.float32(64)))
    np.testing.assert_allclose(first.toarray(), second.toarray(), atol=1e-6)


def test_duplicates_are_affine_with_weight_one() -> None:
    x = np.repeat(points(3), 4, axis=0)
    graph = self_tuning_affinity(around(x), num_neighbours=3).toarray()
    expected = np.kron(np.eye(3), np.ones((4, 4))) - np.eye(12)
    np.testing.assert_allclose(graph, expected, atol=1e-8)


def test_one_whose_neighbours_are_all_duplicates_is_not_lost() -> None:
    # Its distance to them is infinitely many of their scales.
    x = np.zeros((8, 2), np.float32)
    x[7] = 1.0
    graph = self_tuning_affinity(around(x), num_neighbours=3)
    degree = np.asarray(graph.sum(axis=1))
    assert degree[7] > 1e-9
    assert degree[7] < 1e-6


def test_affinities_of_the_samples_themselves() -> None:
    # A new sample at an old one's place has the old one's affinities, and one to itself.
    x = points()
    old = around(x)
    scales = self_tuning_scales(old, num_neighbours=4)
    new = nearest_neighbours(x, x, 5)
    again = affinity_to_references(new, scales, num_neighbours=5)
    assert again.shape == (40, 40)
    np.testing.assert_allclose(again.diagonal(), 1.0)
    directed = affinity_to_references(old, scales, num_neighbours=4).toarray()
    np.testing.assert_allclose(again.toarray() - np.eye(40), directed, atol=1e-6)


@pytest.mark.parametrize("sigma", [None, 0.7])
def test_gaussian_affinity_is_the_formula(sigma: float | None) -> None:
    x, centres = points(), points(9, 1)
    near = nearest_neighbours(x, centres, 5)
    result = gaussian_affinity(near, 9, num_neighbours=3, sigma=sigma).toarray()
    distance = np.linalg.norm(x[:, None] - centres[None], axis=2).astype(float)
    nearest = np.argsort(np.argsort(distance, axis=1), axis=1) < 3
    width = distance[nearest].mean() if sigma is None else sigma
    expected = np.exp(-(distance**2) / (2 * width**2)) * nearest
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.parametrize("settings", [{"num_neighbours": 0}, {"sigma": -1.0}])
def test_settings_that_are_no_numbers_of_their_kind_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        gaussian_affinity(around(points()), 40, **settings)


def test_half_a_neighbour_is_refused() -> None:
    near, half = around(points()), cast(Any, 2.5)
    # Under test, the import hook's own check of the type would come first.
    with pytest.raises(ValueError, match="num_neighbours must be a whole number"):
        inspect.unwrap(self_tuning_scales)(near, num_neighbours=half)


def test_far_samples_keep_their_proportions() -> None:
    near = Neighbours(np.array([[0, 1]], np.int32), np.array([[100.0, 100.01]]))
    result = gaussian_affinity(near, 2, sigma=1.0).toarray()[0]
    np.testing.assert_allclose(result[0], np.exp(-20))
    np.testing.assert_allclose(result[1] / result[0], np.exp(-(100.01**2 - 100**2) / 2), rtol=1e-6)


def test_coinciding_samples_and_representatives() -> None:
    near = Neighbours(np.zeros((3, 1), np.int32), np.zeros((3, 1), np.float32))
    np.testing.assert_array_equal(gaussian_affinity(near, 1).toarray(), np.ones((3, 1)))


def test_mean_graph() -> None:
    first, second = (self_tuning_affinity(around(points()), num_neighbours=k) for k in (3, 6))
    result = mean_graph([first, second])
    np.testing.assert_allclose(result.toarray(), (first.toarray() + second.toarray()) / 2)
    with pytest.raises(ValueError, match="at least one"):
        mean_graph([])
    with pytest.raises(ValueError, match="one shape"):
        mean_graph([first, scipy.sparse.csr_array(np.ones((2, 2)))])


def test_a_weighed_graph_is_that_of_as_many_copies() -> None:
    graph, counts = self_tuning_affinity(around(points(20))), 1 + np.arange(20) % 3
    of = np.repeat(np.arange(20), counts)
    # Copies of a sample have no edges among each other, as a sample has none to itself.
    copies = graph.toarray()[of][:, of]
    result = weighted_graph(graph, rows=counts, columns=counts).toarray()
    summed = np.zeros((20, 20))
    np.add.at(summed, (of[:, None], of[None]), copies)
    np.testing.assert_allclose(result, summed)
    rows = weighted_graph(graph, rows=counts).toarray()
    np.testing.assert_allclose(rows, counts[:, None] * graph.toarray())
    np.testing.assert_array_equal(weighted_graph(graph).toarray(), graph.toarray())
