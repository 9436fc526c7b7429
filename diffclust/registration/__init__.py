"""Registration: closed forms that lay samples on each other before they are clustered.

`procrustes` lays one configuration of landmarks on another, `generalised_procrustes` many on their
mean, and `register` does so with shapes on the host, whatever their units.
"""

from diffclust.registration.generalised_procrustes import Registration, generalised_procrustes
from diffclust.registration.procrustes import (
    Similarity,
    centroid,
    centroid_size,
    principal_rotation,
    procrustes,
    procrustes_residual,
)
from diffclust.registration.shapes import (
    apply_similarities,
    common_centroid,
    in_principal_axes,
    register,
    register_to,
)

__all__ = [
    "Registration",
    "Similarity",
    "apply_similarities",
    "centroid",
    "centroid_size",
    "common_centroid",
    "generalised_procrustes",
    "in_principal_axes",
    "principal_rotation",
    "procrustes",
    "procrustes_residual",
    "register",
    "register_to",
]
