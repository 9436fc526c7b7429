"""Groups of settings that several models share, each declared and documented once.

A model lists the groups before its abstract class, and gives its own default where it has another:
`class KMeans(MaskSettings, SearchSettings, AbstractPrototypeModel)`.
"""

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import optax

from diffclust import _validation
from diffclust.energies.transformed import PixelWeights
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.masks import as_mask
from diffclust.parallel import Description
from diffclust.sampling import Boundary
from diffclust.solvers import GradientPlan, Phase
from diffclust.solvers.gradient import holds_rate

BackboneName = Literal["strided", "residual", "residual-batch-norm"]
Register = Literal["none", "place", "upright", "auto"]
Ground = Literal["auto", "none", "dark", "light", "colour", "keep"]


class AbstractSettings(eqx.Module):
    """A group of settings that is one field of a model; files and commands know them singly."""


class ClusterSettings(eqx.Module):
    """How many clusters there are, and from how many starts they are sought.

    Attributes:
        num_clusters: K.
        num_restarts: Runs from different seeds; the one of least loss is kept.
    """

    num_clusters: int = eqx.field(static=True)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        for name in ("num_clusters", "num_restarts"):
            _validation.count(getattr(self, name), name)


class RegistrationSettings(eqx.Module):
    """What is taken out of images, in closed form, before they are clustered.

    Attributes:
        register: What is evened out in every image. `"none"`: nothing. `"place"`: place and size.
            `"upright"`: slant, too. `"auto"`: as `"upright"`; as `"place"` where images are turned
            by any angle; as `"none"` where they have no plain ground. Rotations and reflections
            never are.
        ground: Foreground, which says where things lie. `"dark"`: what is brighter than a dark
            ground. `"light"`: what is darker than a light ground. `"colour"`: what has another
            colour than the ground; images become grey. `"keep"`, for photographs: what differs
            from a smooth ground, shadows less so; ground and colours stay, and `register="auto"`
            is `"place"`. `"auto"`: one of these, by the whole set, and `"none"` with
            `register="none"`. Except with `"keep"` and `"none"` the ground is taken out, by its
            colour at the border.
    """

    register: Register = eqx.field(static=True, default="none", kw_only=True)
    ground: Ground = eqx.field(static=True, default="auto", kw_only=True)


class MaskSettings(eqx.Module):
    """Which pixels count.

    Attributes:
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
    """

    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)


