"""Transforms of one image or series, each with a flat parameter vector whose zero is the identity.

Use a transform to say how a picture may change and still count as the same picture; combine several
with `compose`. Write your own by subclassing `AbstractTransform` or `AbstractSpatialTransform`.
"""

from diffclust.transforms.affine import Affine, Projective
from diffclust.transforms.base import AbstractSpatialTransform, AbstractTransform, Identity
from diffclust.transforms.colour import Colour
from diffclust.transforms.compose import (
    NAMES,
    AbstractSequence,
    Compose,
    SpatialChain,
    bind_spatial_variance,
    compose,
    named_sequence,
)
from diffclust.transforms.isometries import Rotation, Translation, params_grid
from diffclust.transforms.morphology import Morphology
from diffclust.transforms.thin_plate_spline import ThinPlateSpline, landmark_grid
from diffclust.transforms.time_warp import TimeWarp

__all__ = [
    "NAMES",
    "AbstractSequence",
    "AbstractSpatialTransform",
    "AbstractTransform",
    "Affine",
    "Colour",
    "Compose",
    "Identity",
    "Morphology",
    "Projective",
    "Rotation",
    "SpatialChain",
    "ThinPlateSpline",
    "TimeWarp",
    "Translation",
    "bind_spatial_variance",
    "compose",
    "landmark_grid",
    "named_sequence",
    "params_grid",
]
