"""K-means and its two invariant relatives: each a transform, a penalty and an aligner."""

import abc
import dataclasses
import functools
import math
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import numpy as np
import optax
from jaxtyping import PyTree

from diffclust import _validation
from diffclust._precision import warn_of_close
from diffclust.alignment import (
    AbstractAligner,
    Descent,
    GridSearch,
    NoAlignment,
    OptaxMinimiser,
    Sequential,
    Stage,
)
from diffclust.energies import TransformedDistance
from diffclust.energies.transformed import PixelWeights
from diffclust.image_source import Images
from diffclust.masks import mask_weights
from diffclust.models.base import AbstractModel
from diffclust.models.images import AbstractImageModel, check_transforms
from diffclust.models.settings import PassSettings, PublishedSettings, SplineSettings, WarpSettings
from diffclust.parallel import Data, Description
from diffclust.prototypes import AbstractPrototypeFamily, Learned, MeanImages, UnitNormImages
from diffclust.sampling import Boundary
from diffclust.solvers import (
    Lloyd,
    LloydPlan,
    LloydProblem,
    Outcome,
    SplitMerge,
    Stages,
    Start,
    Stopping,
)
from diffclust.solvers.bounded import numbers_kept
from diffclust.solvers.lloyd_run import learned_template
from diffclust.transforms import (
    AbstractSpatialTransform,
    AbstractTransform,
    Identity,
    Rotation,
    ThinPlateSpline,
    compose,
    named_sequence,
)
from diffclust.transforms.compose import split_names

PUBLISHED_RATES = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2)
"""Adam's learning rates, among which the paper chooses by the distortion (DI K-means, Sec. 4.3)."""

PUBLISHED_LANDMARKS = ((3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8))
"""Landmark grids among which the paper chooses."""

_PUBLISHED: dict[str, Any] = {
    "learning_rate": 1e-2,
    "num_restarts": 1,
    "max_passes": 150,
    "tolerance": None,
    "split_merge": False,
    "affine_penalty": 0.0,
}
Moves = tuple[AbstractSpatialTransform, ...]
"""Maps of coordinates in the order in which they move images."""
_COARSE_SIDE = 14
"""Approximate number of pixels on the shorter side of the images on which restarts run."""

_UPRIGHT_PENALTIES = {"affine": 1.0, "bending": 0.012}
"""Weights for upright images, from which most affine variation has been removed."""


