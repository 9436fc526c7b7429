"""One aligner after another: a prediction that a descent refines, say."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree

from diffclust.alignment.base import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.prototypes import Clusters


class InTurn(AbstractAligner):
    """The second aligner starts from what the first found, and sees only its best clusters.

    Attributes:
        first: Finds clusters and params.
        second: Improves on them; one that never returns worse than its start, such as `Descent`.
        candidates: How many of the first's clusters the second sees.
    """

    first: AbstractAligner
    second: AbstractAligner
    candidates: int = eqx.field(static=True, default=3, kw_only=True)

    def __check_init__(self):
        """Refuses to leave no margin."""
        if self.candidates < 2:
            raise ValueError(
                f"candidates must be at least 2 (the second gives the margin), not "
                f"{self.candidates}"
            )

    @property
    def is_learned(self) -> bool:
        """As those of the second; see `AbstractAligner.is_learned`."""
        return self.second.is_learned

    def num_candidates(self, num_clusters: int) -> int:
        """See `AbstractAligner.num_candidates`."""
        return self.second.num_candidates(self._followed(num_clusters))

    def working_copies(self, num_clusters: int) -> int:
        """See `AbstractAligner.working_copies`."""
        second = self.second.working_copies(self._followed(num_clusters))
        return max(self.first.working_copies(num_clusters), second)

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """What both prepare; see `AbstractAligner.prepare`."""
        return tuple(a.prepare(energy, clusters, shared) for a in (self.first, self.second))

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
        rough = self.first.align(energy, sample, clusters, shared, start, prepared[0])
        kept = self._followed(len(clusters))
        index = rough.cluster[:kept]
        places = jnp.arange(index.shape[0], dtype=jnp.int32)
        begin = Alignment(places, rough.params[:kept], rough.energy[:kept])
        found = self.second.align(energy, sample, clusters.take(index), shared, begin, prepared[1])
        return Alignment(index[found.cluster], found.params, found.energy)

    def _followed(self, num_clusters: int) -> int:
        return min(self.candidates, self.first.num_candidates(num_clusters))
