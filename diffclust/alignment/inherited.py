"""No alignment, of shapes that carry the variances of the cluster they are in."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from diffclust.alignment.base import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.alignment.none import best_of
from diffclust.prototypes import Clusters, LandmarkGaussians, gaussians


class InheritedVariances(AbstractAligner):
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

    @property
    def is_learned(self) -> bool:
        """No; see `AbstractAligner.is_learned`."""
        return False

    def num_candidates(self, num_clusters: int) -> int:
        """See `AbstractAligner.num_candidates`."""
        return min(self.candidates, num_clusters)

    def working_copies(self, num_clusters: int) -> int:
        """See `AbstractAligner.working_copies`."""
        return 2 * num_clusters

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
        """See `AbstractAligner.align`; only the incumbent's first cluster is looked at."""
        del shared, prepared
        prototype = clusters.prototype
        if not isinstance(prototype, LandmarkGaussians):
            raise TypeError(f"a {type(prototype).__name__} has no variances to inherit")
        spread = prototype.spread
        if start.cluster.shape[0]:
            own = start.cluster[0]
            spread = jnp.where(own >= 0, spread[jnp.maximum(own, 0)][None], spread)
        still = jnp.zeros((energy.num_params,), dtype=start.params.dtype)
        bound = energy.bind(sample)
        energies = jax.vmap(lambda s, c: bound(still, gaussians(sample, s), c))(spread, clusters)
        return best_of(energies, self.num_candidates(len(clusters)), still)
