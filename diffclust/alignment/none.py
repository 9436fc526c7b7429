"""No alignment at all: every sample stays where it is."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment.base import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.prototypes import Clusters
from diffclust.types import Params


class NoAlignment(AbstractAligner):
    """Takes energies at the identity; with it Lloyd's algorithm is ordinary K-means.

    Attributes:
        candidates: How many of the best clusters are returned.
    """

    candidates: int = eqx.field(static=True, default=2, kw_only=True)

    @property
    def is_learned(self) -> bool:
        """No: they are zero; see `AbstractAligner.is_learned`."""
        return False

    def num_candidates(self, num_clusters: int) -> int:
        """See `AbstractAligner.num_candidates`."""
        return min(self.candidates, num_clusters)

    def working_copies(self, num_clusters: int) -> int:
        """See `AbstractAligner.working_copies`."""
        # Samples are read where they are.
        del num_clusters
        return 0

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
        still = jnp.zeros((energy.num_params,), dtype=start.params.dtype)
        energies = energy.unaligned(sample, clusters)
        return best_of(energies, self.num_candidates(len(clusters)), still)


def best_of(energies: Float[Array, " clusters"], count: int, params: Params) -> Alignment:
    """The clusters of least energy.

    Args:
        energies: The energy of each cluster.
        count: How many are wanted.
        params: The params of all of them.

    Returns:
        The best clusters, ordered by energy.
    """
    places = jnp.arange(energies.shape[0])
    found, least = [], []
    # A few minima in turn: a sort over all clusters costs far more on a CPU.
    for _ in range(count):
        best = jnp.argmin(energies)
        found.append(best.astype(jnp.int32))
        least.append(energies[best])
        energies = jnp.where(places == best, jnp.inf, energies)
    return Alignment(jnp.stack(found), jnp.tile(params[None], (count, 1)), jnp.stack(least))
