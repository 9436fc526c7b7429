"""The invariant distance of one sample to prototypes."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust.alignment.base import AbstractAligner, Alignment
from diffclust.distances import AbstractDistance
from diffclust.energies import AbstractPairEnergy, AbstractSampleEnergy
from diffclust.prototypes import Clusters
from diffclust.types import Scalar


@eqx.filter_jit
def _prepared(aligner: AbstractAligner, energy: AbstractPairEnergy, clusters: Clusters) -> PyTree:
    return aligner.prepare(energy, clusters, None)


class InvariantDistance(eqx.Module):
    """d(x, c) = min over ν of the energy of T(x; ν) against c: a distance that sees through T.

    A quasi-pseudo-semi-metric (DI K-means, Prop. 2): zero on whole orbits, not symmetric unless the
    energy weighs pixels by the Jacobian, without the triangle inequality. Its derivative goes
    through all steps of the aligner; a solver's need not (`Lloyd(..., adjoint=)`).

    Attributes:
        energy: What is minimised, penalties included.
        aligner: What minimises it.

    References:
        Cosentino et al., DI K-means, Eq. 3.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner

    def prepared(
        self, examples: PyTree, penalty: Float[Array, " terms"] | None = None
    ) -> "PreparedDistance":
        """A distance for many pairs: what the aligner computes once for all is computed here.

        Args:
            examples: Some samples with a leading axis, of the kind that will be aligned.
            penalty: Weights of the energy's penalty terms; zero for all where it is not given.

        Returns:
            A distance like any other.
        """
        if penalty is None:
            penalty = jnp.zeros((self.energy.num_penalties,), dtype=jnp.result_type(float))
        count = jax.tree.leaves(examples)[0].shape[0]
        clusters = Clusters(examples, jnp.tile(penalty[None], (count, 1)))
        preparation = _prepared(self.aligner, self.energy, clusters)
        return PreparedDistance(self.energy, self.aligner, penalty, preparation)

    def __call__(
        self, sample: PyTree, prototype: PyTree, penalty: Float[Array, " terms"] | None = None
    ) -> Scalar:
        """The distance of one sample to one prototype.

        Args:
            sample: One sample.
            prototype: One prototype.
            penalty: Weights of the energy's penalty terms; zero for all where it is not given.

        Returns:
            The least energy that the aligner finds.
        """
        return self.prepared(_stacked(prototype), penalty)(sample, prototype)


class PreparedDistance(AbstractDistance):
    """An invariant distance ready for many pairs; wherever a distance goes, it can go.

    Attributes:
        energy: What is minimised, penalties included.
        aligner: What minimises it.
        penalty: Weights of the energy's penalty terms.
        preparation: What the aligner's `prepare` returned.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner
    penalty: Float[Array, " terms"]
    preparation: PyTree

    def align(self, sample: PyTree, prototype: PyTree) -> Alignment:
        """Aligns one sample to one prototype, from the identity.

        Args:
            sample: One sample.
            prototype: One prototype, or another sample.

        Returns:
            The alignment, with one candidate.
        """
        alone = Clusters(_stacked(prototype), self.penalty[None])
        # No incumbent: nothing is spent on comparing with one.
        none = jnp.zeros((0,), dtype=self.penalty.dtype)
        start = Alignment(none.astype(jnp.int32), none.reshape(0, self.energy.num_params), none)
        return self.aligner.align(self.energy, sample, alone, None, start, self.preparation)

    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The least energy that the aligner finds; see `AbstractDistance.__call__`.

        Args:
            sample: One sample.
            prototype: One prototype, or another sample.
            weight: Must be None: pixel weights are the energy's.

        Returns:
            A non-negative number.
        """
        if weight is not None:
            raise ValueError("an invariant distance takes no weights; give them to its energy")
        return self.align(sample, prototype).energy[0]


class AfterAlignment(AbstractDistance):
    """A distance measured after an alignment that another one found.

    Attributes:
        alignment: Finds how the sample is moved; its own value is not used.
        distance: Measured between the moved sample and the prototype.
    """

    alignment: PreparedDistance
    distance: AbstractDistance

    def __check_init__(self):
        """Refuses alignments that move the prototype."""
        if not isinstance(self.alignment.energy, AbstractSampleEnergy):
            raise ValueError(
                "the alignment must move the sample, as TransformedDistance does, not "
                f"{type(self.alignment.energy).__name__}"
            )

    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The distance; see `AbstractDistance.__call__`.

        Args:
            sample: One sample.
            prototype: One prototype, or another sample.
            weight: Pixel weights of the distance that is measured, or None.

        Returns:
            A non-negative number.
        """
        params = self.alignment.align(sample, prototype).params[0]
        energy = self.alignment.energy
        assert isinstance(energy, AbstractSampleEnergy)
        return self.distance(energy.aligned(params, sample), prototype, weight)


def _stacked(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[None], tree)
