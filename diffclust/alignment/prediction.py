"""Alignments that a network predicts from the sample alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment.base import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.prototypes import Clusters


class Prediction(AbstractAligner):
    """One look at the sample gives the params of all clusters.

    `Learned.shared` holds a network from a sample to features, `Clusters.predictor` a sequence of
    heads from features to the params of one transform each, in the order of a composition. The
    params can be differentiated by both; the energies, which only choose among clusters, cannot.

    A prediction ignores the incumbent and may be worse than it, or than no move at all; let a
    descent follow (`InTurn`) where that matters.

    Attributes:
        transforms: How many of the heads are used, first to last; None for all. A curriculum
            begins with few.
        candidates: How many clusters an alignment holds, best first; None for all.
        judge: A cheaper energy, of the first params alone, by which the candidates are chosen where
            they are not all; None judges by the energy itself.

    References:
        Monnier et al., DTI clustering, Eq. 3, Sec. 4.1 and 4.2 (curriculum learning).
    """

    transforms: int | None = eqx.field(static=True, default=None, kw_only=True)
    candidates: int | None = eqx.field(static=True, default=None, kw_only=True)
    judge: AbstractPairEnergy | None = eqx.field(default=None, kw_only=True)

    @property
    def is_learned(self) -> bool:
        """Yes, of backbone and heads; see `AbstractAligner.is_learned`."""
        return True

    def num_candidates(self, num_clusters: int) -> int:
        """See `AbstractAligner.num_candidates`."""
        return num_clusters if self.candidates is None else min(self.candidates, num_clusters)

    def working_copies(self, num_clusters: int) -> int:
        """See `AbstractAligner.working_copies`; the network's first layers are many images wide."""
        return 32 + 12 * num_clusters

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """Nothing; see `AbstractAligner.prepare`."""
        return None

    def predict(
        self, sample: PyTree, clusters: Clusters, shared: PyTree
    ) -> Float[Array, "clusters params"]:
        """The params that the network predicts.

        Args:
            sample: One sample.
            clusters: All clusters, with their heads.
            shared: The network that the clusters share.

        Returns:
            Params for each cluster.
        """
        features = shared(sample)
        heads = clusters.predictor[: self.transforms]
        parts = [jax.vmap(lambda head: head(features))(head) for head in heads]
        return jnp.concatenate(parts, axis=1)

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
        del start, prepared
        params = self.predict(sample, clusters, shared)
        kept = self.num_candidates(len(clusters))
        chosen = jnp.arange(len(clusters), dtype=jnp.int32)
        if self.judge is not None and kept < len(clusters):
            first = params[:, : self.judge.num_params]
            rough = _fixed(self.judge, first, sample, clusters)
            chosen = jnp.argsort(rough)[:kept].astype(jnp.int32)
            params, clusters = params[chosen], clusters.take(chosen)
        energies = _fixed(energy, params, sample, clusters)
        order = jnp.argsort(energies)[:kept]
        return Alignment(chosen[order], params[order], energies[order])


def _fixed(
    energy: AbstractPairEnergy,
    params: Float[Array, "clusters params"],
    sample: PyTree,
    clusters: Clusters,
) -> Float[Array, " clusters"]:
    """Energies without a gradient: whoever wants one evaluates the few that count again."""
    bound = jax.vmap(energy.bind(sample), in_axes=(0, None, 0))
    return bound(*jax.lax.stop_gradient((params, sample, clusters)))
