"""What all models trained by gradient steps share: initialisation and the final assignment."""

import abc
import dataclasses
import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from diffclust.models.base import AbstractModel
from diffclust.models.settings import Training
from diffclust.parallel import Data, Description
from diffclust.prototypes import Learned
from diffclust.solvers import GradientEM, GradientPlan, GradientProblem, Outcome, Stages, Start
from diffclust.types import Key

_BLOCK = 1024
"""Number of samples that are summed at once."""


class AbstractTrainedModel(AbstractModel):
    """A clustering that is trained by gradient steps on batches of samples.

    Attributes:
        training: Settings of the training.
    """

    training: Training = eqx.field(default=Training(), kw_only=True)

    @abc.abstractmethod
    def init(self, prototypes: PyTree, /, key: Key) -> Learned:
        """Initialises the learned arrays before the first step.

        Args:
            prototypes: A sample for each cluster, or the prototypes that a fit is given to start
                from.
            key: Random key.

        Returns:
            The tree.
        """

    @abc.abstractmethod
    def solvers(self, sample: PyTree) -> tuple[GradientEM, ...]:
        """The solvers to which the phases of a plan refer by number.

        Args:
            sample: Shape and dtype of one sample, as `jax.ShapeDtypeStruct`s.
        """

    @abc.abstractmethod
    def assigning_solver(self, sample: PyTree) -> GradientEM:
        """The solver of the final assignment.

        Args:
            sample: Shape and dtype of one sample, as `jax.ShapeDtypeStruct`s.
        """

    @abc.abstractmethod
    def training_plan(self, description: Description) -> GradientPlan:
        """The phases of training."""

    def automatic_settings(self, description: Description) -> dict[str, Any]:
        """The batch size, the steps of each phase, and when small clusters are refilled."""
        plan = self.training_plan(description)
        steps = tuple(phase.steps for phase in plan.phases)
        return {"batch_size": plan.batch_size, "steps": steps, "refill_every": plan.window}

    def compose(self, description: Description, start: Start) -> Stages:
        """Gradient EM over the phases of the plan."""
        sample, plan = description.sample, self.training_plan(description)
        if start is not None:
            plan = dataclasses.replace(plan, num_starts=1, race=())
        problem = GradientProblem(
            self.solvers(sample),
            self.assigning_solver(sample),
            plan,
            init_learned=functools.partial(self._init_learned, start),
            template=lambda: self.template(sample),
            num_restarts=self.num_restarts,
        )
        return (problem,)

    def _init_learned(self, start: Start, data: Data, key: Key) -> Learned:
        """Initialises the learned arrays of a restart, from random samples or a given start."""
        count = self.num_clusters
        if start is None:
            weighted = np.flatnonzero(data.all_weights > 0)
            chosen = jax.random.choice(key, len(weighted), (count,), replace=False)
            first = data.gather(weighted[np.asarray(chosen)])
        elif start[0] == "prototypes":
            first = start[1]
        else:
            groups = np.asarray(start[1])
            weight = data.weights_in(groups)

            def mean(leaf: Any) -> np.ndarray:
                sums = _sums(leaf, groups[data.own], weight[data.own], count)
                total, mass = data.allgather(sums[None]).sum(0)
                with np.errstate(invalid="ignore"):
                    return (total / mass).astype(leaf.dtype)

            first = jax.tree.map(mean, data.samples)
        first = jax.tree.map(jnp.asarray, first)
        return data.broadcast(self.init(first, jax.random.fold_in(key, 1)))

    def working_copies(self, description: Description) -> int:
        """The number of copies that the aligner of the final assignment needs."""
        aligner = self.assigning_solver(description.sample).aligner
        return aligner.working_copies(self.num_clusters)

    def state_bytes(self, shape: tuple[int, ...]) -> int:
        """The samples on the device, what is remembered of them, and all that is learned."""
        sample = jax.ShapeDtypeStruct(shape[1:], jnp.float32)
        learned = jax.eval_shape(lambda: jax.tree.leaves(self.template(sample)))
        weights = sum(4 * leaf.size for leaf in learned if hasattr(leaf, "size"))
        row = self.assigning_solver(sample).memory_bytes(self.num_clusters)
        # Responsibilities and scores of the final assignment are also on the host.
        each = 8 * math.prod(shape[1:]) + 2 * row + 24 * self.num_clusters
        return shape[0] * each + 6 * weights

    def template(self, sample: PyTree) -> Learned:
        """Returns the learned arrays as they are before the first step."""

        def zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
            return jnp.zeros((self.num_clusters, *leaf.shape), leaf.dtype)

        return self.init(jax.tree.map(zeros, sample), jax.random.key(0))

    def solver_for(self, outcome: Outcome, data: Data) -> tuple[GradientEM, Data]:
        """The solver of the final assignment, and the samples as they are."""
        return self.assigning_solver(data.description.sample), data


def _sums(
    samples: Any, groups: np.ndarray, weight: Float[np.ndarray, " n"], clusters: int
) -> Float[np.ndarray, "2 clusters ..."]:
    """Each cluster's weighted sums of the values that are not missing, and of their weights.

    Computed in double precision, a few samples at a time.
    """
    sums = np.zeros((2, clusters, *samples.shape[1:]))
    for start in range(0, len(groups), _BLOCK):
        block, here = samples[start : start + _BLOCK], groups[start : start + _BLOCK]
        for cluster in np.unique(here):
            member = np.flatnonzero(here == cluster)
            own, seen = weight[start + member], ~np.isnan(block[member])
            sums[0, cluster] += np.tensordot(own, np.where(seen, block[member], 0.0), axes=1)
            sums[1, cluster] += np.tensordot(own, seen, axes=1)
    return sums
