"""Passes of plain K-means that read only the samples whose cluster is in doubt.

The squared distance of a sample and a centre is ‖p - q‖² + ‖r - s‖², where p and q are their
projections onto a few orthonormal axes, and r and s the remainders. By Cauchy–Schwarz, ‖r - s‖²
lies between (‖r‖ - ‖s‖)² and (‖r‖ + ‖s‖)². If the upper bound for its own cluster is below the
lower bounds for all others, a sample keeps its cluster and is not read.

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
"""Number of products in a pass from which on bounds save more time than they take to compile and
prepare, and the number of products that reading one number costs."""

LEAST_PASSES = 4
"""Passes of a run before the first with bounds: most clusters change in these."""

_MOST_AXES, _FEWEST_NUMBERS = 160, 128
"""Maximum number of axes, which is also at most a fifth of a sample's numbers; and the number of
values below which samples have no axes."""

_SAMPLES, _NUMBERS = 512, 2**24
"""Number of samples from which principal axes are computed, and most values they may have."""

_BLOCKS = 16
"""Parts of a chunk; only as many are read as the samples in doubt fill."""

_MOST_READ, _LONGEST_BACKOFF = 0.25, 16
"""Share of samples read above which two passes are made without bounds, then four, and so on up to
the second number."""

Backoff = tuple[int, int]
"""Number of coming passes to make without bounds, and the number when there last were any, or 1."""

NO_BACKOFF: Backoff = (0, 1)

_FARTHEST = 100.0
"""Limits above which sums no longer give an accurate loss: the squared norm of the mean, in mean
squared distances of samples from it, and these in mean losses."""


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
        """Coordinates along the axes, followed by the norm of the remainder.

        Args:
            rows: Samples or centres.

        Returns:
            Coordinates, of which the last is too large by at most rounding, and squared norms about
            the mean.
        """
        rows = rows.reshape(rows.shape[0], -1)
        along = product(rows, self.axes) - product(self.mean, self.axes)[None]
        squared = jnp.sum((rows - self.mean[None]) ** 2, axis=1)
        left = jnp.maximum(squared - jnp.sum(along**2, axis=1), 0.0)
        left = jnp.sqrt(left + _rounding(rows))
        return jnp.column_stack([along, left]), squared


class Projected(eqx.Module):
    """What a pass knows about samples that it does not read.

    Attributes:
        coordinates: As returned by `PrincipalAxes.project`.
        rounding: How much distances may differ, and change order, through rounding.
    """

    coordinates: Float[Array, "n coordinates"]
    rounding: Float[Array, " n"]


class BoundedLloyd(eqx.Module):
    """The step of plain K-means that reads only samples in doubt.

    Instead of energies, its memory holds the squares of an upper bound on the distance to a
    sample's own cluster, and of a lower bound on the distance to all others.

    Attributes:
        solver: The algorithm that defines the sums and assignments.
        axes: The axes.
        square: Σ of the weighted squared norms of all samples about the mean, from which the loss
            follows with the sums of the clusters.
        drift: How far each prototype has moved since the memory was made; infinite if unknown.
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
        """Moves the samples of a chunk for which another cluster is nearer.

        Args:
            carry: The state, with the sums of the last pass, and the number of samples read.
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
        """Clusters, squared bounds, and the number of samples read.

        First the old bounds are tried, widened by how far the prototypes have moved (Hamerly); if
        these are not decisive, the axes; and if these are not either, the samples.
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
            # Among two that are equal up to rounding, the own one: otherwise samples may alternate.
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
        """The tally of a pass: the weights of clusters, and their energies.

        Args:
            state: The state after all chunks.

        Returns:
            The tally. Only the sum of the energies is right, and margins are missing.
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
    """Passes that distinguish samples by a few axes.

    Attributes:
        solver: The algorithm.
        axes: The axes.
        square: As in `BoundedLloyd`.
        chunks: The data; each sample has its `Projected`.
        read: How many samples the last pass read; None if it read all.
    """

    solver: Lloyd
    axes: PrincipalAxes
    square: Array
    chunks: Chunks
    read: int | None = None

    def next_pass(
        self, backoff: Backoff, learned: Learned, previous: Learned, loss: float
    ) -> Reassign | None:
        """The next pass; to be called before every pass except the first of a run.

        Args:
            backoff: The result of `next_backoff` after the last pass.
            learned: The prototypes under which the pass assigns.
            previous: The prototypes of the last pass or, after a refill, the same ones.
            loss: The loss of the last pass.

        Returns:
            A pass; None if it should read all samples.
        """
        self.read = None
        if backoff[0] > 0 or loss * _FARTHEST < float(self.square):
            return None
        now, before = learned.clusters.prototype, previous.clusters.prototype
        lloyd = BoundedLloyd(self.solver, self.axes, self.square, *_drift(self.axes, now, before))
        return functools.partial(self._sums, lloyd)

    def next_backoff(self, backoff: Backoff) -> Backoff:
        """How many passes to make without bounds, after the last pass.

        Args:
            backoff: The value before that pass.

        Returns:
            No passes, unless the pass read many samples: then two, four and so on; after a pass
            without bounds one fewer.
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
    # After a refill this is unknown.
    drift = jnp.where(jnp.any(drift > 0), drift, jnp.inf)
    return drift, *axes.project(now)


def _num_axes(size: int) -> int:
    return min(_MOST_AXES, size // 5)


def numbers_kept(num_samples: int, size: int, num_clusters: int) -> int:
    """How many numbers passes with bounds keep per sample, in addition to the sample itself.

    Args:
        num_samples: N.
        size: Numbers per sample.
        num_clusters: K.

    Returns:
        The number; zero if samples are small or few.
    """
    work = num_samples * size * (num_clusters + _READING)
    if size < _FEWEST_NUMBERS or size > num_samples or work < _LEAST_WORK:
        return 0
    return _num_axes(size) + 2


def bounds_for(solver: Lloyd, chunks: Chunks, num_clusters: int) -> Bounds | None:
    """The bounds, if they help.

    Args:
        solver: The solver.
        chunks: The data.
        num_clusters: K.

    Returns:
        Bounds; None if the algorithm is not plain K-means with several clusters, of which two are
        followed, if samples are streamed, small, few or far from zero, or if the device is not a
        CPU: other devices multiply matrices faster than they select rows.
    """
    if not _is_plain(solver, chunks) or jax.default_backend() != "cpu":
        return None
    if solver.aligner.num_candidates(num_clusters) != 2:
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
    # For few samples of many numbers, the smaller product.
    _, vectors = leading_eigenvectors(rows @ rows.T, min(_num_axes(rows.shape[1]), len(rows) - 1))
    axes, _ = np.linalg.qr(rows.T @ vectors)
    return PrincipalAxes(*jax.device_put((mean.astype(samples.dtype), axes.astype(samples.dtype))))


def _projected(
    axes: PrincipalAxes, samples: Float[Array, "n *shape"]
) -> tuple[Projected, Float[Array, " n"]]:
    coordinates, squared = axes.project(samples)
    return Projected(coordinates, _rounding(samples)), squared


def _rounding(rows: Float[Array, "n *shape"]) -> Float[Array, " n"]:
    """A bound on the rounding of products of rows with others of the same norms."""
    rows = rows.reshape(rows.shape[0], -1)
    lost = 8.0 * float(jnp.finfo(rows.dtype).eps) * rows.shape[1] ** 0.5
    return lost * jnp.sum(rows**2, axis=1)
