"""What all prototype models share: a fit by Lloyd's algorithm, and assignment to prototypes."""

import abc
import dataclasses
import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from diffclust import _validation
from diffclust.alignment import AbstractAligner
from diffclust.image_source import Images, ImageSource, several
from diffclust.models.base import Result
from diffclust.models.images import AbstractImageModel, blank_clusters
from diffclust.objectives import TransformedDistance
from diffclust.parallel import check_mesh, share
from diffclust.processes import joined_rows, row_counts, together
from diffclust.prototypes import AbstractPrototypeFamily, Learned
from diffclust.solvers import (
    Assignment,
    Callback,
    Lloyd,
    Moves,
    Outcome,
    Plan,
    Stopping,
    assign_samples,
    default_chunk_size,
    fit_prototypes,
)
from diffclust.solvers.energies import all_energies
from diffclust.solvers.progress import Snapshots, ignore
from diffclust.solvers.start import Start
from diffclust.types import Key


class AbstractPrototypeModel(AbstractImageModel):
    """A clustering by prototypes: names and numbers that JSON can hold, and what they stand for."""

    max_passes: eqx.AbstractVar[int]
    tolerance: eqx.AbstractVar[float]
    split_merge: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def weight_learning(self) -> tuple[int, bool]:
        """Rounds in which penalty weights are learned, and whether each cluster has its own."""

    @abc.abstractmethod
    def energy(self, channels: int = 1) -> TransformedDistance:
        """See `AbstractImageModel.energy`: the sample is moved.

        Args:
            channels: Channels of the images.
        """

    @abc.abstractmethod
    def aligner(self) -> AbstractAligner:
        """What minimises it."""

    @abc.abstractmethod
    def family(self) -> AbstractPrototypeFamily:
        """How prototypes follow from aligned samples."""

    @abc.abstractmethod
    def penalty(self) -> tuple[float, ...]:
        """Weights of the energy's penalty terms."""

    def solver(self) -> Lloyd:
        """The composition: energy, aligner and prototype family under Lloyd's algorithm."""
        return Lloyd(self.energy(), self.aligner(), self.family())

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
        mesh: Mesh | None = None,
    ) -> Result:
        """Clusters images.

        Args:
            images: Anything array-like of shape `(n, height, width, channels)` or
                `(n, height, width)`, intensities in [0, 1] or 8 bits.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            prototypes: Images to start from, one a cluster; k-means++ where neither they nor
                assignments are given.
            assignments: A cluster for each image to start from.
            sample_weight: Weights of the images, or None for ones.
            chunk_size: Images a chunk, and a device, which bounds the memory; chosen where it is
                not given.
            callback: Told of every chunk; an exception raised in it stops the fit.
            snapshots: Where the fit saves its state as it goes, and goes on from where it finds
                one; see `diffclust.snapshots.SnapshotFolder`.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for
                the default device alone. Over several processes, each gives its own samples, and
                the result is of all.

        Returns:
            The result; of several restarts, the one of least loss.

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If a loss is not a number.
        """
        check_mesh(mesh)
        with together(mesh):
            array = self.validated(images)
            weight = _validation.weights(sample_weight, len(array))
        count = sum(row_counts(len(array), mesh))
        _validation.cluster_count(self.num_clusters, count)
        start = checked_start(self, array, prototypes, assignments, mesh=mesh)
        positive = len(array) if weight is None else np.count_nonzero(weight)
        positive = int(np.sum(joined_rows(np.asarray([positive]), mesh)))
        _validation.cluster_count(self.num_clusters, positive, "images of positive weight")
        if chunk_size is None:
            # What several processes must have in common: how many images a device has at most.
            each = share(len(array), mesh)
            alike = several(array, each)
            chunk_size = self.default_chunk_size(alike)
        plan = dataclasses.replace(self.plan(array, chunk_size), mesh=mesh)
        outcome = fit_prototypes(
            self.solver(),
            plan,
            array,
            weight,
            key=key,
            start=start,
            callback=callback,
            snapshots=snapshots,
        )
        return Result(model=self, sample_shape=array.shape[1:], outcome=outcome)

    def plan(self, images: Images, chunk_size: int | None = None) -> Plan:
        """How a fit of images proceeds.

        Args:
            images: The images.
            chunk_size: Images a chunk; chosen where it is not given.

        Returns:
            The plan.

        Raises:
            ValueError: If the chunk size is below 1.
        """
        if chunk_size is None:
            chunk_size = self.default_chunk_size(images)
        _validation.positive(chunk_size, "chunk_size")
        return Plan(
            self.num_clusters,
            self.penalty(),
            self.num_restarts,
            Stopping(self.max_passes, self.tolerance),
            Moves() if self.split_merge else Moves(rounds=0),
            self.coarsening(*images.shape[1:3]),
            chunk_size,
            *self.weight_learning,
        )

    def blank(self, sample_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """Images and penalty weights; see `AbstractModel.blank`."""
        return blank_clusters(self, sample_shape, dtype)

    def assign(
        self,
        outcome: Outcome,
        images: Images,
        *,
        callback: Callback = ignore,
        mesh: Mesh | None = None,
    ) -> Assignment:
        """See `AbstractModel.assign`: every image goes where its energy is least."""
        return assign_samples(
            self.solver(),
            outcome.learned,
            images,
            chunk_size=outcome.chunk_size,
            callback=callback,
            mesh=mesh,
        )

    def energies(
        self, outcome: Outcome, images: Images, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """See `AbstractModel.energies`."""
        return all_energies(
            self.solver(),
            outcome.learned,
            images,
            chunk_size=outcome.chunk_size,
            callback=callback,
        )

    def chunk_size_for(self, samples: Images) -> int:
        """See `AbstractModel.chunk_size_for`."""
        return self.default_chunk_size(samples)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """See `AbstractModel.state_bytes`."""
        factor, solver = self.coarsening(*shape[1:3]), self.solver()
        coarser = 0.0 if factor == 1 else 1.0 / factor**2
        places = solver.aligner.num_candidates(self.num_clusters)
        row = 8 * places + 4 * min(solver.warm_starts, places) * solver.energy.num_params
        # The memories of the pass before, of this one and of the best run, and a copy on the host.
        return int(shape[0] * (4 * math.prod(shape[1:]) * (1.0 + coarser) + 4 * row + 64))

    def default_chunk_size(self, images: Images) -> int:
        """Images a chunk where nothing else is asked for.

        Args:
            images: The images.

        Returns:
            A multiple of 16; see `solvers.default_chunk_size`.
        """
        copies = self.aligner().working_copies(self.num_clusters)
        streamed = isinstance(images, ImageSource)
        return default_chunk_size(images[0], len(images), copies, streamed=streamed)


def checked_start(
    model: AbstractImageModel,
    images: Images,
    prototypes: Any,
    assignments: Any,
    *,
    mesh: Mesh | None = None,
) -> Start:
    """Where a fit starts, checked.

    Args:
        model: The model that is fitted.
        images: The images.
        prototypes: Images, one a cluster, or None.
        assignments: A cluster for each image, or None.
        mesh: Devices that share the images, or None for one.

    Returns:
        One of them, or None where neither is given.

    Raises:
        ValueError: If both are given, or what is given does not fit the images.
    """
    if prototypes is not None and assignments is not None:
        raise ValueError("give prototypes or assignments to start from, not both")
    if prototypes is not None:
        array = _validation.images(prototypes, "prototypes")
        expected = (model.num_clusters, *images.shape[1:])
        if array.shape != expected:
            raise ValueError(f"prototypes must have shape {expected}, not {array.shape}")
        model.check(array)
        return "prototypes", jnp.asarray(array)
    if assignments is not None:
        every = joined_rows(np.asarray(assignments), mesh)
        count = sum(row_counts(len(images), mesh))
        return "assignments", jnp.asarray(_validation.groups(every, count, model.num_clusters))
    return None
