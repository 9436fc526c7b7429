"""No alignment at all: every sample stays where it is."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from diffclust.alignment.base import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.prototypes import Clusters


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
        remaining = energy.unaligned(sample, clusters)
        places = jnp.arange(len(clusters))
        found, energies = [], []
        # A few minima in turn: a sort over all clusters costs far more on a CPU.
        for _ in range(self.num_candidates(len(clusters))):
            best = jnp.argmin(remaining)
            found.append(best.astype(jnp.int32))
            energies.append(remaining[best])
            remaining = jnp.where(places == best, jnp.inf, remaining)
        params = jnp.zeros((len(found), energy.num_params), dtype=start.params.dtype)
        return Alignment(jnp.stack(found), params, jnp.stack(energies))
