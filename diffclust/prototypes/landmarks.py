"""Prototypes of shapes: every landmark is a Gaussian, whose variance the data tell."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.distances import DiagonalGaussian, Gaussian
from diffclust.prototypes.base import AbstractPrototypeFamily
from diffclust.types import Scalar

Variances = Literal["round", "per_landmark", "per_cluster"]
"""One for all landmarks; one a landmark and coordinate; one a cluster, landmark and coordinate."""

Spread = Array
"""Variances `(..., landmarks, dims)`, or covariances `(..., landmarks, dims, dims)`."""


class LandmarkGaussians(eqx.Module):
    """A mean shape, each of whose landmarks is a Gaussian.

    Attributes:
        centre: The Gaussians, with a leading axis of landmarks.
        spread: The variances that a shape of this cluster carries; those of the centre, unless
            that is a Fréchet mean of its Gaussians.
    """

    centre: DiagonalGaussian | Gaussian
    spread: Spread


class LandmarkSums(eqx.Module):
    """Sums over the shapes of each cluster, about a reference shape.

    Attributes:
        first: Σ of the displacements from the reference.
        second: Σ of their squares, or of their outer products.
        count: Σ of the weights.
    """

    first: Float[Array, "clusters landmarks dims"]
    second: Float[Array, "clusters landmarks ..."]
    count: Float[Array, " clusters"]


def gaussians(shape: Float[Array, "*n landmarks dims"], spread: Spread) -> PyTree:
    """A shape whose landmarks are Gaussians.

    Args:
        shape: The means.
        spread: Their variances or covariances.

    Returns:
        A `DiagonalGaussian` or a `Gaussian`.
    """
    if spread.ndim == shape.ndim:
        return DiagonalGaussian(shape, spread)
    return Gaussian(shape, spread)


class MeanShapes(AbstractPrototypeFamily):
    """The mean of a cluster's shapes, and variances by their scatter about it.

    Attributes:
        reference: A shape near all others, about which sums lose no digits.
        initial: Variances or covariances of a cluster that is just begun. Their rank says which
            of the two are learned.
        floor: The least variance; anything below is lifted to it.
        variances: What has a variance of its own.
        pooling: Whether variances that clusters share are those of all shapes about their common
            mean (`"total"`, the paper's, known before the first pass), or about the means of
            their clusters (`"within"`).
        prior: Variances of a cluster are shrunk towards those within all clusters as if so many
            more of its shapes had them.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Sec. 4.
    """

    reference: Float[Array, "landmarks dims"]
    initial: Spread
    floor: Scalar
    variances: Variances = eqx.field(static=True, default="per_cluster", kw_only=True)
    pooling: Literal["total", "within"] = eqx.field(static=True, default="total", kw_only=True)
    prior: float = eqx.field(static=True, default=0.0, kw_only=True)

    @property
    def is_additive(self) -> bool:
        """Yes; see `AbstractPrototypeFamily.is_additive`."""
        return True

    @property
    def starting(self) -> "MeanShapes":
        """Itself; see `AbstractPrototypeFamily.starting`."""
        return self

    @property
    def is_full(self) -> bool:
        """Whether covariances are learned, not variances alone."""
        return self.initial.ndim > self.reference.ndim

    def normalise(self, sample: Float[Array, "landmarks dims"]) -> Float[Array, "landmarks dims"]:
        """Returns the shape as it is: registration comes before."""
        return sample

    def begin(self, sample: Float[Array, "landmarks dims"]) -> LandmarkGaussians:
        """The shape with the initial variances; see `AbstractPrototypeFamily.begin`."""
        return LandmarkGaussians(gaussians(sample, self.initial), self.initial)

    def statistics(
        self,
        aligned: Float[Array, "n landmarks dims"],
        pixel_weight: Array | None,
        membership: Float[Array, "n clusters"],
        prototypes: PyTree = None,
    ) -> LandmarkSums:
        """See `AbstractPrototypeFamily.statistics`."""
        del pixel_weight, prototypes
        moved = aligned - self.reference[None]
        squares = self._square(moved)

        def total(batch: Array) -> Array:
            flat = batch.reshape(batch.shape[0], -1)
            summed = jnp.matmul(membership.T, flat, precision=jax.lax.Precision.HIGHEST)
            return summed.reshape(-1, *batch.shape[1:])

        return LandmarkSums(total(moved), total(squares), jnp.sum(membership, axis=0))

    def update(self, statistics: LandmarkSums, previous: LandmarkGaussians) -> LandmarkGaussians:
        """See `AbstractPrototypeFamily.update`."""
        mean = statistics.first / _column(jnp.maximum(statistics.count, 1e-30), 3)
        spread = self._lifted(self._spread(statistics, mean))
        filled = statistics.count > 0
        mean = jnp.where(_column(filled, 3), self.reference[None] + mean, previous.centre.mean)
        spread = jnp.where(_column(filled, spread.ndim), spread, previous.spread)
        return LandmarkGaussians(gaussians(mean, spread), spread)

    def _spread(self, sums: LandmarkSums, mean: Array) -> Spread:
        """Variances or covariances of every cluster."""
        whole = jnp.maximum(jnp.sum(sums.count), 1e-30)
        scatter = sums.second - _column(sums.count, sums.second.ndim) * self._square(mean)
        within = jnp.sum(scatter, axis=0) / whole
        if self.variances == "per_cluster":
            counts = _column(jnp.maximum(sums.count + self.prior, 1e-30), scatter.ndim)
            return (scatter + self.prior * within[None]) / counts
        if self.pooling == "total":
            shared = jnp.sum(sums.second, axis=0) / whole
            shared = shared - self._square(jnp.sum(sums.first, axis=0) / whole)
        else:
            shared = within
        if self.variances == "round":
            shared = self._round(shared)
        return jnp.broadcast_to(shared[None], sums.second.shape)

    def _square(self, moved: Array) -> Array:
        return moved[..., None] * moved[..., None, :] if self.is_full else moved**2

    def _round(self, spread: Spread) -> Spread:
        if not self.is_full:
            return jnp.full_like(spread, jnp.mean(spread))
        variance = jnp.mean(jnp.diagonal(spread, axis1=-2, axis2=-1))
        return jnp.broadcast_to(
            variance * jnp.eye(spread.shape[-1], dtype=spread.dtype), spread.shape
        )

    def _lifted(self, spread: Spread) -> Spread:
        """Variances, or eigenvalues of covariances, that are no less than the floor."""
        if not self.is_full:
            return jnp.maximum(spread, self.floor)
        values, vectors = jnp.linalg.eigh(spread)
        values = jnp.maximum(values, self.floor)
        return jnp.einsum("...ij,...j,...kj->...ik", vectors, values, vectors)


def _column(values: Array, ndim: int) -> Array:
    return values.reshape(values.shape[0], *[1] * (ndim - 1))
