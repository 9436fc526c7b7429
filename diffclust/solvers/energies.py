"""What each sample costs in every cluster, not in its best ones alone."""

import dataclasses

import numpy as np
from jaxtyping import Float, PyTree

from diffclust.prototypes import Learned
from diffclust.solvers.base import AbstractSolver, Memory
from diffclust.solvers.fit import assign_chunks
from diffclust.solvers.progress import Callback, ignore


def all_energies(
    solver: AbstractSolver,
    learned: Learned,
    samples: PyTree,
    *,
    chunk_size: int,
    callback: Callback = ignore,
) -> Float[np.ndarray, "n clusters"]:
    """Aligns samples to all clusters, which stay as they are.

    Args:
        solver: What assigns. An aligner that follows a few clusters to the end is made to follow
            all; of what it is composed of stays as it is.
        learned: The clusters and what goes with them.
        samples: Samples with a leading axis.
        chunk_size: Samples a chunk.
        callback: Told of every chunk.

    Returns:
        The energy (of a mixture, the score) of every sample in every cluster.
    """
    count = len(learned.clusters)
    aligner = solver.aligner
    if aligner.num_candidates(count) < count:
        aligner = dataclasses.replace(aligner, candidates=count)
        solver = dataclasses.replace(solver, aligner=aligner)

    def part(memory: Memory) -> np.ndarray:
        energies = np.empty((len(memory.cluster), count), memory.energy.dtype)
        np.put_along_axis(energies, np.asarray(memory.cluster), memory.energy, axis=1)
        return energies

    return assign_chunks(
        solver, learned, samples, part=part, chunk_size=chunk_size, callback=callback
    )
