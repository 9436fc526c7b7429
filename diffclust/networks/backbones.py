"""Backbones and the layers that they consist of, and the heads that predict params."""

import abc
import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.types import Image, Key, Params

Normalisation = Literal["none", "group", "batch"]
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
        biased: Whether there is a bias, which starts at zero.
        key: Randomness of the kernel.

    Attributes:
        weight: The kernel.
        bias: Added to every pixel, or None.
        stride: Steps along rows and columns.
    """

    weight: Float[Array, "rows columns inputs outputs"]
    bias: Float[Array, " outputs"] | None
    stride: tuple[int, int] = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        size: int,
        stride: tuple[int, int] = (1, 1),
        biased: bool = True,
        key: Key,
    ):
        self.weight = he_normal(key, (size, size, inputs, outputs), size * size * inputs)
        self.bias = jnp.zeros(outputs, dtype=self.weight.dtype) if biased else None
        self.stride = stride

    def __call__(self, image: Image) -> Float[Array, "rows columns outputs"]:
        """Convolves.

        Args:
            image: Image of shape `(height, width, inputs)`.

        Returns:
            Image of shape `(⌈height / stride[0]⌉, ⌈width / stride[1]⌉, outputs)`, in the precision
            of the kernel.
        """
        before = self.weight.shape[0] // 2
        batch = jax.lax.conv_general_dilated(
            image[None].astype(self.weight.dtype),
            self.weight,
            self.stride,
            [(before, before)] * 2,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return batch[0] if self.bias is None else batch[0] + self.bias[None, None]


_NUM_GROUPS = 8


class GroupNormalisation(eqx.Module):
    """Mean 0 and variance 1 over pixels and groups of neighbouring channels, then gain and shift.

    Args:
        channels: Channels of the images; the groups, of which there are eight, divide them.

    Attributes:
        gain: One factor a channel.
        shift: One summand a channel.

    References:
        Wu and He (2018), Group normalization, Eqs. 1, 5 and 7.
    """

    gain: Float[Array, " channels"]
    shift: Float[Array, " channels"]

    def __init__(self, channels: int):
        self.gain = jnp.ones(channels, dtype=jnp.result_type(float))
        self.shift = jnp.zeros(channels, dtype=jnp.result_type(float))

    def __call__(self, image: Image) -> Image:
        """Normalises.

        Args:
            image: Image of shape `(height, width, channels)`.

        Returns:
            Image of the same shape.
        """
        # Sums over pixels first, which stay along the rows of memory, and only then over channels.
        repeats = image.shape[-1] // _NUM_GROUPS

        def group_mean(channels: Array) -> Array:
            return jnp.repeat(jnp.mean(channels.reshape(_NUM_GROUPS, repeats), axis=1), repeats)

        centred = image - group_mean(jnp.mean(image, axis=(0, 1)))[None, None]
        variance = group_mean(jnp.mean(centred**2, axis=(0, 1)))
        factor = self.gain * jax.lax.rsqrt(variance + EPSILON)
        return centred * factor[None, None] + self.shift[None, None]


MOMENTUM = 0.1
"""What each batch adds to the running moments, as in PyTorch."""

Moments = tuple[Float[Array, " _"], Float[Array, " _"]]
"""Mean and variance of every channel."""


class BatchNormalisation(eqx.Module):
    """Mean 0 and variance 1 of every channel over a batch of images, then gain and shift.

    While a network is trained, the moments are those of the batch; they take part in its gradient.
    One image is read with running averages of them, which are kept among the weights and which no
    gradient reaches.

    Args:
        channels: Channels of the images.

    Attributes:
        gain: One factor a channel.
        shift: One summand a channel.
        moments: Running averages of mean and variance.

    References:
        Ioffe and Szegedy (2015), Batch normalization, Algorithms 1 and 2.
    """

    gain: Float[Array, " channels"]
    shift: Float[Array, " channels"]
    moments: Moments

    def __init__(self, channels: int):
        self.gain = jnp.ones(channels, dtype=jnp.result_type(float))
        self.shift = jnp.zeros_like(self.gain)
        self.moments = (jnp.zeros_like(self.gain), jnp.ones_like(self.gain))

    def __call__(self, image: Image) -> Image:
        """Normalises by the running moments.

        Args:
            image: Image of shape `(height, width, channels)`.

        Returns:
            Image of the same shape.
        """
        return self._by(self.moments, image)

    def normalise_batch(
        self,
        images: Float[Array, "n height width channels"],
        weight: Float[Array, " n"],
        axis_name: str | None = None,
    ) -> tuple[Float[Array, "n height width channels"], Moments]:
        """Normalises by the moments of a batch.

        Args:
            images: The batch.
            weight: Weights of the images, of which only the ratios count. Where all are zero, the
                running moments are taken, and stay.
            axis_name: Name of a mapped device axis over which moments are taken, or None.

        Returns:
            The images, and the running moments after the batch: of the variance, those of its
            unbiased estimate.
        """

        def total(values: Array, axes: tuple[int, ...] = (0, 1, 2)) -> Array:
            summed = jnp.sum(values, axis=axes)
            return summed if axis_name is None else jax.lax.psum(summed, axis_name)

        whole, positive = total(weight, (0,)), total((weight > 0).astype(weight.dtype), (0,))
        relative = weight * (positive / jnp.where(whole > 0, whole, 1.0))
        each = jnp.broadcast_to(relative[:, None, None, None], (*images.shape[:3], 1))
        count = jnp.maximum(total(each), 1.0)
        mean = total(each * images) / count
        variance = total(each * (images - mean[None, None, None]) ** 2) / count
        unbiased = (mean, variance * count / jnp.maximum(count - 1.0, 1.0))

        def seen(now: Moments) -> Moments:
            return jax.tree.map(
                lambda own, past: jnp.where(whole > 0, own, past), now, self.moments
            )

        running = jax.tree.map(
            lambda old, new: old + MOMENTUM * (new - old), self.moments, seen(unbiased)
        )
        return self._by(seen((mean, variance)), images), jax.lax.stop_gradient(running)

    def _by(self, moments: Moments, images: Array) -> Array:
        factor = self.gain * jax.lax.rsqrt(moments[1] + EPSILON)
        shift = self.shift - moments[0] * factor
        return images * factor[(None,) * (images.ndim - 1)] + shift[(None,) * (images.ndim - 1)]


Norm = GroupNormalisation | BatchNormalisation


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


Initial = Literal["normal", "uniform"]


def _uniform(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    bound = fan_in**-0.5
    return jax.random.uniform(key, shape, jnp.result_type(float), -bound, bound)


class Head(eqx.Module):
    """Two hidden layers of 128 units, and a last layer that starts at zero.

    So it predicts zero params at the start, which is the identity, exactly.

    Args:
        num_features: Length of the feature vector.
        num_params: Length of the parameter vector.
        initial: How the hidden layers start: `"normal"`, with weights of He et al. and no biases,
            or `"uniform"`, with both between -1 / √fan_in and 1 / √fan_in, as PyTorch's do.
        key: Randomness of the hidden layers' weights.

    Attributes:
        weights: One matrix a layer, inputs first.
        biases: One vector a layer.

    Raises:
        ValueError: For another `initial`.

    References:
        DTI clustering, Section 4.1, "Parameter predictor networks".
    """

    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    def __init__(
        self, num_features: int, num_params: int, *, initial: Initial = "normal", key: Key
    ):
        check.one_of(initial, get_args(Initial), "initial")
        sizes, keys = (num_features, HIDDEN), jax.random.split(key)
        if initial == "normal":
            hidden = [he_normal(k, (n, HIDDEN), n) for k, n in zip(keys, sizes, strict=True)]
            biases = [jnp.zeros(HIDDEN, dtype=weight.dtype) for weight in hidden]
        else:
            # The last row holds the biases.
            drawn = [_uniform(k, (n + 1, HIDDEN), n) for k, n in zip(keys, sizes, strict=True)]
            hidden, biases = [w[:-1] for w in drawn], [w[-1] for w in drawn]
        last = jnp.zeros((HIDDEN + 1, num_params), dtype=hidden[0].dtype)
        self.weights, self.biases = (*hidden, last[:-1]), (*biases, last[-1])

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


def make_heads(
    num_clusters: int, num_features: int, num_params: int, *, initial: Initial = "normal", key: Key
) -> Head:
    """Makes stacked heads, one a cluster; `jax.vmap(lambda h: h(features))(heads)` applies them.

    Args:
        num_clusters: K.
        num_features: Length of the feature vector, at least 1.
        num_params: Length of the parameter vector; 0 for a transform without any.
        initial: How the hidden layers start; see `Head`.
        key: Randomness of the hidden layers' weights; every cluster has its own.

    Returns:
        A head whose every array has a leading cluster axis.

    Raises:
        ValueError: If a number is no integer or too small, or for another `initial`.
    """
    check.count(num_clusters, "num_clusters")
    check.count(num_features, "num_features")
    check.count(num_params, "num_params", least=0)
    keys = jax.random.split(key, num_clusters)
    make = eqx.filter_vmap(lambda key: Head(num_features, num_params, initial=initial, key=key))
    return make(keys)


class AbstractBackbone(eqx.Module):
    """A network from one image to a vector of features.

    All leaves are arrays; there is no state and nothing random in a call, so that a backbone is a
    pure function of its weights and one image. Batches are `jax.vmap`'s job.
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


