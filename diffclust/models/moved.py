"""Prototypes as a fitted model moves them onto images."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.energies import TransformedPrototype
from diffclust.models.base import Result
from diffclust.models.gradient import AbstractGradientModel


def moved_prototypes(
    result: Result, clusters: Any, params: Any, *, transforms: int | None = None
) -> Float[np.ndarray, "n height width channels"]:
    """Prototypes as they are moved onto images.

    Args:
        result: A fitted model that moves prototypes.
        clusters: The prototype of each image, as in `Assignment.clusters`.
        params: How it is moved, as in `Assignment.params`.
        transforms: Only so many of the transforms act, first to last; None for all.

    Returns:
        One moved prototype an image; of a Gaussian, its mean.

    Raises:
        ValueError: If the model moves images, or the arguments do not fit each other.
    """
    model = result.model
    if not isinstance(model, AbstractGradientModel):
        raise ValueError(f"{model.method} does not move prototypes; see `Result.align`")
    channels, size = result.sample_shape[2], result.outcome.chunk_size
    prototypes = jnp.asarray(result.prototypes)
    index, moves = np.asarray(clusters), np.asarray(params, result.prototypes.dtype)
    expected = (len(index), model.energy(channels).num_params)
    if moves.shape != expected:
        raise ValueError(
            f"params must have shape {expected}, one row for each image; got {moves.shape}"
        )
    energy = model.energy(channels, transforms)
    moves = moves[:, : energy.num_params]
    parts = [
        np.asarray(_move(energy, jnp.asarray(moves[i : i + size]), prototypes[index[i : i + size]]))
        for i in range(0, len(index), size)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, *result.sample_shape), moves.dtype)


@eqx.filter_jit
def _move(energy: TransformedPrototype, params: Array, prototypes: Array) -> Array:
    return jax.vmap(energy.moved)(params, prototypes)
