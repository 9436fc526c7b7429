"""Samples drawn over the means of their clusters: what reports of shapes and of series share."""

from collections.abc import Sequence

import numpy as np

from diffclust.methods import plural
from diffclust.models import Result
from diffclust.plotting import CurveFrame, ShapeFrame
from diffclust.report.page import svg_definitions, titled_svg

_GAP = 60
"""Between the drawings of a sample, in units of `SIDE`."""

_MOST_MEMBERS = 300
"""Samples behind a mean."""

_MOST_DOTS = 32_000
"""Landmarks, or times, of them in all clusters, of about 7 bytes each."""

_MAX_OVERLAID = 10
"""Means that can still be distinguished in one picture."""


class MeanRenderer:
    """Draws samples and means, with the same methods as `diffclust.report.images.ImageRenderer`.

    Attributes:
        noun: What a mean is called.
        raw: The samples as they came.
        aligned: The samples as they are compared.
        frame: Where means and aligned samples are drawn.
        frames: Where each sample is drawn as it came; empty where that is how it is compared.
        drawn_means: The means as SVG.
        icon: A small picture that stands for the page, a `data:` URI.
        css_classes: CSS classes of the page.
    """

    noun: str
    raw: np.ndarray
    aligned: np.ndarray
    frame: ShapeFrame | CurveFrame
    frames: Sequence[ShapeFrame | CurveFrame]
    drawn_means: Sequence[str]
    icon: str
    css_classes: tuple[str, ...] = ("shapes",)

    def __init__(self, result: Result, seed: int) -> None:
        """Draws members at random.

        Args:
            result: A fitted model of shapes or series.
            seed: Seed of the draw of members, where a cluster has too many.
        """
        self.means, self.clusters = result.prototypes, result.assignments.tolist()
        clusters, length = self.means.shape[:2]
        most, self.members = max(1, min(_MOST_MEMBERS, _MOST_DOTS // (clusters * length))), []
        for cluster in range(clusters):
            members = np.flatnonzero(result.assignments == cluster)
            if len(members) > most:
                rng = np.random.default_rng([seed, cluster])
                members = np.sort(rng.choice(members, size=most, replace=False))
            self.members.append(members)

    def thumbnail(self, cluster: int) -> str:
        """The mean."""
        alt = f"{self.noun.capitalize()} of cluster {cluster}"
        return self.frame.svg(self.use(cluster), alt=alt)

    def use(self, cluster: int) -> str:
        """A reference to the drawing of the mean, as SVG."""
        return f'<use href="#mean-{cluster}" class="mean"/>'

    def overlay(self) -> str:
        """Draws all means over each other; nothing for one, or for too many to distinguish."""
        clusters, what = len(self.means), plural(self.noun)
        if not 2 <= clusters <= _MAX_OVERLAID:
            return ""
        drawn = "".join(
            f'<g class="colour-{i}">{self.frame.drawn_shape(mean)}</g>'
            for i, mean in enumerate(self.means)
        )
        legend = "".join(
            f'<li><a href="#cluster-{i}"><i class="colour-{i}"></i>Cluster {i}</a></li>'
            for i in range(clusters)
        )
        svg = self.frame.svg(drawn, alt=f"The {clusters} {what} laid over each other")
        return (
            f'<figure class="overlay"><figcaption><h3>{what.capitalize()} laid over each other'
            f"</h3><ul>{legend}</ul></figcaption>{svg}</figure>"
        )

    def definitions(self) -> str:
        """The means."""
        drawn = (f'<g id="mean-{i}">{mean}</g>' for i, mean in enumerate(self.drawn_means))
        return svg_definitions("".join(drawn))

    def sample(self, position: int, name: str, tooltip: str) -> str:
        """The sample as it came, unless that is how it is compared, and over its mean."""
        del name
        first, top = "", 0
        if self.frames:
            frame = self.frames[position]
            first, top = frame.drawn_shape(self.raw[position]), frame.height + _GAP
        over = f'<g class="over">{self.frame.drawn_shape(self.aligned[position])}</g>'
        mean = self.use(self.clusters[position])
        box = f"0 0 {self.frame.width} {top + self.frame.height}"
        content = f'{first}<g transform="translate(0 {top})">{mean}{over}</g>'
        return titled_svg(box, tooltip, content)

    def original(self, position: int, tooltip: str) -> str:
        """The sample as it came."""
        frame = self.frames[position] if self.frames else self.frame
        box = f"0 0 {frame.width} {frame.height}"
        return titled_svg(box, tooltip, frame.drawn_shape(self.raw[position]))

    def row_names(self) -> str:
        """Names of the rows of drawings: nothing, as there are two at most."""
        return ""
