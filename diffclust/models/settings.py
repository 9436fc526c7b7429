"""Groups of settings that several models share, each declared and documented once.

A model lists these groups before its abstract class, and overrides a default where its own differs:
`class GaussianMixture(MixtureSettings, AbstractGradientModel)`.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from diffclust import _validation
from diffclust._renamed import current_settings
from diffclust.parallel import Description
from diffclust.sampling import Boundary
from diffclust.solvers import GradientPlan, Phase
from diffclust.solvers.gradient import BiasCorrection, holds_rate

BackboneName = Literal["strided", "residual", "residual-batch-norm"]
Register = Literal["none", "place", "upright", "auto"]
Ground = Literal["auto", "none", "dark", "light", "colour", "keep"]
COUNTS: dict[str, Any] = {"metadata": {"least": 0}, "converter": _validation.plain_numbers}
"""Arguments for declaring a field that holds one or several whole numbers, all at least 0."""

S = TypeVar("S", bound="AbstractSettings")
P = TypeVar("P", bound="PublishedSettings")


class AbstractSettings(eqx.Module):
    """Settings that a file or a command line can hold, each checked by its type.

    Choices must be among those of the field's `Literal`; whole numbers must be at least 1 and other
    numbers at least 0, unless `metadata["least"]` says otherwise. None means that the method
    chooses the value. A field that is itself a group of settings is one field here, but files and
    commands list its settings individually.
    """

    def __check_init__(self):
        """Refuses a value that is not one of a setting's choices, or is too small."""
        for field in _in_files(type(self)):
            value, types = getattr(self, field.name), _types_within(field.type)
            least = field.metadata.get("least", 1 if int in types else 0)
            _check_kind(field, value)
            if get_origin(field.type) is Literal:
                _validation.one_of(value, get_args(field.type), field.name)
            elif value is not None and types & {int, float}:
                check = _validation.count if int in types else _validation.positive
                has_several = _origins(field.type) & {tuple, list, Sequence}
                has_several = has_several and isinstance(value, tuple | list)
                for each in value if has_several else (value,):
                    check(each, field.name, least=least)

    def settings(self) -> dict[str, Any]:
        """The settings as names and numbers, from which the constructor can rebuild the object."""
        settings: dict[str, Any] = {}
        for field in _in_files(type(self)):
            value = getattr(self, field.name)
            group = isinstance(value, AbstractSettings)
            settings |= value.settings() if group else {field.name: value}
        return settings

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The type of each setting, by name."""
        types: dict[str, Any] = {}
        for field in _in_files(cls):
            group = _group(field)
            types |= {field.name: field.type} if group is None else group.setting_types()
        return types

    @classmethod
    def from_settings(cls: type[S], settings: Mapping[str, Any]) -> S:
        """Settings from their names and values.

        Args:
            settings: As returned by `settings`; missing ones take their defaults.

        Returns:
            The model, or group of settings.

        Raises:
            ValueError: If a setting is invalid.
            TypeError: If there is no such setting.
        """
        given = current_settings(settings)
        for field in dataclasses.fields(cls):
            if (group := _group(field)) is not None:
                own = given.keys() & group.setting_types().keys()
                if field.name in given:
                    if own:
                        raise ValueError(
                            f"give settings of {field.name} by their names, such as "
                            f"{min(own)}=, not {field.name}= as well"
                        )
                    continue
                given[field.name] = group.from_settings({name: given.pop(name) for name in own})
        return cls(**given)


class PublishedSettings(eqx.Module):
    """A method whose paper uses particular settings.

    Attributes:
        published: The paper's settings, where they differ from the defaults.
    """

    published: ClassVar[Mapping[str, Any]]

    @classmethod
    def as_published(cls: type[P], num_clusters: int, **settings: Any) -> P:
        """The model with the paper's settings; the class says what the paper leaves open.

        Args:
            num_clusters: K.
            **settings: Settings that differ from the paper's. Settings of groups are given by their
                own names, such as `epochs`. `steps` and `max_steps` replace the paper's epochs.

        Returns:
            The model.
        """
        published = dict(cls.published)
        if settings.keys() & {"steps", "max_steps"}:
            published.pop("epochs", None)
        given = {"num_clusters": num_clusters, **published, **settings}
        return cls.from_settings(given)  # pyright: ignore[reportAttributeAccessIssue]


def _types_within(kind: Any) -> set[Any]:
    """The types that a type consists of: `int` of `tuple[int, ...]`, `float` of `float | None`."""
    return set().union(*map(_types_within, get_args(kind))) or {kind}


def _origins(kind: Any) -> set[Any]:
    """The generic types within a type: `tuple` of `tuple[int, ...] | None`."""
    return {get_origin(kind)}.union(*map(_origins, get_args(kind)))


def _in_files(group: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(group) if field.metadata.get("in_files", True)]


def _group(field: dataclasses.Field) -> type[AbstractSettings] | None:
    kind = field.type
    return kind if isinstance(kind, type) and issubclass(kind, AbstractSettings) else None


def _check_kind(field: dataclasses.Field, value: Any) -> None:
    """Refuses what is no flag, no string or no group of settings where the field is one."""
    kinds: dict[Any, Any] = {bool: ("True or False", (bool, np.bool_)), str: ("a string", str)}
    if (group := _group(field)) is not None:
        kinds = {group: (f"a {group.__name__}", group)}
    words, kind = kinds.get(field.type, ("", object))
    if not isinstance(value, kind) and (value is not None or field.default is not None):
        raise ValueError(f"{field.name} must be {words}, not {value!r}")


def values_of(group: type[eqx.Module], model: eqx.Module) -> dict[str, Any]:
    """A model's values for a group of settings, to be given to another model.

    Args:
        group: The group, a base class of the model.
        model: The model.

    Returns:
        Values by setting name.
    """
    return {field.name: getattr(model, field.name) for field in dataclasses.fields(group)}


LEAST_CANVAS = 8
"""Least number of pixels on the shorter side of registered images."""


class RegistrationSettings(eqx.Module):
    """Settings of the registration of images before they are clustered.

    Attributes:
        register: What is normalised in every image. `"none"`: nothing. `"place"`: position and
            size. `"upright"`: slant as well. `"auto"`: the same as `"upright"`, but as `"place"` if
            the method's transforms rotate images by any angle or if colours are kept, and as
            `"none"` if the images have no plain background. If it is unclear whether they have one,
            several registrations are tried on some of the images, and the one with the most stable
            clusters is used. Rotations and reflections are never normalised.
        ground: What counts as the object in an image. `"dark"`: whatever is brighter than a dark
            background. `"light"`: whatever is darker than a light one. `"colour"`: whatever differs
            in colour from the background; images become grey. `"keep"`, for photographs: whatever
            differs from a smooth background, with less weight on shadows; background and colours
            are kept, and `register="auto"` means `"place"`. `"auto"`: one of these, chosen from the
            whole set of images, or `"none"` with `register="none"`. Except with `"keep"` and
            `"none"`, the background is removed, using its colour at the border.
        canvas: Pixels on the shorter side of registered images. If not given, an object of median
            size keeps its size: the side is rounded up to a multiple of 4, and lies between 28 and
            the images' own; with `ground="keep"` it is the images' own, at least 28. It has no
            effect without registration.
    """

    register: Register = eqx.field(static=True, default="none", kw_only=True)
    ground: Ground = eqx.field(static=True, default="auto", kw_only=True)
    canvas: int | None = eqx.field(
        static=True, default=None, kw_only=True, metadata={"least": LEAST_CANVAS}
    )


class PassSettings(eqx.Module):
    """How long Lloyd's algorithm runs.

    Attributes:
        max_passes: Maximum number of passes in a run.
    """

    max_passes: int = eqx.field(static=True, default=100, kw_only=True)


class WarpSettings(eqx.Module):
    """Limits on the maps that move images.

    Attributes:
        affine_penalty: Weight of the mean squared displacement of the affine part.
    """

    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)


class SplineSettings(WarpSettings):
    """The thin-plate splines of DI K-means.

    Attributes:
        transforms: Transforms of the images, in the order in which they act, joined by hyphens:
            `tps`, optionally after `turn` (rotation by any angle), `rot` (the same, with optional
            reflection) or `shift`.
        landmarks: Rows and columns of the landmark grid.
        bending_penalty: Weight of the spline's bending energy.
    """

    transforms: str = eqx.field(static=True, default="tps", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(
        static=True, default=(5, 5), kw_only=True, converter=_validation.plain_pair
    )
    bending_penalty: float = eqx.field(static=True, default=0.015, kw_only=True)

    @property
    def least_size(self) -> int:
        """One pixel per landmark."""
        return math.prod(self.landmarks)


def removed_for(num_clusters: int) -> tuple[int, ...]:
    """The numbers of leading principal directions to remove, given the number of clusters.

    These directions hold variation within clusters. But the centres of K clusters themselves span K
    - 1 directions, so when K is small the leading directions are what distinguishes the clusters.

    Args:
        num_clusters: K.

    Returns:
        One number for each of several spaces, whose mean graph is cut; chosen by
        `experiments.default_method.few`.
    """
    if num_clusters < 5:
        return (0,)
    return (0, 1, 2, 3) if num_clusters < 8 else (1, 2, 3, 4)


class PrototypeWarpSettings(eqx.Module):
    """Settings of the transforms of prototypes.

    Attributes:
        transforms: Transforms of the prototypes, in the order in which they are learned, joined by
            hyphens: `aff`, `proj`, `tps`, `col`, `fullcol` and `morpho`.
        boundary: What lies outside a prototype; the morphological transform always assumes black.
        landmarks: Rows and columns of the splines' landmark grid.
        deformation_penalty: Weight of the penalty on the size of deformations; the paper has none.
    """

    transforms: str = eqx.field(static=True, default="col-aff-tps", kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(
        static=True, default=(4, 4), kw_only=True, converter=_validation.plain_pair
    )
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)


class MixtureSettings(eqx.Module):
    """Settings of the Gaussians in a mixture.

    Attributes:
        followed: How many components of each image, the most likely ones, take part in a step. If
            these are all components, the step is the exact M-step. In Python None stands for all of
            them.
        initial_variance: Variance of every pixel before the first step, to which the square of
            `min_deviation` is added. The paper prints Σ = 0.5, which is the standard deviation in
            the authors' code.
        min_deviation: Standard deviation whose square is added to all variances.
    """

    followed: int | None = eqx.field(static=True, default=3, kw_only=True)
    initial_variance: float = eqx.field(static=True, default=0.25, kw_only=True)
    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)


_SPLIT_MERGE_EVERY = 4
"""Number of windows between attempts to split one cluster and remove another."""


class Training(AbstractSettings):
    """Settings of training by gradient steps.

    Attributes:
        steps: Maximum number of steps in each phase: first without transforms, then with one more
            transform in each phase, and finally with all of them at a tenth of the learning rate.
            If not given, the phases divide `max_steps` among them.
        epochs: The same, in passes over all images. If not given, `steps` is used.
        max_steps: Maximum number of steps in a run.
        tolerance: A phase ends early once the lowest loss of its last three windows of steps is
            less than this fraction below the lowest before them; 0 runs all steps.
        curriculum: Whether transforms are added one by one, rather than all at the start.
        curriculum_start: With which transforms training begins if neither `steps` nor `epochs` are
            given: `"spatial"`, with the first spatial transform and all before it, whose phase also
            has the steps of those that are left out, or `"identity"`, with none. With the latter,
            prototypes first become means of images at different positions.
        batch_size: Images per step. If not given, 128, or 64 if the images have at least 64 pixels
            on each side, but no more than there are images, rounded down to a multiple of the
            number of devices.
        learning_rate: Step size of Adam, for prototypes and networks alike. In Python an
            `optimizer` given in Adam's place uses it if it was made by optax's
            `inject_hyperparams`.
        optimizer: Any complete optax optimiser to use in Adam's place; see `GradientEM.optimizer`.
            Files do not store it: a model that was loaded would be trained by Adam.
        split_merge: Whether clusters that hold two kinds are split, and others removed to make
            room, if that lowers the loss. Once per phase, three such moves are tried alongside the
            unchanged run, for up to 300 steps, or longer while one of them is catching up fast.
        shortlist: During training, only this many clusters of each image are evaluated with all
            transforms: the best ones after the transforms up to and including the first spatial
            one. This takes less time, but may miss the best cluster; None evaluates all.
        least_share: A cluster that holds less than this fraction of the average cluster size is
            refilled from the largest; 0 refills none.
        num_starts: Number of runs from different starting points. They race for the same number of
            steps each; the better half, by the loss on the same images, continues, until one is
            left. `steps`, `epochs` and `max_steps` count the steps of one run; those of runs that
            are dropped come on top. If prototypes or assignments are given, there is no race.
        refill_every: Number of steps between refills of clusters that are too small
            (`least_share`), in all phases. If not given, they are refilled after every pass over
            the images, but at least 50 steps apart and not in the last phase.
        bias_correction: From when Adam counts steps to correct the bias of its moments: `"array"`,
            for every array from its first gradient, as PyTorch does, or `"fit"`, from the first
            step of the fit. With the latter, networks of transforms that are added later make steps
            up to seven times as large at first.

    References:
        Monnier et al., DTI clustering, Sec. 4.2.
    """

    steps: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True, **COUNTS)
    epochs: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True, **COUNTS)
    max_steps: int = eqx.field(static=True, default=6_000, kw_only=True, metadata={"least": 10})
    tolerance: float = eqx.field(static=True, default=0.0, kw_only=True)
    curriculum: bool = eqx.field(static=True, default=True, kw_only=True)
    curriculum_start: Literal["spatial", "identity"] = eqx.field(
        static=True, default="spatial", kw_only=True
    )
    batch_size: int | None = eqx.field(static=True, default=None, kw_only=True)
    learning_rate: float = eqx.field(static=True, default=1e-3, kw_only=True)
    optimizer: optax.GradientTransformation | None = eqx.field(
        static=True, default=None, kw_only=True, metadata={"in_files": False}
    )
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)
    shortlist: int | None = eqx.field(
        static=True, default=None, kw_only=True, metadata={"least": 2}
    )
    least_share: float = eqx.field(static=True, default=0.2, kw_only=True)
    num_starts: int = eqx.field(static=True, default=1, kw_only=True)
    refill_every: int | None = eqx.field(static=True, default=None, kw_only=True)
    bias_correction: BiasCorrection = eqx.field(static=True, default="array", kw_only=True)

    def __check_init__(self):
        """Refuses invalid settings."""
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be positive, not {self.learning_rate}")
        if self.least_share >= 1.0:
            raise ValueError(
                f"least_share must be below 1, not {self.least_share}: clusters of average size "
                "would be refilled"
            )
        other = self.optimizer if self.learning_rate != type(self).learning_rate else None
        if other is not None and not holds_rate(other.init(jnp.zeros(()))):
            raise ValueError(
                "give learning_rate or an optimizer with a rate of its own, not both; of "
                "optax.inject_hyperparams(optax.sgd)(learning_rate=1.0) the rate is set"
            )
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give either steps or epochs, not both")

    def plan(
        self, num_transforms: int, description: Description, *, split_from: int = 0
    ) -> GradientPlan:
        """Plans a fit.

        Args:
            num_transforms: Number of transforms.
            description: What is known about the images.
            split_from: The number of transforms from which on clusters may be split and removed.
                Before the transforms that align images are in use, splitting would divide a kind by
                the positions of its images.

        Returns:
            The plan, whose phases identify solvers by the number of transforms they use.

        Raises:
            ValueError: If the steps are for a different number of phases, or a batch is larger than
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
            first = split_from if self.curriculum_start == "spatial" else 0
            out = sum(solver < first for solver in solvers)
            steps = (0,) * out + (sum(steps[: out + 1]), *steps[out + 1 :])
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
            steps=tuple(steps),
        )

    def shortened(self, steps: int, plan: GradientPlan, *, split_merge: bool) -> "Training":
        """The same training with a single start and only a few steps.

        Args:
            steps: Number of steps in each phase that has any.
            plan: The plan of the training.
            split_merge: Whether clusters are split and removed.

        Returns:
            The training.
        """
        few = tuple(steps if number else 0 for number in plan.steps)
        changed = {"epochs": None, "num_starts": 1, "tolerance": 0.0}
        return dataclasses.replace(self, steps=few, split_merge=split_merge, **changed)

    def _batch(self, description: Description) -> int:
        count, leaves = description.num_samples, jax.tree.leaves(description.sample)
        # Samples that are not images are small.
        side = min(leaves[0].shape[:2]) if [leaf.ndim for leaf in leaves] == [3] else 0
        if self.batch_size is not None:
            if self.batch_size > count:
                raise ValueError(
                    f"batch_size must be at most the number of images, {count}, not "
                    f"{self.batch_size}"
                )
            return self.batch_size
        batch = min(64 if side >= 64 else 128, count)
        # Devices share the batch evenly.
        return max(batch - batch % description.num_devices, 1)


_RACE = (0.4, 0.6)
"""The race takes place between these fractions of a run's steps: before prototypes are moved,
losses do not distinguish the runs."""


def _race(total: int, starts: int) -> tuple[int, ...]:
    """The evenly spaced steps at which the runs of a race are halved."""
    rounds = math.ceil(math.log2(starts))
    first, last = (share * total for share in _RACE)
    apart = (last - first) / max(1, rounds - 1)
    return tuple(max(1, int(first + number * apart)) for number in range(rounds))


def _shared_out(total: int, phases: int) -> tuple[int, ...]:
    """A tenth for each of the first and last phases, with the rest divided among those between."""
    if phases == 2:
        return (total - total // 10, total // 10)
    edge = total // 10
    middle = (total - 2 * edge) // (phases - 2)
    return (edge, *[middle] * (phases - 2), edge)
