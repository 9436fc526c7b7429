"""Registration: closed-form alignment of samples to each other before they are clustered.

`procrustes` aligns one configuration of landmarks to another, `generalised_procrustes` aligns many
to their mean, and `register` does so for shapes on the host, in any units. `place`, `slant`,
`upright`, `ground` and `colour` find the difference between an image and its registered version,
and a `Frame` removes it from many images.
"""

from diffclust.registration.colours import (
    Ink,
    choose_ink,
    colour,
    ground,
    ink_votes,
    stray_of_ground,
)
from diffclust.registration.frames import MOST_ASKED, Frame, Place, ink_of, own_sides, votes_of
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
