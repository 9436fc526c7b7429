"""A dendrogram of shapes from the distances between them."""

import dataclasses
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from diffclust import _validation
from diffclust.distances import DiagonalGaussian, Gaussian, pairwise
from diffclust.models.shapes import ShapeDistance, ShapeKMeans, check_spread
from diffclust.prototypes import gaussians
from diffclust.registration import register


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """An agglomerative clustering of shapes: the nearest clusters are merged first.

    Attributes:
        registered: The registered shapes.
        distances: Distances of all pairs of shapes.
        linkage: The n - 1 merges, one per row, as returned by `scipy.cluster.hierarchy.linkage`.
    """

    registered: Float[np.ndarray, "n landmarks dims"]
    distances: Float[np.ndarray, "n n"]
    linkage: Float[np.ndarray, "joins 4"]

    def cut(self, num_clusters: int) -> Int[np.ndarray, " n"]:
        """The clusters that remain when the last merges are undone.

        Args:
            num_clusters: Number of clusters; ties may leave fewer.

        Returns:
            A cluster for each shape, numbered in the order of their first shapes.

        Raises:
            ValueError: If there are fewer shapes than clusters, or the number is below 1.
        """
        from scipy.cluster.hierarchy import fcluster

        _validation.count(num_clusters, "num_clusters")
        _validation.cluster_count(num_clusters, len(self.registered), "shapes")
        labels = fcluster(self.linkage, num_clusters, "maxclust")
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse].astype(np.int32)


def registered_gaussians(
    model: ShapeKMeans, shapes: Float[np.ndarray, "n landmarks dims"]
) -> DiagonalGaussian | Gaussian:
    """Registered shapes as Gaussians, each with the variances over all shapes.

    Args:
        model: Determines the covariances and the registration.
        shapes: Shapes, none of them a point or a line.

    Returns:
        The registered shapes, each landmark a Gaussian.
    """
    registered, consensus, *_ = register(shapes, model.registration, model.reflection)
    points, reference = jnp.asarray(registered), jnp.asarray(consensus)
    covariance = model.initial_covariance(points, reference)
    check_spread(covariance, reference)
    return gaussians(points, jnp.broadcast_to(covariance[None], (len(shapes), *covariance.shape)))


def shape_hierarchy(
    shapes: Any, *, model: ShapeKMeans | None = None, linkage: str = "average"
) -> Hierarchy:
    """Merges shapes by their distances; in each, both shapes carry the variances of all shapes.

    Args:
        shapes: An array-like of shape `(n, landmarks, dims)`.
        model: Determines the distance, norm, covariances and registration; by default the
            Fisher–Rao distance summed over landmarks. Its number of clusters is not used.
        linkage: How clusters are compared, by SciPy's name: `"average"`, `"complete"`, `"single"`
            or `"ward"`.

    Returns:
        The hierarchy.

    Raises:
        ValueError: If the shapes are invalid, fewer than two or all the same, or the model has no
            distance between two shapes.

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
        raise ValueError("a hierarchy of one shape has no joins; give at least 2")
    each = registered_gaussians(model, array)
    distances = np.asarray(pairwise(model.dissimilarity(), each), np.float64)
    distances = 0.5 * (distances + distances.T)
    np.fill_diagonal(distances, 0.0)
    joins = joined(squareform(distances, checks=False), linkage)
    return Hierarchy(np.asarray(each.mean), distances, joins)
