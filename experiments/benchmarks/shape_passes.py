"""Seconds a pass of shape K-means: Type I, Type II, the likelihood, and other covariances.

    python -m experiments.benchmarks.shape_passes [--seed 0] [--shapes 20000] [--quick]

Simulated shapes of 8 landmarks in the plane in two groups, registered before; a pass assigns all of
them and takes means and variances anew, in one compiled program. All methods in turn, round by
round; told are the least seconds and the median ratio to Type I.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.data import simulated_shapes
from diffclust.models import ShapeKMeans
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Clusters
from diffclust.registration import in_principal_axes
from experiments.harness import arguments, finish

METHODS = {
    "Type I, round": {"distance": "fisher-rao", "variances": "isotropic"},
    "Type I": {"distance": "fisher-rao", "variances": "per_landmark"},
    "Type II": {"distance": "fisher-rao", "variances": "per_cluster"},
    "Type I, Wasserstein": {"distance": "wasserstein", "variances": "per_landmark"},
    "Type II, Wasserstein": {"distance": "wasserstein", "variances": "per_cluster"},
    "likelihood": {"distance": "likelihood", "variances": "per_cluster"},
    "likelihood, full": {"distance": "likelihood", "covariances": "full"},
    "Type II, full": {"distance": "fisher-rao", "covariances": "full"},
}
GROUPS = 2


def main():
    args = arguments(
        __doc__,
        shapes={"type": int, "default": 20_000},
        rounds={"type": int, "default": 7},
    )
    if args.quick:
        args.shapes, args.rounds = 200, 1
    means = jax.random.normal(jax.random.key(args.seed), (GROUPS, 8, 2))
    shapes, _ = simulated_shapes(
        means, 0.2, per_group=args.shapes // GROUPS, key=jax.random.key(args.seed + 1)
    )
    result = in_principal_axes(shapes, scaling=True, reflection=False)
    registered, reference = result.registered, result.consensus
    batch = Batch(registered, jnp.ones(len(registered)))

    @eqx.filter_jit
    def sum_over_chunks(solver, state, memory):
        state, memory = solver.step(state, batch, memory)
        return solver.end_pass(state), memory

    running = {}
    for name, settings in METHODS.items():
        model = ShapeKMeans(GROUPS, **settings)
        solver = model.solver(reference, model.initial_covariance(registered, reference))
        prototype = jax.vmap(solver.family.init)(registered[jnp.asarray([0, -1])])
        state = solver.init(Clusters(prototype, jnp.zeros((GROUPS, 0))))
        memory = solver.init_memory(len(registered), GROUPS, registered.dtype)
        state, memory = sum_over_chunks(solver, state, memory)
        running[name] = (solver, *jax.block_until_ready(sum_over_chunks(solver, state, memory)))
    seconds = {name: [] for name in METHODS}
    for _ in range(args.rounds):
        for name, given in running.items():
            start = time.perf_counter()
            jax.block_until_ready(sum_over_chunks(*given))
            seconds[name].append(time.perf_counter() - start)
    first = np.asarray(seconds["Type I"])
    figures = {
        name: {
            "ms": round(1e3 * min(taken), 2),
            "times_type_1": round(float(np.median(np.asarray(taken) / first)), 2),
        }
        for name, taken in seconds.items()
    }
    for name, row in figures.items():
        print(f"{name:22} {row['ms']:9.2f} ms a pass, {row['times_type_1']:.2f} times Type I")
    finish({"benchmark": "shape_passes", "shapes": args.shapes, **figures})


if __name__ == "__main__":
    main()
