"""What Lloyd's algorithm and gradient EM share: the memory of samples, and their assignment."""

import abc
import warnings
from collections.abc import Callable
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust import _validation
from diffclust.alignment import (
    AbstractAligner,
    Adjoint,
    Alignment,
    NoAlignment,
    at_fixed_params,
    check_samples,
    constant,
)
from diffclust.energies import AbstractPairEnergy, AbstractReduction
from diffclust.networks import BatchFeatures
from diffclust.prototypes import Learned


class Memory(eqx.Module):
    """Per-sample state between passes, from which alignments are warm-started.

    Attributes:
        cluster: The candidates of the last pass, best first; -1 if there are none yet.
        energy: Their energies, ascending.
        params: Warm starts: the params of the first few candidates.
    """

    cluster: Int[Array, "n candidates"]
    energy: Float[Array, "n candidates"]
    params: Float[Array, "n warm params"]


def memory_of(alignment: Alignment, warm: int) -> Memory:
    """The memory of a batch that has just been aligned.

    Args:
        alignment: Alignments with a leading batch axis.
        warm: How many candidates' params are kept.

    Returns:
        The memory of the batch.
    """
    return Memory(alignment.cluster, alignment.energy, alignment.params[:, :warm])


def aligner_for(aligner: AbstractAligner, reduction: AbstractReduction) -> AbstractAligner:
    """The aligner that a solver uses with a reduction.

    Args:
        aligner: The aligner that was given to the solver.
        reduction: The solver's reduction.

    Returns:
        Instead of `NoAlignment()`, one with all clusters as candidates, if memberships are soft or
        the reduction adds offsets to the energies; otherwise the same aligner.
    """
    has_offsets = type(reduction).offsets is not AbstractReduction.offsets
    needs_all = not reduction.is_hard or has_offsets
    return NoAlignment(candidates=None) if needs_all and aligner == NoAlignment() else aligner


def check_parts(energy: Any, aligner: Any, reduction: Any) -> None:
    """Refuses parts of another kind, such as a class in the place of an object.

    Args:
        energy: The energy that was given to a solver.
        aligner: The aligner that was given with it.
        reduction: The reduction.

    Raises:
        ValueError: With what was given.
    """
    _validation.part(energy, AbstractPairEnergy, "energy")
    _validation.part(aligner, AbstractAligner, "aligner")
    _validation.part(reduction, AbstractReduction, "reduction")


def zeros_of(function: Callable[..., PyTree], *args: PyTree) -> PyTree:
    """Zeros with the shapes and dtypes of a function's result, without calling it.

    Args:
        function: The function.
        *args: Its arguments, or their shapes and dtypes as `jax.ShapeDtypeStruct`s.

    Returns:
        A tree of arrays.
    """
    return jax.tree.map(jnp.zeros_like, eqx.filter_eval_shape(function, *args))


