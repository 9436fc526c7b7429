"""K-means of projected scattering coefficients."""

import equinox as eqx
import numpy as np
from jax.sharding import Mesh

from diffclust import _validation
from diffclust.features import drop_leading
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.image_source import Images
from diffclust.masks import as_mask
from diffclust.models.counted import Counted
from diffclust.models.found import Found
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.models.scattering import AbstractScatteringModel
from diffclust.models.scattering_settings import check_scattering_settings, check_whole_numbers
from diffclust.solvers import Callback, Outcome, RowClusters, cluster_rows, nearest_centres
from diffclust.solvers.stages import Stages
from diffclust.types import Key


class ScatteringKMeans(AbstractScatteringModel):
    """K-means in scattering space: the cheapest clustering that forgives small deformations.

    With `num_removed=0` it is PSSC's ablation (6), otherwise (5).

    Attributes:
        num_clusters: K.
        num_removed: How many leading principal directions are removed.
        num_dimensions: How many of the principal directions that follow are kept.
        normalisation: What is done to the coefficients first; see `fit_principal_directions`.
        num_scales: J of the scattering transform, or None; see
            `ProjectedScatteringSpectralClustering`.
        num_angles: L of the scattering transform.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        max_passes: Most passes of a run.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Table 5 (5) and (6).
    """

    num_clusters: int = eqx.field(static=True)
    num_removed: int = eqx.field(static=True, default=2, kw_only=True)
    num_dimensions: int = eqx.field(static=True, default=300, kw_only=True)
    normalisation: Normalisation = eqx.field(static=True, default="root", kw_only=True)
    num_scales: int | None = eqx.field(static=True, default=None, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)
    max_passes: int = eqx.field(static=True, default=100, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        check_scattering_settings(self)
        check_whole_numbers((self.num_removed,), "num_removed", 0)
        check_whole_numbers((self.num_restarts,), "num_restarts", 1)
        check_whole_numbers((self.max_passes,), "max_passes", 1)

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
        settings = (self.num_removed, callback, stages)
        directions, coordinates = self.features_of(images, counted, *settings)

        def cluster() -> dict[str, np.ndarray]:
            rows = cluster_rows(
                drop_leading(coordinates, self.num_removed),
                self.num_clusters,
                key=key,
                num_restarts=self.num_restarts,
                max_passes=self.max_passes,
                weight=counted.relative,
                callback=callback,
            )
            loss = rows.loss
            if counted.weight is not None:
                loss = float(np.sum(counted.weight * rows.distances**2))
            return Found(rows, loss, {"centres": rows.centres}, {}).arrays()

        found = Found.of(stages.run("clusters", cluster))
        found.extras.update(directions)
        return found

    def extend(
        self, outcome: Outcome, images: np.ndarray, callback: Callback, mesh: Mesh | None
    ) -> RowClusters:
        """See `AbstractScatteringModel.extend`: to the nearest centre in scattering space."""
        coordinates = self.coordinates_of(outcome, images, callback, mesh)
        window = drop_leading(coordinates, self.num_removed)
        return nearest_centres(window, outcome.extras["centres"])
