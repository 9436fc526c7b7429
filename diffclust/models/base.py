"""What every model offers, and what its fit returns."""

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from diffclust.image_source import Images
from diffclust.methods import Method, Words, method_of
from diffclust.parallel import check_mesh
from diffclust.processes import together
from diffclust.prototypes import Learned, picture_of
from diffclust.solvers import Assignment, Callback, Outcome, default_chunk_size
from diffclust.solvers.progress import Snapshots, ignore
from diffclust.types import Key


class AbstractSettings(eqx.Module):
    """A group of settings that several models have; files and command lines know them singly."""


class AbstractModel(eqx.Module):
    """A clustering: names and numbers that JSON can hold, and what they stand for."""

    num_clusters: eqx.AbstractVar[int]
    num_restarts: eqx.AbstractVar[int]

    @property
    def descriptor(self) -> Method:
        """What the method is called and what it does; see `diffclust.methods`."""
        return method_of(type(self).__name__)

    @property
    def words(self) -> Words:
        """What the method's figures are called under these settings."""
        return self.descriptor.words

    @property
    def method(self) -> str:
        """The model's name on the command line."""
        return self.descriptor.name

    @property
    def criterion(self) -> str:
        """What a fit minimises, in a word or two: `"loss"`, `"normalised cut"`."""
        return self.words.criterion

    @abc.abstractmethod
    def validated(self, samples: Any, /) -> Images:
        """Refuses samples that the model cannot cluster.

        Args:
            samples: What a user passes in.

        Returns:
            The samples as one floating array with a leading axis, or images that are read as they
            are needed.

        Raises:
            ValueError: With what is wrong and what would do.
        """

    @abc.abstractmethod
    def fit(
        self,
        samples: Any,
        /,
        *,
        key: Key,
        sample_weight: Any = None,
        chunk_size: int | None = None,
        callback: Callback = ignore,
        snapshots: Snapshots | None = None,
        mesh: Mesh | None = None,
    ) -> "Result":
        """Clusters samples.

        Args:
            samples: Anything array-like with a leading axis.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            sample_weight: Weights of the samples, or None for ones.
            chunk_size: Samples a chunk, which bounds the memory; chosen where it is not given.
            callback: Told of every chunk; an exception raised in it stops the fit.
            snapshots: Where the fit saves its state as it goes, and goes on from where it finds
                one; see `diffclust.snapshots.SnapshotFolder`.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for
                the default device alone. Over several processes, each gives its own samples, and
                the result is of all.

        Returns:
            The result.

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If the fit breaks down.
        """

    @abc.abstractmethod
    def blank(self, sample_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """What is learned, with arrays of the right shapes that mean nothing.

        Args:
            sample_shape: Shape of one sample.
            dtype: Floating dtype.

        Returns:
            The tree that `checkpoint.load` fills.
        """

    @abc.abstractmethod
    def assign(
        self,
        outcome: Outcome,
        samples: Any,
        /,
        *,
        callback: Callback = ignore,
        mesh: Mesh | None = None,
    ) -> Assignment:
        """Assigns new samples, which were validated, to clusters that stay as they are.

        Args:
            outcome: What a fit of this model found.
            samples: Samples of the shape that was fitted.
            callback: Told of every chunk.
            mesh: Devices that share every chunk, or None for one.

        Returns:
            Clusters, distances, margins and params.
        """

    @abc.abstractmethod
    def energies(
        self, outcome: Outcome, samples: Any, /, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """What samples, which were validated, cost in every cluster.

        Args:
            outcome: What a fit of this model found.
            samples: Samples of the shape that was fitted.
            callback: Told of every chunk.

        Returns:
            What decides: penalised squared distances, or negative log-likelihoods.

        Raises:
            ValueError: If the model does not compare samples with clusters.
        """

    @abc.abstractmethod
    def aligned(self, outcome: Outcome, samples: Any, params: np.ndarray, /) -> np.ndarray:
        """Moves samples, which were validated, as they were aligned.

        Args:
            outcome: What a fit of this model found.
            samples: Samples of the shape that was fitted.
            params: How each is moved.

        Returns:
            The aligned samples.

        Raises:
            ValueError: If the model moves prototypes, not samples.
        """

    def chunk_size_for(self, samples: Images) -> int:
        """Samples a chunk of a fit where nothing else is asked for.

        Args:
            samples: The samples.

        Returns:
            A multiple of 16; see `solvers.default_chunk_size`.
        """
        return default_chunk_size(samples[0], len(samples), 3 * self.num_clusters)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the arrays that a fit holds, beside the samples that it is given.

        Args:
            shape: Shape of the samples.

        Returns:
            The normalised samples, and what is remembered of each in several passes.
        """
        return shape[0] * (4 * math.prod(shape[1:]) + 32 * self.num_clusters + 64)

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
        sample_shape: Shape of one sample: height, width and channels of an image, say.
        outcome: What the solver found.
    """

    model: AbstractModel
    sample_shape: tuple[int, ...]
    outcome: Outcome

    @property
    def prototypes(self) -> Float[np.ndarray, "clusters ..."]:
        """The prototypes, on the scale the family works on; of Gaussians, the means."""
        return np.asarray(picture_of(self.outcome.learned.clusters.prototype))

    @property
    def assignments(self) -> np.ndarray:
        """Cluster of each sample, `(n,)`."""
        return self.outcome.assignment.clusters

    @property
    def distances(self) -> np.ndarray:
        """How far each sample is from its cluster: what decided, `(n,)`.

        With prototypes the penalised invariant distance; in a spectral embedding the distance to
        the centre.
        """
        return self.outcome.assignment.distances

    @property
    def margins(self) -> np.ndarray:
        """How much farther each sample's second-best cluster is, `(n,)`."""
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
        """Number of samples in each cluster, `(clusters,)`."""
        return np.bincount(self.assignments, minlength=self.model.num_clusters)

    def predict(
        self, samples: Any, /, *, callback: Callback = ignore, mesh: Mesh | None = None
    ) -> Assignment:
        """Assigns new samples; the prototypes stay as they are.

        Args:
            samples: Samples of the shape that was fitted.
            callback: Told of every chunk.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for
                the default device alone. Over several processes, each gives its own samples, and
                the result is of all.

        Returns:
            Clusters, distances, margins and params.

        Raises:
            ValueError: If they differ in shape from those fitted, or cannot be clustered.
        """
        check_mesh(mesh)
        with together(mesh):
            array = self._checked(samples)
        return self.model.assign(self.outcome, array, callback=callback, mesh=mesh)

    def energies(
        self, samples: Any, /, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """What new samples cost in every cluster, not in the best one alone.

        Args:
            samples: Samples of the shape that was fitted.
            callback: Told of every chunk.

        Returns:
            What decides: penalised squared distances, or negative log-likelihoods.

        Raises:
            ValueError: If they differ in shape from those fitted, or the model does not compare
                samples with clusters, as a spectral one.
        """
        return self.model.energies(self.outcome, self._checked(samples), callback=callback)

    def align(self, samples: Any, params: Any, /) -> Float[np.ndarray, "n ..."]:
        """Moves samples as they were aligned to their prototypes.

        Args:
            samples: Samples of the shape that was fitted.
            params: Their params, as in `Assignment.params`.

        Returns:
            The aligned samples, intensities unscaled.

        Raises:
            ValueError: If the arguments do not fit each other, or prototypes are moved.
        """
        array = self._checked(samples)
        moves, width = np.asarray(params, array.dtype), self.outcome.assignment.params.shape[1]
        if moves.shape != (len(array), width):
            raise ValueError(
                f"params must have shape ({len(array)}, {width}), one row for each sample; got "
                f"{moves.shape}"
            )
        return self.model.aligned(self.outcome, array, moves)

    def summary(self) -> dict[str, Any]:
        """The figures of the fit, in types that JSON can hold."""
        return {"method": self.model.method, **self.outcome.summary()}

    def _checked(self, samples: Any) -> Images:
        array = self.model.validated(samples)
        if array.shape[1:] != tuple(self.sample_shape):
            raise ValueError(
                f"samples must have the fitted shape {tuple(self.sample_shape)}, not "
                f"{array.shape[1:]}; bring them to that shape first"
            )
        return array
