"""Maps of one image to a vector in which Euclidean distances mean more than between pixels.

Take the scattering transform where small translations and deformations should not count, the
rotation-invariant one where angles should not either, and the projection onto the orthogonal
complement to remove what all clusters share.
"""

from diffclust.features.contrast import local_contrast
from diffclust.features.moments import Moments, feature_moments
from diffclust.features.orthogonal_complement import (
    OrthogonalComplement,
    PrincipalDirections,
    directions_of,
    drop_leading,
    fit_principal_directions,
    principal_angles,
    project_features,
)
from diffclust.features.scattering import (
    AbstractScattering,
    RotationInvariantScattering,
    Scattering,
    ScatteringPath,
)
from diffclust.features.square_root_velocity import from_square_root_velocity, square_root_velocity

__all__ = [
    "AbstractScattering",
    "Moments",
    "OrthogonalComplement",
    "PrincipalDirections",
    "RotationInvariantScattering",
    "Scattering",
    "ScatteringPath",
    "directions_of",
    "drop_leading",
    "feature_moments",
    "fit_principal_directions",
    "from_square_root_velocity",
    "local_contrast",
    "principal_angles",
    "project_features",
    "square_root_velocity",
]
