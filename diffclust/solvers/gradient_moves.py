"""Split-and-merge moves between gradient steps: out of optima where two kinds share a cluster.

Removing a cluster costs its samples' margins, which every assignment knows. Splitting one gains
what two prototypes save on its samples: its samples' gradients by the prototype are parted along
their leading principal direction, and the prototype takes a step along the mean gradient of either
side. A move that gains more than it costs lowers the loss at once, before any further training.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import Batch, Memory
from diffclust.solvers.gradient import GradientEM, GradientState, cleared, regrouped
from diffclust.solvers.principal import leading_direction

_STEPS = (0.0625, 0.125, 0.25, 0.5, 1.0)
"""Lengths that are tried of the steps apart; of a squared distance, half a gradient is exact."""


class Move(eqx.Module):
    """What could be gained by splitting each cluster, and what each would cost to remove.

    Attributes:
        gain: How much the loss would fall, summed over samples.
        cost: How much it would rise.
        loss: The loss itself.
        children: For each cluster the two prototypes it would be split into.
    """

    gain: Float[Array, " clusters"]
    cost: Float[Array, " clusters"]
    loss: Float[Array, ""]
    children: PyTree


def _sides(
    slopes: Float[Array, "n pixels"], member: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Weights of the samples on either side of the members' mean along their main direction."""
    mean = (member @ slopes) / jnp.maximum(jnp.sum(member), 1.0)
    centred = (slopes - mean[None]) * member[:, None]
    direction = leading_direction(centred, iterations=8)
    first = (centred @ direction > 0).astype(slopes.dtype) * member
    return first, member - first


@eqx.filter_jit
def propose(solver: GradientEM, learned: Learned, batch: Batch, memory: Memory | None) -> Move:
    """Weighs all splits and removals.

    Args:
        solver: The solver.
        learned: What is learned.
        batch: Some of the samples.
        memory: Their memory, or None.

    Returns:
        Gains and costs.
    """
    found = solver.assign(learned, batch.samples, memory)
    clusters, count = learned.clusters, len(learned.clusters)
    own, params = found.cluster[:, 0], found.params[:, 0]
    number = jnp.arange(count, dtype=own.dtype)
    member = (own[:, None] == number[None]).astype(batch.weight.dtype) * batch.weight[:, None]

    def energy(sample: PyTree, move: Array, cluster: Clusters) -> Array:
        return solver.energy.bind(sample)(move, sample, cluster)

    def slope(sample: PyTree, move: Array, index: Array) -> PyTree:
        cluster = clusters.take(index)

        def of(prototype: PyTree) -> Array:
            moved = eqx.tree_at(lambda c: c.prototype, cluster, prototype)
            return energy(sample, move, moved)

        return jax.grad(of)(cluster.prototype)

    slopes = jax.vmap(slope)(batch.samples, params, own)
    leaves, structure = jax.tree.flatten(slopes)
    rows = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)
    sides = jax.lax.map(lambda m: jnp.stack(_sides(rows, m)), member.T)
    share = sides / jnp.maximum(jnp.sum(sides, axis=2, keepdims=True), 1.0)
    means = [
        jnp.einsum("ksn,n...->ks...", share, leaf, precision=jax.lax.Precision.HIGHEST)
        for leaf in leaves
    ]
    direction = jax.tree.unflatten(structure, means)

    before = jax.vmap(lambda x, p, k: energy(x, p, clusters.take(k)))(batch.samples, params, own)

    def gain(length: float) -> Float[Array, " clusters"]:
        children = jax.tree.map(lambda c, d: c[:, None] - length * d, clusters.prototype, direction)

        def least(sample: PyTree, move: Array, index: Array) -> Array:
            cluster = clusters.take(index)
            twins = jax.tree.map(lambda leaf: leaf[index], children)

            def one(prototype: PyTree) -> Array:
                return energy(sample, move, eqx.tree_at(lambda c: c.prototype, cluster, prototype))

            return jnp.min(jax.vmap(one)(twins))

        after = jax.vmap(least)(batch.samples, params, own)
        return member.T @ (before - after)

    gains = jnp.stack([gain(length) for length in _STEPS])
    lengths = jnp.asarray(_STEPS, dtype=gains.dtype)[jnp.argmax(gains, axis=0)]

    def parted(c: Array, d: Array) -> Array:
        return c[:, None] - lengths.reshape(-1, *[1] * (d.ndim - 1)) * d

    children = jax.tree.map(parted, clusters.prototype, direction)
    margin = jax.vmap(lambda a: a.margin)(found)
    cost = member.T @ jnp.where(jnp.isfinite(margin), margin, 0.0)
    loss = jnp.dot(solver.reduction(found.energy), batch.weight)
    return Move(jnp.max(gains, axis=0), cost, loss, children)


def chosen(move: Move, *, least: float) -> tuple[int, int] | None:
    """The best move, if it is worth it.

    Args:
        move: Gains and costs.
        least: The least net gain that is worth a move, as a fraction of the loss.

    Returns:
        The cluster that is split and the one that makes room, or None.
    """
    gain, cost = np.asarray(move.gain, np.float64), np.asarray(move.cost, np.float64)
    net = gain[:, None] - cost[None]
    np.fill_diagonal(net, -np.inf)
    split, removed = np.unravel_index(int(np.argmax(net)), net.shape)
    if not net[split, removed] > least * abs(float(move.loss)):
        return None
    return int(split), int(removed)


@eqx.filter_jit
def apply(
    state: GradientState,
    children: PyTree,
    split: Int[Array, ""],
    removed: Int[Array, ""],
) -> GradientState:
    """Splits one cluster in two, the second half in the place of another.

    Heads, mixture weights and the optimiser's moments of both are those of the one that is split.

    Args:
        state: The state.
        children: For each cluster the two prototypes it would be split into.
        split: The cluster that is split.
        removed: The cluster that makes room.

    Returns:
        The state, its tally cleared.
    """
    number = jnp.arange(len(state.learned.clusters))
    state = regrouped(state, jnp.where(number == removed, split, number))
    prototype = jax.tree.map(
        lambda leaf, twins: leaf.at[split].set(twins[split, 0]).at[removed].set(twins[split, 1]),
        state.learned.clusters.prototype,
        children,
    )
    learned = eqx.tree_at(lambda tree: tree.clusters.prototype, state.learned, prototype)
    return cleared(state, learned)
