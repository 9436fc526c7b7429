"""Split-and-merge moves, which escape from optima in which two classes share one cluster.

Most errors of a plain run are two classes in one cluster while another class occupies two. Removing
a cluster costs its samples' margins, which every pass computes; splitting one saves what two
prototypes gain on its samples. For Lloyd's algorithm, this is measured by a small run on those
samples. For gradient steps, the samples' gradients with respect to the prototype are divided along
their leading principal direction, and the prototype takes a few steps along the mean gradient of
either side.
"""

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from diffclust.energies import AbstractReduction
from diffclust.linalg import product
from diffclust.parallel.chunks import Batch, Chunks
from diffclust.parallel.exported import exported_jit
from diffclust.prototypes import Clusters, Learned
from diffclust.prototypes.base import column
from diffclust.solvers.base import Memory
from diffclust.solvers.gradient import GradientEM, GradientState, cleared, regrouped
from diffclust.solvers.lloyd import Lloyd, LloydState, hard_membership, total_share
from diffclust.solvers.lloyd_run import LloydRun, Stopping, lloyd_iterations


@dataclasses.dataclass(frozen=True)
class SplitMerge:
    """The number of moves that are tried after a run of Lloyd's algorithm.

    Attributes:
        rounds: Maximum number of moves accepted in one run; 0 turns them off.
        attempts: Number of proposals tried before giving up.
        split_passes: Number of passes of the trial run on the samples of one cluster.
        split_samples: Maximum number of a cluster's samples used for its trial split.
    """

    rounds: int = 20
    attempts: int = 3
    split_passes: int = 4
    split_samples: int = 1024


def power_iteration(
    centred: Float[Array, "n features"], *, iterations: int
) -> Float[Array, " features"]:
    """The leading principal direction, by the power method from the longest row.

    Args:
        centred: Rows whose (weighted) mean is zero.
        iterations: Number of steps; a few are enough to divide two groups of rows.

    Returns:
        A vector of length one; zero if all rows are.
    """
    tiny = jnp.finfo(centred.dtype).tiny
    centred = centred * _exact_scale(jnp.max(jnp.abs(centred)))

    def step(_: Array | int, direction: Float[Array, " features"]) -> Float[Array, " features"]:
        direction = product(centred.T, product(centred, direction))
        return direction / jnp.maximum(jnp.sqrt(jnp.sum(direction**2)), tiny)

    return jax.lax.fori_loop(0, iterations, step, centred[jnp.argmax(jnp.sum(centred**2, axis=1))])