class AbstractLloydModel(PassSettings, AbstractModel):
    """A clustering by Lloyd's algorithm; with `tolerance=None` it makes all passes.

    Attributes:
        tolerance: Smallest relative decrease of the loss that justifies another pass; 0 continues
            until no sample changes its cluster.
        split_merge: Whether runs try to escape poor optima by splitting one cluster and removing
            another.
    """

    num_restarts: int = eqx.field(static=True, default=2, kw_only=True)
    max_passes: int = eqx.field(static=True, default=30, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=1e-3, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)

    @abc.abstractmethod
    def energy(self, channels: int = 1) -> TransformedDistance:
        """Returns the energy of a sample, which is moved, and a prototype.

        Args:
            channels: Channels of the images.
        """

    def aligner(self) -> AbstractAligner:
        """Returns the aligner, which minimises the energy; by default there are no params."""
        return NoAlignment()

    @abc.abstractmethod
    def family(self) -> AbstractPrototypeFamily:
        """Returns the family, which computes prototypes from aligned samples."""

    def penalty(self) -> tuple[float, ...]:
        """Returns the weights of the energy's penalty terms; by default there are none."""
        return ()

    @property
    def has_unit_norm(self) -> bool:
        """The family's `removes_scale`."""
        return self.family().removes_scale

    @property
    def stopping(self) -> Stopping:
        """When a run stops, from `max_passes` and `tolerance`."""
        return Stopping(self.max_passes, self.tolerance)

    def solver(self) -> Lloyd:
        """The composition: energy, aligner and prototype family under Lloyd's algorithm."""
        return Lloyd(self.energy(), self.aligner(), self.family())

    def plan(self, *sides: int) -> LloydPlan:
        """The plan of a fit.

        Args:
            *sides: Rows and columns of the images, or length of the series.

        Returns:
            The plan.
        """
        return LloydPlan(
            self.num_clusters,
            self.penalty(),
            self.num_restarts,
            self.stopping,
            SplitMerge() if self.split_merge else SplitMerge(rounds=0),
            self.coarsening(*sides),
        )

    def problem(self, sample: PyTree, start: Start = None) -> LloydProblem:
        """The solver and the plan for samples of one shape.

        Args:
            sample: Shape and dtype of one sample, as `jax.ShapeDtypeStruct`s.
            start: The starting point of the fit; None for the method's own seeding.

        Returns:
            The problem.
        """
        shapes = [leaf.shape for leaf in jax.tree.leaves(sample)]
        sides = shapes[0][:2] if len(shapes) == 1 else ()
        return LloydProblem(self.solver(), self.plan(*sides), start)

    def compose(self, description: Description, start: Start) -> Stages:
        """Lloyd's algorithm."""
        return (self.problem(description.sample, start),)

    def working_copies(self, description: Description) -> int:
        return self.aligner().working_copies(self.num_clusters)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """The normalised samples at both resolutions, and what several runs remember of them."""
        factor = self.coarsening(*shape[1:3])
        coarser = 0.0 if factor == 1 else 1.0 / factor**2
        row = self.solver().memory_bytes(self.num_clusters)
        # What the last pass, this one and the best run remember, and a copy on the host.
        return int(shape[0] * (4 * math.prod(shape[1:]) * (1.0 + coarser) + 4 * row + 64))

    def template(self, sample: PyTree) -> Learned:
        """Returns blank clusters."""
        return learned_template(self.solver(), sample, self.num_clusters, self.penalty())

    def solver_for(self, outcome: Outcome, data: Data) -> tuple[Lloyd, Data]:
        """The solver, and the samples as they are."""
        return self.solver(), data


class AbstractPrototypeModel(AbstractLloydModel, AbstractImageModel):
    """A clustering of images by prototypes that are fitted by Lloyd's algorithm."""


