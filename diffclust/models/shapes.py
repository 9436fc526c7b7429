"""K-means of shapes: landmarks that are Gaussians, under Fisher–Rao and Wasserstein distances."""

import dataclasses
from typing import Any, Literal, get_args, get_origin

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from diffclust import _validation
from diffclust.alignment import AbstractAligner, InheritedVariances, NoAlignment
from diffclust.distances import AbstractDissimilarity, LandmarkNegativeLogLikelihood
from diffclust.distances.landmarks import LandmarkDistance
from diffclust.methods import Words
from diffclust.models.base import AbstractModel, Result
from diffclust.models.counted import counted_samples
from diffclust.models.registration import Registered, middle, moved, register, register_to
from diffclust.models.shape_distances import between_gaussians, floored, spread_about
from diffclust.objectives import LandmarkEnergy
from diffclust.parallel import check_mesh, share
from diffclust.processes import agreed, joined_rows, own_rows, row_counts, together
from diffclust.prototypes import Clusters, FrechetShapes, Learned, MeanShapes
from diffclust.prototypes.landmarks import Spread, Variances
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
from diffclust.types import Key, Scalar

ShapeDistance = Literal[
    "likelihood", "fisher-rao", "wasserstein", "squared-wasserstein", "printed-wasserstein"
]

_DISTANCE_WORDS = {
    "fisher-rao": "Fisher–Rao distance to the mean shape",
    "wasserstein": "Wasserstein distance to the mean shape",
    "squared-wasserstein": "squared Wasserstein distance to the mean shape",
    "printed-wasserstein": "Wasserstein distance to the mean shape, as the paper prints it",
}

_DESCRIPTIONS = {
    "similarity": "generalised Procrustes analysis takes out place, rotation and scale",
    "rigid": "generalised Procrustes analysis takes out place and rotation, and keeps sizes",
    "none": "none, shapes are compared where they lie",
    "round": "one that all landmarks of all clusters share",
    "per_landmark": "of each landmark, the same in all clusters",
    "per_cluster": "of each landmark in each cluster",
    "diagonal": "each coordinate by itself",
    "full": "coordinates together",
}


