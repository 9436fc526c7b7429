"""Reductions over prototypes: how the energies of all clusters make the loss of one sample."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


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
