"""Reranked neighbours: candidates from a cheap representation, ranked by another distance."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PyTree

from diffclust import _validation as check
from diffclust.distances import AbstractDistance
from diffclust.features.orthogonal_complement import drop_leading
from diffclust.graphs.neighbours import Neighbours, nearest_neighbours
from diffclust.parallel.chunks import samples_within
from diffclust.parallel.in_flight import Chunkwise, all_rows, chunks_in_flight
from diffclust.parallel.mesh import jitted_map_rows, own_mesh, own_size, shard_rows
from diffclust.parallel.processes import allgather_rows, own_share

_CPU_BATCH, _DEVICE_BATCH = 128, 8192
"""Pairs computed at a time: as many as a CPU's cache holds, or as fill a GPU."""

_CPU_CHUNK = 4 * _CPU_BATCH
"""Pairs per chunk on a CPU: several batches, as each call of a program takes time of its own."""

_NEAR = 0.15
"""Fraction of the median distance to the last neighbour below which samples are near-duplicates."""


def reranked(
    candidates: Neighbours, distance: Float[np.ndarray, "n k"], num_neighbours: int
) -> Neighbours:
    """Ranks candidates by other distances.

    Args:
        candidates: Candidates of every sample.
        distance: Their new distances, in the same order.
        num_neighbours: How many are kept; all if there are fewer.

    Returns:
        The nearest of them, nearest first; ties go to lower indices.
    """
    order = np.lexsort((candidates.index, distance), axis=1)[:, :num_neighbours]
    index = np.take_along_axis(candidates.index, order, axis=1)
    return Neighbours(index, np.take_along_axis(distance, order, axis=1))


