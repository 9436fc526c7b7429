"""What every backbone offers."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.types import Image


class AbstractBackbone(eqx.Module):
    """A network from one image to a vector of features.

    All leaves are arrays to be learned; there is no state and nothing random in a call, so that a
    backbone is a pure function of its weights and one image. Batches are `jax.vmap`'s job.
    """

    @property
    @abc.abstractmethod
    def num_features(self) -> int:
        """Length of the feature vector."""

    @abc.abstractmethod
    def __call__(self, image: Image) -> Float[Array, " features"]:
        """Reads one image.

        Args:
            image: Image of shape `(height, width, channels)`, intensities in [0, 1].

        Returns:
            Features of shape `(num_features,)`.
        """


def check_size(height: int, width: int, channels: int) -> None:
    """Checks the size of the images that a backbone is to read.

    Args:
        height: Rows.
        width: Columns.
        channels: Channels.

    Raises:
        ValueError: If a number is no whole number, a side is below 4, or there is no channel.
    """
    for name, value, least in (
        ("height", height, 4),
        ("width", width, 4),
        ("channels", channels, 1),
    ):
        check.count(value, name, least=least)
