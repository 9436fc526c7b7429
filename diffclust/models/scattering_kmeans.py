"""K-means of projected scattering coefficients."""

import equinox as eqx
import numpy as np

from diffclust.features import drop_leading
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.models.scattering import (
    AbstractScatteringModel,
    Found,
    check_scattering_settings,
    check_whole_numbers,
    directions_as_arrays,
)
from diffclust.solvers import Callback, Outcome, RowClusters, cluster_rows, nearest_centres
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
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)
    max_passes: int = eqx.field(static=True, default=100, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        check_scattering_settings(self)
        check_whole_numbers((self.num_removed,), "num_removed", 0)
        check_whole_numbers((self.num_restarts,), "num_restarts", 1)
        check_whole_numbers((self.max_passes,), "max_passes", 1)

    @property
    def method(self) -> str:
        """`"scattering-kmeans"`."""
        return "scattering-kmeans"

    @property
    def criterion(self) -> str:
        """`"loss"`: the distortion in scattering space."""
        return "loss"

    def check(self, images: np.ndarray) -> None:
        """Takes all images."""

    def portrait(self) -> DeformationInvariantKMeans:
        """DI K-means with its defaults."""
        return DeformationInvariantKMeans(self.num_clusters)

    def find(self, images: np.ndarray, key: Key, callback: Callback) -> Found:
        """See `AbstractScatteringModel.find`."""
        directions, coordinates = self.project(images, self.num_removed, callback)
        rows = cluster_rows(
            drop_leading(coordinates, self.num_removed),
            self.num_clusters,
            key=key,
            num_restarts=self.num_restarts,
            max_passes=self.max_passes,
            callback=callback,
        )
        extras = {"centres": rows.centres, **directions_as_arrays(directions)}
        return Found(rows, rows.loss, extras, {})

    def extend(self, outcome: Outcome, images: np.ndarray, callback: Callback) -> RowClusters:
        """See `AbstractScatteringModel.extend`: to the nearest centre in scattering space."""
        coordinates = self.coordinates_of(outcome, images, callback)
        window = drop_leading(coordinates, self.num_removed)
        return nearest_centres(window, outcome.extras["centres"])