class AbstractSolver(eqx.Module):
    """An energy, an aligner, and the assignment of samples to the clusters of lowest energy."""

    energy: eqx.AbstractVar[AbstractPairEnergy]
    aligner: eqx.AbstractVar[AbstractAligner]
    warm_starts: eqx.AbstractVar[int]
    adjoint: eqx.AbstractVar[Adjoint]

    def __check_init__(self):
        """Refuses invalid settings."""
        _validation.count(self.warm_starts, "warm_starts")
        _validation.one_of(self.adjoint, get_args(Adjoint), "adjoint")

    @property
    @abc.abstractmethod
    def reduction(self) -> AbstractReduction:
        """The reduction of a sample's energies to its loss."""

    @abc.abstractmethod
    def normalise(self, sample: PyTree) -> PyTree:
        """Brings a sample to the scale on which it is clustered.

        Args:
            sample: One sample.

        Returns:
            The scaled sample.
        """

    def reduction_of(self, learned: Learned) -> AbstractReduction:
        """The current reduction.

        Args:
            learned: The learned arrays.

        Returns:
            The state of an adaptive reduction; otherwise the solver's reduction.
        """
        if learned.objective is None or not self.reduction.is_adaptive:
            return self.reduction
        return learned.objective

    def assign(self, learned: Learned, samples: PyTree, memory: Memory | None) -> Alignment:
        """Aligns a batch to its best clusters, which do not change.

        Args:
            learned: The clusters.
            samples: A batch of samples.
            memory: Their memory, or None.

        Returns:
            Alignments with a leading batch axis, sorted by the reduction's scores, which replace
            the energies.
        """
        alignment = self.align(learned, samples, memory)
        reduction = self.reduction_of(learned)
        offsets = reduction.offsets(learned.objective, len(learned.clusters))
        if offsets is None:
            return alignment
        count, followed = len(learned.clusters), alignment.cluster.shape[1]
        if followed < count:
            warnings.warn(
                f"{type(reduction).__name__} adds its offsets to the energies of {followed} of "
                f"{count} clusters alone, those that {type(self.aligner).__name__} follows; give "
                "the aligner candidates=None (of DTI models, leave shortlist out)",
                stacklevel=2,
            )

        def by_score(one: Alignment) -> Alignment:
            scores = one.energy + offsets[one.cluster]
            order = jnp.argsort(scores)
            return Alignment(one.cluster[order], one.params[order], scores[order])

        return jax.vmap(by_score)(alignment)

    def num_remembered(self, num_clusters: int) -> int:
        """The number of candidates per sample for which the memory stores params.

        Args:
            num_clusters: Number of clusters.

        Returns:
            The number.
        """
        return min(self.warm_starts, self.aligner.num_candidates(num_clusters))

    @eqx.filter_jit
    def init_memory(self, size: int, num_clusters: int, dtype: jnp.dtype) -> Memory:
        """The memory of samples before the first pass.

        Args:
            size: Number of samples.
            num_clusters: Number of clusters.
            dtype: Floating dtype.

        Returns:
            Memory without candidates.
        """
        shape = (size, self.aligner.num_candidates(num_clusters))
        warm = self.num_remembered(num_clusters)
        params = jnp.zeros((size, warm, self.energy.num_params), dtype)
        return Memory(jnp.full(shape, -1, jnp.int32), jnp.full(shape, jnp.inf, dtype), params)

    def memory_bytes(self, num_clusters: int) -> int:
        """Bytes of the memory of one sample in single precision.

        Args:
            num_clusters: Number of clusters.

        Returns:
            The number.
        """
        places = self.aligner.num_candidates(num_clusters)
        return 8 * places + 4 * self.num_remembered(num_clusters) * self.energy.num_params

    def align(self, learned: Learned, samples: PyTree, memory: Memory | None) -> Alignment:
        """Aligns a batch to its best clusters.

        Args:
            learned: The clusters.
            samples: A batch of samples.
            memory: Their memory, from which the aligner starts; None to start from the identity.

        Returns:
            Alignments with a leading batch axis.
        """
        check_samples(self.energy, samples, learned.clusters)
        searched = not self.aligner.is_learned and self.adjoint == "envelope"
        every = (self.energy, learned.clusters, samples)
        energy, clusters, given = constant(every) if searched else every
        shared = learned.shared
        prepared = self.aligner.prepare(energy, clusters, shared)
        if memory is None:
            none = jnp.zeros((jax.tree.leaves(samples)[0].shape[0], 0), clusters.penalty.dtype)
            params = jnp.zeros((*none.shape, self.energy.num_params), none.dtype)
            memory = Memory(none.astype(jnp.int32), none, params)
        read = shared if isinstance(shared, BatchFeatures) else None

        def one(sample: PyTree, past: Memory, read: BatchFeatures | None) -> Alignment:
            warm = past.params.shape[0]
            start = Alignment(past.cluster[:warm], past.params, past.energy[:warm])
            common = shared if read is None else read
            return self.aligner.align(energy, sample, clusters, common, start, prepared)

        alignment = jax.vmap(one)(given, memory, read)
        if not searched:
            return alignment
        return jax.vmap(
            lambda result, sample: at_fixed_params(result, self.energy, sample, learned.clusters)
        )(alignment, samples)
