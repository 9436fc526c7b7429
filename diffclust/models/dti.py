"""Transformation-invariant K-means and mixtures: prototypes are moved onto the samples."""

import equinox as eqx

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Descent, NoAlignment, Sequential, Stage
from diffclust.masks import as_mask
from diffclust.models.gradient import AbstractGradientModel, BackboneName
from diffclust.models.prototype_objective import PrototypeObjective, mixture, squared_distances
from diffclust.models.training import Training
from diffclust.sampling import Boundary


class DTIKMeans(AbstractGradientModel):
    """DTI K-means: a network predicts how each prototype is moved onto each image.

    Attributes:
        num_clusters: K.
        transforms: How prototypes may be moved, in the order in which it is learned: `aff`,
            `proj`, `tps`, `col`, `fullcol` and `morpho` joined by hyphens.
        backbone: What reads an image: `"quick"`, or `"residual"`, the papers'.
        boundary: What lies outside a prototype.
        landmarks: Landmark grid of splines.
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
        deformation_penalty: Weight of the sizes of deformations; the paper has none.
        refine_steps: Steps of descent that improve on predicted alignments where images are
            assigned in the end, and where new ones are.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Eq. 4, Sec. 4.
    """

    num_clusters: int = eqx.field(static=True)
    transforms: str = eqx.field(static=True, default="col-aff-tps", kw_only=True)
    backbone: BackboneName = eqx.field(static=True, default="quick", kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(4, 4), kw_only=True)
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)
    refine_steps: int = eqx.field(static=True, default=0, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)
    training: Training = eqx.field(default=Training(), kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)
        _validation.count(self.refine_steps, "refine_steps", least=0)

    def objective(self) -> PrototypeObjective:
        """Squared distances to the nearest prototype."""
        return squared_distances()

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """A prediction; in the end refined, where that is asked for."""
        prediction = self.prediction(transforms, channels, exact=final)
        return _refined(prediction, self.refine_steps) if final else prediction


class DTIGaussianMixture(AbstractGradientModel):
    """DTI GMM: a Gaussian mixture whose means and variances are moved onto each image.

    Attributes:
        num_clusters: K.
        transforms: How prototypes may be moved; see `DTIKMeans`.
        initial_variance: Of every pixel, before the first step. The paper prints Σ = 0.5, which in
            the authors' code is the standard deviation.
        min_deviation: A standard deviation whose square is added to all variances.
        backbone: What reads an image: `"quick"`, or `"residual"`, the papers'.
        boundary: What lies outside a prototype.
        landmarks: Landmark grid of splines.
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
        deformation_penalty: Weight of the sizes of deformations; the paper has none.
        refine_steps: Steps of descent that improve on predicted alignments where images are
            assigned in the end, and where new ones are.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Eq. 5 and Algorithm 1.
    """

    num_clusters: int = eqx.field(static=True)
    transforms: str = eqx.field(static=True, default="col-aff-tps", kw_only=True)
    initial_variance: float = eqx.field(static=True, default=0.25, kw_only=True)
    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)
    backbone: BackboneName = eqx.field(static=True, default="quick", kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(4, 4), kw_only=True)
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)
    refine_steps: int = eqx.field(static=True, default=0, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)
    training: Training = eqx.field(default=Training(), kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)
        _validation.count(self.refine_steps, "refine_steps", least=0)

    def objective(self) -> PrototypeObjective:
        """The mixture's negative log-likelihood."""
        return mixture(self.initial_variance, self.min_deviation)

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """A prediction; in the end refined, where that is asked for."""
        prediction = self.prediction(transforms, channels, exact=final)
        return _refined(prediction, self.refine_steps) if final else prediction


class TransformationInvariantKMeans(AbstractGradientModel):
    """TI clustering: the params that move prototypes are optimised for each image, at every step.

    The paper's baseline: far slower than prediction, and worse with many params.

    Attributes:
        num_clusters: K.
        transforms: How prototypes may be moved; see `DTIKMeans`.
        align_steps: Steps of descent for each image and step.
        boundary: What lies outside a prototype.
        landmarks: Landmark grid of splines.
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
        deformation_penalty: Weight of the sizes of deformations; the paper has none.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Eq. 2 and Table 3.
    """

    num_clusters: int = eqx.field(static=True)
    transforms: str = eqx.field(static=True, default="aff", kw_only=True)
    align_steps: int = eqx.field(static=True, default=8, kw_only=True)
    boundary: Boundary = eqx.field(static=True, default="edge", kw_only=True)
    landmarks: tuple[int, int] = eqx.field(static=True, default=(4, 4), kw_only=True)
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    deformation_penalty: float = eqx.field(static=True, default=0.0, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)
    training: Training = eqx.field(default=Training(), kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)
        _validation.count(self.align_steps, "align_steps")

    @property
    def backbone(self) -> BackboneName | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """None: nothing is predicted."""
        return None

    def objective(self) -> PrototypeObjective:
        """Squared distances to the nearest prototype."""
        return squared_distances()

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """Descent from where the image's last one ended; of new images nothing is remembered."""
        return Descent((Stage((4 if final else 1) * self.align_steps),), candidates=None)


class GaussianMixture(AbstractGradientModel):
    """A Gaussian mixture with independent pixels that moves nothing: the paper's baseline.

    Attributes:
        num_clusters: K.
        initial_variance: Of every pixel, before the first step. The paper prints Σ = 0.5, which in
            the authors' code is the standard deviation.
        min_deviation: A standard deviation whose square is added to all variances.
        window: Standard deviation of a Gaussian weight around the centre of images, as a fraction
            of the shorter side; None weighs all pixels alike.
        mask: Which pixels count, as weights in [0, 1] of shape `(height, width)`; hidden ones are
            black to the model. None for all; see `diffclust.masks`.
        num_restarts: Runs from different seeds; the one of least loss is kept.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Table 1 (GMM) and Algorithm 1.
    """

    num_clusters: int = eqx.field(static=True)
    initial_variance: float = eqx.field(static=True, default=0.25, kw_only=True)
    min_deviation: float = eqx.field(static=True, default=0.25, kw_only=True)
    window: float | None = eqx.field(static=True, default=None, kw_only=True)
    mask: str | None = eqx.field(static=True, default=None, kw_only=True, converter=as_mask)
    num_restarts: int = eqx.field(static=True, default=1, kw_only=True)
    training: Training = eqx.field(default=Training(), kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)

    @property
    def deformation_penalty(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Zero: nothing is moved."""
        return 0.0

    @property
    def transforms(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """None."""
        return ""

    @property
    def backbone(self) -> BackboneName | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """None: nothing is predicted."""
        return None

    @property
    def boundary(self) -> Boundary:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of no consequence: nothing is moved."""
        return "edge"

    @property
    def landmarks(self) -> tuple[int, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of no consequence: nothing is moved."""
        return (4, 4)

    def objective(self) -> PrototypeObjective:
        """The mixture's negative log-likelihood."""
        return mixture(self.initial_variance, self.min_deviation)

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """None."""
        return NoAlignment(candidates=self.num_clusters)


def _refined(aligner: AbstractAligner, steps: int) -> AbstractAligner:
    return Sequential(aligner, Descent((Stage(steps),), candidates=None)) if steps else aligner


def _check(model: AbstractGradientModel) -> None:
    for name in ("num_clusters", "num_restarts"):
        _validation.count(getattr(model, name), name)
    if model.window is not None and not model.window > 0.0:
        raise ValueError(f"window must be positive, or None for none; not {model.window}")
    _validation.positive(model.deformation_penalty, "deformation_penalty", least=0)
    model.sequence(1)
    model.objective()
