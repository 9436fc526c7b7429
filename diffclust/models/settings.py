"""Groups of settings that several models share, each declared and documented once.

A model lists the groups before its abstract class, and gives its own default where it has another:
`class KMeans(MaskSettings, SearchSettings, AbstractPrototypeModel)`.
"""

from typing import Literal, get_args

import equinox as eqx

from diffclust import _validation
from diffclust.energies.transformed import PixelWeights
from diffclust.features.orthogonal_complement import Normalisation
from diffclust.masks import as_mask
from diffclust.sampling import Boundary

BackboneName = Literal["quick", "residual"]


class AbstractSettings(eqx.Module):
    """A group of settings that is one field of a model; files and commands know them singly."""


class MaskSettings(eqx.Module):
    """Which pixels count.

    Attributes:
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
    """

    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)


class SearchSettings(eqx.Module):
    """How Lloyd's algorithm searches.

    Attributes:
        num_restarts: Runs from different seeds; the one of least loss is kept.
        max_passes: Most passes of a run.
        tolerance: Least relative fall of the loss that is worth another pass; 0 goes on until no
            image changes its cluster.
        split_merge: Whether runs try to leave poor optima by splitting one cluster and removing
            another.
    """

    num_restarts: int = eqx.field(static=True, default=2, kw_only=True)
    max_passes: int = eqx.field(static=True, default=30, kw_only=True)
    tolerance: float = eqx.field(static=True, default=1e-3, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)


class AlignmentSettings(eqx.Module):
    """How samples are aligned to prototypes, and what limits that.

    Attributes:
        affine_penalty: Weight of the mean squared displacement of the affine part.
        unit_norm: Whether samples and prototypes have unit norm, as Eq. 2 asks.
        boundary: What lies outside an image.
        pixel_weights: `"uniform"`, or `"jacobian"` for the symmetric distance of App. 7.1.
        weight_rounds: Rounds in which the penalty weights are learned from the images by their
            evidence; 0 keeps the given ones, which must be positive to be learned.
        weights_per_cluster: Whether every cluster learns its own weights (ST K-means, Sec. 6).
    """

    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)
    unit_norm: bool = eqx.field(static=True, default=True, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="zero", kw_only=True)
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    weight_rounds: int = eqx.field(static=True, default=0, kw_only=True)
    weights_per_cluster: bool = eqx.field(static=True, default=False, kw_only=True)

    @property
    def penalty_learning(self) -> tuple[int, bool]:
        """Rounds in which penalty weights are learned, and whether every cluster learns its own."""
        return self.weight_rounds, self.weights_per_cluster


class SplineSettings(eqx.Module):
    """The thin-plate splines of DI K-means.

    Attributes:
        landmarks: Rows and columns of the landmark grid.
        bending_penalty: Weight of the bending energy of the bent part.
    """

    landmarks: tuple[int, int] = eqx.field(static=True, default=(5, 5), kw_only=True)
    bending_penalty: float = eqx.field(static=True, default=0.015, kw_only=True)


class ScatteringSettings(eqx.Module):
    """The scattering transform, and the projection of its coefficients.

    Attributes:
        num_dimensions: How many of the principal directions that follow the removed ones are kept.
        normalisation: What is done to the coefficients first; see `fit_principal_directions`.
        num_scales: J of the scattering transform; chosen such that about 4×4 coefficients are left
            of each path where it is not given, which is 3 for images of up to 45 pixels.
        num_angles: L of the scattering transform.
        num_restarts: Runs of the last step's k-means, of which the one of least loss is kept.
    """

    num_dimensions: int = eqx.field(static=True, default=300, kw_only=True)
    normalisation: Normalisation = eqx.field(static=True, default="root", kw_only=True)
    num_scales: int | None = eqx.field(static=True, default=None, kw_only=True)
    num_angles: int = eqx.field(static=True, default=8, kw_only=True)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)

    def check_scattering(self) -> None:
        """Refuses settings that mean nothing.

        Raises:
            ValueError: With what came and what would do.
        """
        for name in ("num_dimensions", "num_angles", "num_restarts"):
            _validation.count(getattr(self, name), name)
        if self.num_scales is not None:
            _validation.count(self.num_scales, "num_scales")
        if self.normalisation not in get_args(Normalisation):
            raise ValueError(
                f"normalisation must be one of {get_args(Normalisation)}, not "
                f"{self.normalisation!r}"
            )


class PrototypeWarpSettings(eqx.Module):
    """How prototypes are moved onto images.

    Attributes:
        transforms: How prototypes may be moved, in the order in which it is learned: `aff`,
            `proj`, `tps`, `col`, `fullcol` and `morpho` joined by hyphens.
        boundary: What lies outside a prototype.
        landmarks: Landmark grid of splines.
        deformation_penalty: Weight of the sizes of deformations; the paper has none.
    """

    transforms: str = eqx.field(static=True, default="col-aff-tps", kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(4, 4), kw_only=True)
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)


class PredictionSettings(eqx.Module):
    """How alignments are predicted.

    Attributes:
        backbone: What reads an image: `"quick"`, or `"residual"`, the papers'.
        refine_steps: Steps of descent that improve on predicted alignments where images are
            assigned in the end, and where new ones are.
    """

    backbone: BackboneName = eqx.field(static=True, default="quick", kw_only=True)
    refine_steps: int = eqx.field(static=True, default=0, kw_only=True)


class WindowSettings(MaskSettings):
    """Which pixels count, and how much, where prototypes are moved.

    Attributes:
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
        num_restarts: Runs from different seeds; the one of least loss is kept.
    """

    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)


class MixtureSettings(eqx.Module):
    """The Gaussians of a mixture.

    Attributes:
        initial_variance: Of every pixel, before the first step. The paper prints Σ = 0.5, which in
            the authors' code is the standard deviation.
        min_deviation: A standard deviation whose square is added to all variances.
    """

    initial_variance: float = eqx.field(static=True, default=0.25, kw_only=True)
    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)


def check_whole_numbers(values: tuple[int, ...], name: str, least: int) -> None:
    """Refuses settings that are not a few whole numbers.

    Args:
        values: The setting.
        name: Its name in messages.
        least: The least number allowed.

    Raises:
        ValueError: With what came.
    """
    if not values:
        raise ValueError(f"{name} is empty; give at least one whole number")
    for value in values:
        _validation.count(value, name, least=least)
