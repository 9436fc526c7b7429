"""Transforms one after another."""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust.sampling import Boundary
from diffclust.transforms.base import AbstractSpatialTransform, AbstractTransform
from diffclust.types import Image, Params, Points


def _split(params: Float[Array, " _"], sizes: tuple[int, ...]) -> list[Params]:
    return jnp.split(params, np.cumsum(sizes)[:-1].tolist())


def _deformation(
    transforms: tuple[AbstractTransform, ...], params: Params
) -> Float[Array, " terms"]:
    parts = _split(params, tuple(t.num_params for t in transforms))
    return jnp.concatenate([t.deformation(p) for t, p in zip(transforms, parts, strict=True)])


class SpatialChain(AbstractSpatialTransform):
    """Spatial transforms applied in turn, with their maps composed and the image sampled once.

    Attributes:
        transforms: The transforms in the order in which they act on the image; all must have the
            same boundary.
    """

    transforms: tuple[AbstractSpatialTransform, ...]

    def __check_init__(self):
        """Refuses an empty chain and mixed boundaries."""
        if not self.transforms:
            raise ValueError("a chain needs at least one transform; use Identity() for none")
        if len({t.boundary for t in self.transforms}) > 1:
            raise ValueError(
                "all spatial transforms of one run must have the same boundary, not "
                f"{[t.boundary for t in self.transforms]}: the image is sampled only once"
            )

    @property
    def boundary(self) -> Boundary:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The transforms' common boundary."""
        return self.transforms[0].boundary

    @property
    def num_params(self) -> int:
        """The sum of the parts'."""
        return sum(t.num_params for t in self.transforms)

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The parts' terms in turn."""
        return tuple(term for t in self.transforms for term in t.deformation_terms)

    @property
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """That of the first part that has one; the others rest at the identity."""
        start = 0
        for transform in self.transforms:
            inner = transform.affine_embedding
            if inner is not None:
                rows = jnp.zeros((self.num_params, 6), dtype=inner.dtype)
                return rows.at[start : start + transform.num_params].set(inner)
            start += transform.num_params
        return None

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """The parts' sizes in turn; see `AbstractTransform.deformation`."""
        return _deformation(self.transforms, params)

    def bind_map(self, points: Points) -> Callable[[Params], Points]:
        """See `AbstractSpatialTransform.bind_map`."""
        sizes = tuple(t.num_params for t in self.transforms)
        last = self.transforms[-1].bind_map(points)

        def coordinates(params: Params) -> Points:
            parts = _split(params, sizes)
            moved = last(parts[-1])
            for transform, part in zip(self.transforms[-2::-1], parts[-2::-1], strict=True):
                moved = transform.warp(part, moved)
            return moved

        return coordinates


class Compose(AbstractTransform):
    """Transforms applied in turn; an unbroken run of spatial ones samples the image once.

    Attributes:
        runs: The transforms, spatial runs already fused.
    """

    runs: tuple[AbstractTransform, ...]

    @property
    def num_params(self) -> int:
        """The sum of the parts'."""
        return sum(t.num_params for t in self.runs)

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        """The parts' terms in turn."""
        return tuple(term for t in self.runs for term in t.deformation_terms)

    def deformation(self, params: Params) -> Float[Array, " terms"]:
        """The parts' sizes in turn; see `AbstractTransform.deformation`."""
        return _deformation(self.runs, params)

    def bind(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """See `AbstractTransform.bind`."""
        bound = [t.bind(height, width) for t in self.runs]
        sizes = tuple(t.num_params for t in self.runs)

        def apply(params: Params, image: Image) -> Image:
            for run, part in zip(bound, _split(params, sizes), strict=True):
                image = run(part, image)
            return image

        return apply

    def bind_variance(self, height: int, width: int) -> Callable[[Params, Image], Image]:
        """Run by run; see `AbstractTransform.bind_variance`."""
        bound = [t.bind_variance(height, width) for t in self.runs]
        sizes = tuple(t.num_params for t in self.runs)

        def apply(params: Params, variance: Image) -> Image:
            for run, part in zip(bound, _split(params, sizes), strict=True):
                variance = run(part, variance)
            return variance

        return apply


def compose(*transforms: AbstractTransform) -> AbstractTransform:
    """Applies transforms to an image one after another, first to last.

    The params are concatenated in the same order. Neighbouring spatial transforms are fused: their
    coordinate maps are composed and the image is sampled once.

    Args:
        *transforms: The transforms; at least one.

    Returns:
        The transform itself if there is only one, a `SpatialChain` if all are spatial, otherwise
        a `Compose`.

    Raises:
        ValueError: Without transforms, or if fused neighbours differ in their boundary.
    """
    if not transforms:
        raise ValueError("compose needs at least one transform; use Identity() for none")
    runs: list[list[AbstractTransform]] = []
    for transform in transforms:
        spatial = isinstance(transform, AbstractSpatialTransform)
        if runs and spatial and isinstance(runs[-1][-1], AbstractSpatialTransform):
            runs[-1].append(transform)
        else:
            runs.append([transform])
    fused = tuple(
        run[0] if len(run) == 1 else SpatialChain(tuple(run))  # pyright: ignore[reportCallIssue, reportArgumentType]
        for run in runs
    )
    return fused[0] if len(fused) == 1 else Compose(fused)
