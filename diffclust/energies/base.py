"""What every energy of a sample and a cluster offers: what aligners and solvers make small."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.prototypes import Clusters
from diffclust.types import Params, Scalar

BoundEnergy = Callable[[Params, PyTree, Clusters], Scalar]
"""The energy of params, one sample and one cluster."""


class AbstractPairEnergy(eqx.Module):
    """The energy of one sample against one cluster: a distance, params that move either of them.

    And penalties for moving it far.
    """

    @property
    @abc.abstractmethod
    def num_params(self) -> int:
        """Length of the parameter vector."""

    @property
    @abc.abstractmethod
    def num_penalties(self) -> int:
        """Number of penalty terms, the last axis of `Clusters.penalty`."""

    @property
    @abc.abstractmethod
    def affine_embedding(self) -> Float[Array, "params 6"] | None:
        """Columns spanning the affine maps among the params, or None."""

    @abc.abstractmethod
    def bind(self, sample: PyTree, *, scale: float = 1.0) -> BoundEnergy:
        """Precomputes what depends on the sample's shape alone.

        Args:
            sample: A sample, for its shape only.
            scale: Factor of the distance alone: how many pixels of the original stand behind one
                of a coarser level, so that penalties keep their weight.

        Returns:
            The energy as a function of params, sample and one cluster.
        """

    @abc.abstractmethod
    def penalties(self, params: Params) -> Float[Array, " terms"]:
        """The penalty terms, not yet weighted.

        Args:
            params: Parameters of shape `(num_params,)`.

        Returns:
            Non-negative numbers, zero at the identity.
        """

    @abc.abstractmethod
    def unaligned(self, sample: PyTree, clusters: Clusters) -> Float[Array, " clusters"]:
        """Energies at the identity against all clusters at once, in the fastest form there is.

        Args:
            sample: One sample.
            clusters: All clusters.

        Returns:
            One energy a cluster.
        """

    @abc.abstractmethod
    def coarser(self, sample: PyTree, factor: int, *, sigma: float | None = None) -> PyTree:
        """A sample, or a prototype, at a coarser level of resolution.

        Args:
            sample: One sample or prototype.
            factor: How many times fewer pixels there are along each axis; 1 for as many.
            sigma: Standard deviation of the low-pass filter in pixels of the sample; 0.4 times the
                factor where it is not given, and no filter for a factor of 1.

        Returns:
            The coarser sample; the sample itself where nothing is filtered.

        Raises:
            ValueError: If samples of this kind have no levels of resolution.
        """

    @abc.abstractmethod
    def exemplar(self, prototype: PyTree) -> PyTree:
        """The sample that a prototype stands for.

        Args:
            prototype: One prototype.

        Returns:
            A sample whose energy is least among all samples that are not moved.
        """


class AbstractSampleEnergy(AbstractPairEnergy):
    """An energy whose params move the sample, so that aligned samples can be averaged."""

    @abc.abstractmethod
    def aligned(self, params: Params, sample: PyTree) -> PyTree:
        """The sample moved by params.

        Args:
            params: Parameters of shape `(num_params,)`.
            sample: One sample.

        Returns:
            The aligned sample.
        """

    @abc.abstractmethod
    def pixel_weight(self, params: Params, sample: PyTree) -> Array | None:
        """The weight that each pixel of the aligned sample has in the distance.

        Args:
            params: Parameters of shape `(num_params,)`.
            sample: One sample, for its shape only.

        Returns:
            Weights that broadcast against the sample, or None where all are one.
        """


def hessian_at_rest(
    energy: AbstractPairEnergy,
    bound: BoundEnergy,
    cluster: Clusters,
    basis: Float[Array, "params subspace"] | None = None,
) -> Float[Array, "subspace subspace"]:
    """The energy's Hessian where a prototype meets itself: the Gauss-Newton matrix there.

    Args:
        energy: The energy.
        bound: The same, bound to the size of the sample.
        cluster: One cluster.
        basis: Columns of the subspace that is searched, or None for all params.

    Returns:
        A symmetric positive semidefinite matrix.
    """
    sample = energy.exemplar(cluster.prototype)

    def function(z: Params) -> Array:
        return bound(z if basis is None else basis @ z, sample, cluster)

    size = energy.num_params if basis is None else basis.shape[1]
    return jax.hessian(function)(jnp.zeros((size,), dtype=cluster.dtype))
