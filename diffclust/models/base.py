"""What every model offers, and what its fit returns."""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust.objectives import TransformedDistance, TransformedPrototype
from diffclust.prototypes import Clusters, Learned, picture_of
from diffclust.solvers import Assignment, Callback, Outcome
from diffclust.solvers.progress import ignore
from diffclust.types import Key


class AbstractSettings(eqx.Module):
    """A group of settings that several models have; files and command lines know them singly."""


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
    def energy(self, channels: int = 1) -> TransformedDistance | TransformedPrototype:
        """What a sample costs beside its cluster's prototype, and how one is moved onto the other.

        Args:
            channels: Channels of the images.
        """

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
    def blank(self, image_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """What is learned, with arrays of the right shapes that mean nothing.

        Args:
            image_shape: Height, width and channels of the images.
            dtype: Floating dtype.

        Returns:
            The tree that `checkpoint.load` fills.
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
        settings: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, AbstractSettings):
                value = {inner.name: getattr(value, inner.name) for inner in _inner(type(value))}
            settings |= value if isinstance(value, dict) else {field.name: value}
        return settings

    @classmethod
    def setting_types(cls) -> dict[str, Any]:
        """The type of each of the settings, by name."""
        types: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            group = _group(field)
            types |= (
                {field.name: field.type}
                if group is None
                else {inner.name: inner.type for inner in _inner(group)}
            )
        return types

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "AbstractModel":
        """A model from its settings.

        Args:
            settings: As `settings` returns them; what is missing has its default.

        Returns:
            The model.

        Raises:
            ValueError: If a setting means nothing.
            TypeError: If the model has no such setting.
        """
        given = dict(settings)
        for field in dataclasses.fields(cls):
            group = _group(field)
            if group is not None:
                names = [inner.name for inner in _inner(group)]
                own = {name: given.pop(name) for name in names if name in given}
                given[field.name] = group(**own)
        return cls(**given)


def _inner(group: type["AbstractSettings"]) -> tuple[dataclasses.Field, ...]:
    return dataclasses.fields(group)


def _group(field: dataclasses.Field) -> type["AbstractSettings"] | None:
    kind = field.type
    return kind if isinstance(kind, type) and issubclass(kind, AbstractSettings) else None


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
        return np.asarray(picture_of(self.outcome.learned.clusters.prototype))

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
        energy, size = self.model.energy(array.shape[3]), self.outcome.chunk_size
        if not isinstance(energy, TransformedDistance):
            raise ValueError(
                f"{self.model.method} moves prototypes, not images; see "
                "diffclust.models.moved_prototypes"
            )
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


def blank_clusters(model: AbstractModel, image_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
    """The tree of a model that learns images and penalty weights alone.

    Args:
        model: The model.
        image_shape: Height, width and channels of the images.
        dtype: Floating dtype.

    Returns:
        A tree of zeros.
    """
    count, terms = model.num_clusters, model.energy(image_shape[2]).num_penalties
    return Learned(
        Clusters(jnp.zeros((count, *image_shape), dtype), jnp.zeros((count, terms), dtype))
    )


@eqx.filter_jit
def _align(energy: TransformedDistance, params: Array, images: Array) -> Array:
    return jax.vmap(energy.aligned)(params, images)
