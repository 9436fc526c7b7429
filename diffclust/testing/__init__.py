"""Law checks for the parts of an objective, the library's and your own.

Each check draws what it needs from a key and raises an AssertionError that names the law which is
broken. `params` and `images` are Hypothesis strategies for tests of your own.
"""

from diffclust.testing.aligner_laws import check_aligner
from diffclust.testing.distance_laws import check_distance, check_invariance, check_metric
from diffclust.testing.drawing import images, params, smooth_image
from diffclust.testing.energy_laws import check_energy
from diffclust.testing.family_laws import check_family
from diffclust.testing.reduction_laws import check_reduction
from diffclust.testing.transform_laws import check_transform

__all__ = [
    "check_aligner",
    "check_distance",
    "check_energy",
    "check_family",
    "check_invariance",
    "check_metric",
    "check_reduction",
    "check_transform",
    "images",
    "params",
    "smooth_image",
]
