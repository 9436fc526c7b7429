"""The learned state of the clusters, and the interface of prototype families."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust._renamed import renamed_keywords
from diffclust.distances import DiagonalGaussian, Gaussian
from diffclust.linalg import product

Membership = Float[Array, "n clusters"]
"""How much of each sample belongs to each cluster."""

Covariance = Array
"""Variances `(..., landmarks, dims)`, or covariances `(..., landmarks, dims, dims)`."""


class GaussianImages(eqx.Module):
    """Prototypes of a Gaussian mixture: a mean image, and a deviation for each pixel.

    Deviations may have either sign: their squares are the variances, so gradient steps need no
    constraint.

    Attributes:
        mean: The means.
        deviation: Deviations, whose squares are the variances.
    """

    mean: Float[Array, "*clusters height width channels"]
    deviation: Float[Array, "*clusters height width channels"]

    @property
    def gaussian(self) -> DiagonalGaussian:
        """The Gaussian itself."""
        return DiagonalGaussian(self.mean, self.deviation**2)


@renamed_keywords(spread="covariance")
class LandmarkGaussians(eqx.Module):
    """A mean shape, each of whose landmarks is a Gaussian.

    Attributes:
        centre: The Gaussians, with a leading axis of landmarks.
        covariance: The variances or covariances that a shape of this cluster carries; equal to
            those of the centre, unless the centre is a Fréchet mean of the shapes' Gaussians.
    """

    centre: DiagonalGaussian | Gaussian
    covariance: Covariance


def exemplar_of(prototype: PyTree) -> Any:
    """The sample that a prototype stands for: an image, or landmarks; for Gaussians, the mean.

    Args:
        prototype: An image, `GaussianImages` or `LandmarkGaussians`, with any leading axes.

    Returns:
        The image or the landmarks, a JAX or NumPy array like those of the prototype.
    """
    if isinstance(prototype, GaussianImages):
        return prototype.mean
    return prototype.centre.mean if isinstance(prototype, LandmarkGaussians) else prototype


class Clusters(eqx.Module):
    """Everything that belongs to single clusters; every leaf has a leading cluster axis.

    Attributes:
        prototype: The prototypes, a tree with the structure of a sample.
        penalty: Weights of the deformation penalties, `(clusters, terms)`.
        predictor: What predicts alignments onto each cluster, or None.
    """

    prototype: PyTree
    penalty: Float[Array, "*clusters terms"]
    predictor: PyTree = None

    def __len__(self) -> int:
        """Number of clusters."""
        return jax.tree.leaves(self.prototype)[0].shape[0]

    @property
    def dtype(self) -> jnp.dtype:
        """The floating dtype of the prototypes."""
        return jnp.result_type(*jax.tree.leaves(self.prototype))

    @eqx.filter_jit
    def take(self, index: Array) -> "Clusters":
        """The clusters at the given indices, taken from every leaf.

        Args:
            index: Integer indices of any shape.

        Returns:
            Clusters whose leading axes are the index's.
        """
        return jax.tree.map(lambda leaf: leaf[index], self)


class Learned(eqx.Module):
    """Everything that a fit learns.

    Attributes:
        clusters: Everything that belongs to single clusters.
        shared: What all clusters share (a backbone, a common variance), or None.
        objective: What the objective learns (mixture logits), with a leading cluster axis in every
            leaf, or None.
    """

    clusters: Clusters
    shared: PyTree = None
    objective: PyTree = None


class AbstractPrototypeFamily(eqx.Module):
    """A family of prototypes: how they are computed from the samples aligned to them.

    Attributes:
        is_additive: Whether a sample's contribution to the sums of a cluster does not depend on the
            cluster's prototype. This saves work and memory, so say so where it holds.
        descends: Whether new prototypes are meant to lower the loss. A run stops if the loss rises
            nevertheless; `diffclust.testing.check_family` checks whether a family descends for an
            energy.
    """

    is_additive: ClassVar[bool] = False
    descends: ClassVar[bool] = True

    @property
    def initial_family(self) -> "AbstractPrototypeFamily":
        """The family of a run's first prototypes; by default the family itself."""
        return self

    def init(self, sample: PyTree) -> PyTree:
        """The prototype of a new cluster with a single sample.

        Args:
            sample: One sample, scaled.

        Returns:
            A prototype; by default the sample.
        """
        return sample

    @abc.abstractmethod
    def statistics(
        self,
        aligned: PyTree,
        pixel_weight: Array | None,
        membership: Membership,
        prototypes: PyTree,
    ) -> PyTree:
        """Sums over a batch of aligned samples, to be added over batches and devices.

        Args:
            aligned: Samples aligned to their clusters, with a leading batch axis.
            pixel_weight: Pixel weights `(n, height, width, 1)`, or None for uniform ones.
            membership: How much of each sample belongs to each cluster.
            prototypes: The prototypes that the samples were aligned to, with a leading cluster
                axis; an additive family ignores them.

        Returns:
            A tree with a leading cluster axis.
        """

    @abc.abstractmethod
    def update(self, statistics: PyTree, previous: PyTree) -> PyTree:
        """The prototypes that minimise the distortion of the summed samples.

        Args:
            statistics: Sums over all samples.
            previous: The current prototypes, which are kept for empty clusters.

        Returns:
            New prototypes.
        """

    @property
    def removes_scale(self) -> bool:
        """Whether `normalise` removes the scale of samples; by default, if it is overridden."""
        return type(self).normalise is not AbstractPrototypeFamily.normalise

    def normalise(self, sample: PyTree) -> PyTree:
        """Brings a sample, or a seed for a prototype, to the scale that the family works on.

        Args:
            sample: One sample.

        Returns:
            The scaled sample; by default unchanged.
        """
        return sample


def weighted_sums(
    batch: Float[Array, "n ..."], membership: Membership
) -> Float[Array, "clusters ..."]:
    """Sums over the samples of each cluster.

    Args:
        batch: One array for each sample.
        membership: How much of each sample belongs to each cluster.

    Returns:
        One sum for each cluster.
    """
    return product(membership.T, batch.reshape(batch.shape[0], -1)).reshape(-1, *batch.shape[1:])


def column(values: Array, ndim: int) -> Array:
    """Reshapes one value per cluster so that it broadcasts against the clusters' arrays.

    Args:
        values: One value per cluster.
        ndim: Required number of axes.

    Returns:
        The values, of shape `(clusters, 1, ...)`.
    """
    return values.reshape(values.shape[0], *[1] * (ndim - 1))
