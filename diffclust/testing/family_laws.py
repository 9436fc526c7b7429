"""What must hold for a prototype family under an energy."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from diffclust.energies import AbstractSampleEnergy
from diffclust.prototypes import AbstractPrototypeFamily, Clusters
from diffclust.testing.drawing import agree, close, generator, require, smooth_image, stacked
from diffclust.types import Key, Scalar

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
    """Checks that a family's updates lower the loss of an energy, and never raise it.

    The loss is the sum of the energies of samples in their clusters, whose params stay as they are.
    Also: statistics of two batches add up to those of both, a sample of weight two counts as two,
    one of weight zero not at all, and the prototype of an empty cluster stays. Where `is_additive`
    is true, statistics are the same whatever the prototypes.

    Args:
        family: The family.
        energy: What it must make small.
        key: Random key.
        draw: Draws one sample; smooth images where it is not given.
        clusters: Number of clusters with samples; one more is empty.
        count: Number of samples, of at least two a cluster.
        passes: Updates in a row, none of which must raise the loss; together they lower it,
            where a step of gradient descent would.
        scale: Standard deviation of the params that are drawn.

    Raises:
        AssertionError: With the law that is broken.
    """
    draw = draw or (lambda k: smooth_image(k, 8, 9, 2))
    keys = jax.random.split(key, count + clusters + 1)
    samples, seeds = (
        _each(family.normalise)(stacked([draw(k) for k in part]))
        for part in (keys[:count], keys[count:])
    )
    # New clusters are of samples, whatever prototypes are.
    prototypes = initial = _each(family.init)(seeds)
    dtype = jnp.result_type(*jax.tree.leaves(samples))
    drawn = scale * generator(key).normal(size=(count, energy.num_params))
    weight = np.ones(count, dtype)
    weight[:2] = 2.0, 0.0
    given = jax.device_put(
        (drawn.astype(dtype), np.arange(count, dtype=np.int32) % clusters, weight)
    )
    case = _Case(family, energy, (given[0], samples, *given[1:]))
    name, losses = type(family).__name__, [float(case.loss(prototypes))]
    for _ in range(passes):
        prototypes = case.updated(prototypes)
        losses.append(float(case.loss(prototypes)))
    atol = 1e2 * float(np.finfo(dtype).eps) * (1.0 + max(map(abs, losses)))
    rise, lowers = float(np.max(np.diff(losses))), True
    if _shapes(prototypes) == _shapes(seeds):
        # Where something near is better, the family must not lead back.
        steps = np.asarray([0.02, 0.001], dtype)
        first = float(case.after_step(initial, jax.device_put(steps[0]), atol)[0])
        lowers = losses[-1] < losses[0] - atol or first >= losses[0] - 2 * atol
        for step in steps:
            better, after = map(float, case.after_step(prototypes, jax.device_put(step), atol))
            if better < losses[-1]:
                rise = max(rise, after - better)
    require(rise <= atol, f"{name}: an update does not raise the loss, not by {rise:.3g}")
    require(lowers, f"{name}: updates lower the loss, not leave it at {losses[0]:.3g}")
    case.check_sums(prototypes)
    for before, after in zip(*map(jax.tree.leaves, (initial, prototypes)), strict=True):
        agree(f"{name}: an empty cluster's prototype stays", after[-1], before[-1], atol)


def _each(function: Callable[[PyTree], PyTree]) -> Callable[[PyTree], PyTree]:
    """A function of one sample or prototype, of many."""
    return eqx.filter_jit(eqx.filter_vmap(function))


def _shapes(tree: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(tree), [leaf.shape for leaf in jax.tree.leaves(tree)]


class _Case(eqx.Module):
    """A family, the energy that it lowers, and a batch."""

    family: AbstractPrototypeFamily
    energy: AbstractSampleEnergy
    batch: _Batch

    @eqx.filter_jit
    def loss(self, prototypes: PyTree) -> Scalar:
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

    @eqx.filter_jit
    def after_step(self, prototypes: PyTree, step: Scalar, atol: float) -> tuple[Scalar, Scalar]:
        """The losses of prototypes that descended a little, and after an update of these."""
        slope = jax.grad(self.loss)(prototypes)
        by = step * optax.tree.norm(prototypes) / jnp.maximum(optax.tree.norm(slope), atol)
        stepped = jax.tree.map(lambda p, s: p - by * s, prototypes, slope)
        better = jax.vmap(self.family.normalise)(stepped)
        return self.loss(better), self.loss(self.updated(better))

    def check_sums(self, prototypes: PyTree) -> None:
        """Checks that statistics add up over batches, and follow the weights."""
        batch = jax.tree.map(np.asarray, self.batch)
        count = len(batch[-1])
        half, every = count // 2, np.arange(count)
        # The first sample twice, with half of its weight; and another for the weightless second.
        parts = (every, every[:half], every[half:], np.asarray([0, 0, 2, *range(2, count)]))
        batches = [jax.tree.map(lambda leaf, rows=rows: leaf[rows], batch) for rows in parts]
        weights = np.ones_like(batches[-1][-1])
        weights[2] = 0.0
        batches[-1] = (*batches[-1][:-1], weights)
        whole, *halves, weighted = (
            self.statistics(each, prototypes) for each in jax.device_put(batches)
        )
        name, joined = type(self.family).__name__, jax.tree.map(np.add, *halves)
        close(f"{name}: statistics add up over batches", joined, whole)
        close(f"{name}: statistics follow the weights", weighted, whole)
        if self.family.is_additive:
            turned = jax.tree.map(lambda leaf: leaf[::-1], prototypes)
            others = self.statistics(jax.device_put(batch), turned)
            law = f"{name}: is_additive, but statistics are not the same of all prototypes"
            close(law, others, whole)
