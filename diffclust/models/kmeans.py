"""K-means and its two invariant kin, each a transform, a penalty and an aligner."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Descent, NoAlignment, Stage
from diffclust.energies import TransformedDistance
from diffclust.image_source import Images
from diffclust.models.images import AbstractImageModel, blank_clusters, check_landmarks
from diffclust.models.settings import (
    AlignmentSettings,
    MaskSettings,
    SearchSettings,
    SplineSettings,
)
from diffclust.parallel import Data, Description
from diffclust.prototypes import AbstractPrototypeFamily, Learned, MeanImages, UnitNormImages
from diffclust.solvers import (
    Assignment,
    Callback,
    Lloyd,
    LloydPlan,
    LloydProblem,
    Outcome,
    SplitMerge,
    Stages,
    Start,
    Stopping,
    all_energies,
    assign_samples,
    ignore,
)
from diffclust.transforms import AbstractSpatialTransform, Affine, Identity, ThinPlateSpline

_COARSE_SIDE = 14
"""Restarts run on images whose shorter side has about this many pixels."""


class AbstractPrototypeModel(AbstractImageModel):
    """A clustering by prototypes that are fitted by Lloyd's algorithm."""

    max_passes: eqx.AbstractVar[int]
    tolerance: eqx.AbstractVar[float]
    split_merge: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def energy(self, channels: int = 1) -> TransformedDistance:
        """What a sample costs beside its cluster's prototype; the sample is moved.

        Args:
            channels: Channels of the images.
        """

    @abc.abstractmethod
    def aligner(self) -> AbstractAligner:
        """What minimises the energy over the params."""

    @abc.abstractmethod
    def family(self) -> AbstractPrototypeFamily:
        """How prototypes follow from aligned samples."""

    @abc.abstractmethod
    def penalty(self) -> tuple[float, ...]:
        """Weights of the energy's penalty terms."""

    @property
    def penalty_learning(self) -> tuple[int, bool]:
        """Rounds in which penalty weights are learned, and whether every cluster learns its own."""
        return 0, False

    def solver(self) -> Lloyd:
        """The composition: energy, aligner and prototype family under Lloyd's algorithm."""
        return Lloyd(self.energy(), self.aligner(), self.family())

    def plan(self, height: int, width: int) -> LloydPlan:
        """How a fit of images proceeds.

        Args:
            height: Rows of the images.
            width: Columns of the images.

        Returns:
            The plan.
        """
        return LloydPlan(
            self.num_clusters,
            self.penalty(),
            self.num_restarts,
            Stopping(self.max_passes, self.tolerance),
            SplitMerge() if self.split_merge else SplitMerge(rounds=0),
            self.coarsening(height, width),
            *self.penalty_learning,
        )

    def compose(self, description: Description, start: Start) -> Stages:
        """Lloyd's algorithm."""
        height, width = (*jax.tree.leaves(description.sample)[0].shape, 1, 1)[:2]
        plan = self.plan(height, width)
        return (LloydProblem(self.solver(), plan, start),)

    def working_copies(self, description: Description) -> int:
        """The aligner's."""
        del description
        return self.aligner().working_copies(self.num_clusters)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """The normalised samples at both resolutions, and their memory in several runs."""
        factor = self.coarsening(*shape[1:3])
        coarser = 0.0 if factor == 1 else 1.0 / factor**2
        row = self.solver().memory_bytes(self.num_clusters)
        # The memories of the pass before, of this one and of the best run, and a copy on the host.
        return int(shape[0] * (4 * math.prod(shape[1:]) * (1.0 + coarser) + 4 * row + 64))

    def blank(self, sample_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """Images and penalty weights."""
        return blank_clusters(self, sample_shape, dtype)

    def assign(self, outcome: Outcome, data: Data, *, callback: Callback = ignore) -> Assignment:
        """Every image goes where its energy is least."""
        return assign_samples(self.solver(), outcome.learned, data, callback=callback)

    def energies(
        self, outcome: Outcome, data: Data, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """The energy of every image in every cluster."""
        return all_energies(self.solver(), outcome.learned, data, callback=callback)


class KMeans(MaskSettings, SearchSettings, AbstractPrototypeModel):
    """Ordinary K-means in pixel space: no transform, plain means.

    Attributes:
        num_clusters: K.

    References:
        Lloyd (1982), Least squares quantization in PCM.
    """

    num_clusters: int = eqx.field(static=True)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)
    max_passes: int = eqx.field(static=True, default=300, kw_only=True)
    tolerance: float = eqx.field(static=True, default=0.0, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        check_counts(self)

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance."""
        return TransformedDistance(Identity(), mask=self.pixel_mask)

    def aligner(self) -> AbstractAligner:
        """None."""
        return NoAlignment()

    def family(self) -> AbstractPrototypeFamily:
        """Means."""
        return MeanImages()

    def penalty(self) -> tuple[float, ...]:
        """None."""
        return ()

    def coarsening(self, height: int, width: int) -> int:
        """None: a pass costs next to nothing."""
        del height, width
        return 1

    def check(self, images: Images) -> None:
        """Takes all images."""


class AbstractAlignedKMeans(
    AlignmentSettings, MaskSettings, SearchSettings, AbstractPrototypeModel
):
    """K-means with every image aligned to every prototype, within the limits of penalties."""

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        check_counts(self)
        for name in self._penalties:
            _validation.positive(getattr(self, name), name, least=0)
        _check_weights(self)

    @abc.abstractmethod
    def transform(self) -> AbstractSpatialTransform:
        """How images are moved."""

    @property
    def _penalties(self) -> list[str]:
        return [f"{term}_penalty" for term in self.transform().deformation_terms]

    def penalty(self) -> tuple[float, ...]:
        """One for each part of the deformation."""
        return tuple(getattr(self, name) for name in self._penalties)

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance after the transform."""
        weights = self.pixel_weights
        return TransformedDistance(self.transform(), pixel_weights=weights, mask=self.pixel_mask)

    def family(self) -> AbstractPrototypeFamily:
        """Means, of unit norm where that is asked for."""
        return UnitNormImages() if self.unit_norm else MeanImages()

    def coarsening(self, height: int, width: int) -> int:
        """Restarts run on images of about 14 pixels."""
        return max(1, min(height, width) // _COARSE_SIDE)

    def check(self, images: Images) -> None:
        """Refuses blank images where they have to be scaled to unit norm, and too few pixels."""
        check_landmarks([self.transform()], images)
        if self.unit_norm:
            _validation.not_blank(images)


class AffineInvariantKMeans(AbstractAlignedKMeans):
    """AI K-means: every image is aligned to every prototype by its best affine map.

    Attributes:
        num_clusters: K.

    References:
        Cosentino et al., DI K-means, Sec. 4.2; Fitzgibbon and Zisserman (2002).
    """

    num_clusters: int = eqx.field(static=True)

    def transform(self) -> Affine:
        """An affine map."""
        return Affine(boundary=self.boundary)

    def aligner(self) -> AbstractAligner:
        """Descent in two levels."""
        return Descent((Stage(8, blur=1 / 14), Stage(12)))


class DeformationInvariantKMeans(SplineSettings, AbstractAlignedKMeans):
    """DI K-means (ST K-means): every image is aligned to every prototype by a thin-plate spline.

    The size of the warps is limited by penalties, or every digit would become every other.

    Attributes:
        num_clusters: K.
        regularisation: λ of Eq. 9.

    References:
        Cosentino et al., DI K-means, Eqs. 2 to 4, Algorithm 2; ST K-means, Algorithm 2.
    """

    num_clusters: int = eqx.field(static=True)
    regularisation: float = eqx.field(static=True, default=0.0, kw_only=True)

    def transform(self) -> ThinPlateSpline:
        """The thin-plate spline over the landmark grid."""
        return ThinPlateSpline(
            self.landmarks, regularisation=self.regularisation, boundary=self.boundary
        )

    def aligner(self) -> AbstractAligner:
        """Descent, affine first, coarse to fine."""
        return Descent()


def check_counts(model: AbstractPrototypeModel) -> None:
    """Refuses numbers of clusters, restarts and passes that mean nothing.

    Args:
        model: The model.

    Raises:
        ValueError: With what came and what would do.
    """
    for name in ("num_clusters", "num_restarts", "max_passes"):
        _validation.count(getattr(model, name), name)
    _validation.positive(model.tolerance, "tolerance", least=0)


def _check_weights(model: AbstractPrototypeModel) -> None:
    rounds, per_cluster = model.penalty_learning
    _validation.positive(rounds, "weight_rounds", least=0)
    if per_cluster and rounds == 0:
        raise ValueError("weights_per_cluster needs weight_rounds of at least 1; 5 will do")
    if rounds and min(model.penalty()) == 0.0:
        raise ValueError(
            f"penalty weights of {model.penalty()} cannot be learned from: weight_rounds needs "
            "all of them positive"
        )
