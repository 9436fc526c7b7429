"""Affine maps of the plane."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.sampling import Boundary, check_boundary
from diffclust.transforms._displaced import displaced, homogeneous
from diffclust.transforms.base import AbstractSpatialTransform
from diffclust.types import Params, Points, Scalar


def mean_squared_displacement(
    linear: Float[Array, "2 2"], translation: Float[Array, "2"]
) -> Scalar:
    """Mean of |M u + t|² over u in [-1, 1]², the size of an affine displacement.

    Args:
        linear: M, the linear part less the identity.
        translation: t.

    Returns:
        |t|² + |M|² / 3.
    """
    return jnp.sum(translation**2) + jnp.sum(linear**2) / 3.0


class Affine(AbstractSpatialTransform):
    """Affine maps u ↦ u + M u + t, with params (M₁₁, M₁₂, M₂₁, M₂₂, t₁, t₂).

    Points are (x, y) in [-1, 1]²; a reflection or a rotation by any angle is a parameter vector
    like any other.

    Attributes:
        boundary: What lies outside the image: `"zero"`, `"edge"` or `"reflect"`.
    """

    boundary: Boundary = eqx.field(static=True, default="zero")

    def __check_init__(self):
        """Refuses an unknown boundary."""
        check_boundary(self.boundary)

    @property
    def num_params(self) -> int:
        """Six."""
        return 6

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """One part."""
        return ("affine",)

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """The unit matrix."""
        return jnp.eye(6)

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """Mean squared displacement over the image; see `AbstractTransform.deformation`."""
        return mean_squared_displacement(params[:4].reshape(2, 2), params[4:])[None]

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        """See `AbstractSpatialTransform.bind_map`."""
        coordinates = displaced(points, homogeneous(points))
        return lambda params: coordinates(_displacement(params))

    def compose(self, first: Params, second: Params) -> Params:
        """The one transform that acts like `first` and then `second`.

        Args:
            first: Params of the transform applied to the image first.
            second: Params of the transform applied to its result.

        Returns:
            Params of the composition, whose map is first's map after second's.
        """
        one, two = _matrix(first), _matrix(second)
        return _params(one @ two)

    def inverse(self, params: Params) -> Params:
        """The transform that undoes this one.

        Args:
            params: Parameters of an invertible map.

        Returns:
            Params of the inverse; infinite or NaN where the map is singular.
        """
        return _params(jnp.linalg.inv(_matrix(params)))


def _displacement(params: Params) -> Float[Array, "2 3"]:
    """What a point `(x, y, 1)` is displaced by is its product with this."""
    return jnp.concatenate([params[:4].reshape(2, 2), params[4:].reshape(2, 1)], axis=1)


def _matrix(params: Params) -> Float[Array, "3 3"]:
    """The homogeneous matrix of the coordinate map."""
    below = jnp.zeros((1, 3), dtype=params.dtype)
    return jnp.eye(3, dtype=params.dtype) + jnp.concatenate([_displacement(params), below])


def _params(matrix: Float[Array, "3 3"]) -> Params:
    """The inverse of `_matrix`."""
    linear = matrix[:2, :2] - jnp.eye(2, dtype=matrix.dtype)
    return jnp.concatenate([linear.reshape(4), matrix[:2, 2]])
