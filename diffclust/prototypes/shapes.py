"""Prototypes of shapes, in which every landmark is a Gaussian with estimated variance."""

from functools import partial
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust import _validation as check
from diffclust._renamed import renamed_keywords, takes_former_settings
from diffclust.distances import DiagonalGaussian, Gaussian
from diffclust.distances.frechet import HalfPlanePoint, exp_map, hessian_bound, log_map
from diffclust.linalg import einsum, symmetric_maximum
from diffclust.prototypes.base import (
    AbstractPrototypeFamily,
    Covariance,
    LandmarkGaussians,
    Membership,
    column,
    weighted_sums,
)
from diffclust.types import Landmarks, Scalar, Shapes

Variances = Literal["isotropic", "per_landmark", "per_cluster"]
"""One for all landmarks; one per landmark and coordinate; one per cluster, landmark, coordinate."""

_UNIT = 2.0**0.5


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


@renamed_keywords(spread="covariance")
def gaussians(shape: Float[Array, "*n landmarks dims"], covariance: Covariance) -> PyTree:
    """A shape whose landmarks are Gaussians.

    Args:
        shape: The means.
        covariance: Their variances or covariances.

    Returns:
        A `DiagonalGaussian` or a `Gaussian`.
    """
    if covariance.ndim == shape.ndim:
        return DiagonalGaussian(shape, covariance)
    return Gaussian(shape, covariance)


@takes_former_settings
class MeanShapes(AbstractPrototypeFamily):
    """The mean of a cluster's shapes, and variances from their scatter about it.

    Attributes:
        reference: A shape close to all others; sums relative to it lose no digits as long as no
            cluster lies hundreds of its own deviations away.
        initial: Variances or covariances of a new cluster. Their rank determines which of the two
            are learned.
        floor: The minimum variance; anything below is raised to it.
        variances: What has its own variance.
        pooling: Whether variances that clusters share are those of all shapes about their common
            mean (`"total"`, as in the paper, known before the first pass), or those about the means
            of their clusters (`"within"`).
        prior: The variances of a cluster are shrunk towards those within all clusters as if this
            many more of its shapes had them.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Sec. 4.
    """

    reference: Landmarks
    initial: Covariance
    floor: Scalar
    variances: Variances = eqx.field(static=True, default="per_cluster", kw_only=True)
    pooling: Literal["total", "within"] = eqx.field(static=True, default="total", kw_only=True)
    prior: float = eqx.field(static=True, default=0.0, kw_only=True)
    is_additive: ClassVar[bool] = True
    descends: ClassVar[bool] = False  # variances follow the shapes, and distances follow these

    def __check_init__(self):
        """Refuses words that it does not know, and a negative prior."""
        check.one_of(self.variances, get_args(Variances), "variances")
        check.one_of(self.pooling, ("total", "within"), "pooling")
        check.positive(self.prior, "prior", least=0)

    @property
    def is_full(self) -> bool:
        """Whether covariances are learned instead of only variances."""
        return self.initial.ndim > self.reference.ndim

    def init(self, sample: Landmarks) -> LandmarkGaussians:
        """The shape with the initial variances."""
        return LandmarkGaussians(gaussians(sample, self.initial), self.initial)

    def statistics(
        self,
        aligned: Shapes,
        pixel_weight: Array | None,
        membership: Membership,
        prototypes: PyTree = None,
    ) -> LandmarkSums:
        offset = aligned - self.reference[None]
        first, second = (weighted_sums(x, membership) for x in (offset, self._square(offset)))
        return LandmarkSums(first, second, jnp.sum(membership, axis=0))

    def update(self, statistics: LandmarkSums, previous: LandmarkGaussians) -> LandmarkGaussians:
        filled = statistics.count > 0
        # Sums that are updated by moves keep digits of the last shapes to leave.
        first = jnp.where(column(filled, 3), statistics.first, 0.0)
        mean = first / column(jnp.where(filled, statistics.count, 1.0), 3)
        covariance = self._clipped(self._covariance(statistics, mean))
        mean = jnp.where(column(filled, 3), self.reference[None] + mean, previous.centre.mean)
        covariance = jnp.where(column(filled, covariance.ndim), covariance, previous.covariance)
        return LandmarkGaussians(gaussians(mean, covariance), covariance)

    def _covariance(self, sums: LandmarkSums, mean: Array) -> Covariance:
        """Variances or covariances of every cluster."""
        total = jnp.sum(sums.count)
        total = jnp.where(total > 0, total, 1.0)
        scatter = sums.second - column(sums.count, sums.second.ndim) * self._square(mean)
        within = jnp.sum(scatter, axis=0) / total
        if self.variances == "per_cluster":
            counts = sums.count + self.prior
            counts = column(jnp.where(counts > 0, counts, 1.0), scatter.ndim)
            return (scatter + self.prior * within[None]) / counts
        if self.pooling == "total":
            shared = jnp.sum(sums.second, axis=0) / total
            shared = shared - self._square(jnp.sum(sums.first, axis=0) / total)
        else:
            shared = within
        if self.variances == "isotropic":
            shared = self._isotropic(shared)
        return jnp.broadcast_to(shared[None], sums.second.shape)

    def _square(self, offset: Array) -> Array:
        return offset[..., None] * offset[..., None, :] if self.is_full else offset**2

    def _isotropic(self, covariance: Covariance) -> Covariance:
        if not self.is_full:
            return jnp.full_like(covariance, jnp.mean(covariance))
        variance = jnp.mean(jnp.diagonal(covariance, axis1=-2, axis2=-1))
        return jnp.broadcast_to(
            variance * jnp.eye(covariance.shape[-1], dtype=covariance.dtype), covariance.shape
        )

    def _clipped(self, covariance: Covariance) -> Covariance:
        """Variances, or eigenvalues of covariances, clipped to the floor."""
        if not self.is_full:
            return jnp.maximum(covariance, self.floor)
        clipped = partial(symmetric_maximum, bound=self.floor)
        return jnp.vectorize(clipped, signature="(d,d)->(d,d)")(covariance)


