"""Registration: closed forms that lay samples on each other before they are clustered.

`procrustes` lays one configuration of landmarks on another, `generalised_procrustes` many on their
mean, and `register` does so with shapes on the host, whatever their units. `place`, `slant`,
`upright`, `ground` and `colour` find what lies between one image and its registered version, and a
`Frame` takes it out of many.
"""

from diffclust.registration.colours import (
    Ink,
    choose_ink,
    colour,
    ground,
    ink_votes,
    stray_of_ground,
)
from diffclust.registration.frames import (
    MOST_ASKED,
    Frame,
    Place,
    ink_of,
    own_sides,
    votes_of,
)
from diffclust.registration.generalised_procrustes import Registration, generalised_procrustes
from diffclust.registration.images import RADIUS, place, slant, upright
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
    "MOST_ASKED",
    "RADIUS",
    "Frame",
    "Ink",
    "Place",
    "Registration",
    "Similarity",
    "apply_similarities",
    "centroid",
    "centroid_size",
    "choose_ink",
    "colour",
    "common_centroid",
    "generalised_procrustes",
    "ground",
    "in_principal_axes",
    "ink_of",
    "ink_votes",
    "own_sides",
    "place",
    "principal_rotation",
    "procrustes",
    "procrustes_residual",
    "register",
    "register_to",
    "slant",
    "stray_of_ground",
    "upright",
    "votes_of",
]
