"""PSSC: spectral clustering of projected scattering coefficients."""

from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
import scipy.sparse

from diffclust import _validation, metrics
from diffclust.features import drop_leading
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.graphs import (
    Neighbours,
    affinity_to_references,
    gaussian_affinity,
    mean_graph,
    nearest_neighbours,
    nested_neighbours,
    self_tuning_affinity,
    self_tuning_scales,
)
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.models.scattering import (
    AbstractScatteringModel,
    Found,
    check_scattering_settings,
    check_whole_numbers,
    directions_as_arrays,
    neighbours_among_fitted,
    tell,
)
from diffclust.solvers import (
    Callback,
    Outcome,
    RowClusters,
    SpectralEmbedding,
    cluster_rows,
    eigengap,
    nearest_centres,
    normalised_cut,
    representatives,
    spectral_embedding,
    strongest_bridges,
    transfer_cut,
)
from diffclust.solvers.progress import ignore
from diffclust.types import Key

Affinity = Literal["auto", "graph", "representatives"]

_MOST_IN_GRAPH = 100_000
"""Samples up to which every one is compared with every other; a minute or two on two cores."""


class ProjectedScatteringSpectralClustering(AbstractScatteringModel):
    """PSSC: scattering transform, projection onto the orthogonal complement, normalised cut.

    The default is a graph of all samples, the mean of the self-tuning neighbour graphs for several
    numbers of removed directions and of neighbours, since single ones are unsteady. The paper's
    own: `ProjectedScatteringSpectralClustering.as_published(num_clusters)`.

    Attributes:
        num_clusters: K.
        affinity: `"graph"` compares all samples with each other; `"representatives"` (U-SPEC) with
            a few, for any number of samples; `"auto"` takes the graph up to 100,000 samples.
        num_removed: How many leading principal directions are removed, in each of the graphs.
        num_neighbours: How many neighbours a sample has, in each of the graphs.
        num_dimensions: How many of the principal directions that follow are kept.
        normalisation: What is done to the coefficients first; see `fit_principal_directions`.
        num_scales: J of the scattering transform; chosen such that about 4×4 coefficients are left
            of each path where it is not given, which is 3 for images of up to 45 pixels.
        num_angles: L of the scattering transform.
        num_representatives: p of U-SPEC.
        num_candidates: p' of U-SPEC.
        num_restarts: Runs of the last step's k-means, of which the one of least loss is kept.

    References:
        Villar-Corrales and Morgenshtern, PSSC; Zelnik-Manor and Perona (2004), Self-tuning spectral
        clustering.
    """

    num_clusters: int = eqx.field(static=True)
    affinity: Affinity = eqx.field(static=True, default="auto", kw_only=True)
    num_removed: tuple[int, ...] = eqx.field(static=True, default=(1, 2, 3, 4), kw_only=True)
    num_neighbours: tuple[int, ...] = eqx.field(static=True, default=(5, 8), kw_only=True)
    num_dimensions: int = eqx.field(static=True, default=300, kw_only=True)
    normalisation: Normalisation = eqx.field(static=True, default="root", kw_only=True)
    num_scales: int | None = eqx.field(static=True, default=None, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    num_representatives: int = eqx.field(static=True, default=1000, kw_only=True)
    num_candidates: int = eqx.field(static=True, default=9000, kw_only=True)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        check_scattering_settings(self)
        if self.affinity not in ("auto", "graph", "representatives"):
            raise ValueError(
                f"affinity must be 'auto', 'graph' or 'representatives', not {self.affinity!r}"
            )
        check_whole_numbers(self.num_removed, "num_removed", 0)
        check_whole_numbers(self.num_neighbours, "num_neighbours", 1)
        for name in ("num_representatives", "num_candidates", "num_restarts"):
            _validation.count(getattr(self, name), name)

    @staticmethod
    def as_published(num_clusters: int) -> "ProjectedScatteringSpectralClustering":
        """The paper's own settings: PCA to 1,000 directions, n = 2, U-SPEC with k = 5.

        Args:
            num_clusters: K.

        Returns:
            The model.
        """
        return ProjectedScatteringSpectralClustering(
            num_clusters,
            affinity="representatives",
            num_removed=(2,),
            num_neighbours=(5,),
            num_dimensions=998,
            normalisation="largest",
        )

    @property
    def method(self) -> str:
        """`"pssc"`."""
        return "pssc"

    @property
    def criterion(self) -> str:
        """`"normalised cut"`."""
        return "normalised cut"

    def check(self, images: np.ndarray) -> None:
        """Takes all images."""

    def portrait(self) -> DeformationInvariantKMeans:
        """DI K-means with its defaults."""
        return DeformationInvariantKMeans(self.num_clusters)

    def find(self, images: np.ndarray, key: Key, callback: Callback) -> Found:
        """See `AbstractScatteringModel.find`."""
        directions, coordinates = self.project(images, max(self.num_removed), callback)
        if self._by_representatives(len(images)):
            found = self.cut_through_representatives(coordinates, key, callback)
        else:
            neighbours = self.neighbours(coordinates, callback)
            found = cut_mean_graph(
                neighbours, self.num_neighbours, self.num_clusters, self.num_restarts, key, callback
            )
            found.extras["coordinates"] = coordinates
        found.extras.update(directions_as_arrays(directions))
        return found

    def extend(self, outcome: Outcome, images: np.ndarray, callback: Callback) -> RowClusters:
        """See `AbstractScatteringModel.extend`: by affinities to what was fitted."""
        coordinates = self.coordinates_of(outcome, images, callback)
        stored = outcome.extras
        if "coordinates" in stored:
            neighbours = neighbours_among_fitted(
                coordinates, stored, self.num_removed, self.num_dimensions, max(self.num_neighbours)
            )
            rows = extended(neighbours, self.num_neighbours, stored)
        else:
            graphs = []
            for n, sigmas in zip(self.num_removed, stored["sigmas"], strict=True):
                window = drop_leading(coordinates, n, self.num_dimensions)
                chosen = stored[f"representatives_{n}"]
                near = nearest_neighbours(window, chosen, max(self.num_neighbours))
                graphs.append(self._gaussians(near, len(chosen), sigmas))
            rows = _embedding(stored).extend(_side_by_side(graphs))
        return nearest_centres(rows, stored["centres"])

    def _by_representatives(self, count: int) -> bool:
        if self.affinity == "auto":
            return count > _MOST_IN_GRAPH
        return self.affinity == "representatives"

    def neighbours(
        self, coordinates: np.ndarray, callback: Callback = ignore
    ) -> tuple[Neighbours, ...]:
        """Neighbours of samples for each number of removed directions.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            callback: Told of every chunk.

        Returns:
            The neighbours, in the order of `num_removed`.
        """
        report = tell(callback)
        return nested_neighbours(
            coordinates,
            self.num_removed,
            self.num_dimensions,
            max(self.num_neighbours),
            report=lambda done, total: report("neighbours", done, total),
        )

    def _gaussians(
        self, near: Neighbours, count: int, sigmas: np.ndarray
    ) -> scipy.sparse.csr_array:
        """The mean of the affinities for each number of neighbours."""
        return mean_graph(
            [
                gaussian_affinity(near, count, num_neighbours=k, sigma=float(sigma))
                for k, sigma in zip(self.num_neighbours, sigmas, strict=True)
            ]
        )

    def cut_through_representatives(
        self, coordinates: np.ndarray, key: Key, callback: Callback = ignore
    ) -> Found:
        """U-SPEC; for several numbers of removed directions with representatives in each space.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            key: Draws the candidates, and seeds the k-means.
            callback: Told of every chunk.

        Returns:
            The clustering.
        """
        report = tell(callback)
        graphs, sigmas, extras = [], [], {}
        for n in self.num_removed:
            window = np.ascontiguousarray(drop_leading(coordinates, n, self.num_dimensions))
            chosen = representatives(
                window,
                self.num_representatives,
                key=jax.random.fold_in(key, n),
                num_candidates=max(self.num_candidates, self.num_representatives),
            )
            extras[f"representatives_{n}"] = chosen
            near = nearest_neighbours(
                window,
                chosen,
                max(self.num_neighbours),
                report=lambda done, total: report("neighbours", done, total),
            )
            each = [near.distance[:, :k].mean(dtype=np.float64) for k in self.num_neighbours]
            sigmas.append(np.asarray(each))
            graphs.append(self._gaussians(near, len(chosen), sigmas[-1]))
        affinities = _side_by_side(graphs)
        report("cut", 0, 1)
        embedding = transfer_cut(affinities, self.num_clusters)
        rows = cluster_rows(
            embedding.rows, self.num_clusters, key=key, num_restarts=self.num_restarts
        )
        extras |= {
            "sigmas": np.stack(sigmas),
            "centres": rows.centres,
            "eigenvalues": embedding.eigenvalues,
            "basis": embedding.basis,
        }
        figures = {"eigengap": eigengap(embedding.eigenvalues, self.num_clusters)}
        loss = bipartite_cut(affinities, rows.assignments, self.num_clusters)
        return Found(rows, loss, extras, figures)


def _side_by_side(graphs: Sequence[scipy.sparse.csr_array]) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(scipy.sparse.hstack(graphs))


def cut_mean_graph(
    neighbours: Sequence[Neighbours],
    num_neighbours: tuple[int, ...],
    num_clusters: int,
    num_restarts: int,
    key: Key,
    callback: Callback = ignore,
) -> Found:
    """The normalised cut of the mean of self-tuning graphs.

    Args:
        neighbours: Neighbours of all samples, once for each of several distances.
        num_neighbours: For each of these a graph with so many neighbours.
        num_clusters: K.
        num_restarts: Restarts of the last step's k-means.
        key: Random key.
        callback: Told of the stage.

    Returns:
        The clustering, and how steady it is: the mean adjusted Rand index between it and the
        clusterings of the graphs for each distance alone.
    """
    report = tell(callback)
    graphs = [
        mean_graph([self_tuning_affinity(near, num_neighbours=k) for k in num_neighbours])
        for near in neighbours
    ]
    graph = mean_graph(graphs)
    alone = graphs if len(graphs) > 1 else []
    report("cut", 0, 1 + len(alone))
    embedding = spectral_embedding(graph, num_clusters, key=key)
    rows = cluster_rows(embedding.rows, num_clusters, key=key, num_restarts=num_restarts)
    agreement = []
    for number, each in enumerate(alone):
        report("cut", number + 1, 1 + len(alone))
        single = spectral_embedding(each, num_clusters, key=key)
        theirs = cluster_rows(single.rows, num_clusters, key=key, num_restarts=1)
        agreement.append(metrics.adjusted_rand_index(rows.assignments, theirs.assignments))
    figures = {"eigengap": eigengap(embedding.eigenvalues, num_clusters)}
    if agreement:
        figures["stability"] = float(np.mean(agreement))
    scales = [
        self_tuning_scales(near, num_neighbours=k) for near in neighbours for k in num_neighbours
    ]
    extras = {
        "bridges": strongest_bridges(graph, rows.assignments),
        "scales": np.stack(scales),
        "centres": rows.centres,
        "eigenvalues": embedding.eigenvalues,
        "basis": embedding.basis,
    }
    loss = normalised_cut(graph, rows.assignments, num_clusters=num_clusters)
    return Found(rows, loss, extras, figures)


def extended(
    neighbours: Sequence[Neighbours], num_neighbours: tuple[int, ...], stored: Any
) -> np.ndarray:
    """Rows of new samples in the embedding of a mean graph.

    Args:
        neighbours: Their neighbours among the samples that were fitted, for each distance.
        num_neighbours: As in `cut_mean_graph`.
        stored: The fit's `extras`.

    Returns:
        One row for each new sample.
    """
    settings = [(near, k) for near in neighbours for k in num_neighbours]
    graphs = [
        affinity_to_references(near, scales, num_neighbours=k)
        for (near, k), scales in zip(settings, stored["scales"], strict=True)
    ]
    return _embedding(stored).extend(mean_graph(graphs))


def _embedding(stored: Any) -> SpectralEmbedding:
    basis = stored["basis"]
    return SpectralEmbedding(stored["eigenvalues"], basis[:0], basis)


def bipartite_cut(
    affinities: scipy.sparse.csr_array, assignments: np.ndarray, num_clusters: int
) -> float:
    """The normalised cut of a bipartite graph, every column put where most of its affinity is.

    Args:
        affinities: Affinities of samples to representatives.
        assignments: Cluster of each sample.
        num_clusters: K.

    Returns:
        A number from 0 to K.
    """
    member = scipy.sparse.csr_array(
        (np.ones(len(assignments)), (assignments, np.arange(len(assignments)))),
        shape=(num_clusters, len(assignments)),
    )
    # Affinity of each cluster's samples with each column.
    weight = (member @ affinities).toarray()
    column = weight.argmax(axis=0)
    inside = np.bincount(column, weight.max(axis=0), minlength=num_clusters)
    volume = weight.sum(axis=1) + np.bincount(column, weight.sum(axis=0), minlength=num_clusters)
    safe = np.where(volume > 0, volume, 1.0)
    return float(np.sum(1.0 - np.where(volume > 0, 2.0 * inside / safe, 0.0)))
