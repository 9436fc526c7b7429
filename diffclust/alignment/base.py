"""What an aligner minimises, and what it returns."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust.prototypes import Clusters
from diffclust.types import Params, Scalar

BoundEnergy = Callable[[Params, PyTree, Clusters], Scalar]
"""The energy of params, one sample and one cluster."""


class AbstractPairEnergy(eqx.Module):
    """The energy of one sample against one cluster: a distance, params that move either of them.

    And penalties for moving it far.
    """

    @property
    @abc.abstractmethod
    def num_params(self) -> int:
        """Length of the parameter vector."""

    @property
    @abc.abstractmethod
    def num_penalties(self) -> int:
        """Number of penalty terms, the last axis of `Clusters.penalty`."""

    @property
    @abc.abstractmethod
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """Columns spanning the affine maps among the params, or None."""

    @abc.abstractmethod
    def bind(self, sample: PyTree, *, scale: float = 1.0) -> BoundEnergy:
        """Precomputes what depends on the sample's shape alone.

        Args:
            sample: A sample, for its shape only.
            scale: Factor of the distance alone: how many pixels of the original stand behind one
                of a coarser level, so that penalties keep their weight.

        Returns:
            The energy as a function of params, sample and one cluster.
        """

    @abc.abstractmethod
    def penalties(self, params: Params) -> Float[Array, " terms"]:
        """The penalty terms, not yet weighted.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            Non-negative numbers, zero at the identity.
        """

    @abc.abstractmethod
    def unaligned(self, sample: PyTree, clusters: Clusters) -> Float[Array, " clusters"]:
        """Energies at the identity against all clusters at once, in the fastest form there is.

        Args:
            sample: One sample.
            clusters: All clusters.

        Returns:
            One energy a cluster.
        """

    @abc.abstractmethod
    def typical(self, prototype: PyTree) -> PyTree:
        """The sample that a prototype stands for.

        Args:
            prototype: One prototype.

        Returns:
            A sample whose energy is least among all samples that are not moved.
        """


class AbstractSampleEnergy(AbstractPairEnergy):
    """An energy whose params move the sample, so that aligned samples can be averaged."""

    @abc.abstractmethod
    def aligned(self, params: Params, sample: PyTree) -> PyTree:
        """The sample moved by params.

        Args:
            params: Parameters of shape `(num_params,)`.
            sample: One sample.

        Returns:
            The aligned sample.
        """

    @abc.abstractmethod
    def pixel_weight(self, params: Params, sample: PyTree) -> Array | None:
        """The weight that each pixel of the aligned sample has in the distance.

        Args:
            params: Parameters of shape `(num_params,)`.
            sample: One sample, for its shape only.

        Returns:
            Weights that broadcast against the sample, or None where all are one.
        """


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
            clusters: All clusters, or typical ones.
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
