"""Passes of plain K-means that read only the samples whose cluster is in doubt.

The squared distance of a sample and a centre is ‖p - q‖² + ‖r - s‖², with p and q their projections
on a few orthonormal axes, r and s what is left. By Cauchy and Schwarz ‖r - s‖² lies between
(‖r‖ - ‖s‖)² and (‖r‖ + ‖s‖)². Where the own cluster's upper bound is below the lower bounds of all
others, a sample stays where it is, and is not read.

References:
    Hamerly (2010), Making k-means even faster, for bounds that move with the centres.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from diffclust.alignment import NoAlignment
from diffclust.distances import SquaredEuclidean
from diffclust.energies import HardMinimum, TransformedDistance
from diffclust.linalg import leading_eigenvectors, product
from diffclust.parallel.chunks import Batch, Chunks
from diffclust.prototypes import Learned, MeanImages
from diffclust.solvers.base import Memory
from diffclust.solvers.lloyd import Lloyd, LloydState, Tally, over_blocks
from diffclust.solvers.lloyd_run import Reassign, sum_over_chunks
from diffclust.types import Count, Scalar

_LEAST_WORK, _READING = 9 * 10**8, 30
"""Products of numbers in a pass from which on bounds save more than it takes to compile and prepare
them, and as how many products a number counts that is read."""

LEAST_PASSES = 4
"""Passes of a run before the first with bounds: in those most clusters change."""

_MOST_AXES, _FEWEST_NUMBERS = 160, 128
"""Axes at most, and a fifth of a sample's numbers; samples of fewer numbers than the latter have
none."""

_SAMPLES, _NUMBERS = 512, 2**24
"""Samples whose principal axes are taken, and how many numbers these have at most."""

_BLOCKS = 16
"""Parts of a chunk, of which as many are read as samples in doubt fill."""

_MOST_READ, _LONGEST_BACKOFF = 0.25, 16
"""Share of the samples read above which two passes are made without bounds, then four, and so on up
to the latter."""

Backoff = tuple[int, int]
"""Passes to come that are made without bounds, and how many these were when there last were any, or
1."""

NO_BACKOFF: Backoff = (0, 1)

_FARTHEST = 100.0
"""Squared norm of the mean, in mean squared distances of samples from it, and these in mean losses,
above which sums do not tell the loss any more."""


class PrincipalAxes(eqx.Module):
    """The mean of some samples, and their leading principal axes.

    Attributes:
        mean: The mean.
        axes: Orthonormal columns.
    """

    mean: Float[Array, " numbers"]
    axes: Float[Array, "numbers axes"]

    def project(
        self, rows: Float[Array, "n *shape"]
    ) -> tuple[Float[Array, "n coordinates"], Float[Array, " n"]]:
        """Coordinates along the axes, and last the norm of the remainder.

        Args:
            rows: Samples or centres.

        Returns:
            Coordinates, the last of which is too large by no more than rounding, and squared norms
            about the mean.
        """
        rows = rows.reshape(rows.shape[0], -1)
        along = product(rows, self.axes) - product(self.mean, self.axes)[None]
        squared = jnp.sum((rows - self.mean[None]) ** 2, axis=1)
        left = jnp.maximum(squared - jnp.sum(along**2, axis=1), 0.0)
        left = jnp.sqrt(left + _rounding(rows))
        return jnp.column_stack([along, left]), squared


class Projected(eqx.Module):
    """What a pass knows of samples that it does not read.

    Attributes:
        coordinates: As `PrincipalAxes.project` has them.
        rounding: By how much distances may differ and change places through rounding.
    """

    coordinates: Float[Array, "n coordinates"]
    rounding: Float[Array, " n"]


class BoundedLloyd(eqx.Module):
    """The step of plain K-means that reads samples in doubt alone.

    In place of energies its memory has the squares of an upper bound on the distance to the own
    cluster, and of a lower one on that to all others.

    Attributes:
        solver: The algorithm whose sums and assignments these are.
        axes: The axes.
        square: Σ of the weighted squared norms of all samples about the mean, by which the loss
            follows from the sums of the clusters.
        drift: How far each prototype has moved since the memory was made; infinite if not known.
        centres: Coordinates of the prototypes.
        squared: Their squared norms about the mean.
    """

    solver: Lloyd
    axes: PrincipalAxes
    square: Scalar
    drift: Float[Array, " clusters"]
    centres: Float[Array, "clusters coordinates"]
    squared: Float[Array, " clusters"]

    def step(
        self,
        carry: tuple[LloydState, Count],
        batch: Batch,
        memory: Memory,
        *,
        axis_name: str | None = None,
    ) -> tuple[tuple[LloydState, Count], Memory]:
        """Moves the samples of a chunk that another cluster is nearer to.

        Args:
            carry: The state, with the sums of the last pass, and how many samples were read.
            batch: A chunk of samples, each with its `Projected`.
            memory: Their memory.
            axis_name: Name of a mapped device axis over which sums are added, or None.

        Returns:
            The carry and the memory.
        """
        state, read = carry
        learned, own = state.learned, memory.cluster[:, 0]
        cluster, energy, number = self._nearest(learned, batch, memory)
        samples = Batch(batch.samples[0], batch.weight)
        statistics = self.solver.moved_sums(learned.clusters, samples, own, cluster)
        mass = jax.ops.segment_sum(batch.weight, cluster, len(learned.clusters))
        sums = statistics, mass, jnp.sum(cluster != own, dtype=jnp.int32), number
        if axis_name is not None:
            sums = jax.lax.psum(sums, axis_name)
        before = state.statistics, state.tally.count, state.tally.changed, read
        statistics, mass, changed, read = jax.tree.map(jnp.add, before, sums)
        tally = dataclasses.replace(state.tally, count=mass, changed=changed)
        memory = Memory(memory.cluster.at[:, 0].set(cluster), energy, memory.params)
        return (LloydState(learned, statistics, tally), read), memory

    def _nearest(
        self, learned: Learned, batch: Batch, memory: Memory
    ) -> tuple[Int[Array, " n"], Float[Array, "n 2"], Count]:
        """Clusters, squares of bounds, and how many samples were read.

        First the old bounds, by as much wider as the prototypes have moved (Hamerly); where these
        leave it open, the axes; where these do too, the samples.
        """
        samples, projected = batch.samples
        own, prototypes = memory.cluster[:, 0], learned.clusters.prototype
        rounding = projected.rounding + jnp.max(_rounding(prototypes))
        spare = 8.0 * jnp.finfo(rounding.dtype).eps
        widest, second = jax.lax.top_k(self.drift, 2)[0]
        others = jnp.where(self.drift == widest, second, widest)
        distance = jnp.sqrt(jnp.maximum(memory.energy, 0.0))
        upper = distance[:, 0] * (1.0 + spare) + self.drift[own]
        lower = jnp.maximum(distance[:, 1] * (1.0 - spare) - others[own], 0.0)
        bounds = jnp.column_stack([upper, lower]) ** 2

        def doubtful(bounds: Float[Array, "n 2"]) -> Bool[Array, " n"]:
            return jnp.logical_not(bounds[:, 1] - bounds[:, 0] > rounding)

        centres, squared = self.centres, self.squared

        def by_axes(bounds: Array, index: Array) -> Array:
            rows, mine, spare = (
                x.at[index].get(mode="clip") for x in (projected.coordinates, own, rounding)
            )
            norms = jnp.sum(rows**2, axis=1)
            least = norms[:, None] + squared[None] - 2.0 * product(rows, centres.T)
            is_own = jnp.arange(len(centres), dtype=own.dtype)[None] == mine[:, None]
            near = jnp.min(jnp.where(is_own, least, jnp.inf), axis=1) + spare
            near = near + 4.0 * rows[:, -1] * centres[mine, -1]
            far = jnp.min(jnp.where(is_own, jnp.inf, least), axis=1) - spare
            old = bounds.at[index].get(mode="clip")
            near, far = jnp.minimum(near, old[:, 0]), jnp.maximum(far, old[:, 1])
            return bounds.at[index].set(jnp.stack([near, far], axis=1), mode="drop")

        def by_samples(known: tuple[Array, Array], index: Array) -> tuple[Array, Array]:
            given = samples, own, rounding, projected.coordinates
            some, mine, spare, rows = (x.at[index].get(mode="clip") for x in given)
            best = self.solver.assign(learned, some, None)
            (first, second), (least, next_) = best.cluster.T, best.energy.T
            # Of two that are equal but for rounding the own one: or samples may go to and fro.
            squares = jnp.sum(rows**2, axis=1) + squared[first] + squared[second]
            stays = next_ - least <= jnp.finfo(spare.dtype).eps * squares
            stays &= second == mine
            near, far = jnp.where(stays, next_, least), jnp.where(stays, least, next_)
            squares = jnp.stack([near + spare, jnp.maximum(far - spare, 0.0)], axis=1)
            both = jnp.where(stays, second, first), squares
            return jax.tree.map(lambda x, new: x.at[index].set(new, mode="drop"), known, both)

        in_doubt = doubtful(bounds) & (batch.weight > 0)
        bounds = over_blocks(by_axes, bounds, in_doubt, blocks=_BLOCKS)
        in_doubt &= doubtful(bounds)
        cluster, bounds = over_blocks(by_samples, (own, bounds), in_doubt, blocks=_BLOCKS)
        return cluster, bounds, jnp.sum(in_doubt, dtype=jnp.int32)

    @eqx.filter_jit
    def totals(self, state: LloydState) -> Tally:
        """The tally of a pass: what clusters weigh, and their energies.

        Args:
            state: The state after all chunks.

        Returns:
            The tally. Of the energies the sum alone is right, and margins are missing.
        """
        rows = state.learned.clusters.prototype
        centres = rows.reshape(rows.shape[0], -1) - self.axes.mean[None]
        count, sums = state.tally.count, state.statistics.image.reshape(centres.shape)
        sums = sums - count[:, None] * self.axes.mean[None]
        share = self.square * count / jnp.sum(count)
        energy = share + jnp.sum(centres * (count[:, None] * centres - 2.0 * sums), axis=1)
        return dataclasses.replace(state.tally, energy=energy)


@dataclasses.dataclass(eq=False)
class Bounds:
    """Passes over samples that are told apart by a few axes.

    Attributes:
        solver: The algorithm.
        axes: The axes.
        square: As `BoundedLloyd` has it.
        chunks: The data, each sample with its `Projected`.
        read: How many samples the last pass has read; None where it read all.
    """

    solver: Lloyd
    axes: PrincipalAxes
    square: Array
    chunks: Chunks
    read: int | None = None

    def next_pass(
        self, backoff: Backoff, learned: Learned, previous: Learned, loss: float
    ) -> Reassign | None:
        """The next pass; to be asked before each that is not the first of a run.

        Args:
            backoff: What `next_backoff` gave after the last pass.
            learned: The prototypes under which it assigns.
            previous: Those of the pass before, or, after a refill, the same.
            loss: The loss of the pass before.

        Returns:
            A pass; None where it reads all samples.
        """
        self.read = None
        if backoff[0] > 0 or loss * _FARTHEST < float(self.square):
            return None
        now, before = learned.clusters.prototype, previous.clusters.prototype
        lloyd = BoundedLloyd(self.solver, self.axes, self.square, *_drift(self.axes, now, before))
        return functools.partial(self._sums, lloyd)

    def next_backoff(self, backoff: Backoff) -> Backoff:
        """How many passes are to be made without bounds, after the last one.

        Args:
            backoff: The same before that pass.

        Returns:
            None, unless it read many; then two, four and so on.
        """
        left, last = backoff
        if self.read is None:
            return max(0, left - 1), last
        if self.read <= _MOST_READ * self.chunks.num_samples:
            return NO_BACKOFF
        longer = min(2 * last, _LONGEST_BACKOFF)
        return longer, longer

    def _sums(
        self,
        lloyd: BoundedLloyd,
        state: LloydState,
        memory: Iterator[Memory],
        report: Callable[[int, int], None] | None,
    ) -> tuple[LloydState, tuple[Memory, ...]]:
        none = self.chunks.replicate(jax.device_put(np.int32(0)))
        carry = state, none
        carry, rows = sum_over_chunks(lloyd.step, self.chunks, carry, memory, report=report)
        state, read = carry
        self.read = int(read)
        return dataclasses.replace(state, tally=lloyd.totals(state)), rows


@jax.jit
def _drift(axes: PrincipalAxes, now: Array, before: Array) -> tuple[Array, Array, Array]:
    """How far prototypes have moved, rounded up, and their projections."""
    squares = jnp.sum((now - before).reshape(now.shape[0], -1) ** 2, axis=1)
    drift = jnp.sqrt(squares) * (1.0 + 64.0 * jnp.finfo(now.dtype).eps)
    # After a refill it is not known.
    drift = jnp.where(jnp.any(drift > 0), drift, jnp.inf)
    return drift, *axes.project(now)


def _num_axes(size: int) -> int:
    return min(_MOST_AXES, size // 5)


def numbers_kept(num_samples: int, size: int, num_clusters: int) -> int:
    """How many numbers passes with bounds keep of each sample, beside the sample.

    Args:
        num_samples: N.
        size: Numbers a sample.
        num_clusters: K.

    Returns:
        Their number; none where samples are small or few.
    """
    work = num_samples * size * (num_clusters + _READING)
    if size < _FEWEST_NUMBERS or size > num_samples or work < _LEAST_WORK:
        return 0
    return _num_axes(size) + 2


def bounds_for(solver: Lloyd, chunks: Chunks, num_clusters: int) -> Bounds | None:
    """The bounds, where they help.

    Args:
        solver: The solver.
        chunks: The data.
        num_clusters: K.

    Returns:
        Bounds; None where the algorithm is not plain K-means of several clusters, samples are
        streamed, small, few or far from zero, or the device is not a CPU: others multiply matrices
        faster than they choose rows.
    """
    if not _is_plain(solver, chunks) or num_clusters < 2 or jax.default_backend() != "cpu":
        return None
    (leaf,), count = jax.tree.leaves(chunks.sample), chunks.num_samples
    if not numbers_kept(count, leaf.size, num_clusters):
        return None
    weight = chunks.weights[:count].astype(np.float64)
    counted = np.flatnonzero(weight)
    several = min(_SAMPLES, max(2, _NUMBERS // leaf.size))
    some = chunks.gather(counted[:: -(-len(counted) // several)])
    axes = chunks.replicate(chunks.broadcast(_principal_axes(some)))
    projected = [chunks.map(_projected, axes, batch.samples) for batch in chunks.batches]
    squares = chunks.collect([squared for _, squared in projected])
    offset = float(np.sum(np.square(axes.mean, dtype=np.float64)))
    square = np.dot(weight, squares)
    if offset * weight.sum() > _FARTHEST * square:
        return None
    batches = tuple(
        Batch((batch.samples, rows), batch.weight)
        for batch, (rows, _) in zip(chunks.batches, projected, strict=True)
    )
    square = chunks.replicate(jax.device_put(np.asarray(square, chunks.dtype)))
    return Bounds(solver, axes, square, dataclasses.replace(chunks, batches=batches))


def _is_plain(solver: Lloyd, chunks: Chunks) -> bool:
    energy, leaves = solver.energy, jax.tree.leaves(chunks.sample)
    return (
        isinstance(energy, TransformedDistance)
        and energy.num_params == 0
        and energy.mask is None
        and type(energy.distance) is SquaredEuclidean
        and type(solver.family) is MeanImages
        and type(solver.aligner) is NoAlignment
        and type(solver.reduction) is HardMinimum
        and isinstance(chunks.batches, tuple)
        and len(leaves) == 1
    )


def _principal_axes(samples: np.ndarray) -> PrincipalAxes:
    rows = samples.reshape(len(samples), -1).astype(np.float64)
    mean = rows.mean(axis=0)
    rows = rows - mean
    # Of few samples of many numbers the small product.
    _, vectors = leading_eigenvectors(rows @ rows.T, min(_num_axes(rows.shape[1]), len(rows) - 1))
    axes, _ = np.linalg.qr(rows.T @ vectors)
    return PrincipalAxes(*jax.device_put((mean.astype(samples.dtype), axes.astype(samples.dtype))))


def _projected(
    axes: PrincipalAxes, samples: Float[Array, "n *shape"]
) -> tuple[Projected, Float[Array, " n"]]:
    coordinates, squared = axes.project(samples)
    return Projected(coordinates, _rounding(samples)), squared


def _rounding(rows: Float[Array, "n *shape"]) -> Float[Array, " n"]:
    """What products of rows and others of the same norms may lose."""
    rows = rows.reshape(rows.shape[0], -1)
    lost = 8.0 * float(jnp.finfo(rows.dtype).eps) * rows.shape[1] ** 0.5
    return lost * jnp.sum(rows**2, axis=1)
