"""Sequences of transforms by their names, as papers and command lines write them."""

from collections.abc import Callable

from diffclust.sampling import Boundary
from diffclust.transforms.affine import Affine
from diffclust.transforms.base import AbstractTransform
from diffclust.transforms.colour import Colour
from diffclust.transforms.morphology import Morphology
from diffclust.transforms.projective import Projective
from diffclust.transforms.thin_plate_spline import ThinPlateSpline

NAMES = {
    "aff": "moved, turned, scaled and sheared",
    "proj": "seen in perspective",
    "tps": "bent by a thin-plate spline",
    "col": "each channel's brightness and contrast changed",
    "fullcol": "its channels mixed anew",
    "morpho": "its strokes thickened or thinned",
}
"""Short names of transforms, and what each does to an image."""


def named_sequence(
    names: str,
    *,
    channels: int,
    boundary: Boundary = "edge",
    landmarks: tuple[int, int] = (4, 4),
    reach: int = 7,
) -> tuple[AbstractTransform, ...]:
    """Transforms from their names, in the order in which they act.

    Args:
        names: For example `"aff-morpho-tps"`: names out of `NAMES`, joined by hyphens; empty for
            none.
        channels: Channels of the images.
        boundary: What spatial transforms read outside the image.
        landmarks: Landmark grid of the splines.
        reach: Side of the morphological window, in pixels; odd.

    Returns:
        The transforms.

    Raises:
        ValueError: If a name is none, or a step is not for images with so many channels.

    References:
        Monnier et al., DTI clustering, Sec. 4.1 and Table 4.
    """
    makers: dict[str, Callable[[], AbstractTransform]] = {
        "aff": lambda: Affine(boundary),
        "proj": lambda: Projective(boundary),
        "tps": lambda: ThinPlateSpline(landmarks, boundary=boundary),
        "col": lambda: Colour(channels),
        "fullcol": lambda: Colour(channels, full=True),
        "morpho": lambda: Morphology(reach),
    }
    parts = [part for part in names.split("-") if part] if names else []
    unknown = [part for part in parts if part not in makers]
    if unknown or names.count("-") != max(0, len(parts) - 1):
        raise ValueError(
            f"transforms must be names joined by hyphens, such as aff-morpho-tps, out of "
            f"{', '.join(NAMES)}; got {names!r}"
        )
    if "morpho" in parts and channels != 1:
        raise ValueError(
            f"a morphological step has no rule for images of {channels} channels in "
            f"{names!r}; leave 'morpho' out, or make the images grey (--channels 1)"
        )
    return tuple(makers[part]() for part in parts)
