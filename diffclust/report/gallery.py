"""Everything that the clusters of a report show, ready to be drawn."""

import dataclasses
from collections.abc import Mapping

from diffclust.report.facts import Facts
from diffclust.report.painter import AbstractPainter
from diffclust.report.selection import ClusterView
from diffclust.report.terms import Terms


@dataclasses.dataclass(frozen=True, eq=False)
class Gallery:
    """What the clusters show.

    Attributes:
        views: The clusters and the samples chosen for them.
        facts: What is known about the samples that are shown, by position.
        painter: What draws prototypes and samples.
        classes: For each cluster the names and shares of its classes; empty without labels.
        folded: Whether clusters are shown on request only.
        terms: The words for the result.
    """

    views: list[ClusterView]
    facts: Mapping[int, Facts]
    painter: AbstractPainter
    classes: list[list[tuple[str, float]]]
    folded: bool
    terms: Terms

    def drawing(self, position: int, name: str) -> str:
        """A sample and how it was aligned.

        Args:
            position: Position of the sample in the data set.
            name: An id that no other drawing of the page has.

        Returns:
            An SVG element.
        """
        return self.painter.drawing(position, name, self.facts[position].told(self.terms))

    def plain(self, position: int) -> str:
        """A sample as it came.

        Args:
            position: Position of the sample in the data set.

        Returns:
            An SVG element.
        """
        return self.painter.plain(position, self.facts[position].told(self.terms))
