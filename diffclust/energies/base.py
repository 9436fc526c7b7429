"""What every energy of a sample and a cluster offers: what aligners and solvers make small."""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.prototypes import AbstractPrototypeFamily, Clusters, exemplar_of
from diffclust.transforms import AbstractSpatialTransform
from diffclust.types import Params, Scalar

BoundEnergy = Callable[[Params, PyTree, Clusters], Scalar]
"""The energy of params, one sample and one cluster."""


class AbstractPairEnergy(eqx.Module):
    """The energy of one sample against one cluster.

    A distance, params that move either of the two, and penalties for moving it far.

    Attributes:
        affine_embedding: Columns spanning the affine maps among the params; by default None: there
            are none.
        is_distance: Whether energies are never negative, and zero where sample and prototype are
            equal.
        spatial_transform: The map of coordinates that moves samples; by default None: they are not
            moved so.
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

    def exemplar(self, prototype: PyTree) -> PyTree:
        """The sample that a prototype stands for.

        Args:
            prototype: One prototype.

        Returns:
            A sample whose energy is least among all samples that are not moved; by default the
            prototype itself, of Gaussians the mean.
        """
        return exemplar_of(prototype)


class AbstractSampleEnergy(AbstractPairEnergy):
    """An energy whose params move the sample, so that aligned samples can be averaged.

    Attributes:
        family: The prototype family that lowers this energy; by default None: the caller gives one.
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
            Weights that broadcast against the sample, or None where all are one.
        """


class AbstractUnalignedEnergy(AbstractSampleEnergy):
    """An energy without params: samples of any kind, compared with prototypes as they are."""

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
        return lambda params, sample, cluster: scale * self.between(sample, cluster.prototype)

    def aligned(self, params: Params, sample: PyTree) -> PyTree:
        """The sample as it is."""
        return sample

    def pixel_weight(self, params: Params, sample: PyTree) -> Array | None:
        return None

    def penalties(self, params: Params) -> Float[Array, " terms"]:
        return jnp.zeros((0,), dtype=params.dtype)

    def unaligned(self, sample: PyTree, clusters: Clusters) -> Float[Array, " clusters"]:
        return jax.vmap(self.between, in_axes=(None, 0))(sample, clusters.prototype)

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
    """The energy's Hessian where a prototype meets itself: the Gauss-Newton matrix there.

    Images that are read by bilinear interpolation have another slope on either side of a pixel; it
    is that of one side, and another one of the mirrored image.

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
