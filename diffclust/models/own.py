"""User-defined models for samples of any kind, with Lloyd's algorithm or gradient steps."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Descent
from diffclust.alignment.base import parts_of
from diffclust.energies import (
    AbstractPairEnergy,
    AbstractSampleEnergy,
    TransformedDistance,
    TransformedPrototype,
)
from diffclust.image_source import ImageSource, blanked
from diffclust.masks import check_mask_size, mask_weights
from diffclust.methods import OWN, Method
from diffclust.models.base import types_of
from diffclust.models.images import AbstractImageModel, check_transforms, steps_of
from diffclust.models.kmeans import AbstractPrototypeModel
from diffclust.models.trained import AbstractTrainedModel
from diffclust.parallel import Description
from diffclust.parallel.mesh import map_in_chunks
from diffclust.prototypes import AbstractPrototypeFamily, Clusters, Learned
from diffclust.solvers import GradientEM, GradientPlan, Lloyd, LloydPlan, Outcome, Stages, Start
from diffclust.types import Key


class AbstractOwnModel(AbstractImageModel):
    """A user-defined composition, for samples of any kind.

    Attributes:
        penalties: Weights of the energy's penalty terms, one per term; by default all are zero.
        has_missing: Whether samples may hold NaN, which the energy must handle.
        engine: The type of the composition.
    """

    penalties: tuple[float, ...] = eqx.field(
        static=True, default=(), kw_only=True, converter=_validation.plain_numbers
    )
    has_missing: bool = eqx.field(static=True, default=False, kw_only=True)
    mask: ClassVar[str | None] = None
    engine: ClassVar[type[Lloyd] | type[GradientEM]]

    def __check_init__(self):
        """Refuses another solver, and weights that are given but not one per term."""
        solver, engine = self.solver(), self.engine.__name__
        if not isinstance(solver, self.engine):
            name, given = type(self).__name__, type(solver).__name__
            raise ValueError(f"{name}(K, {engine}(energy, aligner)) takes no {given} there")
        energy = solver.energy
        if self.penalties and len(self.penalties) != energy.num_penalties:
            raise ValueError(
                f"penalties must have length {energy.num_penalties}, one number for each term of "
                f"{type(energy).__name__}, not {self.penalties}"
            )

    @property
    def _weights(self) -> tuple[float, ...]:
        """Weights of all penalty terms."""
        return self.penalties or (0.0,) * self.solver().energy.num_penalties

    @abc.abstractmethod
    def solver(self) -> Lloyd | GradientEM:
        """The composition."""

    @property
    def composition(self) -> str:
        """The types of the composition's parts, nested."""
        return types_of(self.solver())

    def validated(self, samples: Any, /) -> Any:
        """Checks arrays with a common leading axis, or images to be registered or streamed."""
        if self.registers or isinstance(samples, ImageSource):
            return super().validated(samples)
        return _validation.samples(samples, finite=not self.has_missing)

    def preprocessed(self, samples: Any, /) -> Any:
        """Registers images if that is asked for, and blanks what the energy's mask hides."""
        samples = super().preprocessed(samples) if self.registers else samples
        energy = self.solver().energy
        if (
            not isinstance(energy, TransformedDistance | TransformedPrototype)
            or len(getattr(samples, "shape", ())) != 4
        ):
            return samples
        check_transforms(steps_of(energy), samples)
        if energy.mask is not None:
            check_mask_size(energy.mask, *samples.shape[1:3])
            samples = blanked(samples, mask_weights(energy.mask) == 0.0)
        if self.has_unit_norm:
            _validation.not_blank(samples)
        return samples

    def compose(self, description: Description, start: Start) -> Stages:
        """The stages of the solver, whose parts are checked first."""
        sample = description.sample
        try:
            learned = jax.eval_shape(lambda: self.template(sample))
            _check_shapes(self.solver().energy, learned, sample)
            _check_learning(self.solver(), learned, sample)
        except Exception as error:
            error.add_note(
                f"each sample that was given has shape {jax.tree.map(jnp.shape, sample)}; that of "
                "an image is (height, width, channels), also with one channel"
            )
            raise
        return super().compose(description, start)

    def working_copies(self, description: Description) -> int:
        """The aligner's, plus one per cluster: an energy may compare a sample with all."""
        return self.num_clusters + super().working_copies(description)

    def aligned(self, outcome: Outcome, samples: Any, params: np.ndarray, /) -> Any:
        """Moves samples onto their prototypes."""
        energy = self.solver().energy
        if not isinstance(energy, AbstractSampleEnergy | TransformedPrototype):
            raise ValueError(f"{type(energy).__name__} does not move samples")
        return map_in_chunks(energy.aligned, outcome.chunk_size, params, samples)