class FrechetSums(eqx.Module):
    """Sums over the shapes of each cluster, including the gradients at its centre.

    Attributes:
        shapes: Sums from which the variances follow.
        across: Σ of the velocities of the geodesics to the shapes, one half-plane for each
            landmark and coordinate.
        upwards: Σ of their other components.
        hessian: Σ of the bounds that shorten the step; see
            `diffclust.distances.frechet.hessian_bound`.
    """

    shapes: LandmarkSums
    across: Float[Array, "clusters landmarks dims"]
    upwards: Float[Array, "clusters landmarks dims"]
    hessian: Float[Array, "clusters landmarks dims"]


class FrechetShapes(AbstractPrototypeFamily):
    """Centres that minimise the summed squared Fisher–Rao distances to their shapes' Gaussians.

    Such a mean has no closed form. Each pass takes one step of Riemannian gradient descent, which
    never overshoots, and passes continue until the centres also converge. The shapes carry the
    variances of their cluster; the centre's own variances are larger, as for any mean of Gaussians
    that lie apart.

    Attributes:
        means: Provides the variances, and the initial centres.

    References:
        Gattone et al., shape K-means, Eq. 7 and the last paragraph of Sec. 2; Afsari et al.,
        On the convergence of gradient descent for finding the Riemannian center of mass (2013).
    """

    means: MeanShapes
    descends: ClassVar[bool] = False

    def __check_init__(self):
        """Refuses full covariances."""
        if self.means.is_full:
            raise ValueError("Fréchet means are those of diagonal Gaussians, not of covariances")

    @property
    def initial_family(self) -> MeanShapes:
        """Means of coordinates."""
        return self.means

    def init(self, sample: Landmarks) -> LandmarkGaussians:
        return self.means.init(sample)

    def statistics(
        self,
        aligned: Shapes,
        pixel_weight: Array | None,
        membership: Membership,
        prototypes: LandmarkGaussians,
    ) -> FrechetSums:
        sums = self.means.statistics(aligned, pixel_weight, membership, prototypes)

        def pull(prototype: LandmarkGaussians, weight: Float[Array, " n"]) -> tuple[Array, ...]:
            place, height = _point(prototype)
            carried = jnp.sqrt(prototype.covariance)[None]
            across, upwards, length = log_map(
                (place[None], height[None]), (aligned / _UNIT, carried)
            )
            totals = (across, upwards, hessian_bound(length))
            return tuple(einsum("n,nkd->kd", weight, total) for total in totals)

        return FrechetSums(sums, *jax.vmap(pull)(prototypes, membership.T))

    def update(self, statistics: FrechetSums, previous: LandmarkGaussians) -> LandmarkGaussians:
        fresh = self.means.update(statistics.shapes, previous)
        start = _point(previous)
        filled = statistics.hessian > 0
        share = 1.0 / jnp.where(filled, statistics.hessian, 1.0)
        place, height = exp_map(start, share * statistics.across, share * statistics.upwards)
        mean = jnp.where(filled, _UNIT * place, previous.centre.mean)
        variance = jnp.where(filled, height**2, start[1] ** 2)
        return LandmarkGaussians(DiagonalGaussian(mean, variance), fresh.covariance)


def _point(prototype: LandmarkGaussians) -> HalfPlanePoint:
    """A centre in the half-planes."""
    assert isinstance(prototype.centre, DiagonalGaussian)
    return prototype.centre.mean / _UNIT, jnp.sqrt(prototype.centre.variance)


def covariance_about(
    reference: Float[Array, "landmarks dims"],
    registered: Float[Array, "n landmarks dims"],
    weight: Float[Array, " n"] | None,
    *,
    full: bool,
    alike: bool,
    least: float,
) -> Covariance:
    """Variances or covariances of all shapes about their mean.

    Args:
        reference: The mean.
        registered: Registered shapes.
        weight: Weight of each shape, or None for equal weights.
        full: Whether to return covariances.
        alike: Whether all landmarks and coordinates share one variance.
        least: The minimum variance, as a fraction of the mean variance.

    Returns:
        Variances or covariances of each landmark.
    """
    moved = registered - reference[None]
    if weight is not None:
        # Only means of squares are computed below.
        moved = moved * jnp.sqrt(weight / jnp.mean(weight))[:, None, None]
    floor = least * jnp.mean(moved**2)
    if not full:
        covariance = jnp.maximum(jnp.mean(moved**2, axis=0), floor)
        return jnp.full_like(covariance, jnp.mean(covariance)) if alike else covariance
    eye = jnp.eye(moved.shape[2], dtype=moved.dtype)
    squares = einsum("nkd,nke->kde", moved, moved)
    covariance = squares / moved.shape[0]
    if alike:
        covariance = jnp.broadcast_to(jnp.mean(moved**2) * eye[None], covariance.shape)
    return covariance + floor * eye[None]


def num_clipped(covariance: np.ndarray, floor: float) -> int:
    """The number of variances, or of eigenvalues of covariances, that are clipped to the floor.

    Args:
        covariance: Variances, or covariance matrices.
        floor: The minimum variance.

    Returns:
        The number.
    """
    values = np.linalg.eigvalsh(covariance) if covariance.ndim == 4 else covariance
    return int(np.count_nonzero(values <= floor * (1.0 + 1e-3)))
