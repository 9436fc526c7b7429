"""What must hold for a prototype family under an energy."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust.energies import AbstractSampleEnergy
from diffclust.prototypes import AbstractPrototypeFamily, Clusters
from diffclust.testing.drawing import agree, generator, require, rounding, smooth_image, stacked
from diffclust.types import Key

_Batch = tuple[Array, PyTree, Array, Array]
"""Params, samples, the cluster and the weight of each."""


def check_family(
    family: AbstractPrototypeFamily,
    energy: AbstractSampleEnergy,
    *,
    key: Key,
    draw: Callable[[Key], PyTree] | None = None,
    clusters: int = 2,
    count: int = 8,
    passes: int = 3,
    scale: float = 0.1,
) -> None:
    """Checks that a family's updates never raise the loss of an energy.

    The loss is the sum of the energies of samples in their clusters, whose params stay as they are.
    Also: statistics of two batches add up to those of both, a sample of weight two counts as two,
    one of weight zero not at all, and the prototype of an empty cluster stays.

    Args:
        family: The family.
        energy: What it must make small.
        key: Random key.
        draw: Draws one sample; smooth images where it is not given.
        clusters: Number of clusters with samples; one more is empty.
        count: Number of samples, of at least two a cluster.
        passes: Updates in a row, each of which must not raise the loss.
        scale: Standard deviation of the params that are drawn.

    Raises:
        AssertionError: With the law that is broken.
    """
    draw = draw or (lambda k: smooth_image(k, 8, 9, 2))
    keys = jax.random.split(key, count + clusters + 1)
    samples, seeds = (
        jax.vmap(family.normalise)(stacked([draw(k) for k in part]))
        for part in (keys[:count], keys[count:])
    )
    # New clusters are of samples, whatever prototypes are.
    prototypes = jax.vmap(family.init)(seeds)
    dtype = jnp.result_type(*jax.tree.leaves(samples))
    drawn = scale * generator(key).normal(size=(count, energy.num_params))
    params, index = jnp.asarray(drawn, dtype=dtype), jnp.arange(count) % clusters
    weight = jnp.ones((count,), dtype=dtype).at[0].set(2.0).at[1].set(0.0)
    case = _Case(family, energy, (params, samples, index, weight))
    name, losses = type(family).__name__, [float(case.loss(prototypes))]
    for _ in range(passes):
        prototypes = case.updated(prototypes)
        losses.append(float(case.loss(prototypes)))
    atol = 1e2 * rounding(weight) * (1.0 + max(map(abs, losses)))
    rise = float(np.max(np.diff(losses)))
    if _shapes(prototypes) == _shapes(seeds):
        # Where something near is better, the family must not lead back.
        slope = jax.grad(case.loss)(prototypes)
        size = _norm(prototypes) / jnp.maximum(_norm(slope), atol)
        for step in (0.02, 0.001):
            stepped = jax.tree.map(lambda p, s, by=step * size: p - by * s, prototypes, slope)
            better = jax.vmap(family.normalise)(stepped)
            if float(case.loss(better)) < losses[-1]:
                after = case.loss(case.updated(better))
                rise = max(rise, float(after - case.loss(better)))
    require(rise <= atol, f"{name}: an update does not raise the loss, not by {rise:.3g}")
    case.check_sums(prototypes)
    initial = jax.tree.leaves(jax.vmap(family.init)(seeds))
    for before, after in zip(initial, jax.tree.leaves(prototypes), strict=True):
        agree(f"{name}: an empty cluster's prototype stays", after[-1], before[-1], atol)


def _shapes(tree: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(tree), [leaf.shape for leaf in jax.tree.leaves(tree)]


def _norm(tree: PyTree) -> Float[Array, ""]:
    return jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)))


class _Case(eqx.Module):
    """A family, the energy that it lowers, and a batch."""

    family: AbstractPrototypeFamily
    energy: AbstractSampleEnergy
    batch: _Batch

    @eqx.filter_jit
    def loss(self, prototypes: PyTree) -> Float[Array, ""]:
        params, samples, index, weight = self.batch
        num_penalties = (weight.shape[0], self.energy.num_penalties)
        own = jax.tree.map(lambda leaf: leaf[index], prototypes)
        clusters = Clusters(own, jnp.zeros(num_penalties, dtype=weight.dtype))
        bound = self.energy.bind(jax.tree.map(lambda leaf: leaf[0], samples))
        return jnp.sum(weight * jax.vmap(bound)(params, samples, clusters))

    @eqx.filter_jit
    def statistics(self, batch: _Batch, prototypes: PyTree) -> PyTree:
        params, samples, index, weight = batch
        count = jax.tree.leaves(prototypes)[0].shape[0]
        membership = jax.nn.one_hot(index, count, dtype=weight.dtype) * weight[:, None]
        aligned = jax.vmap(self.energy.aligned)(params, samples)
        pixel_weight = jax.vmap(self.energy.pixel_weight)(params, samples)
        return self.family.statistics(aligned, pixel_weight, membership, prototypes)

    @eqx.filter_jit
    def updated(self, prototypes: PyTree) -> PyTree:
        return self.family.update(self.statistics(self.batch, prototypes), prototypes)

    def check_sums(self, prototypes: PyTree) -> None:
        """Checks that statistics add up over batches, and follow the weights."""
        weight = self.batch[-1]
        half, twice = weight.shape[0] // 2, jnp.asarray([0, *range(weight.shape[0])])
        batches = [
            jax.tree.map(lambda leaf, at=at: leaf[at], self.batch)
            for at in (slice(None, half), slice(half, None))
        ]
        # The first sample twice, with half of its weight; and without the weightless second.
        other = jax.tree.map(lambda leaf: leaf[twice], self.batch[:-1])
        ones = jnp.ones_like(weight, shape=(len(twice),)).at[2].set(0.0)
        changed = jax.tree.map(lambda leaf: leaf.at[2].set(leaf[3]), other)
        whole, *halves, weighted = (
            jax.tree.leaves(self.statistics(batch, prototypes))
            for batch in (self.batch, *batches, (*changed, ones))
        )
        name = type(self.family).__name__
        for total, one, two, again in zip(whole, *halves, weighted, strict=True):
            atol = 1e2 * rounding(total) * (1.0 + float(jnp.max(jnp.abs(total))))
            agree(f"{name}: statistics add up over batches", one + two, total, atol)
            agree(f"{name}: statistics follow the weights", again, total, atol)
