"""Gradient EM: prototypes, networks and mixture weights learned by gradient steps on batches."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from diffclust.alignment import AbstractAligner, Alignment
from diffclust.energies import AbstractPairEnergy, AbstractReduction, HardMinimum
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.base import AbstractSolver, Memory, memory_of
from diffclust.types import Count, Key, Scalar

ADAM = optax.scale_by_adam()
"""One object for all solvers, so that they share what was compiled."""


class GradientTally(eqx.Module):
    """Sums over the samples of some steps.

    Attributes:
        count: Weight of the samples whose best cluster each is.
        loss: Their losses.
    """

    count: Float[Array, " clusters"]
    loss: Scalar


class GradientState(eqx.Module):
    """The state between two steps.

    Attributes:
        learned: Prototypes, networks, mixture weights.
        moments: The optimiser's state.
        tally: Sums since it was cleared last.
        step: Steps taken.
        failed: The first step whose loss or gradient was not a number, which was not taken; -1 if
            there was none.
    """

    learned: Learned
    moments: PyTree
    tally: GradientTally
    step: Count
    failed: Count


class GradientEM(AbstractSolver):
    """Steps down the gradient of a reduction of energies, over batches of samples.

    `init`, `step` for each batch, `refill` now and then; all pure. The gradient of a mixture's
    negative log-likelihood is that of its expectation under fixed responsibilities, so one class
    serves K-means and EM.

    Attributes:
        energy: The energy of a sample against a cluster.
        aligner: Finds the params: predicted and learned, minimised, or none.
        reduction: How a sample's energies make its loss.
        followed: For how many clusters of a sample a gradient is computed, best first. One is
            exact for a hard minimum; clusters of negligible responsibility have none to speak of.
        decay: Weight decay of the networks.
        warm_starts: How many candidates' params are memory_of of each sample.
        optimiser: Optax's transformation of gradients, without the learning rate.

    References:
        Monnier et al., DTI clustering, Sec. 3.2 and Algorithm 1.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner
    reduction: AbstractReduction = HardMinimum()
    followed: int = eqx.field(static=True, default=1, kw_only=True)
    decay: float = eqx.field(static=True, default=1e-6, kw_only=True)
    warm_starts: int = eqx.field(static=True, default=1, kw_only=True)
    optimiser: optax.GradientTransformation = eqx.field(static=True, default=ADAM, kw_only=True)

    def normalise(self, sample: PyTree) -> PyTree:
        """Returns the sample as it is; see `AbstractSolver.normalise`."""
        return sample

    def init(self, learned: Learned) -> GradientState:
        """A state before the first step.

        Args:
            learned: What is learned, to start from.

        Returns:
            The state.
        """
        none = jnp.zeros((), dtype=jnp.int32)
        return GradientState(
            learned, self.optimiser.init(learned), _blank(learned.clusters), none, none - 1
        )

    def training_memory(self, size: int, num_clusters: int, dtype: jnp.dtype) -> Memory | None:
        """The memory of samples before the first step.

        Args:
            size: Number of samples.
            num_clusters: Number of clusters.
            dtype: Floating dtype.

        Returns:
            Memory without candidates; None where no alignment would start from it, as predicted
            ones do not.
        """
        if self.aligner.is_learned or self.energy.num_params == 0:
            return None
        return self.init_memory(size, num_clusters, dtype)

    def assign(self, learned: Learned, samples: PyTree, memory: Memory | None) -> Alignment:
        """See `AbstractSolver.assign`; the energies are the reduction's scores."""
        found = self.align(learned, samples, memory)
        if not self.aligner.is_learned:
            found = jax.lax.stop_gradient(found)
        offsets = self.reduction.offsets(learned.objective, len(learned.clusters))
        if offsets is None:
            return found
        offsets = jax.lax.stop_gradient(offsets)

        def by_score(one: Alignment) -> Alignment:
            scores = one.energy + offsets[one.cluster]
            order = jnp.argsort(scores)
            return Alignment(one.cluster[order], one.params[order], scores[order])

        return jax.vmap(by_score)(found)

    def losses(self, learned: Learned, samples: PyTree, found: Alignment) -> Float[Array, " n"]:
        """The loss of each sample of a batch, with its gradient.

        Args:
            learned: What is learned.
            samples: A batch of samples.
            found: How they were assigned under the same.

        Returns:
            One number a sample.
        """
        # Weights of penalties are chosen, not learned: the loss would fall by making them small.
        clusters = eqx.tree_at(
            lambda c: c.penalty, learned.clusters, jax.lax.stop_gradient(learned.clusters.penalty)
        )
        offsets = self.reduction.offsets(learned.objective, len(clusters))

        def one(sample: PyTree, index: Array, params: Array) -> Float[Array, " followed"]:
            bound = jax.vmap(self.energy.bind(sample), in_axes=(0, None, 0))
            energies = bound(params, sample, clusters.take(index))
            return energies if offsets is None else energies + offsets[index]

        best = slice(0, self.followed)
        part = self.reduction(jax.vmap(one)(samples, found.cluster[:, best], found.params[:, best]))
        whole = self.reduction(found.energy)
        return part + jax.lax.stop_gradient(whole - part)

    def step(
        self,
        state: GradientState,
        batch: Batch,
        memory: Memory | None,
        rate: Scalar,
        *,
        axis_name: str | None = None,
    ) -> tuple[GradientState, Memory | None]:
        """One step on one batch.

        Args:
            state: The state.
            batch: A batch of samples.
            memory: Their memory, or None.
            rate: The learning rate.
            axis_name: Name of a mapped device axis over which gradients are added, or None.

        Returns:
            The state after the step, and the batch's new memory, None where it was.
        """

        def total(learned: Learned) -> tuple[Scalar, Alignment]:
            found = self.assign(learned, batch.samples, memory)
            losses = self.losses(learned, batch.samples, found)
            return jnp.dot(losses, batch.weight), found

        (loss, found), gradient = eqx.filter_value_and_grad(total, has_aux=True)(state.learned)
        number = jnp.arange(len(state.learned.clusters), dtype=jnp.int32)
        count = batch.weight @ (found.cluster[:, :1] == number[None]).astype(batch.weight.dtype)
        if axis_name is not None:
            loss, gradient, count = jax.lax.psum((loss, gradient, count), axis_name)
        # An empty batch has no gradient, and so no step to take.
        mass = jnp.maximum(jnp.sum(count), jnp.finfo(count.dtype).tiny)
        gradient = jax.tree.map(lambda g: g / mass, gradient)
        finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient, squared=True))
        gradient = _decayed(gradient, state.learned, self.decay)
        # Optax mixes weak and strong types, which strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            updates, moments = self.optimiser.update(gradient, state.moments, state.learned)
        learned = jax.tree.map(lambda x, u: x - rate * u, state.learned, updates)
        tally = GradientTally(state.tally.count + count, state.tally.loss + loss)
        taken, kept = (learned, moments, tally), (state.learned, state.moments, state.tally)
        learned, moments, tally = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), taken, kept
        )
        failed = jnp.where(finite | (state.failed >= 0), state.failed, state.step)
        state = GradientState(learned, moments, tally, state.step + 1, failed)
        if memory is None:
            return state, None
        return state, memory_of(found, memory.params.shape[1])

    def refill(
        self, state: GradientState, key: Key, *, least_share: float, noise: float
    ) -> tuple[GradientState, Count]:
        """Gives tiny clusters all that belongs to the largest one, and clears the tally.

        Prototype, heads, mixture weight and the optimiser's moments go together; noise on the
        prototypes parts the twins.

        Args:
            state: The state, with a tally of at least a few hundred samples.
            key: Random key.
            least_share: A cluster is tiny that holds less than this share of an even one.
            noise: Standard deviation of the noise, in units of intensity.

        Returns:
            The state, and how many clusters were refilled.

        References:
            Monnier et al., DTI clustering, Sec. 4.2 (empty cluster reassignment).
        """
        count = state.tally.count
        number = jnp.arange(count.shape[0])
        tiny = count < least_share * jnp.sum(count) / count.shape[0]
        largest = jnp.argmax(count)
        source = jnp.where(tiny, largest, number)
        stirred = tiny | (jnp.any(tiny) & (number == largest))

        state = regrouped(state, source)
        learned = state.learned
        leaves, structure = jax.tree.flatten(learned.clusters.prototype)
        stirred_leaves = [
            leaf
            + noise
            * jnp.where(stirred.reshape(-1, *[1] * (leaf.ndim - 1)), 1.0, 0.0).astype(leaf.dtype)
            * jax.random.normal(part, leaf.shape, leaf.dtype)
            for leaf, part in zip(leaves, jax.random.split(key, len(leaves)), strict=True)
        ]
        prototype = jax.tree.unflatten(structure, stirred_leaves)
        learned = eqx.tree_at(lambda tree: tree.clusters.prototype, learned, prototype)
        return cleared(state, learned), jnp.sum(tiny, dtype=jnp.int32)


