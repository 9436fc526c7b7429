"""The invariant distance of one sample to prototypes."""

import dataclasses
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from diffclust import _validation
from diffclust._sharding import with_auto_axes
from diffclust.alignment.base import AbstractAligner, Alignment, check_samples
from diffclust.distances import AbstractDistance
from diffclust.distances.base import check_floating
from diffclust.energies import AbstractPairEnergy, AbstractSampleEnergy
from diffclust.prototypes import Clusters
from diffclust.types import Scalar

Adjoint = Literal["envelope", "unrolled"]
"""How a loss is differentiated if params are searched for: at fixed params, since they minimise the
energy (the envelope theorem), or through the steps of the search, which is needed if prototypes
come from several passes, and for second derivatives. Gradients always flow through predicted
params."""


def constant(tree: PyTree) -> Any:
    """A tree without derivatives.

    Args:
        tree: Arrays, and leaves of other types, such as functions.

    Returns:
        The same values.
    """
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, tree)


def at_fixed_params(
    alignment: Alignment, energy: AbstractPairEnergy, sample: PyTree, clusters: Clusters
) -> Alignment:
    """An alignment whose energies are differentiated at fixed params.

    Args:
        alignment: The alignment of a sample, found without derivatives.
        energy: The energy that was minimised.
        sample: The sample.
        clusters: All clusters.

    Returns:
        The same values. The energies are evaluated again only under differentiation.
    """
    values = _energies(alignment.energy, alignment, energy, sample, clusters)
    return eqx.tree_at(lambda a: a.energy, alignment, values)


@eqx.filter_custom_jvp
def _energies(
    values: Array,
    alignment: Alignment,
    energy: AbstractPairEnergy,
    sample: PyTree,
    clusters: Clusters,
) -> Array:
    del alignment, energy, sample, clusters
    return values


@_energies.def_jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    _, alignment, *others = primals

    def energies(energy: AbstractPairEnergy, sample: PyTree, clusters: Clusters) -> Array:
        bound = jax.vmap(energy.bind(sample), in_axes=(0, None, 0))
        return bound(alignment.params, sample, clusters.take(alignment.cluster))

    # Uses neither the values already there nor this rule again, since linearising a loop drops it
    # and an outer derivative would see constants.
    return eqx.filter_jvp(energies, tuple(others), tuple(tangents[2:]))


@eqx.filter_jit
def _prepared(aligner: AbstractAligner, energy: AbstractPairEnergy, clusters: Clusters) -> PyTree:
    return aligner.prepare(energy, clusters, None)


