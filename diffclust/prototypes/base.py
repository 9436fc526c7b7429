"""What is learned of the clusters, what every prototype family offers, and mean images."""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.distances import DiagonalGaussian, Gaussian
from diffclust.linalg import product
from diffclust.types import Image, Images, Scalar

Membership = Float[Array, "n clusters"]
"""How much of each sample belongs to each cluster."""

Covariance = Array
"""Variances `(..., landmarks, dims)`, or covariances `(..., landmarks, dims, dims)`."""


class GaussianImages(eqx.Module):
    """Prototypes of a Gaussian mixture: a mean image, and how much each pixel strays from it.

    Any deviations will do, of either sign: their squares are the variances, so that gradient steps
    need no constraint.

    Attributes:
        mean: The means.
        deviation: Roots of the variances.
    """

    mean: Float[Array, "*clusters height width channels"]
    deviation: Float[Array, "*clusters height width channels"]

    @property
    def gaussian(self) -> DiagonalGaussian:
        """The Gaussian itself."""
        return DiagonalGaussian(self.mean, self.deviation**2)


class LandmarkGaussians(eqx.Module):
    """A mean shape, each of whose landmarks is a Gaussian.

    Attributes:
        centre: The Gaussians, with a leading axis of landmarks.
        covariance: The variances or covariances that a shape of this cluster carries; those of the
            centre, unless that is a Fréchet mean of its Gaussians.
    """

    centre: DiagonalGaussian | Gaussian
    covariance: Covariance


def exemplar_of(prototype: PyTree) -> Any:
    """The sample that a prototype stands for: an image, or landmarks; of Gaussians, the mean.

    Args:
        prototype: An image, `GaussianImages` or `LandmarkGaussians`, with any leading axes.

    Returns:
        The image or the landmarks, an array as the prototype's are: of JAX's or of NumPy's.
    """
    if isinstance(prototype, GaussianImages):
        return prototype.mean
    return prototype.centre.mean if isinstance(prototype, LandmarkGaussians) else prototype


def variance_of(prototype: PyTree) -> Any:
    """Variances of a prototype's pixels, or variances or covariances of its landmarks.

    Args:
        prototype: An image, `GaussianImages` or `LandmarkGaussians`, with any leading axes.

    Returns:
        An array as the prototype's are; None for an image, which has no variances.
    """
    if isinstance(prototype, GaussianImages):
        return prototype.deviation**2
    return prototype.covariance if isinstance(prototype, LandmarkGaussians) else None


class Clusters(eqx.Module):
    """All that belongs to each cluster; every leaf has a leading cluster axis.

    Attributes:
        prototype: The prototypes, a tree with the structure of a sample.
        penalty: Weights of the deformation penalties, `(clusters, terms)`.
        predictor: Whatever predicts alignments onto each cluster, or None.
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

    def take(self, index: Array) -> "Clusters":
        """The clusters at the given indices, every leaf alike.

        Args:
            index: Integer indices of any shape.

        Returns:
            Clusters whose leading axes are the index's.
        """
        return jax.tree.map(lambda leaf: leaf[index], self)


class Learned(eqx.Module):
    """Everything that a fit learns.

    Attributes:
        clusters: What belongs to one cluster each.
        shared: What all clusters have in common (a backbone, a common variance), or None.
        objective: What the objective learns (mixture logits), leaves with a leading cluster axis,
            or None.
    """

    clusters: Clusters
    shared: PyTree = None
    objective: PyTree = None


class AbstractPrototypeFamily(eqx.Module):
    """How prototypes follow from the samples that were aligned to them.

    Attributes:
        is_additive: Whether a sample adds the same to the sums of a cluster whatever its prototype
            is.
    """

    is_additive: eqx.AbstractClassVar[bool]

    @property
    @abc.abstractmethod
    def initial_family(self) -> "AbstractPrototypeFamily":
        """The family whose prototypes a run starts with: itself, unless updates go on from them."""

    @abc.abstractmethod
    def init(self, sample: PyTree) -> PyTree:
        """The prototype of a new cluster of one sample.

        Args:
            sample: One sample, scaled.

        Returns:
            A prototype.
        """

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
                axis; a family that is additive does not look at them.

        Returns:
            A tree with a leading cluster axis.
        """

    @abc.abstractmethod
    def update(self, statistics: PyTree, previous: PyTree) -> PyTree:
        """The prototypes that minimise the distortion of the samples summed.

        Args:
            statistics: Sums over all samples.
            previous: The prototypes so far, kept where a cluster is empty.

        Returns:
            New prototypes.
        """

    @abc.abstractmethod
    def normalise(self, sample: PyTree) -> PyTree:
        """Brings a sample, or a seed for a prototype, to the scale the family works on.

        Args:
            sample: One sample.

        Returns:
            The sample, scaled.
        """


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


