"""Gradient EM: gradient steps on batches, their order, and the phases of a fit."""

import dataclasses
import math
import warnings
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

from diffclust import _validation
from diffclust._sharding import varying_like
from diffclust.alignment import AbstractAligner, Alignment, Sequential
from diffclust.energies import AbstractPairEnergy, AbstractReduction, HardMinimum
from diffclust.networks import AbstractBatchBackbone, BatchFeatures
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Learned
from diffclust.prototypes.base import column
from diffclust.solvers.adam import ADAM as ADAM
from diffclust.solvers.adam import OPTIMIZERS, BiasCorrection
from diffclust.solvers.base import (
    AbstractSolver,
    Adjoint,
    Memory,
    aligner_for,
    check_parts,
    memory_of,
    zeros_of,
)
from diffclust.solvers.lloyd import hard_membership, total_share
from diffclust.types import Count, Key, Scalar

_Optimizer = optax.GradientTransformation | None


class GradientTally(eqx.Module):
    """Sums over the samples of some steps.

    Attributes:
        count: Weight of the samples whose best cluster each is, as far as they count.
        loss: Sum of their losses.
        mass: Their total weight.
        reduction: The statistics of an adaptive reduction, otherwise None.
    """

    count: Float[Array, " clusters"]
    loss: Scalar
    mass: Scalar
    reduction: PyTree = None


class GradientState(eqx.Module):
    """The state between two steps.

    Attributes:
        learned: Prototypes, networks, mixture weights.
        moments: The optimiser's state.
        tally: Sums since it was last cleared.
        step: Steps taken.
        failed: The first step whose loss or gradient was not finite, which was not taken; -1 if
            there was none.
    """

    learned: Learned
    moments: PyTree
    tally: GradientTally
    step: Count
    failed: Count


