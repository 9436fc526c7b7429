"""What Lloyd's algorithm and gradient EM share: the memory of samples, and their assignment."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust.alignment import AbstractAligner, Alignment
from diffclust.energies import AbstractPairEnergy
from diffclust.prototypes import Learned


class Memory(eqx.Module):
    """Per-sample state between passes, from which alignments start warm.

    Attributes:
        cluster: The candidates of the last pass, best first; -1 where there are none yet.
        energy: Their energies, ascending.
        params: Warm starts: the params of the first few of them.
    """

    cluster: Int[Array, "n candidates"]
    energy: Float[Array, "n candidates"]
    params: Float[Array, "n warm params"]


def memory_of(alignment: Alignment, warm: int) -> Memory:
    """The memory of a batch that was just aligned.

    Args:
        alignment: Alignments with a leading batch axis.
        warm: How many candidates' params are kept.

    Returns:
        Its memory.
    """
    return Memory(alignment.cluster, alignment.energy, alignment.params[:, :warm])


class AbstractSolver(eqx.Module):
    """An energy, an aligner, and the assignment of samples to the clusters of least energy."""

    energy: eqx.AbstractVar[AbstractPairEnergy]
    aligner: eqx.AbstractVar[AbstractAligner]
    warm_starts: eqx.AbstractVar[int]

    @abc.abstractmethod
    def normalise(self, sample: PyTree) -> PyTree:
        """Brings a sample to the scale on which it is clustered.

        Args:
            sample: One sample.

        Returns:
            The sample, scaled.
        """

    @abc.abstractmethod
    def assign(self, learned: Learned, samples: PyTree, memory: Memory) -> Alignment:
        """Aligns a batch to its best clusters, which stay as they are.

        Args:
            learned: The clusters.
            samples: A batch of samples.
            memory: What is remembered of them.

        Returns:
            Alignments with a leading batch axis; the energies are what decides.
        """

    def init_memory(self, size: int, num_clusters: int, dtype: jnp.dtype) -> Memory:
        """The memory of samples before the first pass.

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

    def memory_bytes(self, num_clusters: int) -> int:
        """Bytes of the memory of one sample in single precision.

        Args:
            num_clusters: Number of clusters.

        Returns:
            Their number.
        """
        places = self.aligner.num_candidates(num_clusters)
        return 8 * places + 4 * min(self.warm_starts, places) * self.energy.num_params

    def align(self, learned: Learned, samples: PyTree, memory: Memory | None) -> Alignment:
        """Aligns a batch to its best clusters.

        Args:
            learned: The clusters.
            samples: A batch of samples.
            memory: Their memory, from which the aligner starts; None to start at the identity.

        Returns:
            Alignments with a leading batch axis.
        """
        clusters, shared = learned.clusters, learned.shared
        prepared = self.aligner.prepare(self.energy, clusters, shared)
        dtype = clusters.penalty.dtype
        nothing = Alignment(
            jnp.zeros((0,), dtype=jnp.int32),
            jnp.zeros((0, self.energy.num_params), dtype=dtype),
            jnp.zeros((0,), dtype=dtype),
        )

        def one(sample: PyTree, memory: Memory | None) -> Alignment:
            start = nothing
            if memory is not None:
                warm = memory.params.shape[0]
                start = Alignment(memory.cluster[:warm], memory.params, memory.energy[:warm])
            return self.aligner.align(self.energy, sample, clusters, shared, start, prepared)

        return jax.vmap(one)(samples, memory)
