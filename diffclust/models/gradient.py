"""What all models trained by gradient steps share: a curriculum, a fit, assignment."""

import abc
import math
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust.alignment import AbstractAligner, NoAlignment, Prediction
from diffclust.image_source import Images, ImageSource, several
from diffclust.models.base import Result
from diffclust.models.images import AbstractImageModel
from diffclust.models.prototype_objective import PrototypeObjective
from diffclust.models.prototypes import checked_start
from diffclust.models.training import Training
from diffclust.networks import AbstractBackbone, Head, make_heads, quick_backbone, residual_backbone
from diffclust.objectives import TransformedPrototype
from diffclust.parallel import check_batch_size, check_mesh, share
from diffclust.processes import agreed, joined_rows, own_rows, row_counts, rows_at, together
from diffclust.prototypes import Clusters, Learned
from diffclust.sampling import Boundary
from diffclust.solvers import Assignment, Callback, Outcome, default_chunk_size
from diffclust.solvers.curriculum import GradientPlan, Keep
from diffclust.solvers.energies import all_energies
from diffclust.solvers.gradient import GradientEM
from diffclust.solvers.gradient_fit import assign_softly, fit_by_gradient
from diffclust.solvers.progress import Snapshots, ignore
from diffclust.solvers.start import Start
from diffclust.transforms import (
    AbstractSpatialTransform,
    AbstractTransform,
    Identity,
    ThinPlateSpline,
    compose,
    named_sequence,
)
from diffclust.types import Key

_BLOCK = 1024
"""Images that are summed at once."""

BackboneName = Literal["quick", "residual"]