class AbstractBatchBackbone(AbstractBackbone):
    """A backbone that may be normalised over batches while it is trained.

    One image is read with the moments that the backbone holds, so that it is a pure function of its
    leaves and one image all the same; a batch is read with its own.
    """

    @property
    @abc.abstractmethod
    def is_batch_normalised(self) -> bool:
        """Whether a batch is read in another way than image by image."""

    @abc.abstractmethod
    def read_batch(
        self,
        images: Float[Array, "n height width channels"],
        weight: Float[Array, " n"],
        *,
        axis_name: str | None = None,
    ) -> tuple[Float[Array, "n features"], tuple[Moments, ...]]:
        """Reads a batch, normalised by its own moments.

        Args:
            images: The batch.
            weight: Weights of the images.
            axis_name: Name of a mapped device axis over which moments are taken, or None.

        Returns:
            Features of every image, and the running moments of every layer after the batch.
        """

    @abc.abstractmethod
    def with_moments(self, moments: tuple[Moments, ...]) -> "AbstractBatchBackbone":
        """The backbone with other running moments.

        Args:
            moments: As `read_batch` returns them.

        Returns:
            The backbone.
        """


class BatchFeatures(eqx.Module):
    """Features of the images of a batch that was read already, in the place of a backbone.

    Attributes:
        features: Features of every image; of one image under `jax.vmap`.
    """

    features: Float[Array, "*n features"]

    def __call__(self, image: Image) -> Float[Array, " features"]:
        """The features of the image.

        Args:
            image: The image; it is not looked at.

        Returns:
            Features of shape `(num_features,)`.
        """
        return self.features


