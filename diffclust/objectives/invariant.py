"""The invariant distance of one sample to prototypes, and the distortion of a data set."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust.alignment import AbstractAligner, AbstractPairEnergy, Alignment
from diffclust.prototypes import Clusters
from diffclust.types import Scalar


class InvariantDistance(eqx.Module):
    """d(x, c) = min over ν of the energy of T(x; ν) against c: a distance that sees through T.

    A quasi-pseudo-semi-metric (DI K-means, Prop. 2): zero on whole orbits, not symmetric unless the
    energy weighs pixels by the Jacobian, without the triangle inequality.

    Attributes:
        energy: What is minimised, penalties included.
        aligner: What minimises it.

    References:
        Cosentino et al., DI K-means, Eq. 3.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner

    def align(self, sample: PyTree, clusters: Clusters, shared: PyTree = None) -> Alignment:
        """Aligns one sample to all clusters, from the identity.

        Args:
            sample: One sample.
            clusters: All clusters.
            shared: What the clusters share.

        Returns:
            The best clusters, ordered by energy.
        """
        dtype = clusters.penalty.dtype
        start = Alignment(
            jnp.full((1,), -1, dtype=jnp.int32),
            jnp.zeros((1, self.energy.num_params), dtype=dtype),
            jnp.full((1,), jnp.inf, dtype=dtype),
        )
        prepared = self.aligner.prepare(self.energy, clusters, shared)
        return self.aligner.align(self.energy, sample, clusters, shared, start, prepared)

    def __call__(
        self, sample: PyTree, prototype: PyTree, penalty: Float[Array, " terms"] | None = None
    ) -> Scalar:
        """The distance of one sample to one prototype.

        Args:
            sample: One sample.
            prototype: One prototype.
            penalty: Weights of the energy's penalty terms; zero for all where it is not given.

        Returns:
            The least energy that the aligner finds.
        """
        if penalty is None:
            penalty = jnp.zeros((self.energy.num_penalties,), dtype=jnp.result_type(float))
        alone = Clusters(_stacked(prototype), penalty[None])
        return self.align(sample, alone).energy[0]


def _stacked(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[None], tree)


def hard_minimum(
    energies: Float[Array, "n clusters"], weight: Float[Array, " n"] | None = None
) -> tuple[Scalar, Int[Array, " n"]]:
    """The distortion: every sample counts with its best cluster.

    Args:
        energies: Invariant distances of samples to all prototypes.
        weight: Sample weights, or None for ones.

    Returns:
        The sum over samples of the least energy, and each sample's cluster.

    References:
        Cosentino et al., DI K-means, Eq. 2.
    """
    least = jnp.min(energies, axis=1)
    total = jnp.sum(least) if weight is None else jnp.dot(least, weight)
    return total, jnp.argmin(energies, axis=1).astype(jnp.int32)