class KMeans(AbstractPrototypeModel):
    """Ordinary K-means in pixel space: no transform, plain means.

    References:
        Lloyd (1982), Least squares quantization in PCM.
    """

    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)
    max_passes: int = eqx.field(static=True, default=300, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=0.0, kw_only=True)

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance."""
        return TransformedDistance(Identity(), mask=self.pixel_mask)

    def working_copies(self, description: Description) -> int:
        """The energies in all clusters, in units of an image; measured at 20 numbers for each.

        They should fit in a CPU's cache: with many clusters they are larger than the images.
        """
        return 20 * self.num_clusters // math.prod(description.sample.shape)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """Adds what passes remember of samples that they skip."""
        kept = numbers_kept(shape[0], math.prod(shape[1:]), self.num_clusters)
        return super().state_bytes(shape) + 4 * kept * shape[0]

    def family(self) -> AbstractPrototypeFamily:
        """Means."""
        return MeanImages()

    def finished(self, outcome: Outcome) -> Outcome:
        """Warns of clusters that distances cannot tell apart."""
        prototypes = np.asarray(outcome.learned.clusters.prototype)
        seen = 1.0 if self.pixel_mask is None else np.sqrt(mask_weights(self.pixel_mask))
        warn_of_close(prototypes * seen, prototypes.dtype)
        return super().finished(outcome)


class AbstractAlignedKMeans(PublishedSettings, WarpSettings, AbstractPrototypeModel):
    """K-means with every image aligned to every prototype, limited by penalties.

    Attributes:
        unit_norm: Whether samples and prototypes are scaled to unit norm; the papers constrain the
            prototypes.
        boundary: What lies outside an image.
        pixel_weights: Weights of the pixels: all equal (`"uniform"`), or the mean of their areas
            before and after the warp (`"jacobian"`). With the latter, the energy of a map equals
            that of its inverse with sample and prototype exchanged, if nothing leaves the canvas;
            the minimum over splines is still asymmetric.
        penalty_rounds: Rounds in which the penalty weights are learned from the images by
            maximising their evidence; 0 keeps the given weights. Weights must be positive to be
            learned.
        penalty_per_cluster: Whether every cluster learns its own penalty weights.
        learning_rate: Step size of Adam, the papers' minimiser (they use 0.01, for example). It is
            slower and follows all clusters to the end. If not given, preconditioned L-BFGS is used,
            and only for the most promising clusters.
        align_steps: Number of Adam steps that align a sample in each stage of a pass; used only
            with `learning_rate`.

    References:
        Cosentino et al., DI K-means, Eq. 2 (unit norm), App. 7.1 (weights of pixels); ST K-means,
        Sec. 6 (weights for each cluster).
    """

    transforms: eqx.AbstractVar[str]
    unit_norm: bool = eqx.field(static=True, default=True, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="zero", kw_only=True)
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    penalty_rounds: int = eqx.field(static=True, default=0, kw_only=True, metadata={"least": 0})
    penalty_per_cluster: bool = eqx.field(static=True, default=False, kw_only=True)
    learning_rate: float | None = eqx.field(static=True, default=None, kw_only=True)
    align_steps: int = eqx.field(static=True, default=10, kw_only=True)

    def __check_init__(self):
        """Refuses invalid settings."""
        self.parts()
        if self.penalty_per_cluster and self.penalty_rounds == 0:
            raise ValueError("penalty_per_cluster needs penalty_rounds of at least 1; 5 will do")
        if self.penalty_rounds and min(self.penalty()) == 0.0:
            raise ValueError(
                f"penalty weights of {self.penalty()} cannot be learned from: penalty_rounds needs "
                "all of them positive, and transforms without turn, rot and shift, which cost "
                "nothing"
            )
        if self.learning_rate is not None and not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be positive, not {self.learning_rate}")

    @abc.abstractmethod
    def parts(self) -> Moves:
        """The transforms of images, in order."""

    @abc.abstractmethod
    def descent(self) -> Descent:
        """The search for params other than rotations."""

    def solver_for(self, outcome: Outcome, data: Data) -> tuple[Lloyd, Data]:
        """With Adam, takes as many steps as all passes did: new images have no past params."""
        if self.learning_rate is None:
            return super().solver_for(outcome, data)
        *first, last = self.descent().stages
        last = dataclasses.replace(last, steps=last.steps * len(outcome.history))
        descent = dataclasses.replace(self.descent(), stages=(*first, last))
        aligner = after_rotations(self.parts(), descent)
        return dataclasses.replace(self.solver(), aligner=aligner), data

    def adam(self, **first: bool) -> Descent | None:
        """The paper's descent: a stage on blurred images, then one on the images (App. 8).

        Args:
            **first: Further settings of the first stage.

        Returns:
            The descent; None if no learning rate is given.
        """
        if self.learning_rate is None:
            return None
        stages = (Stage(self.align_steps, blur=1 / 14, **first), Stage(self.align_steps))
        minimiser = OptaxMinimiser(_adam(self.learning_rate))
        return Descent(stages, candidates=None, minimiser=minimiser)

    def solver(self) -> Lloyd:
        """With Adam, params are remembered for all clusters, as the paper counts them."""
        warm_starts = 1 if self.learning_rate is None else self.num_clusters
        return dataclasses.replace(super().solver(), warm_starts=warm_starts)

    def transform(self) -> AbstractTransform:
        """Composes all steps."""
        return compose(*self.parts())

    def aligner(self) -> AbstractAligner:
        """Descent; if there are rotations, from the best of all angles."""
        return after_rotations(self.parts(), self.descent())

    def penalty(self) -> tuple[float, ...]:
        """Weights of deformation terms; rotations, reflections and shifts cost nothing."""
        terms = [term for part in self.parts() for term in part.deformation_terms]
        return tuple(map(self.penalty_weight, terms))

    def penalty_weight(self, term: str) -> float:
        """The weight of a deformation term, such as `"affine"`.

        Args:
            term: One of a transform's `deformation_terms`.
        """
        return getattr(self, f"{term}_penalty", 0.0)

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance after the transform."""
        weights = self.pixel_weights
        return TransformedDistance(self.transform(), pixel_weights=weights, mask=self.pixel_mask)

    def family(self) -> AbstractPrototypeFamily:
        """Prototypes are means, scaled to unit norm if that is asked for."""
        return UnitNormImages() if self.unit_norm else MeanImages()

    def plan(self, *sides: int) -> LloydPlan:
        """The plan, which may include learning the penalty weights."""
        plan, per_cluster = super().plan(*sides), self.penalty_per_cluster
        return dataclasses.replace(
            plan, penalty_rounds=self.penalty_rounds, penalty_per_cluster=per_cluster
        )

    def coarsening(self, *sides: int) -> int:
        """Restarts run on images of about 14 pixels; with Adam, on the images as they are."""
        if self.learning_rate is not None:
            return 1
        return max(1, min(sides) // _COARSE_SIDE)

    def check(self, images: Images) -> None:
        """Refuses images with too few pixels, and blank ones if scaled to unit norm."""
        check_transforms(self.parts(), images)
        if self.unit_norm:
            _validation.not_blank(images)


class AffineInvariantKMeans(AbstractAlignedKMeans):
    """AI K-means: every image is aligned to every prototype by its best affine map.

    Attributes:
        transforms: Transforms of the images, in the order in which they act, joined by hyphens:
            `aff`, `turn` (rotation by any angle), `rot` (the same, with optional reflection) and
            `shift`.
        published: Those of `DeformationInvariantKMeans` without landmarks.

    References:
        Cosentino et al., DI K-means, Sec. 4.2; Fitzgibbon and Zisserman (2002).
    """

    transforms: str = eqx.field(static=True, default="aff", kw_only=True)

    published: ClassVar = _PUBLISHED

    def parts(self) -> Moves:
        """An affine map, or the transforms that were asked for."""
        return spatial_parts(self.transforms, ("aff", "turn", "rot", "shift"), self.boundary)

    def descent(self) -> Descent:
        """Descent in two levels."""
        return self.adam() or Descent((Stage(8, blur=1 / 14), Stage(12)))


class DeformationInvariantKMeans(SplineSettings, AbstractAlignedKMeans):
    """DI K-means (ST K-means): every image is aligned to every prototype by a thin-plate spline.

    Penalties limit the size of the warps; without them every digit could become every other.

    Attributes:
        affine_penalty: Weight of the mean squared displacement of the affine part. If not given,
            0.5, or 1 if place, size and slant of the images are normalised.
        bending_penalty: Weight of the spline's bending energy. If not given, 0.015, or 0.012 if
            place, size and slant of the images are normalised.
        regularisation: Smoothing of the spline: above 0 it need not pass exactly through its
            landmarks.
        published: Adam, unit norm, 150 passes, no penalties and no moves; 6×6 landmarks and a rate
            of 0.01. The paper fits all grids in `PUBLISHED_LANDMARKS` with all rates in
            `PUBLISHED_RATES`, 36 fits in all, and keeps the one with the lowest distortion (Sec.
            4.3). The same section has batches of 64, but Algorithm 2 updates prototypes after all
            images, as is done here. Images are scaled to unit norm as well, where Eq. 2 constrains
            only the prototypes, and the spline's kernel has the Euclidean norm, where App. 10
            prints an L1 norm. Where the paper is silent, this implementation chooses: each pass
            takes ten steps of affine maps on blurred images, starting from the identity, and ten
            steps of splines, starting from the better of these and the params that every image had
            with every cluster; Adam's moments are reset. New images are aligned by as many steps of
            splines as all passes took. Runs are seeded by greedy k-means++.

    References:
        Cosentino et al., DI K-means, Eqs. 2 to 4, Eq. 9 (λ), Algorithm 2; ST K-means, Algorithm 2.
    """

    affine_penalty: float | None = eqx.field(static=True, default=None, kw_only=True)
    bending_penalty: float | None = eqx.field(static=True, default=None, kw_only=True)
    regularisation: float = eqx.field(static=True, default=0.0, kw_only=True)

    published: ClassVar = {**_PUBLISHED, "landmarks": (6, 6), "bending_penalty": 0.0}

    def parts(self) -> Moves:
        """The thin-plate spline over the landmark grid, and the transforms before it."""
        names = ("tps", "turn", "rot", "shift")
        spline = ThinPlateSpline(
            self.landmarks, regularisation=self.regularisation, boundary=self.boundary
        )
        parts = spatial_parts(self.transforms, names, self.boundary)
        return tuple(spline if isinstance(p, ThinPlateSpline) else p for p in parts)

    def descent(self) -> Descent:
        """Descent, affine first, coarse to fine."""
        return self.adam(affine=True) or Descent()

    def penalty_weight(self, term: str) -> float:
        """The usual weight for the images, if none is given."""
        name = f"{term}_penalty"
        if (given := getattr(self, name, 0.0)) is not None:
            return given
        upright = self.register == "upright"
        return _UPRIGHT_PENALTIES[term] if upright else getattr(SplineSettings, name)

    @property
    def without_registration(self) -> "DeformationInvariantKMeans":
        """The model for images that are already registered, with the weights for these."""
        model = cast(DeformationInvariantKMeans, super().without_registration)
        return dataclasses.replace(model, **self._weights)

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """The weights of the penalties."""
        return {**super().automatic_settings(description), **self._weights}

    @property
    def _weights(self) -> dict[str, float]:
        return {f"{term}_penalty": self.penalty_weight(term) for term in _UPRIGHT_PENALTIES}


@functools.cache
def _adam(rate: float) -> optax.GradientTransformation:
    """Returns the same object for the same rate, so that compiled programs are reused."""
    return optax.adam(rate)


def spatial_parts(transforms: str, names: tuple[str, ...], boundary: Boundary) -> Moves:
    """Coordinate maps from their names.

    Args:
        transforms: Names joined by hyphens.
        names: The names that a model accepts.
        boundary: What lies outside an image.

    Returns:
        The transforms.

    Raises:
        ValueError: If there are no names, an unknown one, or more than one rotation.
    """
    given = split_names(transforms)
    if not given or not set(given) <= set(names):
        raise ValueError(
            f"transforms must be names out of {', '.join(names)} joined by hyphens, not "
            f"{transforms!r}"
        )
    if given.count("turn") + given.count("rot") > 1:
        raise ValueError(f"angles of one rotation are searched, not of several: {transforms!r}")
    sequence = named_sequence(transforms, channels=1, boundary=boundary)
    return tuple(part.spatial for part in sequence if part.spatial is not None)


def after_rotations(transforms: Moves, descent: Descent) -> AbstractAligner:
    """An aligner that tries all angles before it descends.

    Args:
        transforms: The transforms of images, in order.
        descent: The descent; if there are angles to try, only its last stage follows.

    Returns:
        The aligner; without rotations, the descent itself.
    """
    rotation = next((part for part in transforms if isinstance(part, Rotation)), None)
    if rotation is None:
        return descent
    part = transforms.index(rotation) if len(transforms) > 1 else None
    followed = descent.candidates
    search = GridSearch(rotation.grid(64), candidates=followed, part=part)
    last = dataclasses.replace(descent, stages=descent.stages[-1:])
    return Sequential(search, last, candidates=followed)
