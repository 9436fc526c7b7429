"""Which samples a report shows: some of each cluster, and the doubtful pairs between them."""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from diffclust.models import Result
from diffclust.prototypes import GaussianImages

Kind = Literal["all", "nearest", "farthest", "random", "uncertain"]

MOST_SAMPLES = 1000
"""Samples a report shows in all; with many clusters each shows fewer, so that the file opens."""

NUM_KINDS = 4
"""Groups a large cluster has."""

_MOST_BRIDGES = 12


@dataclasses.dataclass(frozen=True, eq=False)
class Group:
    """Some samples of one cluster, in the order in which they are shown.

    Attributes:
        kind: How they were chosen; `"all"` where the cluster is no larger than a group.
        positions: Their positions in the data set.
    """

    kind: Kind
    positions: Int[np.ndarray, " shown"]


@dataclasses.dataclass(frozen=True, eq=False)
class ClusterView:
    """One cluster as a report shows it.

    Attributes:
        index: Number of the cluster.
        size: Number of its samples.
        share: Their share of all samples.
        mean_distance: Mean distance of its samples; NaN where it is empty.
        groups: The samples that are shown.
    """

    index: int
    size: int
    share: float
    mean_distance: float
    groups: tuple[Group, ...]


@dataclasses.dataclass(frozen=True)
class Bridge:
    """Two samples that are much alike and yet in different clusters.

    Attributes:
        positions: Their positions in the data set.
        clusters: Their clusters, the lower number first.
    """

    positions: tuple[int, int]
    clusters: tuple[int, int]


def affordable_samples(wanted: int, num_clusters: int, *, most: int = MOST_SAMPLES) -> int:
    """Samples a group, so that the whole report stays a file that opens.

    Args:
        wanted: Samples a group that were asked for.
        num_clusters: Number of clusters.
        most: Samples that a report shows in all.

    Returns:
        As many, or fewer where there are many clusters, but at least one.
    """
    return max(1, min(wanted, most // (NUM_KINDS * num_clusters)))


def select(result: Result, *, samples_per_group: int, seed: int) -> list[ClusterView]:
    """Chooses the samples of every cluster.

    Args:
        result: A fitted model.
        samples_per_group: Samples a group.
        seed: Seed of the random ones.

    Returns:
        One view a cluster, in their order.
    """
    views, shares = [], certainties(result)
    for index, size in enumerate(result.counts.tolist()):
        members = np.flatnonzero(result.assignments == index)
        mean = float(np.mean(result.distances[members])) if size else float("nan")
        rng = np.random.default_rng([seed, index])
        groups = _groups(result, members, shares, samples_per_group, rng)
        views.append(ClusterView(index, size, size / len(result.assignments), mean, groups))
    return views


def select_bridges(result: Result) -> list[Bridge]:
    """Chooses the most doubtful pairs.

    Args:
        result: A fitted model.

    Returns:
        A few pairs, the strongest first; none where the method knows of none.
    """
    pairs = result.outcome.extras.get("bridges", np.empty((0, 2), np.int32))
    found = []
    for pair in pairs[:_MOST_BRIDGES].tolist():
        first, second = sorted((int(result.assignments[p]), p) for p in pair)
        found.append(Bridge((first[1], second[1]), (first[0], second[0])))
    return found


def certainties(result: Result) -> Float[np.ndarray, " n"] | None:
    """How much of each image is its own cluster's: its greatest responsibility.

    Args:
        result: A fitted model.

    Returns:
        A share for each image; None where the method knows of none, or only of other images than
        those that were assigned.
    """
    extras = result.outcome.extras
    shares = extras.get("responsibilities", extras.get("certainties"))
    prototype = result.outcome.learned.clusters.prototype
    # With K-means, all that each image is belongs to one cluster.
    if shares is None or not isinstance(prototype, GaussianImages):
        return None
    if len(shares) != len(result.assignments):
        return None
    if shares.ndim == 1:
        # Of images that are read as they are needed only the greatest is kept.
        return shares
    own = shares[np.arange(len(shares)), result.assignments]
    # A saved model that assigns other images still has those of the images it was fitted to.
    return own if np.array_equal(own, shares.max(axis=1)) else None


def _groups(
    result: Result,
    members: np.ndarray,
    shares: np.ndarray | None,
    most: int,
    rng: np.random.Generator,
) -> tuple[Group, ...]:
    nearest_first = members[np.argsort(result.distances[members], kind="stable")]
    if len(members) == 0:
        return ()
    if len(members) <= most:
        return (Group("all", nearest_first),)
    drawn = np.sort(rng.choice(members, size=most, replace=False))
    groups = []
    # With one cluster, or one that is followed, nothing could have come second.
    margins = result.margins[members]
    order = (margins,) if shares is None else (margins, shares[members])
    unsure = members[np.lexsort(order)[: min(most, np.isfinite(margins).sum())]]
    if unsure.size:
        groups.append(Group("uncertain", unsure))
    groups += [
        # Copies: a view of a few would keep the order of all, of which there may be millions.
        Group("farthest", nearest_first[::-1][:most].copy()),
        Group("nearest", nearest_first[:most].copy()),
        Group("random", drawn),
    ]
    return tuple(groups)
