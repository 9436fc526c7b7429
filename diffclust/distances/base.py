"""The interface of dissimilarities and distances of a sample and a prototype."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust._validation import floating
from diffclust.types import Scalar


def weighted_sum(terms: Float[Array, "*shape"], weight: Array | None) -> Scalar:
    """The sum of all entries, each with its weight.

    Args:
        terms: One number for each entry of a sample.
        weight: Weights that broadcast against them, or None for ones.

    Returns:
        The sum.
    """
    check_floating(terms)
    weights = jnp.ones_like(terms) if weight is None else jnp.broadcast_to(weight, terms.shape)
    # A product with the weights instead of a sum: on the CPU, XLA would fuse a sum with everything
    # that led to the sample, and compute it several times.
    return jnp.dot(terms.reshape(-1), weights.reshape(-1), precision=jax.lax.Precision.HIGHEST)


def check_floating(*arrays: Any) -> None:
    """Refuses integers, whose differences may overflow.

    Args:
        *arrays: Samples, arrays of JAX or NumPy.

    Raises:
        ValueError: If one does not hold floating-point numbers.
    """
    for array in arrays:
        floating(array, "samples")


def check_same_shape(sample: tuple[int, ...], prototype: tuple[int, ...]) -> None:
    """Refuses a sample and a prototype of two shapes, even if they would broadcast.

    Args:
        sample: Shape of the sample.
        prototype: Shape of the prototype.

    Raises:
        ValueError: If they differ.
    """
    if sample != prototype:
        raise ValueError(f"a sample of shape {sample} is not compared with one of {prototype}")


class AbstractDissimilarity(eqx.Module):
    """A measure of how badly a prototype explains a sample, lowest if they are equal.

    Attributes:
        is_distance: Whether it is never negative, and zero if both are equal.
    """

    is_distance: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The dissimilarity.

        Args:
            sample: One sample.
            prototype: One prototype.
            weight: Non-negative pixel weights that broadcast against the sample, or None.

        Returns:
            A number; smaller is better.
        """


class AbstractDistance(AbstractDissimilarity):
    """A non-negative dissimilarity of two trees of the same structure, zero if they are equal.

    Attributes:
        family: The prototype family (`AbstractPrototypeFamily`) that lowers it; None if unknown.
    """

    is_distance: ClassVar[bool] = True
    family: ClassVar[Any] = None


class AbstractBatchedDistance(AbstractDistance):
    """A distance with a faster way to compare a sample with many prototypes than one by one."""

    def __init_subclass__(cls, **settings: Any) -> None:
        """Refuses a class that overrides `__call__` but inherits `to_all`."""
        super().__init_subclass__(**settings)
        call, to_all = (
            next(place for place, base in enumerate(cls.__mro__) if name in vars(base))
            for name in ("__call__", "to_all")
        )
        if call < to_all and not getattr(cls.to_all, "__isabstractmethod__", False):
            raise TypeError(
                f"{cls.__name__} overrides __call__ and inherits to_all, by which samples are "
                "compared and seeds drawn: override both, or derive from AbstractDistance"
            )

    @abc.abstractmethod
    def to_all(self, sample: PyTree, prototypes: PyTree) -> Float[Array, " clusters"]:
        """Distances to all prototypes, in a form that batches into matrix products.

        May lose digits to cancellation if sample and prototype nearly agree.

        Args:
            sample: One sample.
            prototypes: Prototypes with a leading cluster axis.

        Returns:
            One distance per cluster.
        """


@eqx.filter_jit
def pairwise(
    dissimilarity: AbstractDissimilarity, samples: PyTree, others: PyTree = None
) -> Float[Array, "n m"]:
    """The dissimilarity of every sample to every other, row by row.

    Args:
        dissimilarity: The dissimilarity of one sample and one other.
        samples: Samples with a leading axis.
        others: What the samples are compared with, with a leading axis; by default the samples
            themselves.

    Returns:
        One row for each sample. Nothing larger than a row of pairs is in memory at once.

    Raises:
        ValueError: If samples are integers.
    """
    against = samples if others is None else others
    check_floating(*jax.tree.leaves((samples, against)))

    def row(sample: PyTree) -> Float[Array, " m"]:
        return jax.vmap(lambda other: dissimilarity(sample, other))(against)

    return jnp.asarray(jax.lax.map(row, samples))
