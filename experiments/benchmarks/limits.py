"""How far the hot kernels are from what the machine can do, all in one run.

The machine: float32 operations a second of a large matrix product, and bytes a second of a large
copy (read and written). Of each kernel: operations as counted in its program (two for each product
of a sum of products, one for each number that any other operation makes, loops as often as they
run), bytes that must be read and written at least (inputs and outputs once), and its share of the
limit, the larger of the two times that the machine would need, over the kernel's own.

    python -m experiments.benchmarks.limits [--seed 0] [--quick] [--kernels ...]
"""

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.features import Scattering
from diffclust.graphs import nearest_neighbours, pair_distances
from diffclust.models import MODELS
from diffclust.parallel import Batch
from diffclust.parallel.chunks import cut
from diffclust.prototypes import Clusters
from diffclust.solvers.lloyd_run import sum_over_chunks
from experiments.benchmarks.refine import pairs_of
from experiments.harness import arguments, finish

CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call")
FREE = ("reshape", "squeeze", "broadcast_in_dim", "transpose", "slice", "convert_element_type")


def operations(function, *args):
    """Arithmetic operations of a function, counted in its jaxpr."""
    return _count(jax.make_jaxpr(function)(*args).jaxpr)


def _count(jaxpr):
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    return sum(_operations_of(equation) for equation in jaxpr.eqns)


def _operations_of(equation):
    name, params = equation.primitive.name, equation.params
    made = sum(math.prod(out.aval.shape) for out in equation.outvars if hasattr(out.aval, "shape"))
    if name == "scan":
        return params["length"] * _count(params["jaxpr"])
    if name == "while":
        # The only one, that of soft dilation and erosion, makes one pass at most.
        return _count(params["body_jaxpr"])
    if name == "cond":
        return max(_count(branch) for branch in params["branches"])
    for called in CALLED:
        if called in params:
            return _count(params[called])
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return 2 * made * math.prod(shape[axis] for axis in contracted)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        out_channels = kernel[params["dimension_numbers"].rhs_spec[0]]
        return 2 * made * math.prod(kernel) // out_channels
    return 0 if name in FREE else made


def seconds_of(run, repeats):
    """Median seconds of a call after the first."""
    jax.block_until_ready(run())
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        taken.append(time.perf_counter() - start)
    return float(np.median(taken))


