"""Projective maps of the plane."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.sampling import Boundary, check_boundary, planes
from diffclust.transforms._displaced import homogeneous
from diffclust.transforms.affine import Affine, mean_squared_displacement
from diffclust.transforms.base import AbstractSpatialTransform
from diffclust.types import Params, Points

_KNEE = 0.1
"""Denominators from here on are left alone."""

_FLOOR = 0.05
"""What a guarded denominator never falls to."""


class Projective(AbstractSpatialTransform):
    """Projective maps, with params (M₁₁, M₁₂, M₂₁, M₂₂, t₁, t₂, q₁, q₂): views of a plane.

    Points are (x, y) in [-1, 1]² and u ↦ (u + M u + t) / (1 + q · u): the homogeneous matrix is
    I + [[M, t], [q, 0]] and the first six params are `Affine`'s.

    The denominator is guarded: from 0.1 upwards it is left alone, and so everywhere on the image
    while |q₁| + |q₂| ≤ 0.9; below, it bends (once continuously differentiable) towards 0.05, which
    it never reaches. Behind the horizon the map is therefore finite, with finite gradients, but no
    longer projective.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.

    References:
        Monnier et al., DTI clustering, Section 4.1 (8 parameters).
    """

    boundary: Boundary = eqx.field(static=True, default="zero")

    def __check_init__(self):
        """Refuses an unknown boundary."""
        check_boundary(self.boundary)

    @property
    def num_params(self) -> int:
        """Eight."""
        return 8

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The affine part and the rest."""
        return ("affine", "perspective")

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """The unit matrix above two rows of zeros."""
        return jnp.eye(8, 6)

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Mean squared displacements over the image, to first order in q.

        See `AbstractTransform.deformation`. The displacement by q is -(q · u) u to first order,
        whose square has the mean 14/45 |q|².
        """
        affine = mean_squared_displacement(params[:4].reshape(2, 2), params[4:6])
        return jnp.stack([affine, 14.0 / 45.0 * jnp.sum(params[6:] ** 2)])

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        """See `AbstractSpatialTransform.bind_map`."""
        affine, rows = Affine().bind_map(points), homogeneous(points)
        one = jnp.ones((1,), dtype=points.dtype)

        def coordinates(params: Params) -> Points:
            slope = jnp.concatenate([params[6:], one])
            below = _guarded(jnp.matmul(slope, rows, precision="highest"))
            moved = planes(affine(params[:6]))
            return jnp.stack([axis / below.reshape(axis.shape) for axis in moved])

        return coordinates

    def compose(self, first: Params, second: Params) -> Params:
        """The one transform that acts like `first` and then `second`, where no guard is active.

        Args:
            first: Params of the transform applied to the image first.
            second: Params of the transform applied to its result.

        Returns:
            Params of the composition, whose map is first's map after second's; infinite or NaN
            where that sends the image's centre to infinity.
        """
        return _params(_matrix(first) @ _matrix(second))

    def inverse(self, params: Params) -> Params:
        """The transform that undoes this one, where no guard is active.

        Args:
            params: Parameters of an invertible map.

        Returns:
            Params of the inverse; infinite or NaN where the map is singular, or where the inverse
            sends the image's centre to infinity.
        """
        return _params(jnp.linalg.inv(_matrix(params)))


def _guarded(denominator: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
    """Itself above the knee; below, a hyperbola of the same slope that stays above the floor."""
    # Clipped, so that the branch not taken has no pole and `where` passes on no NaN.
    low = jnp.minimum(denominator, _KNEE)
    bent = _FLOOR + (_KNEE - _FLOOR) ** 2 / (2.0 * _KNEE - _FLOOR - low)
    return jnp.where(denominator >= _KNEE, denominator, bent)


def _matrix(params: Params) -> Float[Array, "3 3"]:
    """The homogeneous matrix of the coordinate map."""
    a, b, c, d, tx, ty, qx, qy = params
    rows = [a, b, tx, c, d, ty, qx, qy, jnp.zeros_like(a)]
    return jnp.eye(3, dtype=params.dtype) + jnp.stack(rows).reshape(3, 3)


def _params(matrix: Float[Array, "3 3"]) -> Params:
    """The inverse of `_matrix`, up to the matrix's scale, which the map does not feel."""
    moved = matrix / matrix[2, 2] - jnp.eye(3, dtype=matrix.dtype)
    return jnp.concatenate([moved[:2, :2].reshape(4), moved[:2, 2], moved[2, :2]])
