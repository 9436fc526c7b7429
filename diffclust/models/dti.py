"""Transformation-invariant K-means and mixtures: prototypes are moved onto the samples."""

from typing import ClassVar

import equinox as eqx

from diffclust import _validation
from diffclust.alignment import AbstractAligner, Descent, NoAlignment, Sequential, Stage
from diffclust.models.gradient import (
    AbstractGradientModel,
    PrototypeObjective,
    mixture,
    squared_distances,
)
from diffclust.models.settings import (
    BackboneName,
    MixtureSettings,
    PredictionSettings,
    PrototypeWarpSettings,
    Training,
    WindowSettings,
)
from diffclust.sampling import Boundary


class AbstractDTIModel(
    PredictionSettings, PrototypeWarpSettings, WindowSettings, AbstractGradientModel
):
    """A network predicts how each prototype is moved onto each image."""

    training: Training = eqx.field(default=Training(), kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)
        _validation.count(self.refine_steps, "refine_steps", least=0)

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """A prediction; in the end refined, where that is asked for."""
        prediction = self.prediction(transforms, channels, exact=final)
        if not final or not self.refine_steps:
            return prediction
        return Sequential(prediction, Descent((Stage(self.refine_steps),), candidates=None))


class DTIKMeans(AbstractDTIModel):
    """DTI K-means: a network predicts how each prototype is moved onto each image.

    Attributes:
        num_clusters: K.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Eq. 4, Sec. 4.
    """

    num_clusters: int = eqx.field(static=True)

    def objective(self) -> PrototypeObjective:
        """Squared distances to the nearest prototype."""
        return squared_distances()


class DTIGaussianMixture(MixtureSettings, AbstractDTIModel):
    """DTI GMM: a Gaussian mixture whose means and variances are moved onto each image.

    Attributes:
        num_clusters: K.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Eq. 5 and Algorithm 1.
    """

    num_clusters: int = eqx.field(static=True)

    def objective(self) -> PrototypeObjective:
        """The mixture's negative log-likelihood."""
        return mixture(self.initial_variance, self.min_deviation)


class TransformationInvariantKMeans(PrototypeWarpSettings, WindowSettings, AbstractGradientModel):
    """TI clustering: the params that move prototypes are optimised for each image, at every step.

    The paper's baseline: far slower than prediction, and worse with many params.

    Attributes:
        num_clusters: K.
        align_steps: Steps of descent for each image and step.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Eq. 2 and Table 3.
    """

    num_clusters: int = eqx.field(static=True)
    transforms: str = eqx.field(static=True, default="aff", kw_only=True)
    align_steps: int = eqx.field(static=True, default=8, kw_only=True)
    training: Training = eqx.field(default=Training(), kw_only=True)
    backbone: ClassVar[BackboneName | None] = None

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)
        _validation.count(self.align_steps, "align_steps")

    def objective(self) -> PrototypeObjective:
        """Squared distances to the nearest prototype."""
        return squared_distances()

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """Descent from where the image's last one ended; of new images nothing is remembered."""
        return Descent((Stage((4 if final else 1) * self.align_steps),), candidates=None)


class GaussianMixture(MixtureSettings, WindowSettings, AbstractGradientModel):
    """A Gaussian mixture with independent pixels that moves nothing: the paper's baseline.

    Attributes:
        num_clusters: K.
        training: How it is trained.

    References:
        Monnier et al., DTI clustering, Table 1 (GMM) and Algorithm 1.
    """

    num_clusters: int = eqx.field(static=True)
    training: Training = eqx.field(default=Training(), kw_only=True)
    transforms: ClassVar[str] = ""
    backbone: ClassVar[BackboneName | None] = None
    boundary: ClassVar[Boundary] = "edge"
    landmarks: ClassVar[tuple[int, int]] = (4, 4)
    deformation_penalty: ClassVar[float] = 0.0

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _check(self)

    def objective(self) -> PrototypeObjective:
        """The mixture's negative log-likelihood."""
        return mixture(self.initial_variance, self.min_deviation)

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """None."""
        return NoAlignment(candidates=self.num_clusters)


def _check(model: AbstractGradientModel) -> None:
    for name in ("num_clusters", "num_restarts"):
        _validation.count(getattr(model, name), name)
    if model.window is not None and not model.window > 0.0:
        raise ValueError(f"window must be positive, or None for none; not {model.window}")
    _validation.positive(model.deformation_penalty, "deformation_penalty", least=0)
    model.sequence(1)
    model.objective()