class InvariantDistance(eqx.Module):
    """d(x, c) = min over ν of the energy of T(x; ν) against c: a distance invariant under T.

    It is a quasi-pseudo-semi-metric (DI K-means, Prop. 2): zero on whole orbits, not symmetric, and
    without the triangle inequality. If the transforms form a group, it is symmetric when pixels are
    weighted by the Jacobian and nothing bright leaves the canvas, since what no pixel reads costs
    nothing.

    Attributes:
        energy: The energy to minimise, including penalties.
        aligner: The aligner that minimises it.
        adjoint: How it is differentiated; see `Adjoint`.

    References:
        Cosentino et al., DI K-means, Eq. 3.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner
    adjoint: Adjoint = eqx.field(static=True, default="envelope", kw_only=True)

    def __check_init__(self):
        """Refuses an unknown adjoint."""
        _validation.one_of(self.adjoint, get_args(Adjoint), "adjoint")

    @with_auto_axes
    def prepared(
        self, examples: PyTree, penalty: Float[Array, " terms"] | None = None
    ) -> "PreparedDistance":
        """Prepares a distance for many pairs: the aligner's shared computations are done here.

        Args:
            examples: Some samples with a leading axis, of the kind that will be aligned.
            penalty: Weights of the energy's penalty terms; by default all zero.

        Returns:
            A distance like any other.

        Raises:
            ValueError: For another number of weights, or examples of whole numbers.
        """
        leaves = jax.tree.leaves(examples)
        check_floating(*leaves)
        dtype = jnp.result_type(*leaves)
        given = jnp.zeros((self.energy.num_penalties,)) if penalty is None else penalty
        penalty = jnp.asarray(given, dtype)
        if penalty.shape != (self.energy.num_penalties,):
            raise ValueError(
                f"penalty must have length {self.energy.num_penalties}, one number for each term "
                f"of {type(self.energy).__name__}, not of shape {penalty.shape}"
            )
        count = leaves[0].shape[0]
        clusters = Clusters(examples, jnp.tile(penalty[None], (count, 1)))
        preparation = _prepared(self.aligner, self.energy, clusters)
        parts = self.energy, self.aligner, penalty, preparation
        return PreparedDistance(*parts, adjoint=self.adjoint)

    def __call__(
        self, sample: PyTree, prototype: PyTree, penalty: Float[Array, " terms"] | None = None
    ) -> Scalar:
        """The distance of one sample to one prototype.

        Args:
            sample: One sample.
            prototype: One prototype.
            penalty: Weights of the energy's penalty terms; by default all zero.

        Returns:
            The lowest energy that the aligner finds.
        """
        return self.prepared(_stacked(prototype), penalty)(sample, prototype)


class PreparedDistance(AbstractDistance):
    """An invariant distance prepared for many pairs; usable wherever a distance is.

    Attributes:
        energy: The energy to minimise, including penalties.
        aligner: The aligner that minimises it.
        penalty: Weights of the energy's penalty terms.
        preparation: What the aligner's `prepare` returned.
        adjoint: How it is differentiated; see `Adjoint`.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner
    penalty: Float[Array, " terms"]
    preparation: PyTree
    adjoint: Adjoint = eqx.field(static=True, default="envelope", kw_only=True)

    @with_auto_axes
    def align(self, sample: PyTree, prototype: PyTree) -> Alignment:
        """Aligns one sample to one prototype, from the identity.

        Args:
            sample: One sample.
            prototype: One prototype, or another sample.

        Returns:
            The alignment, with one candidate.
        """
        alone = Clusters(_stacked(prototype), self.penalty[None])
        # Without an incumbent, no work is spent on comparing with one.
        none = jnp.zeros((0,), dtype=self.penalty.dtype)
        start = Alignment(none.astype(jnp.int32), none.reshape(0, self.energy.num_params), none)
        check_samples(self.energy, _stacked(sample), alone)
        given = (self.energy, sample, alone, self.preparation)
        searched = not self.aligner.is_learned and self.adjoint == "envelope"
        energy, moved, onto, prepared = constant(given) if searched else given
        result = self.aligner.align(energy, moved, onto, None, start, prepared)
        return at_fixed_params(result, self.energy, sample, alone) if searched else result

    def __call__(self, sample: PyTree, prototype: PyTree, weight: Array | None = None) -> Scalar:
        """The lowest energy that the aligner finds; see `AbstractDistance.__call__`.

        Args:
            sample: One sample.
            prototype: One prototype, or another sample.
            weight: Must be None: the energy has its own pixel weights.

        Returns:
            A non-negative number.
        """
        if weight is not None:
            raise ValueError("an invariant distance takes no weights; give them to its energy")
        return self.align(sample, prototype).energy[0]


class AfterAlignment(AbstractDistance):
    """A distance measured after the alignment that another distance found.

    The params do not minimise this distance, so its derivative goes through the steps of the
    search.

    Attributes:
        alignment: Finds the params that move the sample; its own value is not used.
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
            weight: Pixel weights of the measured distance, or None.

        Returns:
            A non-negative number.
        """
        search = dataclasses.replace(self.alignment, adjoint="unrolled")
        params, energy = search.align(sample, prototype).params[0], search.energy
        assert isinstance(energy, AbstractSampleEnergy)
        return self.distance(energy.aligned(params, sample), prototype, weight)


def _stacked(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[None], tree)