class GradientEM(AbstractSolver):
    """Steps down the gradient of a reduction of energies, over batches of samples.

    Use `init`, then `step` for each batch, and `refill` now and then; all are pure. The gradient of
    a mixture's negative log-likelihood is that of its expectation under fixed responsibilities, so
    one class serves both K-means and EM.

    Attributes:
        energy: The energy of a sample against a cluster.
        aligner: Finds the params: predicted and learned, minimised, or none. `NoAlignment()` is
            made to follow all clusters if memberships are soft.
        reduction: Turns a sample's energies into its loss.
        followed: For how many clusters of a sample the gradient is computed, best first. None means
            one if the reduction is hard, otherwise all, which is exact. Clusters of negligible
            responsibility have practically no gradient.
        decay: Weight decay of the networks.
        warm_starts: For how many candidates of each sample params are remembered.
        adjoint: How losses are differentiated; see `diffclust.solvers.base.Adjoint`.
        optimizer: Any complete optax optimiser; None for Adam at the rate of the phase. If its
            state holds a `learning_rate` (`optax.inject_hyperparams`), that is set to the phase's;
            otherwise it keeps its own schedule.
        optimiser: Deprecated. As in version 0.1, a gradient transformation without learning rate
            and with the opposite sign.
        bias_correction: From when Adam counts steps; see `Training.bias_correction`.

    References:
        Monnier et al., DTI clustering, Sec. 3.2 and Algorithm 1.
    """

    energy: AbstractPairEnergy
    aligner: AbstractAligner
    reduction: AbstractReduction = HardMinimum()  # pyright: ignore[reportIncompatibleMethodOverride]
    followed: int | None = eqx.field(static=True, default=None, kw_only=True)
    decay: Scalar = eqx.field(converter=jnp.asarray, default=1e-6, kw_only=True)
    warm_starts: int = eqx.field(static=True, default=1, kw_only=True)
    adjoint: Adjoint = eqx.field(static=True, default="envelope", kw_only=True)
    optimizer: _Optimizer = eqx.field(static=True, default=None, kw_only=True)
    optimiser: _Optimizer = eqx.field(static=True, default=None, kw_only=True)
    bias_correction: BiasCorrection = eqx.field(static=True, default="array", kw_only=True)

    def __post_init__(self):
        """Makes the aligner follow all clusters if memberships are soft."""
        check_parts(self.energy, self.aligner, self.reduction)
        self.aligner = aligner_for(self.aligner, self.reduction)

    def __check_init__(self):
        """Refuses a reduction from which nothing would be learned; warns about the former name."""
        _validation.one_of(self.bias_correction, OPTIMIZERS, "bias_correction")
        if self.followed is not None:
            _validation.count(self.followed, "followed")
        kind = type(self.reduction)
        has_init = kind.init is not AbstractReduction.init
        if has_init and not kind.is_adaptive and kind.offsets is AbstractReduction.offsets:
            raise ValueError(
                f"what {kind.__name__}.init returns is given to `offsets` alone, which it does not "
                "define: nothing would be learned. An energy can read what is learned from "
                "`clusters.predictor`"
            )
        if self.optimiser is not None:
            warnings.warn(
                "GradientEM(optimiser=) subtracts its updates, so that a complete optimiser of "
                "optax's, such as optax.adam(1e-3), climbs: give that as optimizer=, whose updates "
                "are added; the former goes in diffclust 0.3",
                FutureWarning,
                stacklevel=3,
            )

    @property
    def _transformation(self) -> optax.GradientTransformation:
        return self.optimizer or self.optimiser or OPTIMIZERS[self.bias_correction]

    def normalise(self, sample: PyTree) -> PyTree:
        """Returns the sample as it is."""
        return sample

    def init(self, learned: Learned) -> GradientState:
        """A state before the first step.

        Args:
            learned: The learned arrays to start from.

        Returns:
            The state.

        Raises:
            ValueError: If the aligner predicts and then searches, so that no gradient reaches the
                network; or if the optimizer ascends.
        """
        aligner = self.aligner
        if isinstance(aligner, Sequential) and aligner.first.is_learned and not aligner.is_learned:
            raise ValueError(
                "Sequential never trains the network of its first aligner: train with Prediction "
                "alone, and take Sequential to the final assignment"
            )
        none, count, dtype = jnp.zeros((), jnp.int32), len(learned.clusters), learned.clusters.dtype
        scores = jnp.zeros((1, self.aligner.num_candidates(count)), dtype)
        places, statistics = scores.astype(jnp.int32), self.reduction_of(learned).statistics
        sums, zero = zeros_of(statistics, scores, scores[:, 0], places), jnp.zeros((), dtype)
        tally = GradientTally(jnp.zeros((count,), dtype), zero, zero, sums)
        state = GradientState(learned, self._transformation.init(learned), tally, none, none - 1)
        if self.optimizer is not None:
            self._check_descent(state)
        return state

    def _check_descent(self, state: GradientState) -> None:
        """Refuses an optimiser that ascends a constant gradient."""
        zeros, ones = (jax.tree.map(f, state.learned) for f in (jnp.zeros_like, jnp.ones_like))
        loss, state = state.tally.loss, eqx.tree_at(lambda s: s.learned, state, zeros)
        updates, _ = self._updated(state, ones, loss, jnp.ones_like(loss))
        climbs = optax.tree.sum(updates) > 0
        if not isinstance(climbs, Tracer) and climbs:
            raise ValueError(
                "the optimizer climbs: its updates, which are added, point along the gradient; "
                "give a complete optimiser, optax.adam(1e-3), not optax.scale_by_adam()"
            )

    def training_memory(
        self, size: int, num_clusters: int, dtype: np.dtype, *, past: Memory | None = None
    ) -> Memory | None:
        """The memory of samples before the first step.

        Args:
            size: Number of samples.
            num_clusters: Number of clusters.
            dtype: Floating dtype.
            past: The memory of another solver, whose params become the first ones of this one's, or
                None.

        Returns:
            Memory without other candidates; None if no alignment starts from it, as when params are
            predicted.
        """
        if self.aligner.is_learned or self.energy.num_params == 0:
            return None
        memory = self.init_memory(size, num_clusters, jnp.dtype(dtype))
        if past is None or past.cluster.shape != memory.cluster.shape:
            return memory
        width = min(past.params.shape[2], memory.params.shape[2])
        params = memory.params.at[:, :, :width].set(past.params[:, :, :width])
        return Memory(past.cluster, past.energy, params)

    def losses(self, learned: Learned, samples: PyTree, alignment: Alignment) -> Float[Array, " n"]:
        """The loss of each sample of a batch, with its gradient.

        Args:
            learned: The learned arrays.
            samples: A batch of samples.
            alignment: Their assignment under the same learned arrays.

        Returns:
            One number per sample.
        """
        clusters, reduction = learned.clusters, self.reduction_of(learned)
        if reduction is not self.reduction:
            # An adaptive reduction is updated by sums, not by a gradient.
            reduction = jax.lax.stop_gradient(reduction)
        offsets = reduction.offsets(learned.objective, len(clusters))

        def one(sample: PyTree, index: Array, params: Array) -> Float[Array, " followed"]:
            bound = jax.vmap(self.energy.bind(sample), in_axes=(0, None, 0))
            energies = bound(params, sample, clusters.take(index))
            return energies if offsets is None else energies + offsets[index]

        best = slice(0, self.followed or (1 if reduction.is_hard else None))
        part = reduction(
            jax.vmap(one)(samples, alignment.cluster[:, best], alignment.params[:, best])
        )
        whole = reduction(alignment.energy)
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
        """Makes one step on one batch.

        Args:
            state: The state.
            batch: A batch of samples.
            memory: Their memory, or None.
            rate: The learning rate.
            axis_name: Name of a mapped device axis over which gradients are added, or None.

        Returns:
            The state after the step, and the batch's new memory, or None if it was None.
        """

        def total(learned: Learned) -> tuple[Scalar, tuple[Alignment, PyTree]]:
            read, running = learned, None
            if (network := self._batch_normalised(learned)) is not None:
                features, running = network.read_batch(
                    batch.samples, batch.weight, axis_name=axis_name
                )
                read = Learned(learned.clusters, BatchFeatures(features), learned.objective)
            alignment = self.assign(read, batch.samples, memory)
            losses = self.losses(learned, batch.samples, alignment)
            return jnp.dot(losses, batch.weight), (alignment, running)

        value_and_grad = eqx.filter_value_and_grad(total, has_aux=True)
        # By arrays that vary, every device has its own gradient. By arrays that are the same on
        # all, `jax.shard_map` would return the sum, which is formed below.
        own = varying_like(state.learned, batch)
        (loss, (alignment, running)), gradient = value_and_grad(own)
        # Penalty weights are chosen, not learned: making them small would lower the loss.
        gradient = eqx.tree_at(lambda g: g.clusters.penalty, gradient, replace_fn=jnp.zeros_like)
        reduction, mass = self.reduction_of(state.learned), jnp.sum(batch.weight)
        share, number = total_share(reduction, alignment.energy), len(state.learned.clusters)
        count = batch.weight @ hard_membership(alignment.cluster[:, 0], share, number)
        sums = reduction.statistics(alignment.energy, batch.weight, alignment.cluster)
        if axis_name is not None:
            every = (loss, gradient, count, mass, sums)
            loss, gradient, count, mass, sums = jax.lax.psum(every, axis_name)
        # An empty batch has no gradient, so no step is taken.
        divisor = jnp.maximum(mass, jnp.finfo(mass.dtype).tiny)
        gradient = jax.tree.map(lambda g: g / divisor, gradient)
        finite = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(gradient, squared=True))
        gradient = _decayed(gradient, state.learned, self.decay)
        learned, moments = self._updated(state, gradient, loss / divisor, rate)
        network = self._batch_normalised(learned)
        shared = learned.shared if network is None else network.with_moments(running)
        # An adaptive reduction is not changed by gradient steps.
        held = (state.learned if self.reduction.is_adaptive else learned).objective
        # An optimiser with decay or noise moves the penalty weights even without a gradient.
        weights = state.learned.clusters.penalty
        clusters = eqx.tree_at(lambda c: c.penalty, learned.clusters, weights)
        learned = Learned(clusters, shared, held)
        tally = jax.tree.map(jnp.add, state.tally, GradientTally(count, loss, mass, sums))
        # Without weight, or if anything is not finite, momentum does not change either.
        taken, previous = (learned, moments), (state.learned, state.moments)
        learned, moments = jax.tree.map(
            lambda new, old: jnp.where(finite & (mass > 0), new, old), taken, previous
        )
        tally = jax.tree.map(lambda new, old: jnp.where(finite, new, old), tally, state.tally)
        failed = jnp.where(finite | (state.failed >= 0), state.failed, state.step)
        present = None if memory is None else memory_of(alignment, memory.params.shape[1])
        return GradientState(learned, moments, tally, state.step + 1, failed), present

    def _updated(
        self, state: GradientState, gradient: Learned, loss: Scalar, rate: Scalar
    ) -> tuple[Learned, PyTree]:
        """The learned arrays and the optimiser's state after one of its steps."""
        transformation = optax.with_extra_args_support(self._transformation)
        # Optax mixes weak and strong types, which strict promotion would reject.
        with jax.numpy_dtype_promotion("standard"):
            before = _with_rate(state.moments, rate) if self.optimizer else state.moments
            try:
                updates, moments = transformation.update(
                    gradient, before, state.learned, value=loss
                )
            except TypeError as error:
                if "value_fn" not in str(error):
                    raise
                raise ValueError(
                    "the optimizer has a line search, which needs the loss as a function; steps on "
                    "batches have none: take one without, such as optax.adam"
                ) from error
            if not self.optimizer:
                updates = jax.tree.map(lambda u: -rate * u, updates)
            return optax.apply_updates(state.learned, updates), moments

    def _batch_normalised(self, learned: Learned) -> AbstractBatchBackbone | None:
        """The network, if it is in use and normalised over batches."""
        network = learned.shared
        used = self.aligner.is_learned and isinstance(network, AbstractBatchBackbone)
        return network if used and network.is_batch_normalised else None

    @eqx.filter_jit
    def refill(
        self, state: GradientState, key: Key, *, least_share: float, noise: float
    ) -> tuple[GradientState, Count]:
        """Replaces tiny clusters by copies of the largest one, and clears the tally.

        An adaptive reduction is updated first. Prototype, heads, mixture weight and the optimiser's
        moments are copied together; noise on the prototypes separates the two copies.

        Args:
            state: The state, with a tally of at least a few hundred samples.
            key: Random key.
            least_share: A cluster is tiny if it holds less than this fraction of the average
                cluster size.
            noise: Standard deviation of the noise, in units of intensity.

        Returns:
            The state, and the number of clusters that were refilled.

        References:
            Monnier et al., DTI clustering, Sec. 4.2 (empty cluster reassignment).
        """
        count = state.tally.count
        number = jnp.arange(count.shape[0])
        tiny = count < least_share * jnp.sum(count) / count.shape[0]
        largest = jnp.argmax(count)
        source = jnp.where(tiny, largest, number)
        perturbed = tiny | (jnp.any(tiny) & (number == largest))

        if self.reduction.is_adaptive:
            objective = state.learned.objective.update(state.tally.reduction)
            state = eqx.tree_at(lambda s: s.learned.objective, state, objective)
        state = regrouped(state, source)
        learned = state.learned
        leaves, structure = jax.tree.flatten(learned.clusters.prototype)
        keys = structure.unflatten(list(jax.random.split(key, len(leaves))))

        def perturb(leaf: Array, key: Key) -> Array:
            scale = noise * column(perturbed, leaf.ndim).astype(leaf.dtype)
            return leaf + scale * jax.random.normal(key, leaf.shape, leaf.dtype)

        prototype = jax.tree.map(perturb, learned.clusters.prototype, keys)
        learned = eqx.tree_at(lambda tree: tree.clusters.prototype, learned, prototype)
        return cleared(state, learned), jnp.sum(tiny, dtype=jnp.int32)