def _distances(distance: AbstractDistance, pairs: tuple[PyTree, PyTree]) -> Array:
    batch = samples_within(1, cpu=_CPU_BATCH, device=_DEVICE_BATCH)
    count = jax.tree.leaves(pairs)[0].shape[0]
    # Of equal size where there are such batches: a smaller last one would be compiled apart.
    least = -(-count // batch)
    number = next((n for n in range(least, 2 * least) if count % n == 0), least)
    return jax.lax.map(lambda pair: distance(*pair), pairs, batch_size=-(-count // number))


def pair_chunks(
    distance: AbstractDistance,
    samples: PyTree,
    prototypes: PyTree,
    sources: Int[np.ndarray, " pairs"],
    targets: Int[np.ndarray, " pairs"],
    *,
    chunk_size: int | None = None,
    mesh: Mesh | None = None,
    report: Callable[[int, int], None] | None = None,
) -> Chunkwise:
    """Distances of many pairs, chunk by chunk.

    Args:
        distance: Any distance, invariant or not.
        samples: Arrays on the host with a leading axis.
        prototypes: Similar arrays; may be the samples.
        sources: Indices of the samples.
        targets: Indices of the prototypes.
        chunk_size: Pairs per chunk and device, of which 128 (8,192 on other devices than CPUs) are
            computed at a time; by default chosen for the machine.
        mesh: Devices that share every chunk, or None for one. Several processes share the pairs;
            all pass the same ones.
        report: Called with pairs done and the total after every chunk, or None.

    Returns:
        An iterator over `distance(samples[sources[i]], prototypes[targets[i]])` for this process's
        share of the pairs, chunk by chunk.
    """
    own, here = own_mesh(mesh), own_share(len(sources), mesh)
    sources, targets = sources[here], targets[here]
    count, devices = len(sources), own_size(own)
    if chunk_size is None:
        chunk_size = samples_within(1, cpu=_CPU_CHUNK, device=_DEVICE_BATCH)
    check.count(chunk_size, "chunk_size")
    # Of few sizes, for each of which a program is compiled.
    few = 16 << max(0, -(-count // (16 * devices)) - 1).bit_length()
    size = min(chunk_size, few) * devices

    def rows_of(tree: PyTree, index: np.ndarray) -> PyTree:
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf[index])), tree)

    def compute(start: int) -> Array:
        index = np.minimum(np.arange(start, start + size), count - 1)
        pairs = rows_of(samples, sources[index]), rows_of(prototypes, targets[index])
        # Pairs are independent: every device evaluates its own.
        return jitted_map_rows(_distances, distance, shard_rows(pairs, own), own)

    def chunks(first: int) -> Iterator[np.ndarray]:
        if not count:
            # There may be fewer pairs than processes.
            yield np.zeros(0, np.dtype(jnp.result_type(float)))
            return
        starts = range(first, count, size)
        for start, distances in chunks_in_flight(compute, starts, own, report):
            yield np.asarray(distances)[: count - start]

    return chunks


def pair_distances(
    distance: AbstractDistance,
    samples: PyTree,
    prototypes: PyTree,
    sources: Int[np.ndarray, " pairs"],
    targets: Int[np.ndarray, " pairs"],
    *,
    mesh: Mesh | None = None,
    **settings: Any,
) -> Float[np.ndarray, " pairs"]:
    """Distances of many pairs.

    Args:
        distance: Any distance, invariant or not.
        samples: Arrays on the host with a leading axis.
        prototypes: Similar arrays; may be the samples.
        sources: Indices of the samples.
        targets: Indices of the prototypes.
        mesh: Devices that share every chunk, or None for one.
        **settings: `chunk_size` and `report` of `pair_chunks`.

    Returns:
        The distance of every pair, in all processes.
    """
    chunks = pair_chunks(distance, samples, prototypes, sources, targets, mesh=mesh, **settings)
    return allgather_rows(all_rows(chunks), mesh)


Direction = Literal["forward", "min", "mean"]


def symmetrised(
    forward: Float[np.ndarray, "..."], backward: Float[np.ndarray, "..."], direction: Direction
) -> Float[np.ndarray, "..."]:
    """Combines the distances of both directions into one.

    Args:
        forward: Distances of samples moved onto their candidates.
        backward: Distances of the candidates moved onto the samples.
        direction: `"min"` or `"mean"`.

    Returns:
        The distances.
    """
    return np.minimum(forward, backward) if direction == "min" else 0.5 * (forward + backward)


@dataclasses.dataclass(frozen=True)
class CandidateDistances:
    """The distance from every sample to each of its candidates; no pair is evaluated twice.

    An invariant distance is not symmetric: moving a sample onto its neighbour may cost more than
    moving the neighbour onto the sample.

    Attributes:
        distance: Any distance of one sample to another, invariant or not.
        samples: Arrays on the host with a leading axis, as the distance takes them.
        prototypes: What the candidates' indices refer to; None for the samples themselves.
        direction: `"forward"` moves the sample onto its candidate; `"min"` and `"mean"` evaluate
            both directions, at up to twice the cost.
        chunk_size: Pairs per chunk and device; by default chosen for the machine.
        mesh: Devices that share every chunk, or None for one. Several processes share the pairs:
            all pass the same ones, and get the distances of all.
        report: Called with pairs done and the total, or None.
    """

    distance: AbstractDistance
    samples: PyTree
    prototypes: PyTree | None = None
    direction: Direction = "forward"
    chunk_size: int | None = None
    mesh: Mesh | None = None
    report: Callable[[int, int], None] | None = None

    def __post_init__(self):
        """Refuses an unknown direction."""
        check.one_of(self.direction, get_args(Direction), "direction")

    @property
    def _others(self) -> PyTree:
        return self.samples if self.prototypes is None else self.prototypes

    @property
    def _count(self) -> int:
        return jax.tree.leaves(self._others)[0].shape[0]

    @property
    def _settings(self) -> dict[str, Any]:
        return {"chunk_size": self.chunk_size, "mesh": self.mesh, "report": self.report}

    def _pairs(self, candidates: Sequence[Neighbours]) -> tuple[np.ndarray, np.ndarray]:
        """Samples and candidates of all pairs whose distances are needed."""
        both = self.direction != "forward" and self.prototypes is None
        return np.divmod(_needed(candidates, self._count, both=both), self._count)

    def chunks(self, candidates: Sequence[Neighbours]) -> Chunkwise:
        """The distances of all pairs in the forward direction, in chunks, for `arranged`.

        Args:
            candidates: Candidates of every sample, from one or several representations.

        Returns:
            An iterator over this process's share.
        """
        trees, pairs = (self.samples, self._others), self._pairs(candidates)
        return pair_chunks(self.distance, *trees, *pairs, **self._settings)

    def __call__(self, candidates: Sequence[Neighbours]) -> tuple[Float[np.ndarray, "n k"], ...]:
        """Evaluates all candidates.

        Args:
            candidates: Candidates of every sample, from one or several representations.

        Returns:
            Distances in the order of the candidates, for each of the representations.
        """
        forward = allgather_rows(all_rows(self.chunks(candidates)), self.mesh)
        if self.direction == "forward" or self.prototypes is None:
            return arranged(candidates, forward, direction=self.direction, count=self._count)
        trees, pairs = (self.prototypes, self.samples), self._pairs(candidates)[::-1]
        backward = pair_distances(self.distance, *trees, *pairs, **self._settings)
        both = symmetrised(forward, backward, self.direction)
        return arranged(candidates, both, count=self._count)


def candidate_distances(
    candidates: Sequence[Neighbours],
    distance: AbstractDistance,
    samples: PyTree,
    *,
    prototypes: PyTree | None = None,
    **settings: Any,
) -> tuple[Float[np.ndarray, "n k"], ...]:
    """The distance from every sample to each of its candidates; see `CandidateDistances`.

    Args:
        candidates: Candidates of every sample, from one or several representations.
        distance: Any distance of one sample to another, invariant or not.
        samples: Arrays on the host with a leading axis, as the distance takes them.
        prototypes: What the candidates' indices refer to; None for the samples themselves.
        **settings: `direction`, `chunk_size`, `mesh` and `report` of `CandidateDistances`.

    Returns:
        Distances in the order of the candidates, for each of the representations.
    """
    return CandidateDistances(distance, samples, prototypes, **settings)(candidates)


def _keys(candidates: Sequence[Neighbours], count: int) -> list[Int[np.ndarray, "n k"]]:
    """Numbers the pairs of a sample and a candidate."""
    return [np.arange(len(near))[:, None] * count + near.index for near in candidates]


def _reversed(keys: np.ndarray, count: int) -> np.ndarray:
    return keys % count * count + keys // count


def _needed(
    candidates: Sequence[Neighbours], count: int, *, both: bool
) -> Int[np.ndarray, " pairs"]:
    """The pairs whose distances are needed, without duplicates."""
    needed = np.unique(np.concatenate([keys.ravel() for keys in _keys(candidates, count)]))
    # For two samples that are each other's candidates, the way back is also a forward pair.
    return np.union1d(needed, _reversed(needed, count)) if both else needed


def arranged(
    candidates: Sequence[Neighbours],
    distances: Float[np.ndarray, " pairs"],
    *,
    direction: Direction = "forward",
    count: int | None = None,
) -> tuple[Float[np.ndarray, "n k"], ...]:
    """Arranges distances of pairs in the order of their candidates.

    Args:
        candidates: Candidates of every sample, from one or several representations.
        distances: The distances of the pairs, as returned by `CandidateDistances.chunks`.
        direction: `"min"` and `"mean"` combine both directions, if the candidates are samples
            themselves.
        count: How many samples the candidates' indices refer to; by default as many as have
            candidates.

    Returns:
        Distances in the order of the candidates, for each of the representations.
    """
    count = len(candidates[0]) if count is None else count
    needed = _needed(candidates, count, both=direction != "forward")
    if direction != "forward":
        backward = distances[np.searchsorted(needed, _reversed(needed, count))]
        distances = symmetrised(distances, backward, direction)
    places = _keys(candidates, count)
    return tuple(distances[np.searchsorted(needed, keys)] for keys in places)


def nested_neighbours(
    coordinates: Float[np.ndarray, "n directions"],
    removed: tuple[int, ...],
    dimensions: int,
    num_neighbours: int,
    *,
    mesh: Mesh | None = None,
    report: Callable[[int, int], None] | None = None,
) -> tuple[Neighbours, ...]:
    """Exact neighbours in several windows of the same coordinates, at little more cost than one.

    The distance over the coordinates that all windows share is a lower bound on the distance in
    every window. The nearest samples by this bound are therefore candidates, which are ranked in
    each window by adding the few missing coordinates. If the last candidate is no farther by the
    bound than the last neighbour found, a nearer one may have been missed, and the sample is
    searched for again.

    Args:
        coordinates: Coordinates along principal directions, leading ones first.
        removed: How many leading coordinates each window leaves out.
        dimensions: Number of coordinates in a window; fewer if there are not as many.
        num_neighbours: Number of neighbours; fewer if there are not as many samples.
        mesh: Devices, possibly of several processes, that share the samples; or None for one.
        report: Called with samples done and the total, or None.

    Returns:
        The neighbours in each window, in the order of `removed`.
    """

    def search(points: np.ndarray, count: int) -> Neighbours:
        settings = {"exclude_self": True, "mesh": mesh, "report": report}
        return nearest_neighbours(points, points, count, **settings)

    low, high = min(removed), max(removed)
    end = min(low + dimensions, coordinates.shape[1])
    if low == high or end - high < 1:
        windows = [np.ascontiguousarray(drop_leading(coordinates, n, dimensions)) for n in removed]
        return tuple(search(window, num_neighbours) for window in windows)
    candidates = search(np.ascontiguousarray(coordinates[:, high:end]), max(48, 6 * num_neighbours))
    neighbours = []
    for n in removed:
        window = np.ascontiguousarray(drop_leading(coordinates, n, dimensions))
        missing = np.r_[n:high, end : min(n + dimensions, coordinates.shape[1])].astype(np.int64)
        squared = candidates.distance.astype(np.float64) ** 2
        for column in coordinates[:, missing].T.astype(np.float64):
            squared += (column[candidates.index] - column[:, None]) ** 2
        distance = np.sqrt(squared).astype(coordinates.dtype)
        best = reranked(candidates, distance, num_neighbours)
        if candidates.num_neighbours < len(coordinates) - 1:
            doubtful = candidates.distance[:, -1] <= best.distance[:, -1]
            _search_again(window, best, np.flatnonzero(doubtful))
        neighbours.append(best)
    return tuple(neighbours)


def windowed_neighbours(
    coordinates: Float[np.ndarray, "n directions"],
    references: Float[np.ndarray, "m directions"],
    removed: tuple[int, ...],
    dimensions: int,
    num_neighbours: int,
    *,
    mesh: Mesh | None = None,
) -> list[Neighbours]:
    """Neighbours of new samples among references, in several windows of their coordinates.

    Args:
        coordinates: The new samples' coordinates along principal directions, leading ones first.
        references: The references' coordinates.
        removed: How many leading coordinates each window leaves out.
        dimensions: Number of coordinates in a window; fewer if there are not as many.
        num_neighbours: Number of neighbours.
        mesh: Devices that share the new samples, or None for one.

    Returns:
        The neighbours in each window, in the order of `removed`.
    """
    windows = (
        (drop_leading(coordinates, n, dimensions), drop_leading(references, n, dimensions))
        for n in removed
    )
    return [nearest_neighbours(x, y, num_neighbours, mesh=mesh) for x, y in windows]


def near_duplicates(neighbours: Neighbours, size: int) -> Bool[np.ndarray, " n"]:
    """Finds all but the first sample of every group of near-duplicates.

    Two samples are near-duplicates if their distance is at most 0.15 times the median distance to
    the last neighbour; such pairs connect samples to groups. A group with more members than a
    sample has neighbours would be a separate part of the graph, however similar it is to others.

    Args:
        neighbours: Neighbours of the samples, excluding themselves.
        size: Groups of at most this size are left alone.

    Returns:
        Which samples belong to a larger group of near-duplicates and are not its first sample.
    """
    close = neighbours.distance <= _NEAR * np.median(neighbours.distance[:, -1])
    rows, columns = np.nonzero(close)
    pairs = (np.ones(len(rows), bool), (rows, neighbours.index[rows, columns]))
    graph = scipy.sparse.coo_array(pairs, shape=(len(close), len(close)))
    group = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    _, first, group, counts = np.unique(
        group, return_index=True, return_inverse=True, return_counts=True
    )
    return (counts[group] > size) & (first[group] != np.arange(len(group)))


def distinct_neighbours(
    coordinates: Float[np.ndarray, "n directions"],
    removed: tuple[int, ...],
    dimensions: int,
    num_neighbours: int,
    size: int,
    *,
    mesh: Mesh | None = None,
    report: Callable[[int, int], None] | None = None,
) -> tuple[Neighbours, ...]:
    """`nested_neighbours`, with at most one sample from each group of near-duplicates.

    Args:
        coordinates: Coordinates along principal directions, leading ones first.
        removed: How many leading coordinates each window leaves out.
        dimensions: Number of coordinates in a window; fewer if there are not as many.
        num_neighbours: Number of neighbours; fewer if there are not as many samples.
        size: Groups of at most this many near-duplicates are left alone.
        mesh: As for `nested_neighbours`.
        report: As for `nested_neighbours`.

    Returns:
        The neighbours in each window, in the order of `removed`.
    """
    settings = {"mesh": mesh, "report": report}
    near = nested_neighbours(coordinates, removed, dimensions, num_neighbours, **settings)
    surplus = near_duplicates(near[0], size)
    distinct = np.flatnonzero(~surplus)
    if len(distinct) in (1, len(surplus)):
        return near
    few = nested_neighbours(coordinates[distinct], removed, dimensions, num_neighbours, **settings)
    windows = (removed, dimensions, few[0].num_neighbours)
    others = windowed_neighbours(coordinates[surplus], coordinates[distinct], *windows, mesh=mesh)
    place = np.argsort(np.concatenate([distinct, np.flatnonzero(surplus)]))
    return tuple(
        Neighbours(
            distinct[np.concatenate([ours.index, theirs.index])][place].astype(ours.index.dtype),
            np.concatenate([ours.distance, theirs.distance])[place],
        )
        for ours, theirs in zip(few, others, strict=True)
    )


def _search_again(window: np.ndarray, neighbours: Neighbours, samples: np.ndarray) -> None:
    """Replaces the neighbours of some samples by those of a separate search, in place."""
    if not samples.size:
        return
    wanted = neighbours.num_neighbours
    nearest = nearest_neighbours(window[samples], window, wanted + 1)
    itself = nearest.index == samples[:, None]
    # Among more duplicates than neighbours the sample itself may be missing; then the last one
    # goes.
    itself[~itself.any(axis=1), -1] = True
    neighbours.index[samples] = nearest.index[~itself].reshape(-1, wanted)
    neighbours.distance[samples] = nearest.distance[~itself].reshape(-1, wanted)
