"""Seeding: where the prototypes start."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from diffclust.energies import AbstractPairEnergy
from diffclust.parallel.chunks import Chunks
from diffclust.prototypes import AbstractPrototypeFamily, Clusters
from diffclust.types import Key


@eqx.filter_jit
def _distances(to_all: Callable, batch: PyTree, seeds: PyTree) -> Float[Array, "n seeds"]:
    return jax.vmap(to_all, in_axes=(0, None))(batch, seeds)


def distances_to_seeds(
    energy: AbstractPairEnergy, family: AbstractPrototypeFamily, sample: PyTree, seeds: PyTree
) -> Float[Array, " seeds"]:
    """Distance of a sample to prototypes initialised as seeds, by the energy itself, unaligned.

    Args:
        energy: The energy. If it is not a distance, such as a negative log-likelihood, it is
            measured relative to the sample's energy in a cluster of its own.
        family: Initialises prototypes.
        sample: One sample.
        seeds: Samples with a leading axis.

    Returns:
        Non-negative numbers.
    """

    def to(samples: PyTree) -> Float[Array, " samples"]:
        prototypes = jax.vmap(family.init)(samples)
        leaves = jax.tree.leaves(prototypes)
        penalty = jnp.zeros((leaves[0].shape[0], energy.num_penalties), jnp.result_type(*leaves))
        return energy.unaligned(sample, Clusters(prototypes, penalty))

    if energy.is_distance:
        return to(seeds)
    alone = to(jax.tree.map(lambda leaf: leaf[None], sample))
    return jnp.maximum(to(seeds) - alone, 0.0)


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
        trials: Number of candidates drawn for each seed, of which the one that leaves the lowest
            distortion is taken; by default 2 + ⌊ln K⌋. 1 is the original method.

    Returns:
        Indices of the seeds, all different if enough samples differ.

    References:
        Arthur and Vassilvitskii (2007), k-means++: The advantages of careful seeding.
    """
    if trials is None:
        trials = 2 + int(math.log(num_clusters))
    weights = chunks.weights
    # Drawn on the host from the key's own uniforms: few numbers, and no compilation for every size.
    draws = np.asarray(jax.random.uniform(key, (num_clusters, trials)), dtype=np.float64)
    chosen = [int(_draw(draws[0, :1], weights)[0])]

    # For millions of samples every array counts: this one is refilled for each seed.
    remaining = np.zeros((weights.size, trials), weights.dtype)

    def fill(index: np.ndarray) -> None:
        seeds, start = chunks.gather(index), 0
        if chunks.is_distributed:
            parts = [_distances(to_all, batch.samples, seeds) for batch in chunks.batches]
            remaining[: chunks.num_samples] = chunks.collect(parts)
            return
        for batch in chunks.batches:
            distances = np.asarray(_distances(to_all, batch.samples, seeds))
            remaining[start : start + chunks.size] = distances
            start += chunks.size

    # The first seed fills all places, so that one shape serves for every call.
    fill(np.repeat(chosen, trials))
    nearest = remaining[:, 0].copy()
    for position in range(1, num_clusters):
        mass = nearest * weights
        if not mass.sum() > 0:
            # Every sample coincides with a seed: the rest are drawn among samples not taken yet.
            mass = weights.copy()
            mass[chosen] = 0.0
        if not mass.sum() > 0:
            # Fewer samples with positive weight than clusters: any sample except padding will do.
            mass = (np.arange(weights.size) < chunks.num_samples).astype(weights.dtype)
            mass[chosen] = 0.0
        candidates = _draw(draws[position], mass)
        del mass
        fill(candidates)
        np.minimum(nearest[:, None], remaining, out=remaining)
        best = int(np.argmin(weights @ remaining))
        nearest[:] = remaining[:, best]
        chosen.append(int(candidates[best]))
    return np.asarray(chosen, dtype=np.int32)


def _draw(uniforms: Float[np.ndarray, " m"], mass: np.ndarray) -> Int[np.ndarray, " m"]:
    """Draws indices in proportion to a mass, with replacement, by inverting its running sum."""
    ends = np.cumsum(mass, dtype=np.float64)
    last = mass.size - 1 - np.argmax(mass[::-1] > 0)
    # `side="right"` never lands on a sample without mass, except past the end by rounding.
    return np.minimum(np.searchsorted(ends, uniforms * ends[-1], side="right"), last)


def random_assignments(key: Key, size: int, num_clusters: int) -> Int[Array, " n"]:
    """A random cluster for each sample, such that clusters are of even size.

    Args:
        key: Random key.
        size: Number of samples.
        num_clusters: Number of clusters.

    Returns:
        Whole numbers below `num_clusters`.
    """
    return (jax.random.permutation(key, size) % num_clusters).astype(jnp.int32)
