"""A model trained to make an objective of the user's own small."""

import dataclasses

from diffclust.alignment import AbstractAligner
from diffclust.methods import DENSITY_WORDS, MOVED_WORDS, Method
from diffclust.models.gradient import AbstractGradientModel
from diffclust.models.objective import PrototypeObjective
from diffclust.models.settings import BackboneName
from diffclust.models.training import Training
from diffclust.sampling import Boundary


class WithObjective(AbstractGradientModel):
    """A model with another objective in the place of its own.

    Transforms, networks, training, `fit`, `predict` and the report stay as they are. Only
    `diffclust.save` refuses it, since a file cannot hold the code of an objective.

    Attributes:
        base: The model whose objective is replaced.
        own: What is made small instead.
    """

    base: AbstractGradientModel
    own: PrototypeObjective

    def __check_init__(self):
        """Refuses a short list, which would be judged by the objective that is replaced."""
        if self.base.training.shortlist is not None:
            raise ValueError(
                "a short list is judged by the objective of the model alone; leave out "
                f"shortlist={self.base.training.shortlist}"
            )

    @property
    def num_clusters(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.num_clusters

    @property
    def num_restarts(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.num_restarts

    @property
    def descriptor(self) -> Method:
        """The base's, with the words for what the objective measures."""
        is_mixture = self.own.initial_variance is not None
        words = DENSITY_WORDS if is_mixture else MOVED_WORDS
        return dataclasses.replace(self.base.descriptor, words=words, is_mixture=is_mixture)

    @property
    def transforms(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.transforms

    @property
    def backbone(self) -> BackboneName | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.backbone

    @property
    def boundary(self) -> Boundary:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.boundary

    @property
    def landmarks(self) -> tuple[int, int]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.landmarks

    @property
    def window(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.window

    @property
    def mask(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.mask

    @property
    def deformation_penalty(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.deformation_penalty

    @property
    def training(self) -> Training:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The base's."""
        return self.base.training

    def objective(self) -> PrototypeObjective:
        """`own`."""
        return self.own

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """The base's; see `AbstractGradientModel.aligner`."""
        return self.base.aligner(transforms, channels, final=final)
