"""k-means on the rows of an embedding: the last step of every spectral method."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from diffclust import _validation
from diffclust.alignment import NoAlignment
from diffclust.energies import TransformedDistance
from diffclust.prototypes import MeanImages
from diffclust.solvers.chunks import default_chunk_size
from diffclust.solvers.fit import fit_prototypes
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.moves import Moves
from diffclust.solvers.progress import Callback, ignore
from diffclust.solvers.run import Stopping
from diffclust.solvers.start import Plan, Start
from diffclust.transforms import Identity
from diffclust.types import Key


@dataclasses.dataclass(frozen=True, eq=False)
class RowClusters:
    """Rows assigned to their nearest centres.

    Attributes:
        assignments: Cluster of each row.
        distances: Euclidean distance to its centre.
        margins: How much farther the second-nearest centre is; infinite with one cluster.
        runners_up: The cluster of that centre; -1 with one cluster.
        centres: One row a cluster.
    """

    assignments: Int[np.ndarray, " n"]
    distances: Float[np.ndarray, " n"]
    margins: Float[np.ndarray, " n"]
    runners_up: Int[np.ndarray, " n"]
    centres: Float[np.ndarray, "clusters vectors"]

    @property
    def loss(self) -> float:
        """The distortion: the sum of squared distances."""
        return float(np.sum(self.distances**2))


def as_images(rows: np.ndarray) -> np.ndarray:
    """Rows as images of one pixel with many channels, which the solvers take.

    Args:
        rows: `(n, features)`.

    Returns:
        `(n, 1, 1, features)`.
    """
    return rows[:, None, None, :]


def kmeans_of_rows(
    rows: Float[np.ndarray, "n features"],
    num_clusters: int,
    *,
    key: Key,
    num_restarts: int,
    stopping: Stopping,
    moves: Moves,
    weight: Float[np.ndarray, " n"] | None = None,
    start: Start = None,
    callback: Callback = ignore,
) -> Float[np.ndarray, "clusters features"]:
    """k-means by the library's own Lloyd's algorithm, nothing aligned.

    Args:
        rows: What is clustered.
        num_clusters: K.
        key: Random key.
        num_restarts: Runs from different seeds, of which the one of least loss is kept.
        stopping: When a run stops.
        moves: Split-and-merge moves.
        weight: Weights of the rows, or None for ones.
        start: Where to start; None for k-means++.
        callback: Told of every chunk.

    Returns:
        The centres.
    """
    images = as_images(rows)
    chunk_size = default_chunk_size(images[0], len(images), 1 + -(-num_clusters // rows.shape[1]))
    plan = Plan(num_clusters, (), num_restarts, stopping, moves, 1, chunk_size)
    solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())
    outcome = fit_prototypes(solver, plan, images, weight, key=key, start=start, callback=callback)
    return np.asarray(outcome.learned.clusters.prototype).reshape(num_clusters, -1)


def nearest_centres(
    rows: Float[np.ndarray, "n vectors"], centres: Float[np.ndarray, "clusters vectors"]
) -> RowClusters:
    """Assigns rows to their nearest centres; of equally near ones to the first.

    Args:
        rows: Rows of an embedding, of new samples or old ones.
        centres: One row a cluster.

    Returns:
        The assignment.
    """
    centres = centres.astype(np.float64)
    count = len(rows)
    assignments, distances = np.empty(count, np.int32), np.empty(count)
    margins, runners_up = np.full(count, np.inf), np.full(count, -1, np.int32)
    for begin in range(0, count, 65536):
        part = rows[begin : begin + 65536].astype(np.float64)
        here = slice(begin, begin + len(part))
        # From differences, cluster by cluster: there are few of either.
        squared = np.stack([np.sum((part - centre) ** 2, axis=1) for centre in centres], axis=1)
        best = squared.argmin(axis=1)
        row = np.arange(len(part))
        assignments[here], distances[here] = best, np.sqrt(squared[row, best])
        if len(centres) > 1:
            squared[row, best] = np.inf
            second = squared.argmin(axis=1)
            runners_up[here] = second
            margins[here] = np.sqrt(squared[row, second]) - distances[here]
    return RowClusters(assignments, distances, margins, runners_up, centres)


def cluster_rows(
    rows: Any,
    num_clusters: int,
    *,
    key: Key,
    num_restarts: int = 4,
    max_passes: int = 100,
    weight: Any = None,
    callback: Callback = ignore,
) -> RowClusters:
    """k-means on rows, with split-and-merge moves, by the library's own Lloyd's algorithm.

    Args:
        rows: Anything array-like of shape `(n, vectors)`.
        num_clusters: K.
        key: Random key.
        num_restarts: Runs from different seeds, of which the one of least loss is kept.
        max_passes: Most passes of a run.
        weight: Weights of the rows, or None for ones.
        callback: Told of every chunk.

    Returns:
        The clusters; where fewer rows than K differ, some of them are empty.

    Raises:
        ValueError: If an argument is not what it should be.
    """
    rows = np.asarray(rows)
    if rows.ndim != 2 or 0 in rows.shape or not np.isfinite(rows).all():
        raise ValueError(
            f"rows must be finite numbers of shape (n, vectors), none of them 0; got {rows.shape}"
        )
    _validation.count(num_clusters, "num_clusters")
    _validation.cluster_count(num_clusters, len(rows), "rows")
    _validation.positive(num_restarts, "num_restarts")
    weight = _validation.weights(weight, len(rows), "weight", "row")
    working = np.asarray(rows, jnp.result_type(float))
    counted = working if weight is None else working[weight > 0]
    different = _different(counted, num_clusters + 1)
    if len(different) <= num_clusters:
        # No more than K places: k-means would go on refilling empty clusters.
        spare = different[-1:].repeat(num_clusters - len(different), axis=0)
        return nearest_centres(rows, np.concatenate([different, spare]))
    centres = kmeans_of_rows(
        working,
        num_clusters,
        key=key,
        num_restarts=num_restarts,
        stopping=Stopping(max_passes, 1e-4),
        moves=Moves(),
        weight=weight,
        callback=callback,
    )
    return nearest_centres(rows, centres)


def _different(rows: np.ndarray, most: int) -> np.ndarray:
    """Rows that differ, in their order, up to a number of them."""
    found, remaining = [], np.arange(len(rows))
    while remaining.size and len(found) < most:
        row = rows[remaining[0]]
        found.append(row)
        remaining = remaining[(rows[remaining] != row).any(axis=1)]
    return np.stack(found)
