"""What must hold for a distance, and for the invariant distance that an aligner makes of it."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.alignment import AbstractAligner, InvariantDistance
from diffclust.distances import AbstractBatchedDistance, AbstractDistance, pairwise
from diffclust.energies import AbstractPairEnergy
from diffclust.prototypes import Clusters
from diffclust.testing.drawing import (
    agree,
    compiled,
    generator,
    require,
    rounding,
    smooth_image,
    stacked,
)
from diffclust.transforms import Affine
from diffclust.types import Image, Key

_DRAWS = 5
_Pair = tuple[PyTree, PyTree]


def check_distance(
    distance: AbstractDistance,
    *,
    key: Key,
    draw: Callable[[Key], PyTree] | None = None,
    clusters: int = 3,
) -> None:
    """Checks all that must hold for a distance.

    It is a non-negative number, with its arguments in either order; zero at equality, to rounding,
    with finite gradients there and gradients that agree with central differences elsewhere; jit =
    eager and vmap = loop, and calls remember nothing of earlier ones. A batched distance's `to_all`
    agrees with single calls. Where samples are images, weights of one change nothing and pixels of
    weight zero do not count.

    Args:
        distance: The distance.
        key: Random key.
        draw: Draws one sample (or prototype) from a key; images of noise where it is not given.
        clusters: Number of prototypes.

    Raises:
        AssertionError: With the law that is broken.
    """
    draw = draw or (lambda k: jax.random.uniform(k, (8, 9, 2)))
    keys = jax.random.split(key, clusters + 3)
    sample, *directions = (draw(k) for k in keys[:3])
    singles = [draw(k) for k in keys[3:]]
    prototypes = stacked(singles)
    name = type(distance).__name__
    loop = np.stack([compiled(distance, sample, prototype) for prototype in singles])
    require(loop.ndim == 1, f"{name}: a distance is one number, not {loop.shape[1:]}")
    back = np.stack([compiled(distance, prototype, sample) for prototype in singles])
    require(bool(np.all(loop >= 0) and np.all(back >= 0)), f"{name}: a distance is not negative")
    atol = 1e3 * rounding(loop) * float(np.max(loop))
    # One after another, in either order of the arguments, and the first once more.
    calls = [distance(sample, prototype) for prototype in [*singles, singles[0]]]
    agree(f"{name}: jit = eager", loop[0], calls[0], atol)
    agree(f"{name}: calls remember nothing", np.stack(calls), loop[[*range(clusters), 0]], atol)
    agree(f"{name}: jit = eager, the other way", back[0], distance(singles[0], sample), atol)
    batched = jax.vmap(distance, in_axes=(None, 0))(sample, prototypes)
    agree(f"{name}: vmap = loop", batched, loop, atol)
    if isinstance(distance, AbstractBatchedDistance):
        agree(f"{name}: to_all = loop", distance.to_all(sample, prototypes), loop, atol)
    # What rounds is a single term of the sum.
    size = sum(leaf.size for leaf in jax.tree.leaves(sample))
    slack = 64 * rounding(loop) * float(np.max(loop)) / math.sqrt(size)
    for same in (sample, *singles):
        agree(f"{name}: zero at equality", compiled(distance, same, same), 0 * loop[0], slack)
    at_rest = jax.tree.leaves(_gradient(distance, (sample, sample)))
    finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in at_rest)
    require(finite, f"{name}: the gradient at equality is finite")
    _check_gradient(distance, (sample, singles[0]), directions)
    _check_gradient(distance, (singles[0], sample), directions)
    if isinstance(sample, Array) and sample.ndim == 3:
        _check_pixel_weights(distance, sample, singles[0], atol)


def check_metric(
    distance: AbstractDistance, *, key: Key, draw: Callable[[Key], PyTree], triangle: bool = True
) -> None:
    """Checks that a distance is a metric, beyond what `check_distance` checks.

    It is symmetric and zero only at equality: positive between samples that differ, also where
    they differ in one part of their tree alone. The triangle inequality is tried on samples and on
    the points halfway between them in coordinates, where squared distances break it most.

    Args:
        distance: The distance.
        key: Random key.
        draw: Draws one sample from a key. Parts of two samples together, and the point halfway
            between two, must be samples too.
        triangle: Whether the triangle inequality is checked.

    Raises:
        AssertionError: With the law that is broken.
    """
    name = type(distance).__name__
    samples = [draw(k) for k in jax.random.split(key, _DRAWS)]
    pairs = itertools.pairwise(samples)
    halves = [jax.tree.map(lambda x, y: 0.5 * (x + y), *pair) for pair in pairs]
    everything = [*samples, *halves, *_exchanged(*samples[:2])]
    table = np.asarray(pairwise(distance, stacked(everything)))
    atol = 1e3 * rounding(table) * float(table.max())
    agree(f"{name}: symmetry", table, table.T, atol)
    agree(f"{name}: zero at equality", np.diagonal(table), 0 * np.diagonal(table), atol)
    least = table[~np.eye(len(table), dtype=bool)].min()
    law = f"{name}: zero only at equality, not {least:.3g} between two that differ"
    require(bool(least > atol), law)
    if triangle:
        detours = (table[:, :, None] + table[None, :, :]).min(axis=1)
        excess = float((table - detours).max())
        law = f"{name}: the triangle inequality; a detour is shorter by {excess:.3g}"
        require(excess <= atol, law)


def _exchanged(first: PyTree, second: PyTree) -> list[PyTree]:
    """The first sample with one part of the second, each in turn, where there are several."""
    leaves, treedef = jax.tree.flatten(first)
    others = jax.tree.leaves(second)
    parts = range(len(leaves)) if len(leaves) > 1 else ()
    return [
        jax.tree.unflatten(treedef, [*leaves[:i], others[i], *leaves[i + 1 :]])
        for i in parts
        if not np.array_equal(leaves[i], others[i])
    ]


@eqx.filter_jit
def _gradient(distance: AbstractDistance, at: _Pair) -> PyTree:
    return jax.grad(lambda pair: distance(*pair))(at)


def _check_gradient(distance: AbstractDistance, at: _Pair, direction: PyTree) -> None:
    slopes, moves = (
        np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(tree)])
        for tree in (_gradient(distance, at), direction)
    )
    precise = slopes.dtype == np.float64
    step, tolerance = (1e-6, 1e-6) if precise else (1e-2, 0.02)

    def along(t: float) -> np.ndarray:
        moved = jax.tree.map(lambda x, d: np.asarray(x) + t * np.asarray(d), at, tuple(direction))
        return compiled(distance, *moved)

    difference = (along(step) - along(-step)) / (2 * step)
    atol = tolerance * (min(1.0, float(along(0.0))) + abs(float(difference)))
    agree(f"{type(distance).__name__}: the gradient", slopes @ moves, difference, atol)


def _check_pixel_weights(
    distance: AbstractDistance, sample: Image, prototype: Image, atol: float
) -> None:
    name = type(distance).__name__
    ones = jnp.ones((*sample.shape[:2], 1), dtype=sample.dtype)
    plain = compiled(distance, sample, prototype)
    law = f"{name}: weights of one change nothing"
    agree(law, compiled(distance, sample, prototype, ones), plain, atol)
    mask = ones.at[0].set(0.0)
    masked = compiled(distance, sample, prototype, mask)
    elsewhere = compiled(distance, sample.at[0].add(1.0), prototype, mask)
    agree(f"{name}: pixels of weight zero do not count", elsewhere, masked, atol)


def check_invariance(
    energy: AbstractPairEnergy,
    aligner: AbstractAligner,
    *,
    key: Key,
    height: int = 18,
    width: int = 20,
    channels: int = 1,
    amount: float = 0.1,
    draws: int = 4,
    tolerance: float = 0.25,
) -> None:
    """Checks that an unpenalised invariant distance sees through small affine maps.

    d(g·x, c) ≤ d(x, c) + tolerance · d₀(g·x, x), where d₀ is the distance without alignment. Half
    of the samples x are the prototype c itself, so that a distance without invariance fails; the
    others resemble it.

    Args:
        energy: The energy of one sample against one cluster; its penalties are switched off.
        aligner: Minimises it.
        key: Random key.
        height: Rows of the images.
        width: Columns of the images.
        channels: Channels of the images.
        amount: Largest entry of the affine params that are drawn.
        draws: Number of samples.
        tolerance: What may be left, as a fraction of what moving cost: interpolation alone leaves
            a tenth.

    Raises:
        AssertionError: If an affine map makes a sample more distant than it may.
    """
    keys = jax.random.split(key, 2 * draws)
    blobs = np.stack([smooth_image(k, height, width, channels, sigma=0.25) for k in keys])
    prototypes, others = blobs[:draws], blobs[draws:]
    # Samples like their prototypes: descent from afar may end in another valley.
    share = np.where(np.arange(draws) % 2 == 0, 0, 0.3).astype(blobs.dtype)[:, None, None, None]
    samples = (1 - share) * prototypes + share * others
    moves = generator(key).uniform(-amount, amount, (draws, 6)).astype(blobs.dtype)
    before, after, cost = _distances(energy, aligner, samples, prototypes, moves)
    excess = np.asarray((after - before) / cost)
    require(
        bool(np.all(excess <= tolerance)),
        f"invariance: moving a sample made it more distant by {excess.max():.3g} of what moving "
        f"cost without alignment, which is more than {tolerance}",
    )


@eqx.filter_jit
def _distances(
    energy: AbstractPairEnergy, aligner: AbstractAligner, samples: Any, prototypes: Any, moves: Any
) -> tuple[Array, Array, Array]:
    """Distances of samples and of moved samples, and what moving costs without alignment."""
    moved = jax.vmap(Affine())(moves, samples)

    def unaligned(sample: Image, prototype: Image) -> Array:
        penalty = jnp.zeros((1, energy.num_penalties), dtype=prototype.dtype)
        return energy.unaligned(sample, Clusters(prototype[None], penalty))[0]

    both = jnp.concatenate([samples, moved])
    aligned = InvariantDistance(energy, aligner)
    distances = jax.vmap(aligned)(both, jnp.concatenate([prototypes, prototypes]))
    before, after = jnp.split(distances, 2)
    return before, after, jax.vmap(unaligned)(moved, samples)
