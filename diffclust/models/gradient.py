"""What all image models trained by gradient steps share: objectives, networks, a curriculum."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust import _validation
from diffclust.alignment import AbstractAligner, NoAlignment
from diffclust.distances import (
    AbstractDissimilarity,
    GaussianNegativeLogLikelihood,
    SquaredEuclidean,
)
from diffclust.energies import (
    AbstractReduction,
    HardMinimum,
    MixtureLikelihood,
    TransformedPrototype,
)
from diffclust.image_source import Images
from diffclust.methods import DENSITY_WORDS, WARPED_WORDS, Method
from diffclust.models.base import Result
from diffclust.models.images import AbstractImageModel, check_transforms, steps_of
from diffclust.models.settings import BackboneName
from diffclust.models.trained import AbstractTrainedModel
from diffclust.networks import AbstractBackbone, StridedBackbone, make_heads, residual_backbone
from diffclust.parallel import Description
from diffclust.parallel.mesh import map_in_chunks
from diffclust.prototypes import Clusters, GaussianImages, Learned
from diffclust.sampling import Boundary
from diffclust.solvers import GradientEM, GradientPlan
from diffclust.transforms import AbstractTransform, Identity, compose, named_sequence
from diffclust.transforms.compose import split_names
from diffclust.types import Key


class PrototypeObjective(eqx.Module):
    """The objective of gradient steps, and the prototypes that go with it.

    Attributes:
        distance: The distance between a sample and a warped prototype.
        reduction: Turns the energies of a sample into its loss.
        followed: For how many clusters of a sample the gradient is computed; None for all.
        initial_variance: Variance of every pixel of a prototype before the first step; None if
            prototypes have no variances.
        spatial_variances: Whether variances are moved only by the spatial transforms.
        variance_curriculum: Whether variances are fixed until all transforms are learned.
        transforms: The user's own transforms of prototypes, in the order in which they act and are
            learned, which replace those that the model names; None for the latter.
    """

    distance: AbstractDissimilarity
    reduction: AbstractReduction
    followed: int | None = eqx.field(static=True)
    initial_variance: float | None = eqx.field(static=True, default=None)
    spatial_variances: bool = eqx.field(static=True, default=False)
    variance_curriculum: bool = eqx.field(static=True, default=False, kw_only=True)
    transforms: tuple[AbstractTransform, ...] | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        """Refuses transforms that do not move variances, if prototypes have them."""
        for transform in () if self.initial_variance is None else self.transforms or ():
            if type(transform).bind_variance is AbstractTransform.bind_variance:
                raise ValueError(
                    f"{type(transform).__name__} does not say how it moves variances, which "
                    "prototypes have here; define bind_variance"
                )

    def prototypes(self, images: Float[Array, "clusters height width channels"]) -> PyTree:
        """Prototypes that start as images.

        Args:
            images: One image per cluster.

        Returns:
            The learned arrays of the prototypes.
        """
        if self.initial_variance is None:
            return images
        return GaussianImages(images, jnp.full_like(images, self.initial_variance**0.5))


def squared_distances() -> PrototypeObjective:
    """Makes the objective of K-means: the squared distance of images to their nearest prototype.

    Returns:
        The objective.
    """
    return PrototypeObjective(SquaredEuclidean(), HardMinimum(), followed=1)


def mixture(
    initial_variance: float,
    min_deviation: float,
    *,
    followed: int | None = 3,
    spatial_variances: bool = False,
    variance_curriculum: bool = False,
) -> PrototypeObjective:
    """Makes the objective of a Gaussian mixture with independent pixels.

    Args:
        initial_variance: Variance of every pixel before the first step.
        min_deviation: Standard deviation whose square is added to all variances.
        followed: For how many clusters of a sample the gradient is computed; None for all.
        spatial_variances: Whether variances are moved only by the spatial transforms.
        variance_curriculum: Whether variances are fixed until all transforms are learned.

    Returns:
        The objective.

    Raises:
        ValueError: If a number is not positive.
    """
    if not initial_variance > 0.0:
        raise ValueError(f"initial_variance must be positive, not {initial_variance}")
    if followed is not None:
        _validation.count(followed, "followed")
    density = GaussianNegativeLogLikelihood(min_deviation=min_deviation)
    reduction = MixtureLikelihood()
    return PrototypeObjective(
        density,
        reduction,
        followed,
        initial_variance,
        spatial_variances,
        variance_curriculum=variance_curriculum,
    )


_BACKBONES: dict[str, Callable[..., AbstractBackbone]] = {
    "strided": StridedBackbone,
    "residual": residual_backbone,
    "residual-batch-norm": functools.partial(residual_backbone, normalisation="batch"),
}


class AbstractGradientModel(AbstractTrainedModel, AbstractImageModel):
    """A clustering by prototypes that are moved onto the samples, trained by gradient steps.

    By default, nothing is moved and nothing predicted.

    Attributes:
        own_objective: An objective to minimise instead of the method's own, or None. Files do not
            store it: use `diffclust.load(path, like=model)`.
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
    """

    own_objective: PrototypeObjective | None = eqx.field(
        default=None, kw_only=True, metadata={"in_files": False}
    )
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    transforms: ClassVar[str] = ""
    boundary: ClassVar[Boundary] = "edge"
    landmarks: ClassVar[tuple[int, int]] = (4, 4)
    deformation_penalty: ClassVar[float] = 0.0
    backbone: ClassVar[BackboneName | None] = None

    def __check_init__(self):
        """Refuses invalid transforms and objectives."""
        if "rot" in self.transform_names:
            raise ValueError(
                'transforms must not have "rot", which may mirror, as no gradient step does; take '
                '"turn"'
            )
        self.energy()
        named = {f.name: f.default for f in dataclasses.fields(self)}.get("transforms", "")
        if self._own_transforms is not None and self.transforms not in ("", named):
            raise ValueError(
                f"transforms are those of own_objective, not {self.transforms!r}; leave transforms "
                "out, or give own_objective without its own"
            )
        if self.own_objective is not None and self.training.shortlist is not None:
            raise ValueError(
                "a short list is judged by the method's own objective; leave out "
                f"shortlist={self.training.shortlist}"
            )

    @property
    def descriptor(self) -> Method:
        """The method's descriptor, with words for what the user's own objective measures."""
        if self.own_objective is None:
            return super().descriptor
        is_mixture = self.own_objective.initial_variance is not None
        words = DENSITY_WORDS if is_mixture else WARPED_WORDS
        return dataclasses.replace(super().descriptor, words=words, is_mixture=is_mixture)

    def objective(self) -> PrototypeObjective:
        """The method's own objective: by default squared distances to the nearest prototype."""
        return squared_distances()

    @property
    def _objective(self) -> PrototypeObjective:
        """The objective of gradient steps."""
        return self.objective() if self.own_objective is None else self.own_objective

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """Returns the aligner that finds the params; by default nothing is moved.

        Args:
            transforms: How many of the transforms are used, at least one.
            channels: Channels of the images.
            final: Whether the aligner is for the final assignment rather than for training.
        """
        return NoAlignment(candidates=self.num_clusters)

    @property
    def _own_transforms(self) -> tuple[AbstractTransform, ...] | None:
        return None if self.own_objective is None else self.own_objective.transforms

    def sequence(self, channels: int) -> tuple[AbstractTransform, ...]:
        """The transforms, in the order in which they act and are learned.

        Args:
            channels: Channels of the images.
        """
        if (own := self._own_transforms) is not None:
            return own
        return named_sequence(
            self.transforms, channels=channels, boundary=self.boundary, landmarks=self.landmarks
        )

    def energy(self, channels: int = 1, transforms: int | None = None) -> TransformedPrototype:
        """Returns the energy of a sample and a prototype, where the prototype is moved.

        Args:
            channels: Channels of the images.
            transforms: How many of the transforms are used, first to last; None for all.
        """
        whole = self.sequence(channels)
        sequence, is_whole = whole[:transforms], transforms in (None, len(whole))
        transform = compose(*sequence) if sequence else Identity()
        objective = self._objective
        return TransformedPrototype(
            transform,
            objective.distance,
            window=self.window,
            mask=self.pixel_mask,
            spatial_variances=objective.spatial_variances,
            fixed_variances=objective.variance_curriculum and not is_whole,
        )

    def solver(self, transforms: int, channels: int, *, final: bool = False) -> GradientEM:
        """The composition of energy, aligner and reduction under gradient EM.

        Args:
            transforms: How many of the transforms are used.
            channels: Channels of the images.
            final: Whether the solver is for the final assignment rather than for training.

        Returns:
            The solver.
        """
        aligner, objective = NoAlignment(candidates=self.num_clusters), self._objective
        if transforms:
            aligner = self.aligner(transforms, channels, final=final)
        return GradientEM(
            self.energy(channels, transforms),
            aligner,
            objective.reduction,
            followed=objective.followed,
            optimizer=self.training.optimizer,
            bias_correction=self.training.bias_correction,
        )

    def final_solver(self, channels: int) -> GradientEM:
        """The solver of the final assignment, which uses all transforms.

        Args:
            channels: Channels of the images.

        Returns:
            The solver.
        """
        return self.solver(len(self.transform_names), channels, final=True)

    def solvers(self, sample: PyTree) -> tuple[GradientEM, ...]:
        """One solver for each number of transforms, from none to all."""
        numbers = range(len(self.transform_names) + 1)
        return tuple(self.solver(number, sample.shape[2]) for number in numbers)

    def assigning_solver(self, sample: PyTree) -> GradientEM:
        """The solver that uses all transforms."""
        return self.final_solver(sample.shape[2])

    def init(self, images: Float[Array, "clusters height width channels"], key: Key) -> Learned:
        """Initialises the learned arrays before the first step.

        Args:
            images: What the prototypes start as.
            key: Random key of the networks.

        Returns:
            The tree.
        """
        sequence, objective = self.sequence(images.shape[3]), self._objective
        backbone = heads = None
        if self.backbone is not None and sequence:
            sizes = tuple(transform.num_params for transform in sequence)
            shape = images.shape[1:]
            backbone, heads = _networks(self.backbone, self.num_clusters, shape, sizes, key)
        terms = sum(len(transform.deformation_terms) for transform in sequence)
        # On the host, so that no program is compiled for it.
        penalty = np.full((self.num_clusters, terms), self.deformation_penalty, images.dtype)
        clusters = Clusters(objective.prototypes(images), jax.device_put(penalty), heads)
        learned = objective.reduction.init(self.num_clusters, images.dtype)
        return Learned(clusters, backbone, learned)

    def first_spatial(self, transforms: int, channels: int) -> int:
        """The number of transforms up to the first spatial one; all, if none is spatial.

        Args:
            transforms: How many of the transforms are used.
            channels: Channels of the images.

        Returns:
            An integer, at most `transforms`.
        """
        sequence = self.sequence(channels)[:transforms]
        spatial = [transform.spatial is not None for transform in sequence]
        return spatial.index(True) + 1 if any(spatial) else transforms

    @property
    def transform_names(self) -> tuple[str, ...]:
        """The names of the transforms, or their types, in the order in which they act."""
        if (own := self._own_transforms) is not None:
            return tuple(type(transform).__name__ for transform in own)
        return split_names(self.transforms)

    def prototype_variances(self, prototype: PyTree, /) -> Array | np.ndarray | None:
        """Returns the variances of Gaussian prototypes."""
        return None if self._objective.initial_variance is None else prototype.gaussian.variance

    def describe(self) -> dict[str, str]:
        """Adds the network, if there is one."""
        network = {} if self.backbone is None else {"Network": self.backbone}
        return {**super().describe(), **network}

    def training_plan(self, description: Description) -> GradientPlan:
        """The phases of the curriculum."""
        count = len(self.transform_names)
        first = self.first_spatial(count, description.sample.shape[2])
        plan = self.training.plan(count, description, split_from=first)
        if self._objective.variance_curriculum and all(p.solver < count for p in plan.phases):
            raise ValueError(
                "variances would never be learned, since no phase with all transforms has steps; "
                "give one of the last two phases steps, or set variance_curriculum=False"
            )
        return plan

    def check(self, images: Images) -> None:
        """Refuses images that the transforms do not support."""
        check_transforms(self.sequence(images.shape[3]), images)