def _with_rate(moments: PyTree, rate: Scalar) -> PyTree:
    """The optimiser's state with another learning rate, if it holds one that has no schedule."""
    if not holds_rate(moments):
        return moments
    value = optax.tree.get(moments, "learning_rate")
    return optax.tree.set(moments, learning_rate=rate.astype(value.dtype))


def holds_rate(moments: PyTree) -> bool:
    """Whether a phase's learning rate reaches an optimiser.

    Args:
        moments: The optimiser's state.

    Returns:
        Whether the state holds exactly one `learning_rate`.
    """
    return len(optax.tree.get_all_with_path(moments, "learning_rate")) == 1


def regrouped(state: GradientState, source: Int[Array, " clusters"]) -> GradientState:
    """Copies all that belongs to a cluster from another one, including the optimiser's moments.

    An adaptive reduction is unchanged.

    Args:
        state: The state.
        source: For each cluster, the one it is copied from.

    Returns:
        The state.
    """
    learned = state.learned

    def own(tree: PyTree, like: PyTree) -> PyTree:
        if like is None or not hasattr(tree, "ndim") or not like.ndim:
            return tree
        if tree.shape == like.shape:
            return tree[source]
        # Some optimisers keep several past values, and some keep sums over an axis, which are
        # unchanged.
        return tree[:, source] if tree.shape[1:] == like.shape else tree

    def taken(tree: PyTree) -> PyTree:
        if not isinstance(tree, Learned):
            return tree
        clusters = jax.tree.map(own, tree.clusters, learned.clusters, is_leaf=_is_masked)
        objective = tree.objective
        if not getattr(objective, "is_adaptive", False):
            objective = jax.tree.map(own, objective, learned.objective, is_leaf=_is_masked)
        return Learned(clusters, tree.shared, objective)

    return jax.tree.map(taken, state, is_leaf=lambda tree: isinstance(tree, Learned))


