"""What of a prototype can be looked at."""

from jaxtyping import Array, PyTree

from diffclust.prototypes.images import GaussianImages
from diffclust.prototypes.landmarks import LandmarkGaussians


def picture_of(prototype: PyTree) -> Array:
    """What of a prototype can be looked at: an image, or landmarks; of Gaussians, the mean.

    Args:
        prototype: An image, `GaussianImages` or `LandmarkGaussians`, with any leading axes.

    Returns:
        The image or the landmarks.
    """
    if isinstance(prototype, GaussianImages):
        return prototype.mean
    return prototype.centre.mean if isinstance(prototype, LandmarkGaussians) else prototype