def _check_shapes(energy: AbstractPairEnergy, learned: Learned, sample: PyTree) -> None:
    """Refuses an energy that does not return one number for a sample and a cluster.

    Args:
        energy: The energy.
        learned: Everything that is learned, with any values.
        sample: Shape and dtype of one sample.

    Raises:
        ValueError: With what it returned.
    """
    clusters, name = learned.clusters, type(energy).__name__
    params = jnp.zeros((energy.num_params,), clusters.dtype)

    def found(sample: PyTree, clusters: Clusters) -> tuple[Any, ...]:
        unaligned = energy.unaligned(sample, clusters)
        if not energy.num_params:
            return (unaligned,)
        one = jax.tree.map(lambda leaf: leaf[0], clusters)
        return unaligned, energy.bind(sample)(params, sample, one)

    wanted = (
        ("unaligned", (len(clusters),), "one number per cluster"),
        ("bind", (), "one number for a sample and a cluster"),
    )
    values = eqx.filter_eval_shape(found, sample, clusters)
    for value, (method, shape, words) in zip(values, wanted, strict=False):
        if getattr(value, "shape", None) != shape or not jnp.issubdtype(value.dtype, jnp.floating):
            given = f"{value.dtype} of shape {value.shape}" if hasattr(value, "dtype") else value
            raise ValueError(
                f"{method} of {name} must return a floating array of shape {shape}, {words}, and "
                f"returned {given}"
            )


def _check_learning(solver: Lloyd | GradientEM, learned: Learned, sample: PyTree) -> None:
    """Refuses a reduction without one loss a sample, and a family of other prototypes.

    Args:
        solver: The solver.
        learned: Everything that is learned, with any values.
        sample: Shape and dtype of one sample.

    Raises:
        ValueError: With what was returned.
    """
    clusters = learned.clusters
    share = jax.ShapeDtypeStruct((2, len(clusters)), clusters.dtype)
    reduction = learned.objective if solver.reduction.is_adaptive else solver.reduction
    loss = eqx.filter_eval_shape(reduction, share)
    if getattr(loss, "shape", None) != (2,):
        raise ValueError(
            f"{type(reduction).__name__} must return one loss for each sample, of shape (2,) for "
            f"scores of shape {share.shape}, and returned {loss}"
        )
    if not isinstance(solver, Lloyd):
        return

    def updated(sample: PyTree, share: Array, old: PyTree) -> PyTree:
        two = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), sample)
        params = jnp.zeros((2, solver.energy.num_params), share.dtype)
        aligned = jax.vmap(solver.energy.aligned)(params, two)
        weight = jax.vmap(solver.energy.pixel_weight)(params, two)
        return solver.family.update(solver.family.statistics(aligned, weight, share, old), old)

    new = eqx.filter_eval_shape(updated, sample, share, clusters.prototype)
    shapes, wanted = (jax.tree.map(jnp.shape, tree) for tree in (new, clusters.prototype))
    if shapes != wanted:
        raise ValueError(
            f"update of {type(solver.family).__name__} must return prototypes like those it is "
            f"given, of shapes {wanted}, and returned {shapes}"
        )


class Clustering(AbstractOwnModel, AbstractPrototypeModel):
    """Any energy, aligner, prototype family and reduction, with all features of a named method.

    These are `fit`, `predict`, `align`, restarts, split-and-merge moves, snapshots and devices, and
    for images the report. Samples are a floating array with a leading axis, or a tree of such
    arrays. Files store the numbers, not the parts: use `diffclust.load(path, like=model)`.

    Attributes:
        lloyd: The composition: `Lloyd(energy, aligner, family, reduction)`.
        coarser: The factor by which samples are coarsened for restarts, if the energy supports it.
        seeding: How runs start: with prototypes drawn by k-means++, or with samples assigned at
            random, which is less sensitive to outliers.
    """

    engine: ClassVar[type[Lloyd]] = Lloyd
    lloyd: Lloyd = eqx.field(metadata={"in_files": False})
    coarser: int = eqx.field(static=True, default=1, kw_only=True)
    seeding: Literal["k-means++", "random"] = eqx.field(
        static=True, default="k-means++", kw_only=True
    )

    @property
    def descriptor(self) -> Method:
        """The descriptor of all user-defined models."""
        return OWN

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
        return self._weights

    def plan(self, *sides: int) -> LloydPlan:
        return dataclasses.replace(super().plan(*sides), seeding=self.seeding)

    def coarsening(self, *sides: int) -> int:
        return self.coarser


