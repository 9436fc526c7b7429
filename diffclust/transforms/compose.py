"""Sequences of transforms, also by name."""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.sampling import Boundary
from diffclust.transforms.affine import Affine, Projective
from diffclust.transforms.base import AbstractSpatialTransform, AbstractTransform
from diffclust.transforms.colour import Colour
from diffclust.transforms.isometries import Rotation, Translation
from diffclust.transforms.morphology import Morphology
from diffclust.transforms.thin_plate_spline import ThinPlateSpline
from diffclust.types import Image, Params, Points


class AbstractSequence(AbstractTransform):
    """Transforms applied one after another.

    Attributes:
        transforms: The transforms, in the order in which they act on the image.
    """

    transforms: eqx.AbstractVar[tuple[AbstractTransform, ...]]

    @property
    def num_params(self) -> int:
        """The sum over the parts."""
        return sum(t.num_params for t in self.transforms)

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The parts' terms, one after another."""
        return tuple(term for t in self.transforms for term in t.deformation_terms)

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """The parts' deformations, one after another."""
        parts = zip(self.transforms, self.split(params), strict=True)
        return jnp.concatenate([t.deformation(p) for t, p in parts])

    def embed(self, part: int, params: Params) -> Float[Array, " all"]:
        """Params of the sequence that apply one part, with the others at the identity.

        Args:
            part: The index of the part.
            params: The params of the part.

        Returns:
            Params of the sequence.
        """
        parts = [jnp.zeros((t.num_params,), dtype=params.dtype) for t in self.transforms]
        part = range(len(parts))[part]
        return jnp.concatenate([*parts[:part], params, *parts[part + 1 :]])

    def split(self, params: Float[Array, " _"]) -> list[Params]:
        """The params of each part.

        Args:
            params: Params of the sequence.

        Returns:
            One vector per part.
        """
        ends = np.cumsum([t.num_params for t in self.transforms])
        return jnp.split(params, ends[:-1].tolist())


class SpatialChain(AbstractSequence, AbstractSpatialTransform):
    """A sequence of spatial transforms; their maps are composed and the image is sampled once.

    Attributes:
        transforms: The transforms in the order in which they act on the image; all must have the
            same boundary.
    """

    transforms: tuple[AbstractSpatialTransform, ...]

    def __check_init__(self):
        """Refuses an empty chain and differing boundaries."""
        if not self.transforms:
            raise ValueError("a chain needs at least one transform; use Identity() for none")
        if len({t.boundary for t in self.transforms}) > 1:
            raise ValueError(
                "all spatial transforms of one run must have the same boundary, not "
                f"{[t.boundary for t in self.transforms]}: the image is sampled only once"
            )

    @property
    def boundary(self) -> Boundary:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The common boundary of the transforms."""
        return self.transforms[0].boundary

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """Embeds an affine map in the first part that can; the others stay at the identity."""
        start = 0
        for transform in self.transforms:
            inner = transform.affine_embedding
            if inner is not None:
                rows = jnp.zeros((self.num_params, 6), dtype=inner.dtype)
                return rows.at[start : start + transform.num_params].set(inner)
            start += transform.num_params
        return None

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        last = self.transforms[-1].bind_map(points)

        def coordinates(params: Params) -> Points:
            *parts, part = self.split(params)
            moved = last(part)
            for transform, part in zip(self.transforms[-2::-1], parts[::-1], strict=True):
                moved = transform.warp(part, moved)
            return moved

        return coordinates


class Compose(AbstractSequence):
    """A sequence of transforms; an unbroken run of spatial ones samples the image only once.

    Attributes:
        transforms: The transforms, with runs of spatial ones already fused.
    """

    transforms: tuple[AbstractTransform, ...]

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        return self.bound([t.bind(height, width) for t in self.transforms])

    def undo(self, params: Params, image: Image) -> Image:
        """Undoes the parts, the last one first."""
        for part, own in zip(self.transforms[::-1], self.split(params)[::-1], strict=True):
            image = part.undo(own, image)
        return image

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Binds the parts one by one."""
        return self.bound([t.bind_variance(height, width) for t in self.transforms])

    def bound(self, bound: list[Callable[[Params, Image], Image]]) -> Callable:
        """Makes one function of all params that applies one function per part.

        Args:
            bound: A function of params and image for each transform.

        Returns:
            A function of params and image.
        """

        def apply(params: Params, image: Image) -> Image:
            for transform, part in zip(bound, self.split(params), strict=True):
                image = transform(part, image)
            return image

        return apply