def _exact_scale(size: Float[Array, ""]) -> Float[Array, ""]:
    """The power of four that brings a number to about one; multiplication by it is exact."""
    exponent = jnp.frexp(size)[1]
    return jnp.ldexp(jnp.ones_like(size), -2 * (exponent // 2))


def flat_rows(tree: PyTree) -> Float[Array, "n numbers"]:
    """All numbers of each sample of a tree in one row.

    Args:
        tree: Arrays with a leading axis of samples.

    Returns:
        One row for each sample.
    """
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)


def _half_weights(
    rows: Float[Array, "n numbers"], weight: Float[Array, " n"], *, iterations: int
) -> Float[Array, "2 n"]:
    """Weights of each row in the means of the two sides of the rows' weighted mean.

    Args:
        rows: The rows to divide along their leading principal direction.
        weight: Weights of the rows.
        iterations: Steps of the power method.

    Returns:
        Shares that sum to one on each side; zero if a side has no rows.
    """
    weight = weight * _exact_scale(jnp.max(weight))
    mean = product(weight, rows) / jnp.maximum(jnp.sum(weight), 1e-30)
    centred = (rows - mean[None]) * jnp.sqrt(weight)[:, None]
    direction = power_iteration(centred, iterations=iterations)
    side = (product(centred, direction) > 0).astype(rows.dtype)
    sides = jnp.stack([side, 1.0 - side]) * weight[None]
    return sides / jnp.maximum(jnp.sum(sides, axis=1, keepdims=True), 1e-30)


# Lloyd's algorithm.


def _filled(values: Float[Array, "n ..."], weight: Float[Array, " n"]) -> Float[Array, "n ..."]:
    """Values in which missing ones (NaN) are replaced by the mean of the observed, or by zero."""
    seen = ~jnp.isnan(values)
    observed = jnp.where(seen, values, 0.0)
    mean = jnp.tensordot(weight, observed, 1, precision="highest")
    share = jnp.tensordot(weight, seen.astype(values.dtype), 1, precision="highest")
    return jnp.where(seen, values, (mean / jnp.where(share > 0, share, 1.0))[None])


@exported_jit
def _halved(
    solver: Lloyd,
    samples: PyTree,
    params: Array,
    weight: Array,
    learned: Learned,
    cluster: Int[Array, ""],
) -> LloydState:
    aligned = jax.vmap(solver.energy.aligned)(params, samples)
    seen = jax.vmap(solver.energy.pixel_weight)(params, samples)
    if seen is not None:
        aligned = jax.tree.map(lambda leaf: jnp.where(seen > 0, leaf, jnp.nan), aligned)
    aligned = jax.tree.map(lambda leaf: _filled(leaf, weight), aligned)
    share = _half_weights(flat_rows(aligned), weight, iterations=12)[::-1]
    means = jax.tree.map(
        lambda leaf: product(share, leaf.reshape(leaf.shape[0], -1)).reshape(2, *leaf.shape[1:]),
        aligned,
    )
    prototype = jax.vmap(lambda mean: solver.family.init(solver.family.normalise(mean)))(means)
    both, count = jnp.stack([cluster, cluster]), len(learned.clusters)
    children = eqx.tree_at(lambda c: c.prototype, learned.clusters.take(both), prototype)
    # Both children inherit the cluster's state of the reduction, such as a price.
    objective = jax.tree.map(
        lambda leaf: leaf[both] if leaf.shape[:1] == (count,) else leaf, learned.objective
    )
    return solver.init(children, objective)


def try_split(
    solver: Lloyd,
    chunks: Chunks,
    run: LloydRun,
    cluster: int,
    settings: SplitMerge,
    rng: np.random.Generator,
) -> tuple[float, Clusters] | None:
    """Splits one cluster on trial.

    Args:
        solver: The solver.
        chunks: The data.
        run: A converged run.
        cluster: The index of the cluster.
        settings: Determine the length of the trial.
        rng: Draws the samples of the trial.

    Returns:
        How much two prototypes would save, and the two; None if the cluster is too small to be
        split.
    """
    weight = chunks.weights[: chunks.num_samples]
    assignments = chunks.collect(run.memory, lambda past: past.cluster[:, 0])
    members = np.flatnonzero((assignments == cluster) & (weight > 0))
    if members.size < 4:
        return None
    some = members
    if members.size > settings.split_samples:
        some = np.sort(rng.choice(members, settings.split_samples, replace=False))
    # One size for the trials of all clusters, so that it compiles once, with little padding.
    usual = min(chunks.num_samples / len(run.learned.clusters), settings.split_samples)
    size = min(chunks.size, 2 ** math.ceil(math.log2(max(16.0, usual))))
    part = chunks.subset(some, size=size)
    past = chunks.rows_of(run.memory, some)
    params = past.params[:, 0]
    padded = np.pad(params, ((0, part.weights.size - some.size), (0, 0)))
    samples = part.gather(np.arange(part.weights.size))
    losses, weights = past.energy[:, 0], np.array(part.weights)
    if not solver.reduction.is_hard:
        energy = np.pad(past.energy, ((0, part.weights.size - some.size), (0, 0)))
        reduction = solver.reduction_of(run.learned)
        losses, shares = map(np.asarray, _losses(reduction, jax.device_put(energy)))
        losses = losses[: some.size]
        # Trimmed samples do not count.
        weights[: some.size] *= shares[: some.size]
    moved, share, place = jax.device_put((padded, weights, np.array(cluster)))
    state = _halved(solver, samples, moved, share, run.learned, place)
    memory = tuple(solver.init_memory(part.own_size, 2, params.dtype) for _ in range(part.count))
    stopping = Stopping(settings.split_passes, 1e-3)
    if solver.reduction.is_adaptive:
        # Adapting to the samples of one cluster would change the objective.
        solver = dataclasses.replace(solver, adapts=False)
    trial = lloyd_iterations(solver, part, state, memory, stopping)
    before = float(np.sum(losses * weight[some]))
    scale = float(weight[members].sum() / weight[some].sum())
    return (before - trial.loss) * scale, trial.learned.clusters


@eqx.filter_jit
def _losses(reduction: AbstractReduction, energy: Array) -> tuple[Array, Array]:
    """Losses of samples, and the shares with which they count."""
    return reduction(energy), total_share(reduction, energy)


def best_pairs(
    gains: Sequence[float | None],
    costs: Sequence[float],
    is_worth: Callable[[float, float], bool],
    *,
    most: int,
) -> list[tuple[int, int]]:
    """The pairs of clusters with the largest net gain: one to be split and one to be removed.

    Args:
        gains: What splitting each cluster saves; None if it cannot be split.
        costs: What removing each cluster costs.
        is_worth: Whether a pair is worth a trial, given its net gain and the gain of the split.
        most: Maximum number of pairs.

    Returns:
        For each pair, the cluster to be split and the one to be removed: best first, up to the
        first that is not worth a trial.
    """
    pairs = (
        (costs[removed] - gain, split, removed)
        for split, removed in itertools.permutations(range(len(costs)), 2)
        if (gain := gains[split]) is not None
    )
    best = heapq.nsmallest(most, pairs)
    worth = itertools.takewhile(lambda pair: is_worth(-pair[0], gains[pair[1]] or 0.0), best)
    return [(split, removed) for _, split, removed in worth]


def changed_clusters(chunks: Chunks, before: LloydRun, after: LloydRun) -> set[int]:
    """Clusters in which more than a tenth of the samples came or went.

    Args:
        chunks: The data.
        before: A run.
        after: Another run with the same number of clusters.

    Returns:
        Their indices.
    """
    old, new = (chunks.collect(run.memory, lambda m: m.cluster[:, 0]) for run in (before, after))
    moved = old != new
    sizes = functools.partial(np.bincount, minlength=len(before.learned.clusters))
    changes = sizes(old[moved]) + sizes(new[moved])
    return set(np.flatnonzero(changes > 0.1 * np.maximum(1, sizes(old))).tolist())


# Gradient steps.

_STEPS = (0.0, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Step lengths that are tried for the two sides; half a gradient is exact for squared distances."""

_ROUNDS = 2
"""Number of further steps, in which each sample counts with the nearer child."""


class SplitProposals(eqx.Module):
    """Gains of splitting each cluster, and costs of removing each.

    Attributes:
        gain: How much the loss would fall by a split, summed over samples.
        cost: How much it would rise by a removal.
        loss: The loss itself.
        children: For each cluster, the two prototypes it would be split into.
    """

    gain: Float[Array, " clusters"]
    cost: Float[Array, " clusters"]
    loss: Float[Array, ""]
    children: PyTree


def _moved(leaves: list[Array], place: int, length: Array, slope: Array) -> list[Array]:
    """Leaves, one of which has taken a step down its slope, with a length for each cluster."""
    moved = leaves[place] - column(length, slope.ndim) * slope
    return [*leaves[:place], moved, *leaves[place + 1 :]]


@exported_jit
def propose_splits(
    solver: GradientEM, learned: Learned, batch: Batch, memory: Memory | None
) -> SplitProposals:
    """Evaluates all splits and removals.

    Every sample has the weight that it has under the current reduction: a trimmed sample does not
    count, even if a split would bring it nearer.

    Args:
        solver: The solver.
        learned: The learned arrays.
        batch: Some of the samples.
        memory: Their memory, or None.

    Returns:
        Gains and costs.
    """
    alignment = solver.assign(learned, batch.samples, memory)
    clusters, count = learned.clusters, len(learned.clusters)
    own, params = alignment.cluster[:, 0], alignment.params[:, 0]
    reduction = solver.reduction_of(learned)
    member = hard_membership(own, batch.weight * total_share(reduction, alignment.energy), count)

    def energy(prototype: PyTree, sample: PyTree, params: Array, index: Array) -> Array:
        cluster = eqx.tree_at(lambda c: c.prototype, clusters.take(index), prototype)
        return solver.energy.bind(sample)(params, sample, cluster)

    def of_own(function: Callable[..., PyTree], prototypes: PyTree) -> PyTree:
        def one(sample: PyTree, params: Array, index: Array) -> PyTree:
            mine = jax.tree.map(lambda leaf: leaf[index], prototypes)
            return function(mine, sample, params, index)

        return jax.vmap(one)(batch.samples, params, own)

    of_children = jax.vmap(energy, in_axes=(0, None, None, None))
    slopes_of_children = jax.vmap(jax.grad(energy), in_axes=(0, None, None, None))
    before = of_own(energy, clusters.prototype)
    lengths = jnp.asarray(_STEPS, before.dtype)

    structure = jax.tree.structure(clusters.prototype)

    def gain(
        now: list[Array], place: int, slope: Array, length: Array
    ) -> Float[Array, " clusters"]:
        children = structure.unflatten(_moved(now, place, jnp.full(count, length), slope))
        return member.T @ (before - jnp.min(of_own(of_children, children), axis=1))

    def descend(children: PyTree, share: Float[Array, "clusters 2 n"]) -> tuple[PyTree, Array]:
        """Both children after a step along the mean gradients of their sides, and the gains."""
        mean = functools.partial(jnp.einsum, "ksn,ns...->ks...", share, precision="highest")
        direction = jax.tree.map(mean, of_own(slopes_of_children, children))
        now, gains = jax.tree.leaves(children), jnp.zeros(count, before.dtype)
        # Leaf by leaf: means and deviations take steps of different lengths.
        for place, slope in enumerate(jax.tree.leaves(direction)):
            # One length at a time, so that the energy is traced once for all.
            gains = jax.lax.map(functools.partial(gain, now, place, slope), lengths)
            now = _moved(now, place, lengths[jnp.argmax(gains, axis=0)], slope)
            gains = jnp.max(gains, axis=0)
        return structure.unflatten(now), gains

    def again(_: Array | int, split: tuple[PyTree, Array, Array]) -> tuple[PyTree, Array, Array]:
        children, gains = descend(*split[:2])
        nearer = jnp.argmin(of_own(of_children, children), axis=1)
        sides = jax.nn.one_hot(nearer, 2, axis=0, dtype=member.dtype)[None] * member.T[:, None]
        total = jnp.sum(sides, axis=2, keepdims=True)
        return children, sides / jnp.maximum(total, 1e-30), gains

    slopes = of_own(jax.grad(energy), clusters.prototype)
    shares = functools.partial(_half_weights, flat_rows(slopes), iterations=8)
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf], axis=1), clusters.prototype)
    split = both, jax.lax.map(shares, member.T), jnp.zeros(count, before.dtype)
    children, _, gains = jax.lax.fori_loop(0, _ROUNDS + 1, again, split)
    margin = jax.vmap(lambda a: a.margin)(alignment)
    cost = member.T @ jnp.where(jnp.isfinite(margin), margin, 0.0)
    loss = jnp.dot(reduction(alignment.energy), batch.weight)
    return SplitProposals(gains, cost, loss, children)


@exported_jit
def apply_split_merge(
    state: GradientState, children: PyTree, split: Int[Array, ""], removed: Int[Array, ""]
) -> GradientState:
    """Splits one cluster in two; the second half replaces another cluster.

    The heads, mixture weights and optimiser's moments of both are those of the split cluster.

    Args:
        state: The state.
        children: For each cluster, the two prototypes it would be split into.
        split: The cluster to be split.
        removed: The cluster to be replaced.

    Returns:
        The state, with an empty tally.
    """
    number = jnp.arange(len(state.learned.clusters))
    state = regrouped(state, jnp.where(number == removed, split, number))
    prototype = jax.tree.map(
        lambda leaf, pairs: leaf.at[split].set(pairs[split, 0]).at[removed].set(pairs[split, 1]),
        state.learned.clusters.prototype,
        children,
    )
    learned = eqx.tree_at(lambda tree: tree.clusters.prototype, state.learned, prototype)
    return cleared(state, learned)
