"""Whole fits by Lloyd's algorithm as one program that can be mapped and differentiated.

`LloydProblem` loops over chunks on the host, and can stop and report; `compiled_lloyd` is one loop
over data that fit in memory, which can be mapped with `jax.vmap` over restarts, bootstrap weights,
penalties or the samples of a simulation. With a fixed number of passes, gradients flow through it.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, PyTree

from diffclust import _validation
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import Memory
from diffclust.solvers.lloyd import Lloyd, LloydState, has_converged, misfit
from diffclust.solvers.lloyd_run import Penalty, clusters_of, has_risen, refilled
from diffclust.solvers.seeding import distances_to_seeds
from diffclust.types import Count, Key, Scalar

_Start = Int[Array, " n"] | Clusters | Key
"""A cluster for each sample, clusters, or a key that draws seeds."""


class CompiledRun(eqx.Module):
    """The result of a compiled run.

    Attributes:
        learned: The clusters under which the samples were last assigned.
        cluster: The cluster of each sample.
        loss: The summed energies; NaN if the run broke down.
        passes: Number of passes, not counting one that raised the loss.
        converged: Whether the last pass changed no assignment.
        params: The alignment of each sample to its cluster.
        risen: Whether a pass raised the loss although only the clusters had changed, which means
            that the family does not minimise the distance.
    """

    learned: Learned
    cluster: Int[Array, " n"]
    loss: Scalar
    passes: Count
    converged: Bool[Array, ""]
    params: Float[Array, "n params"]
    risen: Bool[Array, ""]


def compiled_seeds(
    solver: Lloyd, batch: Batch, num_clusters: int, key: Key
) -> Int[Array, " clusters"]:
    """k-means++ as part of a program: each seed is drawn in proportion to its current energy.

    Args:
        solver: The solver, whose energy measures how far samples are from each other.
        batch: All samples, with their weights.
        num_clusters: K.
        key: Random key.

    Returns:
        Indices of the seeds.

    References:
        Arthur and Vassilvitskii (2007), k-means++: The advantages of careful seeding.
    """
    batch = Batch(batch.samples, _floating(batch))
    keys = jax.random.split(key, num_clusters)
    first = jax.random.categorical(keys[0], jnp.log(batch.weight))

    def draw(carry: tuple[Array, Array], key: Key) -> tuple[tuple[Array, Array], Array]:
        nearest, last = carry
        seed = jax.tree.map(lambda leaf: leaf[last][None], batch.samples)
        to_seed = functools.partial(distances_to_seeds, solver.energy, solver.family, seeds=seed)
        nearest = jnp.minimum(nearest, jax.vmap(to_seed)(batch.samples)[:, 0])
        mass = batch.weight * nearest
        # If every sample coincides with a seed, any will do.
        mass = jnp.where(jnp.any(mass > 0), mass, batch.weight)
        seed = jax.random.categorical(key, jnp.log(mass))
        return (nearest, seed), seed

    nearest = jnp.full_like(batch.weight, jnp.inf)
    _, others = jax.lax.scan(draw, (nearest, first), keys[1:])
    return jnp.append(first[None], others)


def compiled_lloyd(
    solver: Lloyd,
    batch: Batch,
    start: _Start,
    *,
    num_clusters: int,
    penalty: Penalty = (),
    max_passes: int = 100,
    fixed: bool = False,
) -> CompiledRun:
    """Runs Lloyd's algorithm from assignments, clusters or seeds until no assignment changes.

    A pass that raises the loss ends the run, as in `LloydProblem`, and the pass before it is kept;
    with `fixed` all passes are made, and `risen` tells whether this happened. Under the default
    adjoint, params that are searched for are held fixed, so gradients through several passes lack
    the effect of the params on the prototypes (most of the gradient in docs/bilevel.md):
    `Lloyd(..., adjoint="unrolled")` includes it.

    Args:
        solver: The solver.
        batch: All samples.
        start: The cluster of each sample, clusters, or a key for k-means++ seeds.
        num_clusters: K.
        penalty: Weights of the energy's penalty terms, if no clusters are given.
        max_passes: Maximum number of passes.
        fixed: Whether all `max_passes` are made, as reverse-mode differentiation requires.

    Returns:
        The result of the run.

    Raises:
        ValueError: If shapes or types do not match; the values of a traced start are not checked.
    """
    _check(solver, batch, start, num_clusters, penalty)
    _validation.count(max_passes, "max_passes")
    batch = Batch(jax.vmap(solver.normalise)(batch.samples), _floating(batch))
    state, memory = _first_state(solver, batch, start, num_clusters, penalty)

    def goes_on(carry: tuple[PyTree, ...]) -> Bool[Array, ""]:
        run: CompiledRun = carry[2]
        return (run.passes < max_passes) & ~run.converged & ~run.risen & ~jnp.isnan(run.loss)

    def one_pass(carry: tuple[PyTree, ...]) -> tuple[PyTree, ...]:
        state, memory, before, same = carry
        learned, last = state.learned, before.loss
        state, memory = solver.step(state, batch, memory)
        empty, loss = state.tally.count == 0, state.tally.loss
        # A cluster that a refill left empty, while nothing else changed, stays empty.
        refilled_before = ~same & (before.passes > 0)
        converged = (state.tally.changed == 0) & (~jnp.any(empty) | refilled_before)
        converged &= solver.loss_has_converged(loss, last)
        risen = same & has_risen(solver, learned, before.learned, loss, last, state.tally.count)
        state = solver.end_pass(state)
        converged &= has_converged(state.learned.objective, learned.objective)
        chosen = _worst(misfit(solver.reduction_of(state.learned), memory.energy), batch, empty)
        samples = jax.tree.map(lambda leaf: leaf[chosen], batch.samples)
        state = refilled(solver, state, empty, memory.cluster[chosen, 0], samples)
        assigned = memory.cluster[:, 0], loss, before.passes + 1, converged, memory.params[:, 0]
        run = CompiledRun(learned, *assigned, before.risen | risen)
        if not fixed:
            kept = eqx.tree_at(lambda r: r.risen, before, run.risen)
            run = jax.tree.map(functools.partial(jnp.where, risen), kept, run)
        # A refilled cluster may cost more at first.
        after = state, memory, run, ~jnp.any(empty)
        # Parts in double precision must not change the type of the carry.
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, carry)

    none = jnp.zeros((), dtype=jnp.int32)
    assigned = memory.cluster[:, 0], jnp.asarray(jnp.inf, batch.weight.dtype), none, none > 0
    run = CompiledRun(state.learned, *assigned, memory.params[:, 0], none > 0)
    carry = (state, memory, run, none == 0)
    if fixed:
        carry, _ = jax.lax.scan(lambda c, _: (one_pass(c), None), carry, None, length=max_passes)
    else:
        carry = jax.lax.while_loop(goes_on, one_pass, carry)
    return carry[2]


def _check(solver: Lloyd, batch: Batch, start: Any, num_clusters: int, penalty: Penalty) -> None:
    leaves = jax.tree.leaves(batch.samples)
    _validation.sample_arrays(leaves)
    size = leaves[0].shape[0]
    _validation.count(num_clusters, "num_clusters")
    _validation.cluster_count(num_clusters, size, "samples")
    if not isinstance(batch.weight, Tracer):
        _validation.weights(batch.weight, size, "weight", "sample")
    if isinstance(start, Clusters):
        if jax.tree.leaves(penalty):
            raise ValueError("the start's clusters have weights of penalties; leave out penalty")
        if len(start) != num_clusters:
            raise ValueError(f"the start has {len(start)} clusters, num_clusters is {num_clusters}")
        seeds = jax.tree.map(lambda leaf: leaf[:num_clusters], batch.samples)
        no_penalty = (0.0,) * solver.energy.num_penalties
        wanted = eqx.filter_eval_shape(clusters_of, solver, seeds, no_penalty)
        shapes, given = ([leaf.shape for leaf in jax.tree.leaves(c)] for c in (wanted, start))
        if given != shapes:
            raise ValueError(f"the start's clusters must have shapes {shapes}, not {given}")
    elif not isinstance(start, jax.Array | np.ndarray):
        raise ValueError(
            "a start must be a key, Clusters, or an array of a cluster for each sample, not "
            f"{type(start).__name__}"
        )
    elif not jnp.issubdtype(start.dtype, jax.dtypes.prng_key):
        _validation.within(start, size, num_clusters, "a start", "sample")


def _floating(batch: Batch) -> Float[Array, " n"]:
    """Weights, which may be counts of a bootstrap, in the samples' dtype."""
    dtype = jnp.result_type(*jax.tree.leaves(batch.samples))
    return jnp.asarray(batch.weight, dtype=dtype)


