"""Models that cluster scattering coefficients, projected onto the orthogonal complement."""

import abc
import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from diffclust.features import PrincipalDirections, Scattering
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.features.projected import OnCanvas, fit_projection, project_images
from diffclust.image_source import Images
from diffclust.models.base import Result
from diffclust.models.counted import Counted, counted_samples
from diffclust.models.found import Found
from diffclust.models.images import AbstractImageModel, blank_clusters
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.objectives import TransformedDistance
from diffclust.parallel import check_mesh, share
from diffclust.processes import own_rows, row_counts, together
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers import Assignment, Callback, Lloyd, Outcome, Plan, Progress, Status
from diffclust.solvers.portraits import align_all, aligned_means
from diffclust.solvers.progress import Snapshots, ignore
from diffclust.solvers.rows import RowClusters
from diffclust.solvers.stages import Stages
from diffclust.types import Key

_LEAST_SIDE = 32
_LEAST_PIXELS = 16
_MOST_FEATURES = 16384
"""Their covariance then takes 2 GB in double precision."""


def tell(callback: Callback) -> Any:
    """A report of stages that tells a callback.

    Args:
        callback: Told of every chunk.

    Returns:
        A function of a stage's name, what is done and what there is.
    """
    return lambda stage, done, total: callback(Progress(stage, 0, 0, done, total))


