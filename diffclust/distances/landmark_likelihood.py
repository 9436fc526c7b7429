"""The density of shapes whose landmarks are independent Gaussian variables."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.distances.base import AbstractDissimilarity
from diffclust.distances.gaussian import DiagonalGaussian, Gaussian
from diffclust.types import Scalar


class LandmarkNegativeLogLikelihood(AbstractDissimilarity):
    """-Σ log N(xₖ; μₖ, Σₖ) over landmarks, log-determinants included.

    Its minimum over assignments, means and covariances is the classification likelihood, whose
    values can be compared between clusters and between runs. Variances must be positive; the
    prototype family has a floor for them.

    References:
        Celeux and Govaert, A classification EM algorithm for clustering (1992).
    """

    def __call__(
        self,
        sample: Float[Array, "landmarks dims"],
        prototype: DiagonalGaussian | Gaussian,
        weight: Float[Array, " landmarks"] | None = None,
    ) -> Scalar:
        """The negative log-likelihood; see `AbstractDissimilarity.__call__`.

        Args:
            sample: One shape.
            prototype: A Gaussian for each landmark.
            weight: A non-negative weight for each landmark, or None.

        Returns:
            A number in nats; negative where the density exceeds one.
        """
        moved = sample - prototype.mean
        if isinstance(prototype, DiagonalGaussian):
            terms = jnp.sum(moved**2 / prototype.variance + jnp.log(prototype.variance), axis=-1)
        else:
            factor = jnp.linalg.cholesky(prototype.covariance)
            white = jax.lax.linalg.triangular_solve(
                factor, moved[..., None], left_side=True, lower=True
            )
            spread = jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1))
            terms = jnp.sum(white[..., 0] ** 2, axis=-1) + 2.0 * jnp.sum(spread, axis=-1)
        terms = 0.5 * (terms + sample.shape[-1] * math.log(2.0 * math.pi))
        return jnp.sum(terms if weight is None else terms * weight)