def _first_state(
    solver: Lloyd, batch: Batch, start: _Start, num_clusters: int, penalty: Penalty
) -> tuple[LloydState, Memory]:
    """State and memory before the first pass."""
    memory = solver.init_memory(batch.weight.shape[0], num_clusters, batch.weight.dtype)
    if isinstance(start, Clusters):
        return solver.init(start), memory
    if jnp.issubdtype(start.dtype, jax.dtypes.prng_key):
        index = compiled_seeds(solver, batch, num_clusters, start)
        seeds = jax.tree.map(lambda leaf: leaf[index], batch.samples)
        return solver.init(clusters_of(solver, seeds, penalty)), memory
    first = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], num_clusters, axis=0), batch.samples)
    # A group whose samples all have weight zero starts as its plain mean.
    weighs = jax.ops.segment_sum(batch.weight, start, num_clusters) > 0
    weight = jnp.where(weighs[start], batch.weight, 1.0)
    memory = eqx.tree_at(lambda m: m.cluster, memory, memory.cluster.at[:, 0].set(start))
    initial = Lloyd(solver.energy, solver.aligner, solver.family.initial_family)
    state = initial.init(clusters_of(solver, first, penalty))
    state, _ = initial.step(state, Batch(batch.samples, weight), memory, assign=False)
    return solver.init(initial.end_pass(state).learned.clusters), memory


def _worst(
    energy: Float[Array, " n"], batch: Batch, empty: Bool[Array, " clusters"]
) -> Int[Array, " clusters"]:
    """Chooses, for each empty cluster, a different sample of large energy times weight."""
    weighted = jnp.where(batch.weight > 0, energy * batch.weight, -jnp.inf)
    worst = jnp.argsort(-weighted)[: empty.shape[0]]
    places = jnp.minimum(jnp.cumsum(empty, dtype=jnp.int32) - 1, worst.shape[0] - 1)
    return worst[jnp.maximum(places, 0)]
