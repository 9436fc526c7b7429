"""What must hold for reductions and prototype families, so that Lloyd's algorithm descends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.alignment import AbstractAligner, NoAlignment
from diffclust.energies import AbstractAdaptiveReduction, AbstractReduction, AbstractSampleEnergy
from diffclust.parallel import Batch
from diffclust.prototypes import AbstractPrototypeFamily
from diffclust.solvers import Lloyd
from diffclust.solvers.lloyd import clusters_of
from diffclust.testing.drawing import agree, require, rounding
from diffclust.types import Key

_PASSES = 8


def check_reduction(
    reduction: AbstractReduction, *, key: Key, candidates: int = 4, samples: int = 24
) -> None:
    """Checks that a reduction looks at one sample at a time, whatever the chunks and devices.

    Losses and memberships of a batch are those of its samples alone; memberships are not negative,
    add up to one at most, and are the loss's derivative by the scores. Of a reduction that follows
    the samples, sums over two parts add up to those over both, samples of weight zero do not count,
    and the update keeps structure, shapes and dtypes.

    Args:
        reduction: The reduction.
        key: Random key.
        candidates: Clusters of each sample.
        samples: Number of samples.

    Raises:
        AssertionError: With the law that is broken.
    """
    name = type(reduction).__name__
    first, second = jax.random.split(key)
    scores = jnp.sort(jax.random.uniform(first, (samples, candidates), minval=0.1), axis=1)
    weight = jax.random.uniform(second, (samples,), minval=0.5).at[-1].set(0.0)
    if isinstance(reduction, AbstractAdaptiveReduction):
        # Two passes bring it to a state that is not the first.
        first_pass = _law_of_sums(name, reduction.init(candidates, scores.dtype), scores, weight)
        reduction = _law_of_sums(name, first_pass, scores, weight)
    close = 1e2 * rounding(np.asarray(scores))
    alone = jax.vmap(lambda one: reduction(one[None])[0])(scores)
    agree(f"{name}: the loss of a sample is its own", reduction(scores), alone, close)
    shares = reduction.responsibilities(scores)
    alone = jax.vmap(lambda one: reduction.responsibilities(one[None])[0])(scores)
    agree(f"{name}: memberships of a sample are its own", shares, alone, close)
    require(bool(jnp.all(shares >= 0)), f"{name}: memberships are not negative")
    total = float(jnp.max(jnp.sum(shares, axis=-1)))
    require(total <= 1.0 + close, f"{name}: memberships add up to one at most")
    slope = jax.grad(lambda s: jnp.sum(reduction(s)))(scores)
    agree(f"{name}: memberships are the loss's derivative", shares, slope, 10 * close)


def _law_of_sums(
    name: str, reduction: AbstractAdaptiveReduction, scores: Array, weight: Array
) -> AbstractAdaptiveReduction:
    half = len(weight) // 3

    def sums(part: slice) -> PyTree:
        return reduction.statistics(scores[part], weight[part])

    whole = sums(slice(None))
    parts = jax.tree.map(jnp.add, sums(slice(None, half)), sums(slice(half, None)))
    without = sums(slice(None, -1))
    for law, others in (("over parts add up", parts), ("leave out weightless samples", without)):
        pairs = zip(jax.tree.leaves(whole), jax.tree.leaves(others), strict=True)
        for one, other in pairs:
            close = 1e2 * rounding(np.asarray(one)) * (1.0 + float(jnp.max(jnp.abs(one))))
            agree(f"{name}: sums {law}", one, other, close)
    after = reduction.update(whole)
    before = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), reduction)
    same = eqx.tree_equal(before, jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after))
    require(bool(same), f"{name}: an update keeps structure, shapes and dtypes")
    return after


def check_family(
    family: AbstractPrototypeFamily,
    energy: AbstractSampleEnergy,
    samples: PyTree,
    *,
    key: Key,
    aligner: AbstractAligner | None = None,
    penalty: tuple[float, ...] = (),
    num_clusters: int = 3,
) -> None:
    """Checks that new prototypes lower the energy: that passes of Lloyd's algorithm descend.

    From several random starts, passes are made, and the loss of each is compared with the last.

    Args:
        family: How prototypes follow from aligned samples.
        energy: What they ought to make small.
        samples: Some samples with a leading axis.
        key: Random key.
        aligner: Minimises the energy over the params; None compares samples as they are.
        penalty: Weights of the energy's penalty terms.
        num_clusters: K.

    Raises:
        AssertionError: If the loss rose beyond rounding.
    """
    solver = Lloyd(energy, aligner or NoAlignment(), family)
    samples = jax.vmap(family.normalise)(samples)
    count = jax.tree.leaves(samples)[0].shape[0]
    dtype = jnp.result_type(*jax.tree.leaves(samples))
    batch, step = Batch(samples, jnp.ones((count,), dtype)), eqx.filter_jit(solver.step)
    for each in jax.random.split(key, 3):
        index = jax.random.choice(each, count, (num_clusters,), replace=False)
        seeds = jax.tree.map(lambda leaf, index=index: leaf[index], samples)
        state = solver.init(clusters_of(solver, seeds, penalty))
        memory, last = solver.init_memory(count, num_clusters, dtype), np.inf
        for number in range(_PASSES):
            state, memory = step(state, batch, memory)
            loss = float(state.tally.loss)
            limit = last + 1e2 * rounding(np.asarray(loss, dtype)) * abs(loss)
            require(
                loss <= limit,
                f"{type(family).__name__}: its prototypes do not minimise {type(energy).__name__}; "
                f"the loss rose from {last:.6g} to {loss:.6g} in pass {number}",
            )
            state, last = solver.end_pass(state), loss