def regrouped(state: GradientState, source: Int[Array, " clusters"]) -> GradientState:
    """Every cluster with all that belongs to another one, the optimiser's moments included.

    Args:
        state: The state.
        source: For each cluster the one it becomes.

    Returns:
        The state.
    """

    def taken(tree: PyTree) -> PyTree:
        if not isinstance(tree, Learned):
            return tree
        objective = jax.tree.map(lambda leaf: leaf[source], tree.objective)
        return Learned(tree.clusters.take(source), tree.shared, objective)

    moments = jax.tree.map(taken, state.moments, is_leaf=lambda t: isinstance(t, Learned))
    return GradientState(taken(state.learned), moments, state.tally, state.step, state.failed)


def cleared(state: GradientState, learned: Learned) -> GradientState:
    """The state with something else learned, and an empty tally.

    Args:
        state: The state.
        learned: What is learned.

    Returns:
        The state.
    """
    tally = _blank(learned.clusters)
    return GradientState(learned, state.moments, tally, state.step, state.failed)


def _blank(clusters: Clusters) -> GradientTally:
    dtype = clusters.penalty.dtype
    return GradientTally(jnp.zeros((len(clusters),), dtype=dtype), jnp.zeros((), dtype=dtype))


def _decayed(gradient: Learned, learned: Learned, decay: float) -> Learned:
    """The gradient with the networks' weights added, where they are in use at all.

    Adam scales any gradient to the size of its step, so decay alone would empty a network that
    waits for its turn in the curriculum.
    """

    def add(g: Array, weight: Array) -> Array:
        return jnp.where(jnp.any(g != 0.0), g + decay * weight, g)

    def networks(tree: Learned) -> tuple[PyTree, PyTree]:
        return tree.shared, tree.clusters.predictor

    if decay == 0.0 or not jax.tree.leaves(networks(learned)):
        return gradient
    added = jax.tree.map(add, networks(gradient), networks(learned))
    return eqx.tree_at(networks, gradient, added, is_leaf=lambda leaf: leaf is None)
