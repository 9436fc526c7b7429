"""Distances of shapes with Gaussian landmarks, and the density of such shapes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from diffclust import _validation as check
from diffclust.distances.base import AbstractDissimilarity, AbstractDistance
from diffclust.distances.divergences import alpha_divergence, hellinger
from diffclust.distances.fisher_rao import (
    diagonal_fisher_rao,
    diagonalised_fisher_rao,
    fisher_rao,
    isotropic_fisher_rao,
    same_mean_fisher_rao,
    squared_diagonal_fisher_rao,
    squared_fisher_rao,
)
from diffclust.distances.gaussian import AnyGaussian, DiagonalGaussian
from diffclust.distances.wasserstein import printed_wasserstein, squared_wasserstein, wasserstein
from diffclust.linalg import safe_sqrt
from diffclust.types import Landmarks, LandmarkWeights, Scalar

LANDMARK_DISTANCES: dict[str, Callable[[Any, Any], Array]] = {
    "diagonal_fisher_rao": diagonal_fisher_rao,
    "diagonalised_fisher_rao": diagonalised_fisher_rao,
    "fisher_rao": fisher_rao,
    "hellinger": hellinger,
    "printed_wasserstein": printed_wasserstein,
    "isotropic_fisher_rao": isotropic_fisher_rao,
    "same_mean_fisher_rao": same_mean_fisher_rao,
    "wasserstein": wasserstein,
}
"""The distances that `LandmarkDistance` accepts by name."""

_SQUARES: dict[Callable[[Any, Any], Array], Callable[[Any, Any], Array]] = {
    diagonal_fisher_rao: squared_diagonal_fisher_rao,
    fisher_rao: squared_fisher_rao,
    wasserstein: squared_wasserstein,
}
"""Squared distances that are smooth even if landmarks agree, unlike the square of a root."""


class LandmarkDistance(AbstractDistance):
    """The distance of two shapes, from those of their landmarks.

    Shapes are `DiagonalGaussian` or `Gaussian` with a leading axis of corresponding landmarks.

    Attributes:
        between: Distance of two landmarks: a name from `LANDMARK_DISTANCES`, or a function of two
            Gaussians.
        norm: "l1" sums the distances, "l2" is the root of the sum of their squares. The second
            derivatives of "l2" ignore landmarks that agree, except with `"diagonal_fisher_rao"`,
            `"fisher_rao"` and `"wasserstein"`.

    References:
        Shape K-means, Eqs. 13 and 14.
    """

    between: str | Callable[[Any, Any], Array] = eqx.field(
        static=True, default="diagonal_fisher_rao"
    )
    norm: str = eqx.field(static=True, default="l1", kw_only=True)

    def __check_init__(self):
        """Refuses unknown names."""
        if isinstance(self.between, str) and self.between not in LANDMARK_DISTANCES:
            known = ", ".join(sorted(LANDMARK_DISTANCES))
            raise ValueError(f"between must be a function or one of {known}, not {self.between!r}")
        check.one_of(self.norm, ("l1", "l2"), "norm")

    def __call__(
        self, sample: AnyGaussian, prototype: AnyGaussian, weight: LandmarkWeights | None = None
    ) -> Scalar:
        """The distance; see `AbstractDistance.__call__`.

        Args:
            sample: One shape.
            prototype: Another shape, of the same class and landmarks.
            weight: A non-negative weight for each landmark, which multiplies its distance ("l1") or
                squared distance ("l2"), or None.

        Returns:
            A non-negative number.
        """
        between = self.between if callable(self.between) else LANDMARK_DISTANCES[self.between]
        if self.norm == "l2":
            distance = between
            between = _SQUARES.get(distance, lambda x, y: distance(x, y) ** 2)
        terms = jax.vmap(between)(sample, prototype)
        total = jnp.sum(terms if weight is None else terms * weight)
        return total if self.norm == "l1" else safe_sqrt(total)


class LandmarkNegativeLogLikelihood(AbstractDissimilarity):
    """-Σ log N(xₖ; μₖ, Σₖ) over landmarks, including log-determinants.

    Its minimum over assignments, means and covariances is the classification likelihood, whose
    values can be compared between clusters and between runs. Variances must be positive; the
    prototype family has a floor for them.

    References:
        Celeux and Govaert, A classification EM algorithm for clustering (1992).
    """

    def __call__(
        self, sample: Landmarks, prototype: AnyGaussian, weight: LandmarkWeights | None = None
    ) -> Scalar:
        """The negative log-likelihood; see `AbstractDissimilarity.__call__`.

        Args:
            sample: One shape.
            prototype: A Gaussian for each landmark.
            weight: A non-negative weight for each landmark, or None.

        Returns:
            A number in nats; negative if the density exceeds one.
        """
        offset = sample - prototype.mean
        if isinstance(prototype, DiagonalGaussian):
            terms = jnp.sum(offset**2 / prototype.variance + jnp.log(prototype.variance), axis=-1)
        else:
            factor = jnp.linalg.cholesky(prototype.covariance)
            white = jax.lax.linalg.triangular_solve(
                factor, offset[..., None], left_side=True, lower=True
            )
            log_scale = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))
            terms = jnp.sum(white[..., 0] ** 2, axis=-1) + 2.0 * jnp.sum(log_scale, axis=-1)
        terms = 0.5 * (terms + sample.shape[-1] * math.log(2.0 * math.pi))
        return jnp.sum(terms if weight is None else terms * weight)


_BY_SETTING = {
    "fisher-rao": diagonal_fisher_rao,
    "wasserstein": wasserstein,
    "squared-wasserstein": squared_wasserstein,
    "printed-wasserstein": printed_wasserstein,
}


@functools.cache
def between_gaussians(distance: str, variances: str, alpha: float = 0.0) -> Callable[..., Scalar]:
    """A distance between two Gaussians.

    Args:
        distance: The name of the distance.
        variances: `"full"` for covariance matrices, `"isotropic"` for one variance, otherwise
            variances.
        alpha: α of an `"alpha-divergence"`.

    Returns:
        The distance; the same object for the same arguments.
    """
    if distance == "alpha-divergence":
        return functools.partial(alpha_divergence, alpha=alpha)
    if distance == "fisher-rao" and variances == "full":
        return fisher_rao
    if distance == "fisher-rao" and variances in ("isotropic", "round"):
        return _isotropic
    return _BY_SETTING[distance]


def _isotropic(p: DiagonalGaussian, q: DiagonalGaussian) -> Scalar:
    """Fisher–Rao distance of Gaussians whose axes all have the variance of the first."""
    return isotropic_fisher_rao(
        DiagonalGaussian(p.mean, p.variance[0]), DiagonalGaussian(q.mean, q.variance[0])
    )