def _is_masked(tree: PyTree) -> bool:
    return tree is None or isinstance(tree, optax.MaskedNode)


def cleared(state: GradientState, learned: Learned) -> GradientState:
    """The state with other learned arrays, and an empty tally.

    Args:
        state: The state.
        learned: The new learned arrays.

    Returns:
        The state.
    """
    tally = jax.tree.map(jnp.zeros_like, state.tally)
    return GradientState(learned, state.moments, tally, state.step, state.failed)


def _decayed(gradient: Learned, learned: Learned, decay: Scalar) -> Learned:
    """The gradient with the networks' weights added, if they are in use.

    Adam scales any gradient to the size of its step, so decay alone would empty a network that is
    not in use yet in the curriculum.
    """

    def add(g: Array, weight: Array) -> Array:
        return jnp.where(jnp.any(g != 0.0), g + decay.astype(g.dtype) * weight, g)

    def networks(tree: Learned) -> tuple[PyTree, PyTree]:
        return tree.shared, tree.clusters.predictor

    if not jax.tree.leaves(networks(learned)):
        return gradient
    added = jax.tree.map(add, networks(gradient), networks(learned))
    return eqx.tree_at(networks, gradient, added, is_leaf=lambda leaf: leaf is None)


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of a fit under one solver and one learning rate.

    Attributes:
        solver: The index of the solver; each has one transform more than the one before.
        steps: Maximum number of steps.
        rate: The learning rate.
        split_merge: Whether clusters may be split and removed in this phase.
    """

    solver: int
    steps: int
    rate: float
    split_merge: bool = True


TRIALS = 3
"""Number of moves that are tried at the same time."""

Z_THRESHOLD = 2.0
"""Number of standard errors by which a trial move must have lowered the mean loss."""


@dataclasses.dataclass(frozen=True)
class GradientPlan:
    """The plan of a fit by gradient steps.

    Attributes:
        phases: The phases, in order.
        batch_size: Samples per step.
        tolerance: A phase ends early if none of the last `patience` windows has a loss more than
            this fraction below the lowest before them; 0 runs all steps.
        patience: Number of windows.
        window: Number of steps over which losses are averaged, and after which tiny clusters are
            refilled.
        least_share: A cluster is tiny if it holds less than this fraction of the average cluster
            size; 0 refills none.
        refills_to_the_end: Whether clusters are also refilled in the last phase, which leaves
            little time for the copies to separate.
        noise: Standard deviation of the noise that separates a refilled cluster from its source.
        split_merge_every: Number of windows between attempts to split one cluster and remove
            another; at least two per phase are made. A run without rivals skips those in the first
            third of a phase or after a lost trial. 0 makes no moves.
        evaluation_samples: Maximum number of samples on which moves and races are evaluated.
        num_starts: Number of runs that race.
        race: The steps at which runs are compared; phases do not end early before the last of
            these.
        steps: The steps from which the phases were made, also of phases that have none.
    """

    phases: tuple[Phase, ...]
    batch_size: int
    tolerance: float = 0.0
    patience: int = 3
    window: int = 50
    least_share: float = 0.2
    refills_to_the_end: bool = False
    noise: float = 1e-4
    split_merge_every: int = 0
    evaluation_samples: int = 2048
    num_starts: int = 1
    race: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuses invalid numbers."""
        for name in ("batch_size", "patience", "window", "num_starts"):
            _validation.count(getattr(self, name), name)

    @property
    def trial(self) -> tuple[int, int]:
        """Numbers of steps after which trial moves are first compared, and the best one again."""
        # Whole windows, if they are short.
        first = min(self.window, 100)
        return first, 3 * first

    def is_early(self, number: int, steps: int) -> bool:
        """Whether it is too early for moves: less than a third of a phase is done.

        Args:
            number: Index of the phase.
            steps: Steps taken in it.
        """
        return self.phases[number].steps > 3 * steps

    def tries(self, number: int, steps: int) -> bool:
        """Whether moves may be tried in a phase.

        Args:
            number: Index of the phase.
            steps: Steps taken in it.

        Returns:
            Whether it is not too early, and enough steps are left.
        """
        phase, is_last = self.phases[number], number + 1 == len(self.phases)
        if is_last or not phase.split_merge or self.split_merge_every <= 0:
            return False
        return not self.is_early(number, steps) and steps + self.trial[1] <= phase.steps

    @property
    def num_steps(self) -> int:
        """The total steps of all runs, if none ends early and no move wins or gets more time."""
        total, running, last = sum(phase.steps for phase in self.phases), self.num_starts, 0
        for step in self.race:
            total += (running - 1) * (step - last)
            running, last = math.ceil(running / 2), step
        first, second = self.trial
        start = 0
        for number, phase in enumerate(self.phases):
            middle = phase.steps // 2
            if self.tries(number, middle) and start + middle >= last:
                total += TRIALS * first + second - first
            start += phase.steps
        return total


