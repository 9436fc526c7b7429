"""Backbones and the layers that they consist of, and the heads that predict params."""

import abc
import math
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.types import Image, Key, Params

Normalisation = Literal["none", "group"]
EPSILON = 1e-5
"""Added to variances, as is usual."""


def he_normal(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    """Weights of variance 2 / fan_in, which keep the size of what passes through a ReLU.

    Args:
        key: Randomness.
        shape: Shape of the weights.
        fan_in: How many inputs are summed to one output.

    Returns:
        An array in JAX's default precision.

    References:
        He et al. (2015), Delving deep into rectifiers, Eq. 10.
    """
    return jax.random.normal(key, shape, dtype=jnp.result_type(float)) * math.sqrt(2 / fan_in)


class Convolution(eqx.Module):
    """A convolution of one image, channels last, padded with zeros by half a kernel.

    Args:
        inputs: Channels of the images that it reads.
        outputs: Channels of the images that it gives.
        size: Rows and columns of the kernel, odd.
        stride: Steps along rows and columns between the pixels that are computed.
        key: Randomness of the kernel; the bias starts at zero.

    Attributes:
        weight: The kernel.
        bias: Added to every pixel.
        stride: Steps along rows and columns.
    """

    weight: Float[Array, "rows columns inputs outputs"]
    bias: Float[Array, " outputs"]
    stride: tuple[int, int] = eqx.field(static=True)

    def __init__(
        self, inputs: int, outputs: int, *, size: int, stride: tuple[int, int] = (1, 1), key: Key
    ):
        self.weight = he_normal(key, (size, size, inputs, outputs), size * size * inputs)
        self.bias = jnp.zeros(outputs, dtype=self.weight.dtype)
        self.stride = stride

    def __call__(self, image: Image) -> Float[Array, "rows columns outputs"]:
        """Convolves.

        Args:
            image: Image of shape `(height, width, inputs)`.

        Returns:
            Image of shape `(⌈height / stride[0]⌉, ⌈width / stride[1]⌉, outputs)`.
        """
        before = self.weight.shape[0] // 2
        batch = jax.lax.conv_general_dilated(
            image[None],
            self.weight,
            self.stride,
            [(before, before)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return batch[0] + self.bias[None, None]


class GroupNormalisation(eqx.Module):
    """Mean 0 and variance 1 over pixels and groups of neighbouring channels, then gain and shift.

    Args:
        channels: Channels of the images.
        num_groups: How many groups; divides the channels.

    Attributes:
        gain: One factor a channel.
        shift: One summand a channel.
        num_groups: How many groups; divides the channels.

    References:
        Wu and He (2018), Group normalization, Eqs. 1, 5 and 7.
    """

    gain: Float[Array, " channels"]
    shift: Float[Array, " channels"]
    num_groups: int = eqx.field(static=True)

    def __init__(self, channels: int, *, num_groups: int = 8):
        self.gain = jnp.ones(channels, dtype=jnp.result_type(float))
        self.shift = jnp.zeros(channels, dtype=jnp.result_type(float))
        self.num_groups = num_groups

    def __call__(self, image: Image) -> Image:
        """Normalises.

        Args:
            image: Image of shape `(height, width, channels)`.

        Returns:
            Image of the same shape.
        """
        # Sums over pixels first, which stay along the rows of memory, and only then over channels;
        # one pass for both moments. Written group by group it took 1.3 times as long on a CPU.
        repeats = image.shape[-1] // self.num_groups

        def group_mean(channels: Array) -> Array:
            return jnp.repeat(jnp.mean(channels.reshape(self.num_groups, repeats), axis=1), repeats)

        mean = group_mean(jnp.mean(image, axis=(0, 1)))
        square = group_mean(jnp.mean(image**2, axis=(0, 1)))
        # Rounding may leave a variance below 0 where a group is constant.
        factor = self.gain * jax.lax.rsqrt(jnp.maximum(square - mean**2, 0.0) + EPSILON)
        return image * factor[None, None] + (self.shift - mean * factor)[None, None]


def max_pool(image: Image) -> Float[Array, "rows columns channels"]:
    """Maximum over 3×3 neighbourhoods at every second pixel.

    Args:
        image: Image of shape `(height, width, channels)`.

    Returns:
        Image of shape `(⌈height / 2⌉, ⌈width / 2⌉, channels)`.
    """
    return jax.lax.reduce_window(
        image, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), ((1, 1), (1, 1), (0, 0))
    )


HIDDEN = 128
"""Units of each hidden layer, as in the paper (DTI clustering, Section 4.1)."""


class Head(eqx.Module):
    """Two hidden layers of 128 units, and a last layer that starts at zero.

    So it predicts zero params at the start, which is the identity, exactly.

    Args:
        num_features: Length of the feature vector.
        num_params: Length of the parameter vector.
        key: Randomness of the hidden layers' weights.

    Attributes:
        weights: One matrix a layer, inputs first.
        biases: One vector a layer.

    References:
        DTI clustering, Section 4.1, "Parameter predictor networks".
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    def __init__(self, num_features: int, num_params: int, *, key: Key):
        first, second = jax.random.split(key)
        hidden = (
            he_normal(first, (num_features, HIDDEN), num_features),
            he_normal(second, (HIDDEN, HIDDEN), HIDDEN),
        )
        last = jnp.zeros((HIDDEN, num_params), dtype=hidden[0].dtype)
        self.weights = (*hidden, last)
        self.biases = tuple(jnp.zeros(w.shape[1], dtype=w.dtype) for w in self.weights)

    def __call__(self, features: Float[Array, " features"]) -> Params:
        """Predicts.

        Args:
            features: Features of shape `(num_features,)`.

        Returns:
            Params of shape `(num_params,)`.
        """
        *hidden, last = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            features = jax.nn.relu(features @ weight + bias)
        return features @ last[0] + last[1]


def make_heads(num_clusters: int, num_features: int, num_params: int, *, key: Key) -> Head:
    """One head a cluster, stacked; `jax.vmap(lambda head: head(features))(heads)` applies them.

    Args:
        num_clusters: K.
        num_features: Length of the feature vector, at least 1.
        num_params: Length of the parameter vector; 0 for a transform without any.
        key: Randomness of the hidden layers' weights; every cluster has its own.

    Returns:
        A head whose every array has a leading cluster axis.

    Raises:
        ValueError: If a number is no whole number or too small.
    """
    sizes = {"num_clusters": (num_clusters, 1), "num_features": (num_features, 1)}
    for name, (value, least) in {**sizes, "num_params": (num_params, 0)}.items():
        check.count(value, name, least=least)
    keys = jax.random.split(key, num_clusters)
    return eqx.filter_vmap(lambda key: Head(num_features, num_params, key=key))(keys)


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


def _check_size(height: int, width: int, channels: int) -> None:
    check.count(height, "height", least=4)
    check.count(width, "width", least=4)
    check.count(channels, "channels")


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
        height: Rows of the images, at least 4.
        width: Columns of the images, at least 4.
        channels: Channels of the images, at least 1.
        key: Randomness of the weights.

    Attributes:
        layers: The convolutions.
        height: Rows of the images.
        width: Columns of the images.

    Raises:
        ValueError: If a number is no whole number, a side is below 4, or there is no channel.
    """

    layers: tuple[Convolution, ...]
    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, height: int, width: int, channels: int, *, key: Key):
        _check_size(height, width, channels)
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


STAGES = {20: ((16, 32, 64), 3), 18: ((64, 128, 256, 512), 2)}
"""Channels of the stages, and blocks a stage, by depth."""

LARGE = 64
"""Images of at least so many pixels on the shorter side get the depth 18."""


class ResidualBlock(eqx.Module):
    """relu(shortcut(x) + scale · f(x)), with f two convolutions of 3×3.

    The shortcut takes every second pixel where the block strides, and pads new channels with zeros
    (option A of the ResNet paper), so that it has no weights.

    Args:
        inputs: Channels of the images that it reads.
        outputs: Channels of the images that it gives.
        stride: Step of the first convolution along rows and columns.
        scale: Where the branch's scale starts, or None for a normalised branch without one.
        key: Randomness of the weights.

    Attributes:
        first: The convolution that strides.
        second: The convolution after it.
        norms: Normalisations after each of them, or none.
        scale: Without normalisation the branch's scale, which starts at 1 / √blocks, so that all
            branches together add about as much as there was; else None.

    References:
        He et al. (2016), Deep residual learning, Section 4.2; De and Smith (2020), Batch
        normalization biases residual blocks towards the identity function, Section 3. Their
        SkipInit starts scales at 0, from which Adam took longer to get going here.
    """

    first: Convolution
    second: Convolution
    norms: tuple[GroupNormalisation, ...]
    scale: Float[Array, ""] | None

    def __init__(self, inputs: int, outputs: int, *, stride: int, scale: float | None, key: Key):
        one, two = jax.random.split(key)
        self.first = Convolution(inputs, outputs, size=3, stride=(stride, stride), key=one)
        self.second = Convolution(outputs, outputs, size=3, key=two)
        norms = 2 if scale is None else 0
        self.norms = tuple(GroupNormalisation(outputs) for _ in range(norms))
        dtype = self.first.weight.dtype
        self.scale = None if scale is None else jnp.asarray(scale, dtype=dtype)

    def __call__(self, image: Image) -> Float[Array, "rows columns outputs"]:
        """Applies the block.

        Args:
            image: Image of shape `(height, width, inputs)`.

        Returns:
            Image of shape `(⌈height / stride⌉, ⌈width / stride⌉, outputs)`.
        """
        down, along = self.first.stride
        shortcut = image[::down, ::along]
        added = self.first.weight.shape[-1] - image.shape[-1]
        if added:
            shortcut = jnp.pad(shortcut, ((0, 0), (0, 0), (added // 2, added - added // 2)))
        branch = self.first(image)
        if self.scale is None:
            branch = self.second(jax.nn.relu(self.norms[0](branch)))
            branch = self.norms[1](branch)
        else:
            branch = self.scale * self.second(jax.nn.relu(branch))
        return jax.nn.relu(shortcut + branch)


class ResidualBackbone(AbstractBackbone):
    """A residual network, truncated after global average pooling.

    Depth 20 is the CIFAR network (a 3×3 stem and three stages of three blocks with 16, 32 and 64
    channels), depth 18 the ImageNet one (a 7×7 stem of stride 2, a maximum over 3×3 of stride 2,
    and four stages of two blocks with 64 to 512). Intensities in [0, 1] are centred to [-1, 1].

    Args:
        channels: Channels of the images.
        depth: 20 or 18.
        normalisation: `"none"`, or `"group"` after every convolution.
        key: Randomness of the weights.

    Attributes:
        stem: The first convolution.
        stem_norm: Its normalisation, or None.
        blocks: All blocks in turn.
        pooled: Whether the stem is followed by a maximum.

    References:
        DTI clustering, Section 4.1; He et al. (2016), Deep residual learning, Sections 4.1, 4.2.
    """

    stem: Convolution
    stem_norm: GroupNormalisation | None
    blocks: tuple[ResidualBlock, ...]
    pooled: bool = eqx.field(static=True)

    def __init__(self, channels: int, *, depth: int, normalisation: Normalisation, key: Key):
        widths, repeats = STAGES[depth]
        keys = iter(jax.random.split(key, 1 + len(widths) * repeats))
        self.pooled = depth == 18
        size, stride = (7, 2) if self.pooled else (3, 1)
        self.stem = Convolution(
            channels, widths[0], size=size, stride=(stride, stride), key=next(keys)
        )
        self.stem_norm = GroupNormalisation(widths[0]) if normalisation == "group" else None
        scale = (len(widths) * repeats) ** -0.5 if normalisation == "none" else None
        blocks, inputs = [], widths[0]
        for stage, outputs in enumerate(widths):
            for index in range(repeats):
                step = 2 if stage and not index else 1
                blocks.append(
                    ResidualBlock(inputs, outputs, stride=step, scale=scale, key=next(keys))
                )
                inputs = outputs
        self.blocks = tuple(blocks)

    @property
    def num_features(self) -> int:
        """Channels of the last stage: 64 or 512."""
        return self.blocks[-1].second.weight.shape[-1]

    def __call__(self, image: Image) -> Float[Array, " features"]:
        """Reads one image of any size; see `AbstractBackbone.__call__`."""
        hidden = self.stem(2 * image - 1)
        if self.stem_norm is not None:
            hidden = self.stem_norm(hidden)
        hidden = jax.nn.relu(hidden)
        if self.pooled:
            hidden = max_pool(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return jnp.mean(hidden, axis=(0, 1))


def residual_backbone(
    height: int,
    width: int,
    channels: int,
    *,
    key: Key,
    depth: int | None = None,
    normalisation: Normalisation = "none",
) -> ResidualBackbone:
    """The paper's residual backbone for images of a size.

    Args:
        height: Rows of the images.
        width: Columns of the images.
        channels: Channels of the images.
        key: Randomness of the weights.
        depth: 20 or 18; None takes 20 for images smaller than 64×64, else 18.
        normalisation: What stands in for the paper's batch normalisation, which would make the
            features of an image depend on its batch: `"group"`, or `"none"` (residual branches
            that start small).

    Returns:
        The backbone.

    Raises:
        ValueError: For an unknown depth or normalisation, or a size that is no whole number or
            below 4×4×1.
    """
    _check_size(height, width, channels)
    if depth is None:
        depth = 18 if min(height, width) >= LARGE else 20
    if depth not in STAGES:
        raise ValueError(f"depth must be one of {sorted(STAGES)} or None, not {depth!r}")
    if normalisation not in get_args(Normalisation):
        raise ValueError(
            f"normalisation must be one of {get_args(Normalisation)}, not {normalisation!r}"
        )
    return ResidualBackbone(channels, depth=depth, normalisation=normalisation, key=key)