class Sums(eqx.Module):
    """Sums over the aligned samples of each cluster.

    Attributes:
        image: Σ of the weighted aligned samples.
        weight: Σ of the pixel weights.
        count: Σ of the sample weights.
    """

    image: Float[Array, "clusters height width channels"]
    weight: Float[Array, "clusters height width 1"]
    count: Float[Array, " clusters"]


def _keep_empty(new: Array, previous: Array, count: Float[Array, " clusters"]) -> Array:
    return jnp.where((count > 0)[:, None, None, None], new, previous)


class AbstractSummedImages(AbstractPrototypeFamily):
    """Prototypes that follow from the sums of the aligned samples alone."""

    is_additive: ClassVar[bool] = True

    @property
    def initial_family(self) -> "AbstractSummedImages":
        """Itself; see `AbstractPrototypeFamily.initial_family`."""
        return self

    def init(self, sample: Image) -> Image:
        """The sample itself; see `AbstractPrototypeFamily.init`."""
        return sample

    def statistics(
        self,
        aligned: Images,
        pixel_weight: Array | None,
        membership: Membership,
        prototypes: PyTree = None,
    ) -> Sums:
        """See `AbstractPrototypeFamily.statistics`."""
        del prototypes
        count = jnp.sum(membership, axis=0)
        if pixel_weight is None:
            shape = (*membership.shape[1:], *aligned.shape[1:3], 1)
            weight = jnp.broadcast_to(count[:, None, None, None], shape)
            return Sums(weighted_sums(aligned, membership), weight, count)
        sums = weighted_sums(aligned * pixel_weight, membership)
        return Sums(sums, weighted_sums(pixel_weight, membership), count)


class MeanImages(AbstractSummedImages):
    """The (pixel-weighted) mean of the aligned samples.

    References:
        Cosentino et al., DI K-means, Prop. 1 and Algorithm 1.
    """

    def update(self, statistics: Sums, previous: Array) -> Array:
        """See `AbstractPrototypeFamily.update`."""
        tiny = jnp.finfo(previous.dtype).tiny
        mean = statistics.image / jnp.maximum(statistics.weight, tiny)
        return _keep_empty(mean, previous, statistics.count)

    def normalise(self, sample: Image) -> Image:
        """Returns the sample as it is."""
        return sample


class UnitNormImages(AbstractSummedImages):
    """The minimiser of the distortion among images of unit norm (Eq. 2's constraint).

    With uniform pixel weights that is the mean divided by its norm. With weights W and weighted
    sums S it is S / (W + λ), λ being the root of its unit norm. Samples are scaled to unit norm
    too: otherwise pushing everything off the canvas would cost the least.

    References:
        Cosentino et al., DI K-means, Eqs. 2 and 7.
    """

    def update(self, statistics: Sums, previous: Array) -> Array:
        """See `AbstractPrototypeFamily.update`."""
        new = jax.vmap(_unit_norm_minimiser)(statistics.image, statistics.weight)
        return _keep_empty(new, previous, statistics.count)

    def normalise(self, sample: Image) -> Image:
        """Divides by the Euclidean norm; a blank sample stays blank."""
        norm = jnp.sqrt(jnp.sum(sample**2))
        return sample / jnp.where(norm > 0, norm, 1.0)


def _unit_norm_minimiser(total: Image, weight: Float[Array, "height width 1"]) -> Image:
    """Minimises Σ W c² - 2 S c over ‖c‖ = 1, by bisection on the multiplier λ.

    With μ = λ + min W, ‖S / (W - min W + μ)‖ falls in μ from above 1 to below it on the bracket
    [‖S‖ - (max W - min W), ‖S‖], whose ends meet where the weights are uniform. It may stay below
    1 down to μ = 0: then what is missing of the norm costs least where the weight is least.
    Pixels that weigh nothing stay zero.
    """
    excess = weight - jnp.min(jnp.where(weight > 0, weight, jnp.inf))
    norm = jnp.sqrt(jnp.sum(total**2))

    def solution(multiplier: Scalar) -> Image:
        divisor = excess + multiplier
        return total / jnp.where(divisor > 0, divisor, 1.0)

    def halve(_: Array | int, bracket: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = bracket
        middle = 0.5 * (low + high)
        too_long = jnp.sum(solution(middle) ** 2) > 1.0
        return jnp.where(too_long, middle, low), jnp.where(too_long, high, middle)

    bracket = (jnp.maximum(norm - jnp.max(excess), 0.0), norm)
    low, high = jax.lax.fori_loop(0, 40, halve, bracket)
    minimiser = solution(0.5 * (low + high))
    squared = jnp.sum(minimiser**2)
    least = jnp.broadcast_to((excess <= 0) & (weight > 0), total.shape).astype(total.dtype)
    missing = jnp.sqrt(jnp.maximum(1.0 - squared, 0.0) / jnp.sum(least))
    # Less than rounding explains is missing in earnest; the rest is scaled away.
    filled = jnp.where(squared < 1.0 - 1e-4, minimiser + missing * least, minimiser)
    return filled / jnp.sqrt(jnp.sum(filled**2))
