"""Local contrast: an image freed of the light that lies on it."""

import jax.numpy as jnp

from diffclust import _validation as check
from diffclust.linalg import safe_sqrt
from diffclust.sampling import low_pass
from diffclust.types import Image

LEAST_CONTRAST = 0.5 / 255
"""Half a level of an image of eight bits: what differs by less is rounding, and no object."""


def local_contrast(image: Image, *, scale: float = 0.05) -> Image:
    """An image less its local mean, divided by its local standard deviation.

    Both are taken under a Gaussian window; that which lies outside the image does not count. The
    deviation is that of all channels together, and is clipped from below to its mean over the
    image, so that plain regions stay plain. Where light changes slowly over an image, the result
    changes little.

    Args:
        image: The image, with values in [0, 1].
        scale: Standard deviation of the window, as a share of the shorter side; at least a pixel.

    Returns:
        An image of the same shape, about zero everywhere; of a plain image all zero.

    Raises:
        ValueError: If intensities are whole numbers.

    References:
        Jarrett et al. (2009), What is the best multi-stage architecture for object recognition?
        (local contrast normalisation).
    """
    check.floating(image, "image")
    sigma = max(1.0, scale * min(image.shape[:2]))
    inside = low_pass(jnp.ones_like(image[..., :1]), sigma=sigma)
    high = image - low_pass(image, sigma=sigma) / inside
    variance = low_pass(jnp.sum(high**2, axis=2, keepdims=True), sigma=sigma) / inside
    deviation = safe_sqrt(variance)
    least = jnp.maximum(jnp.mean(deviation), LEAST_CONTRAST)
    return high / jnp.maximum(deviation, least)
