"""Transformation-invariant K-means and mixtures: prototypes are moved onto the samples."""

from typing import Any, ClassVar, Literal

import equinox as eqx

from diffclust.alignment import AbstractAligner, Descent, Prediction, Sequential, Stage
from diffclust.models.gradient import AbstractGradientModel, PrototypeObjective, mixture
from diffclust.models.settings import (
    BackboneName,
    MixtureSettings,
    PrototypeWarpSettings,
    PublishedSettings,
)

_PUBLISHED: dict[str, Any] = {
    "transforms": "aff-morpho-tps",
    "backbone": "residual-batch-norm",
    "epochs": (50, 100, 50, 80, 20),
    "curriculum_start": "identity",
    "split_merge": False,
    "refill_every": 50,
}
"""What both DTI models share of the paper's settings (Sec. 4.2) and the authors' configuration."""


class AbstractDTIModel(PublishedSettings, PrototypeWarpSettings, AbstractGradientModel):
    """Clustering in which a network predicts how each prototype is moved onto each image.

    Attributes:
        backbone: The network that reads an image: `"strided"`, `"residual"` (DTI's network
            without normalisation) or `"residual-batch-norm"` (with it, and with heads that start
            as in the authors' code).
        refine_steps: Steps of descent that refine the predicted alignments in the final assignment
            and when new images are assigned.
    """

    backbone: BackboneName = eqx.field(static=True, default="strided", kw_only=True)
    refine_steps: int = eqx.field(static=True, default=0, kw_only=True, metadata={"least": 0})

    @property
    def least_size(self) -> int:
        """4 × 4 pixels, which the network needs, if there are transforms to predict."""
        return 16 if self.transform_names else 1

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """Prediction; in the final assignment for all clusters, refined if that is asked for."""
        shortlist, first = self.training.shortlist, self.first_spatial(transforms, channels)
        if final or shortlist is None or first == transforms:
            prediction = Prediction(transforms=transforms)
        else:
            screening = self.energy(channels, first)
            prediction = Prediction(
                transforms=transforms, candidates=shortlist, screening=screening
            )
        if not final or not self.refine_steps:
            return prediction
        # A mixture needs every responsibility.
        candidates = 3 if self._objective.reduction.is_hard else None
        descent = Descent((Stage(self.refine_steps),), candidates=None)
        return Sequential(prediction, descent, candidates=candidates)


class DTIKMeans(AbstractDTIModel):
    """DTI K-means: a network predicts how each prototype is moved onto each image.

    Attributes:
        published: The authors' settings for the MNIST test digits, as in their configuration: Adam
            with a rate of 0.001; a ResNet-20 with batch normalisation; 50, 100, 50 and 80 epochs
            with no transform, aff, morpho and tps; 20 at a tenth of the rate; tiny clusters
            refilled every 50 steps; no moves. Other data sets have other settings, which are in
            `experiments/dti.py` (SVHN and photographs: `docs/papers.md`): give them as settings.
            The authors' configurations differ from the paper's text for MNIST-1k, in batches of
            100 (the paper: 128), and for affNIST, in a rate of 0.0001 (the paper: 0.001). The
            following differs from the authors' code: weight decay is added to gradients of losses
            that are summed over pixels, as in Eq. 4 (the authors' code takes their mean);
            prototypes start as different images; ResNet-18 has shortcuts without weights;
            consecutive coordinate maps are composed, and the prototype is sampled once; the
            morphological transform is blended with the identity by one more predicted number, and
            its window starts as a disc (Eq. 6); the network reads intensities between -1 and 1.

    References:
        Monnier et al., DTI clustering, Eq. 4, Sec. 4.
    """

    published: ClassVar = _PUBLISHED


class DTIGaussianMixture(MixtureSettings, AbstractDTIModel):
    """DTI GMM: a Gaussian mixture whose means and variances are moved onto each image.

    Attributes:
        variance_transforms: Which transforms also move variances: `"all"`, each in its own way (a
            colour gain acts on them squared), or only the `"spatial"` ones.
        initial_variance: Variance of every pixel before the first step, to which the square of
            `min_deviation` is added. With a large one, memberships are soft at first, and
            components whose means are alike stay alike until it has shrunk.
        variance_curriculum: Whether variances are learned only in the phases with all transforms.
            Before that all are `initial_variance`, so that the means are fitted nearly as by
            K-means, and no component becomes wide and takes the images of others.
        published: Those of `DTIKMeans`, with all components in every step, initial variances of
            0.25 (the paper prints Σ = 0.5, which is the standard deviation in the authors' code),
            and variances that are learned from the start and moved only by the spatial transforms.
            These act on the variances, as in Eq. 5; in the authors' code they act on the standard
            deviations.

    References:
        Monnier et al., DTI clustering, Eq. 5 and Algorithm 1.
    """

    variance_transforms: Literal["all", "spatial"] = eqx.field(
        static=True, default="all", kw_only=True
    )
    initial_variance: float = eqx.field(static=True, default=0.01, kw_only=True)
    variance_curriculum: bool = eqx.field(static=True, default=True, kw_only=True)

    published: ClassVar = {
        **_PUBLISHED,
        "followed": None,
        "initial_variance": 0.25,
        "variance_curriculum": False,
        "variance_transforms": "spatial",
    }

    def objective(self) -> PrototypeObjective:
        """The mixture's negative log-likelihood."""
        return mixture(
            self.initial_variance,
            self.min_deviation,
            followed=self.followed,
            spatial_variances=self.variance_transforms == "spatial",
            variance_curriculum=self.variance_curriculum,
        )


class TransformationInvariantKMeans(PrototypeWarpSettings, AbstractGradientModel):
    """TI clustering: for each image, the params that move prototypes are optimised at every step.

    This is the paper's baseline, far slower than prediction and worse with many params.

    Attributes:
        align_steps: Steps of descent per image and training step.

    References:
        Monnier et al., DTI clustering, Eq. 2 and Table 3.
    """

    transforms: str = eqx.field(static=True, default="aff", kw_only=True)
    align_steps: int = eqx.field(static=True, default=8, kw_only=True)

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """Descent from the image's last params; anew and four times as long in the end."""
        return Descent((Stage((4 if final else 1) * self.align_steps),), candidates=None)


class GaussianMixture(MixtureSettings, AbstractGradientModel):
    """A Gaussian mixture with independent pixels and no transforms: the paper's baseline.

    References:
        Monnier et al., DTI clustering, Table 1 (GMM) and Algorithm 1.
    """

    def objective(self) -> PrototypeObjective:
        """The mixture's negative log-likelihood."""
        return mixture(self.initial_variance, self.min_deviation, followed=self.followed)
