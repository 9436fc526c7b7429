"""The mean of a prototype, which can be looked at, and its variances."""

from typing import Any

from jaxtyping import PyTree

from diffclust.prototypes.images import GaussianImages
from diffclust.prototypes.landmarks import LandmarkGaussians


def picture_of(prototype: PyTree) -> Any:
    """What of a prototype can be looked at: an image, or landmarks; of Gaussians, the mean.

    Args:
        prototype: An image, `GaussianImages` or `LandmarkGaussians`, with any leading axes.

    Returns:
        The image or the landmarks, an array as the prototype's are: of JAX's or of NumPy's.
    """
    if isinstance(prototype, GaussianImages):
        return prototype.mean
    return prototype.centre.mean if isinstance(prototype, LandmarkGaussians) else prototype


def variance_of(prototype: PyTree) -> Any:
    """Variances of a prototype's pixels, or variances or covariances of its landmarks.

    Args:
        prototype: An image, `GaussianImages` or `LandmarkGaussians`, with any leading axes.

    Returns:
        An array as the prototype's are; None for an image, which has no variances.
    """
    if isinstance(prototype, GaussianImages):
        return prototype.deviation**2
    return prototype.spread if isinstance(prototype, LandmarkGaussians) else None