class AbstractScatteringModel(AbstractImageModel):
    """A clustering of images by their projected scattering coefficients.

    It has no prototypes of its own. Those it offers are the means of the samples of each cluster,
    aligned as DI K-means aligns them.
    """

    num_dimensions: eqx.AbstractVar[int]
    normalisation: eqx.AbstractVar[Normalisation]
    num_scales: eqx.AbstractVar[int | None]
    num_angles: eqx.AbstractVar[int]

    @abc.abstractmethod
    def portrait(self) -> DeformationInvariantKMeans:
        """How prototypes are made, and samples aligned to them."""

    @abc.abstractmethod
    def find(
        self, images: np.ndarray, counted: Counted, key: Key, callback: Callback, stages: Stages
    ) -> Found:
        """Clusters images that were checked already.

        Args:
            images: The images, those that count.
            counted: How much each counts.
            key: Random key.
            callback: Told of every chunk.
            stages: Runs the stages.

        Returns:
            The clustering.
        """

    @abc.abstractmethod
    def extend(
        self, outcome: Outcome, images: np.ndarray, callback: Callback, mesh: Mesh | None
    ) -> RowClusters:
        """Assigns new images to the centres of a fit.

        Args:
            outcome: What the fit found.
            images: The new images; of several processes, each gives its own.
            callback: Told of every chunk.
            mesh: Devices that share them, or None for one.

        Returns:
            The assignment to centres.
        """

    def fit(
        self,
        images: Any,
        *,
        key: Key,
        sample_weight: Any = None,
        chunk_size: int | None = None,
        callback: Callback = ignore,
        snapshots: Snapshots | None = None,
        mesh: Mesh | None = None,
    ) -> Result:
        """See `AbstractImageModel.fit`; `chunk_size` is that of the alignments to prototypes.

        An image of weight 2 counts as two in the mean and covariance of the features, in k-means
        and its loss, and in the prototypes; of a graph's edge the affinity is multiplied by the
        weights of both ends, and the cut is that of this graph. Who is whose neighbour, scales,
        bandwidths and representatives do not depend on weights. Images of weight 0 are left out,
        and assigned in the end as new ones.

        Features, their moments, neighbours, pairs and alignments are shared out over a mesh;
        eigenvectors and the last k-means are found on one device.
        """
        check_mesh(mesh)
        with together(mesh):
            every = self.validated(images)
            assert isinstance(every, np.ndarray)
        counted = counted_samples(sample_weight, every, self.num_clusters, "image", mesh)
        array = counted.of(every)
        solver, plan = self._portraits(array, chunk_size, mesh)
        key, portrait_key = jax.random.split(key)
        stages = Stages(snapshots, mesh=mesh)
        found = self.find(array, counted, key, callback, stages)
        assignments = found.rows.assignments

        def means() -> dict[str, np.ndarray]:
            given = {"key": portrait_key, "weight": counted.relative}
            clusters = aligned_means(solver, plan, array, assignments, **given)
            return {n: np.asarray(getattr(clusters, n)) for n in ("prototype", "penalty")}

        clusters = Clusters(**jax.tree.map(jnp.asarray, stages.run("means", means)))
        params = align_all(
            solver,
            plan,
            clusters,
            array,
            assignments,
            callback=callback,
            rows=functools.partial(stages.rows, "portraits"),
        )
        outcome = Outcome(
            solver.init(clusters).learned,
            _assignment(found.rows, params),
            (found.loss,),
            (found.loss,),
            Status.SOLVED,
            plan.chunk_size,
            stages.seconds,
            found.extras,
            found.figures,
        )
        outcome = counted.completed(outcome, every, self.assign, callback)
        outcome = dataclasses.replace(outcome, seconds=stages.seconds)
        return Result(model=self, sample_shape=array.shape[1:], outcome=outcome)

    def blank(self, sample_shape: tuple[int, ...], dtype: jnp.dtype) -> Learned:
        """Images and penalty weights; see `AbstractModel.blank`."""
        return blank_clusters(self, sample_shape, dtype)

    def assign(
        self,
        outcome: Outcome,
        images: np.ndarray,
        *,
        callback: Callback = ignore,
        mesh: Mesh | None = None,
    ) -> Assignment:
        """See `AbstractModel.assign`: to the nearest centre, by the features that were fitted."""
        rows = self.extend(outcome, images, callback, mesh)
        solver, plan = self._portraits(images, outcome.chunk_size, mesh)
        clusters = outcome.learned.clusters
        params = align_all(solver, plan, clusters, images, rows.assignments, callback=callback)
        return _assignment(rows, params)

    def _portraits(
        self, images: np.ndarray, chunk_size: int | None, mesh: Mesh | None
    ) -> tuple[Lloyd, Plan]:
        """How samples are aligned to prototypes."""
        portrait, each = self.portrait(), share(len(images), mesh)
        # As many images as a device has at most, which processes must agree on.
        alike = np.broadcast_to(images[:1], (each, *images.shape[1:]))
        plan = portrait.plan(alike, chunk_size)
        return portrait.solver(), dataclasses.replace(plan, mesh=mesh)

    def energies(
        self, outcome: Outcome, images: np.ndarray, *, callback: Callback = ignore
    ) -> Float[np.ndarray, "n clusters"]:
        """See `AbstractModel.energies`; there are none.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"{self.method} does not compare images with clusters; see Result.predict for how far "
            "each is from its own"
        )

    def energy(self, channels: int = 1) -> TransformedDistance:
        """See `AbstractImageModel.energy`: that of the prototypes, which decides nothing."""
        return self.portrait().energy()

    def coarsening(self, height: int, width: int) -> int:
        """See `AbstractImageModel.coarsening`; 1."""
        del height, width
        return 1

    def feature_map(self, height: int, width: int) -> OnCanvas:
        """The scattering transform of images laid on a canvas of at least 32×32 pixels.

        The finest wavelets are a few pixels wide. Where a side has fewer than 16 pixels, images are
        made a whole number of times larger, lest these see nothing but the frame.

        Args:
            height: Rows of the images.
            width: Columns of the images.

        Returns:
            The feature map.
        """
        enlargement = -(-_LEAST_PIXELS // min(height, width))
        height, width = enlargement * height, enlargement * width
        scales = self.num_scales
        if scales is None:
            side = max(_LEAST_SIDE, min(height, width))
            scales = max(1, round(math.log2(side / 4)))
        step = 2**scales
        rows, columns = (max(_LEAST_SIDE, step * -(-side // step)) for side in (height, width))
        scattering = Scattering(rows, columns, num_scales=scales, num_angles=self.num_angles)
        return OnCanvas(scattering, rows, columns, enlargement)

    def num_features(self, image_shape: tuple[int, ...]) -> int:
        """How many scattering coefficients an image has.

        Args:
            image_shape: Height, width and channels.

        Returns:
            Their number.
        """
        scattering = self.feature_map(*image_shape[:2]).feature_map
        assert isinstance(scattering, Scattering)
        return scattering.num_features(image_shape[2])

    def num_compared(self, count: int) -> int:
        """How many neighbours of each sample are found by comparing it with all others.

        Args:
            count: Number of samples.

        Returns:
            Their number; 0 where samples are not compared with each other.
        """
        del count
        return 0

    def chunk_size_for(self, samples: Images) -> int:
        """See `AbstractModel.chunk_size_for`: of the alignments to prototypes."""
        return self.portrait().chunk_size_for(samples)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """See `AbstractModel.state_bytes`: features, their covariance, coordinates, neighbours."""
        count, size = shape[0], self.num_features(shape[1:])
        features = min(4 * count * size, 2 * 2**30)
        square = 8 * min(count, size) ** 2 if 2 * count <= size else 8 * size**2
        row = 4 * (4 * self.num_dimensions + 2 * math.prod(shape[1:])) + 64 * 12
        return features + 3 * square + count * row

    def features_of(
        self,
        images: np.ndarray,
        counted: Counted,
        most_removed: int,
        callback: Callback,
        stages: Stages,
    ) -> tuple[dict[str, np.ndarray], Float[np.ndarray, "n directions"]]:
        """See `project`: that as a stage.

        Args:
            images: The images.
            counted: How much each counts.
            most_removed: How many leading directions will be removed at most.
            callback: Told of every chunk.
            stages: Runs the stage.

        Returns:
            The directions as arrays, and one row of coordinates for each image.
        """

        def compute() -> dict[str, np.ndarray]:
            weight, mesh = counted.relative, stages.mesh
            directions, coordinates = self.project(
                images, most_removed, callback, mesh, weight=weight
            )
            return {**directions_as_arrays(directions), "coordinates": coordinates}

        found = stages.run("features", compute)
        return found, found.pop("coordinates")

    def project(
        self,
        images: np.ndarray,
        most_removed: int,
        callback: Callback,
        mesh: Mesh | None = None,
        *,
        weight: Float[np.ndarray, " n"] | None = None,
    ) -> tuple[PrincipalDirections, Float[np.ndarray, "n directions"]]:
        """Features of images, their principal directions and the coordinates along these.

        Args:
            images: The images.
            most_removed: How many leading directions will be removed at most.
            callback: Told of every chunk.
            mesh: Devices that share the images, or None for one; of several processes, each gives
                its own, and all get what is found of all.
            weight: Weights of the images of all, or None for ones.

        Returns:
            The directions, and one row of coordinates for each image.

        Raises:
            ValueError: If the images are too few or too large.
        """
        counts = row_counts(len(images), mesh)
        total = sum(counts)
        if total < most_removed + 2:
            raise ValueError(
                f"{total} images have no more than {total - 1} principal directions, of which "
                f"{most_removed} would be removed; give at least {most_removed + 2} images"
            )
        feature_map = self.feature_map(*images.shape[1:3])
        scattering = feature_map.feature_map
        assert isinstance(scattering, Scattering)
        count = scattering.num_features(images.shape[3])
        # Of few images the products are taken, not the covariance of their features.
        most = _MOST_FEATURES if 2 * total > count else 4 * _MOST_FEATURES
        if count > most:
            raise ValueError(
                f"{total} images of shape {images.shape[1:]} have {count} scattering "
                f"coefficients each, more than {most}; make the images smaller or grey, or "
                "num_scales larger"
            )
        return fit_projection(
            feature_map,
            images,
            num_directions=most_removed + self.num_dimensions,
            normalisation=self.normalisation,
            path_size=count // (images.shape[3] * len(scattering.paths)),
            weight=None if weight is None else weight[own_rows(counts)],
            mesh=mesh,
            report=tell(callback),
        )

    def coordinates_of(
        self, outcome: Outcome, images: np.ndarray, callback: Callback, mesh: Mesh | None = None
    ) -> Float[np.ndarray, "n directions"]:
        """Coordinates of new images along the directions of a fit.

        Args:
            outcome: What a fit found.
            images: The new images; of several processes, each gives its own.
            callback: Told of every chunk.
            mesh: Devices that share them, or None for one.

        Returns:
            One row for each image of all.
        """
        stored = outcome.extras
        directions = PrincipalDirections(
            *(jnp.asarray(stored[name]) for name in _DIRECTIONS), normalisation=self.normalisation
        )
        feature_map = self.feature_map(*images.shape[1:3])
        return project_images(feature_map, directions, images, mesh=mesh, report=tell(callback))


_DIRECTIONS = ("feature_mean", "feature_scale", "feature_basis", "feature_variances")


def directions_as_arrays(directions: PrincipalDirections) -> dict[str, np.ndarray]:
    """Principal directions as what an `Outcome` can hold.

    Args:
        directions: The directions.

    Returns:
        Arrays by name.
    """
    arrays = (directions.mean, directions.scale, directions.basis, directions.eigenvalues)
    return dict(zip(_DIRECTIONS, map(np.asarray, arrays), strict=True))


def _assignment(rows: RowClusters, params: np.ndarray) -> Assignment:
    distances, margins = rows.distances.astype(params.dtype), rows.margins.astype(params.dtype)
    return Assignment(rows.assignments, distances, margins, rows.runners_up, params)
