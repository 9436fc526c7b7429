"""What a person changes in a clustering, as data, and what becomes of the clustering.

An edit is immutable and JSON can hold it. Applying one returns a new labelling; undoing the last
one is applying all the others again.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

LONGEST_NAME = 200
"""Characters of a cluster's name."""


@dataclasses.dataclass(frozen=True)
class Rename:
    """Gives a cluster a name.

    Attributes:
        cluster: The cluster.
        name: Its name; empty for none.
    """

    cluster: int
    name: str


@dataclasses.dataclass(frozen=True)
class Merge:
    """Puts all samples of some clusters into another one; the former are gone.

    Attributes:
        clusters: The clusters that go.
        into: The one that stays, with its name.
    """

    clusters: tuple[int, ...]
    into: int


@dataclasses.dataclass(frozen=True)
class Move:
    """Puts samples into a cluster.

    Attributes:
        samples: Positions of the samples.
        to: The cluster; None for a new one.
    """

    samples: tuple[int, ...]
    to: int | None


@dataclasses.dataclass(frozen=True)
class Mark:
    """Marks samples as doubtful, or takes the mark away.

    Attributes:
        samples: Positions of the samples.
        doubtful: Whether they are.
    """

    samples: tuple[int, ...]
    doubtful: bool


Edit = Rename | Merge | Move | Mark
"""All that can be changed."""

_NO_NUMBER = "an edit names samples and clusters by whole numbers"

_KINDS = {"name": Rename, "merge": Merge, "move": Move, "mark": Mark}


@dataclasses.dataclass(frozen=True, eq=False)
class Labelling:
    """The clusters of all samples, as they were found and then edited.

    Attributes:
        clusters: Cluster of each sample.
        names: Name of each cluster that there is; empty where it has none.
        doubtful: Whether a sample is marked as doubtful.
        homes: For each cluster of the fit, the one that it is part of now.
    """

    clusters: Int[np.ndarray, " n"]
    names: Mapping[int, str]
    doubtful: Bool[np.ndarray, " n"]
    homes: tuple[int, ...]

    @classmethod
    def of_run(cls, clusters: Int[np.ndarray, " n"], num_clusters: int) -> "Labelling":
        """The clusters that a run has found, without names.

        Args:
            clusters: Cluster of each sample.
            num_clusters: K.

        Returns:
            The labelling.
        """
        names = dict.fromkeys(range(num_clusters), "")
        return cls(clusters.astype(np.int64), names, np.zeros(len(clusters), bool), tuple(names))

    def label(self, cluster: int) -> str:
        """Returns the label of a cluster's samples.

        Args:
            cluster: The cluster.

        Returns:
            Its name, or `cluster 3` where it has none.
        """
        return self.names[cluster] or f"cluster {cluster}"

    def labels(self) -> list[str]:
        """The label of each sample."""
        named = {cluster: self.label(cluster) for cluster in self.names}
        return [named[cluster] for cluster in self.clusters.tolist()]

    def apply(self, edit: Edit) -> "Labelling":
        """The labelling after an edit.

        Args:
            edit: The edit.

        Returns:
            A new labelling.

        Raises:
            LookupError: If there is no such sample or cluster.
            ValueError: If the edit makes no sense.
        """
        match edit:
            case Rename(cluster, name):
                self._check_clusters([cluster])
                name = _checked_name(name)
                if name in (f"cluster {other}" for other in self.names if other != cluster):
                    raise ValueError(f"{name} is what another one is called; give another name")
                return dataclasses.replace(self, names={**self.names, cluster: name})
            case Merge(merged, into):
                self._check_clusters([*merged, into])
                if into in merged or not merged:
                    raise ValueError("give one cluster or more to be merged into another one")
                clusters = np.where(np.isin(self.clusters, merged), into, self.clusters)
                names = {cluster: n for cluster, n in self.names.items() if cluster not in merged}
                homes = tuple(into if home in merged else home for home in self.homes)
                return dataclasses.replace(self, clusters=clusters, names=names, homes=homes)
            case Move(samples, to):
                if to is None:
                    # One that no cluster has been named after.
                    numbers = itertools.count(1 + max(*self.names, len(self.homes) - 1))
                    to = next(n for n in numbers if f"cluster {n}" not in self.names.values())
                else:
                    self._check_clusters([to])
                clusters = self.clusters.copy()
                clusters[self._positions(samples)] = to
                names = {**self.names, to: self.names.get(to, "")}
                return dataclasses.replace(self, clusters=clusters, names=names)
            case Mark(samples, is_doubtful):
                doubtful = self.doubtful.copy()
                doubtful[self._positions(samples)] = is_doubtful
                return dataclasses.replace(self, doubtful=doubtful)

    def _check_clusters(self, clusters: Iterable[int]) -> None:
        for cluster in clusters:
            if cluster not in self.names:
                raise LookupError(f"there is no cluster {cluster}")

    def _positions(self, samples: tuple[int, ...]) -> list[int]:
        if not samples:
            raise ValueError("give one sample or more")
        for sample in samples:
            if not 0 <= sample < len(self.clusters):
                raise LookupError(f"there is no sample {sample}")
        return list(samples)


