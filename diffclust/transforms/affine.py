"""Affine and projective maps of the plane."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.linalg import product
from diffclust.sampling import Boundary, planes
from diffclust.transforms.base import AbstractSpatialTransform
from diffclust.types import Params, Points, Scalar

_KNEE = 0.1
"""Denominators at or above this are left unchanged."""

_FLOOR = 0.05
"""Lower bound that a guarded denominator never reaches."""


def homogeneous(points: Points) -> Float[Array, "3 points"]:
    """Points as (x, y, 1).

    Args:
        points: Points of shape `(2, ...)`.

    Returns:
        Their coordinates and ones, in flat rows.
    """
    x, y = planes(points)
    return jnp.stack([x, y, jnp.ones_like(x)]).reshape(3, -1)


def displaced(
    points: Points, functions: Float[Array, "functions points"]
) -> Callable[[Float[Array, "2 functions"]], Points]:
    """The map whose displacement is linear in its coefficients.

    Args:
        points: Points of shape `(2, ...)`.
        functions: Values of functions at the points.

    Returns:
        A function of the coefficients of the displacements along x and along y; zero returns the
        points unchanged, exactly.
    """
    # The points are one more function, and x and y are two separate products: a CPU samples an
    # image faster at points that result from a product.
    rows = [jnp.concatenate([functions, axis.reshape(1, -1)]) for axis in planes(points)]
    one = jnp.ones((1,), dtype=points.dtype)

    def coordinates(coefficients: Float[Array, "2 functions"]) -> Points:
        moved = [
            jnp.matmul(jnp.concatenate([along[0], one]), row, precision="highest")
            for along, row in zip(jax.lax.split(coefficients, (1, 1)), rows, strict=True)
        ]
        return jnp.stack([axis.reshape(points.shape[1:]) for axis in moved])

    return coordinates


def mean_squared_displacement(
    linear: Float[Array, "2 2"], translation: Float[Array, "2"]
) -> Scalar:
    """Mean of |M u + t|² over u in [-1, 1]², the size of an affine displacement.

    Args:
        linear: M, the linear part minus the identity.
        translation: t.

    Returns:
        |t|² + |M|² / 3.
    """
    return jnp.sum(translation**2) + jnp.sum(linear**2) / 3.0


class AbstractHomography(AbstractSpatialTransform):
    """Maps of the plane that are 3×3 matrices of homogeneous coordinates."""

    def compose(self, first: Params, second: Params) -> Params:
        """The single transform that acts like `first` and then `second`, if no guard is active.

        Args:
            first: Params of the transform applied to the image first.
            second: Params of the transform applied to its result.

        Returns:
            Params of the composition, whose map is first's map after second's; infinite or NaN if
            that sends the image's centre to infinity.
        """
        return self._params(product(_matrix(first), _matrix(second)))

    def inverse(self, params: Params) -> Params:
        """The transform that undoes this one, if no guard is active.

        Args:
            params: Parameters of an invertible map.

        Returns:
            Params of the inverse; infinite or NaN if the map is singular, or if the inverse sends
            the image's centre to infinity.
        """
        return self._params(jnp.linalg.inv(_matrix(params)))

    def _params(self, matrix: Float[Array, "3 3"]) -> Params:
        """The inverse of `_matrix`, up to the matrix's scale, which does not affect the map."""
        moved = matrix / matrix[2, 2] - jnp.eye(3, dtype=matrix.dtype)
        params = jnp.concatenate([moved[:2, :2].reshape(4), moved[:2, 2], moved[2, :2]])
        return params[: self.num_params]


def _matrix(params: Params) -> Float[Array, "3 3"]:
    """The homogeneous matrix of the coordinate map."""
    slope = params[6:] if len(params) > 6 else jnp.zeros_like(params[:2])
    below = jnp.concatenate([slope, jnp.zeros_like(params[:1])])[None]
    return jnp.eye(3, dtype=params.dtype) + jnp.concatenate([_displacement(params), below])


def _displacement(params: Params) -> Float[Array, "2 3"]:
    """The matrix whose product with `(x, y, 1)` is a point's displacement."""
    return jnp.concatenate([params[:4].reshape(2, 2), params[4:6].reshape(2, 1)], axis=1)


class Affine(AbstractHomography):
    """Affine maps u ↦ u + M u + t, with params (M₁₁, M₁₂, M₂₁, M₂₂, t₁, t₂).

    Points are (x, y) in [-1, 1]²; a reflection or a rotation by any angle is a parameter vector
    like any other.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.
    """

    boundary: Boundary = eqx.field(static=True, default="zero")

    @property
    def num_params(self) -> int:
        """Six."""
        return 6

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """The unit matrix."""
        return jax.device_put(np.eye(6, dtype=jnp.result_type(float)))

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Mean squared displacement over the image."""
        return mean_squared_displacement(params[:4].reshape(2, 2), params[4:])[None]

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        coordinates = displaced(points, homogeneous(points))
        return lambda params: coordinates(_displacement(params))


class Projective(AbstractHomography):
    """Projective maps, with params (M₁₁, M₁₂, M₂₁, M₂₂, t₁, t₂, q₁, q₂): views of a plane.

    Points are (x, y) in [-1, 1]² and u ↦ (u + M u + t) / (1 + q · u): the homogeneous matrix is
    I + [[M, t], [q, 0]] and the first six params are `Affine`'s.

    The denominator is guarded. Values of at least 0.1 are unchanged, which holds everywhere on the
    image while |q₁| + |q₂| ≤ 0.9; lower values bend (once continuously differentiable) towards
    0.05, which is never reached. Behind the horizon the map is therefore finite, with finite
    gradients, but no longer projective.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.

    References:
        Monnier et al., DTI clustering, Section 4.1 (8 parameters).
    """

    boundary: Boundary = eqx.field(static=True, default="zero")

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

        See `AbstractTransform.deformation`. To first order, the displacement by q is -(q · u) u,
        whose square has the mean 14/45 |q|².
        """
        affine = mean_squared_displacement(params[:4].reshape(2, 2), params[4:6])
        return jnp.stack([affine, 14.0 / 45.0 * jnp.sum(params[6:] ** 2)])

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        affine, rows = Affine().bind_map(points), homogeneous(points)
        one = jnp.ones((1,), dtype=points.dtype)

        def coordinates(params: Params) -> Points:
            slope = jnp.concatenate([params[6:], one])
            below = _guarded(jnp.matmul(slope, rows, precision="highest"))
            moved = planes(affine(params[:6]))
            return jnp.stack([axis / below.reshape(axis.shape) for axis in moved])

        return coordinates


def _guarded(denominator: Float[Array, "*grid"]) -> Float[Array, "*grid"]:
    """Keeps values above the knee; below, a hyperbola of the same slope stays above the floor."""
    # Clipped, so that the branch not taken has no pole and `where` passes on no NaN.
    low = jnp.minimum(denominator, _KNEE)
    bent = _FLOOR + (_KNEE - _FLOOR) ** 2 / (2.0 * _KNEE - _FLOOR - low)
    return jnp.where(denominator >= _KNEE, denominator, bent)
