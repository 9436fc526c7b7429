"""What must hold for a reduction: it looks at one sample at a time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.energies import AbstractAdaptiveReduction, AbstractReduction, HardMinimum
from diffclust.testing.drawing import agree, require, rounding
from diffclust.types import Key


def check_reduction(
    reduction: AbstractReduction, *, key: Key, candidates: int = 4, samples: int = 24
) -> None:
    """Checks that a reduction looks at one sample at a time, whatever the chunks and devices.

    Losses and memberships of a batch are those of its samples alone; memberships are not negative,
    add up to one at most, and responsibilities are the loss's derivative by the scores; a loss does
    not fall where scores rise. All this of negative scores, too, unless the loss of them is NaN.
    Where `is_hard` is true, the loss is the least score, of any size, and the sample is its best
    cluster's alone. Of a reduction that follows the samples, sums over two parts add up to those
    over both, samples of weight zero do not count, and the update keeps structure, shapes and
    dtypes.

    Args:
        reduction: The reduction.
        key: Random key.
        candidates: Clusters of each sample.
        samples: Number of samples.

    Raises:
        AssertionError: With the law that is broken.
    """
    name = type(reduction).__name__
    first, second, third = jax.random.split(key, 3)
    scores = jnp.sort(jax.random.uniform(first, (samples, candidates), minval=0.1), axis=1)
    weight = jax.random.uniform(second, (samples,), minval=0.5).at[-1].set(0.0)
    cluster = jnp.argsort(jax.random.uniform(third, scores.shape), axis=1).astype(jnp.int32)
    if reduction.is_adaptive:
        # Two passes bring it to a state that is not the first.
        first_pass = _law_of_sums(
            name, reduction.init(candidates, scores.dtype), scores, weight, cluster
        )
        reduction = _law_of_sums(name, first_pass, scores, weight, cluster)
    _laws_of_one_sample(name, reduction, scores)
    # Negative log-likelihoods have any sign; a reduction that has no loss for them says so by NaN.
    if not bool(jnp.all(jnp.isnan(reduction(scores - 2.0)))):
        _laws_of_one_sample(f"{name} of negative scores", reduction, scores - 2.0)


def _laws_of_one_sample(name: str, reduction: AbstractReduction, scores: Array) -> None:
    atol = 1e2 * rounding(np.asarray(scores))
    alone = jax.vmap(lambda one: reduction(one[None])[0])(scores)
    agree(f"{name}: the loss of a sample is its own", reduction(scores), alone, atol)
    for shares in (reduction.responsibilities, reduction.memberships):
        alone = jax.vmap(lambda one, shares=shares: shares(one[None])[0])(scores)
        agree(f"{name}: memberships of a sample are its own", shares(scores), alone, atol)
        require(bool(jnp.all(alone >= 0)), f"{name}: memberships are not negative")
        total = float(jnp.max(jnp.sum(alone, axis=-1)))
        require(total <= 1.0 + atol, f"{name}: memberships add up to one at most")
    steps = jnp.linspace(0.0, 2.0, 16)[:, None, None]
    rising = jnp.diff(jax.vmap(reduction)(steps + scores[None]), axis=0)
    require(bool(jnp.all(rising >= -atol)), f"{name}: a loss does not fall where scores rise")
    responsibilities = reduction.responsibilities(scores)
    slope = jax.grad(lambda s: jnp.sum(reduction(s)))(scores)
    agree(f"{name}: memberships are the loss's derivative", responsibilities, slope, 10 * atol)
    if reduction.is_hard:
        hard, law = HardMinimum(), f"{name}: is_hard, but"
        for size in (1e-6, 1.0, 1e6):
            loss, least = (jax.vmap(r)(size * scores) / size for r in (reduction, hard))
            agree(f"{law} the loss is not the least score", loss, least, atol)
            shares = reduction.responsibilities(size * scores)
            one = hard.responsibilities(scores)
            agree(f"{law} a sample is not its best cluster's alone", shares, one, 0.0)


def _law_of_sums(
    name: str, reduction: AbstractAdaptiveReduction, scores: Array, weight: Array, cluster: Array
) -> AbstractAdaptiveReduction:
    half = len(weight) // 3

    def sums(part: slice) -> PyTree:
        return reduction.statistics(scores[part], weight[part], cluster[part])

    whole = sums(slice(None))
    parts = jax.tree.map(jnp.add, sums(slice(None, half)), sums(slice(half, None)))
    without = sums(slice(None, -1))
    for law, others in (("over parts add up", parts), ("leave out weightless samples", without)):
        pairs = zip(jax.tree.leaves(whole), jax.tree.leaves(others), strict=True)
        for one, other in pairs:
            atol = 1e2 * rounding(np.asarray(one)) * (1.0 + float(jnp.max(jnp.abs(one))))
            agree(f"{name}: sums {law}", one, other, atol)
    after = reduction.update(whole)
    before = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), reduction)
    same = eqx.tree_equal(before, jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after))
    require(bool(same), f"{name}: an update keeps structure, shapes and dtypes")
    return after
