"""What every dissimilarity of a sample and a prototype offers, and every distance."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from diffclust.types import Scalar


class AbstractDissimilarity(eqx.Module):
    """How badly a prototype explains a sample; least where the sample is what it stands for."""

    @abc.abstractmethod
    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The dissimilarity.

        Args:
            sample: One sample.
            prototype: One prototype.
            weight: Non-negative pixel weights that broadcast against the sample, or None.

        Returns:
            A number, the smaller the better.
        """


class AbstractDistance(AbstractDissimilarity):
    """A non-negative dissimilarity of things of the same structure, zero where they are equal."""


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
