"""The interface and results of aligners, and the aligners that move nothing."""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust import _validation as check
from diffclust.energies import AbstractPairEnergy
from diffclust.linalg import first_minimum
from diffclust.prototypes import Clusters, LandmarkGaussians
from diffclust.types import Scalar

_FEW = 12
"""Up to this many lowest energies are found one by one; beyond that, a sort is faster."""


class Alignment(eqx.Module):
    """A sample's best clusters and its alignment to each, best first.

    Attributes:
        cluster: Indices of the clusters that were followed to the end; -1 marks an empty slot.
        params: The params found for each.
        energy: The energy of each, ascending; infinite in an empty slot.
    """

    cluster: Int[Array, " candidates"]
    params: Float[Array, "candidates params"]
    energy: Float[Array, " candidates"]

    @property
    def margin(self) -> Scalar:
        """Energy of the second-best cluster minus that of the best; infinite with one cluster."""
        if self.energy.shape[0] < 2:
            return jnp.full((), jnp.inf, dtype=self.energy.dtype)
        return self.energy[1] - self.energy[0]


def check_candidates(candidates: int | None) -> None:
    """Refuses too few clusters for a margin.

    Args:
        candidates: How many clusters an alignment holds; None for all.

    Raises:
        ValueError: If there are fewer than two.
    """
    if candidates is not None and candidates < 2:
        raise ValueError(
            f"candidates must be at least 2 (the second gives the margin), not {candidates}; None "
            "follows all clusters"
        )


def candidate_count(candidates: int | None, num_clusters: int) -> int:
    """The number of clusters that an alignment holds.

    Args:
        candidates: The maximum number; None for all.
        num_clusters: Number of clusters.

    Returns:
        The number.
    """
    return num_clusters if candidates is None else min(candidates, num_clusters)


def most_promising(
    cluster: Int[Array, " n"], energy: Float[Array, " n"], start: Alignment, count: int
) -> Int[Array, " count"]:
    """The clusters with the lowest energies; the incumbent is always the first.

    Args:
        cluster: Indices of clusters.
        energy: The energy of each.
        start: The incumbent, as given to `align`.
        count: How many clusters to return.

    Returns:
        Their positions among the given clusters.
    """
    if start.cluster.shape[0]:
        energy = jnp.where(cluster == start.cluster[0], -jnp.inf, energy)
    return jax.lax.top_k(-energy, count)[1]


def or_incumbent(
    energy: AbstractPairEnergy,
    sample: PyTree,
    clusters: Clusters,
    index: Int[Array, " candidates"],
    params: Float[Array, "candidates params"],
    start: Alignment,
) -> Float[Array, "candidates params"]:
    """Replaces params by those of the incumbent wherever that is better.

    Args:
        energy: The energy to minimise.
        sample: One sample.
        clusters: All clusters.
        index: The candidates' indices among the clusters.
        params: Params of each candidate.
        start: The incumbent, as given to `align`.

    Returns:
        Params of each candidate.
    """
    candidates = clusters.take(index)
    energies = jax.vmap(energy.bind(sample), in_axes=(0, None, 0))
    best, least = params, energies(params, sample, candidates)
    for place in range(start.cluster.shape[0]):
        same = (index == start.cluster[place])[:, None]
        warm = jnp.where(same, start.params[place][None], params)
        value = energies(warm, sample, candidates)
        better = value < least
        best = jnp.where(better[:, None], warm, best)
        least = jnp.where(better, value, least)
    return best


