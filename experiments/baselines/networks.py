"""The autoencoders of the baselines, of fully connected and of convolutional layers.

DI K-means, App. 9: encoders of [500, 500, 2000, 10] units, or three convolutions of 32 filters of
5×5 and [400, 10] units with batch normalisation; ReLU between layers, decoders symmetric. What the
paper leaves open: the codes have no ReLU and no normalisation (as in DEC's code; codes that are cut
at zero could not be a Gaussian mixture's), convolutions have a stride of two, and a decoder gives
logits of intensities in [0, 1].
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp

CODE = 10
"""Numbers of a code."""

_UNITS = (500, 500, 2000)
_FILTERS = 32
_CONVOLUTIONS = 3
_HIDDEN = 400
_BATCH = "batch"


class Autoencoder(eqx.Module):
    """Codes of images, and images of codes.

    Images are `[n, height, width, channels]`, codes `[n, CODE]`. Batches go in whole, since batch
    normalisation takes its means over them; its running means are the state.
    """

    trunk: eqx.nn.Sequential
    code: eqx.nn.Linear
    decoder: eqx.nn.Sequential

    def encode(self, images, state):
        """Codes, the features that they are linear functions of, and the new state."""
        features, state = _over_batch(self.trunk)(images, state)
        return jax.vmap(self.code)(features), features, state

    def decode(self, codes, state):
        """Logits of the intensities, of the images' shape, and the new state."""
        return _over_batch(self.decoder)(codes, state)


def _over_batch(layers):
    return jax.vmap(layers, in_axes=(0, None), out_axes=(0, None), axis_name=_BATCH)


def _relu(size=None):
    """A ReLU, after batch normalisation where a number of channels is given."""
    activation = eqx.nn.Lambda(jax.nn.relu)
    if size is None:
        return [activation]
    return [eqx.nn.BatchNorm(size, _BATCH, momentum=0.9, mode="batch"), activation]


def _reshaped(*shape):
    return eqx.nn.Lambda(lambda array: array.reshape(shape))


def mlp(shape, key):
    """An autoencoder of fully connected layers for images of a shape (height, width, channels)."""
    sizes = (shape[0] * shape[1] * shape[2], *_UNITS, CODE)
    keys = iter(jax.random.split(key, 2 * len(sizes)))

    def layers(units):
        made = []
        for inputs, outputs in itertools.pairwise(units):
            made += [eqx.nn.Linear(inputs, outputs, key=next(keys)), *_relu()]
        return made

    *trunk, code, _ = layers(sizes)
    *decoder, _ = layers(sizes[::-1])
    trunk = eqx.nn.Sequential([_reshaped(-1), *trunk])
    return Autoencoder(trunk, code, eqx.nn.Sequential([*decoder, _reshaped(*shape)]))


def conv(shape, key):
    """An autoencoder of convolutions for images of a shape (height, width, channels)."""
    *size, channels = shape
    sizes = [tuple(size)]
    for _ in range(_CONVOLUTIONS):
        sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
    flat = _FILTERS * sizes[-1][0] * sizes[-1][1]
    keys = iter(jax.random.split(key, 2 * (_CONVOLUTIONS + 2)))
    trunk = [eqx.nn.Lambda(lambda image: jnp.moveaxis(image, -1, 0))]
    for level in range(_CONVOLUTIONS):
        inputs = _FILTERS if level else channels
        kernel = eqx.nn.Conv2d(inputs, _FILTERS, 5, stride=2, padding=2, key=next(keys))
        trunk += [kernel, *_relu(_FILTERS)]
    trunk += [_reshaped(-1), eqx.nn.Linear(flat, _HIDDEN, key=next(keys)), *_relu(_HIDDEN)]
    code = eqx.nn.Linear(_HIDDEN, CODE, key=next(keys))
    decoder = [eqx.nn.Linear(CODE, _HIDDEN, key=next(keys)), *_relu(_HIDDEN)]
    decoder += [eqx.nn.Linear(_HIDDEN, flat, key=next(keys)), _reshaped(_FILTERS, *sizes[-1])]
    for level in reversed(range(_CONVOLUTIONS)):
        # An even side has one row more than twice the coarser side less one.
        extra = tuple(1 - side % 2 for side in sizes[level])
        kernel = eqx.nn.ConvTranspose2d(
            _FILTERS,
            _FILTERS if level else channels,
            5,
            stride=2,
            padding=2,
            output_padding=extra,
            key=next(keys),
        )
        decoder += [*_relu(_FILTERS), kernel]
    decoder.append(eqx.nn.Lambda(lambda image: jnp.moveaxis(image, 0, -1)))
    return Autoencoder(eqx.nn.Sequential(trunk), code, eqx.nn.Sequential(decoder))


NETWORKS = {"mlp": mlp, "conv": conv}
