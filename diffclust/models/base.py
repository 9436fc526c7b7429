"""The interface of every model, and the result of a fit."""

import abc
import dataclasses
import importlib
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
from diffclust.models.identity import identity_of, types_of
from diffclust.models.selection import Selection
from diffclust.models.settings import AbstractSettings
from diffclust.parallel import Data, Description, default_chunk_size
from diffclust.parallel.chunks import limited_chunk_size
from diffclust.parallel.mesh import in_own_mesh
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
    """A clustering method, described by names and numbers that JSON can hold.

    Attributes:
        num_clusters: K.
        num_restarts: Number of runs from different seeds; the one with the lowest loss is kept.
        transform_names: Names of the transforms that move prototypes, in the order in which they
            act.
        removed: How many leading directions of its features each of the model's graphs leaves out.
        least_size: The smallest number of pixels, landmarks or values that a sample may have.
        registers: Whether samples are registered before they are clustered.
        makes_grey: Whether registration reduces any number of channels to one.
        takes_local_contrast: Whether features are computed from the images' local contrast.
        spatial_transform: The coordinate map that moves images; None if nothing does.
        has_unit_norm: Whether samples are scaled to unit norm before they are compared.
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
    has_unit_norm: ClassVar[bool] = False

    @property
    def descriptor(self) -> Method:
        """The descriptor of the method; see `diffclust.methods`."""
        return method_of(type(self))

    @property
    def words(self) -> Words:
        """The words that describe the method's figures under these settings."""
        return self.descriptor.words

    @property
    def method(self) -> str:
        """The model's name on the command line."""
        return self.descriptor.name

    @property
    def criterion(self) -> str:
        """The name of what a fit minimises: `"loss"` or `"normalised cut"`."""
        return self.words.criterion

    @property
    def composition(self) -> str:
        """The types of the model and of its parts, nested."""
        return types_of(self)

    def registered_shape(self, shape: tuple[int, ...], /) -> tuple[int, ...]:
        """The shape of a registered sample.

        Args:
            shape: Shape of a sample as given.

        Returns:
            By default the same shape.
        """
        return shape

    def prototype_variances(self, prototype: PyTree, /) -> Array | np.ndarray | None:
        """Variances of the prototypes' pixels, or (co)variances of their landmarks.

        Args:
            prototype: The learned arrays of the prototypes.

        Returns:
            The variances for every cluster; by default None, if prototypes have none.
        """

    def warped_times(self, params: np.ndarray, times: np.ndarray, /) -> np.ndarray | None:
        """Computes at which times each series is read.

        Args:
            params: The warp of each series.
            times: Times of a mean series, in [0, 1].

        Returns:
            Times of each series in [0, 1], `(n, times, 1)`; by default None, if time is not warped.
        """

    def training_plan(self, description: Description) -> GradientPlan | None:
        """The plan of a fit that is trained by gradient steps.

        Args:
            description: What is known about the samples.

        Returns:
            The plan; None for a model that is not trained by gradient steps.
        """
        return None

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """The values the method chooses for settings that are None.

        Args:
            description: What is known about the samples.

        Returns:
            Values by setting name; by default none.
        """
        return {}

    def describe(self) -> dict[str, str]:
        """Settings that a report explains in words, by topic."""
        return {}

    def resolved(self, given: Data, /) -> "AbstractModel":
        """The model with its automatic settings resolved.

        Args:
            given: The user's samples, and the devices.

        Returns:
            The model that is fitted.
        """
        return self

    def tried(self, given: Data, /) -> Mapping[str, float]:
        """Figures of the alternatives that are tried to resolve the model.

        Args:
            given: The user's samples, and the devices.

        Returns:
            Figures of the fit, by name; by default none.
        """
        return {}

    def matching(self, prototypes: Any, /) -> "AbstractModel":
        """The model that brings samples to the size of the prototypes that a fit starts from.

        Args:
            prototypes: The prototypes that a user passes in, or None.

        Returns:
            The model; by default unchanged.
        """
        return self

    @property
    def without_registration(self) -> "AbstractModel":
        """The model for samples that are already registered."""
        return self

    @abc.abstractmethod
    def validated(self, samples: Any, /) -> Images:
        """Checks samples, and refuses those that the model cannot cluster.

        Args:
            samples: The samples that a user passes in.

        Returns:
            The samples as one floating array with a leading axis, or images that are read as
            needed.

        Raises:
            ValueError: If the samples are invalid; the message says what is wrong and what would
                work.
        """

    def preprocessed(self, samples: Any, /) -> Any:
        """Samples as they are clustered: images are registered, series are standardised.

        Shapes are registered to each other, which has its own stage. If the shape of a sample
        changes, `registered_shape` gives the new one.

        Args:
            samples: Validated samples.

        Returns:
            Samples of the same kind; by default unchanged.

        Raises:
            ValueError: If the model cannot cluster them.
        """
        return samples

    def prepared(self, samples: Any, /) -> Any:
        """A user's samples, validated and preprocessed.

        Args:
            samples: The samples that a user passes in.

        Returns:
            The result of `validated` followed by `preprocessed`.

        Raises:
            ValueError: If the samples are invalid; the message says what is wrong and what would
                work.
        """
        return self.preprocessed(self.validated(samples))

    def preprocess(self, data: Data) -> tuple[Data, dict[str, np.ndarray]]:
        """The first stage of every fit, which preprocesses each sample independently.

        Args:
            data: Validated samples.

        Returns:
            The data with the samples as they are clustered, and no arrays.
        """
        with data.raise_everywhere():
            samples = self.preprocessed(data.samples)
        return dataclasses.replace(data, samples=samples), {}

    def in_prototype_frame(self, samples: Any, /) -> Any:
        """Moves prepared samples into the frame of the prototypes.

        Args:
            samples: The samples.

        Returns:
            Samples of the same kind.
        """
        return samples

    @abc.abstractmethod
    def compose(self, description: Description, start: Start) -> Stages:
        """The stages of a fit after `preprocess`, which define the method.

        Args:
            description: What is known about the samples, as they are clustered, without reading
                them.
            start: The starting point of the fit; None for the method's own seeding.

        Returns:
            A sequence of closed-form stages, followed by a problem, or by a function that makes a
            problem from the results of these stages.
        """

    @abc.abstractmethod
    def working_copies(self, description: Description) -> int:
        """The number of arrays of a sample's size that are in memory while one sample is aligned.

        Args:
            description: What is known about the samples.

        Returns:
            A whole number, which determines the chunk size.
        """

    def chunk_size_for(self, description: Description) -> int:
        """The default number of samples per chunk.

        Args:
            description: What is known about the samples.

        Returns:
            A multiple of 16; see `diffclust.parallel.default_chunk_size`.
        """
        copies, size = self.working_copies(description), description.largest_share
        return default_chunk_size(description.sample, size, copies, streamed=description.streamed)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """Bytes of the arrays that a fit holds in addition to the given samples.

        Args:
            shape: Shape of the samples.

        Returns:
            The bytes of the normalised samples and of what is remembered about each over several
            passes.
        """
        return shape[0] * (4 * math.prod(shape[1:]) + 32 * self.num_clusters + 64)

    def coarsening(self, *sides: int) -> int:
        """The factor by which samples are coarsened for restarts.

        Args:
            *sides: Rows and columns of the images, or length of the series.

        Returns:
            A whole number; by default 1, which leaves the samples as they are.
        """
        return 1

    def finished(self, outcome: Outcome) -> Outcome:
        """Adds what the model knows to the outcome of its problem.

        Args:
            outcome: The outcome; its extras include the results of the closed-form stages.

        Returns:
            The outcome of the fit.
        """
        return outcome

    @in_own_mesh
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
            samples: Images, as an array-like of shape `(n, height, width, channels)` or `(n,
                height, width)` with intensities in [0, 1] or of 8 or 16 bits; or shapes `(n,
                landmarks, dims)`, with the same landmarks in the same order, in any units.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            prototypes: Images to start from, one per cluster, for image methods that support it. If
                the model registers images, these must be registered.
            assignments: A cluster for each sample to start from, for methods that support it.
            sample_weight: Weights of the samples, or None for ones. A sample of weight 2 counts as
                two equal ones. Methods for shapes and methods with a graph leave out samples of
                weight 0, and assign them at the end like new ones. In a graph, an edge's affinity
                is multiplied by the weights of both ends, while neighbours and scales do not depend
                on weights.
            chunk_size: Samples per chunk and device, which limits the memory used; chosen
                automatically if None.
            callback: Called after every chunk or window of steps; an exception raised in it stops
                the fit. None shows a progress bar on a terminal and in a notebook with ipywidgets,
                and nothing otherwise; `diffclust.solvers.ignore` does nothing.
            snapshots: Where the fit saves its state as it goes, and from where it resumes if it
                finds a saved state; see `diffclust.storage.SnapshotFolder`.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for the
                default device alone. With several processes, each passes its own samples, and the
                result covers all of them.

        Returns:
            The result; with several restarts, the one with the lowest loss.

        Raises:
            ValueError: If an argument is invalid.
            FitError: If the fit breaks down.
        """
        key = checked_key(_validation.not_traced(key, "key"))
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
        size, share = chunk_size or model.chunk_size_for(description), description.largest_share
        data = dataclasses.replace(data, chunk_size=limited_chunk_size(size, share))
        with on_terminal(callback, model.num_restarts) as shown:

            def assign(outcome: Outcome, rest: Data) -> Assignment:
                return model.assign(outcome, model.preprocess(rest)[0], callback=shown)

            stages = (model.preprocess, selection.select, *model.compose(description, start))
            about = {} if snapshots is None else identity_of(model, given, start)
            outcome = run(stages, data, key, callback=shown, snapshots=snapshots, about=about)
            outcome = selection.completed(model.finished(outcome), assign, model.nonconformity)
            outcome = dataclasses.replace(outcome, figures={**tried, **outcome.figures})
        warn_if_risen(outcome)
        return Result(model, shape_of(description.sample), outcome, shape_of(given_sample))

    def prepared_description(self, description: Description) -> Description:
        """Describes the samples as they are clustered.

        Args:
            description: What is known about the validated samples.

        Returns:
            The description.
        """

        def one(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(self.registered_shape(leaf.shape), leaf.dtype)

        return dataclasses.replace(description, sample=jax.tree.map(one, description.sample))

    def _checked_start(
        self, description: Description, prototypes: Any, groups: np.ndarray | None
    ) -> Start:
        """Checks the starting point of a fit."""
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
            is_any = method.sample_kind == "any"
            prototypes = _validation.images(prototypes, "prototypes", any_channels=is_any)
        given = self.without_registration.prepared(prototypes)
        shapes = [leaf.shape for leaf in jax.tree.leaves(given)]
        if shapes != expected:
            wanted, got = (", ".join(map(str, each)) for each in (expected, shapes))
            raise ValueError(f"prototypes must have shape {wanted}, not {got}")
        return "prototypes", jax.tree.map(jnp.asarray, given)

    @abc.abstractmethod
    def template(self, sample: PyTree) -> Learned:
        """A tree of the learned arrays, with the right shapes and arbitrary values.

        Args:
            sample: Shape and floating dtype of one sample, as `jax.ShapeDtypeStruct`s.

        Returns:
            The tree that `load` fills.
        """

    def solver_for(self, outcome: Outcome, data: Data, /) -> tuple[AbstractSolver | None, Data]:
        """The solver that assigns new samples, and the samples in the form it takes.

        Args:
            outcome: The outcome of a fit of this model.
            data: Prepared samples of the fitted shape.

        Returns:
            A solver and data; by default no solver, for models that find clusters in another way.
        """
        return None, data

    def assign(self, outcome: Outcome, data: Data, /, *, callback: Callback = ignore) -> Assignment:
        """Assigns new, prepared samples to the fitted clusters, which do not change.

        Args:
            outcome: The outcome of a fit of this model.
            data: Samples of the fitted shape.
            callback: Called after every chunk.

        Returns:
            Clusters, distances, margins and params. By default, every sample is assigned to the
            cluster in which its energy, or score, is lowest.
        """
        solver, data = self.solver_for(outcome, data)
        assert solver is not None
        return assign_samples(solver, outcome.learned, data, callback=callback)

    def nonconformity(self, outcome: Outcome, /) -> Float[np.ndarray, " fitted"]:
        """Measures how poorly the fitted samples conform to their clusters.

        Args:
            outcome: The outcome of a fit of this model.

        Returns:
            A number for each sample, on the scale of `Assignment.nonconformity`; by default the
            distance.
        """
        return outcome.assignment.distances

    def energies(
        self, outcome: Outcome, data: Data, /, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """Computes the energies of prepared samples in every cluster.

        Args:
            outcome: The outcome of a fit of this model.
            data: Samples of the fitted shape.
            callback: Called after every chunk.

        Returns:
            The values that decide the assignment: penalised squared distances, or negative
            log-likelihoods; for a mixture, with -log π added.

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
        """Moves prepared samples by their alignment.

        Args:
            outcome: The outcome of a fit of this model.
            samples: Samples of the fitted shape.
            params: The alignment of each sample.

        Returns:
            The aligned samples.

        Raises:
            ValueError: If the model moves prototypes instead of samples.
        """