def ranked(
    energy: AbstractPairEnergy,
    sample: PyTree,
    clusters: Clusters,
    params: Float[Array, "clusters params"],
    start: Alignment,
    *,
    count: int | None = None,
) -> Alignment:
    """Makes an alignment of params that were found for every cluster.

    Where the identity or the incumbent is better than what was found, it is taken instead.

    Args:
        energy: The energy to minimise.
        sample: One sample.
        clusters: All clusters.
        params: Params for each cluster.
        start: The incumbent, as given to `align`.
        count: How many clusters the alignment holds; None for all.

    Returns:
        The best clusters, ordered by energy; the incumbent's first is among them.

    Raises:
        ValueError: If params have another shape.
    """
    if params.shape != (wanted := (len(clusters), energy.num_params)):
        raise ValueError(f"params for every cluster must be of shape {wanted}, not {params.shape}")
    bound, unaligned = energy.bind(sample), energy.unaligned(sample, clusters)
    value = jax.vmap(bound, in_axes=(0, None, 0))(params, sample, clusters)
    params = jnp.where((unaligned < value)[:, None], 0.0, params)
    value = jnp.minimum(unaligned, value)
    for place in range(start.cluster.shape[0]):
        cluster, warm = jnp.maximum(start.cluster[place], 0), start.params[place]
        energy_there = bound(warm, sample, clusters.take(cluster))
        better = (start.cluster[place] >= 0) & (energy_there < value[cluster])
        params = params.at[cluster].set(jnp.where(better, warm, params[cluster]))
        value = value.at[cluster].set(jnp.where(better, energy_there, value[cluster]))
    index = jnp.arange(len(clusters), dtype=jnp.int32)
    index = index[most_promising(index, value, start, len(clusters) if count is None else count)]
    index = index[jnp.argsort(value[index])]
    return Alignment(index, params[index], value[index])


def check_samples(energy: AbstractPairEnergy, samples: PyTree, clusters: Clusters) -> None:
    """Refuses samples whose shapes differ from those that the prototypes stand for.

    Args:
        energy: The energy to minimise.
        samples: Samples with a leading axis.
        clusters: All clusters.

    Raises:
        ValueError: If a shape differs, even if it would broadcast.
    """
    one = eqx.filter_eval_shape(lambda tree: jax.tree.map(lambda x: x[0], tree), clusters.prototype)
    wanted = [leaf.shape for leaf in jax.tree.leaves(eqx.filter_eval_shape(energy.exemplar, one))]
    given = [leaf.shape[1:] for leaf in jax.tree.leaves(samples)]
    if given != wanted:
        raise ValueError(f"the clusters are of samples of shapes {wanted}, not {given}")


class AbstractAligner(eqx.Module):
    """Minimises an energy over the params, for one sample and all clusters.

    Attributes:
        ignores_start: Whether `align` may return worse params than the ones it starts from, for
            example because they are predicted.
        is_learned: Whether the params are a function of what is learned, to be trained by
            gradients. By default they minimise the energy instead, and the energy's gradient does
            not flow through them.
    """

    ignores_start: ClassVar[bool] = False
    is_learned: ClassVar[bool] = False

    def num_candidates(self, num_clusters: int) -> int:
        """The number of clusters that an alignment holds.

        Args:
            num_clusters: Number of clusters there are.

        Returns:
            Length of `Alignment.cluster`; by default all clusters.
        """
        return num_clusters

    def working_copies(self, num_clusters: int) -> int:
        """The number of arrays of a sample's size that are in memory while it is aligned.

        Args:
            num_clusters: Number of clusters there are.

        Returns:
            An integer, which determines chunk sizes; by default one for each cluster.
        """
        return num_clusters

    def prepare(self, energy: AbstractPairEnergy, clusters: Clusters, shared: PyTree) -> PyTree:
        """Computes what depends only on the clusters, once for all samples.

        Args:
            energy: The energy to minimise.
            clusters: All clusters, or some like them, fewer or more: the result must not have a row
                for each cluster.
            shared: What the clusters share.

        Returns:
            A value that is passed to `align`; by default None.
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
            energy: The energy to minimise.
            sample: One sample; batching is `jax.vmap`'s job.
            clusters: All clusters.
            shared: What the clusters share.
            start: The incumbent: a few clusters and params to start from, best first, or none. The
                result always includes the first, and no cluster in the result is worse than it was
                here or than it is unaligned. Slots with cluster -1 are ignored.
            prepared: What `prepare` returned.

        Returns:
            The best clusters, ordered by energy.
        """


