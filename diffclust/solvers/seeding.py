"""Seeding: where the prototypes start."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from diffclust.solvers.chunks import Chunks
from diffclust.types import Key


@eqx.filter_jit
def _distances(to_all: Callable, batch: PyTree, seeds: PyTree) -> Float[Array, "n seeds"]:
    return jax.vmap(to_all, in_axes=(0, None))(batch, seeds)


def kmeans_plus_plus(
    chunks: Chunks,
    num_clusters: int,
    to_all: Callable[[PyTree, PyTree], Float[Array, " seeds"]],
    *,
    key: Key,
    trials: int | None = None,
) -> Int[np.ndarray, " clusters"]:
    """k-means++: each seed is drawn with probability proportional to its distance from the others.

    Args:
        chunks: The samples, with their weights.
        num_clusters: Number of seeds.
        to_all: Squared distances from one sample to several.
        key: Random key.
        trials: Candidates drawn for each seed, of which the one that leaves the least distortion
            is taken; 2 + ⌊ln K⌋ where it is not given, 1 is the original method.

    Returns:
        Indices of the seeds, all different wherever that many samples differ.

    References:
        Arthur and Vassilvitskii (2007), k-means++: The advantages of careful seeding.
    """
    if trials is None:
        trials = 2 + int(math.log(num_clusters))
    weights = chunks.weights
    # Host draws from the key's own uniforms: a few numbers, and every size would be compiled for.
    draws = np.asarray(jax.random.uniform(key, (num_clusters, trials)), dtype=np.float64)
    chosen = [int(_draw(draws[0, :1], weights)[0])]

    def from_seeds(index: np.ndarray) -> Float[np.ndarray, "n seeds"]:
        seeds = chunks.gather(index)
        return np.concatenate(
            [np.asarray(_distances(to_all, batch.samples, seeds)) for batch in chunks.batches]
        )

    # The first seed stands in all places, so that one shape serves for every call.
    nearest = from_seeds(np.repeat(chosen, trials))[:, 0]
    for position in range(1, num_clusters):
        mass = nearest * weights
        if not mass.sum() > 0:
            # Every sample sits on a seed: the rest are drawn among samples not yet taken.
            mass = weights.copy()
            mass[chosen] = 0.0
        if not mass.sum() > 0:
            # Fewer samples with weight than clusters: any sample but the padding will do.
            mass = (np.arange(weights.size) < chunks.num_samples).astype(weights.dtype)
            mass[chosen] = 0.0
        candidates = _draw(draws[position], mass)
        remaining = np.minimum(nearest[:, None], from_seeds(candidates))
        best = int(np.argmin(weights @ remaining))
        nearest = remaining[:, best]
        chosen.append(int(candidates[best]))
    return np.asarray(chosen, dtype=np.int32)


def _draw(uniforms: Float[np.ndarray, " m"], mass: np.ndarray) -> Int[np.ndarray, " m"]:
    """Indices drawn in proportion to a mass, with replacement, by inverting its running sum."""
    running = np.cumsum(mass, dtype=np.float64)
    # `side="right"` never lands on a sample without mass, except past the end by rounding.
    index = np.searchsorted(running, uniforms * running[-1], side="right")
    return np.minimum(index, np.flatnonzero(mass > 0)[-1])