def compose(*transforms: AbstractTransform) -> AbstractTransform:
    """Composes transforms, which act on an image one after another, first to last.

    The params are concatenated in the same order. Neighbouring spatial transforms are fused: their
    coordinate maps are composed and the image is sampled once. What was composed before counts as
    its parts.

    Args:
        *transforms: At least one transform.

    Returns:
        The transform itself if there is only one, a `SpatialChain` if all are spatial, otherwise a
        `Compose`.

    Raises:
        ValueError: If there are no transforms, or what is none, or fused neighbours differ in their
            boundary.
    """
    if not transforms:
        raise ValueError("compose needs at least one transform; use Identity() for none")
    for transform in transforms:
        if not isinstance(transform, AbstractTransform):
            raise ValueError(
                f"compose takes transforms, one by one, such as compose(Affine(), Colour(3)); got "
                f"{transform!r}"
            )
    parts: list[AbstractTransform] = []
    steps = itertools.chain.from_iterable(map(_steps, transforms))
    for spatial, run in itertools.groupby(steps, _is_spatial):
        run = tuple(run)
        parts += [SpatialChain(run)] if spatial and len(run) > 1 else run  # pyright: ignore[reportArgumentType, reportCallIssue]
    return parts[0] if len(parts) == 1 else Compose(tuple(parts))


def _steps(transform: AbstractTransform) -> tuple[AbstractTransform, ...]:
    """The parts of what `compose` made, or the transform itself."""
    # A subclass may apply its parts in a way of its own.
    if type(transform) is Compose or type(transform) is SpatialChain:
        return tuple(itertools.chain.from_iterable(map(_steps, transform.transforms)))
    return (transform,)


def bind_spatial_variance(
    transform: AbstractTransform, height: int, width: int
) -> Callable[[Params, Image], Image]:
    """Moves variances by only the spatial ones among composed transforms.

    Args:
        transform: The result of `compose`.
        height: Rows of the images to come.
        width: Columns of the images to come.

    Returns:
        A function of params and variances, as returned by `AbstractTransform.bind_variance`.
    """
    if isinstance(transform, Compose):
        parts = [bind_spatial_variance(part, height, width) for part in transform.transforms]
        return transform.bound(parts)
    if _is_spatial(transform):
        return transform.bind_variance(height, width)
    return lambda params, variance: variance


def _is_spatial(transform: AbstractTransform) -> bool:
    return isinstance(transform, AbstractSpatialTransform)


NAMES = {
    "aff": "moved, turned, scaled and sheared",
    "proj": "seen in perspective",
    "tps": "bent by a thin-plate spline",
    "shift": "moved",
    "turn": "turned by any angle",
    "rot": "turned by any angle, and perhaps mirrored",
    "col": "each channel's brightness and contrast changed",
    "fullcol": "its channels mixed anew",
    "morpho": "its strokes thickened or thinned",
}
"""Short names of transforms, and the effect of each on an image."""


def split_names(names: str) -> tuple[str, ...]:
    """The names of transforms that are joined by hyphens.

    Args:
        names: For example `"aff-morpho-tps"`; empty for none.

    Returns:
        The names.

    Raises:
        ValueError: If it is no string.
    """
    if not isinstance(names, str):
        raise ValueError(
            f"transforms must be names joined by hyphens, such as 'aff-tps', not {names!r}; "
            "transforms of your own go into a TransformedDistance, or a PrototypeObjective"
        )
    return tuple(names.split("-")) if names else ()


def named_sequence(
    names: str, *, channels: int, boundary: Boundary = "edge", landmarks: tuple[int, int] = (4, 4)
) -> tuple[AbstractTransform, ...]:
    """Transforms from their names, in the order in which they act.

    Args:
        names: For example `"aff-morpho-tps"`: names from `NAMES`, joined by hyphens; empty for
            none.
        channels: Channels of the images.
        boundary: What spatial transforms read outside the image.
        landmarks: Landmark grid of the splines.

    Returns:
        The transforms.

    Raises:
        ValueError: If a name is unknown, or a step does not support this number of channels.

    References:
        Monnier et al., DTI clustering, Sec. 4.1 and Table 4.
    """
    makers: dict[str, Callable[[], AbstractTransform]] = {
        "aff": lambda: Affine(boundary),
        "proj": lambda: Projective(boundary),
        "tps": lambda: ThinPlateSpline(landmarks, boundary=boundary),
        "shift": lambda: Translation(boundary),
        "turn": lambda: Rotation(boundary),
        "rot": lambda: Rotation(boundary, reflection=True),
        "col": lambda: Colour(channels),
        "fullcol": lambda: Colour(channels, full=True),
        "morpho": lambda: Morphology(),
    }
    parts = split_names(names)
    if not set(parts) <= set(makers):
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