def parts_of(aligner: AbstractAligner) -> dict[str, AbstractAligner]:
    """The aligners of which an aligner is composed.

    Args:
        aligner: The aligner.

    Returns:
        The aligners, by the names of its fields.
    """
    values = {field.name: getattr(aligner, field.name) for field in dataclasses.fields(aligner)}
    return {name: part for name, part in values.items() if isinstance(part, AbstractAligner)}


class AbstractWithCandidates(AbstractAligner):
    """Aligns to as many clusters as a setting says, or to all if there are fewer.

    Attributes:
        candidates: How many of the best clusters are returned; None for all.
    """

    candidates: eqx.AbstractVar[int | None]

    def num_candidates(self, num_clusters: int) -> int:
        return candidate_count(self.candidates, num_clusters)


class AbstractUnaligned(AbstractWithCandidates):
    """Takes energies at the identity.

    Attributes:
        candidates: How many of the best clusters are returned; None for all.
    """

    candidates: int | None = eqx.field(static=True, default=2, kw_only=True)
    ignores_start: ClassVar[bool] = True

    def __check_init__(self):
        """Refuses an alignment that holds no cluster."""
        if self.candidates is not None:
            check.count(self.candidates, "candidates")

    def compared(self, clusters: Clusters, start: Alignment) -> Clusters:
        """The prototypes with which a sample is compared.

        Args:
            clusters: All clusters.
            start: The incumbent, as given to `align`.

        Returns:
            The same number of clusters; by default the given ones.
        """
        return clusters

    def align(
        self,
        energy: AbstractPairEnergy,
        sample: PyTree,
        clusters: Clusters,
        shared: PyTree,
        start: Alignment,
        prepared: PyTree,
    ) -> Alignment:
        params = jnp.zeros((energy.num_params,), dtype=start.params.dtype)
        energies = energy.unaligned(sample, self.compared(clusters, start))
        count = self.num_candidates(len(clusters))
        chosen, least = _least(energies, count)
        return Alignment(chosen, jnp.tile(params[None], (count, 1)), least)


def _least(
    energies: Float[Array, " n"], count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """The lowest energies in ascending order, but NaN first, and their positions."""
    if count > _FEW:
        order = jnp.argsort(jnp.where(jnp.isnan(energies), -jnp.inf, energies))[:count]
        return order.astype(jnp.int32), energies[order]
    index, chosen, least = jnp.arange(energies.shape[0], dtype=jnp.int32), [], []
    # Only energies already taken are infinite, so that no cluster is taken twice.
    largest = jnp.finfo(energies.dtype).max
    left = jnp.minimum(energies, largest)
    for _ in range(count):
        best, value = first_minimum(left)
        chosen.append(best)
        least.append(jnp.where(value == largest, jnp.inf, value))
        left = jnp.where(index == best, jnp.inf, left)
    return jnp.stack(chosen), jnp.stack(least)


class NoAlignment(AbstractUnaligned):
    """Takes energies at the identity; Lloyd's algorithm with it is ordinary K-means.

    Attributes:
        candidates: How many of the best clusters are returned; None for all.
    """

    def working_copies(self, num_clusters: int) -> int:
        """Returns 0: samples are read where they are."""
        return 0


class ClusterVariances(AbstractUnaligned):
    """Compares a shape, with the variances of its cluster, with all centres and their variances.

    A shape that is not in a cluster yet carries the variances of each centre with which it is
    compared. Since a shape's variances change with its cluster, the sum of these distances need not
    fall from pass to pass: the Type II algorithm has no objective.

    Attributes:
        candidates: How many of the best clusters are returned; None for all.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Sec. 4.2.
    """

    def working_copies(self, num_clusters: int) -> int:
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
