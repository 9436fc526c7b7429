"""What every energy of a pair offers, and the reductions over prototypes."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

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
    def exemplar(self, prototype: PyTree) -> PyTree:
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


def hessian_at_rest(
    energy: AbstractPairEnergy,
    bound: BoundEnergy,
    cluster: Clusters,
    basis: Float[Array, "params subspace"] | None = None,
) -> Float[Array, "subspace subspace"]:
    """The energy's Hessian where a prototype meets itself: the Gauss-Newton matrix there.

    Args:
        energy: The energy.
        bound: The same, bound to the size of the sample.
        cluster: One cluster.
        basis: Columns of the subspace that is searched, or None for all params.

    Returns:
        A symmetric positive semidefinite matrix.
    """
    sample = energy.exemplar(cluster.prototype)

    def function(z: Params) -> Array:
        return bound(z if basis is None else basis @ z, sample, cluster)

    size = energy.num_params if basis is None else basis.shape[1]
    return jax.hessian(function)(jnp.zeros((size,), dtype=cluster.dtype))


class AbstractReduction(eqx.Module):
    """How a sample's energies become its loss.

    A score is an energy plus what the objective has against its cluster. A sample belongs to
    the cluster of least score.
    """

    @property
    def is_hard(self) -> bool:
        """Whether every sample belongs to its best cluster alone."""
        return False

    @abc.abstractmethod
    def init(self, num_clusters: int, dtype: jnp.dtype) -> PyTree:
        """What the objective learns, before the first step.

        Args:
            num_clusters: Number of clusters.
            dtype: Floating dtype.

        Returns:
            A tree whose leaves have a leading cluster axis, or None.
        """

    @abc.abstractmethod
    def offsets(self, learned: PyTree, num_clusters: int) -> Float[Array, " clusters"] | None:
        """What is added to the energies of each cluster.

        Args:
            learned: What the objective has learned.
            num_clusters: Number of clusters.

        Returns:
            One number a cluster, or None for nothing.
        """

    @abc.abstractmethod
    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """The loss of each sample.

        Args:
            scores: Scores of all clusters, or of those that matter.

        Returns:
            One number a sample.
        """

    @abc.abstractmethod
    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """How much of each sample is each cluster's: the loss's derivative by the scores.

        Args:
            scores: Scores of all clusters.

        Returns:
            Non-negative numbers that add up to one.
        """


class HardMinimum(AbstractReduction):
    """Every sample counts with its best cluster: the distortion of K-means.

    References:
        Monnier et al., DTI clustering, Eq. 4.
    """

    @property
    def is_hard(self) -> bool:
        """True."""
        return True

    def init(self, num_clusters: int, dtype: jnp.dtype) -> PyTree:
        """Nothing; see `AbstractReduction.init`."""
        return None

    def offsets(self, learned: PyTree, num_clusters: int) -> Float[Array, " clusters"] | None:
        """None; see `AbstractReduction.offsets`."""
        return None

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """The least score; see `AbstractReduction.__call__`."""
        return jnp.min(scores, axis=-1)

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """One for the best cluster; see `AbstractReduction.responsibilities`."""
        best = jnp.argmin(scores, axis=-1, keepdims=True)
        number = jnp.arange(scores.shape[-1], dtype=best.dtype)
        return (jnp.expand_dims(number, range(scores.ndim - 1)) == best).astype(scores.dtype)


class MixtureLikelihood(AbstractReduction):
    """The negative log-likelihood of a mixture with the probabilities π = softmax(η).

    Energies must be negative log-likelihoods. Its gradient is that of the expected negative
    log-likelihood with the responsibilities held fixed, so a gradient step on it is the M-step of
    Algorithm 1.

    References:
        Monnier et al., DTI clustering, Eq. 5 and Algorithm 1.
    """

    def init(self, num_clusters: int, dtype: jnp.dtype) -> Float[Array, " clusters"]:
        """η = 1; see `AbstractReduction.init`."""
        return jnp.ones((num_clusters,), dtype=dtype)

    def offsets(self, learned: PyTree, num_clusters: int) -> Float[Array, " clusters"]:
        """-log π; see `AbstractReduction.offsets`."""
        return -jax.nn.log_softmax(learned)

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """-log Σ exp(-score); see `AbstractReduction.__call__`."""
        return -jax.nn.logsumexp(-scores, axis=-1)

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """γ of Algorithm 1 (iv); see `AbstractReduction.responsibilities`."""
        return jax.nn.softmax(-scores, axis=-1)
