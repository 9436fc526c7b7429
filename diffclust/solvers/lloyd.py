"""Lloyd's algorithm over any energy and aligner: pure steps on chunks of samples."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Alignment
from diffclust.energies import AbstractReduction, AbstractSampleEnergy, HardMinimum
from diffclust.linalg import product
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import AbstractPrototypeFamily, Clusters, Learned
from diffclust.solvers.base import (
    AbstractSolver,
    Adjoint,
    Memory,
    aligner_for,
    check_parts,
    memory_of,
    zeros_of,
)
from diffclust.types import Count, Scalar


class Tally(eqx.Module):
    """Sums over the samples seen in a pass, per cluster.

    Attributes:
        count: Weight of the samples, as far as they belong to the cluster.
        energy: Their energies, including penalties.
        penalties: Their penalty terms, not yet weighted.
        margin: How much more their second-best clusters would cost.
        changed: How many samples are in a different cluster than in the last pass.
        reduction: The statistics of an adaptive reduction, otherwise None.
    """

    count: Float[Array, " clusters"]
    energy: Float[Array, " clusters"]
    penalties: Float[Array, "clusters terms"]
    margin: Float[Array, " clusters"]
    changed: Count
    reduction: PyTree = None

    @property
    def loss(self) -> Scalar:
        """The penalised distortion of Eq. 2, summed over samples."""
        return jnp.sum(self.energy, axis=-1)


class LloydState(eqx.Module):
    """The state of a pass: what is learned, and the sums so far.

    Attributes:
        learned: Prototypes and penalty weights, fixed within a pass.
        statistics: Sums from which the next prototypes are computed.
        tally: Sums that describe the pass.
    """

    learned: Learned
    statistics: PyTree
    tally: Tally


class Lloyd(AbstractSolver):
    """Lloyd's algorithm: assign every sample to its best cluster, then average the aligned samples.

    Use `init`, then `step` for each chunk of samples, then `end_pass`; all are pure. Any loop over
    them is a fit.

    Attributes:
        energy: The energy of a sample against a cluster.
        aligner: Minimises it over the params. `NoAlignment()` is made to follow all clusters if
            memberships are soft.
        family: Turns aligned samples into prototypes; by default the energy's own (which may be its
            distance's).
        reduction: Turns a sample's energies into its loss and its memberships: with a hard minimum
            the sample belongs to its best cluster, otherwise to all candidates that the aligner
            follows.
        warm_starts: For how many candidates of each sample params are remembered; at least one, as
            the objective could rise between passes otherwise.
        adjoint: How losses are differentiated; see `diffclust.solvers.base.Adjoint`.
        adapts: Whether an adaptive reduction is updated after every pass.

    References:
        Cosentino et al., DI K-means, Algorithm 2; Lloyd (1982).
    """

    energy: AbstractSampleEnergy
    aligner: AbstractAligner
    family: AbstractPrototypeFamily = eqx.field(default=None)
    reduction: AbstractReduction = HardMinimum()  # pyright: ignore[reportIncompatibleMethodOverride]
    warm_starts: int = eqx.field(static=True, default=1, kw_only=True)
    adjoint: Adjoint = eqx.field(static=True, default="envelope", kw_only=True)
    adapts: bool = eqx.field(static=True, default=True, kw_only=True)

    def __post_init__(self):
        """Takes the energy's family if none is given, and all clusters if memberships are soft."""
        check_parts(self.energy, self.aligner, self.reduction)
        if not isinstance(self.energy, AbstractSampleEnergy):
            raise ValueError(
                f"{type(self.energy).__name__} moves prototypes: take it to GradientEM, or an "
                "energy that moves samples, whose means Lloyd's algorithm takes"
            )
        family = self.energy.family if self.family is None else self.family
        if family is None:
            parts = "and its distance name" if hasattr(self.energy, "distance") else "names"
            raise ValueError(
                f"{type(self.energy).__name__} {parts} no prototype family; give one, such as "
                "MeanImages(), as family=, or as a distance's `family`"
            )
        _validation.part(family, AbstractPrototypeFamily, "family")
        self.family = family
        self.aligner = aligner_for(self.aligner, self.reduction)

    def __check_init__(self):
        """Refuses a reduction that learns by gradient steps."""
        reduction, dtype = self.reduction, jnp.result_type(float)
        if not reduction.is_adaptive and reduction.init(2, dtype) is not None:
            name = type(reduction).__name__
            raise ValueError(
                f"{name} learns by gradient steps: take it to GradientEM, or make it an "
                "AbstractAdaptiveReduction, which Lloyd's algorithm updates after every pass"
            )

    def num_remembered(self, num_clusters: int) -> int:
        """All candidates if a sample belongs to all of them; otherwise as many as `warm_starts`."""
        places = self.aligner.num_candidates(num_clusters)
        return min(self.warm_starts, places) if self.reduction.is_hard else places

    @eqx.filter_jit
    def init(self, clusters: Clusters, objective: PyTree = None) -> LloydState:
        """A state before the first step.

        Args:
            clusters: The clusters to start from.
            objective: The state of an adaptive reduction, or None for its initial state.

        Returns:
            A state with empty sums.
        """
        return empty_state(self, self.init_learned(clusters, objective))

    def init_learned(self, clusters: Clusters, objective: PyTree = None) -> Learned:
        """What is learned, before the first step.

        Args:
            clusters: The clusters to start from.
            objective: The state of an adaptive reduction, or None for its initial state.

        Returns:
            The clusters with that state.
        """
        if objective is None:
            objective = self.reduction.init(len(clusters), clusters.penalty.dtype)
        return Learned(clusters, None, objective)

    def normalise(self, sample: PyTree) -> PyTree:
        """Brings a sample to the scale that the prototype family works on."""
        return self.family.normalise(sample)

    def step(
        self,
        state: LloydState,
        batch: Batch,
        memory: Memory,
        *,
        axis_name: str | None = None,
        incremental: bool = False,
        assign: bool = True,
    ) -> tuple[LloydState, Memory]:
        """Assigns one chunk and adds its aligned samples to the sums.

        Args:
            state: The state.
            batch: A chunk of samples.
            memory: Their memory.
            axis_name: Name of a mapped device axis over which the chunk's sums are added, or None.
            incremental: Whether the state's statistics already include the chunk as recorded in the
                memory (`end_pass(..., keep=True)`), so that only samples that changed are moved.
                Only for solvers with `sums_persist`.
            assign: Whether samples are aligned and assigned anew. Otherwise they are added as
                recorded in the memory, which does not change.

        Returns:
            The state with the chunk added, and the chunk's new memory.
        """
        previous = memory.cluster[:, 0]
        if assign:
            alignment = self.assign(state.learned, batch.samples, memory)
            memory = memory_of(alignment, memory.params.shape[1])
        else:
            alignment = jax.vmap(lambda m: Alignment(m.cluster[:1], m.params[:1], m.energy[:1]))(
                memory
            )
        sums = self._sums(state.learned, batch, alignment, previous, incremental=incremental)
        if axis_name is not None:
            sums = jax.lax.psum(sums, axis_name)
        sums = jax.tree.map(jnp.add, (state.statistics, state.tally), sums)
        return LloydState(state.learned, *sums), memory

    def _sums(
        self,
        learned: Learned,
        batch: Batch,
        alignment: Alignment,
        previous: Int[Array, " n"],
        *,
        incremental: bool = False,
    ) -> tuple[PyTree, Tally]:
        """Statistics and tally of one chunk with a given alignment."""
        reduction, count = self.reduction_of(learned), len(learned.clusters)
        best, loss = alignment.cluster[:, 0], alignment.energy[:, 0]
        membership = hard_membership(best, batch.weight, count)
        # How much of a sample belongs to each of its candidates; if hard, only to the first.
        share, mass = batch.weight[:, None], jnp.sum(membership, axis=0)
        if not reduction.is_hard:
            loss = reduction(alignment.energy)
            share = reduction.responsibilities(alignment.energy) * share
            mass = jnp.zeros_like(mass).at[alignment.cluster].add(share)
        # Padding has weight zero, so it has no influence.
        moved = (best != previous) & (batch.weight > 0)
        if incremental:
            statistics = self.moved_sums(learned.clusters, batch, previous, best)
        else:
            statistics = self._statistics(learned.clusters, batch.samples, alignment, share)
        sums = reduction.statistics(alignment.energy, batch.weight, alignment.cluster)
        margin = jax.vmap(lambda a: a.margin)(alignment)
        if not reduction.is_hard and alignment.energy.shape[1] > 1:
            margin = reduction(alignment.energy[:, 1:]) - loss
        margin = jnp.where(jnp.isfinite(margin), margin, 0.0)
        penalties = jax.vmap(self.energy.penalties)(alignment.params[:, 0])
        totals = product(membership.T, jnp.column_stack([loss, margin, penalties]))
        changed = jnp.sum(moved, dtype=jnp.int32)
        return statistics, Tally(mass, totals[:, 0], totals[:, 2:], totals[:, 1], changed, sums)

    def _statistics(
        self, clusters: Clusters, samples: PyTree, alignment: Alignment, share: Array
    ) -> PyTree:
        """Sums of the aligned samples, weighted by how much each belongs to a cluster."""

        def of_candidate(place: int) -> PyTree:
            params = alignment.params[:, place]
            aligned = jax.vmap(self.energy.aligned)(params, samples)
            pixel_weight = jax.vmap(self.energy.pixel_weight)(params, samples)
            membership = hard_membership(
                alignment.cluster[:, place], share[:, place], len(clusters)
            )
            return self.family.statistics(aligned, pixel_weight, membership, clusters.prototype)

        add = functools.partial(jax.tree.map, jnp.add)
        return functools.reduce(add, map(of_candidate, range(share.shape[1])))

    def moved_sums(
        self, clusters: Clusters, batch: Batch, before: Int[Array, " n"], after: Int[Array, " n"]
    ) -> PyTree:
        """The change of the sums when samples without params change their clusters.

        Few samples change in most passes, so only blocks of these are read.

        Args:
            clusters: The clusters.
            batch: Samples with their weights.
            before: The cluster of each.
            after: The cluster that it moves to; the same if it does not move.

        Returns:
            The family's statistics, negative for samples that are removed.
        """

        def sums_of(samples: PyTree, membership: Float[Array, "n clusters"]) -> PyTree:
            none = jnp.zeros((membership.shape[0], 0), membership.dtype)
            aligned = jax.vmap(self.energy.aligned)(none, samples)
            pixel_weight = jax.vmap(self.energy.pixel_weight)(none, samples)
            return self.family.statistics(aligned, pixel_weight, membership, clusters.prototype)

        def added(sums: PyTree, index: Int[Array, " block"]) -> PyTree:
            some = jax.tree.map(lambda leaf: leaf.at[index].get(mode="clip"), batch.samples)
            weight = batch.weight.at[index].get(mode="fill", fill_value=0)
            both = (x.at[index].get(mode="clip") for x in (before, after))
            old, new = (hard_membership(cluster, weight, len(clusters)) for cluster in both)
            return jax.tree.map(jnp.add, sums, sums_of(some, new - old))

        first = jax.tree.map(lambda leaf: leaf[:1], batch.samples)
        nobody = jnp.zeros((1, len(clusters)), batch.weight.dtype)
        zeros = zeros_of(sums_of, first, nobody)
        return over_blocks(added, zeros, (before != after) & (batch.weight > 0), blocks=64)

    @property
    def sums_persist(self) -> bool:
        """Whether a sample contributes the same to the sums of a cluster in every pass.

        This is so without alignment. A pass then updates the sums only by the samples that changed
        their cluster.
        """
        return self.energy.num_params == 0 and self.family.is_additive and self.reduction.is_hard

    def loss_has_converged(
        self, loss: Scalar | float, previous: Scalar | float
    ) -> Bool[Array, ""] | bool:
        """Whether prototypes have converged, given that no sample changed its cluster.

        Args:
            loss: The loss of a pass.
            previous: The loss of the pass before.

        Returns:
            True if memberships are hard and prototypes have a closed form; otherwise, whether the
            loss has converged.
        """
        if self.family.is_additive and self.reduction.is_hard:
            return True
        return abs(previous - loss) <= 1e-6 * abs(loss)

    @eqx.filter_jit
    def end_pass(self, state: LloydState, *, keep: bool = False) -> LloydState:
        """Moves every prototype to the mean of its aligned samples; empty ones do not move.

        An adaptive reduction is updated.

        Args:
            state: A state to which all chunks were added.
            keep: Whether the statistics are kept, for `step(..., incremental=True)`.

        Returns:
            The next pass's state, with empty sums except for what is kept.

        References:
            Cosentino et al., DI K-means, Prop. 1.
        """
        clusters = state.learned.clusters
        prototype = self.family.update(state.statistics, clusters.prototype)
        clusters = eqx.tree_at(lambda c: c.prototype, clusters, prototype)
        objective = state.learned.objective
        if self.reduction.is_adaptive and self.adapts:
            objective = objective.update(state.tally.reduction)
        statistics, tally = jax.tree.map(jnp.zeros_like, (state.statistics, state.tally))
        learned = Learned(clusters, state.learned.shared, objective)
        return LloydState(learned, state.statistics if keep else statistics, tally)


