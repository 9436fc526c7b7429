"""A quick backbone: a few strided convolutions, down to a grid whose cells are kept apart."""

import math

import equinox as eqx
import jax
from jaxtyping import Array, Float

from diffclust.networks.base import AbstractBackbone, check_size
from diffclust.networks.layers import Convolution
from diffclust.types import Image, Key

GRID = 4
"""The last grid has at most so many cells a side."""

LAYERS = (3, 4)
"""Fewest and most layers."""


class StridedBackbone(AbstractBackbone):
    """Convolutions that halve each side until at most four cells are left, flattened.

    There are three layers for sides of up to 32 pixels and four for longer ones, of which the first
    then takes larger steps. It has kernels of 5×5 (or one more than its step) and 32 channels; the
    others have 3×3, the last but one 64 channels and the last 16, and each is followed by a ReLU.
    The cells of the last grid are not averaged, since params that displace need to know where
    things are; its few channels keep the heads, one a cluster, small. Intensities are taken as they
    are: the zeros that pad an image are then the same as a black background.

    Args:
        height: Rows of the images.
        width: Columns of the images.
        channels: Channels of the images.
        key: Randomness of the weights.

    Attributes:
        layers: The convolutions.
        height: Rows of the images.
        width: Columns of the images.
    """

    layers: tuple[Convolution, ...]
    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, height: int, width: int, channels: int, *, key: Key):
        self.height, self.width = height, width
        down, along = (max(0, math.ceil(math.log2(side / GRID))) for side in (height, width))
        count = min(max(LAYERS[0], down, along), LAYERS[1])
        outputs = [32] * (count - 2) + [64, 16]
        inputs = [channels, *outputs[:-1]]
        strides = list(zip(_strides(down, count), _strides(along, count), strict=True))
        sizes = [max(5, 1 + max(strides[0]))] + [3] * (count - 1)
        keys = jax.random.split(key, count)
        self.layers = tuple(
            Convolution(inputs[i], outputs[i], size=sizes[i], stride=strides[i], key=keys[i])
            for i in range(count)
        )

    @property
    def num_features(self) -> int:
        """Cells of the last grid times 16 channels; at most 256."""
        rows, columns = self.height, self.width
        for layer in self.layers:
            rows, columns = -(-rows // layer.stride[0]), -(-columns // layer.stride[1])
        return rows * columns * self.layers[-1].bias.shape[-1]

    def __call__(self, image: Image) -> Float[Array, " features"]:
        """Reads one image of the size that the backbone was made for.

        Args:
            image: Image of shape `(height, width, channels)`, intensities in [0, 1].

        Returns:
            Features of shape `(num_features,)`.

        Raises:
            ValueError: For an image of another size.
        """
        made_for = (self.height, self.width, self.layers[0].weight.shape[-2])
        if image.shape != made_for:
            raise ValueError(
                f"this backbone reads images of shape {made_for}, not {image.shape}; make another "
                "for this size"
            )
        for layer in self.layers:
            image = jax.nn.relu(layer(image))
        return image.reshape(-1)


def _strides(halvings: int, layers: int) -> list[int]:
    """Steps of the layers along a side that is to be halved so often.

    A short side is halved in the last layers and keeps its pixels in the first; of a long one, the
    first layer does all that the others do not.
    """
    later = [2 if layers - i <= halvings else 1 for i in range(1, layers)]
    return [2 ** max(0, halvings - (layers - 1)), *later]


def quick_backbone(height: int, width: int, channels: int, *, key: Key) -> StridedBackbone:
    """The default backbone for images of a size.

    Args:
        height: Rows of the images, at least 4.
        width: Columns of the images, at least 4.
        channels: Channels of the images, at least 1.
        key: Randomness of the weights.

    Returns:
        The backbone.

    Raises:
        ValueError: If a number is no whole number, a side is below 4, or there is no channel.
    """
    check_size(height, width, channels)
    return StridedBackbone(height, width, channels, key=key)
