"""Spectral clustering of a neighbour graph whose edges are judged by an invariant distance."""

import functools
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Descent, PreconditionedLBFGS, Stage
from diffclust.chunkwise import Rows, all_rows
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.graphs import (
    Neighbours,
    judged_candidates,
    nested_neighbours,
    rejudged,
)
from diffclust.graphs.refine import Direction
from diffclust.image_source import Images
from diffclust.masks import as_mask
from diffclust.models.counted import Counted
from diffclust.models.cuts import cut_mean_graph, extended, neighbours_among_fitted
from diffclust.models.found import Found, neighbour_arrays, neighbours_of
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.models.scattering import AbstractScatteringModel, tell
from diffclust.models.scattering_settings import check_scattering_settings, check_whole_numbers
from diffclust.objectives import InvariantDistance, PreparedDistance
from diffclust.processes import joined_rows
from diffclust.solvers import Callback, Outcome, RowClusters, nearest_centres
from diffclust.solvers.progress import ignore
from diffclust.solvers.stages import Stages
from diffclust.types import Key

_TYPICAL = 64
"""Images from which the aligner's preconditioner is computed."""


class DeformationInvariantSpectralClustering(AbstractScatteringModel):
    """Neighbours are sought in scattering space and judged by how little bending makes them equal.

    For each image the nearest candidates by projected scattering coefficients; for each candidate
    the penalised thin-plate-spline distance between the images themselves; a self-tuning graph of
    the best by its square root; a normalised cut. None of the papers does this.

    Attributes:
        num_clusters: K.
        num_candidates: How many neighbours in scattering space are judged for each image.
        num_neighbours: How many of them are kept, in each of the graphs that are averaged.
        landmarks: Rows and columns of the landmark grid.
        affine_penalty: Weight of the mean squared displacement of the affine part.
        bending_penalty: Weight of the bending energy of the bent part.
        direction: `"forward"` moves every image onto its candidates; `"min"` and `"mean"` go both
            ways.
        num_removed: How many leading principal directions are removed in scattering space, for each
            of several lists of candidates.
        num_dimensions: How many of the principal directions that follow are kept.
        normalisation: What is done to the coefficients first; see `fit_principal_directions`.
        num_scales: J of the scattering transform, or None; see
            `ProjectedScatteringSpectralClustering`.
        num_angles: L of the scattering transform.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs of the last step's k-means, of which the one of least loss is kept.

    References:
        Cosentino et al., DI K-means, Eq. 3; Villar-Corrales and Morgenshtern, PSSC; Zelnik-Manor
        and Perona (2004), Self-tuning spectral clustering.
    """

    num_clusters: int = eqx.field(static=True)
    num_candidates: int = eqx.field(static=True, default=15, kw_only=True)
    num_neighbours: tuple[int, ...] = eqx.field(static=True, default=(4, 5, 6, 7), kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(5, 5), kw_only=True)
    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)
    bending_penalty: float = eqx.field(static=True, default=0.015, kw_only=True)
    direction: Direction = eqx.field(static=True, default="forward", kw_only=True)
    num_removed: tuple[int, ...] = eqx.field(static=True, default=(1, 2, 3, 4), kw_only=True)
    num_dimensions: int = eqx.field(static=True, default=300, kw_only=True)
    normalisation: Normalisation = eqx.field(static=True, default="root", kw_only=True)
    num_scales: int | None = eqx.field(static=True, default=None, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        check_scattering_settings(self)
        check_whole_numbers(self.num_neighbours, "num_neighbours", 1)
        check_whole_numbers(self.num_removed, "num_removed", 0)
        check_whole_numbers((self.num_restarts,), "num_restarts", 1)
        check_whole_numbers((self.num_candidates,), "num_candidates", max(self.num_neighbours))
        if self.direction not in ("forward", "min", "mean"):
            raise ValueError(
                f"direction must be 'forward', 'min' or 'mean', not {self.direction!r}"
            )
        self.portrait()

    def portrait(self) -> DeformationInvariantKMeans:
        """How prototypes are made, and samples aligned to them: with the same warps."""
        return DeformationInvariantKMeans(
            self.num_clusters,
            landmarks=self.landmarks,
            affine_penalty=self.affine_penalty,
            bending_penalty=self.bending_penalty,
            mask=self.mask,
        )

    def aligner(self) -> AbstractAligner:
        """Descent for pairs that are much alike: a few steps on coarser images, then a few more.

        With so few steps a longer memory of past ones costs more than it gains.
        """
        minimiser = PreconditionedLBFGS(history=1)
        return Descent((Stage(7, blur=1 / 28), Stage(4)), minimiser=minimiser, damping=0.05)

    def distance(self, typical: np.ndarray) -> PreparedDistance:
        """The penalised invariant distance that judges pairs.

        Args:
            typical: Some images of unit norm.

        Returns:
            The distance of one image of unit norm to another.
        """
        portrait = self.portrait()
        penalty = jnp.asarray(portrait.penalty(), dtype=typical.dtype)
        invariant = InvariantDistance(portrait.energy(), self.aligner())
        return invariant.prepared(jnp.asarray(typical), penalty)

    def check(self, images: Images) -> None:
        """Refuses blank images, and images with fewer pixels than landmarks or not in memory."""
        _validation.in_memory(images)
        self.portrait().check(images)

    def num_compared(self, count: int) -> int:
        """See `AbstractScatteringModel.num_compared`."""
        del count
        return self.num_candidates

    def find(
        self, images: np.ndarray, counted: Counted, key: Key, callback: Callback, stages: Stages
    ) -> Found:
        """See `AbstractScatteringModel.find`."""
        most = max(self.num_removed)
        directions, coordinates = self.features_of(images, counted, most, callback, stages)
        candidates = neighbours_of(
            stages.run(
                "neighbours",
                lambda: neighbour_arrays(self.candidates(coordinates, callback, stages.mesh)),
            )
        )
        # A pair may be of two processes' images, and the fit keeps all for new ones anyway.
        every = joined_rows(images, stages.mesh)
        rows = functools.partial(stages.rows, "pairs")
        judged = self.judge(candidates, every, callback=callback, mesh=stages.mesh, rows=rows)

        def cut() -> dict[str, np.ndarray]:
            settings = (self.num_neighbours, self.num_clusters, self.num_restarts)
            weight = counted.relative
            return cut_mean_graph(judged, *settings, key, callback, weight=weight).arrays()

        found = Found.of(stages.run("cut", cut))
        found.extras["bridges"] = counted.places(found.extras["bridges"])
        found.extras.update(coordinates=coordinates, images=every, **directions)
        return found

    def extend(
        self, outcome: Outcome, images: np.ndarray, callback: Callback, mesh: Mesh | None
    ) -> RowClusters:
        """See `AbstractScatteringModel.extend`: new images are compared with those fitted."""
        stored = outcome.extras
        coordinates = self.coordinates_of(outcome, images, callback, mesh)
        candidates = neighbours_among_fitted(
            coordinates, stored, self.num_removed, self.num_dimensions, self.num_candidates, mesh
        )
        every = joined_rows(images, mesh)
        judged = self.judge(candidates, every, stored["images"], callback=callback, mesh=mesh)
        rows = extended(judged, self.num_neighbours, stored)
        return nearest_centres(rows, stored["centres"])

    def candidates(
        self, coordinates: np.ndarray, callback: Callback = ignore, mesh: Mesh | None = None
    ) -> tuple[Neighbours, ...]:
        """The nearest samples in scattering space.

        Args:
            coordinates: Coordinates along principal directions, leading first.
            callback: Told of every chunk.
            mesh: Devices that share the samples, or None for one.

        Returns:
            Candidates of every sample, in the order of `num_removed`.
        """
        return nested_neighbours(
            coordinates,
            self.num_removed,
            self.num_dimensions,
            self.num_candidates,
            mesh=mesh,
            report=lambda done, total: tell(callback)("neighbours", done, total),
        )

    def judge(
        self,
        candidates: Sequence[Neighbours],
        images: np.ndarray,
        references: np.ndarray | None = None,
        *,
        callback: Callback = ignore,
        mesh: Mesh | None = None,
        rows: Rows = all_rows,
    ) -> tuple[Neighbours, ...]:
        """The candidates by the square root of the invariant distance, nearest first.

        Args:
            candidates: Candidates of every image.
            images: The images.
            references: What the candidates' indices point into; None for the images themselves.
            callback: Told of every chunk.
            mesh: Devices that share the pairs, or None for one.
            rows: Makes an array of the chunks of pairs.

        Returns:
            All the candidates, in a new order.
        """
        units = unit_norm(images)
        others = None if references is None else unit_norm(references)
        typical = (units if others is None else others)[:_TYPICAL]
        squared = judged_candidates(
            candidates,
            self.distance(typical),
            units,
            prototypes=others,
            direction=self.direction,
            mesh=mesh,
            report=lambda done, total: tell(callback)("pairs", done, total),
            rows=rows,
        )
        return tuple(
            rejudged(near, np.sqrt(np.maximum(energy, 0.0)), near.num_neighbours)
            for near, energy in zip(candidates, squared, strict=True)
        )


def unit_norm(images: np.ndarray) -> np.ndarray:
    """Images divided by their Euclidean norms, on the host; blank ones stay.

    Args:
        images: Images `(n, height, width, channels)`.

    Returns:
        The scaled images.
    """
    norm = np.sqrt(np.sum(images**2, axis=(1, 2, 3), keepdims=True))
    return images / np.where(norm > 0, norm, 1.0)
