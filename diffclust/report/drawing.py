"""What draws the prototypes and samples of a report (images, or shapes), and small pictures."""

import abc
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from diffclust.plotting import as_picture, displayable
from diffclust.report.page import data_uri

if TYPE_CHECKING:
    from PIL.Image import Image

_SHRINKING = ((96, None), (72, None), (72, 64), (56, 64), (40, 64), (28, 64))
"""Longest side and number of colours (None for all of them), tried until the pictures fit."""

_TRIED = 12
"""Pictures that stand for all others when their size in bytes is estimated."""


class AbstractRenderer(abc.ABC):
    """Draws prototypes and samples as HTML, and explains the drawings.

    Attributes:
        icon: A small picture that stands for the page, a `data:` URI.
        css_classes: CSS classes of the page.
    """

    icon: str
    css_classes: tuple[str, ...]

    @property
    @abc.abstractmethod
    def note(self) -> str:
        """How the prototypes are drawn: a sentence, HTML."""

    @abc.abstractmethod
    def thumbnail(self, cluster: int) -> str:
        """A prototype, small.

        Args:
            cluster: Number of its cluster.

        Returns:
            HTML.
        """

    @abc.abstractmethod
    def prototype(self, cluster: int) -> str:
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

    def overlay(self) -> str:
        """All prototypes in one picture, HTML; nothing where they would hide each other."""
        return ""

    @abc.abstractmethod
    def definitions(self) -> str:
        """SVG elements with ids that the drawings refer to, written once; perhaps none."""

    @abc.abstractmethod
    def sample(self, position: int, name: str, tooltip: str) -> str:
        """A sample and how it was aligned, one picture below the other.

        Args:
            position: Position of the sample in the data set.
            name: An id that no other drawing of the page has.
            tooltip: What is shown where somebody points at it, HTML.

        Returns:
            An SVG element.
        """

    @abc.abstractmethod
    def original(self, position: int, tooltip: str) -> str:
        """A sample before any alignment.

        Args:
            position: Position of the sample in the data set.
            tooltip: What is shown where somebody points at it, HTML.

        Returns:
            An SVG element.
        """

    def row_names(self) -> str:
        """Names of the rows of drawings, to stand beside them, HTML; nothing for two at most."""
        return ""

    @abc.abstractmethod
    def legend(self) -> list[str]:
        """What each part of a drawing is, HTML; nothing where nothing is aligned."""


def titled_svg(box: str, title: str, content: str) -> str:
    """A drawing with a tooltip.

    Args:
        box: SVG's `viewBox`.
        title: What is shown where somebody points at it, HTML.
        content: SVG of what is inside.

    Returns:
        An SVG element.
    """
    return f'<svg viewBox="{box}" role="img"><title>{title}</title>{content}</svg>'


def svg_definitions(content: str) -> str:
    """SVG that takes no room, for drawings to refer to.

    Args:
        content: Elements with ids, perhaps none.

    Returns:
        An SVG element; nothing without content.
    """
    if not content:
        return ""
    return (
        f'<svg class="stock" width="0" height="0" aria-hidden="true"><defs>{content}</defs></svg>\n'
    )


def picture_uri(picture: "Image", kind: str = "png", **options: Any) -> str:
    """A picture as a `data:` URI.

    Args:
        picture: The picture.
        kind: Its format, such as `"png"` or `"webp"`.
        options: As Pillow's `save` takes them.

    Returns:
        The URI.
    """
    file = io.BytesIO()
    picture.save(file, format=kind, **options)
    return data_uri(file.getvalue(), kind)


def data_uris(
    images: Sequence[np.ndarray], *, most_bytes: int, own_range: bool = False
) -> list[str]:
    """Images as PNG `data:` URIs, no larger together than a report can hold.

    Large images are made smaller, to 96 pixels at most and further until all of them fit; small
    ones stay as they are, pixel for pixel.

    Args:
        images: At least one, of shape `(height, width, channels)`.
        most_bytes: About how long all URIs may be together.
        own_range: Stretch each image's intensities to its own range.

    Returns:
        One URI for each image.
    """
    pictures = [as_picture(displayable(image, own_range=own_range)) for image in images]
    tried = pictures[:: -(-len(pictures) // _TRIED)]
    most = most_bytes * len(tried) / len(pictures)
    side, colours = next(
        (way for way in _SHRINKING if sum(len(_small_uri(one, *way)) for one in tried) <= most),
        _SHRINKING[-1],
    )
    return [_small_uri(picture, side, colours) for picture in pictures]


def _small_uri(picture: "Image", side: int, colours: int | None) -> str:
    from PIL.Image import Dither

    small = picture.copy()
    small.thumbnail((side, side))
    if colours is not None and small.mode == "RGB":
        small = small.quantize(colours, dither=Dither.NONE)
    return picture_uri(small, optimize=True)
