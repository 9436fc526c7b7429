import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.energies import TransformedDistance
from diffclust.masks import as_mask
from diffclust.prototypes import Clusters
from diffclust.solvers import Lloyd, Stopping
from diffclust.solvers.penalty_learning import _residuals, warp_statistics
from diffclust.solvers.split_merge import _halved
from diffclust.transforms import Affine, TimeWarp
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


def test_what_a_mask_hides_is_no_residual() -> None:
    samples = blobs(16)
    mask = np.ones(samples.shape[1:3])
    mask[:, 5:] = 0
    hidden = np.where(mask[..., None] > 0, samples, 0.0).astype(np.float32)
    found = []
    # What is moved under the mask, and values there of prototypes, say nothing.
    for extra in (0.0, 3.0):
        solver = Lloyd(TransformedDistance(Affine(), mask=as_mask(mask)), ALIGNED.aligner)
        result = run(solver, hidden, hidden[:3], 16, Stopping(1, 0.0), np.ones(16))
        clusters = result.learned.clusters
        more = clusters.prototype + extra * (1.0 - mask[None, ..., None])
        clusters = eqx.tree_at(lambda c: c.prototype, clusters, jnp.asarray(more, jnp.float32))
        memory = result.memory[0]
        params = jnp.zeros_like(memory.params[:, 0])
        found.append(_residuals(solver, clusters, hidden, params, memory.cluster[:, 0]))
    assert np.abs(found[0]).max() > 0.01
    np.testing.assert_array_equal(*found)


def test_trial_halves_of_series_do_not_differ_by_their_lengths() -> None:
    random = np.random.default_rng(0)
    kind, is_short = random.integers(0, 2, (2, 60)).astype(bool)
    wave = np.sin(2 * np.pi * np.linspace(0, 1, 30))
    series = 10.0 + np.where(kind[:, None], wave, -wave) + 0.1 * random.normal(size=(60, 30))
    series[is_short, 20:] = np.nan
    series = jnp.asarray(series[..., None], jnp.float32)
    energy = TransformedDistance(TimeWarp(), missing=True)
    solver = Lloyd(energy, ALIGNED.aligner)
    clusters = Clusters(jnp.nanmean(series, axis=0)[None], jnp.zeros((1, energy.num_penalties)))
    rest = jnp.zeros((60, energy.num_params))
    learned = solver.init(clusters).learned
    halves = _halved(solver, series, rest, jnp.ones(60), learned, jnp.asarray(0))
    found = np.asarray(halves.learned.clusters.prototype)[..., 0]
    means = [np.nanmean(series[kind == each, :, 0], axis=0) for each in (False, True)]
    # Prototypes of series have unit norm.
    expected = np.stack(means) / np.linalg.norm(means, axis=1, keepdims=True)
    found = found[np.argsort(found[:, 8])]
    np.testing.assert_allclose(found[:, :20], expected[np.argsort(expected[:, 8]), :20], rtol=0.02)
    assert found[:, 20:].min() > 0.8 * found.mean()
