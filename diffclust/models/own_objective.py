"""A model trained to make an objective of the user's own small."""

import dataclasses
from typing import Any

from diffclust.alignment import AbstractAligner
from diffclust.methods import DENSITY_WORDS, MOVED_WORDS, Method
from diffclust.models.gradient import AbstractGradientModel
from diffclust.models.objective import PrototypeObjective


def _of_base(name: str) -> Any:
    def of_base(self: "WithObjective") -> Any:
        """The base's."""
        return getattr(self.base, name)

    return property(of_base)


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

    num_clusters = _of_base("num_clusters")
    num_restarts = _of_base("num_restarts")
    transforms = _of_base("transforms")
    backbone = _of_base("backbone")
    boundary = _of_base("boundary")
    landmarks = _of_base("landmarks")
    window = _of_base("window")
    mask = _of_base("mask")
    deformation_penalty = _of_base("deformation_penalty")
    training = _of_base("training")

    @property
    def descriptor(self) -> Method:
        """The base's, with the words for what the objective measures."""
        is_mixture = self.own.initial_variance is not None
        words = DENSITY_WORDS if is_mixture else MOVED_WORDS
        return dataclasses.replace(self.base.descriptor, words=words, is_mixture=is_mixture)

    def objective(self) -> PrototypeObjective:
        """`own`."""
        return self.own

    def aligner(self, transforms: int, channels: int, *, final: bool = False) -> AbstractAligner:
        """The base's; see `AbstractGradientModel.aligner`."""
        return self.base.aligner(transforms, channels, final=final)
