"""Assignment, update and a pass are NumPy's, with jit and without, on one device and several."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.alignment import NoAlignment
from diffclust.energies import TransformedDistance
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Clusters, Learned, MeanImages
from diffclust.solvers import Lloyd, LloydState, Memory, compiled_lloyd
from diffclust.transforms import Identity
from tests.registry import EMPTY_ARRAYS_CRASH

SOLVER = Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())
N, K = 12, 3
_RNG = np.random.default_rng(5)
IMAGES = _RNG.uniform(size=(N, 4, 5, 1)).astype(np.float32)
WEIGHT = np.linspace(0.5, 2.0, N, dtype=np.float32)
SEEDS = Clusters(jnp.asarray(IMAGES[:K]), jnp.zeros((K, 0), jnp.float32))
GIVEN = jnp.asarray(IMAGES), jnp.asarray(WEIGHT)
FLAT = IMAGES.reshape(N, -1).astype(np.float64)
DISTANCES = np.sum((FLAT[:, None] - FLAT[None, :K]) ** 2, axis=2)
NEAREST = DISTANCES.argmin(axis=1)
MEMBER = np.eye(K)[NEAREST] * WEIGHT[:, None]
MEANS = (MEMBER.T @ FLAT / MEMBER.sum(0)[:, None]).reshape(K, *IMAGES.shape[1:])
LOSS = np.sum(WEIGHT * DISTANCES.min(axis=1))

every_way = chex.variants(
    with_jit=True, without_jit=True, with_device=True, with_pmap=not EMPTY_ARRAYS_CRASH
)


class TestVariants(chex.TestCase):
    """The same numbers, however a function is called."""

    @every_way
    def test_assign(self) -> None:
        memory = SOLVER.init_memory(N, K, jnp.dtype(jnp.float32))
        alignment = self.variant(SOLVER.assign)(Learned(SEEDS), GIVEN[0], memory)
        np.testing.assert_array_equal(alignment.cluster[:, 0], NEAREST)
        np.testing.assert_allclose(alignment.energy[:, 0], DISTANCES.min(axis=1), atol=1e-5)

    @every_way
    def test_update(self) -> None:
        def step_and_update(
            state: LloydState, images: jax.Array, weight: jax.Array, memory: Memory
        ) -> tuple[jax.Array, Clusters]:
            state, _ = SOLVER.step(state, Batch(images, weight), memory)
            return state.tally.loss, SOLVER.end_pass(state).learned.clusters

        memory = SOLVER.init_memory(N, K, jnp.dtype(jnp.float32))
        loss, clusters = self.variant(step_and_update)(SOLVER.init(SEEDS), *GIVEN, memory)
        np.testing.assert_allclose(loss, LOSS, rtol=1e-5)
        np.testing.assert_allclose(clusters.prototype, MEANS, atol=1e-6)

    @every_way
    def test_one_pass_of_a_compiled_run(self) -> None:
        def one_pass(
            seeds: Clusters, images: jax.Array, weight: jax.Array
        ) -> tuple[jax.Array, ...]:
            batch = Batch(images, weight)
            run = compiled_lloyd(SOLVER, batch, seeds, num_clusters=K, max_passes=1)
            return run.cluster, run.loss, run.passes

        cluster, loss, passes = self.variant(one_pass)(SEEDS, *GIVEN)
        np.testing.assert_array_equal(cluster, NEAREST)
        np.testing.assert_allclose(loss, LOSS, rtol=1e-5)
        assert passes == 1
