"""A distance between what a feature map makes of a sample and of a prototype."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, PyTree

from diffclust.distances.base import AbstractDistance
from diffclust.distances.euclidean import SquaredEuclidean
from diffclust.types import Scalar


class FeatureDistance(AbstractDistance):
    """distance(φ(x), φ(c)): any distance, seen through any feature map φ.

    It takes no pixel weights: features have no pixels.

    Attributes:
        feature_map: φ, from one sample to an array; differentiable if the distance is to be
            minimised over a transform.
        distance: What is measured between features.
    """

    feature_map: Callable[[Any], Array]
    distance: AbstractDistance = SquaredEuclidean()

    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The distance; see `AbstractDistance.__call__`.

        Args:
            sample: One sample.
            prototype: One prototype.
            weight: Must be None.

        Returns:
            A non-negative number.
        """
        if weight is not None:
            raise ValueError("a distance between features takes no pixel weights; leave them out")
        first, second = self.feature_map(sample), self.feature_map(prototype)
        # The distances of the library are between images: one pixel with many channels is one.
        return self.distance(first.reshape(1, 1, -1), second.reshape(1, 1, -1))
