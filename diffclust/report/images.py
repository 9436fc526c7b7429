"""Images drawn for a report: prototypes, and samples beside what they were aligned to, and how."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from diffclust.data import Dataset
from diffclust.models import Result
from diffclust.prototypes import GaussianImages
from diffclust.report.painter import AbstractPainter, stocked
from diffclust.report.pictures import data_uris
from diffclust.report.samples import SIDE, Sample, gather_samples, has_grids
from diffclust.report.terms import Terms, stage_meaning
from diffclust.report.text import escape, number, percent

_GAP, _MARGIN = 80, 50
"""Between the pictures of a sample, and around them for what sticks out of a grid, in the units of
`SIDE`."""

_SMALL = 64
"""Images with no more pixels a side than this are shown pixel by pixel, larger ones smoothly."""

_MOST_PROTOTYPE_BYTES = 120_000
"""Of one set of pictures; each is shown twice."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """What a mixture knows of a cluster beside its mean.

    Attributes:
        picture: The standard deviation of each pixel, black where it is least, a `data:` URI.
        least: The least of them.
        greatest: The greatest.
        weight: The cluster's mixture weight, a share.
    """

    picture: str
    least: float
    greatest: float
    weight: float


@dataclasses.dataclass(frozen=True, eq=False)
class ImagePainter(AbstractPainter):
    """Draws images.

    Attributes:
        samples: The samples that are shown, by position.
        prototypes: Picture of each prototype in its own range, a `data:` URI.
        unmoved: Picture of each prototype in the images' range, where it is shown as it is moved
            onto images; else empty.
        spreads: What a mixture knows of each cluster; empty for other methods.
        height: Rows of the images.
        width: Columns of the images.
        grids: Whether alignments are shown as warped grids.
        terms: The words for the result.
    """

    samples: Mapping[int, Sample]
    prototypes: list[str]
    unmoved: list[str]
    spreads: list[Spread]
    height: int
    width: int
    grids: bool
    terms: Terms

    @property
    def icon(self) -> str:
        """The first prototype; see `AbstractPainter.icon`."""
        return self.prototypes[0]

    @property
    def classes(self) -> tuple[str, ...]:
        """By size and form of the images; see `AbstractPainter.classes`."""
        classes = {
            "pixels": max(self.height, self.width) <= _SMALL,
            "tall": self.height > 1.5 * self.width,
            "wide": self.width > 1.5 * self.height,
            "staged": bool(self.terms.stages),
        }
        return tuple(name for name, holds in classes.items() if holds)

    @property
    def note(self) -> str:
        """See `AbstractPainter.note`."""
        made_of = (
            "" if self.terms.by_prototypes else "is the mean of its cluster's aligned images and "
        )
        if self.terms.is_mixture:
            made_of = "is the mean of its cluster's Gaussian and "
        return f"Each {made_of}is drawn in its own range of intensities."

    def card(self, cluster: int) -> str:
        """See `AbstractPainter.card`."""
        return self._image(self.prototypes[cluster], f"Prototype of cluster {cluster}")

    def portrait(self, cluster: int) -> str:
        """The prototype; of a mixture the deviation too; see `AbstractPainter.portrait`."""
        if not self.spreads:
            return self.card(cluster)
        spread = self.spreads[cluster]
        deviation = self._image(spread.picture, f"Deviation of cluster {cluster}")
        return (
            f'<div class="pair"><figure>{self.card(cluster)}<figcaption>mean</figcaption></figure>'
            f"<figure>{deviation}<figcaption>deviation<br>{number(spread.least, digits=2)} to "
            f"{number(spread.greatest, digits=2)}</figcaption></figure></div>"
        )

    def figures(self, cluster: int) -> dict[str, str]:
        """The mixture weight; see `AbstractPainter.figures`."""
        return {"mixture weight": percent(self.spreads[cluster].weight)} if self.spreads else {}

    def together(self) -> str:
        """Nothing: images would hide each other."""
        return ""

    def stock(self) -> str:
        """The prototypes, where they are moved; see `AbstractPainter.stock`."""
        if not self.unmoved:
            return ""
        kept = "".join(
            f'<image id="{_unmoved(cluster)}" {self._full()} href="{uri}"/>'
            for cluster, uri in enumerate(self.unmoved)
        )
        return stocked(kept)

    def drawing(self, position: int, name: str, told: str) -> str:
        """Below the image its aligned version and its warped grid; see `AbstractPainter.drawing`.

        Where the prototype is moved, the prototype and what each transform made of it in turn.

        Args:
            position: Position of the sample in the data set.
            name: An id that no other drawing of the page has.
            told: What is told where somebody points at it, HTML.

        Returns:
            An SVG element.
        """
        sample, (width, height), full = self.samples[position], self._size(), self._full()
        parts = [f'<image id="{name}" {full} href="{sample.picture}"/>']
        total = height
        if sample.stages:
            parts.append(f'<use href="#{_unmoved(sample.cluster)}" y="{total + _GAP}"/>')
            total += _GAP + height
        for picture_after in sample.stages or filter(None, [sample.aligned]):
            parts.append(f'<image y="{total + _GAP}" {full} href="{picture_after}"/>')
            total += _GAP + height
        if sample.grid is not None:
            around = f"{width + 2 * _MARGIN} {height + 2 * _MARGIN}"
            across, down = around.split()
            parts.append(
                f'<svg x="{-_MARGIN}" y="{total + _GAP - _MARGIN}" width="{across}" '
                f'height="{down}" viewBox="{-_MARGIN} {-_MARGIN} {around}">'
                f'<rect width="{width}" height="{height}"/><use href="#{name}" class="faint"/>'
                f'<path class="grid" d="{sample.grid}"/></svg>'
            )
            total += _GAP + height + _MARGIN
        return (
            f'<svg viewBox="{-_MARGIN} 0 {width + 2 * _MARGIN} {total}" role="img">'
            f"<title>{told}</title>{''.join(parts)}</svg>"
        )

    def plain(self, position: int, told: str) -> str:
        """See `AbstractPainter.plain`."""
        width, height = self._size()
        return (
            f'<svg viewBox="0 0 {width} {height}" role="img"><title>{told}</title>'
            f'<image {self._full()} href="{self.samples[position].picture}"/></svg>'
        )

    def row_names(self) -> str:
        """Names of the transforms of prototypes; see `AbstractPainter.row_names`."""
        stages = self.terms.stages
        if not stages:
            return ""
        width, height = self._size()
        names = ["image", "prototype", stages[0], *(f"+ {name}" for name in stages[1:])]
        texts = "".join(
            f'<text x="{width}" y="{row * (height + _GAP) + height // 2}">{escape(name)}</text>'
            for row, name in enumerate(names)
        )
        total = len(names) * (height + _GAP) - _GAP
        return (
            f'<div class="rows"><svg viewBox="{-_MARGIN} 0 {width + 2 * _MARGIN} {total}" '
            f'aria-hidden="true">{texts}</svg></div>'
        )

    def reading(self) -> list[str]:
        """See `AbstractPainter.reading`."""
        if any(sample.stages for sample in self.samples.values()):
            return self._moved()
        if any(sample.aligned is not None for sample in self.samples.values()):
            return self._aligned()
        return []

    def _aligned(self) -> list[str]:
        """What the pictures are of a method that moves images."""
        compared = ": this is what is compared" if self.terms.by_prototypes else ""
        items = [
            "The image as it came.",
            f"The image aligned to the prototype of its cluster{compared}.",
        ]
        if self.grids:
            items.append(
                "The image again, with the grid along which its aligned version was read. A "
                "straight, regular grid means that nothing had to move."
            )
        return items

    def _moved(self) -> list[str]:
        """What the pictures are of a method that moves prototypes."""
        first, *others = self.terms.stages
        of_gaussian = ", the mean of a Gaussian" if self.terms.is_mixture else ""
        items = [
            "The image as it came.",
            f"The prototype of its cluster{of_gaussian}.",
            f"The same after <code>{escape(first)}</code>: {stage_meaning(first)}.",
            *(
                f"After <code>{escape(name)}</code> as well: {stage_meaning(name)}."
                for name in others
            ),
        ]
        items[-1] += " This is what is compared with the image."
        return items

    def _image(self, uri: str, said: str) -> str:
        return f'<img src="{uri}" width="{self.width}" height="{self.height}" alt="{said}">'

    def _size(self) -> tuple[int, int]:
        """Width and height of a drawn image, the longer one `SIDE`."""
        factor = SIDE / max(self.height, self.width)
        return round(self.width * factor), round(self.height * factor)

    def _full(self) -> str:
        width, height = self._size()
        return f'width="{width}" height="{height}" preserveAspectRatio="none"'


def paint_images(
    result: Result, dataset: Dataset, terms: Terms, positions: np.ndarray
) -> ImagePainter:
    """What draws a result of images.

    Args:
        result: A fitted model of images.
        dataset: The images it was fitted to.
        terms: The words for it.
        positions: Positions of the samples that are shown.

    Returns:
        The painter.
    """
    height, width = result.sample_shape[:2]
    prototypes = list(result.prototypes)
    unmoved = data_uris(prototypes, most_bytes=_MOST_PROTOTYPE_BYTES) if terms.stages else []
    return ImagePainter(
        samples=gather_samples(result, dataset, positions),
        prototypes=data_uris(prototypes, most_bytes=_MOST_PROTOTYPE_BYTES, own_range=True),
        unmoved=unmoved,
        spreads=_spreads(result),
        height=height,
        width=width,
        grids=has_grids(result),
        terms=terms,
    )


def _spreads(result: Result) -> list[Spread]:
    """What a mixture knows of its clusters beside their means; nothing for other methods."""
    learned = result.outcome.learned
    prototype = learned.clusters.prototype
    if not isinstance(prototype, GaussianImages):
        return []
    # Of either sign: only their squares are variances. The floor below them is the same for all.
    deviations = np.abs(np.asarray(prototype.deviation))
    pictures = data_uris(list(deviations), most_bytes=_MOST_PROTOTYPE_BYTES, own_range=True)
    weights = np.asarray(jax.nn.softmax(learned.objective)).tolist()
    return [
        Spread(picture, float(one.min()), float(one.max()), weight)
        for picture, one, weight in zip(pictures, deviations, weights, strict=True)
    ]


def _unmoved(cluster: int) -> str:
    return f"prototype-{cluster}"
