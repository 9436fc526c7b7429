import itertools

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.neighbors
from hypothesis import strategies
from jaxtyping import Array

from diffclust.distances import AbstractDistance, SquaredEuclidean
from diffclust.graphs import (
    DescentResult,
    nearest_neighbour_descent,
    nearest_neighbours,
    neighbour_descent,
)

KEY = jax.random.key(0)


class Uphill(AbstractDistance):
    """Neither symmetric nor a metric: squares, and what the prototype lacks counts four times."""

    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        assert weight is None
        difference = sample - prototype
        return jnp.sum(jnp.where(difference > 0, 4.0, 1.0) * difference**2)


class OfTrees(AbstractDistance):
    """Of samples that are a place and a name's length."""

    def __call__(self, sample: dict, prototype: dict, weight: Array | None = None) -> Array:
        assert weight is None
        apart = jnp.sum((sample["place"] - prototype["place"]) ** 2)
        return apart + jnp.abs(sample["length"] - prototype["length"])


class Undefined(AbstractDistance):
    """NaN where the samples are far apart."""

    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        return jnp.where(jnp.sum((sample - prototype) ** 2) < 1.0, 0.0, jnp.nan)


def points(count: int, dimensions: int = 6, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)


def uphill(x: np.ndarray) -> np.ndarray:
    difference = x[:, None].astype(float) - x[None]
    return (np.where(difference > 0, 4.0, 1.0) * difference**2).sum(2)


def nearest(distances: np.ndarray, count: int) -> np.ndarray:
    distances = distances.copy()
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