@dataclasses.dataclass(frozen=True, eq=False)
class Review:
    """The edits of a run's clusters, and the clusters that result.

    Attributes:
        initial: The clusters as they were found.
        edits: What was done, in its order, without what was undone.
        revision: How many times something was done or undone.
        labelling: The clusters now.
    """

    initial: Labelling
    edits: tuple[Edit, ...]
    revision: int
    labelling: Labelling

    @classmethod
    def replayed(cls, initial: Labelling, edits: Iterable[Edit], revision: int) -> "Review":
        """The review that some edits lead to.

        Args:
            initial: The clusters as they were found.
            edits: What was done.
            revision: How many times something was done or undone.

        Returns:
            The review.

        Raises:
            LookupError: If an edit is of a sample or cluster that is not there.
            ValueError: If an edit makes no sense.
        """
        edits, labelling = tuple(edits), initial
        for edit in edits:
            labelling = labelling.apply(edit)
        return cls(initial, edits, revision, labelling)

    def edited(self, edit: Edit) -> "Review":
        """The review after one more edit.

        Args:
            edit: The edit.

        Returns:
            A new review.

        Raises:
            LookupError: If it is of a sample or cluster that is not there.
            ValueError: If it makes no sense.
        """
        labelling = self.labelling.apply(edit)
        # Reviews of earlier versions may have such names, and are replayed.
        if isinstance(edit, Rename):
            name, shown = edit.name.strip(), edit.name.strip().casefold()
            is_other = re.fullmatch("cluster [0-9]+", shown) and shown != f"cluster {edit.cluster}"
            if is_other and name != shown:
                raise ValueError(
                    f"{name} is how clusters without a name are shown; give another name"
                )
        return Review(self.initial, (*self.edits, edit), self.revision + 1, labelling)

    def undone(self) -> "Review":
        """The review without its last edit.

        Returns:
            A new review.

        Raises:
            ValueError: If there is none.
        """
        if not self.edits:
            raise ValueError("there is nothing to undo")
        return Review.replayed(self.initial, self.edits[:-1], self.revision + 1)


def _checked_name(name: str) -> str:
    name = name.strip()
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"a name has at most {LONGEST_NAME} characters, and no line breaks or others that "
            "cannot be seen"
        )
    return name


def parse_edit(content: Any) -> Edit:
    """An edit from JSON.

    Args:
        content: What `to_json` gives.

    Returns:
        The edit.

    Raises:
        ValueError: If it is none.
    """
    match content:
        case (
            {"cluster": bool()} | {"into": bool()} | {"to": bool()}
        ):  # Python takes it for a number
            raise ValueError(_NO_NUMBER)
        case {"kind": "name", "cluster": int(cluster), "name": str(name)}:
            return Rename(cluster, name)
        case {"kind": "merge", "clusters": [*clusters], "into": int(into)}:
            return Merge(_numbers(clusters), into)
        case {"kind": "move", "samples": [*samples], "to": int(to) | (None as to)}:
            return Move(_numbers(samples), to)
        case {"kind": "mark", "samples": [*samples], "doubtful": bool(doubtful)}:
            return Mark(_numbers(samples), doubtful)
    raise ValueError(f"an edit has a kind among {', '.join(_KINDS)}, and what belongs to it")


def _numbers(values: list[Any]) -> tuple[int, ...]:
    if not all(type(value) is int for value in values):
        raise ValueError(_NO_NUMBER)
    return tuple(values)


def to_json(edit: Edit) -> dict[str, Any]:
    """An edit as JSON can hold it.

    Args:
        edit: The edit.

    Returns:
        Its kind and its fields.
    """
    kind = next(name for name, each in _KINDS.items() if isinstance(edit, each))
    return {"kind": kind, **dataclasses.asdict(edit)}
