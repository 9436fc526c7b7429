"""k-means of points: the last step of every spectral method."""

import dataclasses
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from diffclust import _validation
from diffclust._precision import warn_of_offset
from diffclust._random import numpy_generator
from diffclust._renamed import renamed_keywords
from diffclust.alignment import NoAlignment
from diffclust.energies import TransformedDistance
from diffclust.features.moments import checked_features
from diffclust.parallel.chunks import default_chunk_size
from diffclust.parallel.data import Data
from diffclust.prototypes import MeanImages
from diffclust.solvers.driver import run
from diffclust.solvers.lloyd import Lloyd
from diffclust.solvers.lloyd_problem import LloydPlan, LloydProblem
from diffclust.solvers.lloyd_run import Stopping
from diffclust.solvers.result import Callback, ignore
from diffclust.solvers.split_merge import SplitMerge
from diffclust.transforms import Identity
from diffclust.types import Key

_MANY_STARTS, _SCIKIT_LEARN = 2**18, 2**24
"""Bounds on points × features × clusters: below the second, scikit-learn takes less time than
compiling our own algorithm, and below the first it makes twice as many starts."""


@dataclasses.dataclass(frozen=True, eq=False)
class PointClusters:
    """Points assigned to centres: the nearest ones, except for points that `reassigned` moved.

    Attributes:
        assignments: Cluster of each row.
        distances: Euclidean distance to its centre.
        margins: How much farther the second-nearest centre is; infinite with one cluster.
        runners_up: The second-nearest cluster; -1 with one cluster.
        centres: One row per cluster.
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

    def reassigned(
        self, points: Float[np.ndarray, "n vectors"], assignments: Int[np.ndarray, " n"]
    ) -> "PointClusters":
        """The same centres, with some points in other clusters.

        Args:
            points: The points.
            assignments: Cluster of each point.

        Returns:
            The clusters; for a moved point, the margin is 0 and the runner-up is its old cluster.
        """
        moved = np.flatnonzero(assignments != self.assignments)
        distances, margins = self.distances.copy(), self.margins.copy()
        runners_up = self.runners_up.copy()
        away = points[moved].astype(np.float64) - self.centres[assignments[moved]]
        distances[moved], margins[moved] = np.linalg.norm(away, axis=1), 0.0
        runners_up[moved] = self.assignments[moved]
        return PointClusters(assignments, distances, margins, runners_up, self.centres)


def centres_by_kmeans(
    points: Float[np.ndarray, "n features"],
    plan: LloydPlan,
    *,
    key: Key,
    weight: Float[np.ndarray, " n"] | None = None,
    start: Float[np.ndarray, "clusters features"] | None = None,
    callback: Callback = ignore,
) -> Float[np.ndarray, "clusters features"]:
    """k-means: of few points by scikit-learn, which compiles nothing; of more by our own algorithm.

    Args:
        points: The points to cluster.
        plan: K, runs and moves.
        key: Random key.
        weight: Weights of the points, or None for ones.
        start: Centres to start from; None for k-means++.
        callback: Called after every chunk of our own algorithm.

    Returns:
        The centres.
    """
    size = points.size * plan.num_clusters
    if size > _SCIKIT_LEARN:
        # Images of one pixel with many channels, which the solvers take.
        images = points[:, None, None, :]
        copies = 1 + -(-plan.num_clusters // points.shape[1])
        solver = Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())
        first = None if start is None else ("prototypes", jnp.asarray(start[:, None, None, :]))
        data = Data(images, weight, default_chunk_size(images[0], len(images), copies))
        outcome = run((LloydProblem(solver, plan, first),), data, key, callback=callback)
        return np.asarray(outcome.learned.clusters.prototype).reshape(plan.num_clusters, -1)
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # More starts replace split-and-merge moves.
    more = (8 if size <= _MANY_STARTS else 4) if plan.split_merge.rounds else 1
    solver = KMeans(
        plan.num_clusters,
        init="k-means++" if start is None else start,
        n_init=plan.num_restarts * more if start is None else 1,
        max_iter=plan.stopping.max_passes,
        tol=plan.stopping.tolerance or 0.0,
        random_state=int(numpy_generator(key).integers(2**31)),
    )
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Points that differ only by rounding cause empty clusters.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solver.fit(points, sample_weight=weight).cluster_centers_.astype(points.dtype)


@renamed_keywords(rows="points")
def nearest_centres(
    points: Float[np.ndarray, "n vectors"], centres: Float[np.ndarray, "clusters vectors"]
) -> PointClusters:
    """Assigns points to their nearest centres; ties go to the first.

    Args:
        points: Rows of an embedding, of new or fitted samples.
        centres: One row per cluster.

    Returns:
        The assignment.
    """
    points, centres = np.asarray(points), np.asarray(centres, np.float64)
    if points.ndim != 2 or centres.ndim != 2 or points.shape[1] != centres.shape[1]:
        raise ValueError(
            "points and centres must have shapes (n, vectors) and (clusters, vectors); got "
            f"{points.shape} and {centres.shape}"
        )
    count = len(points)
    assignments, distances = np.empty(count, np.int32), np.empty(count)
    margins, runners_up = np.full(count, np.inf), np.full(count, -1, np.int32)
    for start in range(0, count, 65536):
        part = points[start : start + 65536].astype(np.float64)
        here = slice(start, start + len(part))
        # From differences, cluster by cluster: there are few clusters and dimensions.
        squared = np.stack([np.sum((part - centre) ** 2, axis=1) for centre in centres], axis=1)
        best = squared.argmin(axis=1)
        row = np.arange(len(part))
        assignments[here], distances[here] = best, np.sqrt(squared[row, best])
        if len(centres) > 1:
            squared[row, best] = np.inf
            second = squared.argmin(axis=1)
            runners_up[here] = second
            margins[here] = np.sqrt(squared[row, second]) - distances[here]
    return PointClusters(assignments, distances, margins, runners_up, centres)


@renamed_keywords(rows="points")
def kmeans(
    points: Any,
    num_clusters: int,
    *,
    key: Key,
    num_restarts: int = 4,
    max_passes: int = 100,
    weight: Any = None,
    callback: Callback = ignore,
    warns: bool = True,
) -> PointClusters:
    """k-means that does not depend on a single bad start.

    Few points are clustered by scikit-learn, with several times as many starts; more by the
    library's own Lloyd's algorithm with split-and-merge moves.

    Args:
        points: An array-like of shape `(n, vectors)`.
        num_clusters: K.
        key: Random key.
        num_restarts: Number of runs from different seeds; the one with the lowest loss is kept.
        max_passes: Maximum number of passes in a run.
        weight: Weights of the points, or None for ones.
        callback: Called after every chunk of our own algorithm.
        warns: Whether to warn about points so far from zero that they lose digits. Rows of an
            embedding that does not distinguish samples are always this far.

    Returns:
        The clusters; if fewer than K points differ, some of them are empty.

    Raises:
        ValueError: If an argument is invalid.
    """
    _validation.unmasked(points, "points")
    points = np.asarray(points)
    is_shaped = points.ndim == 2 and 0 not in points.shape and points.dtype.kind not in "OSUc"
    if not is_shaped or not np.isfinite(points).all():
        raise ValueError(
            f"points must be finite numbers of shape (n, vectors), none of them 0; got "
            f"{points.dtype} {points.shape}"
        )
    _validation.count(num_clusters, "num_clusters")
    _validation.cluster_count(num_clusters, len(points), "points")
    _validation.count(num_restarts, "num_restarts")
    _validation.count(max_passes, "max_passes")
    weight = _validation.weights(weight, len(points), "weight", "point")
    # Multiplication by a power of two changes no digit, and squares stay in range.
    floats = points if points.dtype == np.float32 else points.astype(np.float64)
    exponent = int(np.frexp(np.abs(floats).max())[1])
    scaled = np.ldexp(floats, -exponent)
    working = np.asarray(scaled, jnp.result_type(float))
    if warns:
        warn_of_offset(working[:10_000], "points")
    weighted = working if weight is None else working[weight > 0]
    different = _different(weighted, num_clusters + 1)
    if len(different) <= num_clusters:
        # At most K places: k-means would otherwise keep refilling empty clusters.
        spare = different[-1:].repeat(num_clusters - len(different), axis=0)
        centres = np.concatenate([different, spare])
    else:
        plan = LloydPlan(num_clusters, (), num_restarts, Stopping(max_passes, 1e-4), SplitMerge())
        centres = centres_by_kmeans(working, plan, key=key, weight=weight, callback=callback)
    clusters = nearest_centres(scaled, centres)
    lengths = {n: getattr(clusters, n) for n in ("distances", "margins", "centres")}
    scaled_back = {name: np.ldexp(values, exponent) for name, values in lengths.items()}
    return dataclasses.replace(clusters, **scaled_back)


def _different(rows: np.ndarray, most: int) -> np.ndarray:
    """Rows that differ, in their order, up to a given number."""
    different, remaining = [], np.arange(len(rows))
    while remaining.size and len(different) < most:
        row = rows[remaining[0]]
        different.append(row)
        remaining = remaining[(rows[remaining] != row).any(axis=1)]
    return np.stack(different)


def representatives(
    features: Any, num_representatives: int = 1000, *, key: Key, num_candidates: int = 9000
) -> Float[np.ndarray, "p features"]:
    """Representatives by hybrid selection: the k-means centres of random candidates.

    Args:
        features: An array-like of shape `(n, features)`; only the candidates are read.
        num_representatives: p; fewer if there are not as many samples.
        key: Random key.
        num_candidates: p', drawn without replacement; at most all samples.

    Returns:
        The representatives.

    Raises:
        ValueError: If an argument is invalid.

    References:
        Huang et al. (2019), Ultra-scalable spectral clustering, Sec. 3.1.1; Villar-Corrales and
        Morgenshtern, PSSC, Sec. 3.3, p = 1000 and p' = 9000.
    """
    if getattr(features, "ndim", 2) != 2 or not len(features):
        raise ValueError(
            f"features must have shape (n, features), n at least 1; got {np.shape(features)}"
        )
    _validation.count(num_representatives, "num_representatives")
    _validation.count(num_candidates, "num_candidates", least=num_representatives)
    count = len(features)
    rng = numpy_generator(key)
    drawn = rng.choice(count, size=min(num_candidates, count), replace=False)
    candidates = checked_features(np.asarray(features)[np.sort(drawn)], "features")
    if len(candidates) <= num_representatives:
        return candidates
    first = np.sort(rng.choice(len(candidates), size=num_representatives, replace=False))
    # Few passes: a representative slightly off its cell's mean serves as well.
    plan = LloydPlan(num_representatives, (), 1, Stopping(10, 1e-3), SplitMerge(rounds=0))
    return centres_by_kmeans(candidates, plan, key=key, start=candidates[first])
