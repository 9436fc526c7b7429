"""The assignment of samples to fixed clusters."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from diffclust._validation import some
from diffclust.alignment import AbstractAligner
from diffclust.alignment.base import parts_of
from diffclust.energies import AbstractReduction
from diffclust.image_source import ImageSource
from diffclust.parallel.chunks import largest_read
from diffclust.parallel.data import Data
from diffclust.prototypes import Learned
from diffclust.solvers.base import AbstractSolver, Memory, memory_of
from diffclust.solvers.gradient import GradientEM
from diffclust.solvers.result import Assignment, Callback, Progress, ignore

SoftAssignment = tuple[Assignment, Float[np.ndarray, " n"], Float[np.ndarray, "n clusters"]]
"""The assignment of samples, the loss of each, and its responsibilities."""


def assignment_of(memory: Memory) -> Assignment:
    """The assignment stored in the memory of samples.

    Args:
        memory: Memory on the host.

    Returns:
        The assignment of every sample to the first of its candidates.
    """
    cluster, energy, params = map(np.asarray, (memory.cluster, memory.energy, memory.params))
    if cluster.shape[1] > 1:
        margins, second = energy[:, 1] - energy[:, 0], cluster[:, 1]
    else:
        margins = np.full(len(energy), np.inf, energy.dtype)
        second = np.full(len(cluster), -1, cluster.dtype)
    return Assignment(cluster[:, 0], energy[:, 0], margins, second, params[:, 0])


def memberships_of(
    reduction: AbstractReduction, memory: Memory, num_clusters: int | None
) -> Float[np.ndarray, "n clusters"]:
    """Share of each cluster in each sample.

    Args:
        reduction: The current reduction.
        memory: Memory on the host.
        num_clusters: K; None to return only the largest membership of each sample.

    Returns:
        Memberships; zero for clusters that are not candidates.
    """
    share = np.asarray(reduction.memberships(jnp.asarray(memory.energy)))
    if num_clusters is None:
        return share[:, :1]
    memberships = np.zeros((len(share), num_clusters), share.dtype)
    np.put_along_axis(memberships, np.asarray(memory.cluster), share, axis=1)
    return memberships


def _assign(everywhere: PyTree, rows: PyTree) -> Memory:
    (solver, learned), (samples, memory) = everywhere, rows
    return memory_of(solver.assign(learned, samples, memory), memory.params.shape[1])


def _assign_chunks(
    solver: AbstractSolver,
    learned: Learned,
    data: Data,
    part: Callable[[Memory], PyTree],
    callback: Callback,
) -> Any:
    """Parts of the memory of all samples, in the samples' order."""
    samples, size = data.samples, data.chunk_size
    assert size is not None
    if isinstance(samples, ImageSource):
        # The model may have been fitted to images in memory, whose chunks are larger.
        size = min(size, largest_read(math.prod(samples.shape[1:])))
    chunks = dataclasses.replace(data, weight=None, chunk_size=size).level(1, solver.normalise)
    unseen = solver.init_memory(chunks.own_size, len(learned.clusters), chunks.dtype)
    learned, unseen = data.replicate(learned), data.shard(unseen)

    def parts() -> Iterator[PyTree]:
        for number, batch in enumerate(chunks.batches):
            rows = (batch.samples, unseen)
            memory = jax.block_until_ready(chunks.map(_assign, (solver, learned), rows))
            callback(Progress("predict", 0, 0, number + 1, chunks.count))
            own = data.unshard(memory)
            with np.errstate(invalid="ignore"):
                wanted = part(own)
            yield np.isfinite(np.asarray(own.energy[:, 0])), wanted

    is_finite, stacked = chunks.stack(parts())
    if not is_finite.all():
        raise ValueError(
            f"no cluster is at a finite distance from the samples at index "
            f"{some(np.flatnonzero(~is_finite))}; check their scale"
        )
    return stacked


def assign_samples(
    solver: AbstractSolver, learned: Learned, data: Data, *, callback: Callback = ignore
) -> Assignment:
    """Assigns samples to fixed clusters.

    Args:
        solver: The solver that assigns.
        learned: The clusters and the rest of what was learned.
        data: The samples.
        callback: Called after every chunk.

    Returns:
        The assignment.
    """
    return _assign_chunks(solver, learned, data, assignment_of, callback)


def assign_softly(
    solver: GradientEM,
    learned: Learned,
    data: Data,
    *,
    greatest: bool = False,
    callback: Callback = ignore,
) -> SoftAssignment:
    """Assigns samples, with their losses and responsibilities.

    Args:
        solver: The solver that assigns.
        learned: The clusters and the rest of what was learned.
        data: The samples.
        greatest: Whether only the largest responsibility of each sample is kept.
        callback: Called after every chunk.

    Returns:
        The assignment, the loss of each sample and its responsibilities.
    """
    reduction, count = solver.reduction_of(learned), len(learned.clusters)

    def part(memory: Memory) -> PyTree:
        losses = np.asarray(reduction(jnp.asarray(memory.energy)))
        memberships = memberships_of(reduction, memory, None if greatest else count)
        return assignment_of(memory), losses, memberships

    return _assign_chunks(solver, learned, data, part, callback)


def all_energies(
    solver: AbstractSolver, learned: Learned, data: Data, *, callback: Callback = ignore
) -> Float[np.ndarray, "n clusters"]:
    """Computes the energy of each sample in every cluster, not only in its best ones.

    Args:
        solver: The solver that assigns. Aligners that follow only a few clusters to the end
            (`candidates`), and the aligners that they consist of, are made to follow all.
        learned: The clusters and the rest of what was learned.
        data: The samples.
        callback: Called after every chunk.

    Returns:
        The energy (for a mixture, the score) of every sample in every cluster.

    Raises:
        ValueError: If the aligner follows fewer clusters and has no `candidates` setting.
    """
    count = len(learned.clusters)
    aligner = _following_all(solver.aligner, count)
    follows = aligner.num_candidates(count)
    if follows < count:
        raise ValueError(
            f"{type(aligner).__name__} follows {follows} of {count} clusters, so that the others' "
            "energies are not known; give it a `candidates` setting"
        )
    if aligner is not solver.aligner:
        solver = dataclasses.replace(solver, aligner=aligner)

    def part(memory: Memory) -> np.ndarray:
        energies = np.empty((len(memory.cluster), count), memory.energy.dtype)
        np.put_along_axis(energies, np.asarray(memory.cluster), memory.energy, axis=1)
        return energies

    return _assign_chunks(solver, learned, data, part, callback)


def _following_all(aligner: AbstractAligner, count: int) -> AbstractAligner:
    """An aligner that follows all clusters to the end, as far as its settings allow."""
    if aligner.num_candidates(count) >= count:
        return aligner
    changes: dict[str, Any] = {
        name: _following_all(part, count) for name, part in parts_of(aligner).items()
    }
    if "candidates" in {field.name for field in dataclasses.fields(aligner)}:
        changes["candidates"] = count
    return dataclasses.replace(aligner, **changes)
