"""Approximate nearest neighbours under any distance: neighbours of neighbours are neighbours.

Use it if samples have no features in which `nearest_neighbours` could find candidates, and there
are too many pairs to evaluate all.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jax
import numpy as np
import scipy
from jax.sharding import Mesh
from jaxtyping import Float, Int, PyTree

from diffclust import _validation
from diffclust._random import numpy_generator
from diffclust.distances import AbstractDistance
from diffclust.graphs.neighbours import Neighbours
from diffclust.graphs.refine import Direction, pair_distances, symmetrised
from diffclust.types import Key

_DECAY = 0.9
"""Factor by which each neighbour counts less than the one before it among common neighbours."""

_ROWS = 4096
"""Number of samples whose neighbours' neighbours are in memory at a time."""


@dataclasses.dataclass(frozen=True, eq=False)
class DescentResult:
    """The result of neighbour descent.

    Attributes:
        neighbours: The nearest samples found for every sample, excluding itself, nearest first;
            ties are in the order of indices. Distances are those of the given distance.
        num_evaluations: Number of evaluations of the distance.
        converged: Whether the last round changed hardly anything; otherwise `max_pairs` ended the
            search.
    """

    neighbours: Neighbours
    num_evaluations: int
    converged: bool

    @property
    def pairs_per_sample(self) -> float:
        """Evaluations of the distance divided by the number of samples."""
        return self.num_evaluations / len(self.neighbours)


def nearest_neighbour_descent(
    distance: AbstractDistance,
    samples: PyTree,
    num_neighbours: int,
    *,
    key: Key,
    candidates: Int[np.ndarray, "n candidates"] | None = None,
    symmetric: bool = False,
    direction: Direction = "forward",
    sample_rate: float = 0.5,
    delta: float = 0.001,
    max_pairs: int | None = None,
    callback: Callable[[DescentResult], None] | None = None,
    mesh: Mesh | None = None,
    **settings: Any,
) -> DescentResult:
    """The nearest other samples of every sample, approximately, by neighbour descent.

    It needs no features and no triangle inequality, only that a neighbour of a neighbour is likely
    to be a neighbour. It starts from random neighbours. For each sample, every round considers the
    samples two steps away in the graph of neighbours and reverse neighbours that have not been
    evaluated yet, evaluates the ρK most promising of them, and keeps the K nearest. Two differences
    from the paper reduce the number of pairs: the paper's local join samples its pairs at random,
    whereas here those with the most (and nearest) common neighbours come first; and no pair is
    evaluated twice. Work on indices and memory are linear in the number of samples: 8 bytes per
    evaluated pair.

    Args:
        distance: Any distance of one sample to another, invariant or not.
        samples: An array with a leading axis, or a tree of such arrays, as the distance takes them.
        num_neighbours: K; all other samples if there are not as many. Searching for a third more
            than needed finds the needed ones better. K should also exceed the size of the largest
            group of duplicates, whose lists would hold only each other otherwise.
        key: Random key for the first neighbours and for ties.
        candidates: Indices of initial neighbours, one row per sample; random ones are added for
            samples with fewer than K. None for random ones only.
        symmetric: Whether d(x, c) = d(c, x), so that one evaluation serves both samples.
        direction: As for `CandidateDistances`; `"min"` and `"mean"` evaluate every pair in both
            directions, unless the distance is symmetric.
        sample_rate: ρ, the number of evaluations per sample and round, as a fraction of K (in the
            paper, the fraction of neighbours in either direction that are joined). A smaller value
            takes more rounds and fewer pairs.
        delta: δ; the search ends when a round changes fewer than δKN neighbours.
        max_pairs: Maximum number of evaluations of the distance per sample; None for no limit. A
            round that would exceed it is not started, except the first one, which evaluates all
            candidates and at least K pairs per sample.
        callback: Called with the current result after every round, or None.
        mesh: Devices that share the pairs, or None for one.
        **settings: `chunk_size` and `report` of `pair_distances`.

    Returns:
        The neighbours, and the number of evaluations.

    Raises:
        ValueError: If an argument is invalid, or a distance is NaN.

    References:
        Dong, Moses and Li (2011), Efficient k-nearest neighbor graph construction for generic
        similarity measures, WWW, Algorithm 2.
    """
    samples = _validation.samples(samples)
    count = len(jax.tree.leaves(samples)[0])
    if count < 2:
        raise ValueError("a single sample has no neighbours but itself; give at least two samples")
    _validation.count(num_neighbours, "num_neighbours")
    _validation.positive(delta, "delta", least=0)
    if not 0 < sample_rate <= 1:
        raise ValueError(f"sample_rate must be above 0 and at most 1, not {sample_rate}")
    _validation.one_of(direction, get_args(Direction), "direction")
    wanted = min(num_neighbours, count - 1)
    ways: Direction = "forward" if symmetric else direction
    unordered = symmetric or ways != "forward"
    evaluations = 1 if ways == "forward" else 2
    rng = numpy_generator(key)
    most = max(1, round(sample_rate * wanted))
    pairs = _first_pairs(candidates, count, wanted, unordered, rng)
    evaluate = partial(pair_distances, distance, samples, samples, mesh=mesh, **settings)
    evaluated = np.zeros(0, np.int64)
    near = Neighbours(np.zeros((count, 0), np.int32), np.zeros((count, 0), np.float32))
    while True:
        evaluated = np.union1d(evaluated, pairs)
        ends = np.divmod(pairs, count)
        distances = _evaluated(evaluate, *ends, ways)
        near, changes = _merged(near, *ends, distances, wanted, unordered)
        converged = changes < delta * near.index.size
        if not converged:
            pairs = _proposed(near, evaluated, most, unordered, rng)
            converged = not pairs.size
        result = DescentResult(near, evaluations * len(evaluated), converged)
        if callback is not None:
            callback(result)
        total = evaluations * (len(evaluated) + len(pairs))
        if converged or (max_pairs is not None and total > max_pairs * count):
            return result


