"""What every model offers, and what its fit returns."""

import abc
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust.objectives import TransformedDistance
from diffclust.solvers import Assignment, Callback, Outcome
from diffclust.solvers.progress import ignore
from diffclust.types import Key


class AbstractModel(eqx.Module):
    """A clustering of images: names and numbers that JSON can hold, and what they stand for."""

    num_clusters: eqx.AbstractVar[int]
    num_restarts: eqx.AbstractVar[int]

    @property
    @abc.abstractmethod
    def method(self) -> str:
        """The model's name on the command line."""

    @property
    @abc.abstractmethod
    def criterion(self) -> str:
        """What a fit makes small, in a word or two: `"loss"`, `"normalised cut"`."""

    @abc.abstractmethod
    def energy(self) -> TransformedDistance:
        """What a sample costs beside its cluster's prototype, and how it is aligned to it."""

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

    @abc.abstractmethod
    def fit(
        self, images: Any, *, key: Key, chunk_size: int | None = None, callback: Callback = ignore
    ) -> "Result":
        """Clusters images.

        Args:
            images: Anything array-like of shape `(n, height, width, channels)` or
                `(n, height, width)`, intensities in [0, 1] or 8 bits.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            chunk_size: Images a chunk, which bounds the memory; chosen where it is not given.
            callback: Told of every chunk; an exception raised in it stops the fit.

        Returns:
            The result.

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If the fit breaks down.
        """

    @abc.abstractmethod
    def assign(
        self, outcome: Outcome, images: np.ndarray, *, callback: Callback = ignore
    ) -> Assignment:
        """Assigns new images, which were checked already, to clusters that stay as they are.

        Args:
            outcome: What a fit of this model found.
            images: Images of the shape that was fitted.
            callback: Told of every chunk.

        Returns:
            Clusters, distances, margins and params.
        """

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

    model: AbstractModel
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
        """How far each image is from its cluster: what decided, `(n,)`.

        With prototypes the penalised invariant distance; in a spectral embedding the distance to
        the centre.
        """
        return self.outcome.assignment.distances

    @property
    def margins(self) -> np.ndarray:
        """How much farther each image's second-best cluster is, `(n,)`."""
        return self.outcome.assignment.margins

    @property
    def loss(self) -> float:
        """What the fit made small: the penalised distortion, or the normalised cut."""
        return self.outcome.loss

    @property
    def history(self) -> tuple[float, ...]:
        """The loss after every pass of the best restart, at the finest resolution reached.

        A spectral method, solved directly, has one entry.
        """
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
        return self.model.assign(self.outcome, array, callback=callback)

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
