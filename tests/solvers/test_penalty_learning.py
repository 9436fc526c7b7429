import jax
import numpy as np

from diffclust.solvers import Stopping
from diffclust.solvers.penalty_learning import warp_statistics
from tests.registry import blobs
from tests.solvers.test_lloyd import ALIGNED, assigned, prepared, run


def test_penalty_weights_are_learned_from_distances_without_penalties() -> None:
    samples, weight = blobs(16), np.linspace(0.5, 2.0, 16, dtype=np.float32)
    result = run(ALIGNED, samples, samples[:3], 16, Stopping(4, 0.0), weight)
    chunks = prepared(ALIGNED, samples, 16, weight)
    found = warp_statistics(ALIGNED, chunks, result)
    cluster, params = assigned(result.memory, 16), result.memory[0].params[:, 0]
    aligned = jax.vmap(ALIGNED.energy.aligned)(params, chunks.batches[0].samples)
    away = np.asarray(aligned) - np.asarray(result.learned.clusters.prototype)[cluster]
    distance = np.bincount(cluster, weight * (away**2).sum(axis=(1, 2, 3)), minlength=3)
    np.testing.assert_allclose(found.distance, distance, rtol=1e-4)
