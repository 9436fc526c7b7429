"""Heads: from the features of one image to the params of one cluster's transform."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust import _validation as check
from diffclust.networks.layers import he_normal
from diffclust.types import Key, Params

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