class GradientClustering(AbstractOwnModel, AbstractTrainedModel):
    """Any energy, aligner and reduction under gradient steps, with all features of a named method.

    No prototype family is needed: prototypes, and networks if there are any, are learned by
    gradient descent. Otherwise like `Clustering`.

    Attributes:
        gradient: The composition: `GradientEM(energy, aligner, reduction)`.
        final: The solver for the final assignment and for new samples. None uses `gradient`, whose
            `Descent` then makes at least 50 steps at full resolution: in training it continues from
            a sample's last params, but here it starts anew.
        initialise: Makes the prototypes, before the first step, from one sample per cluster and a
            key; or a `Learned`, if there are networks too. None uses these samples as prototypes.
            The penalties of its clusters are set to `penalties`, and an objective of None to the
            reduction's own. JAX traces it, and it is also called with blank samples.
    """

    engine: ClassVar[type[GradientEM]] = GradientEM
    gradient: GradientEM = eqx.field(metadata={"in_files": False})
    final: GradientEM | None = eqx.field(default=None, kw_only=True, metadata={"in_files": False})
    initialise: Callable[[PyTree, Key], PyTree] | None = eqx.field(
        static=True, default=None, kw_only=True, metadata={"in_files": False}
    )

    def __check_init__(self):
        """Refuses settings that have no meaning here."""
        if self.training.shortlist is not None:
            raise ValueError(
                "a short list is a setting of named methods; a Prediction of one's own has "
                f"candidates= and screening= in its place: leave out {self.training.shortlist}"
            )

    @property
    def descriptor(self) -> Method:
        """The descriptor of all user-defined models, by what the energy moves."""
        moves = "nothing"
        if isinstance(self.energy(), AbstractSampleEnergy):
            moves = "samples"
        elif isinstance(self.energy(), TransformedPrototype):
            moves = "prototypes"
        return dataclasses.replace(OWN, model="GradientClustering", solver="gradient", moves=moves)

    @property
    def composition(self) -> str:
        """The types of the parts, including those of `final`."""
        final = [] if self.final is None else [types_of(self.final)]
        return ", ".join([super().composition, *final])

    @property
    def transform_names(self) -> tuple[str, ...]:
        """The types of the transforms that move prototypes."""
        steps = steps_of(self.energy()) if self.descriptor.moves == "prototypes" else ()
        return tuple(type(step).__name__ for step in steps)

    def solver(self) -> GradientEM:
        """The composition."""
        return self.gradient

    def energy(self, channels: int = 1) -> AbstractPairEnergy:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.gradient.energy

    def solvers(self, sample: PyTree) -> tuple[GradientEM, ...]:
        """The composition, for any number of transforms."""
        optimizer = self.gradient.optimizer or self.training.optimizer
        solver = dataclasses.replace(self.gradient, optimizer=optimizer)
        return (solver,) * (1 + len(self.transform_names))

    def training_plan(self, description: Description) -> GradientPlan:
        """A phase with all transforms, and one at a lower rate."""
        training = dataclasses.replace(self.training, curriculum=False)
        return training.plan(len(self.transform_names), description)

    def assigning_solver(self, sample: PyTree) -> GradientEM:
        """`final`, or the composition with a longer search."""
        if self.final is not None:
            return self.final
        return dataclasses.replace(self.gradient, aligner=_longer(self.gradient.aligner))

    def init(self, prototypes: PyTree, key: Key) -> Learned:
        count, dtype = self.num_clusters, jnp.result_type(*jax.tree.leaves(prototypes))
        if self.has_missing:
            prototypes = jax.tree.map(_filled, prototypes)
        weights = jnp.asarray(self._weights, dtype)
        penalty = jnp.broadcast_to(weights, (count, weights.size))
        objective = self.gradient.reduction.init(count, dtype)
        learned = prototypes if self.initialise is None else self.initialise(prototypes, key)
        if not isinstance(learned, Learned):
            learned = Learned(Clusters(learned, penalty))
        _check_learned(learned)
        if len(learned.clusters) != count:
            raise ValueError(
                f"initialise must return {count} clusters, a leading axis of all that belongs to "
                f"them, not {len(learned.clusters)}"
            )
        clusters = dataclasses.replace(learned.clusters, penalty=penalty)
        own = objective if learned.objective is None else learned.objective
        return Learned(clusters, learned.shared, own)


def _check_learned(learned: Learned) -> None:
    """Refuses another result of `initialise` than a tree of arrays."""
    for path, leaf in jax.tree.leaves_with_path(learned):
        if not eqx.is_array_like(leaf):
            raise ValueError(
                f"initialise must return arrays alone, and {jax.tree_util.keystr(path)[1:]} is a "
                f"{type(leaf).__name__}: make that a static field (eqx.nn.Linear has arrays alone, "
                "and eqx.nn.MLP its activation, too)"
            )


_FINAL_STEPS = 50


def _longer(aligner: AbstractAligner) -> AbstractAligner:
    """An aligner whose descents take enough steps to start anew."""
    if isinstance(aligner, Descent):
        *first, last = aligner.stages
        last = dataclasses.replace(last, steps=max(last.steps, _FINAL_STEPS))
        return dataclasses.replace(aligner, stages=(*first, last))
    parts = {name: _longer(part) for name, part in parts_of(aligner).items()}
    return dataclasses.replace(aligner, **parts)


def _filled(prototypes: Array) -> Array:
    """Prototypes in which missing values are replaced by the mean of the others, or zero."""
    seen = jnp.isfinite(prototypes)
    total = jnp.sum(jnp.where(seen, prototypes, 0.0), axis=0, keepdims=True)
    mean = total / jnp.maximum(jnp.sum(seen, axis=0, keepdims=True), 1).astype(total.dtype)
    return jnp.where(seen, prototypes, mean)
