"""Everything that the clusters of a report show, ready to be drawn."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from diffclust.models import Result
from diffclust.prototypes import GaussianImages
from diffclust.report.pictures import data_uris
from diffclust.report.samples import SIDE, Sample
from diffclust.report.selection import ClusterView
from diffclust.report.terms import Terms


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
class Gallery:
    """What the clusters show.

    Attributes:
        views: The clusters and the samples chosen for them.
        samples: The samples that are shown, by position.
        prototypes: Picture of each prototype in its own range, a `data:` URI.
        unmoved: Picture of each prototype in the images' range, where it is shown as it is moved
            onto images; else empty.
        spreads: What a mixture knows of each cluster; empty for other methods.
        classes: For each cluster the names and shares of its classes; empty without labels.
        height: Rows of the images.
        width: Columns of the images.
        folded: Whether clusters are shown on request only.
        terms: The words for the result.
    """

    views: list[ClusterView]
    samples: Mapping[int, Sample]
    prototypes: list[str]
    unmoved: list[str]
    spreads: list[Spread]
    classes: list[list[tuple[str, float]]]
    height: int
    width: int
    folded: bool
    terms: Terms

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a drawn image, the longer one `SIDE`."""
        factor = SIDE / max(self.height, self.width)
        return round(self.width * factor), round(self.height * factor)


def spreads(result: Result, *, most_bytes: int) -> list[Spread]:
    """What a mixture knows of its clusters beside their means.

    Args:
        result: A fitted model.
        most_bytes: About how long all pictures may be together.

    Returns:
        One a cluster; nothing where the method is no mixture.
    """
    learned = result.outcome.learned
    prototype = learned.clusters.prototype
    if not isinstance(prototype, GaussianImages):
        return []
    # Of either sign: only their squares are variances. The floor below them is the same for all.
    deviations = np.abs(np.asarray(prototype.deviation))
    pictures = data_uris(list(deviations), most_bytes=most_bytes, own_range=True)
    weights = np.asarray(jax.nn.softmax(learned.objective)).tolist()
    return [
        Spread(picture, float(one.min()), float(one.max()), weight)
        for picture, one, weight in zip(pictures, deviations, weights, strict=True)
    ]
