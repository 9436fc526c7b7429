"""How models are trained by gradient steps: the settings they share."""

import math

import equinox as eqx

from diffclust import _validation
from diffclust.models.settings import AbstractSettings
from diffclust.parallel import Description
from diffclust.solvers import GradientPlan, Phase

_MOVES_EVERY = 4
"""Windows between two attempts to split one cluster and remove another."""


class Training(AbstractSettings):
    """How a model is trained by gradient steps.

    Attributes:
        steps: Most steps of each phase: without transforms, then with one transform more each, and
            at last with all at a tenth of the learning rate. Where they are not given, `max_steps`
            are shared out.
        max_steps: Most steps of a run.
        tolerance: A phase ends early where the loss falls by less than this fraction; 0 does all
            steps.
        curriculum: Whether transforms are added one by one; else all are there from the start.
        batch_size: Images a step; 128 where it is not given, 64 for images of 64 pixels or more a
            side, and never more than there are.
        learning_rate: Adam's, for prototypes and networks alike.
        split_merge: Whether clusters that hold two kinds are split, and others make room, now and
            then, where that lowers the loss.
        shortlist: While a model is trained, only so many clusters of an image, the best ones after
            the transforms up to the first spatial one, are judged after all of them. That takes
            less time, but the winner may be missed; None judges all.
        least_share: A cluster that holds less than this share of an even one is refilled from the
            largest; 0 refills none.

    References:
        Monnier et al., DTI clustering, Sec. 4.2.
    """

    steps: tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True)
    max_steps: int = eqx.field(static=True, default=6_000, kw_only=True)
    tolerance: float = eqx.field(static=True, default=0.0, kw_only=True)
    curriculum: bool = eqx.field(static=True, default=True, kw_only=True)
    batch_size: int | None = eqx.field(static=True, default=None, kw_only=True)
    learning_rate: float = eqx.field(static=True, default=1e-3, kw_only=True)
    split_merge: bool = eqx.field(static=True, default=True, kw_only=True)
    shortlist: int | None = eqx.field(static=True, default=None, kw_only=True)
    least_share: float = eqx.field(static=True, default=0.2, kw_only=True)

    def __check_init__(self):
        """Refuses settings that mean nothing."""
        _validation.count(self.max_steps, "max_steps", least=10)
        _validation.positive(self.tolerance, "tolerance", least=0)
        _validation.positive(self.least_share, "least_share", least=0)
        if self.shortlist is not None:
            _validation.count(self.shortlist, "shortlist", least=2)
        if self.batch_size is not None:
            _validation.count(self.batch_size, "batch_size")
        if not self.learning_rate > 0.0:
            raise ValueError(f"learning_rate must be positive, not {self.learning_rate}")
        for count in self.steps or ():
            _validation.count(count, "steps", least=0)

    def plan(
        self, num_transforms: int, description: Description, *, moves_from: int = 0
    ) -> GradientPlan:
        """What a fit does.

        Args:
            num_transforms: Number of transforms.
            description: What is known of the images.
            moves_from: With how many transforms clusters may be split and removed: without those
                that put images in their places, that would part one kind by its places.

        Returns:
            The plan, whose phases name solvers by how many transforms they use.

        Raises:
            ValueError: If the steps are for another number of phases, or a batch is larger than
                the data.
        """
        solvers = [*range(num_transforms + 1), num_transforms]
        if not self.curriculum:
            solvers = [num_transforms, num_transforms]
        steps = self.steps
        if steps is None:
            steps = _shared_out(self.max_steps, len(solvers))
        if len(steps) != len(solvers):
            raise ValueError(
                f"steps must be {len(solvers)} numbers, one for each phase (no transforms, "
                f"{num_transforms} times one more, a lower rate), not {len(steps)}: {steps}"
            )
        if sum(steps) < 1:
            raise ValueError("steps must not all be 0")
        rates = [self.learning_rate] * (len(solvers) - 1) + [0.1 * self.learning_rate]
        phases = [
            Phase(solver, count, rate, moves=solver >= moves_from)
            for solver, count, rate in zip(solvers, steps, rates, strict=True)
            if count > 0
        ]
        batch = self._batch(description)
        window = max(50, math.ceil(description.num_samples / batch))
        return GradientPlan(
            tuple(phases),
            batch,
            tolerance=self.tolerance,
            window=window,
            least_share=self.least_share,
            moves_every=_MOVES_EVERY if self.split_merge else 0,
        )

    def _batch(self, description: Description) -> int:
        count, side = description.num_samples, min(description.sample.shape[:2])
        if self.batch_size is not None:
            if self.batch_size > count:
                raise ValueError(
                    f"batch_size must be at most the number of images, {count}, not "
                    f"{self.batch_size}"
                )
            return self.batch_size
        return min(64 if side >= 64 else 128, count)


def _shared_out(total: int, phases: int) -> tuple[int, ...]:
    """A tenth each for the first and for the last phase, the rest for those between."""
    if phases == 2:
        return (total - total // 10, total // 10)
    edge = total // 10
    middle = (total - 2 * edge) // (phases - 2)
    return (edge, *[middle] * (phases - 2), edge)
