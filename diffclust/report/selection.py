"""Which samples a report shows of each cluster, and what is known about each of them."""

import dataclasses
import math
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from diffclust.data import Collection, Recordings
from diffclust.methods import Words, plural
from diffclust.models import Result
from diffclust.report.text import escape, number, percent

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
        members: Positions of its samples in the data set, the nearest first.
        share: Their share of all samples.
        mean_distance: Mean distance of its samples; NaN where it is empty.
        groups: The samples that are shown.
    """

    index: int
    members: Int[np.ndarray, " members"]
    share: float
    mean_distance: float
    groups: tuple[Group, ...]

    @property
    def size(self) -> int:
        """Number of its samples."""
        return len(self.members)


@dataclasses.dataclass(frozen=True)
class SampleInfo:
    """The facts about one sample.

    Attributes:
        index: Its position in the source of the data.
        place: Its file or name, or None.
        label: Name of its class, or None.
        distance: Distance to its prototype, or negative log density.
        margin: How much more the second-best cluster would have cost; may be infinite.
        runner_up: The second-best cluster, or -1.
        certainty: Its greatest responsibility, or None where the method has none.
        p_value: Its conformal p-value among the fitted samples of its cluster; None where it was
            fitted itself.
    """

    index: int
    place: str | None
    label: str | None
    distance: float
    margin: float
    runner_up: int
    certainty: float | None
    p_value: float | None = None

    @property
    def has_margin(self) -> bool:
        """Whether there is a second-best cluster."""
        return self.runner_up >= 0 and math.isfinite(self.margin)

    def tooltip(self, words: Words) -> str:
        """The text that is shown where somebody points at the sample.

        Args:
            words: What the method's figures are called.

        Returns:
            Lines that are safe as HTML.
        """
        lines = [f"index {self.index}"]
        if self.place is not None:
            lines.append(escape(self.place))
        if self.label is not None:
            lines.append(f"class {escape(self.label)}")
        lines.append(f"{words.distance_short} {number(self.distance)}")
        if self.certainty is not None:
            lines.append(f"responsibility {percent(self.certainty)}")
        if self.p_value is not None:
            among = f"among the {plural(words.noun)} fitted to this cluster"
            lines.append(f"p-value {number(self.p_value)} {among}")
        if self.has_margin:
            lines.append(f"margin {number(self.margin)} to cluster {self.runner_up}")
        return "\n".join(lines)


def select(result: Result, *, samples_per_group: int, seed: int) -> list[ClusterView]:
    """Chooses the samples of every cluster.

    Args:
        result: A fitted model.
        samples_per_group: Samples a group.
        seed: Seed of the random ones.

    Returns:
        One view a cluster, in their order.
    """
    views, own, most = [], certainties(result), samples_per_group
    for index, size in enumerate(result.counts.tolist()):
        members = np.flatnonzero(result.assignments == index)
        nearest = members[np.argsort(result.distances[members], kind="stable")]
        groups: dict[Kind, np.ndarray] = {"all": nearest}
        if size > most:
            # With one cluster, or one that is followed, nothing could have come second.
            margins = result.margins[members]
            order = (margins,) if own is None else (margins, own[members])
            unsure = members[np.lexsort(order)[: min(most, np.isfinite(margins).sum())]]
            rng = np.random.default_rng([seed, index])
            groups = {
                "uncertain": unsure,
                "farthest": nearest[::-1][:most],
                "nearest": nearest[:most],
                "random": np.sort(rng.choice(members, size=most, replace=False)),
            }
        mean = float(np.mean(result.distances[members])) if size else math.nan
        shown = tuple(Group(kind, chosen) for kind, chosen in groups.items() if chosen.size)
        views.append(ClusterView(index, nearest, size / len(result.assignments), mean, shown))
    return views


def select_bridges(result: Result) -> list[tuple[int, int]]:
    """Chooses the most doubtful pairs: samples that are much alike, yet in different clusters.

    Args:
        result: A fitted model.

    Returns:
        Positions of a few pairs, the strongest first, in each of them the lower cluster first; none
        where the method has none.
    """
    pairs = result.outcome.extras.get("bridges", np.empty((0, 2), np.int32))
    clusters = result.assignments.tolist()
    return [
        (first, second) if clusters[first] <= clusters[second] else (second, first)
        for first, second in pairs[:_MOST_BRIDGES].tolist()
    ]


def words_of(result: Result, dataset: Collection) -> Words:
    """Returns the words for figures and samples.

    Args:
        result: A fitted model.
        dataset: The data it was fitted to.

    Returns:
        The method's words; of recordings it is not said that they are images.
    """
    words = result.model.words
    if not isinstance(dataset, Recordings):
        return words
    empty = words.empty.replace("image", dataset.noun)
    return dataclasses.replace(words, noun=dataset.noun, empty=empty)


def coarsening(result: Result) -> int:
    """How many times coarser the samples were on which restarts ran.

    Args:
        result: A fitted model.

    Returns:
        The factor; 1 where they ran on the samples themselves.
    """
    return result.model.coarsening(*result.sample_shape[:2])


def certainties(result: Result) -> Float[np.ndarray, " n"] | None:
    """The greatest responsibility of each sample, that of its own cluster.

    Args:
        result: A fitted model.

    Returns:
        A share for each sample; None for a method that is no mixture, and where responsibilities
        are only known of other samples than those that were assigned.
    """
    extras, is_mixture = result.outcome.extras, result.model.descriptor.is_mixture
    shares = extras.get("responsibilities", extras.get("certainties"))
    if shares is None or not is_mixture or len(shares) != len(result.assignments):
        return None
    if shares.ndim == 1:
        # Of images that are read as they are needed only the greatest is kept.
        return shares
    own = shares[np.arange(len(shares)), result.assignments]
    # A saved model that assigns other images still has those of the images it was fitted to.
    return own if np.array_equal(own, shares.max(axis=1)) else None


def sample_info(
    result: Result, dataset: Collection, positions: Int[np.ndarray, " m"]
) -> dict[int, SampleInfo]:
    """Collects the facts about some samples.

    Args:
        result: A fitted model.
        dataset: The data it was fitted to.
        positions: Their positions in the data set.

    Returns:
        What is known, by position.
    """
    assignment, own = result.outcome.assignment, certainties(result)
    rarity = result.outcome.extras.get("p_values")
    places, labels = dataset.places[1], dataset.labels
    infos = {}
    for position in positions.tolist():
        index, place = int(dataset.indices[position]), places[position]
        infos[position] = SampleInfo(
            index=index,
            # A name that is but the index would only repeat it.
            place=None if place in ("", str(index)) else place,
            label=None if labels is None else class_name(dataset, int(labels[position])),
            distance=float(assignment.distances[position]),
            margin=float(assignment.margins[position]),
            runner_up=int(assignment.runners_up[position]),
            certainty=None if own is None else float(own[position]),
            p_value=None if rarity is None else float(rarity[position]),
        )
    return infos


def class_name(dataset: Collection, code: int) -> str:
    """The name of a class.

    Args:
        dataset: Data with labels.
        code: The class's code in the labels.

    Returns:
        The name; the code where there are no names.
    """
    return str(code) if dataset.label_names is None else dataset.label_names[code]


def class_shares(dataset: Collection, members: np.ndarray) -> list[tuple[str, float]]:
    """The classes of some samples, the most frequent first.

    Args:
        dataset: The data.
        members: Positions in it.

    Returns:
        Names and responsibilities; empty without labels or members.
    """
    if dataset.labels is None or len(members) == 0:
        return []
    codes, counts = np.unique(dataset.labels[members], return_counts=True)
    return [
        (class_name(dataset, int(codes[i])), float(counts[i] / len(members)))
        for i in np.argsort(-counts, kind="stable")
    ]
