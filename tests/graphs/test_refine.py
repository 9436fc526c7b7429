import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from diffclust.alignment import Descent, InvariantDistance, Stage
from diffclust.distances import AbstractDistance, SquaredEuclidean
from diffclust.energies import TransformedDistance
from diffclust.graphs import (
    Neighbours,
    candidate_distances,
    nearest_neighbours,
    nested_neighbours,
    pair_distances,
    refine,
    reranked,
)
from diffclust.graphs.refine import distinct_neighbours, near_duplicates
from diffclust.transforms import Affine
from tests.registry import blobs


def brute_force(window: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nearest others in double precision."""
    wide = window.astype(float)
    distance = np.sqrt(((wide[:, None] - wide[None]) ** 2).sum(2))
    np.fill_diagonal(distance, np.inf)
    index = np.argsort(distance, axis=1, kind="stable")[:, :count]
    return index, np.take_along_axis(distance, index, axis=1)


@pytest.fixture
def doubtful(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples are searched for anew, in each window."""
    counts: list[int] = []
    search = refine._search_again

    def counted(window: np.ndarray, neighbours: Neighbours, samples: np.ndarray) -> None:
        counts.append(len(samples))
        search(window, neighbours, samples)

    monkeypatch.setattr(refine, "_search_again", counted)
    return counts


def coordinates(spread: str, count: int = 160, columns: int = 9, seed: int = 0) -> np.ndarray:
    """Random coordinates whose leading ones are large, small, or like all others."""
    result = np.random.default_rng(seed).normal(size=(count, columns))
    scale = {"large": 30.0, "equal": 1.0, "small": 0.01}[spread]
    result[:, :3] *= scale
    return result.astype(np.float32)


@pytest.mark.parametrize("spread", ["large", "equal", "small"])
@pytest.mark.parametrize(
    ("removed", "dimensions"),
    [((0, 1, 2), 20), ((0, 3), 5), ((3, 1), 6), ((2,), 4), ((0, 4), 3), ((0, 8), 4), ((1, 1), 20)],
)
def test_nested_neighbours_are_those_of_each_window(
    spread: str, removed: tuple[int, ...], dimensions: int
) -> None:
    points = coordinates(spread)
    result = nested_neighbours(points, removed, dimensions, 4)
    assert len(result) == len(removed)
    for near, n in zip(result, removed, strict=True):
        index, distance = brute_force(points[:, n : n + dimensions], 4)
        np.testing.assert_array_equal(near.index, index)
        np.testing.assert_allclose(near.distance, distance, rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_nested_neighbours_where_the_bound_says_little(seed: int, doubtful: list[int]) -> None:
    points = coordinates("large", seed=seed)
    (near, _) = nested_neighbours(points, (0, 3), 9, 4)
    # Else this would be no test of the second search.
    assert doubtful[0] > 50
    index, distance = brute_force(points, 4)
    np.testing.assert_array_equal(near.index, index)
    np.testing.assert_allclose(near.distance, distance, rtol=1e-5)


def test_nested_neighbours_where_the_bound_is_tight_are_not_sought_twice(
    doubtful: list[int],
) -> None:
    nested_neighbours(coordinates("small"), (0, 3), 9, 4)
    assert doubtful == [0, 0]


def test_nested_neighbours_of_many_duplicates(doubtful: list[int]) -> None:
    # Each place is held by more samples than are candidates.
    places = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    points = np.repeat(places, 70, axis=0)
    result = nested_neighbours(points, (0, 2), 5, 4)
    assert doubtful == [140, 140]
    for near in result:
        assert (near.distance == 0).all()
        assert not (near.index == np.arange(140)[:, None]).any()
        assert (near.index // 70 == np.arange(140)[:, None] // 70).all()
        assert all(len(set(row)) == 4 for row in near.index.tolist())


def test_nested_neighbours_of_few_samples() -> None:
    points = coordinates("equal", count=4)
    for near in nested_neighbours(points, (0, 2), 9, 10):
        assert near.index.shape == (4, 3)
        assert [set(row) for row in near.index.tolist()] == [set(range(4)) - {i} for i in range(4)]


def test_nested_neighbours_report_samples() -> None:
    reported: list[tuple[int, int]] = []
    nested_neighbours(
        coordinates("equal"),
        (0, 2),
        9,
        4,
        report=lambda done, total: reported.append((done, total)),
    )
    assert reported[-1] == (160, 160)
    assert reported == sorted(reported)


def test_rejudged_sorts_by_the_new_distance_and_then_by_index() -> None:
    candidates = Neighbours(
        np.array([[7, 3, 5, 1], [2, 9, 4, 8]], np.int32), np.arange(8.0).reshape(2, 4)
    )
    distance = np.array([[1.0, 0.5, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    result = reranked(candidates, distance, 3)
    assert result.index.tolist() == [[3, 5, 7], [2, 4, 8]]
    assert result.distance.tolist() == [[0.5, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert reranked(candidates, distance, 9).index.tolist() == [[3, 5, 7, 1], [2, 4, 8, 9]]


class Uphill(AbstractDistance):
    """Far from symmetric: what the prototype lacks counts ten times."""

    def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
        assert weight is None
        more = jnp.maximum(sample - prototype, 0.0)
        less = jnp.maximum(prototype - sample, 0.0)
        return jnp.sum(10.0 * more + less)


def uphill(sample: np.ndarray, prototype: np.ndarray) -> float:
    difference = sample.astype(float) - prototype
    return float(np.where(difference > 0, 10 * difference, -difference).sum())


JUDGED = {
    "forward": lambda there, back: there,
    "min": min,
    "mean": lambda there, back: 0.5 * (there + back),
}


def pictures(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=(count, 2, 3, 1)).astype(np.float32)


@pytest.mark.parametrize("direction", JUDGED)
@pytest.mark.parametrize("others", [False, True], ids=["samples", "prototypes"])
def test_judged_candidates_are_a_double_loop(direction: str, others: bool) -> None:
    samples = pictures(12, 0)
    prototypes = pictures(7, 1) if others else None
    targets = samples if prototypes is None else prototypes
    rows, columns = samples.reshape(12, -1), targets.reshape(len(targets), -1)
    # Two representations, whose candidates are partly the same.
    candidates = [
        nearest_neighbours(rows[:, s], columns[:, s], 3, exclude_self=not others)
        for s in (slice(0, 4), slice(1, 6))
    ]
    totals: list[int] = []

    def report(done: int, total: int) -> None:
        if done == total:
            totals.append(total)

    result = candidate_distances(
        candidates,
        Uphill(),
        samples,
        prototypes=prototypes,
        direction=direction,
        chunk_size=16,
        report=report,
    )
    combine = JUDGED[direction]
    asked = set()
    for near, distance in zip(candidates, result, strict=True):
        assert distance.shape == near.index.shape
        for i, row in enumerate(near.index.tolist()):
            for place, j in enumerate(row):
                asked.add((i, j))
                expected = combine(uphill(samples[i], targets[j]), uphill(targets[j], samples[i]))
                assert distance[i, place] == pytest.approx(expected, rel=1e-5)
    # No pair is judged twice, in neither direction.
    if direction == "forward":
        needed = len(asked)
    elif others:
        needed = 2 * len(asked)
    else:
        needed = len(asked | {(j, i) for i, j in asked})
        assert needed < 2 * len(asked)
    assert sum(totals) == needed < 2 * sum(near.index.size for near in candidates)


@pytest.mark.parametrize("chunk_size", [1, 5, 64])
def test_pair_distances_in_chunks(chunk_size: int) -> None:
    samples, prototypes = pictures(6, 0), pictures(4, 1)
    sources, targets = np.array([0, 5, 5, 2, 0, 1, 3]), np.array([3, 0, 0, 2, 1, 1, 0])
    reported: list[tuple[int, int]] = []
    result = pair_distances(
        SquaredEuclidean(),
        samples,
        prototypes,
        sources,
        targets,
        chunk_size=chunk_size,
        report=lambda done, total: reported.append((done, total)),
    )
    expected = ((samples[sources] - prototypes[targets]) ** 2).sum((1, 2, 3))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert [done for done, _ in reported] == [*range(chunk_size, 7, chunk_size), 7]
    assert {total for _, total in reported} == {7}


def test_chunks_of_no_pairs_are_refused() -> None:
    samples, pairs = pictures(2, 0), np.zeros(3, int)
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        pair_distances(SquaredEuclidean(), samples, samples, pairs, pairs, chunk_size=0)


@pytest.mark.parametrize(
    ("pairs", "chunk_size", "traces"),
    [(128, None, 1), (272, None, 1), (304, None, 1), (700, None, 1), (400, 200, 1), (262, 131, 2)],
)
def test_batches_within_a_chunk(pairs: int, chunk_size: int | None, traces: int) -> None:
    traced: list[int] = []

    class Counted(SquaredEuclidean):
        def __call__(self, sample: Array, prototype: Array, weight: Array | None = None) -> Array:
            traced.append(1)
            return jnp.sum((sample - prototype) ** 2)

        def to_all(self, sample: Array, prototypes: Array) -> Array:
            raise NotImplementedError

    samples, rng = pictures(9, 0), np.random.default_rng(0)
    sources, targets = rng.integers(0, 9, (2, pairs))
    given = (samples, samples, sources, targets)
    result = pair_distances(Counted(), *given, chunk_size=chunk_size)
    expected = ((samples[sources] - samples[targets]) ** 2).sum((1, 2, 3))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    # A batch of another size is traced, and compiled, once more.
    assert len(traced) == traces


@pytest.mark.slow
def test_a_prepared_distance_is_the_invariant_one_pair_by_pair() -> None:
    images = blobs(5, 8, 9, seed=3)
    invariant = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(8),)))
    penalty = jnp.asarray([0.3])
    sources, targets = np.divmod(np.arange(25), 5)
    each = eqx.filter_jit(jax.vmap(lambda x, c: invariant(x, c, penalty)))
    expected = np.asarray(each(jnp.asarray(images[sources]), jnp.asarray(images[targets])))
    expected = expected.reshape(5, 5)
    # What is computed once for all pairs is computed from the prototype where there is but one.
    for j in range(5):
        prepared = invariant.prepared(jnp.asarray(images[j : j + 1]), penalty)
        result = pair_distances(prepared, images, images, np.arange(5), np.full(5, j))
        np.testing.assert_allclose(result, expected[:, j], rtol=1e-4, atol=1e-5)
    # From several it is another way down, but from nowhere it leads up.
    prepared = invariant.prepared(jnp.asarray(images), penalty)
    result = pair_distances(prepared, images, images, sources, targets).reshape(5, 5)
    np.testing.assert_allclose(np.diag(expected), 0.0, atol=1e-5)
    # Aligned, a pair is nearer than as it is.
    plain = ((images[:, None] - images[None]) ** 2).sum((2, 3, 4))
    assert (result <= plain + 1e-5).all()
    assert result.sum() < 0.7 * plain.sum()


@pytest.mark.parametrize("removed", [(0,), (0, 2)])
def test_of_near_duplicates_one_is_a_neighbour(removed: tuple[int, ...]) -> None:
    points = coordinates("equal", 120)
    rng = np.random.default_rng(1)
    copies = points[:1] + 0.01 * rng.normal(size=(20, points.shape[1])).astype(np.float32)
    some = np.concatenate([points[:60], copies, points[60:]])
    expected = nested_neighbours(points, removed, 7, 6)
    # Groups no larger than `size` are left alone, and so is everything without any.
    for samples, size in ((points, 4), (some, 21)):
        plain = nested_neighbours(samples, removed, 7, 6)
        for near, same in zip(
            distinct_neighbours(samples, removed, 7, 6, size), plain, strict=True
        ):
            np.testing.assert_array_equal(near.index, same.index)
            np.testing.assert_array_equal(near.distance, same.distance)
    copied, old = np.arange(60, 80), np.r_[0:60, 80:140]
    np.testing.assert_array_equal(
        np.flatnonzero(near_duplicates(nested_neighbours(some, removed, 7, 6)[0], 4)), copied
    )
    for near, same in zip(distinct_neighbours(some, removed, 7, 6, 4), expected, strict=True):
        # The others have the neighbours that they have without copies, the first among them.
        np.testing.assert_array_equal(near.index[old], old[same.index])
        np.testing.assert_allclose(near.distance[old], same.distance, rtol=1e-6)
        # A copy's are the first, and those of the first.
        np.testing.assert_array_equal(near.index[copied, 0], 0)
        shared = [len({*row[1:]} & {*near.index[0]}) for row in near.index[copied]]
        assert min(shared) >= 4


def test_a_prepared_distance_takes_no_weights() -> None:
    invariant = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(2),)))
    image = jnp.asarray(blobs(1)[0])
    with pytest.raises(ValueError, match="takes no weights"):
        invariant.prepared(image[None])(image, image, jnp.ones_like(image))


@pytest.mark.slow
def test_several_devices_judge_as_one_does() -> None:
    assert jax.device_count() == 4
    images = blobs(12, 8, 8)
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 12, (2, 37))
    invariant = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(4),)))
    distance = invariant.prepared(jnp.asarray(images), jnp.asarray([0.1]))
    alone = pair_distances(distance, images, images, sources, targets)
    mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    for chunk_size in (4, None):
        shared = pair_distances(
            distance, images, images, sources, targets, mesh=mesh, chunk_size=chunk_size
        )
        np.testing.assert_allclose(shared, alone, rtol=1e-5, atol=1e-6)


def test_near_is_measured_by_the_distance_to_the_last_neighbour():
    # Median distances to the last: 1; of all: 0.4. Up to 0.15 of the former is near.
    index = (np.arange(6)[:, None] + np.arange(1, 4)) % 6
    distance = np.tile([0.1, 0.4, 1.0], (6, 1))
    near = near_duplicates(Neighbours(index.astype(np.int32), distance), 2)
    assert near.tolist() == [False] + 5 * [True]