class ShapeKMeans(AbstractModel):
    """K-means of shapes given by landmarks, each of them a Gaussian.

    Shapes are registered by generalised Procrustes analysis, then assigned to the mean shape that
    is nearest. Variances that all clusters share make the paper's Type I, variances of each
    cluster its Type II, in which a shape carries the variances of the cluster it is in. That has
    no objective, and its distances cannot be compared between runs; the likelihood can.

    Attributes:
        num_clusters: K.
        distance: Between the Gaussians of a shape's landmarks and a centre's; `"likelihood"` is
            no distance but the classification likelihood, in which shapes are points.
        variances: What has variances of its own: one for all landmarks (`"round"`), every
            landmark and coordinate, or these in every cluster.
        covariances: Whether coordinates of a landmark vary by themselves, or together.
        norm: Whether a distance of shapes is the sum over landmarks (Eq. 13) or the root of the
            sum of squares (Eq. 14); the likelihood has no such choice.
        centres: Means of coordinates, as the paper argues, or Fréchet means: the Gaussians whose
            squared distances to the shapes' are least. Under a Wasserstein distance, and for the
            likelihood, these are the same.
        registration: What is taken out before: scale, rotation and place; the latter two; nothing.
            Registered shapes have the principal axes of their mean as coordinates.
        reflection: Whether mirrored shapes are the same.
        seeding: How runs begin: with shapes assigned at random (the paper's), or k-means++.
        prior: With `"per_cluster"` only: variances of a cluster are shrunk towards those within
            all clusters, as if so many more shapes had them. None takes 0 for distances, as the
            paper does, and the number of dimensions plus two for the likelihood, which a cluster
            of one shape would make infinite. It is no part of the loss.
        min_variance: The least variance, as a fraction of the mean variance of all shapes.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        max_passes: Most passes of a run.

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering; Fraley and Raftery,
        Bayesian regularization for normal mixture estimation (2007), for the prior's size.
    """

    num_clusters: int = eqx.field(static=True)
    distance: ShapeDistance = eqx.field(static=True, default="likelihood", kw_only=True)
    variances: Variances = eqx.field(static=True, default="per_cluster", kw_only=True)
    covariances: Literal["diagonal", "full"] = eqx.field(
        static=True, default="diagonal", kw_only=True
    )
    norm: Literal["l1", "l2"] = eqx.field(static=True, default="l1", kw_only=True)
    centres: Literal["mean", "frechet"] = eqx.field(static=True, default="mean", kw_only=True)
    registration: Registered = eqx.field(static=True, default="similarity", kw_only=True)
    reflection: bool = eqx.field(static=True, default=False, kw_only=True)
    seeding: Literal["random", "k-means++"] = eqx.field(static=True, default="random", kw_only=True)
    prior: float | None = eqx.field(static=True, default=None, kw_only=True)
    min_variance: float = eqx.field(static=True, default=1e-3, kw_only=True)
    num_restarts: int = eqx.field(static=True, default=20, kw_only=True)
    max_passes: int = eqx.field(static=True, default=100, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        for name in ("num_clusters", "num_restarts", "max_passes"):
            _validation.count(getattr(self, name), name)
        _validation.positive(0.0 if self.prior is None else self.prior, "prior", least=0)
        for field in dataclasses.fields(self):
            choices, value = get_args(field.type), getattr(self, field.name)
            if get_origin(field.type) is Literal and value not in choices:
                listed = ", ".join(map(repr, choices))
                raise ValueError(f"{field.name} must be one of {listed}, not {value!r}")
        if self._has_frechet_means and (self.covariances == "full" or self.variances == "round"):
            raise ValueError(
                "centres='frechet' needs variances of each landmark and diagonal covariances, "
                f"not variances={self.variances!r} and covariances={self.covariances!r}"
            )
        if not 0.0 < self.min_variance < 1.0:
            raise ValueError(f"min_variance must lie between 0 and 1, not {self.min_variance}")

    @property
    def words(self) -> Words:
        """Those of the likelihood, or of the distance."""
        words = self.descriptor.words
        if self.distance == "likelihood":
            return words
        return Words(
            distance=_DISTANCE_WORDS[self.distance],
            empty="no shape is nearest to this mean shape",
            noun=words.noun,
            prototype=words.prototype,
        )

    def describe(self) -> dict[str, str]:
        """How shapes are registered, and what varies."""
        mirrored = "; mirrored shapes are the same" if self.reflection else ""
        variances = f"{_DESCRIPTIONS[self.variances]}, {_DESCRIPTIONS[self.covariances]}"
        return {
            "Registration": _DESCRIPTIONS[self.registration] + mirrored,
            "Variances": variances,
        }

    @property
    def _has_frechet_means(self) -> bool:
        """Whether centres are other than means of coordinates."""
        return self.centres == "frechet" and self.distance == "fisher-rao"

    def dissimilarity(self) -> AbstractDissimilarity:
        """What lies between a shape and a centre."""
        if self.distance == "likelihood":
            return LandmarkNegativeLogLikelihood()
        variances = "full" if self.covariances == "full" else self.variances
        return LandmarkDistance(between_gaussians(self.distance, variances), norm=self.norm)

    def aligner(self) -> AbstractAligner:
        """None; in Type II shapes carry the variances of their clusters."""
        type_two = self.variances == "per_cluster" and self.distance != "likelihood"
        return InheritedVariances() if type_two else NoAlignment()

    def spread(
        self,
        registered: Float[Array, "n landmarks dims"],
        reference: Float[Array, "landmarks dims"],
        weight: Float[Array, " n"] | None = None,
    ) -> Spread:
        """Variances or covariances of all shapes about their mean.

        Args:
            registered: Registered shapes.
            reference: Their mean.
            weight: How much each counts, or None for all alike.

        Returns:
            What clusters begin with.
        """
        full, alike = self.covariances == "full", self.variances == "round"
        return spread_about(
            reference, registered, weight, full=full, alike=alike, least=self.min_variance
        )

    def family(
        self, reference: Float[Array, "landmarks dims"], spread: Spread
    ) -> MeanShapes | FrechetShapes:
        """How centres and variances follow from shapes.

        Args:
            reference: The mean of all shapes.
            spread: Variances or covariances of all shapes, from `spread`.

        Returns:
            The family.
        """
        dims = reference.shape[-1]
        of_points = self.distance == "likelihood"
        prior = self.prior if self.prior is not None else (dims + 2.0 if of_points else 0.0)
        means = MeanShapes(
            reference,
            spread,
            self.floor(spread),
            variances=self.variances,
            # The likelihood of a common variance is greatest at that within clusters.
            pooling="within" if of_points else "total",
            prior=prior,
        )
        return FrechetShapes(means) if self._has_frechet_means else means

    def floor(self, spread: Spread) -> Scalar:
        """The least variance.

        Args:
            spread: Variances or covariances of all shapes, from `spread`.

        Returns:
            A variance, in squared units of the registered shapes.
        """
        full = self.covariances == "full"
        own = jnp.diagonal(spread, axis1=-2, axis2=-1) if full else spread
        return self.min_variance * jnp.mean(own)

    def solver(self, reference: Float[Array, "landmarks dims"], spread: Spread) -> Lloyd:
        """The composition; it may be traced, so that many data sets are one `jax.vmap`.

        Args:
            reference: The mean of all shapes.
            spread: Variances or covariances of all shapes, from `spread`.

        Returns:
            Energy, aligner and prototype family under Lloyd's algorithm.
        """
        energy = LandmarkEnergy(self.dissimilarity())
        return Lloyd(energy, self.aligner(), self.family(reference, spread))

    def validated(self, shapes: Any) -> np.ndarray:
        """See `AbstractModel.validated`."""
        return _validation.landmarks(shapes)

    def fit(
        self,
        shapes: Any,
        *,
        key: Key,
        assignments: Any = None,
        sample_weight: Any = None,
        chunk_size: int | None = None,
        callback: Callback = ignore,
        snapshots: Snapshots | None = None,
        mesh: Mesh | None = None,
    ) -> Result:
        """Clusters shapes.

        Args:
            shapes: Anything array-like of shape `(n, landmarks, dims)`: the same landmarks in the
                same order, in any units.
            key: Random key, `jax.random.key(seed)`; the same key gives the same result.
            assignments: A cluster for each shape to start from; then there is one run.
            sample_weight: Weights of the shapes, or None for ones. A shape of weight 2 counts as
                two equal ones everywhere: in the mean to which shapes are registered, in the
                variances, the centres and the loss. One of weight 0 is left out, and assigned
                in the end as a new one.
            chunk_size: Shapes a chunk, and a device, which bounds the memory; chosen where it is
                not given.
            callback: Told of every chunk; an exception raised in it stops the fit.
            snapshots: Where the fit saves its state as it goes, and goes on from where it finds
                one; see `diffclust.snapshots.SnapshotFolder`.
            mesh: Devices that share every chunk, from `diffclust.parallel.data_mesh`; None for
                the default device alone. Shapes are registered on the default device. Over several
                processes, each gives its own shapes, and the result is of all.

        Returns:
            The result; of several restarts, the one of least loss. Its prototypes are the mean
            shapes, in the coordinates of the registered shapes (`result.align`).

        Raises:
            ValueError: If an argument is not what it should be.
            FitError: If a loss is not a number.
        """
        check_mesh(mesh)
        with together(mesh):
            own = self.validated(shapes)
        counted = counted_samples(sample_weight, own, self.num_clusters, "shape", mesh)
        part, weight = counted.of(own), counted.weight
        here = own_rows(row_counts(len(part), mesh))
        # They are small, and registered to each other.
        array = joined_rows(part, mesh)
        if chunk_size is not None:
            _validation.count(chunk_size, "chunk_size")
        if len(array) == 1:
            of_what = "shape" if counted.every is None else "shape of positive weight"
            raise ValueError(f"one {of_what} has no variance to be found; give at least 2")
        registered, consensus, params, converged = agreed(
            register(array, self.registration, self.reflection, weight), mesh
        )
        reference = jnp.asarray(consensus)
        each = None if weight is None else jnp.asarray(weight, dtype=reference.dtype)
        initial = self.spread(jnp.asarray(registered), reference, each)
        # What rounding alone leaves between copies of one shape is no spread.
        rounding = 100.0 * float(jnp.finfo(initial.dtype).eps) ** 2
        if not float(jnp.max(initial)) > rounding * float(jnp.mean(reference**2)):
            raise ValueError("all shapes are the same once they are registered; give others")
        solver = self.solver(reference, initial)
        copies = solver.aligner.working_copies(self.num_clusters) + 2 * self.num_clusters
        if chunk_size is None:
            chunk_size = default_chunk_size(array[0], share(len(part), mesh), copies)
        plan = Plan(
            self.num_clusters,
            (),
            self.num_restarts,
            Stopping(self.max_passes, 0.0),
            Moves(rounds=0),
            1,
            chunk_size,
            seeding=self.seeding,
            mesh=mesh,
        )
        start: Start = None
        if assignments is not None:
            groups = counted.groups(assignments, self.num_clusters, "shape")
            start = ("assignments", jnp.asarray(groups))
        outcome = fit_prototypes(
            solver,
            plan,
            registered[here],
            None if weight is None else weight[here],
            key=key,
            start=start,
            callback=callback,
            snapshots=snapshots,
        )
        found = dataclasses.replace(outcome.assignment, params=params)
        floor = float(self.floor(initial))
        spread = np.asarray(outcome.learned.clusters.prototype.spread)
        # Variances that all clusters share are counted once.
        told = spread if self.variances == "per_cluster" else spread[:1]
        figures = {
            "floor": floor,
            "floored": float(floored(told, floor)),
            "registration_converged": float(converged),
        }
        outcome = dataclasses.replace(
            outcome,
            assignment=found,
            extras={
                "consensus": consensus,
                "variances": np.asarray(initial),
                "origin": middle(array, weight),
            },
            figures=figures,
        )
        outcome = counted.completed(outcome, own, self.assign, callback)
        return Result(model=self, sample_shape=array.shape[1:], outcome=outcome)

    def blank(self, sample_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """Mean shapes and variances; see `AbstractModel.blank`."""
        full = (*sample_shape, sample_shape[1]) if self.covariances == "full" else sample_shape
        family = self.family(jnp.zeros(sample_shape, dtype), jnp.ones(full, dtype))
        shapes = jnp.zeros((self.num_clusters, *sample_shape), dtype)
        return Learned(
            Clusters(jax.vmap(family.begin)(shapes), jnp.zeros((self.num_clusters, 0), dtype))
        )

    def assign(
        self,
        outcome: Outcome,
        shapes: np.ndarray,
        *,
        callback: Callback = ignore,
        mesh: Mesh | None = None,
    ) -> Assignment:
        """See `AbstractModel.assign`: each shape is registered to the mean of those fitted.

        A new shape is in no cluster yet, so that it carries the variances of each centre that it
        is compared to.
        """
        registered, params, solver = self._registered(outcome, shapes)
        found = assign_samples(
            solver,
            outcome.learned,
            registered,
            chunk_size=outcome.chunk_size,
            callback=callback,
            mesh=mesh,
        )
        return dataclasses.replace(found, params=joined_rows(params, mesh))

    def _registered(
        self, outcome: Outcome, shapes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Lloyd]:
        """New shapes registered to the mean of those fitted, how, and what compares them."""
        consensus, origin = (np.asarray(outcome.extras[n]) for n in ("consensus", "origin"))
        registered, params = register_to(
            shapes, consensus, origin, self.registration, self.reflection
        )
        variances = np.asarray(outcome.extras["variances"])
        return registered, params, self.solver(jnp.asarray(consensus), jnp.asarray(variances))

    def energies(
        self, outcome: Outcome, shapes: np.ndarray, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """See `AbstractModel.energies`; shapes are registered as by `assign`."""
        registered, _, solver = self._registered(outcome, shapes)
        return all_energies(
            solver, outcome.learned, registered, chunk_size=outcome.chunk_size, callback=callback
        )

    def aligned(self, outcome: Outcome, shapes: np.ndarray, params: np.ndarray) -> np.ndarray:
        """The registered shapes; see `AbstractModel.aligned`."""
        del outcome
        return moved(shapes, params).astype(jnp.result_type(float))
