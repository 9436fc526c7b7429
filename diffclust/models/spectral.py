"""PSSC: spectral clustering of projected scattering coefficients."""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import numpy as np
import scipy
from jaxtyping import Float

from diffclust import _validation
from diffclust.features import drop_leading
from diffclust.graphs import (
    Neighbours,
    SpectralEmbedding,
    bipartite_cut,
    eigengap,
    gaussian_affinity,
    mean_graph,
    nearest_neighbours,
    nested_neighbours,
    transfer_cut,
    weighted_graph,
)
from diffclust.graphs.affinity import mean_affinity_to_references
from diffclust.graphs.neighbours import neighbour_arrays, neighbours_of
from diffclust.graphs.refine import windowed_neighbours
from diffclust.models.cuts import cut_of_fit
from diffclust.models.scattering import (
    AbstractScatteringModel,
    Clustering,
    relative_weight,
    reporter,
)
from diffclust.models.settings import check_whole_numbers
from diffclust.parallel import Data, Description
from diffclust.solvers import (
    Callback,
    Context,
    FitStage,
    Outcome,
    PointClusters,
    kmeans,
    nearest_centres,
    representatives,
)
from diffclust.types import Key

if TYPE_CHECKING:
    # At run time they are imported when they are first used.
    import scipy.sparse

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
        num_representatives: p of U-SPEC.
        num_candidates: p' of U-SPEC.

    References:
        Villar-Corrales and Morgenshtern, PSSC; Zelnik-Manor and Perona (2004), Self-tuning spectral
        clustering.
    """

    num_clusters: int = eqx.field(static=True)
    affinity: Affinity = eqx.field(static=True, default="auto", kw_only=True)
    num_removed: tuple[int, ...] = eqx.field(static=True, default=(1, 2, 3, 4), kw_only=True)
    num_neighbours: tuple[int, ...] = eqx.field(static=True, default=(5, 8), kw_only=True)
    num_representatives: int = eqx.field(static=True, default=1000, kw_only=True)
    num_candidates: int = eqx.field(static=True, default=9000, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.count(self.num_clusters, "num_clusters")
        self.check_scattering()
        if self.affinity not in ("auto", "graph", "representatives"):
            raise ValueError(
                f"affinity must be 'auto', 'graph' or 'representatives', not {self.affinity!r}"
            )
        check_whole_numbers(self.num_removed, "num_removed", 0)
        check_whole_numbers(self.num_neighbours, "num_neighbours", 1)
        for name in ("num_representatives", "num_candidates"):
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
    def most_removed(self) -> int:
        """The greatest of the numbers."""
        return max(self.num_removed)

    def clustering_stages(self, description: Description) -> tuple[FitStage, ...]:
        """Neighbours of all samples and the mean graph's cut, or U-SPEC."""
        if self.by_representatives(description.num_samples):
            near = (
                FitStage(f"representatives_{n}", functools.partial(self._representatives, n))
                for n in self.num_removed
            )
            return (*near, FitStage("cut", self._cut_through_representatives))
        return FitStage("neighbours", self._neighbours), FitStage("cut", self._cut)

    def _neighbours(self, context: Context) -> dict[str, np.ndarray]:
        coordinates = context.results["features"]["coordinates"]
        report = reporter(context.callback, "neighbours")
        near = self.neighbours(coordinates, mesh=context.data.mesh, report=report)
        return neighbour_arrays(near)

    def _cut(self, context: Context) -> dict[str, np.ndarray]:
        return cut_of_fit(self, neighbours_of(context.results["neighbours"]), context)

    def kept(self, context: Context) -> dict[str, np.ndarray]:
        """The directions, and with a graph of all samples their coordinates."""
        kept = super().kept(context)
        if "neighbours" in context.results:
            kept["coordinates"] = context.results["features"]["coordinates"]
        return kept

    def extend(self, outcome: Outcome, data: Data, callback: Callback) -> PointClusters:
        """By affinities to the samples, or representatives, that were fitted."""
        coordinates = self.coordinates_of(outcome, data, callback)
        stored = outcome.extras
        most = max(self.num_neighbours)
        if "coordinates" in stored:
            windows = (self.num_removed, self.num_dimensions)
            near = windowed_neighbours(
                coordinates, stored["coordinates"], *windows, most, mesh=data.mesh
            )
            affinities = mean_affinity_to_references(
                near, self.num_neighbours, stored["scales"], weight=stored.get("weight")
            )
        else:
            graphs = []
            for n, sigmas in zip(self.num_removed, stored["sigmas"], strict=True):
                window = drop_leading(coordinates, n, self.num_dimensions)
                chosen = stored[f"representatives_{n}"]
                near = nearest_neighbours(window, chosen, most, mesh=data.mesh)
                graphs.append(self._gaussians(near, len(chosen), sigmas))
            affinities = _side_by_side(graphs)
        embedding = SpectralEmbedding.of_basis(stored["eigenvalues"], stored["basis"])
        return nearest_centres(embedding.extend(affinities), stored["centres"])

    def num_compared(self, count: int) -> int:
        """As many as the largest graph needs; none with representatives."""
        return 0 if self.by_representatives(count) else max(self.num_neighbours)

    def by_representatives(self, count: int) -> bool:
        """Whether samples are compared with a few representatives, and not with each other.

        Args:
            count: Number of samples.
        """
        if self.affinity == "auto":
            return count > _MOST_IN_GRAPH
        return self.affinity == "representatives"

    def neighbours(self, coordinates: np.ndarray, **settings: Any) -> tuple[Neighbours, ...]:
        """Neighbours of samples for each number of removed directions.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            **settings: `mesh` and `report` of `nested_neighbours`.

        Returns:
            The neighbours, in the order of `num_removed`.
        """
        windows = (self.num_removed, self.num_dimensions, max(self.num_neighbours))
        return nested_neighbours(coordinates, *windows, **settings)

    def _gaussians(
        self, near: Neighbours, count: int, sigmas: np.ndarray
    ) -> "scipy.sparse.csr_array":
        """The mean of the affinities for each number of neighbours."""
        return mean_graph(
            [
                gaussian_affinity(near, count, num_neighbours=k, sigma=float(sigma))
                for k, sigma in zip(self.num_neighbours, sigmas, strict=True)
            ]
        )

    def _representatives(self, removed: int, context: Context) -> dict[str, np.ndarray]:
        """Representatives in the space without the leading directions, and who is near them."""
        coordinates = context.results["features"]["coordinates"]
        settings = {
            "mesh": context.data.mesh,
            "report": reporter(context.callback, "neighbours"),
        }
        key = jax.random.split(context.key)[0]
        return self.near_representatives(coordinates, removed, key, **settings)

    def near_representatives(
        self, coordinates: np.ndarray, removed: int, key: Key, **settings: Any
    ) -> dict[str, np.ndarray]:
        """Representatives in the space without the leading directions, and who is near them.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            removed: How many leading directions are left out.
            key: Draws the candidates.
            **settings: `mesh` and `report` of `nearest_neighbours`.

        Returns:
            The neighbours' arrays, and the representatives as `"chosen"`.
        """
        window = np.ascontiguousarray(drop_leading(coordinates, removed, self.num_dimensions))
        chosen = representatives(
            window,
            self.num_representatives,
            key=jax.random.fold_in(key, removed),
            num_candidates=max(self.num_candidates, self.num_representatives),
        )
        near = nearest_neighbours(window, chosen, max(self.num_neighbours), **settings)
        return {**neighbour_arrays([near]), "chosen": chosen}

    def _cut_through_representatives(self, context: Context) -> dict[str, np.ndarray]:
        near = [context.results[f"representatives_{n}"] for n in self.num_removed]
        weight, key = relative_weight(context.data), jax.random.split(context.key)[0]
        reporter(context.callback, "cut")(0, 1)
        return self.cut_through_representatives(near, key, weight=weight).arrays()

    def cut_through_representatives(
        self,
        near: Sequence[Mapping[str, np.ndarray]],
        key: Key,
        *,
        weight: Float[np.ndarray, " n"] | None = None,
    ) -> Clustering:
        """U-SPEC; for several numbers of removed directions with representatives in each space.

        A sample's affinities count its weight; representatives do not depend on weights.

        Args:
            near: What `near_representatives` gives for each of `num_removed`.
            key: Seeds the k-means.
            weight: Positive weights of the samples, or None for ones.

        Returns:
            The clustering.
        """
        graphs, sigmas, extras = [], [], {}
        for n, arrays in zip(self.num_removed, near, strict=True):
            arrays = dict(arrays)
            extras[f"representatives_{n}"] = chosen = arrays.pop("chosen")
            neighbours = neighbours_of(arrays)[0]
            each = [neighbours.distance[:, :k].mean(dtype=np.float64) for k in self.num_neighbours]
            sigmas.append(np.asarray(each))
            graphs.append(self._gaussians(neighbours, len(chosen), sigmas[-1]))
        affinities = weighted_graph(_side_by_side(graphs), rows=weight)
        embedding = transfer_cut(affinities, self.num_clusters)
        settings = {"key": key, "num_restarts": self.num_restarts, "weight": weight}
        points = kmeans(embedding.vectors, self.num_clusters, **settings)
        extras |= {
            "sigmas": np.stack(sigmas),
            "centres": points.centres,
            "eigenvalues": embedding.eigenvalues,
            "basis": embedding.basis,
        }
        loss = bipartite_cut(affinities, points.assignments, self.num_clusters)
        gap = eigengap(embedding.eigenvalues, self.num_clusters)
        return Clustering(points, loss, extras, {"eigengap": gap})


def _side_by_side(graphs: "Sequence[scipy.sparse.csr_array]") -> "scipy.sparse.csr_array":
    return scipy.sparse.csr_array(scipy.sparse.hstack(graphs))
