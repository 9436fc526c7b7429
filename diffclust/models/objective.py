"""What models with moved prototypes make small, and the prototypes that go with it."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.distances import (
    AbstractDissimilarity,
    GaussianNegativeLogLikelihood,
    SquaredEuclidean,
)
from diffclust.energies import AbstractReduction, HardMinimum, MixtureLikelihood
from diffclust.prototypes import GaussianImages

_RESPONSIBLE = 3
"""Clusters of a sample whose gradient a mixture follows: the others' responsibilities are nil."""


class PrototypeObjective(eqx.Module):
    """What is made small, and the prototypes that go with it.

    Attributes:
        distance: What is measured between a sample and a moved prototype.
        reduction: How a sample's energies make its loss.
        followed: For how many clusters of a sample a gradient is computed.
        initial_variance: Of every pixel of a prototype before the first step; None where
            prototypes have no variances.
    """

    distance: AbstractDissimilarity
    reduction: AbstractReduction
    followed: int = eqx.field(static=True)
    initial_variance: float | None = eqx.field(static=True, default=None)

    def prototypes(self, images: Float[Array, "clusters height width channels"]) -> PyTree:
        """Prototypes that begin as images.

        Args:
            images: One image a cluster.

        Returns:
            What is learned of them.
        """
        if self.initial_variance is None:
            return images
        return GaussianImages(images, jnp.full_like(images, self.initial_variance**0.5))


def squared_distances() -> PrototypeObjective:
    """That of K-means: every image counts with its nearest prototype.

    Returns:
        The objective.
    """
    return PrototypeObjective(SquaredEuclidean(), HardMinimum(), followed=1)


def mixture(initial_variance: float, min_deviation: float) -> PrototypeObjective:
    """That of a Gaussian mixture with independent pixels.

    Args:
        initial_variance: Of every pixel, before the first step.
        min_deviation: A standard deviation whose square is added to all variances.

    Returns:
        The objective.

    Raises:
        ValueError: If a number is not positive.
    """
    if not initial_variance > 0.0:
        raise ValueError(f"initial_variance must be positive, not {initial_variance}")
    density = GaussianNegativeLogLikelihood(min_deviation=min_deviation)
    return PrototypeObjective(density, MixtureLikelihood(), _RESPONSIBLE, initial_variance)
