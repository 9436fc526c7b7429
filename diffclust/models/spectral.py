"""PSSC: spectral clustering of projected scattering coefficients."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import equinox as eqx
import jax
import numpy as np
import scipy
from jax.sharding import Mesh
from jaxtyping import Float

from diffclust import _validation
from diffclust.features import drop_leading
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.graphs import (
    Neighbours,
    gaussian_affinity,
    mean_graph,
    nearest_neighbours,
    nested_neighbours,
    weighed_graph,
)
from diffclust.image_source import Images
from diffclust.masks import as_mask
from diffclust.models.counted import Counted
from diffclust.models.cuts import (
    bipartite_cut,
    cut_mean_graph,
    extended,
    neighbours_among_fitted,
    stored_embedding,
)
from diffclust.models.found import Found, neighbour_arrays, neighbours_of
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.models.scattering import AbstractScatteringModel, tell
from diffclust.models.scattering_settings import check_scattering_settings, check_whole_numbers
from diffclust.solvers import (
    Callback,
    Outcome,
    RowClusters,
    cluster_rows,
    eigengap,
    nearest_centres,
    representatives,
    transfer_cut,
)
from diffclust.solvers.progress import ignore
from diffclust.solvers.stages import Stages
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
        num_dimensions: How many of the principal directions that follow are kept.
        normalisation: What is done to the coefficients first; see `fit_principal_directions`.
        num_scales: J of the scattering transform; chosen such that about 4×4 coefficients are left
            of each path where it is not given, which is 3 for images of up to 45 pixels.
        num_angles: L of the scattering transform.
        num_representatives: p of U-SPEC.
        num_candidates: p' of U-SPEC.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
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
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
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

    def check(self, images: Images) -> None:
        """Takes all images that are in memory."""
        _validation.in_memory(images)

    def portrait(self) -> DeformationInvariantKMeans:
        """DI K-means with its defaults."""
        return DeformationInvariantKMeans(self.num_clusters, mask=self.mask)

    def find(
        self, images: np.ndarray, counted: Counted, key: Key, callback: Callback, stages: Stages
    ) -> Found:
        """See `AbstractScatteringModel.find`."""
        most, weight = max(self.num_removed), counted.relative
        directions, coordinates = self.features_of(images, counted, most, callback, stages)
        if self.by_representatives(len(coordinates)):
            found = self.cut_through_representatives(
                coordinates, key, callback, stages, weight=weight
            )
        else:
            near = stages.run(
                "neighbours",
                lambda: neighbour_arrays(self.neighbours(coordinates, callback, stages.mesh)),
            )

            def cut() -> dict[str, np.ndarray]:
                settings = (self.num_neighbours, self.num_clusters, self.num_restarts)
                lists = neighbours_of(near)
                return cut_mean_graph(lists, *settings, key, callback, weight=weight).arrays()

            found = Found.of(stages.run("cut", cut))
            found.extras["bridges"] = counted.places(found.extras["bridges"])
            found.extras["coordinates"] = coordinates
        found.extras.update(directions)
        return found

    def extend(
        self, outcome: Outcome, images: np.ndarray, callback: Callback, mesh: Mesh | None
    ) -> RowClusters:
        """See `AbstractScatteringModel.extend`: by affinities to what was fitted."""
        coordinates = self.coordinates_of(outcome, images, callback, mesh)
        stored = outcome.extras
        if "coordinates" in stored:
            spaces = (self.num_removed, self.num_dimensions)
            neighbours = neighbours_among_fitted(
                coordinates, stored, *spaces, max(self.num_neighbours), mesh
            )
            rows = extended(neighbours, self.num_neighbours, stored)
        else:
            graphs = []
            for n, sigmas in zip(self.num_removed, stored["sigmas"], strict=True):
                window = drop_leading(coordinates, n, self.num_dimensions)
                chosen = stored[f"representatives_{n}"]
                near = nearest_neighbours(window, chosen, max(self.num_neighbours), mesh=mesh)
                graphs.append(self._gaussians(near, len(chosen), sigmas))
            rows = stored_embedding(stored).extend(_side_by_side(graphs))
        return nearest_centres(rows, stored["centres"])

    def num_compared(self, count: int) -> int:
        """See `AbstractScatteringModel.num_compared`."""
        return 0 if self.by_representatives(count) else max(self.num_neighbours)

    def by_representatives(self, count: int) -> bool:
        """Whether samples are compared with a few representatives, and not with each other.

        Args:
            count: Number of samples.
        """
        if self.affinity == "auto":
            return count > _MOST_IN_GRAPH
        return self.affinity == "representatives"

    def neighbours(
        self, coordinates: np.ndarray, callback: Callback = ignore, mesh: Mesh | None = None
    ) -> tuple[Neighbours, ...]:
        """Neighbours of samples for each number of removed directions.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            callback: Told of every chunk.
            mesh: Devices that share the samples, or None for one.

        Returns:
            The neighbours, in the order of `num_removed`.
        """
        report = tell(callback)
        return nested_neighbours(
            coordinates,
            self.num_removed,
            self.num_dimensions,
            max(self.num_neighbours),
            mesh=mesh,
            report=lambda done, total: report("neighbours", done, total),
        )

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

    def cut_through_representatives(
        self,
        coordinates: np.ndarray,
        key: Key,
        callback: Callback = ignore,
        stages: Stages | None = None,
        *,
        weight: Float[np.ndarray, " n"] | None = None,
    ) -> Found:
        """U-SPEC; for several numbers of removed directions with representatives in each space.

        A sample's affinities count its weight; representatives do not depend on weights.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            key: Draws the candidates, and seeds the k-means.
            callback: Told of every chunk.
            stages: Runs the stages, or None.
            weight: Positive weights of the samples, or None for ones.

        Returns:
            The clustering.
        """
        stages, report = stages or Stages(), tell(callback)
        graphs, sigmas, extras = [], [], {}
        for n in self.num_removed:
            chosen, near = self._near_representatives(coordinates, n, key, callback, stages)
            extras[f"representatives_{n}"] = chosen
            each = [near.distance[:, :k].mean(dtype=np.float64) for k in self.num_neighbours]
            sigmas.append(np.asarray(each))
            graphs.append(self._gaussians(near, len(chosen), sigmas[-1]))
        affinities = weighed_graph(_side_by_side(graphs), rows=weight)
        extras["sigmas"] = np.stack(sigmas)

        def cut() -> dict[str, np.ndarray]:
            report("cut", 0, 1)
            embedding = transfer_cut(affinities, self.num_clusters)
            rows = cluster_rows(
                embedding.rows,
                self.num_clusters,
                key=key,
                num_restarts=self.num_restarts,
                weight=weight,
            )
            own = {
                "centres": rows.centres,
                "eigenvalues": embedding.eigenvalues,
                "basis": embedding.basis,
            }
            figures = {"eigengap": eigengap(embedding.eigenvalues, self.num_clusters)}
            loss = bipartite_cut(affinities, rows.assignments, self.num_clusters)
            return Found(rows, loss, own, figures).arrays()

        found = Found.of(stages.run("cut", cut))
        found.extras.update(extras)
        return found

    def _near_representatives(
        self, coordinates: np.ndarray, n: int, key: Key, callback: Callback, stages: Stages
    ) -> tuple[np.ndarray, Neighbours]:
        """Representatives in the space without the n leading directions, and who is near them."""
        report = tell(callback)

        def compute() -> dict[str, np.ndarray]:
            window = np.ascontiguousarray(drop_leading(coordinates, n, self.num_dimensions))
            chosen = representatives(
                window,
                self.num_representatives,
                key=jax.random.fold_in(key, n),
                num_candidates=max(self.num_candidates, self.num_representatives),
            )
            near = nearest_neighbours(
                window,
                chosen,
                max(self.num_neighbours),
                mesh=stages.mesh,
                report=lambda done, total: report("neighbours", done, total),
            )
            return {**neighbour_arrays([near]), "chosen": chosen}

        found = stages.run(f"representatives_{n}", compute)
        chosen = found.pop("chosen")
        return chosen, neighbours_of(found)[0]


def _side_by_side(graphs: "Sequence[scipy.sparse.csr_array]") -> "scipy.sparse.csr_array":
    return scipy.sparse.csr_array(scipy.sparse.hstack(graphs))
