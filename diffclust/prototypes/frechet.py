"""Prototypes of shapes that are Fréchet means under the Fisher–Rao distance."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.distances import DiagonalGaussian
from diffclust.distances.half_plane import Point, arrived, bend, toward
from diffclust.prototypes.base import AbstractPrototypeFamily
from diffclust.prototypes.landmarks import LandmarkGaussians, LandmarkSums, MeanShapes

_UNIT = 2.0**0.5


class FrechetSums(eqx.Module):
    """Sums over the shapes of each cluster, and what pulls at its centre.

    Attributes:
        shapes: Sums from which the variances follow.
        across: Σ of the velocities of the geodesics to the shapes, one half-plane for each
            landmark and coordinate.
        upwards: Σ of their other components.
        bend: Σ of what shortens the step; see `half_plane.bend`.
    """

    shapes: LandmarkSums
    across: Float[Array, "clusters landmarks dims"]
    upwards: Float[Array, "clusters landmarks dims"]
    bend: Float[Array, "clusters landmarks dims"]


class FrechetShapes(AbstractPrototypeFamily):
    """Centres that minimise the summed squared Fisher–Rao distances to their shapes' Gaussians.

    Such a mean has no closed form: a pass takes one step of Riemannian gradient descent, which
    never overshoots, and passes go on until the centres rest too. The shapes carry
    the variances of their cluster; the centre's own are larger, as means of Gaussians that lie
    apart are.

    Attributes:
        means: Gives the variances, and the centres to begin with.

    References:
        Gattone et al., shape K-means, Eq. 7 and the last paragraph of Sec. 2; Afsari et al.,
        On the convergence of gradient descent for finding the Riemannian center of mass (2013).
    """

    means: MeanShapes

    def __check_init__(self):
        """Refuses full covariances."""
        if self.means.is_full:
            raise ValueError("Fréchet means are those of diagonal Gaussians, not of covariances")

    @property
    def is_additive(self) -> bool:
        """No: the pull of a shape depends on the centre; see the abstract property."""
        return False

    @property
    def starting(self) -> MeanShapes:
        """The means of coordinates; see `AbstractPrototypeFamily.starting`."""
        return self.means

    def normalise(self, sample: Float[Array, "landmarks dims"]) -> Float[Array, "landmarks dims"]:
        """Returns the shape as it is; see `AbstractPrototypeFamily.normalise`."""
        return self.means.normalise(sample)

    def begin(self, sample: Float[Array, "landmarks dims"]) -> LandmarkGaussians:
        """See `AbstractPrototypeFamily.begin`."""
        return self.means.begin(sample)

    def statistics(
        self,
        aligned: Float[Array, "n landmarks dims"],
        pixel_weight: Array | None,
        membership: Float[Array, "n clusters"],
        prototypes: LandmarkGaussians,
    ) -> FrechetSums:
        """See `AbstractPrototypeFamily.statistics`."""
        sums = self.means.statistics(aligned, pixel_weight, membership, prototypes)

        def pull(prototype: LandmarkGaussians, weight: Float[Array, " n"]) -> tuple[Array, ...]:
            place, height = _point(prototype)
            carried = jnp.sqrt(prototype.spread)[None]
            across, upwards, length = toward(
                (place[None], height[None]), (aligned / _UNIT, carried)
            )
            totals = (across, upwards, bend(length))
            return tuple(jnp.einsum("n,nkd->kd", weight, total) for total in totals)

        return FrechetSums(sums, *jax.vmap(pull)(prototypes, membership.T))

    def update(self, statistics: FrechetSums, previous: LandmarkGaussians) -> LandmarkGaussians:
        """See `AbstractPrototypeFamily.update`."""
        fresh = self.means.update(statistics.shapes, previous)
        start = _point(previous)
        filled = statistics.bend > 0
        share = 1.0 / jnp.where(filled, statistics.bend, 1.0)
        place, height = arrived(start, share * statistics.across, share * statistics.upwards)
        mean = jnp.where(filled, _UNIT * place, previous.centre.mean)
        variance = jnp.where(filled, height**2, start[1] ** 2)
        return LandmarkGaussians(DiagonalGaussian(mean, variance), fresh.spread)


def _point(prototype: LandmarkGaussians) -> Point:
    """A centre in the half-planes."""
    assert isinstance(prototype.centre, DiagonalGaussian)
    return prototype.centre.mean / _UNIT, jnp.sqrt(prototype.centre.variance)