def _first_pairs(
    candidates: np.ndarray | None,
    count: int,
    wanted: int,
    unordered: bool,
    rng: np.random.Generator,
) -> Int[np.ndarray, " pairs"]:
    """The candidates' pairs, and random ones for samples with too few."""
    index = np.zeros((count, 0), np.int64) if candidates is None else np.asarray(candidates)
    is_shaped = index.ndim == 2 and len(index) == count
    holds_indices = not index.size or index.dtype.kind in "iu"
    if not (is_shaped and holds_indices and ((index >= 0) & (index < count)).all()):
        raise ValueError(
            f"candidates must be indices below {count} of shape ({count}, candidates), one row for "
            f"each sample; got {index.dtype} of shape {index.shape}"
        )
    index = index.astype(np.int64, copy=False)
    rows, columns = np.repeat(np.arange(count), index.shape[1]), index.ravel()
    given = np.unique(_numbered(rows, columns, count)[rows != columns])
    short = np.flatnonzero(np.bincount(given // count, minlength=count) < wanted)
    drawn = [rng.choice(count - 1, wanted, replace=False) for _ in short]
    drawn = np.asarray(drawn, np.int64).reshape(len(short), wanted)
    drawn += drawn >= short[:, None]
    sources = np.concatenate([given // count, np.repeat(short, wanted)])
    targets = np.concatenate([given % count, drawn.ravel()])
    return np.unique(_numbered(sources, targets, count, unordered))


def _numbered(
    sources: np.ndarray, targets: np.ndarray, count: int, unordered: bool = False
) -> Int[np.ndarray, " pairs"]:
    """Numbers pairs by sources · N + targets; both directions are the same if `unordered`."""
    if unordered:
        sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
    return sources.astype(np.int64) * count + targets


def _evaluated(
    evaluate: Callable[..., np.ndarray], sources: np.ndarray, targets: np.ndarray, way: Direction
) -> Float[np.ndarray, " pairs"]:
    """Distances of pairs, in one direction or combined over both; refuses NaN."""
    distances = evaluate(sources, targets)
    if way != "forward":
        distances = symmetrised(distances, evaluate(targets, sources), way)
    if np.isnan(distances).any():
        bad = int(np.argmax(np.isnan(distances)))
        raise ValueError(f"the distance of samples {sources[bad]} and {targets[bad]} is NaN")
    return distances


def _place(groups: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The position of each entry within its group, from 0; groups are sorted."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def _merged(
    near: Neighbours,
    sources: np.ndarray,
    targets: np.ndarray,
    distances: np.ndarray,
    wanted: int,
    unordered: bool,
) -> tuple[Neighbours, int]:
    """The nearest among neighbours and newly evaluated ones, and how many of these are new."""
    if unordered:
        sources, targets = np.concatenate([[sources, targets], [targets, sources]], axis=1)
        distances = np.tile(distances, 2)
    count, had = near.index.shape
    sources = np.concatenate([np.repeat(np.arange(count), had), sources])
    targets = np.concatenate([near.index.ravel(), targets])
    distances = np.concatenate([near.distance.ravel(), distances])
    order = np.lexsort((targets, distances, sources))
    order = order[_place(sources[order]) < wanted].reshape(count, wanted)
    merged = Neighbours(targets[order].astype(np.int32), distances[order])
    return merged, int(np.count_nonzero(order >= count * had))


def _proposed(
    near: Neighbours, evaluated: np.ndarray, most: int, unordered: bool, rng: np.random.Generator
) -> Int[np.ndarray, " pairs"]:
    """Proposes, for each sample, the few new pairs with the most common neighbours.

    Reverse neighbours count like neighbours, with at most as many of them as there are neighbours.
    """
    count, wanted = near.index.shape
    rows, columns = np.repeat(np.arange(count), wanted), near.index.ravel()
    order = np.lexsort((rows, near.distance.ravel(), columns))
    place = _place(columns[order])
    order, place = order[place < wanted], place[place < wanted]
    weights = _DECAY ** np.concatenate([np.tile(np.arange(wanted), count), place])
    ends = np.concatenate([rows, columns[order]]), np.concatenate([columns, rows[order]])
    graph = scipy.sparse.csr_array((weights, ends), shape=(count, count))
    chosen = []
    for start in range(0, count, _ROWS):
        part = graph[start : start + _ROWS]
        # Reverse neighbours themselves come first if the way back was never evaluated.
        common = scipy.sparse.coo_array(part @ graph + wanted * part)
        row, column = common.row.astype(np.int64) + start, common.col
        pair = _numbered(row, column, count, unordered)
        at = np.minimum(np.searchsorted(evaluated, pair), len(evaluated) - 1)
        fresh = (row != column) & (evaluated[at] != pair)
        row, pair, score = row[fresh], pair[fresh], common.data[fresh]
        order = np.lexsort((rng.random(len(row)), -score, row))
        chosen.append(pair[order][_place(row[order]) < most])
    return np.unique(np.concatenate(chosen))