class BatchOrder:
    """The order of samples in batches: reshuffled for every pass, without a break between passes.

    A batch depends only on the key and its number, so a run can resume where it stopped. With
    several processes, each draws its part of the batch from its own samples; all know all parts.
    """

    def __init__(self, counts: Sequence[int], batch_size: int, key: Key) -> None:
        """Stores the settings; nothing is drawn yet.

        Args:
            counts: Number of samples of each process.
            batch_size: Samples per batch; a multiple of the number of processes.
            key: Random key.
        """
        self._seed = np.asarray(jax.random.key_data(key)).astype(np.uint32).tolist()
        self._counts, self._size = counts, batch_size // len(counts)
        # The number of each process's current pass, and its order.
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    def _order(self, process: int, number: int) -> Int[np.ndarray, " n"]:
        if process not in self._orders or self._orders[process][0] != number:
            # One at a time, in 32 bits: there may be millions of samples.
            self._orders.pop(process, None)
            order = np.arange(self._counts[process], dtype=np.int32)
            # The first process draws the same as if it were alone.
            own = [process] if process else []
            np.random.default_rng([*self._seed, number, *own]).shuffle(order)
            self._orders[process] = number, order
        return self._orders[process][1]

    def batch(self, step: int) -> Int[np.ndarray, " batch"]:
        """Returns the indices of one batch.

        Args:
            step: Number of the step, from 0.

        Returns:
            Indices of the samples, grouped by process.
        """
        parts, first = [], 0
        for process, count in enumerate(self._counts):
            place, stop = step * self._size, (step + 1) * self._size
            while place < stop:
                number, offset = divmod(place, count)
                part = self._order(process, number)[offset : offset + stop - place]
                parts.append(part + np.int32(first))
                place += len(part)
            first += count
        return np.concatenate(parts)
