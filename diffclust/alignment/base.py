"""What every aligner does, and what it returns."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust.energies import AbstractPairEnergy
from diffclust.prototypes import Clusters
from diffclust.types import Scalar


class Alignment(eqx.Module):
    """A sample's best clusters and how it aligns to each, best first.

    Attributes:
        cluster: Indices of the clusters that were followed to the end; -1 marks a vacant place.
        params: The params found for each.
        energy: The energy of each, ascending; infinite in a vacant place.
    """

    cluster: Int[Array, " candidates"]
    params: Float[Array, "candidates params"]
    energy: Float[Array, " candidates"]

    @property
    def margin(self) -> Scalar:
        """How much worse the second-best cluster is; infinite where there is one cluster."""
        if self.energy.shape[0] < 2:
            return jnp.full((), jnp.inf, dtype=self.energy.dtype)
        return self.energy[1] - self.energy[0]


class AbstractAligner(eqx.Module):
    """Minimises an energy over the params, for one sample and all clusters."""

    @property
    @abc.abstractmethod
    def is_learned(self) -> bool:
        """Whether the params are a function of what is learned, to be trained by gradients.

        Otherwise they minimise the energy, and the energy's gradient does not flow through them.
        """

    @abc.abstractmethod
    def num_candidates(self, num_clusters: int) -> int:
        """How many clusters an alignment holds.

        Args:
            num_clusters: Number of clusters there are.

        Returns:
            Length of `Alignment.cluster`.
        """

    @abc.abstractmethod
    def working_copies(self, num_clusters: int) -> int:
        """How many arrays of a sample's size are alive while it is aligned.

        Args:
            num_clusters: Number of clusters there are.

        Returns:
            A whole number, from which chunk sizes follow.
        """

    @abc.abstractmethod
    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """Computes once for all samples what depends on the clusters alone.

        Args:
            energy: What is minimised.
            clusters: All clusters, or some like them.
            shared: What the clusters share.

        Returns:
            What `align` is given back, or None.
        """

    @abc.abstractmethod
    def align(
        self,
        energy: AbstractPairEnergy,
        sample: PyTree,
        clusters: Clusters,
        shared: PyTree,
        start: Alignment,
        prepared: PyTree,
    ) -> Alignment:
        """Aligns one sample to all clusters.

        Args:
            energy: What is minimised.
            sample: One sample; batching is `jax.vmap`'s job.
            clusters: All clusters.
            shared: What the clusters share.
            start: The incumbent: a few clusters and params to start from, best first, or none. The
                first is always among the result, and no cluster in the result is worse than it
                was here, or than it is unaligned. Places with cluster -1 are ignored.
            prepared: What `prepare` returned.

        Returns:
            The best clusters, ordered by energy.
        """
