"""The transform that changes nothing: it makes K-means a special case of everything else."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from diffclust.sampling import Boundary
from diffclust.transforms.base import AbstractSpatialTransform
from diffclust.types import Params, Points


class Identity(AbstractSpatialTransform):
    """The identity, with an empty parameter vector."""

    boundary: Boundary = eqx.field(static=True, default="zero")

    @property
    def num_params(self) -> int:
        """Zero."""
        return 0

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """No parts."""
        return ()

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """None: there is nothing to align."""
        return None

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """An empty vector; see `AbstractTransform.deformation`."""
        return jnp.zeros((0,), dtype=params.dtype)

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        """Returns the points themselves; see `AbstractSpatialTransform.bind_map`."""
        return lambda params: points
