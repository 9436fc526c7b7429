"""K-means and its two invariant kin, each a transform, a penalty and an aligner."""

import equinox as eqx

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Descent, NoAlignment, Stage
from diffclust.energies import TransformedDistance
from diffclust.energies.transformed import PixelWeights
from diffclust.image_source import Images
from diffclust.masks import as_mask
from diffclust.models.prototypes import AbstractPrototypeModel
from diffclust.prototypes import AbstractPrototypeFamily, MeanImages, UnitNormImages
from diffclust.sampling import Boundary
from diffclust.transforms import Affine, Identity, ThinPlateSpline

_COARSE_SIDE = 14
"""Restarts run on images whose shorter side has about this many pixels."""


def _coarsening(height: int, width: int) -> int:
    return max(1, min(height, width) // _COARSE_SIDE)


class KMeans(AbstractPrototypeModel):
    """Ordinary K-means in pixel space: no transform, plain means.

    Attributes:
        num_clusters: K.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        max_passes: Most passes of a run.
        tolerance: Least relative fall of the loss that is worth another pass; 0 goes on until no
            image changes its cluster.
        split_merge: Whether runs try to leave poor optima by splitting one cluster and removing
            another.

    References:
        Lloyd (1982), Least squares quantization in PCM.
    """

    num_clusters: int = eqx.field(static=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=4, kw_only=True)
    max_passes: int = eqx.field(static=True, default=300, kw_only=True)
    tolerance: float = eqx.field(static=True, default=0.0, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check_counts(self)

    @property
    def weight_learning(self) -> tuple[int, bool]:
        """There are no weights to learn."""
        return 0, False

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance."""
        return TransformedDistance(Identity(), mask=self.mask)

    def aligner(self) -> AbstractAligner:
        """None."""
        return NoAlignment()

    def family(self) -> AbstractPrototypeFamily:
        """Means."""
        return MeanImages()

    def penalty(self) -> tuple[float, ...]:
        """None."""
        return ()

    def coarsening(self, height: int, width: int) -> int:
        """None: a pass costs next to nothing."""
        del height, width
        return 1

    def check(self, images: Images) -> None:
        """Takes all images."""


class AffineInvariantKMeans(AbstractPrototypeModel):
    """AI K-means: every image is aligned to every prototype by its best affine map.

    Attributes:
        num_clusters: K.
        affine_penalty: Weight of the mean squared displacement of the affine map.
        unit_norm: Whether samples and prototypes have unit norm, as Eq. 2 asks.
        boundary: What lies outside an image.
        pixel_weights: `"uniform"`, or `"jacobian"` for the symmetric distance of App. 7.1.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        max_passes: Most passes of a run.
        tolerance: Least relative fall of the loss that is worth another pass.
        split_merge: Whether runs try to leave poor optima by splitting one cluster and removing
            another.
        weight_rounds: Rounds in which the penalty weights are learned from the images by their
            evidence; 0 keeps the given ones, which must be positive to be learned.
        weights_per_cluster: Whether every cluster learns its own weights (ST K-means, Sec. 6).

    References:
        Cosentino et al., DI K-means, Sec. 4.2; Fitzgibbon and Zisserman (2002).
    """

    num_clusters: int = eqx.field(static=True)
    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)
    unit_norm: bool = eqx.field(static=True, default=True, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="zero", kw_only=True)
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=2, kw_only=True)
    max_passes: int = eqx.field(static=True, default=30, kw_only=True)
    tolerance: float = eqx.field(static=True, default=1e-3, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)
    weight_rounds: int = eqx.field(static=True, default=0, kw_only=True)
    weights_per_cluster: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check_counts(self)
        _validation.positive(self.affine_penalty, "affine_penalty", least=0)
        _check_weights(self)

    @property
    def weight_learning(self) -> tuple[int, bool]:
        """See `AbstractPrototypeModel.weight_learning`."""
        return self.weight_rounds, self.weights_per_cluster

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance after an affine map."""
        transform = Affine(boundary=self.boundary)
        return TransformedDistance(transform, pixel_weights=self.pixel_weights, mask=self.mask)

    def aligner(self) -> AbstractAligner:
        """Descent in two levels."""
        return Descent((Stage(8, blur=1 / 14), Stage(12)))

    def family(self) -> AbstractPrototypeFamily:
        """Means, of unit norm where that is asked for."""
        return UnitNormImages() if self.unit_norm else MeanImages()

    def penalty(self) -> tuple[float, ...]:
        """That of the affine map."""
        return (self.affine_penalty,)

    def coarsening(self, height: int, width: int) -> int:
        """See `AbstractImageModel.coarsening`."""
        return _coarsening(height, width)

    def check(self, images: Images) -> None:
        """Refuses blank images where they have to be scaled to unit norm."""
        if self.unit_norm:
            _validation.not_blank(images)


class DeformationInvariantKMeans(AbstractPrototypeModel):
    """DI K-means (ST K-means): every image is aligned to every prototype by a thin-plate spline.

    The size of the warps is limited by penalties, or every digit would become every other.

    Attributes:
        num_clusters: K.
        landmarks: Rows and columns of the landmark grid.
        affine_penalty: Weight of the mean squared displacement of the affine part.
        bending_penalty: Weight of the bending energy of the bent part.
        regularisation: λ of Eq. 9.
        unit_norm: Whether samples and prototypes have unit norm, as Eq. 2 asks.
        boundary: What lies outside an image.
        pixel_weights: `"uniform"`, or `"jacobian"` for the symmetric distance of App. 7.1.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        max_passes: Most passes of a run.
        tolerance: Least relative fall of the loss that is worth another pass.
        split_merge: Whether runs try to leave poor optima by splitting one cluster and removing
            another.
        weight_rounds: Rounds in which the penalty weights are learned from the images by their
            evidence; 0 keeps the given ones, which must be positive to be learned.
        weights_per_cluster: Whether every cluster learns its own weights (ST K-means, Sec. 6).

    References:
        Cosentino et al., DI K-means, Eqs. 2 to 4, Algorithm 2; ST K-means, Algorithm 2.
    """

    num_clusters: int = eqx.field(static=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(5, 5), kw_only=True)
    affine_penalty: float = eqx.field(static=True, default=0.5, kw_only=True)
    bending_penalty: float = eqx.field(static=True, default=0.015, kw_only=True)
    regularisation: float = eqx.field(static=True, default=0.0, kw_only=True)
    unit_norm: bool = eqx.field(static=True, default=True, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="zero", kw_only=True)
    pixel_weights: PixelWeights = eqx.field(static=True, default="uniform", kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=2, kw_only=True)
    max_passes: int = eqx.field(static=True, default=30, kw_only=True)
    tolerance: float = eqx.field(static=True, default=1e-3, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)
    weight_rounds: int = eqx.field(static=True, default=0, kw_only=True)
    weights_per_cluster: bool = eqx.field(static=True, default=False, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check_counts(self)
        _validation.positive(self.affine_penalty, "affine_penalty", least=0)
        _validation.positive(self.bending_penalty, "bending_penalty", least=0)
        _check_weights(self)
        self.transform()

    def transform(self) -> ThinPlateSpline:
        """The thin-plate spline over the landmark grid."""
        return ThinPlateSpline(
            self.landmarks, regularisation=self.regularisation, boundary=self.boundary
        )

    @property
    def weight_learning(self) -> tuple[int, bool]:
        """See `AbstractPrototypeModel.weight_learning`."""
        return self.weight_rounds, self.weights_per_cluster

    def energy(self, channels: int = 1) -> TransformedDistance:
        """The squared Euclidean distance after a thin-plate spline."""
        weights = self.pixel_weights
        return TransformedDistance(self.transform(), pixel_weights=weights, mask=self.mask)

    def aligner(self) -> AbstractAligner:
        """Descent, affine first, coarse to fine."""
        return Descent()

    def family(self) -> AbstractPrototypeFamily:
        """Means, of unit norm where that is asked for."""
        return UnitNormImages() if self.unit_norm else MeanImages()

    def penalty(self) -> tuple[float, ...]:
        """Those of the affine and of the bent part."""
        return (self.affine_penalty, self.bending_penalty)

    def coarsening(self, height: int, width: int) -> int:
        """See `AbstractImageModel.coarsening`."""
        return _coarsening(height, width)

    def check(self, images: Images) -> None:
        """Refuses blank images, and images with fewer pixels than landmarks."""
        _validation.landmarks_fit(self.landmarks, *images.shape[1:3])
        if self.unit_norm:
            _validation.not_blank(images)


def _check_counts(model: AbstractPrototypeModel) -> None:
    for name in ("num_clusters", "num_restarts", "max_passes"):
        _validation.count(getattr(model, name), name)
    _validation.positive(model.tolerance, "tolerance", least=0)


def _check_weights(model: AbstractPrototypeModel) -> None:
    rounds, per_cluster = model.weight_learning
    _validation.positive(rounds, "weight_rounds", least=0)
    if per_cluster and rounds == 0:
        raise ValueError("weights_per_cluster needs weight_rounds of at least 1; 5 will do")
    if rounds and min(model.penalty()) == 0.0:
        raise ValueError(
            f"penalty weights of {model.penalty()} cannot be learned from: weight_rounds needs "
            "all of them positive"
        )
