"""What of a prototype can be looked at."""

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