def recall(exact: np.ndarray, result: DescentResult) -> float:
    rows = zip(exact, result.neighbours.index, strict=True)
    return float(np.mean([np.isin(some, row).mean() for some, row in rows]))


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The pairs that were judged, in their order."""
    pairs: list[tuple[int, int]] = []
    compute = neighbour_descent.pair_distances

    def recorded(distance, samples, prototypes, sources, targets, **settings):
        pairs.extend(zip(sources.tolist(), targets.tolist(), strict=True))
        return compute(distance, samples, prototypes, sources, targets, **settings)

    monkeypatch.setattr(neighbour_descent, "pair_distances", recorded)
    return pairs


def test_euclidean_neighbours_are_scikit_learns() -> None:
    samples = points(500)
    witness = sklearn.neighbors.NearestNeighbors(n_neighbors=10).fit(samples)
    distance, index = witness.kneighbors()
    result = nearest_neighbour_descent(SquaredEuclidean(), samples, 10, key=KEY, symmetric=True)
    assert result.converged
    assert recall(index, result) > 0.97
    assert result.pairs_per_sample < 120
    same = result.neighbours.index == index
    np.testing.assert_allclose(result.neighbours.distance[same], distance[same] ** 2, rtol=1e-5)


@pytest.mark.parametrize("direction", ["forward", "min", "mean"])
def test_a_distance_that_is_no_metric(direction: str, evaluated: list[tuple[int, int]]) -> None:
    samples = points(300, 4)
    there = uphill(samples)
    full = {"forward": there, "min": np.minimum(there, there.T), "mean": (there + there.T) / 2}
    result = nearest_neighbour_descent(Uphill(), samples, 8, key=KEY, direction=direction)
    assert recall(nearest(full[direction], 8), result) > 0.95
    rows = np.arange(300)[:, None]
    expected = full[direction][rows, result.neighbours.index]
    np.testing.assert_allclose(result.neighbours.distance, expected, rtol=1e-5)
    # No pair twice, and the count is of evaluations, both ways where both are.
    assert len(set(evaluated)) == len(evaluated) == result.num_evaluations
    assert result.pairs_per_sample < 200


def test_a_symmetric_distance_is_evaluated_one_way(evaluated: list[tuple[int, int]]) -> None:
    samples = points(300, 3)
    result = nearest_neighbour_descent(SquaredEuclidean(), samples, 6, key=KEY, symmetric=True)
    assert len({frozenset(pair) for pair in evaluated}) == len(evaluated) == result.num_evaluations
    both = nearest_neighbour_descent(SquaredEuclidean(), samples, 6, key=KEY, direction="mean")
    np.testing.assert_array_equal(both.neighbours.index, result.neighbours.index)
    assert both.num_evaluations == 2 * result.num_evaluations


def test_samples_are_trees() -> None:
    samples = {"place": points(300, 2), "length": points(300, 1)[:, 0]}
    apart = ((samples["place"][:, None] - samples["place"][None]) ** 2).sum(2)
    apart += np.abs(samples["length"][:, None] - samples["length"][None])
    result = nearest_neighbour_descent(OfTrees(), samples, 7, key=KEY, symmetric=True)
    assert recall(nearest(apart, 7), result) > 0.97


@pytest.mark.slow
def test_the_same_key_finds_the_same() -> None:
    first, second, other = (
        nearest_neighbour_descent(Uphill(), points(200), 5, key=jax.random.key(seed))
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first.neighbours.index, second.neighbours.index)
    np.testing.assert_array_equal(first.neighbours.distance, second.neighbours.distance)
    assert first.num_evaluations == second.num_evaluations
    assert (first.neighbours.index != other.neighbours.index).any()


@pytest.mark.parametrize(("count", "wanted"), [(2, 1), (2, 5), (6, 5), (7, 9)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_few_samples_have_all_others(count: int, wanted: int, symmetric: bool) -> None:
    samples = points(count)
    result = nearest_neighbour_descent(
        SquaredEuclidean(), samples, wanted, key=KEY, symmetric=symmetric
    )
    exact = nearest_neighbours(samples, samples, wanted, exclude_self=True)
    np.testing.assert_array_equal(result.neighbours.index, exact.index)
    np.testing.assert_allclose(result.neighbours.distance, exact.distance**2, rtol=1e-5)
    assert result.num_evaluations == count * (count - 1) // (1 + symmetric)
    assert result.converged


def test_duplicates_are_neighbours_at_distance_zero() -> None:
    samples = np.repeat(points(100, 3), 4, axis=0)
    result = nearest_neighbour_descent(SquaredEuclidean(), samples, 15, key=KEY, symmetric=True)
    index, distance = result.neighbours.index, result.neighbours.distance
    assert not (index == np.arange(400)[:, None]).any()
    np.testing.assert_array_equal(distance == 0, index // 4 == np.arange(400)[:, None] // 4)
    assert np.mean(distance[:, :3] == 0) > 0.98
    # Where all are alike it ends with the first neighbours, in the order of their numbers.
    alike = nearest_neighbour_descent(SquaredEuclidean(), np.zeros((50, 2)), 4, key=KEY)
    assert not alike.neighbours.distance.any()
    assert (np.diff(alike.neighbours.index, axis=1) > 0).all()


def test_candidates_are_a_start(evaluated: list[tuple[int, int]]) -> None:
    samples = points(400, 12)
    exact = nearest_neighbours(samples, samples, 8, exclude_self=True)
    result = nearest_neighbour_descent(
        SquaredEuclidean(),
        samples,
        8,
        key=KEY,
        candidates=exact.index,
        symmetric=True,
        max_pairs=10,
    )
    assert recall(exact.index, result) == 1.0
    # Theirs and nothing random.
    rows = {frozenset((i, j)) for i, row in enumerate(exact.index.tolist()) for j in row}
    start = {frozenset(pair) for pair in evaluated[: len(rows)]}
    assert start == rows
    # Too few, and each sample among its own: random ones are added.
    few = (np.arange(400)[:, None] + np.array([[0, -1]])) % 400
    result = nearest_neighbour_descent(
        SquaredEuclidean(), samples, 8, key=KEY, candidates=few, symmetric=True
    )
    assert recall(exact.index, result) > 0.9


def test_it_stops_before_max_pairs_and_says_so() -> None:
    results: list[DescentResult] = []
    settings = {"key": KEY, "max_pairs": 60, "callback": results.append}
    result = nearest_neighbour_descent(Uphill(), points(500, 8), 10, **settings)
    assert not result.converged
    assert 40 < result.pairs_per_sample <= 60
    assert results[-1].num_evaluations == result.num_evaluations
    assert len(results) > 5
    for earlier, later in itertools.pairwise(results):
        assert earlier.num_evaluations < later.num_evaluations
        # Every round brings neighbours nearer, or leaves them.
        assert (later.neighbours.distance <= earlier.neighbours.distance).all()


def test_several_devices_find_the_same() -> None:
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    alone, shared = (
        nearest_neighbour_descent(Uphill(), points(200), 5, key=KEY, mesh=where)
        for where in (None, mesh)
    )
    np.testing.assert_array_equal(alone.neighbours.index, shared.neighbours.index)


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    seed=strategies.integers(0, 1000),
    count=strategies.sampled_from([3, 20, 60]),
    wanted=strategies.sampled_from([1, 4, 30]),
    symmetric=strategies.booleans(),
    sample_rate=strategies.sampled_from([0.1, 0.5, 1.0]),
)
def test_what_is_found_is_true_and_no_nearer_than_the_nearest(
    seed: int, count: int, wanted: int, symmetric: bool, sample_rate: float
) -> None:
    # A lattice: many ties and duplicates.
    samples = np.random.default_rng(seed).integers(0, 4, size=(count, 2)).astype(np.float32)
    distance, full = Uphill(), uphill(samples)
    if symmetric:
        distance, full = SquaredEuclidean(), ((samples[:, None] - samples[None]) ** 2).sum(2)
    settings = {"symmetric": symmetric, "sample_rate": sample_rate}
    result = nearest_neighbour_descent(
        distance, samples, wanted, key=jax.random.key(seed), **settings
    )
    index, lengths = result.neighbours.index, result.neighbours.distance
    possible = min(wanted, count - 1)
    assert index.shape == lengths.shape == (count, possible)
    assert all(len(set(row)) == possible and i not in row for i, row in enumerate(index.tolist()))
    np.testing.assert_allclose(lengths, full[np.arange(count)[:, None], index], rtol=1e-5)
    assert (np.diff(lengths, axis=1) >= 0).all()
    least = np.take_along_axis(full, nearest(full, possible), axis=1)
    assert (lengths >= least * (1 - 1e-5)).all()


@pytest.mark.parametrize(
    ("samples", "wanted", "settings", "message"),
    [
        (np.ones((1, 2)), 1, {}, "no neighbours but itself"),
        (np.ones((3, 2)), 0, {}, "num_neighbours"),
        (np.ones((3, 2), int), 1, {}, "floating"),
        (np.full((3, 2), np.nan), 1, {}, "NaN or infinity"),
        ({"a": np.ones((3, 2)), "b": np.ones(2)}, 1, {}, "one leading axis"),
        (np.ones((3, 2)), 1, {"sample_rate": 0.0}, "sample_rate"),
        (np.ones((3, 2)), 1, {"sample_rate": 1.5}, "sample_rate"),
        (np.ones((3, 2)), 1, {"delta": -0.1}, "delta"),
        (np.ones((3, 2)), 1, {"candidates": np.zeros((2, 1), int)}, r"shape \(2, 1\)"),
        (np.ones((3, 2)), 1, {"candidates": np.full((3, 1), 3)}, "below 3"),
    ],
)
def test_bad_input_is_named(samples, wanted: int, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest_neighbour_descent(SquaredEuclidean(), samples, wanted, key=KEY, **settings)


def test_a_distance_that_is_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="distance of samples 0 and 2 is NaN"):
        nearest_neighbour_descent(
            Undefined(), np.array([[0.0], [0.1], [9.0]]), 2, key=KEY, symmetric=True
        )
