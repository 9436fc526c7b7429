"""What must hold for a reduction: it looks at one sample at a time."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust.energies import AbstractAdaptiveReduction, AbstractReduction
from diffclust.testing.drawing import agree, close, generator, require, rounding
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
    over both, samples count by their weights, and the update keeps structure, shapes and
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
    rng, shape, dtype = generator(key), (samples, candidates), jnp.result_type(float)
    scores = np.sort(rng.uniform(0.1, 1.0, shape), axis=1).astype(dtype)
    scores[: samples // 3] *= 0.5  # a part that is unlike the whole
    weight = rng.uniform(0.5, 1.0, samples).astype(dtype)
    weight[-1] = 0.0
    given = (scores, weight, rng.uniform(size=shape).argsort(axis=1).astype(np.int32))
    if reduction.is_adaptive:
        # Two passes bring it to a state that is not the first.
        first_pass = _law_of_sums(name, reduction.init(candidates, scores.dtype), *given)
        reduction = _law_of_sums(name, first_pass, *given)
    offsets = reduction.offsets(reduction.init(candidates, scores.dtype), candidates)
    if offsets is not None:
        law = f"{name}: offsets are one finite number a cluster; of {candidates} clusters "
        law += f"(candidates= sets how many) they have shape {offsets.shape}"
        require(offsets.shape == (candidates,) and bool(np.isfinite(offsets).all()), law)
    _laws_of_one_sample(name, reduction, scores)
    negative = scores - scores.dtype.type(2.0)
    # Where a sample is a prototype, and where it is all of them.
    scores[:, 0], scores[1] = 0.0, 0.0
    found = jax.tree.map(np.asarray, _of_samples(reduction, jax.device_put(scores)))
    law = f"{name}: losses, slopes and memberships are finite where a score is zero"
    require(all(np.isfinite(each).all() for each in jax.tree.leaves(found)), law)
    law = f"{name}: memberships are the loss's derivative where a score is zero"
    agree(law, found.shares[0][2:], found.slope[2:], 1e3 * rounding(scores))
    # Negative log-likelihoods have any sign; a reduction that has no loss for them says so by NaN.
    if not np.all(np.isnan(np.asarray(_of_samples(reduction, jax.device_put(negative)).losses))):
        _laws_of_one_sample(f"{name} of negative scores", reduction, negative)


class _OfSamples(NamedTuple):
    """What a reduction says of all samples, and of each alone."""

    losses: Array
    losses_alone: Array
    shares: tuple[Array, Array]
    shares_alone: tuple[Array, Array]
    rising: Array
    slope: Array


@eqx.filter_jit
def _of_samples(reduction: AbstractReduction, scores: Array) -> _OfSamples:
    """Evaluates a reduction, and differentiates it; both of its memberships."""

    def alone(function: Callable[[Array], Array]) -> Array:
        return jax.vmap(lambda one: function(one[None])[0])(scores)

    each = (reduction.responsibilities, reduction.memberships)
    steps = jnp.linspace(0.0, 2.0, 16, dtype=scores.dtype)[:, None, None]
    return _OfSamples(
        reduction(scores),
        alone(reduction),
        (each[0](scores), each[1](scores)),
        (alone(each[0]), alone(each[1])),
        jnp.diff(jax.vmap(reduction)(steps + scores[None]), axis=0),
        jax.grad(lambda s: jnp.sum(reduction(s)))(scores),
    )


def _laws_of_one_sample(name: str, reduction: AbstractReduction, scores: np.ndarray) -> None:
    atol = 1e2 * rounding(scores)
    found = jax.tree.map(np.asarray, _of_samples(reduction, jax.device_put(scores)))
    agree(f"{name}: the loss of a sample is its own", found.losses, found.losses_alone, atol)
    for shares, alone in zip(found.shares, found.shares_alone, strict=True):
        agree(f"{name}: memberships of a sample are its own", shares, alone, atol)
        require(bool(np.all(alone >= 0)), f"{name}: memberships are not negative")
        total = float(np.max(np.sum(alone, axis=-1)))
        require(total <= 1.0 + atol, f"{name}: memberships add up to one at most")
    rises = bool(np.all(found.rising >= -atol))
    require(rises, f"{name}: a loss does not fall where scores rise")
    law = f"{name}: memberships are the loss's derivative"
    agree(law, found.shares[0], found.slope, 10 * atol)
    if reduction.is_hard:
        law, one = f"{name}: is_hard, but", np.eye(scores.shape[1], dtype=scores.dtype)
        for size in np.asarray([1e-6, 1.0, 1e6], scores.dtype):
            scaled = size * scores
            found = jax.tree.map(np.asarray, _of_samples(reduction, jax.device_put(scaled)))
            least, best = scaled.min(axis=-1) / size, one[scaled.argmin(axis=-1)]
            agree(f"{law} the loss is not the least score", found.losses / size, least, atol)
            agree(f"{law} a sample is not its best cluster's alone", found.shares[0], best, 0.0)


@eqx.filter_jit
def _sums_and_update(
    reduction: AbstractAdaptiveReduction, scores: Array, weight: Array, cluster: Array
) -> tuple[list[PyTree], AbstractAdaptiveReduction]:
    """Sums over all, two parts added, all but the last, a copy more; and the next state."""
    third = len(weight) // 3

    def sums(part: slice) -> PyTree:
        return reduction.statistics(scores[part], weight[part], cluster[part])

    whole = sums(slice(None))
    parts = jax.tree.map(jnp.add, sums(slice(None, third)), sums(slice(third, None)))
    # The first sample twice, with half of its weight.
    twice = jnp.concatenate([jnp.zeros(1, dtype=jnp.int32), jnp.arange(len(weight))])
    halved = jnp.concatenate([weight[:1] / 2, weight[:1] / 2, weight[1:]])
    copies = reduction.statistics(scores[twice], halved, cluster[twice])
    return [whole, parts, sums(slice(None, -1)), copies], reduction.update(whole)


def _law_of_sums(
    name: str, reduction: AbstractAdaptiveReduction, *given: np.ndarray
) -> AbstractAdaptiveReduction:
    (whole, *others), after = _sums_and_update(reduction, *jax.device_put(given))
    laws = "over parts add up", "leave out weightless samples", "follow the weights"
    for law, these in zip(laws, others, strict=True):
        close(f"{name}: sums {law}", these, whole)
    before = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), reduction)
    same = eqx.tree_equal(before, jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), after))
    require(bool(same), f"{name}: an update keeps structure, shapes and dtypes")
    return after