class PassSettings(eqx.Module):
    """How long Lloyd's algorithm runs.

    Attributes:
        max_passes: Most passes of a run.
    """

    max_passes: int = eqx.field(static=True, default=100, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.count(self.max_passes, "max_passes")


class SearchSettings(PassSettings, ClusterSettings):
    """How Lloyd's algorithm searches; with `tolerance=None` it makes all passes.

    Attributes:
        tolerance: Least relative fall of the loss that is worth another pass; 0 goes on until no
            image changes its cluster.
        split_merge: Whether runs try to leave poor optima by splitting one cluster and removing
            another.
    """

    num_restarts: int = eqx.field(static=True, default=2, kw_only=True)
    max_passes: int = eqx.field(static=True, default=30, kw_only=True)
    tolerance: float | None = eqx.field(static=True, default=1e-3, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        if self.tolerance is not None:
            _validation.positive(self.tolerance, "tolerance", least=0)


class WarpSettings(eqx.Module):
    """What limits the maps by which images are moved.

    Attributes:
        affine_penalty: Weight of the mean squared displacement of the affine part.
    """

    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)


class AlignmentSettings(WarpSettings):
    """How samples are aligned to prototypes, and what limits that.

    Attributes:
        unit_norm: Whether samples and prototypes are scaled to unit norm, as in the papers.
        boundary: What lies outside an image.
        pixel_weights: What pixels weigh: all the same (`"uniform"`), or the mean of their areas
            before and after the warp (`"jacobian"`), which makes the distance of a warp that can
            be inverted symmetric.
        penalty_rounds: Rounds in which the penalty weights are learned from the images by their
            evidence; 0 keeps the given ones, which must be positive to be learned.
        penalty_per_cluster: Whether every cluster learns penalty weights of its own.
        learning_rate: Step size of Adam, the papers' minimiser, such as their 0.01; it is slower
            and follows all clusters to the end. Where it is not given, preconditioned L-BFGS is
            used, for the most promising clusters.
        align_steps: Adam's steps, in each stage of a pass.

    References:
        Cosentino et al., DI K-means, Eq. 2 (unit norm), App. 7.1 (weights of pixels); ST K-means,
        Sec. 6 (weights for each cluster).
    """

    unit_norm: bool = eqx.field(static=True, default=True, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="zero", kw_only=True)
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    penalty_rounds: int = eqx.field(static=True, default=0, kw_only=True)
    penalty_per_cluster: bool = eqx.field(static=True, default=False, kw_only=True)
    learning_rate: float | None = eqx.field(static=True, default=None, kw_only=True)
    align_steps: int = eqx.field(static=True, default=10, kw_only=True)

    @property
    def penalty_learning(self) -> tuple[int, bool]:
        """Rounds in which penalty weights are learned, and whether every cluster learns its own."""
        return self.penalty_rounds, self.penalty_per_cluster


class SplineSettings(WarpSettings):
    """The thin-plate splines of DI K-means.

    Attributes:
        transforms: How images are moved, in the order in which it acts: `tps`, after `turn` (by any
            angle), `rot` (and perhaps mirrored) or `shift` where that is asked for, joined by
            hyphens.
        landmarks: Rows and columns of the landmark grid.
        bending_penalty: Weight of the bending energy of the bent part.
    """

    transforms: str = eqx.field(static=True, default="tps", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(5, 5), kw_only=True)
    bending_penalty: float = eqx.field(static=True, default=0.015, kw_only=True)

    @property
    def least_size(self) -> int:
        """A pixel for each landmark."""
        return math.prod(self.landmarks)


class ScatteringSettings(ClusterSettings):
    """The scattering transform, and the projection of its coefficients.

    Attributes:
        num_dimensions: How many of the principal directions that follow the removed ones are kept.
        normalisation: What is done to the coefficients first; see `fit_principal_directions`.
        num_scales: J of the scattering transform; chosen such that about 4×4 coefficients are left
            of each path where it is not given, which is 3 for images of up to 45 pixels.
        num_angles: L of the scattering transform.
        relative: Whether coefficients are taken relative to an image's contrast, without its mean
            colours; for photographs on several grounds or in changing light.
        num_restarts: Runs of the last step's k-means, of which the one of least loss is kept.
    """

    num_dimensions: int = eqx.field(static=True, default=300, kw_only=True)
    normalisation: Normalisation = eqx.field(static=True, default="root", kw_only=True)
    num_scales: int | None = eqx.field(static=True, default=None, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    relative: bool | None = eqx.field(static=True, default=False, kw_only=True)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        for name in ("num_dimensions", "num_angles"):
            _validation.count(getattr(self, name), name)
        if self.num_scales is not None:
            _validation.count(self.num_scales, "num_scales")


def removed_for(num_clusters: int) -> tuple[int, ...]:
    """How many leading principal directions are removed, for so many clusters.

    They hold what varies within clusters, but the centres of K clusters span K - 1 directions as
    well: where K is small, the leading directions are what tells clusters apart.

    Args:
        num_clusters: K.

    Returns:
        Numbers for several spaces, whose mean graph is cut; chosen by
        `experiments.default_method.few`.
    """
    if num_clusters < 5:
        return (0,)
    return (0, 1, 2, 3) if num_clusters < 8 else (1, 2, 3, 4)


class GraphSettings(eqx.Module):
    """The graphs of neighbours in scattering space whose mean is cut.

    Attributes:
        num_removed: How many leading principal directions are removed, in each of several spaces
            in which neighbours are sought. Where it is not given, 0 for up to 4 clusters,
            0 to 3 for up to 7, 1 to 4 for more: where clusters are few, the leading directions are
            what tells them apart.
        num_neighbours: How many neighbours a sample has, in each of the graphs for each space.
    """

    num_removed: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True)
    num_neighbours: tuple[int, ...] = eqx.field(static=True, default=(5, 8), kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        for name, least in (("num_removed", 0), ("num_neighbours", 1)):
            values = getattr(self, name)
            if values is not None and not values:
                raise ValueError(f"{name} is empty; give at least one whole number")
            for value in values or ():
                _validation.count(value, name, least=least)


class PrototypeWarpSettings(eqx.Module):
    """How prototypes are moved onto images.

    Attributes:
        transforms: How prototypes may be moved, in the order in which it is learned: `aff`,
            `proj`, `tps`, `col`, `fullcol` and `morpho` joined by hyphens.
        boundary: What lies outside a prototype.
        landmarks: Landmark grid of splines.
        deformation_penalty: Weight of the sizes of deformations; the paper has none.
    """

    transforms: str = eqx.field(static=True, default="col-aff-tps", kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(4, 4), kw_only=True)
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.positive(self.deformation_penalty, "deformation_penalty", least=0)


class PredictionSettings(eqx.Module):
    """How alignments are predicted.

    Attributes:
        backbone: What reads an image: `"strided"`, `"residual"`, the papers' without its
            normalisation, or `"residual-batch-norm"`, with it.
        refine_steps: Steps of descent that improve on predicted alignments where images are
            assigned in the end, and where new ones are.
    """

    backbone: BackboneName = eqx.field(static=True, default="strided", kw_only=True)
    refine_steps: int = eqx.field(static=True, default=0, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.count(self.refine_steps, "refine_steps", least=0)


class MixtureSettings(eqx.Module):
    """The Gaussians of a mixture.

    Attributes:
        followed: How many components of an image, the likeliest ones, take part in a step; None
            for all, which is the exact M-step.
        initial_variance: Of every pixel, before the first step. The paper prints Σ = 0.5, which in
            the authors' code is the standard deviation.
        min_deviation: A standard deviation whose square is added to all variances.
    """

    followed: int | None = eqx.field(static=True, default=3, kw_only=True)
    initial_variance: float = eqx.field(static=True, default=0.25, kw_only=True)
    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)


_SPLIT_MERGE_EVERY = 4
"""Windows between two attempts to split one cluster and remove another."""


class Training(AbstractSettings):
    """How a model is trained by gradient steps.

    Attributes:
        steps: Most steps of each phase: without transforms, then with one transform more each, and
            at last with all at a tenth of the learning rate. Where they are not given, the phases
            divide `max_steps` among them.
        epochs: The same in passes over all images. Where it is not given, `steps` is used.
        max_steps: Most steps of a run.
        tolerance: A phase ends early where the loss falls by less than this fraction; 0 does all
            steps.
        curriculum: Whether transforms are added one by one, rather than all at the start.
        batch_size: Images a step; 128 where it is not given, 64 for images of 64 pixels or more a
            side, and never more than there are.
        learning_rate: Step size of Adam, for prototypes and networks alike; of another `optimizer`
            only if it holds one (`optax.inject_hyperparams`).
        optimizer: Any complete optimiser of optax's in Adam's place; see `GradientEM.optimizer`. A
            file does not hold it: a model that was loaded would be trained by Adam.
        split_merge: Whether clusters that hold two kinds are split, and others make room, now and
            then, where that lowers the loss.
        shortlist: While a model is trained, only so many clusters of an image, the best ones after
            the transforms up to the first spatial one, are judged after all of them. That takes
            less time, but the winner may be missed; None judges all.
        least_share: A cluster that holds less than this share of an even one is refilled from the
            largest; 0 refills none.
        num_starts: So many runs from different starts race for as many steps each; the better half
            by the loss of the same images goes on, until one is left. The steps are those of that
            one. Given prototypes or assignments are one start.
        refill_every: Steps after which clusters that are too small (`least_share`) are refilled,
            again and again, in all phases. Where it is not given, after every pass over the images,
            of 50 steps at least, and not in the last phase.

    References:
        Monnier et al., DTI clustering, Sec. 4.2.
    """

    steps: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True)
    epochs: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True)
    max_steps: int = eqx.field(static=True, default=6_000, kw_only=True)
    tolerance: float = eqx.field(static=True, default=0.0, kw_only=True)
    curriculum: bool = eqx.field(static=True, default=True, kw_only=True)
    batch_size: int | None = eqx.field(static=True, default=None, kw_only=True)
    learning_rate: float = eqx.field(static=True, default=1e-3, kw_only=True)
    optimizer: optax.GradientTransformation | None = eqx.field(
        static=True, default=None, kw_only=True, metadata={"in_files": False}
    )
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)
    shortlist: int | None = eqx.field(static=True, default=None, kw_only=True)
    least_share: float = eqx.field(static=True, default=0.2, kw_only=True)
    num_starts: int = eqx.field(static=True, default=1, kw_only=True)
    refill_every: int | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.count(self.max_steps, "max_steps", least=10)
        _validation.count(self.num_starts, "num_starts")
        _validation.positive(self.tolerance, "tolerance", least=0)
        _validation.positive(self.least_share, "least_share", least=0)
        for name, least in (("shortlist", 2), ("batch_size", 1), ("refill_every", 1)):
            if (value := getattr(self, name)) is not None:
                _validation.count(value, name, least=least)
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be positive, not {self.learning_rate}")
        other = self.optimizer if self.learning_rate != type(self).learning_rate else None
        if other is not None and not holds_rate(other.init(jnp.zeros(()))):
            raise ValueError(
                "give learning_rate or an optimizer with a rate of its own, not both; of "
                "optax.inject_hyperparams(optax.sgd)(learning_rate=1.0) the rate is set"
            )
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give either steps or epochs, not both")
        name = "steps" if self.epochs is None else "epochs"
        for count in self.steps or self.epochs or ():
            _validation.count(count, name, least=0)

    def plan(
        self, num_transforms: int, description: Description, *, split_from: int = 0
    ) -> GradientPlan:
        """Plans a fit.

        Args:
            num_transforms: Number of transforms.
            description: What is known of the images.
            split_from: With how many transforms clusters may be split and removed: without those
                that put images in their places, that would part one kind by its places.

        Returns:
            The plan, whose phases name solvers by how many transforms they use.

        Raises:
            ValueError: If the steps are for another number of phases, or a batch is larger than
                the data.
        """
        solvers = [*range(num_transforms + 1), num_transforms]
        if not self.curriculum:
            solvers = [num_transforms, num_transforms]
        batch = self._batch(description)
        epoch = math.ceil(description.num_samples / batch)
        name, steps = ("steps", self.steps) if self.epochs is None else ("epochs", self.epochs)
        if steps is None:
            steps = _shared_out(self.max_steps, len(solvers))
        if len(steps) != len(solvers):
            raise ValueError(
                f"{name} must be {len(solvers)} numbers, one for each phase (no transforms, "
                f"{num_transforms} times one more, a lower rate), not {len(steps)}: {steps}"
            )
        if sum(steps) < 1:
            raise ValueError(f"{name} must not all be 0")
        steps = [count * (epoch if name == "epochs" else 1) for count in steps]
        rates = [self.learning_rate] * (len(solvers) - 1) + [0.1 * self.learning_rate]
        phases = [
            Phase(solver, count, rate, split_merge=solver >= split_from)
            for solver, count, rate in zip(solvers, steps, rates, strict=True)
            if count > 0
        ]
        return GradientPlan(
            tuple(phases),
            batch,
            tolerance=self.tolerance,
            window=self.refill_every or max(50, epoch),
            least_share=self.least_share,
            refills_to_the_end=self.refill_every is not None,
            split_merge_every=_SPLIT_MERGE_EVERY if self.split_merge else 0,
            num_starts=self.num_starts,
            race=_race(sum(steps), self.num_starts),
        )

    def shortened(self, steps: int, phases: int, *, split_merge: bool) -> "Training":
        """The same for one start, with a few steps only.

        Args:
            steps: Most steps of each phase.
            phases: Number of phases that have any steps.
            split_merge: Whether clusters are split and removed.

        Returns:
            The training.
        """
        few = tuple(min(steps, n) for n in self.steps or self.epochs or (steps,) * phases)
        changed = {"epochs": None, "num_starts": 1, "tolerance": 0.0}
        return dataclasses.replace(self, steps=few, split_merge=split_merge, **changed)

    def _batch(self, description: Description) -> int:
        count, side = description.num_samples, min(description.sample.shape[:2])
        if self.batch_size is not None:
            if self.batch_size > count:
                raise ValueError(
                    f"batch_size must be at most the number of images, {count}, not "
                    f"{self.batch_size}"
                )
            return self.batch_size
        return min(64 if side >= 64 else 128, count)


class GradientSettings(ClusterSettings, MaskSettings):
    """How a model is trained by gradient steps, and how much each pixel counts.

    Attributes:
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
        training: How it is trained.
    """

    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    training: Training = eqx.field(default=Training(), kw_only=True)


_RACE = (0.4, 0.6)
"""The race takes place between these fractions of the steps of a run: where prototypes are not yet
moved, losses do not tell runs apart."""


def _race(total: int, starts: int) -> tuple[int, ...]:
    """The steps at which the runs of a race are halved, equally far apart."""
    rounds = math.ceil(math.log2(starts))
    first, last = (share * total for share in _RACE)
    apart = (last - first) / max(1, rounds - 1)
    return tuple(max(1, int(first + number * apart)) for number in range(rounds))


def _shared_out(total: int, phases: int) -> tuple[int, ...]:
    """A tenth each for the first and for the last phase, the rest for those between."""
    if phases == 2:
        return (total - total // 10, total // 10)
    edge = total // 10
    middle = (total - 2 * edge) // (phases - 2)
    return (edge, *[middle] * (phases - 2), edge)