def shape_of(sample: PyTree) -> tuple[Any, ...]:
    """The shape of one sample; for a tree, the shapes of its leaves.

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
        sample_shape: Shape of one sample as it was clustered, such as the height, width and
            channels of an image; for a tree, the shapes of its parts.
        outcome: What the solver returned.
        given_shape: Shape of one sample as given, which registration may change. None for results
            saved before this was recorded.
    """

    model: AbstractModel
    sample_shape: tuple[Any, ...] = eqx.field(static=True)
    outcome: Outcome
    given_shape: tuple[Any, ...] | None = eqx.field(static=True, default=None)

    def __str__(self) -> str:
        """One line: the method, the sizes of the clusters, the loss, the stability if known."""
        counts, stability = self.counts, self.outcome.figures.get("stability")
        line = (
            f"{self.model.method}: {counts.sum()} samples in {len(counts)} clusters of "
            f"{counts.min()} to {counts.max()}, {self.model.criterion} {self.loss:.6g}"
        )
        return line if stability is None else f"{line}, stability {stability:.2f}"

    def _repr_html_(self) -> str:
        """What a notebook shows: the line of `str`, and the prototypes if they have a picture."""
        # Looked up late, as pictures are made by a package that needs this one.
        return importlib.import_module("diffclust.plotting").result_html(self)

    @property
    def sample_kind(self) -> Literal["image", "shape", "series", "any"]:
        """The kind of sample that was clustered; of user-defined models, by the samples' shape.

        For these models, samples with three axes are images and samples with two are series; trees
        are neither.
        """
        kind, shape = self.model.descriptor.sample_kind, self.sample_shape
        axes = len(shape) if all(isinstance(side, int) for side in shape) else 0
        seen: dict[int, Literal["image", "series"]] = {3: "image", 2: "series"}
        return seen.get(axes, "any") if kind == "any" else kind

    @property
    def prototypes(self) -> PyTree:
        """The prototypes, on the scale that the family works on; for Gaussians, the means.

        An array with a leading cluster axis; if samples are trees, a tree of such arrays.
        """
        return jax.tree.map(np.asarray, exemplar_of(self.outcome.learned.clusters.prototype))

    @property
    def variances(self) -> np.ndarray | None:
        """Variances of the prototypes' pixels, or (co)variances of their landmarks, or None.

        In the density of a mixture of images the square of `min_deviation` is added to them.
        """
        variances = self.model.prototype_variances(self.outcome.learned.clusters.prototype)
        return None if variances is None else np.asarray(variances)

    @property
    def assignments(self) -> np.ndarray:
        """Cluster of each sample, `(n,)`."""
        return self.outcome.assignment.clusters

    @property
    def distances(self) -> np.ndarray:
        """Distance of each sample to its cluster, as used for the assignment, `(n,)`.

        For models with prototypes this is the penalised invariant distance; in a spectral embedding
        it is the distance to the centre.
        """
        return self.outcome.assignment.distances

    @property
    def margins(self) -> np.ndarray:
        """Distance to the second-best cluster minus the distance to the best, `(n,)`."""
        return self.outcome.assignment.margins

    @property
    def loss(self) -> float:
        """The loss that the fit minimised: the penalised distortion, or the normalised cut."""
        return self.outcome.loss

    @property
    def history(self) -> tuple[float, ...]:
        """The loss after every pass of the best restart, at the finest resolution reached.

        A spectral method is solved directly and has a single entry.
        """
        return self.outcome.history

    @property
    def counts(self) -> np.ndarray:
        """Number of samples in each cluster, `(clusters,)`."""
        return np.bincount(self.assignments, minlength=self.model.num_clusters)

    @in_own_mesh
    def predict(
        self, samples: Any, /, *, callback: Callback = ignore, mesh: Mesh | None = None
    ) -> Assignment:
        """Assigns new samples; the prototypes do not change.

        Args:
            samples: Samples of the fitted shape.
            callback: Called after every chunk.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for the
                default device alone. With several processes, each passes its own samples, and the
                result covers all of them.

        Returns:
            Clusters, distances, margins and params.

        Raises:
            ValueError: If the samples differ in shape from those fitted, or cannot be clustered.
        """
        given = Data(samples, None, self.outcome.chunk_size, mesh)
        with given.raise_everywhere():
            data = dataclasses.replace(given, samples=self._checked(samples))
        return self.model.assign(self.outcome, data, callback=callback)

    def energies(
        self, samples: Any, /, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """Computes the energies of new samples in every cluster, not only in the best one.

        Args:
            samples: Samples of the fitted shape.
            callback: Called after every chunk.

        Returns:
            The values that decide the assignment: penalised squared distances, or negative
            log-likelihoods.

        Raises:
            ValueError: If the samples differ in shape from those fitted, or if the model does not
                compare samples with clusters, as a spectral model.
        """
        data = Data(self._checked(samples), None, self.outcome.chunk_size)
        return self.model.energies(self.outcome, data, callback=callback)

    def registered(self, samples: Any, /) -> Images:
        """Samples as they are clustered: registered, if the model registers images.

        Args:
            samples: Samples of the fitted shape.

        Returns:
            Samples of `sample_shape`; images that are read as needed stay so.

        Raises:
            ValueError: If the samples differ in shape from those fitted, or cannot be clustered.
        """
        return self.model.in_prototype_frame(self._checked(samples))

    def align(self, samples: Any, params: Any, /) -> Float[np.ndarray, "n ..."]:
        """Moves samples onto their prototypes.

        If the model moves prototypes of images, each image is moved back by the inverses of the
        coordinate maps that moved its prototype.

        Args:
            samples: Samples of the fitted shape.
            params: Their params, as in `Assignment.params`.

        Returns:
            The aligned samples, intensities unscaled.

        Raises:
            ValueError: If the arguments do not match each other, or if a model that would move
                prototypes has no transforms.
        """
        array, fitted = self._checked(samples), self.outcome.assignment.params
        params, count = np.asarray(params, fitted.dtype), jax.tree.leaves(array)[0].shape[0]
        _validation.shaped(params, (count, fitted.shape[1]), "params", "one row for each sample")
        return self.model.aligned(self.outcome, array, params)

    def summary(self) -> dict[str, Any]:
        """The figures of the fit, in types that JSON can hold."""
        return {"method": self.model.method, **self.outcome.summary()}

    def validated(self, samples: Any, /) -> Any:
        """Checks that samples are of the fitted kind and shape; they are not registered.

        Args:
            samples: Samples as given to `predict`.

        Returns:
            The samples as arrays.

        Raises:
            ValueError: If they differ from those fitted.
        """
        array = self.model.validated(samples)
        given = Data(array).description
        shape = shape_of(self.model.prepared_description(given).sample)
        if shape != tuple(self.sample_shape):
            # Samples as given, not as registration leaves them.
            fitted = self.sample_shape if self.given_shape is None else self.given_shape
            asked = "samples must have the fitted shape"
            if self.sample_kind == "shape":
                asked = "shapes must have as many landmarks and dimensions as the fitted ones:"
            raise ValueError(
                f"{asked} {tuple(fitted)}, not {shape_of(given.sample)}; bring them to that first"
            )
        return array

    def _checked(self, samples: Any) -> Any:
        return self.model.preprocessed(self.validated(samples))
