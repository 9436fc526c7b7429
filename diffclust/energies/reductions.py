"""Reductions over prototypes: how the energies of all clusters determine a sample's loss."""

import abc
import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from diffclust import _validation


class AbstractReduction(eqx.Module):
    """A reduction of a sample's energies to its loss.

    A score is an energy plus an offset that the objective adds for the cluster. A sample belongs to
    the cluster with the lowest score.

    Attributes:
        is_adaptive: Whether it is updated by sums over all samples; see
            `AbstractAdaptiveReduction`.
    """

    is_adaptive: ClassVar[bool] = False
    is_hard: ClassVar[bool] = False
    """Whether every sample belongs only to its best cluster, so that its membership is unchanged
    from pass to pass as long as that cluster stays the best: sums are kept, and only changes are
    added."""

    def init(self, num_clusters: int, dtype: jnp.dtype) -> PyTree:
        """Initialises the parameters of the objective that gradient steps learn.

        Args:
            num_clusters: Number of clusters.
            dtype: Floating dtype.

        Returns:
            A tree whose leaves have a leading cluster axis; by default None, if there is nothing to
            learn.
        """
        return None

    def offsets(self, learned: PyTree, num_clusters: int) -> Float[Array, " clusters"] | None:
        """Terms that are added to the energies of each cluster.

        Args:
            learned: What the objective has learned.
            num_clusters: Number of clusters.

        Returns:
            One number per cluster; by default None, if nothing is added.
        """
        return None

    def statistics(
        self,
        scores: Float[Array, "n candidates"],
        weight: Float[Array, " n"],
        cluster: Int[Array, "n candidates"],
    ) -> PyTree:
        """Sums over a batch of samples, to be added over chunks and devices.

        Args:
            scores: Scores of the candidates of each sample, ascending.
            weight: Weights of the samples; padding has weight zero.
            cluster: The clusters of the candidates.

        Returns:
            A tree of arrays; by default None, if nothing is summed.
        """
        return None

    @abc.abstractmethod
    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """The loss of each sample.

        Args:
            scores: Scores of all clusters, or of those that matter.

        Returns:
            One number per sample.
        """

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """Share of each cluster in each sample: the derivative of the loss by the scores.

        Args:
            scores: Scores of all clusters, or of those that matter.

        Returns:
            Non-negative numbers that sum to one, or to less for samples that count less.
        """
        return jax.grad(lambda given: jnp.sum(self(given)))(scores)

    def memberships(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """Share of each cluster in each sample, as a fit reports it.

        Prototypes are means weighted by the responsibilities, which may differ from the
        memberships.

        Args:
            scores: Scores of all clusters, or of those that matter.

        Returns:
            Non-negative numbers; by default the responsibilities.
        """
        return self.responsibilities(scores)


class AbstractAdaptiveReduction(AbstractReduction):
    """A reduction that is updated from all samples: trimmed, balanced, annealed.

    Its array leaves are its state. The loss and the memberships of one sample depend only on its
    own scores and on this state; the state is computed from sums over the samples, which are added
    over chunks and devices. A solver turns all leaves into arrays, updates them after every pass
    (or window of steps), and stores them with what is learned (`Learned.objective`).
    """

    is_adaptive: ClassVar[bool] = True

    def init(self, num_clusters: int, dtype: jnp.dtype) -> PyTree:
        """Returns the reduction itself, with arrays as leaves."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self)

    @abc.abstractmethod
    def update(self, statistics: PyTree) -> "AbstractAdaptiveReduction":
        """The reduction for the next pass.

        Args:
            statistics: Sums over all samples.

        Returns:
            A reduction of the same structure.
        """


class HardMinimum(AbstractReduction):
    """The score of every sample in its best cluster: the distortion of K-means.

    References:
        Monnier et al., DTI clustering, Eq. 4.
    """

    is_hard: ClassVar[bool] = True

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """The lowest score."""
        return jnp.min(scores, axis=-1)

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """Returns one for the best cluster and zero for all others."""
        return jax.nn.one_hot(jnp.argmin(scores, axis=-1), scores.shape[-1], dtype=scores.dtype)


class Entropic(AbstractReduction):
    """The soft minimum of the scores: each sample belongs to all clusters, the nearest most.

    Attributes:
        temperature: T; scores that differ by T differ by a factor e in membership. Must be
            positive.

    References:
        Rose (1998), Deterministic annealing for clustering.
    """

    temperature: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        """Refuses temperatures for which there is no soft minimum."""
        _validation.positive(self.temperature, "temperature", least=0, strictly=True)

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """-T log Σ exp(-score / T)."""
        scale = self.temperature.astype(scores.dtype)
        return -scale * jax.nn.logsumexp(-scores / scale, axis=-1)

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """The softmax of -score / T."""
        return jax.nn.softmax(-scores / self.temperature.astype(scores.dtype), axis=-1)


class Fuzzy(AbstractReduction):
    """Fuzzy c-means: memberships u minimise Σ uᵐ · score.

    Scores must not be negative, as log-likelihoods can be: the loss of a sample with a negative
    score is NaN, which stops the fit.

    Attributes:
        fuzzifier: m, greater than 1; the closer to 1, the harder the memberships.

    References:
        Bezdek (1981), Pattern recognition with fuzzy objective function algorithms.
    """

    fuzzifier: Float[Array, ""] = eqx.field(default=2.0, converter=jnp.asarray)

    def __check_init__(self):
        """Refuses exponents for which there are no optimal memberships."""
        _validation.positive(self.fuzzifier, "fuzzifier", strictly=True)

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """(Σ score^(-1/(m-1)))^(1-m)."""
        return _fuzzy_loss(scores, self._power(scores))

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """uᵐ, which sum to one or less."""
        return self.memberships(scores) ** self.fuzzifier.astype(scores.dtype)

    def memberships(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """u, which sum to one."""
        return jax.nn.softmax(-_log_scores(scores) / self._power(scores), axis=-1)

    def _power(self, scores: Array) -> Float[Array, ""]:
        return self.fuzzifier.astype(scores.dtype) - 1.0


def _log_scores(scores: Array) -> Array:
    """Logarithms, finite at zero and NaN for negative numbers."""
    tiny = jnp.finfo(scores.dtype).tiny
    return jnp.where(scores >= 0, jnp.log(jnp.maximum(scores, tiny)), jnp.nan)


@jax.custom_jvp
def _fuzzy_loss(scores: Float[Array, "*n clusters"], power: Float[Array, ""]) -> Float[Array, "*n"]:
    """(Σ score^(-1/power))^-power, with the right slope even if a score is zero."""
    return _loss_of_logs(_log_scores(scores), power)


def _loss_of_logs(logs: Array, power: Array) -> Array:
    return jnp.exp(-power * jax.nn.logsumexp(-logs / power, axis=-1))


@_fuzzy_loss.defjvp
def _fuzzy_loss_jvp(primals: tuple, tangents: tuple) -> tuple:
    (scores, power), (change, faster) = primals, tangents
    logs = _log_scores(scores)
    value, by_power = jax.jvp(functools.partial(_loss_of_logs, logs), (power,), (faster,))
    responsibilities = jax.nn.softmax(-logs / power, axis=-1) ** (power + 1.0)
    return value, jnp.sum(responsibilities * change, axis=-1) + by_power


class MixtureLikelihood(AbstractReduction):
    """The negative log-likelihood of a mixture with the probabilities π = softmax(η).

    Energies must be negative log-likelihoods. The gradient is that of the expected negative
    log-likelihood with fixed responsibilities, so a gradient step on it is the M-step of Algorithm
    1.

    References:
        Monnier et al., DTI clustering, Eq. 5 and Algorithm 1.
    """

    def init(self, num_clusters: int, dtype: jnp.dtype) -> Float[Array, " clusters"]:
        """η = 1."""
        return jnp.ones((num_clusters,), dtype=dtype)

    def offsets(self, learned: PyTree, num_clusters: int) -> Float[Array, " clusters"]:
        """-log π."""
        return -jax.nn.log_softmax(learned)

    def __call__(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n"]:
        """-log Σ exp(-score)."""
        return -jax.nn.logsumexp(-scores, axis=-1)

    def responsibilities(self, scores: Float[Array, "*n clusters"]) -> Float[Array, "*n clusters"]:
        """γ of Algorithm 1 (iv)."""
        return jax.nn.softmax(-scores, axis=-1)