def machine(size, repeats):
    """Operations and bytes a second."""
    matrix = jnp.asarray(np.random.default_rng(0).uniform(size=(size, size)), dtype=jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    # Into memory that is there already, by one thread a core.
    cores = len(os.sched_getaffinity(0))
    source, target = (np.ones((cores, 4 * size * size), np.float32) for _ in range(2))
    with ThreadPoolExecutor(cores) as pool:
        copying = seconds_of(lambda: list(pool.map(np.copyto, target, source)), repeats)
    return (
        2.0 * size**3 / seconds_of(lambda: product(matrix), repeats),
        2.0 * source.nbytes / copying,
    )


def of_lloyd(model, images):
    """A Lloyd pass over images: what runs it, operations and bytes."""
    solver = model.solver()
    size = len(images) if model.method == "kmeans" else 128
    chunks = cut(images, None, size=size, normalise=solver.family.normalise)
    prototype = jax.tree.map(jnp.asarray, chunks.gather(np.arange(10)))
    penalty = jnp.tile(jnp.asarray([model.penalty()], dtype=prototype.dtype), (10, 1))
    clusters = Clusters(prototype, penalty)
    state = solver.init(clusters)
    memory = tuple(solver.init_memory(chunks.size, 10, prototype.dtype) for _ in chunks.batches)

    def run():
        return eqx.filter(sum_over_chunks(solver.step, chunks, state, memory), eqx.is_array)

    energy, aligner, one = solver.energy, solver.aligner, prototype[0]
    prepared = aligner.prepare(energy, clusters, None)
    start = jax.tree.map(lambda leaf: leaf[0], solver.init_memory(1, 10, prototype.dtype))

    def alone(sample):
        alignment = diffclust.alignment.Alignment(start.cluster, start.params, start.energy)
        return aligner.align(energy, sample, clusters, None, alignment, prepared)

    if model.method == "kmeans":
        counted = 2 * 10 * one.size + one.size
    else:
        counted = operations(alone, one)
    return run, counted * len(images), images.nbytes + sum(m.params.nbytes for m in memory)


def kmeans(images):
    return of_lloyd(diffclust.KMeans(10), images)


def di_pass(images):
    return of_lloyd(diffclust.DeformationInvariantKMeans(10), images[:512])


def scattering(images):
    transform = Scattering(32, 32, num_scales=3, num_angles=8)
    batch = jnp.asarray(np.pad(images[:2048], ((0, 0), (2, 2), (2, 2), (0, 0))))
    mapped = jax.jit(jax.vmap(transform))
    parts = [batch[start : start + 64] for start in range(0, len(batch), 64)]
    out = jax.eval_shape(mapped, batch)
    return (
        lambda: [mapped(part) for part in parts],
        operations(mapped, parts[0]) * len(parts),
        batch.nbytes + 4 * math.prod(out.shape),
    )


def neighbours(images):
    points = images[:20_000].reshape(len(images[:20_000]), -1)[:, ::8].copy()
    return (
        lambda: nearest_neighbours(points, points, 15, exclude_self=True).index,
        2 * len(points) ** 2 * points.shape[1],
        2 * points.nbytes,
    )


def judged_pairs(images):
    count = min(8192, len(images) // 4)
    model = diffclust.DeformationInvariantSpectralClustering(10)
    units, sources, targets = pairs_of(count, 0)
    penalty = jnp.asarray(model.alignment_model().penalty(), dtype=units.dtype)
    invariant = diffclust.alignment.InvariantDistance(
        model.alignment_model().energy(), model.aligner()
    )
    distance = invariant.prepared(jnp.asarray(units[:64]), penalty)
    pair = jnp.asarray(units[:2])
    return (
        lambda: pair_distances(distance, units, units, sources, targets),
        operations(lambda pair: distance(pair[0], pair[1]), pair) * count,
        2 * count * pair[0].nbytes,
    )


def dti_step(images, backbone="strided"):
    settings = {"num_clusters": 10, "transforms": "aff-morpho-tps", "backbone": backbone}
    model = MODELS["dti-kmeans"].from_settings(settings)
    solver = model.solver(3, 1)
    batch = Batch(jnp.asarray(images[:128]), jnp.ones(128))
    state = solver.init(model.init(jnp.asarray(images[:10]), jax.random.key(0)))
    memory = solver.init_memory(128, 10, batch.weight.dtype)
    arrays, static = eqx.partition((solver, state, batch, memory), eqx.is_array)

    def step(arrays):
        solver, state, batch, memory = eqx.combine(arrays, static)
        return eqx.filter(solver.step(state, batch, memory, jnp.float32(1e-3)), eqx.is_array)

    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(arrays) if hasattr(leaf, "nbytes"))
    compiled = jax.jit(step)
    return lambda: compiled(arrays), operations(step, arrays), 2 * weights


KERNELS = {
    "K-means pass, 70,000 × 784, K = 10": kmeans,
    "scattering, 2,048 images 32×32": scattering,
    "neighbours, 20,000 × 98": neighbours,
    "judged pairs, 8,192": judged_pairs,
    "DTI step, 128 images": dti_step,
    "DTI step, the papers' network": lambda images: dti_step(images, "residual"),
    "DI K-means pass, 512 images, K = 10": di_pass,
}


def main():
    args = arguments(__doc__, kernels={"nargs": "+", "default": [], "help": "only those that hold"})
    size, repeats = (256, 1) if args.quick else (3072, 5)
    images = load("mnist", limit=1024 if args.quick else None, seed=args.seed).images
    rows = {}
    for name, make in KERNELS.items():
        if args.kernels and not any(part in name for part in args.kernels):
            continue
        run, counted, moved = make(images)
        # Beside every kernel, for the machine is shared.
        flops, bandwidth = machine(size, repeats)
        taken = seconds_of(run, repeats)
        least = max(counted / flops, moved / bandwidth)
        rows[name] = {
            "seconds": round(taken, 4),
            "gigaoperations": round(counted / 1e9, 3),
            "megabytes": round(moved / 1e6, 1),
            "gigaoperations_a_second": round(counted / taken / 1e9, 1),
            "machine_gigaoperations_a_second": round(flops / 1e9, 1),
            "machine_gigabytes_a_second": round(bandwidth / 1e9, 1),
            "share_of_limit": round(least / taken, 3),
            "bound_by": "arithmetic" if counted / flops > moved / bandwidth else "memory",
        }
        print(f"{name:38s} {rows[name]}", flush=True)
    finish({"benchmark": "limits", "seed": args.seed, **rows})


if __name__ == "__main__":
    main()
