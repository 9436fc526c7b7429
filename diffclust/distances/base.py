"""What every distance between a sample and a prototype offers."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from diffclust.types import Scalar


class AbstractDistance(eqx.Module):
    """A non-negative function of one sample and one prototype, zero where they are equal."""

    @abc.abstractmethod
    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The distance.

        Args:
            sample: One sample.
            prototype: One prototype, of the same structure.
            weight: Non-negative pixel weights that broadcast against the sample, or None.

        Returns:
            A non-negative number.
        """


class AbstractBatchedDistance(AbstractDistance):
    """A distance that knows a faster way to many prototypes than one by one."""

    @abc.abstractmethod
    def to_all(self, sample: PyTree, prototypes: PyTree) -> Float[Array, " clusters"]:
        """Distances to all prototypes, in the form that batches into matrix products.

        May lose digits to cancellation where sample and prototype nearly agree.

        Args:
            sample: One sample.
            prototypes: Prototypes with a leading cluster axis.

        Returns:
            One distance a cluster.
        """
