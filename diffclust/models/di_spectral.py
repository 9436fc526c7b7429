"""Spectral clustering of a neighbour graph with edges weighted by an invariant distance."""

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from diffclust import _validation
from diffclust.alignment import (
    AbstractAligner,
    Descent,
    PreconditionedLBFGS,
    PreparedDistance,
    Stage,
)
from diffclust.features import AbstractScattering, RotationInvariantScattering
from diffclust.graphs import Neighbours
from diffclust.graphs.neighbours import neighbours_of
from diffclust.graphs.refine import CandidateDistances, Direction, arranged
from diffclust.image_source import Images
from diffclust.models.graph import by_root, distance_of
from diffclust.models.images import rotation_in
from diffclust.models.kmeans import DeformationInvariantKMeans, after_rotations
from diffclust.models.settings import Register, SplineSettings, values_of
from diffclust.models.spectral import AbstractGraphModel
from diffclust.models.staged import reporter
from diffclust.parallel import Data, Description
from diffclust.parallel.in_flight import Chunkwise
from diffclust.registration import Frame
from diffclust.solvers import Callback, Context, FitStage, Outcome, ignore
from diffclust.transforms import Rotation


class DeformationInvariantSpectralClustering(SplineSettings, AbstractGraphModel):
    """Finds neighbours in scattering space and ranks them by how little bending makes them equal.

    For each image, the nearest candidates are found by projected scattering coefficients; for each
    candidate, the penalised thin-plate-spline distance between the two images is computed. The
    square roots of the lowest distances give a self-tuning graph, which is clustered by a
    normalised cut. None of the papers does this.

    With `register="auto"`, if images have a plain background, candidates are found among
    upright images and compared twice, upright and with their slant; the two graphs are averaged.

    Attributes:
        num_candidates: How many of the nearest images in scattering space each image is aligned
            with. If not given, 15, or 40 if images are rotated by any angle.
        transforms: Transforms of the images, as in DI K-means: `tps`, `turn-tps` or `rot-tps`. With
            rotations, candidates are found by coefficients that do not depend on the angle.
        direction: `"forward"` moves every image onto its candidates; `"min"` and `"mean"` align in
            both directions and take the minimum or the mean.
        register: What is normalised in every image. `"none"`: nothing. `"place"`: position and
            size. `"upright"`: slant as well. `"auto"`: the mean of the graphs of the latter two,
            but as `"place"` with rotations, and as `"none"` if images have no plain background.
            Rotations and reflections are never normalised.

    References:
        Cosentino et al., DI K-means, Eq. 3; Villar-Corrales and Morgenshtern, PSSC; Zelnik-Manor
        and Perona (2004), Self-tuning spectral clustering.
    """

    num_candidates: int | None = eqx.field(static=True, default=None, kw_only=True)
    usual_neighbours: ClassVar[tuple[int, ...]] = (4, 5, 6, 7)
    direction: Direction = eqx.field(static=True, default="forward", kw_only=True)
    register: Register = eqx.field(static=True, default="auto", kw_only=True)

    def __check_init__(self):
        """Refuses invalid settings."""
        if self.num_candidates is not None:
            least = max(self.neighbour_numbers, default=1)
            _validation.count(self.num_candidates, "num_candidates", least=least)
        self.alignment_model()

    @property
    def auto_register(self) -> Register:
        """The mean over both frames; `"place"` if images are rotated by any angle."""
        return "auto" if self._rotation is None else "place"

    @property
    def _rotation(self) -> Rotation | None:
        return rotation_in(self.energy())

    @property
    def _frames(self) -> tuple[Frame, ...]:
        """The frames, in addition to the model's own, in which candidates are compared."""
        if self.register != "auto":
            return (Frame("none"),)
        return self.frame_of("upright"), self.frame_of("place")

    def scattering(self, height: int, width: int, num_scales: int) -> AbstractScattering:
        """The scattering transform, with rotation-invariant coefficients if images are rotated."""
        if (rotation := self._rotation) is None:
            return super().scattering(height, width, num_scales)
        return RotationInvariantScattering(
            height,
            num_scales=num_scales,
            num_angles=self.num_angles,
            relative=bool(self.relative),
            reflection=rotation.reflection,
        )

    def alignment_model(self) -> DeformationInvariantKMeans:
        """The model that aligns samples to prototypes, using the same warps."""
        shared = values_of(SplineSettings, self)
        return DeformationInvariantKMeans(self.num_clusters, mask=self.pixel_mask, **shared)

    def aligner(self) -> AbstractAligner:
        """Descent for pairs that are very similar: a few steps on coarse images, then a few more.

        With so few steps, a longer history would cost more than it gains.
        """
        minimiser = PreconditionedLBFGS(history=1)
        descent = Descent((Stage(7, blur=1 / 28), Stage(4)), minimiser=minimiser, damping=0.05)
        return after_rotations(self.alignment_model().parts(), descent)

    def distance(self, examples: np.ndarray) -> PreparedDistance:
        """The penalised invariant distance of pairs of images.

        Args:
            examples: Some images of unit norm.

        Returns:
            The distance of one image of unit norm to another.
        """
        return distance_of(self.alignment_model(), self.aligner(), examples)

    def check(self, images: Images) -> None:
        """Refuses blank images, and images with fewer pixels than landmarks."""
        self.alignment_model().check(images)
        # In the frame in which they are compared, images may have fewer pixels.
        _validation.landmarks_fit(self.landmarks, *self.registered_shape(images.shape[1:])[:2])

    def num_compared(self, count: int) -> int:
        """All candidates; rotation-invariant coefficients tell less, so they need more."""
        if self.num_candidates is None:
            return max(15 if self._rotation is None else 40, *self.neighbour_numbers)
        return self.num_candidates

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """Adds the number of candidates."""
        compared = self.num_compared(description.num_samples)
        return {**super().automatic_settings(description), "num_candidates": compared}

    def clustering_stages(self, description: Description) -> tuple[FitStage, ...]:
        """Candidates in scattering space, their invariant distances, and the mean graph's cut."""
        return (
            FitStage("neighbours", self.neighbours_stage),
            *(
                FitStage(_pairs_in(frame), chunks=functools.partial(self._pairs, frame))
                for frame in self._frames
            ),
            FitStage("cut", self.cut_stage),
        )

    def candidate_distances(
        self,
        images: np.ndarray,
        references: np.ndarray | None = None,
        *,
        data: Data | None = None,
        callback: Callback = ignore,
    ) -> CandidateDistances:
        """The invariant distances of images to candidates.

        Args:
            images: The images.
            references: The images that the candidates' indices refer to; None for `images`
                themselves.
            data: The samples, whose devices share the work; None for one device.
            callback: Called after every chunk.

        Returns:
            A function of the candidates.
        """
        units = unit_norm(images)
        others = None if references is None else unit_norm(references)
        pairs = (self.distance(units if others is None else others), units, others, self.direction)
        return CandidateDistances(
            *pairs, mesh=data and data.mesh, report=reporter(callback, "pairs")
        )

    def rerank(
        self, candidates: Sequence[Neighbours], images: np.ndarray
    ) -> tuple[Neighbours, ...]:
        """Ranks all candidates by the square root of the invariant distance.

        Args:
            candidates: Candidates of every image.
            images: The images.

        Returns:
            The candidates, nearest first.
        """
        return by_root(candidates, self.candidate_distances(images)(candidates))

    def _pairs(self, frame: Frame, context: Context) -> Chunkwise:
        # The two images of a pair may belong to different processes, and the fit keeps all anyway.
        every = np.asarray(frame.registered(context.data.all_samples))
        distances = self.candidate_distances(every, data=context.data, callback=context.callback)
        return distances.chunks(neighbours_of(context.results["neighbours"]))

    def ranked_neighbours(self, context: Context) -> Sequence[Neighbours]:
        """Candidates, ranked by the invariant distance in each frame."""
        candidates = neighbours_of(context.results["neighbours"])
        ranked: list[Neighbours] = []
        for frame in self._frames:
            rows = context.results[_pairs_in(frame)]["rows"]
            ranked += by_root(candidates, arranged(candidates, rows, direction=self.direction))
        return ranked

    def extras(self, context: Context) -> dict[str, np.ndarray]:
        """The directions, coordinates and images with which new ones are compared."""
        return {**super().extras(context), "images": context.data.all_samples}

    def neighbours_of_new(
        self, outcome: Outcome, data: Data, callback: Callback = ignore
    ) -> Sequence[Neighbours]:
        """Ranks by the invariant distance, in each frame."""
        candidates = super().neighbours_of_new(outcome, data, callback)
        every, fitted = data.all_samples, outcome.extras["images"]
        ranked: list[Neighbours] = []
        for frame in self._frames:
            both = (np.asarray(frame.registered(x)) for x in (every, fitted))
            distances = self.candidate_distances(*both, data=data, callback=callback)
            ranked += by_root(candidates, distances(candidates))
        return ranked


def _pairs_in(frame: Frame) -> str:
    """Name of the stage that compares pairs in a frame."""
    return "pairs place" if frame.place == "place" else "pairs"


def unit_norm(images: np.ndarray) -> np.ndarray:
    """Images divided by their Euclidean norms, on the host; blank ones are unchanged.

    Args:
        images: Images `(n, height, width, channels)`.

    Returns:
        The scaled images.
    """
    # Scaled by powers of two first: this changes no digit, and keeps squares within the float's
    # range.
    images = np.ldexp(images, -np.frexp(np.abs(images).max((1, 2, 3), keepdims=True))[1])
    norm = np.sqrt(np.sum(images**2, axis=(1, 2, 3), keepdims=True))
    return images / np.where(norm > 0, norm, 1.0)