class AbstractGradientModel(AbstractImageModel):
    """A clustering by prototypes that are moved onto the samples, trained by gradient steps."""

    transforms: eqx.AbstractVar[str]
    backbone: eqx.AbstractVar[BackboneName | None]
    boundary: eqx.AbstractVar[Boundary]
    landmarks: eqx.AbstractVar[tuple[int, int]]
    window: eqx.AbstractVar[float | None]
    deformation_penalty: eqx.AbstractVar[float]
    training: eqx.AbstractVar[Training]

    @abc.abstractmethod
    def objective(self) -> PrototypeObjective:
        """What is made small."""

    @abc.abstractmethod
    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """What finds the params.

        Args:
            transforms: How many of the transforms are used, at least one.
            channels: Channels of the images.
            final: Whether samples are assigned in the end, not the model trained.
        """

    def sequence(self, channels: int) -> tuple[AbstractTransform, ...]:
        """The transforms, in the order in which they act and are learned.

        Args:
            channels: Channels of the images.
        """
        return named_sequence(
            self.transforms, channels=channels, boundary=self.boundary, landmarks=self.landmarks
        )

    def coarsening(self, height: int, width: int) -> int:
        """One: restarts run on the images themselves; see `AbstractImageModel.coarsening`."""
        return 1

    def energy(self, channels: int = 1, transforms: int | None = None) -> TransformedPrototype:
        """See `AbstractImageModel.energy`.

        Args:
            channels: Channels of the images.
            transforms: How many of the transforms are used, first to last; None for all.
        """
        sequence = self.sequence(channels)[:transforms]
        transform = compose(*sequence) if sequence else Identity()
        distance = self.objective().distance
        return TransformedPrototype(transform, distance, window=self.window, mask=self.mask)

    def solver(self, transforms: int, channels: int, *, final: bool = False) -> GradientEM:
        """The composition: energy, aligner and reduction under gradient EM.

        Args:
            transforms: How many of the transforms are used.
            channels: Channels of the images.
            final: Whether samples are assigned in the end, not the model trained.

        Returns:
            The solver.
        """
        aligner = NoAlignment(candidates=self.num_clusters)
        if transforms:
            aligner = self.aligner(transforms, channels, final=final)
        objective = self.objective()
        return GradientEM(
            self.energy(channels, transforms),
            aligner,
            objective.reduction,
            followed=objective.followed,
        )

    def begin(self, images: Float[Array, "clusters height width channels"], key: Key) -> Learned:
        """What is learned, before the first step.

        Args:
            images: What the prototypes begin as.
            key: Random key of the networks.

        Returns:
            The tree.
        """
        height, width, channels = images.shape[1:]
        sequence, objective = self.sequence(channels), self.objective()
        backbone = heads = None
        if self.backbone is not None and sequence:
            first, second = jax.random.split(key)
            make = residual_backbone if self.backbone == "residual" else quick_backbone
            backbone = make(height, width, channels, key=first)
            heads = _heads(sequence, backbone, self.num_clusters, second)
        terms = sum(len(transform.deformation_terms) for transform in sequence)
        penalty = jnp.full((self.num_clusters, terms), self.deformation_penalty, images.dtype)
        clusters = Clusters(objective.prototypes(images), penalty, heads)
        learned = objective.reduction.init(self.num_clusters, images.dtype)
        return Learned(clusters, backbone, learned)

    def prediction(self, transforms: int, channels: int, *, exact: bool) -> Prediction:
        """An aligner that predicts.

        Args:
            transforms: How many of the transforms are used.
            channels: Channels of the images.
            exact: Whether all clusters are judged after all transforms, whatever
                `Training.shortlist` says.

        Returns:
            The aligner.
        """
        first = self.first_spatial(transforms, channels)
        kept = self.training.shortlist
        if exact or kept is None or first == transforms:
            return Prediction(transforms=transforms)
        judge = self.energy(channels, first)
        return Prediction(transforms=transforms, candidates=kept, judge=judge)

    def first_spatial(self, transforms: int, channels: int) -> int:
        """How many transforms there are up to the first spatial one; all, where none is.

        Args:
            transforms: How many of the transforms are used.
            channels: Channels of the images.

        Returns:
            A whole number, at most `transforms`.
        """
        sequence = self.sequence(channels)[:transforms]
        spatial = [isinstance(t, AbstractSpatialTransform) for t in sequence]
        return spatial.index(True) + 1 if any(spatial) else transforms

    def plan(self, images: Images) -> GradientPlan:
        """What a fit does.

        Args:
            images: The images.

        Returns:
            The plan.

        Raises:
            ValueError: If the training does not fit the transforms or the images.
        """
        channels = images.shape[3]
        count = len(self.sequence(channels))
        return self.training.plan(count, images, moves_from=self.first_spatial(count, channels))

    def check(self, images: Images) -> None:
        """Refuses images that the transforms are not for."""
        for transform in self.sequence(images.shape[3]):
            if isinstance(transform, ThinPlateSpline):
                _validation.landmarks_fit(transform.landmarks, *images.shape[1:3])

    def fit(
        self,
        images: Any,
        *,
        key: Key,
        prototypes: Any = None,
        assignments: Any = None,
        sample_weight: Any = None,
        chunk_size: int | None = None,
        callback: Callback = ignore,
        snapshots: Snapshots | None = None,
        keep: Keep | None = None,
        mesh: Mesh | None = None,
    ) -> Result:
        """Clusters images.

        Args:
            images: Anything array-like of shape `(n, height, width, channels)` or
                `(n, height, width)`, intensities in [0, 1] or 8 bits.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            prototypes: Images to start from, one a cluster; random samples where neither they nor
                assignments are given.
            assignments: A cluster for each image to start from, from another clustering, say.
            sample_weight: Weights of the images, or None for ones.
            chunk_size: Images a chunk, and a device, of the final assignment; chosen where it is
                not given.
            callback: Told of every window of steps; an exception raised in it stops the fit.
            snapshots: Where the fit saves its state as it goes, and goes on from where it finds
                one; see `diffclust.snapshots.SnapshotFolder`.
            keep: Called with the state after every window of steps, or None.
            mesh: Devices that share every batch, from `diffclust.parallel.data_mesh`; None for
                the default device alone. The batch size must be a multiple of their number. Over
                several processes, each gives its own images, from which it draws its part of
                every batch, and the result is of all.

        Returns:
            The result; of several restarts, the one of least loss.

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If a loss or a gradient is not a number.
        """
        check_mesh(mesh)
        with together(mesh):
            array = self.validated(images)
            weight = _validation.weights(sample_weight, len(array))
        counts = row_counts(len(array), mesh)
        _validation.cluster_count(self.num_clusters, sum(counts))
        channels = array.shape[3]
        count = len(self.sequence(channels))
        plan = self.plan(array)
        check_batch_size(plan.batch_size, mesh)
        start = checked_start(self, array, prototypes, assignments, mesh=mesh)

        def begin(key: Key) -> Learned:
            first = jnp.asarray(self._first(array, start, key, counts, mesh))
            return agreed(_begun(self, first, jax.random.fold_in(key, 1)), mesh)

        outcome = fit_by_gradient(
            [self.solver(number, channels) for number in range(count + 1)],
            self.solver(count, channels, final=True),
            plan,
            array,
            weight,
            begin=begin,
            num_restarts=self.num_restarts,
            chunk_size=self._chunk(several(array, share(len(array), mesh)))
            if chunk_size is None
            else chunk_size,
            key=key,
            callback=callback,
            snapshots=snapshots,
            keep=keep,
            mesh=mesh,
        )
        return Result(model=self, sample_shape=array.shape[1:], outcome=outcome)

    def blank(self, sample_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """What a fit begins with; see `AbstractModel.blank`."""
        images = jnp.zeros((self.num_clusters, *sample_shape), dtype)
        return self.begin(images, jax.random.key(0))

    def assign(
        self,
        outcome: Outcome,
        images: Images,
        *,
        callback: Callback = ignore,
        mesh: Mesh | None = None,
    ) -> Assignment:
        """See `AbstractModel.assign`: every image goes where its score is least."""
        channels = images.shape[3]
        return assign_softly(
            self.solver(len(self.sequence(channels)), channels, final=True),
            outcome.learned,
            images,
            chunk_size=outcome.chunk_size,
            callback=callback,
            mesh=mesh,
        )[0]

    def energies(
        self, outcome: Outcome, images: Images, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """See `AbstractModel.energies`; of a mixture, scores: with -log π added."""
        channels = images.shape[3]
        solver = self.solver(len(self.sequence(channels)), channels, final=True)
        return all_energies(
            solver, outcome.learned, images, chunk_size=outcome.chunk_size, callback=callback
        )

    def chunk_size_for(self, samples: Images) -> int:
        """See `AbstractModel.chunk_size_for`: of the final assignment."""
        return self._chunk(samples)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """See `AbstractModel.state_bytes`: the samples on the device, and all that is learned."""
        learned = jax.eval_shape(lambda: jax.tree.leaves(self.blank(shape[1:], np.dtype("f4"))))
        weights = sum(4 * leaf.size for leaf in learned if hasattr(leaf, "size"))
        solver = self.solver(len(self.sequence(shape[3])), shape[3], final=True)
        places = solver.aligner.num_candidates(self.num_clusters)
        row = 8 * places + 4 * min(solver.warm_starts, places) * solver.energy.num_params
        # Responsibilities and scores of the final assignment are on the host as well.
        each = 8 * math.prod(shape[1:]) + 2 * row + 24 * self.num_clusters
        return shape[0] * each + 6 * weights

    def _chunk(self, images: Images) -> int:
        solver = self.solver(len(self.sequence(images.shape[3])), images.shape[3], final=True)
        copies = solver.aligner.working_copies(self.num_clusters)
        streamed = isinstance(images, ImageSource)
        return default_chunk_size(images[0], len(images), copies, streamed=streamed)

    def _first(
        self,
        images: Images,
        start: Start,
        key: Key,
        counts: tuple[int, ...],
        mesh: Mesh | None,
    ) -> Float[Array | np.ndarray, "clusters height width channels"]:
        """What the prototypes begin as: random samples, all different ones, or what was given."""
        if start is None:
            chosen = jax.random.choice(key, sum(counts), (self.num_clusters,), replace=False)
            return rows_at(lambda own: images[own], np.asarray(chosen), counts, mesh)
        kind, given = start
        if kind == "prototypes":
            return given
        groups = np.asarray(given)
        sums = _sums(images, groups[own_rows(counts)], self.num_clusters)
        total = joined_rows(sums[None], mesh).sum(0)
        sizes = np.bincount(groups, minlength=self.num_clusters).astype(total.dtype)
        return (total / sizes[:, None, None, None]).astype(images.dtype)


def _sums(images: Images, groups: np.ndarray, clusters: int) -> np.ndarray:
    """The sum of each cluster's images, in double precision; few of them are looked at at once."""
    total = np.zeros((clusters, *images.shape[1:]))
    for start in range(0, len(groups), _BLOCK):
        block, here = images[start : start + _BLOCK], groups[start : start + _BLOCK]
        for cluster in np.unique(here):
            total[cluster] += block[here == cluster].sum(0, dtype=total.dtype)
    return total


@eqx.filter_jit
def _begun(
    model: AbstractGradientModel, images: Float[Array, "clusters height width channels"], key: Key
) -> Learned:
    # Op by op, the networks' first weights would be dozens of programs.
    return model.begin(images, key)


def _heads(
    sequence: Sequence[AbstractTransform], backbone: AbstractBackbone, num_clusters: int, key: Key
) -> tuple[Head, ...]:
    keys = jax.random.split(key, len(sequence))
    return tuple(
        make_heads(num_clusters, backbone.num_features, transform.num_params, key=part)
        for transform, part in zip(sequence, keys, strict=True)
    )