@eqx.filter_jit
def _networks(
    name: BackboneName,
    num_clusters: int,
    shape: tuple[int, ...],
    num_params: tuple[int, ...],
    key: Key,
) -> tuple[AbstractBackbone, tuple[PyTree, ...]]:
    """A backbone, and the heads of each transform, made in one compiled program."""
    height, width, channels = shape
    first, second = jax.random.split(key)
    backbone = _BACKBONES[name](height, width, channels, key=first)
    initial = "uniform" if name == "residual-batch-norm" else "normal"
    keys, features = jax.random.split(second, len(num_params)), backbone.num_features
    heads = tuple(
        make_heads(num_clusters, features, size, initial=initial, key=part)
        for size, part in zip(num_params, keys, strict=True)
    )
    return backbone, heads


def warped_prototypes(
    result: Result, clusters: Any, params: Any, *, transforms: int | None = None
) -> Float[np.ndarray, "n height width channels"]:
    """Prototypes warped onto images.

    Args:
        result: A fitted model that moves prototypes.
        clusters: The cluster of each image, as in `Assignment.clusters`.
        params: The warp for each image, as in `Assignment.params`.
        transforms: How many of the transforms act, first to last; None for all.

    Returns:
        One warped prototype per image; for a Gaussian, its mean.

    Raises:
        ValueError: If the model moves images, the arguments do not match each other, or there is no
            such cluster.
    """
    model, channels = result.model, result.sample_shape[-1]
    energy = model.energy(channels) if isinstance(model, AbstractImageModel) else None
    if not isinstance(energy, TransformedPrototype):
        raise ValueError(f"{model.method} does not move prototypes; see `Result.align`")
    size, prototypes = result.outcome.chunk_size, result.prototypes
    index, warps = np.asarray(clusters), np.asarray(params, prototypes.dtype)
    expected = (len(index), energy.num_params)
    _validation.shaped(warps, expected, "params", "one row for each image")
    if transforms is not None:
        _validation.count(transforms, "transforms", least=0)
        sequence = steps_of(energy)[:transforms]
        first = compose(*sequence) if sequence else Identity()
        energy = dataclasses.replace(energy, transform=first)
    if not len(index):
        return np.zeros((0, *result.sample_shape), warps.dtype)
    _validation.within(index, len(index), model.num_clusters, "clusters", "image")
    warp = eqx.Partial(_warp, energy, jax.device_put(prototypes))
    return map_in_chunks(warp, size, warps[:, : energy.num_params], index)


def _warp(energy: TransformedPrototype, prototypes: Array, params: Array, cluster: Array) -> Array:
    return energy.moved(params, prototypes[cluster])
