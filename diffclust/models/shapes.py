"""K-means of shapes with Gaussian landmarks, under Fisher–Rao and Wasserstein distances."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from diffclust import _validation
from diffclust.alignment import AbstractAligner, ClusterVariances, NoAlignment
from diffclust.distances import AbstractDissimilarity, LandmarkNegativeLogLikelihood
from diffclust.distances.landmarks import LandmarkDistance, between_gaussians
from diffclust.energies import LandmarkEnergy
from diffclust.methods import Words
from diffclust.models.base import AbstractModel
from diffclust.models.settings import PassSettings, PublishedSettings
from diffclust.parallel import Data, Description
from diffclust.prototypes import FrechetShapes, LandmarkGaussians, Learned, MeanShapes
from diffclust.prototypes.base import Covariance
from diffclust.prototypes.shapes import Variances, covariance_about, num_clipped
from diffclust.registration import apply_similarities, common_centroid, register, register_to
from diffclust.registration.shapes import Registered
from diffclust.solvers import (
    Assignment,
    Callback,
    Lloyd,
    LloydPlan,
    LloydProblem,
    Outcome,
    SplitMerge,
    Stages,
    Start,
    Stopping,
    assign_samples,
    ignore,
)
from diffclust.solvers.lloyd_run import learned_template
from diffclust.types import Scalar

ShapeDistance = Literal[
    "likelihood",
    "fisher-rao",
    "wasserstein",
    "squared-wasserstein",
    "printed-wasserstein",
    "alpha-divergence",
]

_DISTANCE_WORDS = {
    "fisher-rao": "Fisher–Rao distance to the mean shape",
    "wasserstein": "Wasserstein distance to the mean shape",
    "squared-wasserstein": "squared Wasserstein distance to the mean shape",
    "printed-wasserstein": "Wasserstein distance to the mean shape, as the paper prints it",
    "alpha-divergence": "α-divergence from the mean shape",
}

_DESCRIPTIONS = {
    "similarity": "generalised Procrustes analysis takes out place, rotation and scale",
    "rigid": "generalised Procrustes analysis takes out place and rotation, and keeps sizes",
    "none": "none, shapes are compared where they lie",
    "isotropic": "one that all landmarks of all clusters share",
    "per_landmark": "of each landmark, the same in all clusters",
    "per_cluster": "of each landmark in each cluster",
    "diagonal": "each coordinate by itself",
    "full": "coordinates together",
}


class ShapeKMeans(PublishedSettings, PassSettings, AbstractModel):
    """K-means of shapes given by landmarks, each of which is a Gaussian.

    Shapes are registered by generalised Procrustes analysis, then assigned to the nearest mean
    shape. With variances that all clusters share this is the paper's Type I. With variances for
    each cluster it is Type II, in which a shape carries the variances of its cluster. Type II has
    no objective, so its distances cannot be compared between runs; the likelihood can.

    Attributes:
        distance: The distance between the Gaussians of a shape's landmarks and those of a centre.
            `"likelihood"` is the classification likelihood rather than a distance; shapes are
            points in it. An `"alpha-divergence"` is not symmetric unless α is 0.
        alpha: Parameter of the `"alpha-divergence"`: -1 is the Kullback-Leibler divergence of a
            shape from a centre, and 1 the same with the two exchanged. Between these the divergence
            is bounded: it is nearly the same for all groups that are far apart, and another
            partition than the right one may have a lower loss.
        variances: What has its own variances: one variance for all landmarks (`"isotropic"`), one
            for every landmark and coordinate, or the latter for every cluster.
        covariances: Whether the coordinates of a landmark vary independently or jointly.
        shape_variances: Which variances a shape has in Type II: those of its `"own"` cluster, as in
            the paper, or of the `"candidate"` that it is compared with.
        norm: Whether the distance of shapes is the sum of the distances of their landmarks (`"l1"`)
            or the root of the sum of their squares (`"l2"`); not used for the likelihood.
        centres: Means of coordinates, as in the paper, or Fréchet means: the Gaussians that
            minimise the squared distances to those of the shapes. For a Wasserstein distance and
            for the likelihood the two are the same.
        registration: What is removed first: scale, rotation and place; rotation and place; or
            nothing. The coordinates of registered shapes lie along the principal axes of their
            mean.
        reflection: Whether mirrored shapes count as the same.
        seeding: How runs start: with shapes assigned at random (as in the paper), or by k-means++.
        prior: Used only with `"per_cluster"`: a cluster's variances are shrunk towards those within
            all clusters, as if this many more shapes had them. None uses 0 for distances, as in the
            paper, and the number of dimensions plus two for the likelihood, which a cluster of one
            shape would otherwise make infinite. The prior is not part of the loss.
        min_variance: The lowest variance allowed, as a fraction of the mean variance of all shapes.
        published: The paper's Type II algorithm, with one run from a random assignment. The paper
            has no minimum variance, and does not say how many runs it makes or whether registration
            removes scale: here it is one run, and scale is removed. `variances="per_landmark"` is
            Type I (dd1, or dw with `distance="wasserstein"`), and `"isotropic"` its isotropic
            Gaussians (dr).

    References:
        Gattone et al., On the geodesic distance in shapes K-means clustering, Eqs. 13 and 14
        (norm); Fraley and Raftery, Bayesian regularization for normal mixture estimation (2007),
        for the prior's size.
    """

    distance: ShapeDistance = eqx.field(static=True, default="likelihood", kw_only=True)
    variances: Variances = eqx.field(static=True, default="per_cluster", kw_only=True)
    covariances: Literal["diagonal", "full"] = eqx.field(
        static=True, default="diagonal", kw_only=True
    )
    alpha: float = eqx.field(static=True, default=0.0, kw_only=True, metadata={"least": -1})
    shape_variances: Literal["own", "candidate"] = eqx.field(
        static=True, default="own", kw_only=True
    )
    norm: Literal["l1", "l2"] = eqx.field(static=True, default="l1", kw_only=True)
    centres: Literal["mean", "frechet"] = eqx.field(static=True, default="mean", kw_only=True)
    registration: Registered = eqx.field(static=True, default="similarity", kw_only=True)
    reflection: bool = eqx.field(static=True, default=False, kw_only=True)
    seeding: Literal["random", "k-means++"] = eqx.field(static=True, default="random", kw_only=True)
    prior: float | None = eqx.field(static=True, default=None, kw_only=True)
    min_variance: float = eqx.field(static=True, default=1e-3, kw_only=True)
    num_restarts: int = eqx.field(static=True, default=20, kw_only=True)
    least_size: ClassVar[int] = 3
    published: ClassVar = {
        "distance": "fisher-rao",
        "prior": 0.0,
        "min_variance": 1e-6,
        "num_restarts": 1,
    }

    def __check_init__(self):
        """Refuses invalid settings."""
        if self._has_frechet_means and (
            self.covariances == "full" or self.variances == "isotropic"
        ):
            raise ValueError(
                "centres='frechet' needs variances of each landmark and diagonal covariances, "
                f"not variances={self.variances!r} and covariances={self.covariances!r}"
            )
        if self.centres == "frechet" and self.distance == "alpha-divergence":
            raise ValueError(
                "centres='frechet' is not known of distance='alpha-divergence'; leave centres at "
                "'mean'"
            )
        if self.reflection and not self.registers:
            raise ValueError(
                "reflection=True needs registration: with registration='none' shapes are compared "
                "where they lie, and none is mirrored"
            )
        if not -1.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha must lie between -1 and 1, not {self.alpha}")
        if not 0.0 < self.min_variance < 1.0:
            raise ValueError(f"min_variance must lie between 0 and 1, not {self.min_variance}")

    @property
    def registers(self) -> bool:
        """Whether registration removes anything."""
        return self.registration != "none"

    @property
    def stopping(self) -> Stopping:
        """A run stops after `max_passes`, or when no shape changes its cluster."""
        return Stopping(self.max_passes, 0.0)

    def prototype_variances(self, prototype: LandmarkGaussians, /) -> Covariance:
        """Variances or covariances of the landmarks of mean shapes."""
        return prototype.covariance

    @property
    def words(self) -> Words:
        """The words for the likelihood, or for the distance."""
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
        """Describes the registration of shapes, and their variances."""
        mirrored = "; mirrored shapes are the same" if self.reflection else ""
        variances = f"{_DESCRIPTIONS[self.variances]}, {_DESCRIPTIONS[self.covariances]}"
        return {"Registration": _DESCRIPTIONS[self.registration] + mirrored, "Variances": variances}

    @property
    def _has_frechet_means(self) -> bool:
        """Whether centres are something other than means of coordinates."""
        return self.centres == "frechet" and self.distance == "fisher-rao"

    def dissimilarity(self) -> AbstractDissimilarity:
        """Returns the dissimilarity of a shape and a centre."""
        if self.distance == "likelihood":
            return LandmarkNegativeLogLikelihood()
        variances = "full" if self.covariances == "full" else self.variances
        between = between_gaussians(self.distance, variances, self.alpha)
        return LandmarkDistance(between, norm=self.norm)

    def aligner(self) -> AbstractAligner:
        """Aligns nothing; in Type II, shapes carry the variances of their clusters."""
        type_two = self.variances == "per_cluster" and self.distance != "likelihood"
        return ClusterVariances() if type_two and self.shape_variances == "own" else NoAlignment()

    def initial_covariance(
        self,
        registered: Float[Array, "n landmarks dims"],
        reference: Float[Array, "landmarks dims"],
        weight: Float[Array, " n"] | None = None,
    ) -> Covariance:
        """Variances or covariances of all shapes about their mean.

        Args:
            registered: Registered shapes.
            reference: Their mean.
            weight: How much each counts, or None for all alike.

        Returns:
            The variances that clusters start with.
        """
        full, alike = self.covariances == "full", self.variances == "isotropic"
        return covariance_about(
            reference, registered, weight, full=full, alike=alike, least=self.min_variance
        )

    def family(
        self, reference: Float[Array, "landmarks dims"], covariance: Covariance
    ) -> MeanShapes | FrechetShapes:
        """The prototype family: centres and variances of shapes.

        Args:
            reference: The mean of all shapes.
            covariance: Variances or covariances of all shapes, from `initial_covariance`.

        Returns:
            The family.
        """
        dims = reference.shape[-1]
        of_points = self.distance == "likelihood"
        prior = self.prior if self.prior is not None else (dims + 2.0 if of_points else 0.0)
        means = MeanShapes(
            reference,
            covariance,
            self.floor(covariance),
            variances=self.variances,
            # The maximum likelihood estimate of a common variance is the one within clusters.
            pooling="within" if of_points else "total",
            prior=prior,
        )
        return FrechetShapes(means) if self._has_frechet_means else means

    def floor(self, covariance: Covariance) -> Scalar:
        """The least variance.

        Args:
            covariance: Variances or covariances of all shapes, from `initial_covariance`.

        Returns:
            A variance, in squared units of the registered shapes.
        """
        full = self.covariances == "full"
        own = jnp.diagonal(covariance, axis1=-2, axis2=-1) if full else covariance
        return self.min_variance * jnp.mean(own)

    def solver(self, reference: Float[Array, "landmarks dims"], covariance: Covariance) -> Lloyd:
        """The composition; traceable, so that one `jax.vmap` can fit many data sets.

        Args:
            reference: The mean of all shapes.
            covariance: Variances or covariances of all shapes, from `initial_covariance`.

        Returns:
            Energy, aligner and prototype family under Lloyd's algorithm.
        """
        energy = LandmarkEnergy(self.dissimilarity())
        return Lloyd(energy, self.aligner(), self.family(reference, covariance))

    def validated(self, shapes: Any) -> np.ndarray:
        """Checks landmarks."""
        return _validation.landmarks(shapes)

    def compose(self, description: Description, start: Start) -> Stages:
        """Registration, then Lloyd's algorithm with variances."""
        plan = LloydPlan(
            self.num_clusters,
            (),
            self.num_restarts,
            self.stopping,
            SplitMerge(rounds=0),
            seeding=self.seeding,
        )

        def problem(arrays: Mapping[str, np.ndarray]) -> LloydProblem:
            reference, variances = (jnp.asarray(arrays[n]) for n in ("consensus", "variances"))
            return LloydProblem(self.solver(reference, variances), plan, start)

        return (self._register, problem)

    def _register(self, data: Data) -> tuple[Data, dict[str, np.ndarray]]:
        """Registers shapes to their mean, and computes the variances about it."""
        # Shapes are small, and are registered to each other.
        array = data.all_samples
        weight = None if data.weight is None else data.all_weights
        if len(array) == 1:
            raise ValueError(
                f"one shape{'' if weight is None else ' of positive weight'} has no variance to be "
                "found; give at least 2"
            )
        registered, consensus, params, converged = data.broadcast(
            register(array, self.registration, self.reflection, weight)
        )
        reference = jnp.asarray(consensus)
        each = None if weight is None else jnp.asarray(weight, dtype=reference.dtype)
        variances = self.initial_covariance(jnp.asarray(registered), reference, each)
        check_spread(variances, reference)
        arrays = {
            "consensus": consensus,
            "variances": np.asarray(variances),
            "origin": common_centroid(array, weight),
            "registration": params,
            "registration_converged": np.asarray(converged),
        }
        return dataclasses.replace(data, samples=registered[data.own]), arrays

    def working_copies(self, description: Description) -> int:
        """Counts the aligner's copies, and the centres and variances of all clusters."""
        return self.aligner().working_copies(self.num_clusters) + 2 * self.num_clusters

    def finished(self, outcome: Outcome) -> Outcome:
        """Stores the registration as params, and counts the variances at the floor."""
        extras = dict(outcome.extras)
        params, converged = (extras.pop(n) for n in ("registration", "registration_converged"))
        floor = float(self.floor(jnp.asarray(extras["variances"])))
        variances = np.asarray(outcome.learned.clusters.prototype.covariance)
        # Variances that all clusters share are counted once.
        own = variances if self.variances == "per_cluster" else variances[:1]
        figures = {
            "floor": floor,
            "num_clipped": float(num_clipped(own, floor)),
            "registration_converged": float(converged),
        }
        assignment = dataclasses.replace(outcome.assignment, params=params)
        return dataclasses.replace(outcome, assignment=assignment, extras=extras, figures=figures)

    def template(self, sample: PyTree) -> Learned:
        """Mean shapes and variances."""
        full, shape = self.covariances == "full", sample.shape
        variances = jnp.ones((*shape, shape[1]) if full else shape, sample.dtype)
        solver = self.solver(jnp.zeros(shape, sample.dtype), variances)
        return learned_template(solver, sample, self.num_clusters, ())

    def assign(self, outcome: Outcome, data: Data, *, callback: Callback = ignore) -> Assignment:
        """Registers shapes to the mean of the fitted ones, and assigns them to the nearest centre.

        A new shape is not in a cluster yet, so it carries the variances of each centre that it is
        compared with.
        """
        registered, params, solver = self._registered(outcome, data)
        assignment = assign_samples(solver, outcome.learned, registered, callback=callback)
        return dataclasses.replace(assignment, params=data.allgather(params))

    def _registered(self, outcome: Outcome, data: Data) -> tuple[Data, np.ndarray, Lloyd]:
        """New shapes registered to the fitted mean, their params, and the solver for them."""
        consensus, origin = (np.asarray(outcome.extras[n]) for n in ("consensus", "origin"))
        registered, params = register_to(
            data.samples, consensus, origin, self.registration, self.reflection
        )
        variances = jnp.asarray(outcome.extras["variances"])
        solver = self.solver(jnp.asarray(consensus), variances)
        return dataclasses.replace(data, samples=registered), params, solver

    def solver_for(self, outcome: Outcome, data: Data) -> tuple[Lloyd, Data]:
        """The solver with the variances of the fit, and shapes registered as in `assign`."""
        registered, _, solver = self._registered(outcome, data)
        return solver, registered

    def aligned(self, outcome: Outcome, shapes: np.ndarray, params: np.ndarray) -> np.ndarray:
        """The registered shapes."""
        return apply_similarities(shapes, params).astype(jnp.result_type(float))


def check_spread(covariance: Covariance, reference: Float[Array, "landmarks dims"]) -> None:
    """Refuses shapes of which registration leaves no differences.

    Args:
        covariance: Variances or covariances of all shapes, from `ShapeKMeans.initial_covariance`.
        reference: Their mean.

    Raises:
        ValueError: If they are zero, or what rounding leaves between copies of one shape.
    """
    rounding = 100.0 * float(jnp.finfo(covariance.dtype).eps) ** 2
    if not float(jnp.max(covariance)) > rounding * float(jnp.mean(reference**2)):
        raise ValueError("all shapes are the same once they are registered; give others")
