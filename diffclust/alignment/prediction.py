"""Alignments predicted by a network, and aligners run one after another."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust import _validation as check
from diffclust._renamed import renamed_keywords
from diffclust.alignment.base import (
    AbstractAligner,
    AbstractWithCandidates,
    Alignment,
    candidate_count,
    check_candidates,
    most_promising,
    or_incumbent,
)
from diffclust.energies.base import AbstractPairEnergy
from diffclust.prototypes import Clusters


@renamed_keywords(judge="screening")
class Prediction(AbstractWithCandidates):
    """An aligner that predicts the params of all clusters from the sample, without a search.

    `Learned.shared` holds a network that maps a sample to features; `Clusters.predictor` holds a
    sequence of heads, each of which maps features to the params of one transform, in the order of a
    composition. The params are differentiable with respect to both; the energies, which only select
    clusters, are not.

    A prediction ignores the incumbent, and may be worse than it or than no movement at all; if that
    matters, follow it by a descent (`Sequential`).

    Attributes:
        transforms: How many of the heads are used, first to last; None for all. A curriculum
            starts with few.
        candidates: How many clusters an alignment holds, best first; None for all.
        screening: A cheaper energy, of the first params only, by which candidates are chosen if
            they are not all clusters; None uses the energy itself.

    References:
        Monnier et al., DTI clustering, Eq. 3, Sec. 4.1 and 4.2 (curriculum learning).
    """

    transforms: int | None = eqx.field(static=True, default=None, kw_only=True)
    candidates: int | None = eqx.field(static=True, default=None, kw_only=True)
    screening: AbstractPairEnergy | None = eqx.field(default=None, kw_only=True)

    ignores_start: ClassVar[bool] = True
    is_learned: ClassVar[bool] = True

    def __check_init__(self):
        """Refuses to predict nothing."""
        for name in ("transforms", "candidates"):
            if getattr(self, name) is not None:
                check.count(getattr(self, name), name)

    def working_copies(self, num_clusters: int) -> int:
        # The network's first layers are as large as many images.
        return 32 + 12 * num_clusters

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
        if shared is None or not isinstance(clusters.predictor, tuple | list):
            raise ValueError(
                "Prediction reads a network, Learned.shared, and a tuple of heads, one for each "
                "transform, Clusters.predictor: make them in GradientClustering(initialise=)"
            )
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
        def fixed(energy: AbstractPairEnergy, params: Array, clusters: Clusters) -> Array:
            # Without a gradient: callers that need one re-evaluate the few that count.
            bound = jax.vmap(energy.bind(sample), in_axes=(0, None, 0))
            return bound(*jax.lax.stop_gradient((params, sample, clusters)))

        params = self.predict(sample, clusters, shared)
        if params.shape[1] != energy.num_params:
            raise ValueError(
                f"heads predict {params.shape[1]} params, and the energy has {energy.num_params}"
            )
        num_candidates = self.num_candidates(len(clusters))
        chosen = jnp.arange(len(clusters), dtype=jnp.int32)
        if self.screening is not None and num_candidates < len(clusters):
            first = params[:, : self.screening.num_params]
            rough = fixed(self.screening, first, clusters)
            chosen = jnp.argsort(rough)[:num_candidates].astype(jnp.int32)
            params, clusters = params[chosen], clusters.take(chosen)
        energies = fixed(energy, params, clusters)
        order = jnp.argsort(energies)[:num_candidates]
        return Alignment(chosen[order], params[order], energies[order])


class Sequential(AbstractAligner):
    """Runs a second aligner from the first one's result, on its best clusters only.

    Attributes:
        first: Finds clusters and params.
        second: Improves them; an aligner that never returns worse than its start, such as
            `Descent`.
        candidates: How many of the first's clusters the second sees; None for all of them.
    """

    first: AbstractAligner
    second: AbstractAligner
    candidates: int | None = eqx.field(static=True, default=3, kw_only=True)

    def __check_init__(self):
        """Refuses too few candidates for a margin."""
        check_candidates(self.candidates)

    @property
    def is_learned(self) -> bool:
        """Whether the second aligner is trained."""
        return self.second.is_learned

    def num_candidates(self, num_clusters: int) -> int:
        return self.second.num_candidates(self._num_followed(num_clusters))

    def working_copies(self, num_clusters: int) -> int:
        second = self.second.working_copies(self._num_followed(num_clusters))
        return max(self.first.working_copies(num_clusters), second)

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """Prepares both aligners."""
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
        rough = self.first.align(energy, sample, clusters, shared, start, prepared[0])
        count = self._num_followed(len(clusters))
        keep = self.first.ignores_start and start.cluster.shape[0] > 0
        if keep:
            rough = _with_incumbent(rough, start)
        # The incumbent is kept, as the first one given to the second aligner.
        chosen = most_promising(rough.cluster, rough.energy, start, count)
        index = rough.cluster[chosen]
        places = jnp.arange(index.shape[0], dtype=jnp.int32)
        params = rough.params[chosen]
        if keep:
            params = or_incumbent(energy, sample, clusters, index, params, start)
        initial = Alignment(places, params, rough.energy[chosen])
        fine = self.second.align(energy, sample, clusters.take(index), shared, initial, prepared[1])
        return Alignment(index[fine.cluster], fine.params, fine.energy)

    def _num_followed(self, num_clusters: int) -> int:
        return candidate_count(self.candidates, self.first.num_candidates(num_clusters))


def _with_incumbent(rough: Alignment, start: Alignment) -> Alignment:
    """The candidates, with the last replaced by the incumbent's cluster if that is not included."""
    absent = (start.cluster[0] >= 0) & jnp.all(rough.cluster != start.cluster[0])
    cluster = jnp.where(absent, start.cluster[0], rough.cluster[-1])
    params = jnp.where(absent, start.params[0], rough.params[-1])
    return Alignment(
        rough.cluster.at[-1].set(cluster), rough.params.at[-1].set(params), rough.energy
    )
