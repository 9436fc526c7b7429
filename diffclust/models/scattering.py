"""Models that cluster scattering coefficients, projected onto the orthogonal complement."""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from diffclust import _validation
from diffclust._random import split_key
from diffclust.features import AbstractScattering, PrincipalDirections, Scattering, drop_leading
from diffclust.features.orthogonal_complement import (
    Normalisation,
    OnCanvas,
    fit_projection,
    project_images,
)
from diffclust.image_source import Images
from diffclust.models.images import AbstractImageModel
from diffclust.models.kmeans import DeformationInvariantKMeans
from diffclust.models.settings import PassSettings, removed_for
from diffclust.models.staged import AbstractStagedModel, Extension, FeatureClustering, reporter
from diffclust.parallel import Data, Description
from diffclust.solvers import Callback, Context, FitStage, Outcome, ignore, kmeans, nearest_centres

_LEAST_SIDE = 32
_LEAST_PIXELS = 16
_MOST_FEATURES = 16384
"""Largest number of features whose covariance is computed: 2 GB in double precision."""

Contrast = Literal["none", "local", "auto"]

_DIRECTIONS = ("feature_mean", "feature_scale", "feature_basis", "feature_variances")


class AbstractScatteringModel(AbstractStagedModel, AbstractImageModel):
    """A clustering of images by their projected scattering coefficients.

    Attributes:
        num_dimensions: How many principal directions are kept, after the removed ones.
        normalisation: How the coefficients are normalised first; see `fit_principal_directions`.
        num_scales: Scales of the scattering transform (its J). If not given, they are chosen so
            that about 4×4 coefficients are left: 3 for images of up to 45 pixels.
        num_angles: Angles of the scattering transform (its L).
        relative: Whether coefficients are divided by an image's contrast, without its mean colours;
            for photographs on several backgrounds or in changing light.
        contrast: What the coefficients are computed from: `"none"`, the image as it is; `"local"`,
            its local contrast, which is less affected by light and shade; `"auto"`, the latter if
            the background is kept.
    """

    num_dimensions: int = eqx.field(static=True, default=300, kw_only=True)
    normalisation: Normalisation = eqx.field(static=True, default="root", kw_only=True)
    num_scales: int | None = eqx.field(static=True, default=None, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    relative: bool | None = eqx.field(static=True, default=False, kw_only=True)
    contrast: Contrast = eqx.field(static=True, default="auto", kw_only=True)

    @property
    @abc.abstractmethod
    def most_removed(self) -> int:
        """The largest number of leading principal directions that are removed."""

    @property
    def takes_local_contrast(self) -> bool:
        """Whether it was asked for, or the background is kept."""
        return self.contrast == "local"

    def resolved(self, given: Data, /) -> AbstractImageModel:
        """The model with its frame and background, and with or without local contrast."""
        model = super().resolved(given)
        found = "local" if model.ground == "keep" else "none"
        return dataclasses.replace(
            model, contrast=found if self.contrast == "auto" else self.contrast
        )

    @abc.abstractmethod
    def clustering_stages(self, description: Description) -> tuple[FitStage, ...]:
        """The stages after the features; the last returns the arrays of a `FeatureClustering`.

        Args:
            description: What is known about the images.
        """

    def grouping_stages(self, description: Description) -> tuple[FitStage, ...]:
        """Features, and their clustering."""
        views = self.views.items()
        features = (FitStage(f"features{end}", view.features_stage) for end, view in views)
        return (*features, *self.clustering_stages(description))

    def extras(self, context: Context) -> dict[str, np.ndarray]:
        """The directions."""
        return self.of_views(context, _DIRECTIONS)

    def of_views(self, context: Context, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Arrays of the stages that project features.

        Args:
            context: The results of all stages.
            names: Which of a stage's arrays to return.

        Returns:
            Those arrays for all views.
        """
        return {
            f"{name}{end}": context.results[f"features{end}"][name]
            for end in self.views
            for name in names
        }

    def alignment_model(self) -> DeformationInvariantKMeans:
        """The model that aligns samples to prototypes: DI K-means, otherwise with defaults."""
        # Of images whose background stays, black from beyond the border would be a frame.
        boundary = "edge" if self.ground in ("keep", "none") else "zero"
        return DeformationInvariantKMeans(
            self.num_clusters, mask=self.pixel_mask, boundary=boundary
        )

    def validated(self, images: Any, /) -> Images:
        """Also refuses images that are not in memory."""
        array = super().validated(images)
        _validation.in_memory(array)
        return array

    def features_stage(self, context: Context) -> dict[str, np.ndarray]:
        """The stage of a fit that projects features.

        Args:
            context: The input of the stage.

        Returns:
            The directions, and the coordinates of all images.
        """
        data = self.data_in_prototype_frame(context.data)
        directions, coordinates = self.project(data, callback=context.callback)
        arrays = (directions.mean, directions.scale, directions.basis, directions.eigenvalues)
        named = dict(zip(_DIRECTIONS, map(np.asarray, arrays), strict=True))
        return {**named, "coordinates": coordinates}

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """The number of scales."""
        return {"num_scales": self._scales(*description.sample.shape[:2])}

    def num_features(self, sample_shape: tuple[int, ...]) -> int:
        """The number of scattering coefficients."""
        return self._on_canvas(*sample_shape[:2])[0].num_features(sample_shape[2])

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """Features, their covariance, coordinates and neighbours, the latter two for each view."""
        count, size = shape[0], self.num_features(shape[1:])
        features = min(4 * count * size, 2 * 2**30)
        square = 8 * min(count, size) ** 2 if 2 * count <= size else 8 * size**2
        row = 4 * (4 * self.num_dimensions + 2 * math.prod(shape[1:])) + 64 * 12
        return features + 3 * square + len(self.views) * count * row

    def scattering(self, height: int, width: int, num_scales: int) -> AbstractScattering:
        """The scattering transform of a canvas.

        Args:
            height: Its rows.
            width: Its columns.
            num_scales: J.

        Returns:
            The transform.
        """
        angles, relative = self.num_angles, bool(self.relative)
        return Scattering(
            height, width, num_scales=num_scales, num_angles=angles, relative=relative
        )

    def feature_map(self, height: int, width: int) -> OnCanvas:
        """The scattering transform of images laid on a canvas of at least 32×32 pixels.

        The finest wavelets are a few pixels wide. If a side has fewer than 16 pixels, images are
        enlarged by a whole number, as these wavelets would otherwise see nothing but the frame.

        Args:
            height: Rows of the images.
            width: Columns of the images.

        Returns:
            The feature map.
        """
        return self._on_canvas(height, width)[1]

    def _on_canvas(self, height: int, width: int) -> tuple[AbstractScattering, OnCanvas]:
        """The scattering transform, and the same for images laid on a canvas."""
        enlargement, scales = _enlargement(height, width), self._scales(height, width)
        step = 2**scales
        sides = (step * -(-enlargement * side // step) for side in (height, width))
        rows, columns = (max(_LEAST_SIDE, side) for side in sides)
        scattering = self.scattering(rows, columns, scales)
        return scattering, OnCanvas(
            scattering, rows, columns, enlargement, local_contrast=self.contrast == "local"
        )

    def _scales(self, height: int, width: int) -> int:
        """J for images of the given size."""
        if self.num_scales is not None:
            longest = max(_LEAST_SIDE, _enlargement(height, width) * max(height, width))
            if 2**self.num_scales > longest:
                raise ValueError(
                    f"num_scales={self.num_scales} averages over {2**self.num_scales} pixels, but "
                    f"these images are read at {longest}; give at most {int(math.log2(longest))}"
                )
            return self.num_scales
        side = max(_LEAST_SIDE, _enlargement(height, width) * min(height, width))
        return max(1, round(math.log2(side / 4)))

    def project(
        self, data: Data, *, callback: Callback = ignore
    ) -> tuple[PrincipalDirections, Float[np.ndarray, "n directions"]]:
        """Computes features of images, their principal directions, and the coordinates along these.

        Args:
            data: The images, with their weights.
            callback: Called after every chunk.

        Returns:
            The directions, and one row of coordinates for each image.

        Raises:
            ValueError: If there are too few images, or they are too large.
        """
        images, total, most_removed = data.samples, data.num_samples, self.most_removed
        if total < most_removed + 2:
            have = (
                "one image has no principal directions"
                if total == 1
                else f"{total} images have no more than {total - 1} principal directions, of which "
                f"{most_removed} would be removed"
            )
            raise ValueError(
                f"{have}; give at least {most_removed + 2} images, or take a method with prototypes"
            )
        scattering, feature_map = self._on_canvas(*images.shape[1:3])
        count = scattering.num_features(images.shape[3])
        # With few images, inner products are used instead of the covariance of the features.
        most = _MOST_FEATURES if 2 * total > count else 4 * _MOST_FEATURES
        if count > most:
            raise ValueError(
                f"{total} images of shape {images.shape[1:]} have {count} scattering "
                f"coefficients each, more than {most}; make the images smaller or grey, or "
                "num_scales larger"
            )
        weight = data.relative_weights
        return fit_projection(
            feature_map,
            images,
            num_directions=most_removed + self.num_dimensions,
            normalisation=self.normalisation,
            path_size=scattering.path_size,
            weight=None if weight is None else weight[data.own],
            mesh=data.mesh,
            report=reporter(callback),
        )

    def coordinates_of(
        self, outcome: Outcome, data: Data, callback: Callback, view: str = ""
    ) -> Float[np.ndarray, "n directions"]:
        """Coordinates of new images along the directions of a fit.

        Args:
            outcome: The outcome of the fit.
            data: The new images.
            callback: Called after every chunk.
            view: The suffix of the names of the model's arrays, if it is one of several views.

        Returns:
            One row for each image of all processes.
        """
        stored = (jax.device_put(outcome.extras[f"{name}{view}"]) for name in _DIRECTIONS)
        directions = PrincipalDirections(*stored, normalisation=self.normalisation)
        data, report = self.data_in_prototype_frame(data), reporter(callback)
        feature_map = self.feature_map(*data.samples.shape[1:3])
        return project_images(feature_map, directions, data.samples, mesh=data.mesh, report=report)


def _enlargement(height: int, width: int) -> int:
    """The factor by which images of the given size are enlarged."""
    return -(-_LEAST_PIXELS // min(height, width))


class ScatteringKMeans(PassSettings, AbstractScatteringModel):
    """K-means in scattering space: the cheapest clustering that tolerates small deformations.

    With `num_removed=0` it is PSSC's ablation (6), otherwise (5).

    Attributes:
        num_removed: How many leading principal directions are removed. If not given, 2 as in the
            paper, but 0 for up to 4 clusters, since these directions then distinguish the clusters.

    References:
        Villar-Corrales and Morgenshtern, PSSC, Table 5 (5) and (6).
    """

    num_removed: int | None = eqx.field(
        static=True, default=None, kw_only=True, metadata={"least": 0}
    )

    @property
    def most_removed(self) -> int:
        """`num_removed`, or the value for the number of clusters."""
        if self.num_removed is None:
            return min(2, max(removed_for(self.num_clusters)))
        return self.num_removed

    def resolved(self, given: Data, /) -> AbstractImageModel:
        """The model with its frame, background and number of removed directions."""
        return dataclasses.replace(super().resolved(given), num_removed=self.most_removed)

    def clustering_stages(self, description: Description) -> tuple[FitStage, ...]:
        """k-means of the projected coefficients."""
        return (FitStage("clusters", self._cluster),)

    def _cluster(self, context: Context) -> dict[str, np.ndarray]:
        data = context.data
        points = kmeans(
            drop_leading(context.results["features"]["coordinates"], self.most_removed),
            self.num_clusters,
            key=split_key(context.key, 2, 0),
            num_restarts=self.num_restarts,
            max_passes=self.max_passes,
            weight=data.relative_weights,
            callback=context.callback,
        )
        loss = float(np.sum(data.all_weights * points.distances**2))
        return FeatureClustering(points, loss, {"centres": points.centres}).arrays()

    def extend(self, outcome: Outcome, data: Data, callback: Callback) -> Extension:
        """Assigns images to the nearest centre in scattering space."""
        window = drop_leading(self.coordinates_of(outcome, data, callback), self.most_removed)
        return nearest_centres(window, outcome.extras["centres"]), None
