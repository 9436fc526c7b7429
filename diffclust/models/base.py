"""What every model offers, and what its fit returns."""

import abc
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, PyTree

from diffclust import _validation
from diffclust._random import checked_key
from diffclust.image_source import Images
from diffclust.methods import Method, Words, method_of, plural
from diffclust.models.selection import Selection
from diffclust.models.settings import AbstractSettings
from diffclust.parallel import Data, Description, default_chunk_size
from diffclust.progress_bar import on_terminal
from diffclust.prototypes import Learned, exemplar_of
from diffclust.solvers import (
    AbstractSolver,
    Assignment,
    Callback,
    GradientPlan,
    Outcome,
    Snapshots,
    Stages,
    Start,
    all_energies,
    assign_samples,
    ignore,
    run,
    warn_if_risen,
)
from diffclust.transforms import AbstractSpatialTransform
from diffclust.types import Key


class AbstractModel(AbstractSettings):
    """A clustering: names and numbers that JSON can hold, and what they stand for.

    Attributes:
        num_clusters: K.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        transform_names: Names of the transforms that move prototypes, in the order in which they
            act.
        removed: How many leading directions of its features each of its graphs leaves out.
        least_size: The fewest pixels, landmarks or values that a sample consists of.
        registers: Whether samples are registered before they are clustered.
        makes_grey: Whether registration makes one channel of any number of them.
        takes_local_contrast: Whether features are taken of images' local contrast.
        spatial_transform: The map of coordinates that moves images; None where nothing does.
    """

    num_clusters: int = eqx.field(static=True, converter=_validation.plain_number)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)
    transform_names: ClassVar[tuple[str, ...]] = ()
    removed: ClassVar[tuple[int, ...]] = ()
    least_size: ClassVar[int] = 1
    registers: ClassVar[bool] = False
    makes_grey: ClassVar[bool] = False
    takes_local_contrast: ClassVar[bool] = False
    spatial_transform: ClassVar[AbstractSpatialTransform | None] = None

    @property
    def descriptor(self) -> Method:
        """The descriptor of the method, see `diffclust.methods`."""
        return method_of(type(self))

    @property
    def words(self) -> Words:
        """The words for the method's figures under these settings."""
        return self.descriptor.words

    @property
    def method(self) -> str:
        """The model's name on the command line."""
        return self.descriptor.name

    @property
    def criterion(self) -> str:
        """The name of what a fit minimises: `"loss"`, `"normalised cut"`."""
        return self.words.criterion

    @property
    def has_unit_norm(self) -> bool:
        """Whether prototypes have unit norm, and what is compared with them."""
        return False

    @property
    def composition(self) -> str:
        """The types of the model and of its parts, one within the other."""
        return types_of(self)

    def registered_shape(self, shape: tuple[int, ...], /) -> tuple[int, ...]:
        """The shape of a registered sample.

        Args:
            shape: That of a sample as it comes.

        Returns:
            By default the same.
        """
        return shape

    def prototype_variances(self, prototype: PyTree, /) -> Array | np.ndarray | None:
        """Variances of prototypes' pixels, or variances or covariances of their landmarks.

        Args:
            prototype: What is learned of the prototypes.

        Returns:
            Of every cluster; by default None, where prototypes have none.
        """

    def warped_times(self, params: np.ndarray, times: np.ndarray, /) -> np.ndarray | None:
        """Computes where in time each series is read.

        Args:
            params: How each is warped.
            times: Times of a mean series, in [0, 1].

        Returns:
            Times of each series in [0, 1], `(n, times, 1)`; by default None, where no time is
            warped.
        """

    def training_plan(self, description: Description) -> GradientPlan | None:
        """The plan of a fit by gradient steps.

        Args:
            description: What is known of the samples.

        Returns:
            Its plan; None for a model that is not trained by gradient steps.
        """
        return None

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """The values of settings that the method chooses where they are None.

        Args:
            description: What is known of the samples.

        Returns:
            Values by the names of settings; by default of none.
        """
        return {}

    def describe(self) -> dict[str, str]:
        """Settings that a report explains in words, by what they are about."""
        return {}

    def resolved(self, given: Data, /) -> "AbstractModel":
        """The model with what its automatic settings stand for.

        Args:
            given: What a user passes in, and the devices.

        Returns:
            The model that is fitted.
        """
        return self

    def tried(self, given: Data, /) -> Mapping[str, float]:
        """Figures of what is tried to resolve the model.

        Args:
            given: What a user passes in, and the devices.

        Returns:
            Figures of the fit by name; by default none.
        """
        return {}

    def matching(self, prototypes: Any, /) -> "AbstractModel":
        """The model that brings samples to the size of prototypes that a fit starts from.

        Args:
            prototypes: What a user passes in, or None.

        Returns:
            The model; by default the same.
        """
        return self

    @property
    def without_registration(self) -> "AbstractModel":
        """The model of samples that are registered already."""
        return self

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

    def preprocessed(self, samples: Any, /) -> Any:
        """Samples as they are clustered: images are registered, series standardised.

        Shapes, which are registered to each other, have a stage of their own. Where the shape of a
        sample changes, `registered_shape` says to what.

        Args:
            samples: Samples, which were validated.

        Returns:
            Samples of the same kind; by default the same.

        Raises:
            ValueError: If the model cannot cluster them.
        """
        return samples

    def prepared(self, samples: Any, /) -> Any:
        """Samples as they are clustered, of what a user passes in.

        Args:
            samples: What a user passes in.

        Returns:
            What `preprocessed` makes of what `validated` returns.

        Raises:
            ValueError: With what is wrong and what would do.
        """
        return self.preprocessed(self.validated(samples))

    def preprocess(self, data: Data) -> tuple[Data, dict[str, np.ndarray]]:
        """The first stage of every fit: a closed form of each sample.

        Args:
            data: The samples, which were validated.

        Returns:
            The data with the samples as they are clustered, and no arrays.
        """
        with data.raise_everywhere():
            samples = self.preprocessed(data.samples)
        return dataclasses.replace(data, samples=samples), {}

    def in_prototype_frame(self, samples: Any, /) -> Any:
        """Samples, which were prepared, in the frame that prototypes are in.

        Args:
            samples: The samples.

        Returns:
            Samples of the same kind.
        """
        return samples

    @abc.abstractmethod
    def compose(self, description: Description, start: Start) -> Stages:
        """The stages of a fit after `preprocess`: what the method is made of.

        Args:
            description: What is known of the samples, as they are clustered, without reading them.
            start: What the fit starts from; None for the method's own seeding.

        Returns:
            Closed forms in turn, and last a problem, or a function that makes it of what these have
            found.
        """

    @abc.abstractmethod
    def working_copies(self, description: Description) -> int:
        """The number of arrays of a sample's size that are alive while one is aligned.

        Args:
            description: What is known of the samples.

        Returns:
            A whole number, from which the chunk size follows.
        """

    def chunk_size_for(self, description: Description) -> int:
        """Samples a chunk where nothing else is asked for.

        Args:
            description: What is known of the samples.

        Returns:
            A multiple of 16; see `diffclust.parallel.default_chunk_size`.
        """
        copies, size = self.working_copies(description), description.largest_share
        return default_chunk_size(description.sample, size, copies, streamed=description.streamed)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the arrays that a fit holds, beside the samples that it is given.

        Args:
            shape: Shape of the samples.

        Returns:
            The normalised samples, and what is remembered of each in several passes.
        """
        return shape[0] * (4 * math.prod(shape[1:]) + 32 * self.num_clusters + 64)

    def coarsening(self, *sides: int) -> int:
        """The factor by which samples are coarser where restarts run.

        Args:
            *sides: Rows and columns of the images, or length of the series.

        Returns:
            A whole number; 1, by default, for the samples as they are.
        """
        return 1

    def finished(self, outcome: Outcome) -> Outcome:
        """Adds what the model knows to the outcome of its problem.

        Args:
            outcome: The outcome; its extras hold what closed forms have found, too.

        Returns:
            The outcome of the fit.
        """
        return outcome

    def fit(
        self,
        samples: Any,
        /,
        *,
        key: Key,
        prototypes: Any = None,
        assignments: Any = None,
        sample_weight: Any = None,
        chunk_size: int | None = None,
        callback: Callback | None = None,
        snapshots: Snapshots | None = None,
        mesh: Mesh | None = None,
    ) -> "Result":
        """Clusters samples.

        Args:
            samples: Images, anything array-like of shape `(n, height, width, channels)` or
                `(n, height, width)`, intensities in [0, 1] or of 8 or 16 bits; or shapes
                `(n, landmarks, dims)`: the same landmarks in the same order, in any units.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            prototypes: Images to start from, one a cluster; for methods of images that can. Where
                images are registered, registered ones.
            assignments: A cluster for each sample to start from; for methods that can.
            sample_weight: Weights of the samples, or None for ones. A sample of weight 2 counts as
                two equal ones. Methods with a graph, and of shapes, leave those of weight 0 out,
                and assign them in the end as new ones; in a graph an edge's affinity is multiplied
                by the weights of both ends, while neighbours and scales do not depend on weights.
            chunk_size: Samples a chunk, and a device, which bounds the memory; chosen where it is
                not given.
            callback: Called after every chunk, or window of steps; an exception raised in it stops
                the fit. None for a progress bar where standard error is a terminal, and for
                nothing where it is none; `diffclust.solvers.ignore` for nothing at all.
            snapshots: Where the fit saves its state as it goes, and goes on from where it finds
                one; see `diffclust.storage.SnapshotFolder`.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for
                the default device alone. Over several processes, each gives its own samples, and
                the result is of all.

        Returns:
            The result; of several restarts, the one of least loss.

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If the fit breaks down.
        """
        key = checked_key(key)
        given, noun = Data(samples, mesh=mesh), self.words.noun
        with given.raise_everywhere():
            array = self.validated(samples)
            count = jax.tree.leaves(array)[0].shape[0]
            weight = _validation.weights(sample_weight, count, what=noun)
            if chunk_size is not None:
                _validation.count(chunk_size, "chunk_size")
        given = dataclasses.replace(given, samples=array, weight=weight)
        matching = self.matching(prototypes)
        model, tried = matching.resolved(given), matching.tried(given)
        data = Data(array, weight, chunk_size, mesh)
        _validation.cluster_count(self.num_clusters, data.num_samples, plural(noun))
        selection = Selection.of(data, drop=self.descriptor.drops_weightless)
        if prototypes is not None and assignments is not None:
            raise ValueError("give prototypes or assignments to start from, not both")
        groups = selection.groups(self.num_clusters, noun, assignments)
        description = selection.select(selection.data)[0].description
        start = model._checked_start(description, prototypes, groups)
        _validation.cluster_count(
            self.num_clusters, selection.num_positive, f"{plural(noun)} of positive weight"
        )
        data, given_sample = selection.data, description.sample
        description = model.prepared_description(description)
        if chunk_size is None:
            data = dataclasses.replace(data, chunk_size=model.chunk_size_for(description))
        with on_terminal(callback, model.num_restarts) as shown:

            def assign(outcome: Outcome, rest: Data) -> Assignment:
                return model.assign(outcome, model.preprocess(rest)[0], callback=shown)

            stages = (model.preprocess, selection.select, *model.compose(description, start))
            outcome = run(stages, data, key, callback=shown, snapshots=snapshots)
            outcome = selection.completed(model.finished(outcome), assign, model.nonconformity)
            outcome = dataclasses.replace(outcome, figures={**tried, **outcome.figures})
        warn_if_risen(outcome)
        shapes = shape_of(description.sample), shape_of(given_sample)
        return Result(model, shapes[0], outcome, given_shape=shapes[1])

    def prepared_description(self, description: Description) -> Description:
        """Describes the samples as they are clustered.

        Args:
            description: What is known of those that were validated.

        Returns:
            The description.
        """

        def one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(self.registered_shape(leaf.shape), leaf.dtype)

        return dataclasses.replace(description, sample=jax.tree.map(one, description.sample))

    def _checked_start(
        self, description: Description, prototypes: Any, groups: np.ndarray | None
    ) -> Start:
        """Checks what a fit starts from."""
        method = self.descriptor
        if groups is not None:
            if not method.takes_start:
                raise ValueError(f"{self.method} cannot start from assignments; leave them out")
            return "assignments", jnp.asarray(groups)
        if prototypes is None:
            return None
        if not method.takes_start or method.sample_kind not in ("image", "any"):
            raise ValueError(f"{self.method} cannot start from prototypes; leave them out")
        samples = jax.tree.leaves(self.prepared_description(description).sample)
        expected = [(self.num_clusters, *leaf.shape) for leaf in samples]
        if [len(shape) for shape in expected] == [4]:
            prototypes = _validation.images(prototypes, "prototypes")
        given = self.without_registration.prepared(prototypes)
        shapes = [leaf.shape for leaf in jax.tree.leaves(given)]
        if shapes != expected:
            wanted, got = (", ".join(map(str, each)) for each in (expected, shapes))
            raise ValueError(f"prototypes must have shape {wanted}, not {got}")
        return "prototypes", jax.tree.map(jnp.asarray, given)

    @abc.abstractmethod
    def template(self, sample: PyTree) -> Learned:
        """A tree of the learned arrays, of the right shapes and arbitrary values.

        Args:
            sample: Shape and floating dtype of one sample, as `jax.ShapeDtypeStruct`s.

        Returns:
            The tree that `load` fills.
        """

    def solver_for(self, outcome: Outcome, data: Data, /) -> tuple[AbstractSolver | None, Data]:
        """The solver that assigns new samples, and the samples as it takes them.

        Args:
            outcome: The outcome of a fit of this model.
            data: Samples of the shape that was fitted, which were prepared.

        Returns:
            A solver and data; by default no solver, where clusters are found some other way.
        """
        return None, data

    def assign(self, outcome: Outcome, data: Data, /, *, callback: Callback = ignore) -> Assignment:
        """Assigns new samples, which were prepared, to clusters that stay as they are.

        Args:
            outcome: The outcome of a fit of this model.
            data: Samples of the shape that was fitted.
            callback: Called after every chunk.

        Returns:
            Clusters, distances, margins and params: by default, every sample goes where its energy,
            or score, is least.
        """
        solver, data = self.solver_for(outcome, data)
        assert solver is not None
        return assign_samples(solver, outcome.learned, data, callback=callback)

    def nonconformity(self, outcome: Outcome, /) -> Float[np.ndarray, " fitted"]:
        """A measure of how poorly the fitted samples conform to their clusters.

        Args:
            outcome: The outcome of a fit of this model.

        Returns:
            A number for each, on the scale of `Assignment.nonconformity`: by default the distance.
        """
        return outcome.assignment.distances

    def energies(
        self, outcome: Outcome, data: Data, /, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """Computes the energies of samples, which were prepared, in every cluster.

        Args:
            outcome: The outcome of a fit of this model.
            data: Samples of the shape that was fitted.
            callback: Called after every chunk.

        Returns:
            What decides: penalised squared distances, or negative log-likelihoods; of a mixture
            with -log π added.

        Raises:
            ValueError: If the model does not compare samples with clusters.
        """
        solver, data = self.solver_for(outcome, data)
        if solver is None:
            raise ValueError(
                f"{self.method} does not compare {plural(self.words.noun)} with clusters; see "
                "Result.predict for how far each is from its own"
            )
        return all_energies(solver, outcome.learned, data, callback=callback)

    @abc.abstractmethod
    def aligned(self, outcome: Outcome, samples: Any, params: np.ndarray, /) -> np.ndarray:
        """Moves samples, which were prepared, as they were aligned.

        Args:
            outcome: The outcome of a fit of this model.
            samples: Samples of the shape that was fitted.
            params: How each is moved.

        Returns:
            The aligned samples.

        Raises:
            ValueError: If the model moves prototypes, not samples.
        """


def types_of(part: eqx.Module) -> str:
    """The type of a module, and in brackets those of the modules within."""
    fields = (getattr(part, field.name) for field in dataclasses.fields(part))
    inner = ", ".join(types_of(each) for each in fields if isinstance(each, eqx.Module))
    return f"{type(part).__name__}({inner})" if inner else type(part).__name__


def shape_of(sample: PyTree) -> tuple[Any, ...]:
    """The shape of one sample; of a tree, the shapes of its parts.

    Args:
        sample: One sample, or its `jax.ShapeDtypeStruct`s.

    Returns:
        A tuple.
    """
    shapes = tuple(tuple(leaf.shape) for leaf in jax.tree.leaves(sample))
    return shapes[0] if len(shapes) == 1 else shapes


class Result(eqx.Module):
    """A fitted model, as a pytree.

    Attributes:
        model: The model that was fitted.
        sample_shape: Shape of one sample as it was clustered: height, width and channels of an
            image, say; of a tree the shapes of its parts.
        outcome: What the solver returned.
        given_shape: Shape of one sample as it came, which registration may change. None where a
            result was saved before that was kept.
    """

    model: AbstractModel
    sample_shape: tuple[Any, ...] = eqx.field(static=True)
    outcome: Outcome
    given_shape: tuple[Any, ...] | None = eqx.field(static=True, default=None)

    @property
    def sample_kind(self) -> Literal["image", "shape", "series", "any"]:
        """What was clustered: what the method is for; of a model of one's own, what it looks like.

        Of one's own, samples of three axes are images and of two are series; trees are neither.
        """
        kind, shape = self.model.descriptor.sample_kind, self.sample_shape
        axes = len(shape) if all(isinstance(side, int) for side in shape) else 0
        seen: dict[int, Literal["image", "series"]] = {3: "image", 2: "series"}
        return seen.get(axes, "any") if kind == "any" else kind

    @property
    def prototypes(self) -> PyTree:
        """The prototypes, on the scale the family works on; of Gaussians, the means.

        An array with a leading cluster axis; where samples are trees, a tree of such.
        """
        return jax.tree.map(np.asarray, exemplar_of(self.outcome.learned.clusters.prototype))

    @property
    def variances(self) -> np.ndarray | None:
        """Variances of the prototypes' pixels, or (co)variances of their landmarks, or None."""
        variances = self.model.prototype_variances(self.outcome.learned.clusters.prototype)
        return None if variances is None else np.asarray(variances)

    @property
    def assignments(self) -> np.ndarray:
        """Cluster of each sample, `(n,)`."""
        return self.outcome.assignment.clusters

    @property
    def distances(self) -> np.ndarray:
        """Distance of each sample to its cluster, as it decided, `(n,)`.

        With prototypes the penalised invariant distance; in a spectral embedding the distance to
        the centre.
        """
        return self.outcome.assignment.distances

    @property
    def margins(self) -> np.ndarray:
        """Distance to the second-best cluster less that to the best, `(n,)`."""
        return self.outcome.assignment.margins

    @property
    def loss(self) -> float:
        """The loss that the fit minimised: the penalised distortion, or the normalised cut."""
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
            callback: Called after every chunk.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for
                the default device alone. Over several processes, each gives its own samples, and
                the result is of all.

        Returns:
            Clusters, distances, margins and params.

        Raises:
            ValueError: If they differ in shape from those fitted, or cannot be clustered.
        """
        given = Data(samples, None, self.outcome.chunk_size, mesh)
        with given.raise_everywhere():
            data = dataclasses.replace(given, samples=self._checked(samples))
        return self.model.assign(self.outcome, data, callback=callback)

    def energies(
        self, samples: Any, /, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """Computes the energies of new samples in every cluster, not in the best one alone.

        Args:
            samples: Samples of the shape that was fitted.
            callback: Called after every chunk.

        Returns:
            What decides: penalised squared distances, or negative log-likelihoods.

        Raises:
            ValueError: If they differ in shape from those fitted, or the model does not compare
                samples with clusters, as a spectral one.
        """
        data = Data(self._checked(samples), None, self.outcome.chunk_size)
        return self.model.energies(self.outcome, data, callback=callback)

    def registered(self, samples: Any, /) -> Images:
        """Samples as they are clustered: images registered where the model does that.

        Args:
            samples: Samples of the shape that was fitted.

        Returns:
            Samples of `sample_shape`; of images that are read as they are needed, the like.

        Raises:
            ValueError: If they differ in shape from those fitted, or cannot be clustered.
        """
        return self.model.in_prototype_frame(self._checked(samples))

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
        array, fitted = self._checked(samples), self.outcome.assignment.params
        params, count = np.asarray(params, fitted.dtype), jax.tree.leaves(array)[0].shape[0]
        width = fitted.shape[1]
        if params.shape != (count, width):
            raise ValueError(
                f"params must have shape ({count}, {width}), one row for each sample; got "
                f"{params.shape}"
            )
        return self.model.aligned(self.outcome, array, params)

    def summary(self) -> dict[str, Any]:
        """The figures of the fit, in types that JSON can hold."""
        return {"method": self.model.method, **self.outcome.summary()}

    def _checked(self, samples: Any) -> Any:
        array = self.model.validated(samples)
        given = Data(array).description
        shape = shape_of(self.model.prepared_description(given).sample)
        if shape != tuple(self.sample_shape):
            # As they come, not as registration leaves them.
            fitted = self.sample_shape if self.given_shape is None else self.given_shape
            raise ValueError(
                f"samples must have the fitted shape {tuple(fitted)}, not "
                f"{shape_of(given.sample)}; bring them to that shape first"
            )
        return self.model.preprocessed(array)
