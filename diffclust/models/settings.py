"""Groups of settings that several models share, each declared and documented once.

A model lists the groups before its abstract class, and gives its own default where it has another:
`class GaussianMixture(MixtureSettings, AbstractGradientModel)`.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from diffclust import _validation
from diffclust._renamed import current_settings
from diffclust.parallel import Description
from diffclust.sampling import Boundary
from diffclust.solvers import GradientPlan, Phase
from diffclust.solvers.gradient import holds_rate

BackboneName = Literal["strided", "residual", "residual-batch-norm"]
Register = Literal["none", "place", "upright", "auto"]
Ground = Literal["auto", "none", "dark", "light", "colour", "keep"]
COUNTS: dict[str, Any] = {"metadata": {"least": 0}, "converter": _validation.plain_numbers}
"""How a field is declared that holds one whole number or several, none below zero."""

S = TypeVar("S", bound="AbstractSettings")
P = TypeVar("P", bound="PublishedSettings")


class AbstractSettings(eqx.Module):
    """Settings that a file or a command line can hold, each checked by its type.

    Choices must be among those of their `Literal`; whole numbers are at least 1 and others at least
    0, or `metadata["least"]`. None stands for what the method chooses. A field that is itself a
    group of settings is one field here, while files and commands know its settings singly.
    """

    def __check_init__(self):
        """Refuses a value that is none of a setting's choices, or too small."""
        for field in _in_files(type(self)):
            value, types = getattr(self, field.name), _types_within(field.type)
            least = field.metadata.get("least", 1 if int in types else 0)
            if get_origin(field.type) is Literal:
                _validation.one_of(value, get_args(field.type), field.name)
            elif value is not None and types & {int, float}:
                check = _validation.count if int in types else _validation.positive
                for each in value if isinstance(value, tuple | list) else (value,):
                    check(each, field.name, least=least)

    def settings(self) -> dict[str, Any]:
        """The settings as names and numbers, which the constructor takes again."""
        settings: dict[str, Any] = {}
        for field in _in_files(type(self)):
            value = getattr(self, field.name)
            group = isinstance(value, AbstractSettings)
            settings |= value.settings() if group else {field.name: value}
        return settings

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The type of each of the settings, by name."""
        types: dict[str, Any] = {}
        for field in _in_files(cls):
            group = _group(field)
            types |= {field.name: field.type} if group is None else group.setting_types()
        return types

    @classmethod
    def from_settings(cls: type[S], settings: Mapping[str, Any]) -> S:
        """Settings from their names and values.

        Args:
            settings: As `settings` returns them; what is missing has its default.

        Returns:
            The model, or group of settings.

        Raises:
            ValueError: If a setting means nothing.
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
    """A method whose paper has settings of its own.

    Attributes:
        published: The paper's settings, where they differ from the defaults.
    """

    published: ClassVar[Mapping[str, Any]]

    @classmethod
    def as_published(cls: type[P], num_clusters: int, **settings: Any) -> P:
        """The paper's own settings; the class says what the paper leaves open.

        Args:
            num_clusters: K.
            **settings: Settings that differ from the paper's, those of groups by their own names,
                such as `epochs`. `steps` and `max_steps` take the place of the paper's epochs.

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


def _in_files(group: type) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(group) if field.metadata.get("in_files", True)]


def _group(field: dataclasses.Field) -> type[AbstractSettings] | None:
    kind = field.type
    return kind if isinstance(kind, type) and issubclass(kind, AbstractSettings) else None


def values_of(group: type[eqx.Module], model: eqx.Module) -> dict[str, Any]:
    """A group of settings as a model has it, for another one.

    Args:
        group: The group, of which the model is one.
        model: The model.

    Returns:
        Values by the names of settings.
    """
    return {field.name: getattr(model, field.name) for field in dataclasses.fields(group)}


class RegistrationSettings(eqx.Module):
    """Settings of the registration of images before they are clustered.

    Attributes:
        register: What is evened out in every image. `"none"`: nothing. `"place"`: place and size.
            `"upright"`: slant, too. `"auto"`: as `"upright"`; as `"place"` where the method's
            transforms turn images by any angle, or colours are kept; as `"none"` where the images
            have no plain ground. Where the ground is doubtful, registrations are tried on some of
            the images, and the one with the steadiest clusters is taken. Rotations and reflections
            are never evened out.
        ground: What is taken for the things in an image. `"dark"`: what is brighter than a dark
            ground. `"light"`: what is darker than a light ground. `"colour"`: what has another
            colour than the ground; images become grey. `"keep"`, for photographs: what differs
            from a smooth ground, shadows less so; ground and colours stay, and `register="auto"`
            is `"place"`. `"auto"`: one of these, by the whole set, and `"none"` with
            `register="none"`. Except with `"keep"` and `"none"` the ground is taken out, by its
            colour at the border.
        canvas: Pixels on the shorter side of registered images. Where it is not given, so many that
            a figure of median size keeps its size, rounded up to a multiple of 4, from 28 up to the
            images' own; with `ground="keep"` the images' own, at least 28. Without registration it
            has no effect.
    """

    register: Register = eqx.field(static=True, default="none", kw_only=True)
    ground: Ground = eqx.field(static=True, default="auto", kw_only=True)
    canvas: int | None = eqx.field(static=True, default=None, kw_only=True, metadata={"least": 8})


class PassSettings(eqx.Module):
    """Settings of Lloyd's algorithm: its length.

    Attributes:
        max_passes: Most passes of a run.
    """

    max_passes: int = eqx.field(static=True, default=100, kw_only=True)


class WarpSettings(eqx.Module):
    """Limits of the maps that move images.

    Attributes:
        affine_penalty: Weight of the mean squared displacement of the affine part.
    """

    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)


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
    landmarks: tuple[int, int] = eqx.field(
        static=True, default=(5, 5), kw_only=True, converter=_validation.plain_pair
    )
    bending_penalty: float = eqx.field(static=True, default=0.015, kw_only=True)

    @property
    def least_size(self) -> int:
        """A pixel for each landmark."""
        return math.prod(self.landmarks)


def removed_for(num_clusters: int) -> tuple[int, ...]:
    """The number of leading principal directions that are removed, given the number of clusters.

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


