"""What energies have in common that move a sample or a prototype by a transform."""

import equinox as eqx
from jaxtyping import Array, Float

from diffclust.alignment import AbstractPairEnergy
from diffclust.transforms import AbstractSpatialTransform, AbstractTransform
from diffclust.types import Params


class AbstractTransformedEnergy(AbstractPairEnergy):
    """An energy whose params are a transform's, and whose penalties are its deformations."""

    transform: eqx.AbstractVar[AbstractTransform]

    @property
    def num_params(self) -> int:
        """The transform's."""
        return self.transform.num_params

    @property
    def num_penalties(self) -> int:
        """One for each part of the transform's deformation."""
        return len(self.transform.deformation_terms)

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """The transform's, where it is a spatial one."""
        if isinstance(self.transform, AbstractSpatialTransform):
            return self.transform.affine_embedding
        return None

    def penalties(self, params: Params) -> Float[Array, " terms"]:
        """See `AbstractPairEnergy.penalties`."""
        return self.transform.deformation(params)
