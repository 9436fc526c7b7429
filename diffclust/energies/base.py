"""The interface of energies of a sample and a cluster, which aligners and solvers minimise."""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust._sharding import varying_like
from diffclust.prototypes import AbstractPrototypeFamily, Clusters, exemplar_of
from diffclust.transforms import AbstractSpatialTransform
from diffclust.types import Params, Scalar

BoundEnergy = Callable[[Params, PyTree, Clusters], Scalar]
"""The energy of params, one sample and one cluster."""


class AbstractPairEnergy(eqx.Module):
    """The energy of one sample against one cluster.

    It consists of a distance, params that move either of the two, and penalties for large
    movements.

    Attributes:
        affine_embedding: Columns spanning the affine maps among the params; by default None, if
            there are none.
        is_distance: Whether energies are never negative, and zero if sample and prototype are
            equal.
        spatial_transform: The coordinate map that moves samples; by default None, if there is none.
    """

    affine_embedding: ClassVar[Float[Array, "params 6"] | None] = None
    is_distance: ClassVar[bool] = False
    spatial_transform: ClassVar[AbstractSpatialTransform | None] = None

    @property
    @abc.abstractmethod
    def num_params(self) -> int:
        """Length of the parameter vector."""

    @property
    @abc.abstractmethod
    def num_penalties(self) -> int:
        """Number of penalty terms, the last axis of `Clusters.penalty`."""

    @abc.abstractmethod
    def bind(self, sample: PyTree, *, scale: float = 1.0) -> BoundEnergy:
        """Precomputes everything that depends only on the sample's shape.

        Args:
            sample: A sample, for its shape only.
            scale: Factor applied to the distance only, so that penalties keep about their weight:
                the number of original pixels that are averaged in a pixel of a coarser level.

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
        """Energies at the identity against all clusters at once, in the fastest form available.

        Args:
            sample: One sample.
            clusters: All clusters.

        Returns:
            One energy per cluster.
        """

    @abc.abstractmethod
    def coarser(self, sample: PyTree, factor: int, *, sigma: float | None = None) -> PyTree:
        """A sample, or a prototype, at a coarser level of resolution.

        Args:
            sample: One sample or prototype.
            factor: The factor by which pixels are reduced along each axis; 1 keeps them all.
            sigma: Standard deviation of the low-pass filter in pixels of the sample; by default 0.4
                times the factor, and no filter for a factor of 1.

        Returns:
            The coarser sample; the sample itself if nothing is filtered.

        Raises:
            ValueError: If samples of this kind have no levels of resolution.
        """

    def exemplar(self, prototype: PyTree) -> PyTree:
        """The sample that a prototype stands for.

        Args:
            prototype: One prototype.

        Returns:
            The sample with the lowest energy among all samples that are not moved; by default the
            prototype itself, or for Gaussians the mean.
        """
        return exemplar_of(prototype)


class AbstractSampleEnergy(AbstractPairEnergy):
    """An energy whose params move the sample, so that aligned samples can be averaged.

    Attributes:
        family: The prototype family that lowers this energy; None if the caller must give one.
    """

    family: ClassVar[AbstractPrototypeFamily | None] = None

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
            Weights that broadcast against the sample, or None if all are one.
        """


class AbstractUnalignedEnergy(AbstractSampleEnergy):
    """An energy of samples of any kind, compared with prototypes as they are.

    A subclass whose params move samples defines `num_params` and `aligned`; for a price of moves
    also `num_penalties` and `penalties`.
    """

    @abc.abstractmethod
    def between(self, sample: PyTree, prototype: PyTree) -> Scalar:
        """The energy of one sample and one prototype.

        Args:
            sample: One sample.
            prototype: One prototype.

        Returns:
            A number, the smaller the better.
        """

    @property
    def num_params(self) -> int:
        return 0

    @property
    def num_penalties(self) -> int:
        return 0

    def bind(self, sample: PyTree, *, scale: float = 1.0) -> BoundEnergy:
        def energy(params: Params, sample: PyTree, cluster: Clusters) -> Scalar:
            distance = scale * self.between(self.aligned(params, sample), cluster.prototype)
            if not self.num_penalties:
                return distance
            return distance + cluster.penalty @ self.penalties(params)

        return energy

    def aligned(self, params: Params, sample: PyTree) -> PyTree:
        """The sample moved by params; by default, without params, as it is."""
        return sample

    def pixel_weight(self, params: Params, sample: PyTree) -> Array | None:
        return None

    def penalties(self, params: Params) -> Float[Array, " terms"]:
        return jnp.zeros((0,), dtype=params.dtype)

    def unaligned(self, sample: PyTree, clusters: Clusters) -> Float[Array, " clusters"]:
        none = jnp.zeros((self.num_params,), clusters.dtype)
        return jax.vmap(self.bind(sample), in_axes=(None, None, 0))(none, sample, clusters)

    def coarser(self, sample: PyTree, factor: int, *, sigma: float | None = None) -> PyTree:
        """The sample itself, at its only level."""
        if factor > 1 or sigma:
            raise ValueError(
                f"samples of {type(self).__name__} have no levels of resolution; fit them without "
                "coarse levels (coarser=1, and Descent((Stage(20),)), whose stages have no blur)"
            )
        return sample


def hessian_at_identity(
    energy: AbstractPairEnergy,
    bound: BoundEnergy,
    cluster: Clusters,
    basis: Float[Array, "params subspace"] | None = None,
) -> Float[Array, "subspace subspace"]:
    """The energy's Hessian at a prototype compared with itself: the Gauss-Newton matrix there.

    Bilinearly interpolated images have different slopes on the two sides of a pixel. This is the
    Hessian for one side, so it differs for the mirrored image.

    Args:
        energy: The energy.
        bound: The same energy, bound to the size of the sample.
        cluster: One cluster.
        basis: Columns of the subspace to be searched, or None for all params.

    Returns:
        A symmetric positive semidefinite matrix.
    """
    sample = energy.exemplar(cluster.prototype)

    def function(z: Params) -> Array:
        return bound(z if basis is None else basis @ z, sample, cluster)

    size = energy.num_params if basis is None else basis.shape[1]
    zero = varying_like(jnp.zeros((size,), dtype=cluster.dtype), cluster)
    return jax.hessian(function)(zero)
