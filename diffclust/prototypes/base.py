"""What is learned of the clusters, and what every prototype family offers."""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree


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
    """How prototypes follow from the samples that were aligned to them."""

    @property
    @abc.abstractmethod
    def is_additive(self) -> bool:
        """Whether a sample adds the same to the sums of a cluster whatever its prototype is."""

    @property
    @abc.abstractmethod
    def starting(self) -> "AbstractPrototypeFamily":
        """The family whose prototypes a run begins with: itself, unless updates go on from them."""

    @abc.abstractmethod
    def begin(self, sample: PyTree) -> PyTree:
        """The prototype of a cluster that is just begun with one sample.

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
        membership: Float[Array, "n clusters"],
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
