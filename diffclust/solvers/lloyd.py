"""Lloyd's algorithm over any energy and aligner: pure steps on chunks of samples."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust.alignment import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.prototypes import AbstractPrototypeFamily, Clusters, Learned
from diffclust.types import Count, Scalar


class Batch(eqx.Module):
    """Samples and their weights; a weight of zero marks padding.

    Attributes:
        samples: A tree with a leading axis.
        weight: Weights of the samples.
    """

    samples: PyTree
    weight: Float[Array, " n"]


class Memory(eqx.Module):
    """What is remembered of each sample between passes.

    Attributes:
        cluster: The candidates of the last pass, best first; -1 where there are none yet.
        energy: Their energies, ascending.
        params: Warm starts: the params of the first few of them.
    """

    cluster: Int[Array, "n candidates"]
    energy: Float[Array, "n candidates"]
    params: Float[Array, "n warm params"]


class Tally(eqx.Module):
    """Sums over the samples seen in a pass, cluster by cluster.

    Attributes:
        count: Weight of the samples assigned.
        energy: Their energies, penalties included.
        penalties: Their penalty terms, not yet weighted.
        margin: What their second-best clusters would cost more.
        changed: How many samples have another cluster than in the last pass.
    """

    count: Float[Array, " clusters"]
    energy: Float[Array, " clusters"]
    penalties: Float[Array, "clusters terms"]
    margin: Float[Array, " clusters"]
    changed: Count

    @property
    def loss(self) -> Scalar:
        """The penalised distortion of Eq. 2, summed over samples."""
        return jnp.sum(self.energy)


class LloydState(eqx.Module):
    """The state of a pass: what is learned, and the sums so far.

    Attributes:
        learned: Prototypes and penalty weights, fixed within a pass.
        statistics: Sums from which the next prototypes follow.
        tally: Sums that tell how the pass went.
    """

    learned: Learned
    statistics: PyTree
    tally: Tally


class Lloyd(eqx.Module):
    """Lloyd's algorithm: assign every sample to its best cluster, then average what was aligned.

    `init`, `step` for each chunk of samples, `end_pass`; all pure. Any loop over them is a fit.

    Attributes:
        energy: The energy of a sample against a cluster.
        aligner: Minimises it over the params.
        family: Turns aligned samples into prototypes.
        warm_starts: How many candidates' params are remembered of each sample. At least one, or
            the objective may rise between passes.

    References:
        Cosentino et al., DI K-means, Algorithm 2; Lloyd (1982).
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner
    family: AbstractPrototypeFamily
    warm_starts: int = eqx.field(static=True, default=1, kw_only=True)

    def init(self, clusters: Clusters) -> LloydState:
        """A state before the first step.

        Args:
            clusters: The clusters to start from.

        Returns:
            A state with empty sums.
        """
        return _cleared(self, Learned(clusters))

    def remember(self, size: int, num_clusters: int, dtype: jnp.dtype) -> Memory:
        """The memory of samples that have not been seen.

        Args:
            size: Number of samples.
            num_clusters: Number of clusters.
            dtype: Floating dtype.

        Returns:
            Memory without candidates.
        """
        places = self.aligner.num_candidates(num_clusters)
        warm = min(self.warm_starts, places)
        return Memory(
            jnp.full((size, places), -1, dtype=jnp.int32),
            jnp.full((size, places), jnp.inf, dtype=dtype),
            jnp.zeros((size, warm, self.energy.num_params), dtype=dtype),
        )

    def assign(self, learned: Learned, samples: PyTree, memory: Memory) -> Alignment:
        """Aligns a batch to its best clusters, prototypes fixed.

        Args:
            learned: The prototypes.
            samples: A batch of samples.
            memory: What is remembered of them.

        Returns:
            Alignments with a leading batch axis.
        """
        clusters, shared = learned.clusters, learned.shared
        prepared = self.aligner.prepare(self.energy, clusters, shared)

        def one(sample: PyTree, memory: Memory) -> Alignment:
            warm = memory.params.shape[0]
            start = Alignment(memory.cluster[:warm], memory.params, memory.energy[:warm])
            return self.aligner.align(self.energy, sample, clusters, shared, start, prepared)

        return jax.vmap(one)(samples, memory)

    def step(
        self,
        state: LloydState,
        batch: Batch,
        memory: Memory,
        *,
        axis_name: str | None = None,
    ) -> tuple[LloydState, Memory]:
        """Assigns one chunk and adds its aligned samples to the sums.

        Args:
            state: The state.
            batch: A chunk of samples.
            memory: Their memory.
            axis_name: Name of a mapped device axis over which the chunk's sums are added, or None.

        Returns:
            The state with the chunk added, and the chunk's new memory.
        """
        alignment = self.assign(state.learned, batch.samples, memory)
        state = self.accumulate(state, batch, alignment, memory.cluster[:, 0], axis_name=axis_name)
        warm = memory.params.shape[1]
        return state, Memory(alignment.cluster, alignment.energy, alignment.params[:, :warm])

    def accumulate(
        self,
        state: LloydState,
        batch: Batch,
        alignment: Alignment,
        previous: Int[Array, " n"],
        *,
        axis_name: str | None = None,
    ) -> LloydState:
        """Adds one chunk, aligned as given, to the sums.

        Args:
            state: The state.
            batch: A chunk of samples.
            alignment: Their alignments; only the first candidate counts.
            previous: The clusters they were in.
            axis_name: Name of a mapped device axis over which the chunk's sums are added, or None.

        Returns:
            The state with the chunk added.
        """
        best, params = alignment.cluster[:, 0], alignment.params[:, 0]
        aligned = jax.vmap(self.energy.aligned)(params, batch.samples)
        pixel_weight = jax.vmap(self.energy.pixel_weight)(params, batch.samples)
        number = jnp.arange(len(state.learned.clusters), dtype=best.dtype)
        membership = (best[:, None] == number[None, :]).astype(batch.weight.dtype)
        membership = membership * batch.weight[:, None]
        statistics = self.family.statistics(aligned, pixel_weight, membership)
        moved = (best != previous) & (batch.weight > 0)
        margin = jax.vmap(lambda a: a.margin)(alignment)

        def total(values: Array) -> Array:
            return jnp.matmul(membership.T, values, precision=jax.lax.Precision.HIGHEST)

        tally = Tally(
            jnp.sum(membership, axis=0),
            total(alignment.energy[:, 0]),
            total(jax.vmap(self.energy.penalties)(params)),
            total(jnp.where(jnp.isfinite(margin), margin, 0.0)),
            jnp.sum(moved, dtype=jnp.int32),
        )
        added = (statistics, tally)
        if axis_name is not None:
            added = jax.lax.psum(added, axis_name)
        statistics, tally = jax.tree.map(jnp.add, (state.statistics, state.tally), added)
        return LloydState(state.learned, statistics, tally)

    def end_pass(self, state: LloydState) -> LloydState:
        """Moves every prototype to the mean of its aligned samples; empty ones stay.

        Args:
            state: A state to which all chunks were added.

        Returns:
            The next pass's state, with empty sums.

        References:
            Cosentino et al., DI K-means, Prop. 1.
        """
        clusters = state.learned.clusters
        prototype = self.family.update(state.statistics, clusters.prototype)
        clusters = eqx.tree_at(lambda c: c.prototype, clusters, prototype)
        return _cleared(self, eqx.tree_at(lambda tree: tree.clusters, state.learned, clusters))


def _cleared(solver: Lloyd, learned: Learned) -> LloydState:
    """A state with empty sums of the right shapes."""
    clusters = learned.clusters
    count = len(clusters)
    sample = jax.tree.map(lambda leaf: leaf[:1], clusters.prototype)
    params = jnp.zeros((1, solver.energy.num_params), dtype=clusters.penalty.dtype)

    def shapes() -> PyTree:
        weight = jax.vmap(solver.energy.pixel_weight)(params, sample)
        member = jnp.zeros((1, count), dtype=clusters.penalty.dtype)
        return solver.family.statistics(sample, weight, member)

    statistics = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), eqx.filter_eval_shape(shapes))
    none = jnp.zeros((count,), dtype=clusters.penalty.dtype)
    tally = Tally(
        none, none, jnp.zeros_like(clusters.penalty), none, jnp.zeros((), dtype=jnp.int32)
    )
    return LloydState(learned, statistics, tally)
