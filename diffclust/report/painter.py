"""What a report asks of whatever draws its prototypes and samples: images, or shapes."""

import abc
from collections.abc import Mapping


class AbstractPainter(abc.ABC):
    """Draws prototypes and samples as HTML, and says how the drawings are to be read."""

    @property
    @abc.abstractmethod
    def icon(self) -> str:
        """A small picture that stands for the page, a `data:` URI."""

    @property
    @abc.abstractmethod
    def classes(self) -> tuple[str, ...]:
        """CSS classes of the page."""

    @property
    @abc.abstractmethod
    def note(self) -> str:
        """How the prototypes are drawn: a sentence, HTML."""

    @abc.abstractmethod
    def card(self, cluster: int) -> str:
        """A prototype, small.

        Args:
            cluster: Number of its cluster.

        Returns:
            HTML.
        """

    @abc.abstractmethod
    def portrait(self, cluster: int) -> str:
        """A prototype with all that belongs to it, at the head of its cluster.

        Args:
            cluster: Number of its cluster.

        Returns:
            HTML.
        """

    @abc.abstractmethod
    def figures(self, cluster: int) -> Mapping[str, str]:
        """Figures of a cluster that only this kind of prototype has.

        Args:
            cluster: Number of the cluster.

        Returns:
            Values by name, HTML.
        """

    @abc.abstractmethod
    def together(self) -> str:
        """All prototypes in one picture, HTML; nothing where that would show nothing."""

    @abc.abstractmethod
    def stock(self) -> str:
        """What is kept once for the drawings to show again and again, HTML; perhaps nothing."""

    @abc.abstractmethod
    def drawing(self, position: int, name: str, told: str) -> str:
        """A sample and how it was aligned, one picture below the other.

        Args:
            position: Position of the sample in the data set.
            name: An id that no other drawing of the page has.
            told: What is told where somebody points at it, HTML.

        Returns:
            An SVG element.
        """

    @abc.abstractmethod
    def plain(self, position: int, told: str) -> str:
        """A sample as it came.

        Args:
            position: Position of the sample in the data set.
            told: What is told where somebody points at it, HTML.

        Returns:
            An SVG element.
        """

    @abc.abstractmethod
    def row_names(self) -> str:
        """Names of the rows of drawings, to stand beside them, HTML; perhaps nothing."""

    @abc.abstractmethod
    def reading(self) -> list[str]:
        """What each part of a drawing is, HTML; nothing where nothing is aligned."""


def stocked(content: str) -> str:
    """SVG that takes no room, for drawings to refer to.

    Args:
        content: Elements with ids.

    Returns:
        An SVG element.
    """
    return (
        f'<svg class="stock" width="0" height="0" aria-hidden="true"><defs>{content}</defs></svg>\n'
    )
