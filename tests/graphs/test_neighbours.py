import hypothesis
import numpy as np
import pytest
import scipy.spatial.distance
import sklearn.neighbors
from hypothesis import strategies
from scipy.spatial.distance import pdist, squareform

from diffclust.graphs import nearest_neighbours, neighbours


def brute_force(queries: np.ndarray, references: np.ndarray, count: int, exclude_self=False):
    """In double precision; of equally near ones the lower index."""
    differences = queries[:, None].astype(float) - references[None].astype(float)
    distance = np.sqrt((differences**2).sum(2))
    if exclude_self:
        np.fill_diagonal(distance, np.inf)
    index = np.argsort(distance, axis=1, kind="stable")[:, :count]
    return index, np.take_along_axis(distance, index, axis=1)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks of references even of few samples."""
    monkeypatch.setattr(neighbours, "_BLOCK", 64)
    monkeypatch.setattr(neighbours, "_GROUP", 8)
    # What was compiled for other blocks is not taken, nor what is compiled for these later.
    merged = neighbours._merged
    monkeypatch.setattr(neighbours, "_merged", lambda references, rows: merged(references, rows))


@pytest.mark.parametrize("exclude_self", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_neighbours_are_scikit_learns(exclude_self: bool) -> None:
    points = np.random.default_rng(0).normal(size=(300, 7)).astype(np.float32)
    result = nearest_neighbours(points, points, 6, exclude_self=exclude_self, chunk_size=48)
    witness = sklearn.neighbors.NearestNeighbors(n_neighbors=6, algorithm="brute")
    witness.fit(points.astype(float))
    distance, index = witness.kneighbors(None if exclude_self else points.astype(float))
    np.testing.assert_array_equal(result.index, index)
    np.testing.assert_allclose(result.distance, distance, atol=1e-6)
    assert (len(result), result.num_neighbours) == (300, 6)


@hypothesis.given(
    seed=strategies.integers(0, 10_000),
    count=strategies.sampled_from([2, 9, 90]),
    wanted=strategies.sampled_from([1, 4, 12]),
    exclude_self=strategies.booleans(),
)
def test_ties_go_to_the_lower_index(seed: int, count: int, wanted: int, exclude_self: bool) -> None:
    # Points on a small lattice: nearly all distances are ties, many are duplicates.
    points = np.random.default_rng(seed).integers(0, 3, size=(count, 2)).astype(np.float32)
    result = nearest_neighbours(points, points, wanted, exclude_self=exclude_self, chunk_size=16)
    possible = min(wanted, count - exclude_self)
    index, distance = brute_force(points, points, possible, exclude_self)
    np.testing.assert_allclose(result.distance, distance, atol=1e-6)
    # Which of many equals are found may be settled by rounding; not their order.
    settled = result.distance == 0
    np.testing.assert_array_equal(result.index[settled], index[settled])
    ordered = np.diff(result.distance, axis=1) > 0
    assert (ordered | (np.diff(result.index, axis=1) > 0)).all()


@pytest.mark.usefixtures("small_blocks")
def test_ties_across_groups_and_blocks() -> None:
    points = np.zeros((200, 3), np.float32)
    result = nearest_neighbours(points, points, 5, exclude_self=True, chunk_size=64)
    index, _ = brute_force(points, points, 5, exclude_self=True)
    np.testing.assert_array_equal(result.index, index)
    assert not result.distance.any()


def test_duplicates_are_at_distance_zero_and_remain() -> None:
    # Far from the origin the expanded square has no digit left for small distances.
    points = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32) + 1000
    points[20:] = points[:20]
    result = nearest_neighbours(points, points, 3, exclude_self=True)
    assert (result.distance[:, 0] == 0).all()
    np.testing.assert_array_equal(result.index[:, 0], (np.arange(40) + 20) % 40)
    assert (result.distance[:, 1] > 0).all()


def test_one_far_sample_does_not_blur_the_others() -> None:
    points = np.random.default_rng(3).normal(size=(100, 4)).astype(np.float32)
    points[17] += np.float32(1e7)
    result = nearest_neighbours(points, points, 4, exclude_self=True)
    index, distance = brute_force(points, points, 4, exclude_self=True)
    np.testing.assert_array_equal(np.delete(result.index, 17, 0), np.delete(index, 17, 0))
    np.testing.assert_allclose(result.distance, distance, rtol=1e-5)


@pytest.mark.parametrize("power", [-100, -60, 60, 100])
def test_squares_neither_overflow_nor_vanish(power: int) -> None:
    points = np.random.default_rng(4).normal(size=(100, 4)).astype(np.float32)
    plain = nearest_neighbours(points, points, 4)
    result = nearest_neighbours(*[np.ldexp(points, power)] * 2, 4)
    np.testing.assert_array_equal(result.index, plain.index)
    np.testing.assert_array_equal(result.distance, np.ldexp(plain.distance, power))


@pytest.mark.usefixtures("small_blocks")
def test_queries_apart_from_references() -> None:
    rng = np.random.default_rng(1)
    queries, references = rng.normal(size=(37, 4)), rng.normal(size=(150, 4))
    calls = []
    result = nearest_neighbours(
        queries,
        references,
        5,
        chunk_size=16,
        report=lambda done, total: calls.append((done, total)),
    )
    index, distance = brute_force(queries, references, 5)
    np.testing.assert_array_equal(result.index, index)
    np.testing.assert_allclose(result.distance, distance, atol=1e-5)
    assert calls == [(16, 37), (32, 37), (37, 37)]


def test_chunks_do_not_change_the_result() -> None:
    points = np.random.default_rng(2).normal(size=(100, 4)).astype(np.float32)
    first = nearest_neighbours(points, points, 4, chunk_size=16)
    second = nearest_neighbours(points, points, 4)
    np.testing.assert_array_equal(first.index, second.index)
    np.testing.assert_array_equal(first.distance, second.distance)


@pytest.mark.parametrize(("count", "exclude_self", "expected"), [(3, True, 2), (3, False, 3)])
def test_as_many_as_there_are(count: int, exclude_self: bool, expected: int) -> None:
    points = np.arange(count, dtype=np.float32)[:, None]
    result = nearest_neighbours(points, points, 10, exclude_self=exclude_self)
    assert result.index.shape == (count, expected)
    assert np.isfinite(result.distance).all()


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((np.ones((1, 2)), np.ones((1, 2)), 1), {"exclude_self": True}, "no neighbours but itself"),
        ((np.ones((2, 2)), np.ones((3, 2)), 1), {"exclude_self": True}, "same samples"),
        ((np.ones((2, 2)), np.ones((3, 3)), 1), {}, "2 features"),
        ((np.ones((2, 2)), np.ones((2, 2)), 0), {}, "num_neighbours"),
        ((np.ones(2), np.ones((2, 2)), 1), {}, "queries must have shape"),
        ((np.full((2, 2), np.inf), np.ones((2, 2)), 1), {}, "row 0, 1"),
        ((np.ones((2, 2)), np.ones((2, 2)), 1), {"chunk_size": 0}, "chunk_size"),
        ((np.ma.masked_equal(np.eye(2), 1), np.ones((2, 2)), 1), {}, "queries has masked values"),
    ],
)
def test_bad_input_is_named(arguments: tuple, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest_neighbours(*arguments, **settings)


def test_a_group_that_lies_far_off_has_its_own_neighbours() -> None:
    random = np.random.default_rng(0)
    points = random.normal(size=(80, 5))
    points[50:] += 1e4
    points = points.astype(np.float32)
    exact = scipy.spatial.distance.cdist(points.astype(float), points.astype(float))
    np.fill_diagonal(exact, np.inf)
    found = nearest_neighbours(points, points, 5, exclude_self=True)
    np.testing.assert_array_equal(found.index, np.argsort(exact, axis=1)[:, :5])


def test_a_far_off_group_that_comes_first_finds_itself_no_neighbour() -> None:
    points = np.random.default_rng(0).normal(size=(80, 5))
    points[:30] += 1e4
    points = points.astype(np.float32)
    exact = squareform(pdist(points.astype(float)))
    np.fill_diagonal(exact, np.inf)
    found = nearest_neighbours(points, points, 5, exclude_self=True)
    np.testing.assert_array_equal(found.index, np.argsort(exact, axis=1)[:, :5])


@pytest.mark.parametrize(("features", "radius"), [(300, 3e-3), (50, 1.5e-3), (10, 2e-3)])
def test_neighbours_in_tight_groups_far_from_the_middle_are_exact(
    features: int, radius: float
) -> None:
    # About the middle, squares round to a tenth of the squared distances within a group.
    draw = np.random.default_rng(0)
    middle = draw.normal(size=features)
    middle /= np.linalg.norm(middle)
    samples = radius * draw.normal(size=(600, features)) / np.sqrt(features)
    samples[:300] += middle
    samples[300:] -= middle
    samples = samples.astype(np.float32)
    found = nearest_neighbours(samples, samples, 5, exclude_self=True)
    double = samples.astype(np.float64)
    squared = np.stack([((double - row) ** 2).sum(axis=1) for row in double])
    np.fill_diagonal(squared, np.inf)
    np.testing.assert_array_equal(found.index, np.argsort(squared, axis=1)[:, :5])
