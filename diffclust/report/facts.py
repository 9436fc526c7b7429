"""What is known about the samples that a report shows, in words and numbers."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from diffclust.data import Collection, LandmarkSet
from diffclust.models import Result
from diffclust.report.selection import certainties
from diffclust.report.terms import Terms
from diffclust.report.text import escape, number, percent


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known about one sample.

    Attributes:
        index: Its position in the source of the data.
        place: Its file or name, or None.
        label: Name of its class, or None.
        distance: Distance to its prototype, or negative log density.
        margin: How much more the second-best cluster would have cost; may be infinite.
        runner_up: The second-best cluster, or -1.
        certainty: Its greatest responsibility, or None where the method knows of none.
    """

    index: int
    place: str | None
    label: str | None
    distance: float
    margin: float
    runner_up: int
    certainty: float | None

    def told(self, terms: Terms) -> str:
        """What is told of the sample where somebody points at it.

        Args:
            terms: The words for the result.

        Returns:
            Lines, harmless in HTML.
        """
        lines = [f"index {self.index}"]
        if self.place is not None:
            lines.append(escape(self.place))
        if self.label is not None:
            lines.append(f"class {escape(self.label)}")
        lines.append(f"{terms.short} {number(self.distance)}")
        if self.certainty is not None:
            lines.append(f"responsibility {percent(self.certainty)}")
        if self.runner_up >= 0 and math.isfinite(self.margin):
            lines.append(f"margin {number(self.margin)} to cluster {self.runner_up}")
        return "\n".join(lines)


def gather_facts(
    result: Result, dataset: Collection, positions: Sequence[int] | np.ndarray
) -> dict[int, Facts]:
    """What is known about some samples.

    Args:
        result: A fitted model.
        dataset: The data it was fitted to.
        positions: Their positions in the data set.

    Returns:
        The facts by position.
    """
    assignment, shares = result.outcome.assignment, certainties(result)
    return {
        position: Facts(
            index=position if dataset.indices is None else int(dataset.indices[position]),
            place=_place(dataset, position),
            label=_label(dataset, position),
            distance=float(assignment.distances[position]),
            margin=float(assignment.margins[position]),
            runner_up=int(assignment.runners_up[position]),
            certainty=None if shares is None else float(shares[position]),
        )
        for position in np.unique(np.asarray(positions, dtype=np.int64)).tolist()
    }


def class_shares(dataset: Collection, members: np.ndarray) -> list[tuple[str, float]]:
    """The classes of some samples, the most frequent first.

    Args:
        dataset: The data.
        members: Positions in it.

    Returns:
        Names and shares; empty without labels or members.
    """
    if dataset.labels is None or len(members) == 0:
        return []
    _, first, counts = np.unique(dataset.labels[members], return_index=True, return_counts=True)
    return [
        (_label(dataset, int(members[first[i]])) or "", float(counts[i] / len(members)))
        for i in np.argsort(-counts, kind="stable")
    ]


def _place(dataset: Collection, position: int) -> str | None:
    if isinstance(dataset, LandmarkSet):
        name = dataset.places[1][position]
        # A name that is but the index would only repeat it.
        index = position if dataset.indices is None else int(dataset.indices[position])
        return None if name == str(index) else name
    return None if dataset.paths is None else dataset.paths[position]


def _label(dataset: Collection, position: int) -> str | None:
    if dataset.labels is None:
        return None
    code = int(dataset.labels[position])
    return str(code) if dataset.label_names is None else dataset.label_names[code]