def over_blocks(
    function: Callable[[PyTree, Int[Array, " block"]], PyTree],
    carry: PyTree,
    chosen: Bool[Array, " n"],
    *,
    blocks: int,
) -> Any:
    """Folds a function over the chosen rows, a block at a time.

    Args:
        function: Takes the carry and indices of rows, and returns the new carry; the last block is
            padded with the index n.
        carry: The initial carry.
        chosen: Which rows are chosen.
        blocks: The number of blocks that all n rows would make.

    Returns:
        The final carry.
    """
    count, chosen = chosen.size, jax.lax.optimization_barrier(chosen)
    size = max(1, count // blocks)
    # The result of `jnp.nonzero`, in less time.
    place, rows = jnp.cumsum(chosen, dtype=jnp.int32), jnp.arange(count, dtype=jnp.int32)
    index = jnp.full(count + size, count, jnp.int32)
    index = index.at[jnp.where(chosen, place - 1, count + size)].set(rows, mode="drop")

    def one(state: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
        start, carry = state
        return start + size, function(carry, jax.lax.dynamic_slice(index, (start,), (size,)))

    state = jnp.zeros((), jnp.int32), carry
    return jax.lax.while_loop(lambda state: state[0] < place[-1], one, state)[1]


def hard_membership(
    cluster: Int[Array, " n"], weight: Float[Array, " n"], count: int
) -> Float[Array, "n clusters"]:
    """Memberships of samples that belong to one cluster each.

    Args:
        cluster: The cluster of each sample.
        weight: Their weights.
        count: Number of clusters.

    Returns:
        The weight in the column of the cluster, and zeros elsewhere.
    """
    return jax.nn.one_hot(cluster, count, dtype=weight.dtype) * weight[:, None]


def total_share(reduction: AbstractReduction, scores: Float[Array, "n candidates"]) -> Array:
    """Sum of the memberships of each sample.

    Args:
        reduction: The reduction.
        scores: Scores of the candidates of each sample.

    Returns:
        One number per sample, at most one.
    """
    return jnp.sum(reduction.responsibilities(scores), axis=-1)


def misfit(reduction: AbstractReduction, scores: Float[Array, "n candidates"]) -> Array:
    """Energy of each sample in its best cluster, weighted by its memberships.

    Args:
        reduction: The reduction.
        scores: Scores of the candidates of each sample, ascending.

    Returns:
        One number per sample; empty clusters are refilled with the samples for which it, times the
        sample's weight, is largest.
    """
    if reduction.is_hard:
        return scores[:, 0]
    return scores[:, 0] * total_share(reduction, scores)


def has_converged(now: PyTree, before: PyTree) -> Bool[Array, ""] | bool:
    """Whether an adaptive reduction has converged.

    Args:
        now: Its state after a pass (`Learned.objective`).
        before: Its state before the pass.

    Returns:
        Whether no number has changed by more than 1e-5 of itself; true if there are none.
    """
    pairs = zip(jax.tree.leaves(now), jax.tree.leaves(before), strict=True)
    close = [
        jnp.all(jnp.where(jnp.isfinite(b), jnp.abs(a - b) <= 1e-5 * jnp.abs(b), a == b))
        for a, b in pairs
    ]
    return jnp.all(jnp.stack(close)) if close else True


def empty_state(solver: Lloyd, learned: Learned) -> LloydState:
    """A state with empty sums of the right shapes.

    Args:
        solver: The solver.
        learned: What is learned.

    Returns:
        The state.
    """
    clusters, params = learned.clusters, solver.energy.num_params
    places, dtype = solver.aligner.num_candidates(len(clusters)), clusters.penalty.dtype
    first = jax.tree.map(lambda leaf: leaf[:1], clusters.prototype)
    energies, cluster = jnp.zeros((1, places), dtype), jnp.zeros((1, places), jnp.int32)
    alignment = jax.vmap(Alignment)(cluster, jnp.zeros((1, places, params), dtype), energies)
    batch = Batch(jax.vmap(solver.energy.exemplar)(first), energies[:, 0])
    return LloydState(learned, *zeros_of(solver._sums, learned, batch, alignment, cluster[:, 0]))
