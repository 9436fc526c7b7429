"""A model of the user's own, of samples of any kind, under Lloyd's algorithm."""

import dataclasses
from typing import Any, ClassVar, Literal

import equinox as eqx
import numpy as np

from diffclust import _validation
from diffclust.alignment import AbstractAligner
from diffclust.energies import AbstractSampleEnergy, TransformedDistance
from diffclust.image_source import ImageSource, blanked
from diffclust.masks import check_mask_size, mask_weights
from diffclust.methods import OWN, Method
from diffclust.models.base import types_of
from diffclust.models.images import check_transforms, steps_of
from diffclust.models.kmeans import AbstractPrototypeModel
from diffclust.parallel import Description
from diffclust.parallel.mesh import map_in_chunks
from diffclust.prototypes import AbstractPrototypeFamily
from diffclust.solvers import Lloyd, LloydPlan, Outcome


class Clustering(AbstractPrototypeModel):
    """Any energy, aligner, prototype family and reduction, with all that a named method has.

    `fit`, `predict`, `align`, restarts, split-and-merge moves, snapshots, devices; of images the
    report, too. Samples are a floating array with a leading axis, or a tree of such arrays. A file
    holds the numbers, not the parts: `diffclust.load(path, like=model)`.

    Attributes:
        lloyd: The composition: `Lloyd(energy, aligner, family, reduction)`.
        penalties: Weights of the energy's penalty terms, one for each.
        coarser: Restarts run on samples that are so many times coarser, if the energy makes them.
        seeding: How runs begin: with prototypes drawn by k-means++, or with samples assigned at
            random, which outliers attract less.
        has_missing: Whether samples may hold NaN, which the energy understands.
    """

    lloyd: Lloyd = eqx.field(metadata={"in_files": False})
    penalties: tuple[float, ...] = eqx.field(
        static=True, default=(), kw_only=True, converter=_validation.plain_numbers
    )
    coarser: int = eqx.field(static=True, default=1, kw_only=True)
    seeding: Literal["k-means++", "random"] = eqx.field(
        static=True, default="k-means++", kw_only=True
    )
    has_missing: bool = eqx.field(static=True, default=False, kw_only=True)
    mask: ClassVar[str | None] = None

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        wanted = self.lloyd.energy.num_penalties
        if len(self.penalties) != wanted:
            raise ValueError(
                f"penalties must be {wanted} numbers, one for each term of "
                f"{type(self.lloyd.energy).__name__}, not {self.penalties}"
            )

    @property
    def descriptor(self) -> Method:
        """The descriptor of all models of one's own."""
        return OWN

    @property
    def composition(self) -> str:
        """The types of its parts, one within the other."""
        return types_of(self.lloyd)

    def solver(self) -> Lloyd:
        """The composition."""
        return self.lloyd

    def energy(self, channels: int = 1) -> AbstractSampleEnergy:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.lloyd.energy

    def aligner(self) -> AbstractAligner:
        return self.lloyd.aligner

    def family(self) -> AbstractPrototypeFamily:
        return self.lloyd.family

    def penalty(self) -> tuple[float, ...]:
        return self.penalties

    def plan(self, *sides: int) -> LloydPlan:
        return dataclasses.replace(super().plan(*sides), seeding=self.seeding)

    def coarsening(self, *sides: int) -> int:
        return self.coarser

    def validated(self, samples: Any, /) -> Any:
        """Checks arrays with a common leading axis, or images to be registered or streamed."""
        if self.registers or isinstance(samples, ImageSource):
            return super().validated(samples)
        return _validation.samples(samples, finite=not self.has_missing)

    def preprocessed(self, samples: Any, /) -> Any:
        """Registers images where that is asked for, and blanks what the energy's mask hides."""
        samples = super().preprocessed(samples) if self.registers else samples
        energy = self.lloyd.energy
        if not isinstance(energy, TransformedDistance) or np.ndim(samples) != 4:
            return samples
        check_transforms(steps_of(energy), samples)
        if energy.mask is not None:
            check_mask_size(energy.mask, *samples.shape[1:3])
            samples = blanked(samples, mask_weights(energy.mask) == 0.0)
        if self.lloyd.family.removes_scale:
            _validation.not_blank(samples)
        return samples

    def working_copies(self, description: Description) -> int:
        """The aligner's, and one for each cluster: an energy may compare a sample with all."""
        return self.num_clusters + super().working_copies(description)

    def aligned(self, outcome: Outcome, samples: Any, params: np.ndarray, /) -> Any:
        """Moves samples by their params."""
        return map_in_chunks(self.lloyd.energy.aligned, outcome.chunk_size, params, samples)
