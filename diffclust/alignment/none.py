"""No alignment at all: every sample stays where it is."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from diffclust.alignment.base import AbstractAligner, Alignment
from diffclust.energies import AbstractPairEnergy
from diffclust.prototypes import Clusters, LandmarkGaussians


class AbstractUnaligned(AbstractAligner):
    """Takes energies at the identity.

    Attributes:
        candidates: How many of the best clusters are returned.
    """

    candidates: eqx.AbstractVar[int]

    @property
    def is_learned(self) -> bool:
        """No; see `AbstractAligner.is_learned`."""
        return False

    @abc.abstractmethod
    def compared(self, clusters: Clusters, start: Alignment) -> Clusters:
        """What a sample is compared with.

        Args:
            clusters: All clusters.
            start: The incumbent, as `align` is given it.

        Returns:
            As many clusters.
        """

    def num_candidates(self, num_clusters: int) -> int:
        """See `AbstractAligner.num_candidates`."""
        return min(self.candidates, num_clusters)

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """Nothing; see `AbstractAligner.prepare`."""
        return None

    def align(
        self,
        energy: AbstractPairEnergy,
        sample: PyTree,
        clusters: Clusters,
        shared: PyTree,
        start: Alignment,
        prepared: PyTree,
    ) -> Alignment:
        """See `AbstractAligner.align`."""
        del shared, prepared
        params = jnp.zeros((energy.num_params,), dtype=start.params.dtype)
        energies = energy.unaligned(sample, self.compared(clusters, start))
        count, index = self.num_candidates(len(clusters)), jnp.arange(len(clusters))
        chosen, least = [], []
        # One minimum after another: a sort over all clusters costs far more on a CPU.
        for _ in range(count):
            best = jnp.argmin(energies)
            chosen.append(best.astype(jnp.int32))
            least.append(energies[best])
            energies = jnp.where(index == best, jnp.inf, energies)
        return Alignment(jnp.stack(chosen), jnp.tile(params[None], (count, 1)), jnp.stack(least))


class NoAlignment(AbstractUnaligned):
    """Takes energies at the identity; with it Lloyd's algorithm is ordinary K-means.

    Attributes:
        candidates: How many of the best clusters are returned.
    """

    candidates: int = eqx.field(static=True, default=2, kw_only=True)

    def working_copies(self, num_clusters: int) -> int:
        """None: samples are read where they are."""
        del num_clusters
        return 0

    def compared(self, clusters: Clusters, start: Alignment) -> Clusters:
        """All clusters as they are."""
        return clusters


class ClusterVariances(AbstractUnaligned):
    """Compares a shape, with the variances of the cluster it is in, to all centres with theirs.

    A shape that is in no cluster yet carries those of each centre it is compared to. As a shape's
    variances change with its cluster, no sum of such distances falls from pass to pass: the Type
    II algorithm has no objective.

    Attributes:
        candidates: How many of the best clusters are returned.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Sec. 4.2.
    """

    candidates: int = eqx.field(static=True, default=2, kw_only=True)

    def working_copies(self, num_clusters: int) -> int:
        """See `AbstractAligner.working_copies`."""
        return 2 * num_clusters

    def compared(self, clusters: Clusters, start: Alignment) -> Clusters:
        """All centres, with the variances of the incumbent's first cluster for the shape."""
        prototype = clusters.prototype
        if not isinstance(prototype, LandmarkGaussians):
            raise TypeError(f"a {type(prototype).__name__} has no variances for a shape to carry")
        if not start.cluster.shape[0]:
            return clusters
        own, covariance = start.cluster[0], prototype.covariance
        carried = jnp.where(own >= 0, covariance[jnp.maximum(own, 0)][None], covariance)
        return eqx.tree_at(lambda c: c.prototype.covariance, clusters, carried)