class PrototypeWarpSettings(eqx.Module):
    """Settings of the transforms of prototypes.

    Attributes:
        transforms: How prototypes may be moved, in the order in which it is learned: `aff`,
            `proj`, `tps`, `col`, `fullcol` and `morpho` joined by hyphens.
        boundary: What lies outside a prototype; to the morphological map it is black.
        landmarks: Landmark grid of splines.
        deformation_penalty: Weight of the sizes of deformations; the paper has none.
    """

    transforms: str = eqx.field(static=True, default="col-aff-tps", kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(
        static=True, default=(4, 4), kw_only=True, converter=_validation.plain_pair
    )
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)


class MixtureSettings(eqx.Module):
    """The Gaussians of a mixture.

    Attributes:
        followed: How many components of an image, the likeliest ones, take part in a step. As many
            as there are clusters are the exact M-step. In Python None stands for so many.
        initial_variance: Of every pixel, before the first step. The paper prints Σ = 0.5, which in
            the authors' code is the standard deviation.
        min_deviation: A standard deviation whose square is added to all variances.
    """

    followed: int | None = eqx.field(static=True, default=3, kw_only=True)
    initial_variance: float = eqx.field(static=True, default=0.25, kw_only=True)
    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)


_SPLIT_MERGE_EVERY = 4
"""Windows after which it is time again to split one cluster and remove another."""


class Training(AbstractSettings):
    """Settings of gradient steps.

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
            side, never more than there are, and as many for each device.
        learning_rate: Step size of Adam, for prototypes and networks alike. In Python an
            `optimizer` in its place takes it if it was made by optax's `inject_hyperparams`.
        optimizer: Any complete optimiser of optax's in Adam's place; see `GradientEM.optimizer`. A
            file does not hold it: a model that was loaded would be trained by Adam.
        split_merge: Whether clusters that hold two kinds are split, and others removed to make
            room, where that lowers the loss. Once in a phase three such moves are tried beside the
            run as it was, for up to 300 steps, or longer while one is catching up fast.
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

    steps: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True, **COUNTS)
    epochs: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True, **COUNTS)
    max_steps: int = eqx.field(static=True, default=6_000, kw_only=True, metadata={"least": 10})
    tolerance: float = eqx.field(static=True, default=0.0, kw_only=True)
    curriculum: bool = eqx.field(static=True, default=True, kw_only=True)
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

    def __check_init__(self):
        """Refuses settings that mean nothing."""
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
        """The same training with one start and a few steps only.

        Args:
            steps: Steps of each phase that has any.
            phases: Number of phases that have any steps.
            split_merge: Whether clusters are split and removed.

        Returns:
            The training.
        """
        few = tuple(steps if n else 0 for n in self.steps or self.epochs or (1,) * phases)
        changed = {"epochs": None, "num_starts": 1, "tolerance": 0.0}
        return dataclasses.replace(self, steps=few, split_merge=split_merge, **changed)

    def _batch(self, description: Description) -> int:
        count, leaves = description.num_samples, jax.tree.leaves(description.sample)
        # What is no image is small.
        side = min(leaves[0].shape[:2]) if [leaf.ndim for leaf in leaves] == [3] else 0
        if self.batch_size is not None:
            if self.batch_size > count:
                raise ValueError(
                    f"batch_size must be at most the number of images, {count}, not "
                    f"{self.batch_size}"
                )
            return self.batch_size
        batch = min(64 if side >= 64 else 128, count)
        # Devices share it evenly.
        return max(batch - batch % description.num_devices, 1)


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
