"""What is asked of finished fits: which K or grid, how steady, what speaks for a hierarchy.

Take `graph_survey` and `evidence_of` to choose settings without labels, `fit_from_common_start` to
lay methods side by side, and `shape_hierarchy` for a dendrogram of shapes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float, Int

from diffclust import _validation, metrics
from diffclust.distances import DiagonalGaussian, Gaussian, SquaredEuclidean, pairwise
from diffclust.energies import estimate_noise, log_evidence
from diffclust.graphs import (
    eigengap,
    mean_graph,
    normalised_cut,
    self_tuning_affinity,
    spectral_embedding,
)
from diffclust.graphs.embedding import normalised_rows
from diffclust.methods import method_of
from diffclust.models.base import Result
from diffclust.models.kmeans import (
    AbstractPrototypeModel,
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    KMeans,
)
from diffclust.models.scattering import reporter
from diffclust.models.shapes import ShapeDistance, ShapeKMeans
from diffclust.models.spectral import ProjectedScatteringSpectralClustering
from diffclust.parallel import Data
from diffclust.parallel.data import PerSample
from diffclust.prototypes import gaussians
from diffclust.registration import register
from diffclust.solvers import Callback, LloydProblem, Run, ignore, kmeans, kmeans_plus_plus
from diffclust.solvers.lloyd import sum_over_chunks
from diffclust.solvers.penalty_learning import warp_statistics
from diffclust.types import Key

COMPARABLE: dict[str, type[AbstractPrototypeModel]] = {
    method_of(kind.__name__).name: kind
    for kind in (KMeans, AffineInvariantKMeans, DeformationInvariantKMeans)
}
"""The methods that can be laid side by side."""

_SHARED = ("affine_penalty", "unit_norm", "boundary", "pixel_weights", "mask", "split_merge")
"""Settings that the others take over from the method that was fitted."""


@dataclasses.dataclass(frozen=True, eq=False)
class CommonStart:
    """What several methods made of one start.

    Attributes:
        start: The images that all prototypes began as.
        indices: Their positions in the data.
        results: The fits, in the order in which they were asked for; the given one is not among
            them.
    """

    start: Float[np.ndarray, "clusters height width channels"]
    indices: np.ndarray
    results: tuple[Result, ...]


def fit_from_common_start(
    result: Result,
    images: Any,
    methods: Sequence[str],
    *,
    key: Key,
    sample_weight: Any = None,
    callback: Callback = ignore,
    mesh: Mesh | None = None,
) -> CommonStart:
    """Fits other methods from the prototypes that a fit's best restart began with.

    The other methods have one run each, with the settings that they share with the fitted one.

    Args:
        result: A fit of one of `COMPARABLE` that began by k-means++.
        images: The images it was fitted to.
        methods: Names of the others.
        key: The key of that fit: it draws the same start again.
        sample_weight: The weights of that fit, or None.
        callback: Called after every chunk.
        mesh: Devices that share every chunk, or None for one.

    Returns:
        The start and the other fits.

    Raises:
        ValueError: If the fitted method or another one is not of this kind.
        FitError: If a loss is not a number.

    References:
        Cosentino et al., DI K-means, Fig. 3 and Sec. 4.2: all methods start from the same
        k-means++ prototypes.
    """
    model = result.model
    if not isinstance(model, AbstractPrototypeModel) or COMPARABLE.get(model.method) is not type(
        model
    ):
        raise ValueError(
            f"{model.method} has no start in common with others; this can be done for "
            f"{', '.join(COMPARABLE)}"
        )
    unknown = [name for name in methods if name not in COMPARABLE]
    if unknown:
        raise ValueError(f"methods must be among {', '.join(COMPARABLE)}, not {', '.join(unknown)}")
    array = model.validated(images)
    weight = _validation.weights(sample_weight, len(array))
    data = Data(array, weight, result.outcome.chunk_size, mesh)
    indices = _seeds(model, data, result, key)
    start = np.asarray(array[np.asarray(indices)])
    fits = tuple(
        _other(model, name).fit(
            array,
            key=key,
            prototypes=start,
            sample_weight=sample_weight,
            callback=callback,
            mesh=mesh,
        )
        for name in methods
    )
    return CommonStart(start, indices, fits)


def _seeds(model: AbstractPrototypeModel, data: Data, result: Result, key: Key) -> np.ndarray:
    """Where the best restart began, drawn again."""
    losses = result.outcome.restarts
    best = jax.random.split(key, len(losses))[int(np.argmin(losses))]
    problem = LloydProblem(model.solver(), model.plan(*data.samples.shape[1:3]))
    chunks = problem.level(data, 1)
    return kmeans_plus_plus(chunks, model.num_clusters, SquaredEuclidean().to_all, key=best)


def _other(model: AbstractPrototypeModel, name: str) -> AbstractPrototypeModel:
    kind = COMPARABLE[name]
    fields = {field.name for field in dataclasses.fields(kind)}
    shared = {n: getattr(model, n) for n in _SHARED if n in fields and hasattr(model, n)}
    return kind(model.num_clusters, **shared)


def evidence_of(result: Result, images: Any, *, pixels: float | None = None) -> tuple[float, float]:
    """The log-evidence of a fit for each image: comparable between grids and penalty weights.

    It falls where warps are so free that they explain anything, unlike the distortion, which only
    ever falls with them.

    Args:
        result: A fit of a model whose warps are penalised.
        images: The images it was fitted to.
        pixels: Effective number of independent pixels. Fits are comparable under one number only:
            give all of them what the first one returned.

    Returns:
        Nats an image, and the number of pixels.

    Raises:
        ValueError: If the model has no penalties, or one of them is zero.

    References:
        MacKay (1992), Bayesian interpolation; see `diffclust.energies.log_evidence`.
    """
    model = result.model
    if not isinstance(model, AbstractPrototypeModel) or not model.penalty():
        raise ValueError(f"{model.method} has no penalised warps, and so no evidence")
    if min(model.penalty()) == 0.0:
        raise ValueError(
            f"penalty weights of {model.penalty()} have no evidence; all of them must be positive"
        )
    array = model.validated(images)
    solver, found = model.solver(), result.outcome.assignment
    chunks = LloydProblem(solver, model.plan(*array.shape[1:3])).level(
        Data(array, None, result.outcome.chunk_size), 1
    )
    unseen = solver.init_memory(len(array), model.num_clusters, chunks.dtype)
    known = eqx.tree_at(
        lambda m: (m.cluster, m.params),
        unseen,
        (
            unseen.cluster.at[:, 0].set(jnp.asarray(found.clusters, unseen.cluster.dtype)),
            unseen.params.at[:, 0].set(jnp.asarray(found.params, unseen.params.dtype)),
        ),
    )
    learned = result.outcome.learned
    state, memory = sum_over_chunks(
        solver, chunks, solver.init(learned.clusters), chunks.spread(known)
    )
    run = Run(learned, PerSample(memory), state.tally, result.history, result.outcome.status)
    warps = warp_statistics(solver, chunks, run)
    if pixels is not None:
        warps = eqx.tree_at(lambda w: w.pixels, warps, jnp.asarray(pixels, warps.pixels.dtype))
    total = float(log_evidence(warps, estimate_noise(warps, learned.clusters.penalty)))
    if not math.isfinite(total):
        raise ValueError("the evidence is not a number: a cluster's warps have no curvature")
    return total / len(array), float(np.asarray(warps.pixels))


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """Shapes joined pair by pair, the nearest first.

    Attributes:
        registered: The registered shapes.
        distances: Distance of every two shapes.
        linkage: Who was joined with whom and how far apart they were, as SciPy tells it
            (`scipy.cluster.hierarchy`), one row for each of n - 1 joins.
    """

    registered: Float[np.ndarray, "n landmarks dims"]
    distances: Float[np.ndarray, "n n"]
    linkage: Float[np.ndarray, "joins 4"]

    def cut(self, num_clusters: int) -> Int[np.ndarray, " n"]:
        """The clusters that are left where the last joins are undone.

        Args:
            num_clusters: How many clusters; ties may leave fewer.

        Returns:
            A cluster for each shape, numbered in the order of their first shapes.

        Raises:
            ValueError: If there are fewer shapes, or the number is below 1.
        """
        from scipy.cluster.hierarchy import fcluster

        _validation.count(num_clusters, "num_clusters")
        _validation.cluster_count(num_clusters, len(self.registered), "shapes")
        found = fcluster(self.linkage, num_clusters, "maxclust")
        _, first, inverse = np.unique(found, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.int32)


def registered_gaussians(
    model: ShapeKMeans, shapes: Float[np.ndarray, "n landmarks dims"]
) -> DiagonalGaussian | Gaussian:
    """Shapes as a distance between two of them sees them: all carry the variances of all.

    Args:
        model: Says which covariances and registration.
        shapes: Shapes, none of them a point or a line.

    Returns:
        The registered shapes, each landmark a Gaussian.
    """
    registered, consensus, *_ = register(shapes, model.registration, model.reflection)
    points = jnp.asarray(registered)
    covariance = model.initial_covariance(points, jnp.asarray(consensus))
    return gaussians(points, jnp.broadcast_to(covariance[None], (len(shapes), *covariance.shape)))


def shape_hierarchy(
    shapes: Any, *, model: ShapeKMeans | None = None, linkage: str = "average"
) -> Hierarchy:
    """Joins shapes by their distances, in each of which both carry the variances of all shapes.

    Args:
        shapes: Anything array-like of shape `(n, landmarks, dims)`.
        model: Says which distance, norm, covariances and registration; the Fisher–Rao distance
            summed over landmarks where it is not given. Its number of clusters means nothing.
        linkage: How clusters are compared, as SciPy names it: `"average"`, `"complete"`,
            `"single"`, `"ward"`.

    Returns:
        The hierarchy.

    Raises:
        ValueError: If the shapes are none, fewer than two, or the model has no distance between
            two shapes.

    References:
        Gattone et al., A shape distance based on the Fisher–Rao metric and its application for
        shapes clustering (2017).
    """
    from scipy.cluster.hierarchy import linkage as joined
    from scipy.spatial.distance import squareform

    if model is None:
        model = ShapeKMeans(1, distance="fisher-rao", variances="per_landmark")
    if model.distance == "likelihood":
        known = ", ".join(name for name in get_args(ShapeDistance) if name != "likelihood")
        raise ValueError(
            f"distance='likelihood' is no distance between two shapes; use one of {known}"
        )
    array = model.validated(shapes)
    if len(array) < 2:
        raise ValueError("one shape has nobody to be joined with; give at least 2")
    each = registered_gaussians(model, array)
    found = np.asarray(pairwise(model.dissimilarity(), each), np.float64)
    found = 0.5 * (found + found.T)
    np.fill_diagonal(found, 0.0)
    return Hierarchy(np.asarray(each.mean), found, joined(squareform(found, checks=False), linkage))


@dataclasses.dataclass(frozen=True)
class GraphSurveyRow:
    """One setting, and what is known of it without labels.

    Attributes:
        num_clusters: K.
        num_removed: n of the graph, or None for the mean of all graphs.
        eigengap: λ_K - λ_(K+1) of the graph: large where it falls into K parts and no more.
        normalised_cut: The cut of the clustering found; it grows with K by itself.
        stability: The adjusted Rand index between the clustering of this graph and that of the
            mean graph; for the mean graph, the mean of the others'.
    """

    num_clusters: int
    num_removed: int | None
    eigengap: float
    normalised_cut: float
    stability: float


def graph_survey(
    model: ProjectedScatteringSpectralClustering,
    images: Any,
    num_clusters: Sequence[int],
    *,
    key: Key,
    callback: Callback = ignore,
) -> tuple[GraphSurveyRow, ...]:
    """Clusters images for several K and each number of removed directions.

    Features, neighbours and eigenvectors are computed once for all K.

    Args:
        model: Its settings are used, but for K; the graph of all samples is.
        images: Anything array-like of shape `(n, height, width, channels)`.
        num_clusters: The K to try.
        key: Random key.
        callback: Called after every chunk.

    Returns:
        Rows for the mean graph first, then for each number of removed directions, by K.

    Raises:
        ValueError: If an argument is not what it should be.

    References:
        von Luxburg (2007), A tutorial on spectral clustering, Sec. 8.3.
    """
    array = model.validated(images)
    assert isinstance(array, np.ndarray)
    if not num_clusters:
        raise ValueError("num_clusters is empty; give the numbers of clusters to try")
    for count in num_clusters:
        _validation.count(count, "num_clusters")
        _validation.cluster_count(count, len(array))
    _, coordinates = model.project(Data(array), callback=callback)
    single = [
        mean_graph([self_tuning_affinity(near, num_neighbours=k) for k in model.num_neighbours])
        for near in model.neighbours(coordinates, report=reporter(callback, "neighbours"))
    ]
    graphs = {None: mean_graph(single), **dict(zip(model.num_removed, single, strict=True))}
    most = max(num_clusters)
    embeddings = {n: spectral_embedding(graph, most, key=key) for n, graph in graphs.items()}
    rows = []
    for count in sorted(num_clusters):
        # Rows of unit length, cut off and made of unit length again, are those of fewer vectors.
        found = {
            n: kmeans(
                normalised_rows(embedding.vectors[:, :count]),
                count,
                key=jax.random.fold_in(key, count),
                num_restarts=model.num_restarts,
            ).assignments
            for n, embedding in embeddings.items()
        }
        agreement: dict[int | None, float] = {
            n: metrics.adjusted_rand_index(found[None], found[n]) for n in model.num_removed
        }
        agreement[None] = float(np.mean(list(agreement.values())))
        for n, graph in graphs.items():
            gap = eigengap(embeddings[n].eigenvalues, count)
            cut = normalised_cut(graph, found[n], num_clusters=count)
            rows.append(GraphSurveyRow(count, n, gap, cut, float(agreement[n])))
    return tuple(sorted(rows, key=lambda row: (row.num_removed is not None, row.num_removed or 0)))