def _check_size(height: int, width: int, channels: int) -> None:
    if height < 4 or width < 4:
        raise ValueError(
            f"images of {height}×{width} pixels are smaller than the 4×4 that networks read; "
            "enlarge them"
        )
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
        ValueError: If a number is no integer, a side is below 4, or there is no channel.
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
        return rows * columns * self.layers[-1].weight.shape[-1]

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


Layer = Callable[[Array], Array]


def _identity(layer: Layer) -> Layer:
    return layer


def _apply(norm: Norm, image: Array) -> Array:
    return norm(image)


class ResidualBlock(eqx.Module):
    """relu(shortcut(x) + scale · f(x)), with f two convolutions of 3×3.

    The shortcut takes every second pixel where the block strides, and pads new channels with zeros
    (option A of the ResNet paper), so that it has no weights.

    Args:
        inputs: Channels of the images that it reads.
        outputs: Channels of the images that it gives.
        stride: Step of the first convolution along rows and columns.
        scale: Where the branch's scale starts, or None for a normalised branch without one.
        norm: What normalises that.
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
    norms: tuple[Norm, ...]
    scale: Float[Array, ""] | None

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        stride: int,
        scale: float | None,
        norm: type[Norm] = GroupNormalisation,
        key: Key,
    ):
        one, two = jax.random.split(key)
        biased = scale is not None or norm is not BatchNormalisation
        self.first = Convolution(
            inputs, outputs, size=3, stride=(stride, stride), biased=biased, key=one
        )
        self.second = Convolution(outputs, outputs, size=3, biased=biased, key=two)
        self.norms = tuple(norm(outputs) for _ in range(2)) if scale is None else ()
        dtype = self.first.weight.dtype
        self.scale = None if scale is None else jnp.asarray(scale, dtype=dtype)

    def __call__(
        self,
        image: Float[Array, "*n height width inputs"],
        each: Callable[[Layer], Layer] = _identity,
        normalise: Callable[[Any, Array], Array] = _apply,
    ) -> Float[Array, "*n rows columns outputs"]:
        """Applies the block.

        Args:
            image: Image of shape `(height, width, inputs)`, or a batch.
            each: Makes of a layer, which reads one image, one that reads what `image` is:
                `jax.vmap` for a batch.
            normalise: Applies a normalisation to what `image` is.

        Returns:
            Image of shape `(⌈height / stride⌉, ⌈width / stride⌉, outputs)`, or a batch.
        """
        shortcut, branch = each(self._shortcut)(image), each(self.first)(image)
        if self.scale is None:
            branch = each(self.second)(jax.nn.relu(normalise(self.norms[0], branch)))
            branch = normalise(self.norms[1], branch)
        else:
            branch = self.scale * each(self.second)(jax.nn.relu(branch))
        return jax.nn.relu(shortcut + branch)

    def _shortcut(self, image: Image) -> Float[Array, "rows columns outputs"]:
        down, along = self.first.stride
        shortcut = image[::down, ::along]
        added = self.first.weight.shape[-1] - image.shape[-1]
        if not added:
            return shortcut
        return jnp.pad(shortcut, ((0, 0), (0, 0), (added // 2, added - added // 2)))


class ResidualBackbone(AbstractBatchBackbone):
    """A residual network, truncated after global average pooling.

    Depth 20 is the CIFAR network (a 3×3 stem and three stages of three blocks with 16, 32 and 64
    channels), depth 18 the ImageNet one (a 7×7 stem of stride 2, a maximum over 3×3 of stride 2,
    and four stages of two blocks with 64 to 512). Intensities in [0, 1] are centred to [-1, 1].

    Args:
        channels: Channels of the images.
        depth: 20 or 18.
        normalisation: `"none"`, or `"group"` or `"batch"` after every convolution.
        key: Randomness of the weights.

    Attributes:
        stem: The first convolution.
        stem_norm: Its normalisation, or None.
        blocks: All blocks in order.
        pooled: Whether the stem is followed by a maximum.

    References:
        DTI clustering, Section 4.1; He et al. (2016), Deep residual learning, Sections 4.1, 4.2.
    """

    stem: Convolution
    stem_norm: Norm | None
    blocks: tuple[ResidualBlock, ...]
    pooled: bool = eqx.field(static=True)

    def __init__(self, channels: int, *, depth: int, normalisation: Normalisation, key: Key):
        widths, repeats = STAGES[depth]
        keys = iter(jax.random.split(key, 1 + len(widths) * repeats))
        self.pooled = depth == 18
        size, stride = (7, 2) if self.pooled else (3, 1)
        norm = BatchNormalisation if normalisation == "batch" else GroupNormalisation
        self.stem = Convolution(
            channels,
            widths[0],
            size=size,
            stride=(stride, stride),
            biased=normalisation != "batch",
            key=next(keys),
        )
        self.stem_norm = None if normalisation == "none" else norm(widths[0])
        scale = (len(widths) * repeats) ** -0.5 if normalisation == "none" else None
        blocks, inputs = [], widths[0]
        for stage, outputs in enumerate(widths):
            for index in range(repeats):
                step = 2 if stage and not index else 1
                settings: dict[str, Any] = {"stride": step, "scale": scale, "norm": norm}
                blocks.append(ResidualBlock(inputs, outputs, **settings, key=next(keys)))
                inputs = outputs
        self.blocks = tuple(blocks)

    @property
    def num_features(self) -> int:
        """Channels of the last stage: 64 or 512."""
        return self.blocks[-1].second.weight.shape[-1]

    def __call__(self, image: Image) -> Float[Array, " features"]:
        """Reads one image of any size."""
        return self._read(image, _identity, _apply)

    def _read(
        self, image: Array, each: Callable[[Layer], Layer], normalise: Callable[[Any, Array], Array]
    ) -> Array:
        hidden = each(self.stem)(2 * image - 1)
        if self.stem_norm is not None:
            hidden = normalise(self.stem_norm, hidden)
        hidden = jax.nn.relu(hidden)
        if self.pooled:
            hidden = each(max_pool)(hidden)
        for block in self.blocks:
            hidden = block(hidden, each, normalise)
        return jnp.mean(hidden, axis=(-3, -2))

    @property
    def is_batch_normalised(self) -> bool:
        """Whether it was made with batch normalisation."""
        return isinstance(self.stem_norm, BatchNormalisation)

    def read_batch(
        self,
        images: Float[Array, "n height width channels"],
        weight: Float[Array, " n"],
        *,
        axis_name: str | None = None,
    ) -> tuple[Float[Array, "n features"], tuple[Moments, ...]]:
        moments: list[Moments] = []

        def normalise(norm: BatchNormalisation, hidden: Array) -> Array:
            hidden, running = norm.normalise_batch(hidden, weight, axis_name)
            moments.append(running)
            return hidden

        return self._read(images, jax.vmap, normalise), tuple(moments)

    def with_moments(self, moments: tuple[Moments, ...]) -> "ResidualBackbone":
        def own(backbone: Any) -> list[Any]:
            norms = [backbone.stem_norm, *(n for block in backbone.blocks for n in block.norms)]
            return [norm.moments for norm in norms]

        return eqx.tree_at(own, self, list(moments))


def residual_backbone(
    height: int,
    width: int,
    channels: int,
    *,
    key: Key,
    depth: int | None = None,
    normalisation: Normalisation = "none",
) -> ResidualBackbone:
    """The paper's residual backbone for images of a size, by default without its normalisation.

    Args:
        height: Rows of the images.
        width: Columns of the images.
        channels: Channels of the images.
        key: Randomness of the weights.
        depth: 20 or 18; None takes 20 for images smaller than 64×64, else 18.
        normalisation: `"batch"` is the authors'. With `"group"`, or `"none"` (residual branches
            that start small), the features of an image do not depend on its batch.

    Returns:
        The backbone.

    Raises:
        ValueError: For an unknown depth or normalisation, or a size that is no integer or
            below 4×4×1.
    """
    _check_size(height, width, channels)
    if depth is None:
        depth = 18 if min(height, width) >= LARGE else 20
    if depth not in STAGES:
        raise ValueError(f"depth must be one of {sorted(STAGES)} or None, not {depth!r}")
    check.one_of(normalisation, get_args(Normalisation), "normalisation")
    return ResidualBackbone(channels, depth=depth, normalisation=normalisation, key=key)
