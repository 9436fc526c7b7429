"""What all prototype models share: fit, predict, and the result with its alignments."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust.alignment import AbstractAligner
from diffclust.objectives import TransformedDistance
from diffclust.prototypes import AbstractPrototypeFamily
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
from diffclust.solvers.fit import Start
from diffclust.solvers.progress import ignore
from diffclust.types import Key


class AbstractPrototypeModel(eqx.Module):
    """A clustering by prototypes: names and numbers that JSON can hold, and what they stand for."""

    num_clusters: eqx.AbstractVar[int]
    num_restarts: eqx.AbstractVar[int]
    max_passes: eqx.AbstractVar[int]
    tolerance: eqx.AbstractVar[float]
    split_merge: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def weight_learning(self) -> tuple[int, bool]:
        """Rounds in which penalty weights are learned, and whether each cluster has its own."""

    @property
    @abc.abstractmethod
    def method(self) -> str:
        """The model's name on the command line."""

    @abc.abstractmethod
    def energy(self) -> TransformedDistance:
        """What a sample costs in a cluster."""

    @abc.abstractmethod
    def aligner(self) -> AbstractAligner:
        """What minimises it."""

    @abc.abstractmethod
    def family(self) -> AbstractPrototypeFamily:
        """How prototypes follow from aligned samples."""

    @abc.abstractmethod
    def penalty(self) -> tuple[float, ...]:
        """Weights of the energy's penalty terms."""

    @abc.abstractmethod
    def coarsening(self, height: int, width: int) -> int:
        """How many times coarser the images of the restarts are.

        Args:
            height: Rows of the images.
            width: Columns of the images.

        Returns:
            A whole number; 1 for the images as they are.
        """

    @abc.abstractmethod
    def check(self, images: np.ndarray) -> None:
        """Refuses images that the model cannot cluster.

        Args:
            images: Images that are finite and of the right rank.

        Raises:
            ValueError: With what is wrong and what would do.
        """

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
    ) -> "Result":
        """Clusters images.

        Args:
            images: Anything array-like of shape `(n, height, width, channels)` or
                `(n, height, width)`, intensities in [0, 1] or 8 bits.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            prototypes: Images to start from, one a cluster; k-means++ where neither they nor
                assignments are given.
            assignments: A cluster for each image to start from.
            sample_weight: Weights of the images, or None for ones.
            chunk_size: Images a chunk, which bounds the memory; chosen where it is not given.
            callback: Told of every chunk; an exception raised in it stops the fit.

        Returns:
            The result; of several restarts, the one of least loss.

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If a loss is not a number.
        """
        array = _validation.images(images)
        _validation.cluster_count(self.num_clusters, len(array))
        self.check(array)
        start = self._start(array, prototypes, assignments)
        weight = _validation.weights(sample_weight, len(array))
        if weight is not None:
            positive = int(np.count_nonzero(weight))
            _validation.cluster_count(self.num_clusters, positive, "images of positive weight")
        solver = self.solver()
        if chunk_size is None:
            chunk_size = self.default_chunk_size(array)
        _validation.positive(chunk_size, "chunk_size")
        plan = Plan(
            self.num_clusters,
            self.penalty(),
            self.num_restarts,
            Stopping(self.max_passes, self.tolerance),
            Moves() if self.split_merge else Moves(rounds=0),
            self.coarsening(*array.shape[1:3]),
            chunk_size,
            *self.weight_learning,
        )
        outcome = fit_prototypes(
            solver, plan, array, weight, key=key, start=start, callback=callback
        )
        return Result(model=self, image_shape=array.shape[1:], outcome=outcome)

    def default_chunk_size(self, images: np.ndarray) -> int:
        """Images a chunk where nothing else is asked for.

        Args:
            images: The images.

        Returns:
            A multiple of 16; see `solvers.default_chunk_size`.
        """
        copies = self.aligner().working_copies(self.num_clusters)
        return default_chunk_size(images[0], len(images), copies)

    def _start(self, images: np.ndarray, prototypes: Any, assignments: Any) -> Start:
        if prototypes is not None and assignments is not None:
            raise ValueError("give prototypes or assignments to start from, not both")
        if prototypes is not None:
            array = _validation.images(prototypes, "prototypes")
            expected = (self.num_clusters, *images.shape[1:])
            if array.shape != expected:
                raise ValueError(f"prototypes must have shape {expected}, not {array.shape}")
            self.check(array)
            return "prototypes", jnp.asarray(array)
        if assignments is not None:
            array = np.asarray(assignments)
            if array.shape != (len(images),) or not np.issubdtype(array.dtype, np.integer):
                raise ValueError(
                    f"assignments must be {len(images)} whole numbers, one for each image; got "
                    f"{array.dtype} of shape {array.shape}"
                )
            if array.min() < 0 or array.max() >= self.num_clusters:
                raise ValueError(
                    f"assignments must lie in 0 to {self.num_clusters - 1}; got "
                    f"{array.min()} to {array.max()}"
                )
            vacant = np.setdiff1d(np.arange(self.num_clusters), array)
            if vacant.size:
                raise ValueError(
                    f"assignments leave cluster {int(vacant[0])} empty; give every cluster at "
                    "least one image, or ask for fewer clusters"
                )
            return "assignments", jnp.asarray(array, dtype=jnp.int32)
        return None

    def settings(self) -> dict[str, Any]:
        """The model as names and numbers, which its constructor takes again."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """A fitted model.

    Attributes:
        model: The model that was fitted.
        image_shape: Height, width and channels of the images.
        outcome: What the solver found.
    """

    model: AbstractPrototypeModel
    image_shape: tuple[int, ...]
    outcome: Outcome

    @property
    def prototypes(self) -> Float[np.ndarray, "clusters height width channels"]:
        """The prototypes, on the scale the family works on."""
        return np.asarray(self.outcome.learned.clusters.prototype)

    @property
    def assignments(self) -> np.ndarray:
        """Cluster of each image, `(n,)`."""
        return self.outcome.assignment.clusters

    @property
    def distances(self) -> np.ndarray:
        """The penalised invariant distance of each image to its prototype, `(n,)`."""
        return self.outcome.assignment.distances

    @property
    def margins(self) -> np.ndarray:
        """How much more each image's second-best cluster would cost, `(n,)`."""
        return self.outcome.assignment.margins

    @property
    def loss(self) -> float:
        """The penalised distortion, summed over images."""
        return self.outcome.loss

    @property
    def history(self) -> tuple[float, ...]:
        """The loss after every pass of the best restart, at the finest resolution reached."""
        return self.outcome.history

    @property
    def counts(self) -> np.ndarray:
        """Number of images in each cluster, `(clusters,)`."""
        return np.bincount(self.assignments, minlength=self.model.num_clusters)

    def predict(self, images: Any, *, callback: Callback = ignore) -> Assignment:
        """Assigns new images; the prototypes stay as they are.

        Args:
            images: Images of the shape that was fitted.
            callback: Told of every chunk.

        Returns:
            Clusters, distances, margins and params.

        Raises:
            ValueError: If the images differ in shape from those fitted, or cannot be clustered.
        """
        array = self._checked(images)
        return assign_samples(
            self.model.solver(),
            self.outcome.learned.clusters,
            array,
            chunk_size=self.outcome.chunk_size,
            callback=callback,
        )

    def align(self, images: Any, params: Any) -> Float[np.ndarray, "n height width channels"]:
        """Moves images as they were aligned to their prototypes.

        Args:
            images: Images of the shape that was fitted.
            params: Their params, as in `Assignment.params`.

        Returns:
            The aligned images, intensities unscaled.
        """
        array = self._checked(images)
        energy, size = self.model.energy(), self.outcome.chunk_size
        moves = np.asarray(params, dtype=array.dtype)
        if moves.shape != (len(array), energy.num_params):
            raise ValueError(
                f"params must have shape ({len(array)}, {energy.num_params}), one row for each "
                f"image; got {moves.shape}"
            )
        parts = [
            np.asarray(
                _align(energy, jnp.asarray(moves[i : i + size]), jnp.asarray(array[i : i + size]))
            )
            for i in range(0, len(array), size)
        ]
        return np.concatenate(parts)

    def summary(self) -> dict[str, Any]:
        """The figures of the fit, in types that JSON can hold."""
        return {"method": self.model.method, **self.outcome.summary()}

    def _checked(self, images: Any) -> np.ndarray:
        array = _validation.images(images)
        if array.shape[1:] != tuple(self.image_shape):
            raise ValueError(
                f"images must have the fitted shape {tuple(self.image_shape)}, not "
                f"{array.shape[1:]}; resize them first"
            )
        self.model.check(array)
        return array


@eqx.filter_jit
def _align(energy: TransformedDistance, params: Array, images: Array) -> Array:
    return jax.vmap(energy.aligned)(params, images)
