"""What a step over several devices moves between them, and that it is the step on one.

    python -m experiments.benchmarks.scale_out [--devices 4] [--methods ...] [--quick]

On a machine without GPUs the devices are fake: one CPU that looks like several. That shows that the
numbers are right and how many bytes are moved, read from the compiled program; it shows no speed,
and none is told. Smooth noise of MNIST's size, K = 10; shapes of 20 landmarks. Of the spectral
methods the one stage in which devices talk: moments of the scattering features.
"""

import os
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.features import Moments
from diffclust.models import MODELS, ShapeKMeans
from diffclust.parallel import data_mesh, replicate, shard_batch, shard_rows, sharded
from diffclust.parallel.chunks import Batch
from diffclust.prototypes import Clusters
from experiments.harness import arguments, finish

FAKE = "--xla_force_host_platform_device_count"
CLUSTERS, RATE = 10, 1e-3
DTI = "aff-morpho-tps"
METHODS = {
    "kmeans": ("kmeans", {}),
    "ai-kmeans": ("ai-kmeans", {}),
    "di-kmeans": ("di-kmeans", {}),
    "shape-kmeans": ("shape-kmeans", {}),
    "dti-kmeans": ("dti-kmeans", {"transforms": DTI}),
    "dti-kmeans, residual": ("dti-kmeans", {"transforms": DTI, "backbone": "residual"}),
    "dti-gmm": ("dti-gmm", {"transforms": DTI}),
    "gmm": ("gmm", {}),
    "pssc": ("pssc", {}),
}

COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\("
)
ARRAY = re.compile(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]")


def moved(text):
    """How often devices talk in a compiled program, by operation, and the bytes of the results."""
    kinds, size = {}, 0
    for result, kind in COLLECTIVE.findall(text):
        kinds[kind] = kinds.get(kind, 0) + 1
        for dtype, shape in ARRAY.findall(result):
            bits = 8 if dtype == "pred" else int(re.sub(r"\D", "", dtype))
            size += bits // 8 * int(np.prod([int(n) for n in shape.split(",") if n]))
    return kinds, size


def lloyd(model, samples):
    """The step of a pass, and the state before it."""
    if isinstance(model, ShapeKMeans):
        reference = jnp.mean(samples, axis=0)
        solver = model.solver(reference, model.initial_covariance(samples, reference))
        penalty = ()
    else:
        solver, penalty = model.solver(), model.penalty()
    samples = jax.vmap(solver.family.normalise)(samples)
    weights = jnp.tile(jnp.asarray(penalty, samples.dtype)[None], (CLUSTERS, 1))
    prototype = jax.vmap(solver.family.init)(samples[:CLUSTERS])
    return solver, solver.init(Clusters(prototype, weights)), samples, solver.init_memory, ()


def gradient(model, samples):
    count = len(model.sequence(1))
    solver = model.solver(count, 1)
    state = solver.init(model.init(samples[:CLUSTERS], jax.random.key(0)))
    return solver, state, samples, solver.training_memory, (jnp.asarray(RATE, samples.dtype),)


def moments(model, samples):
    """The step that adds a chunk's features to their moments, and the moments before it."""
    features = jax.vmap(model.feature_map(28, 28))(samples)

    def step(state, batch, memory, *, axis_name=None):
        return state.add(batch.samples, batch.weight, axis_name=axis_name), memory

    empty = Moments.empty(features.shape[1], dtype=features.dtype)
    return step, empty, features, lambda count, clusters, dtype: jnp.zeros((count, 0), dtype), ()


def apart(result, wanted):
    """The largest difference, each array by its own scale."""
    worst = 0.0
    for got, want in zip(jax.tree.leaves(result), jax.tree.leaves(wanted), strict=True):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        scale = np.max(np.abs(want), initial=0.0)
        if scale > 0:
            worst = max(worst, float(np.max(np.abs(got - want)) / scale))
    return worst


def drawn(model, count, seed):
    """Noise, in JAX's default precision; images are smooth, as images are."""
    key = jax.random.key(seed)
    if isinstance(model, ShapeKMeans):
        return jax.random.uniform(key, (count, 20, 2))
    coarse = jax.random.uniform(key, (count, 6, 6, 1))
    return jax.image.resize(coarse, (count, 28, 28, 1), "cubic")


def measure(method, settings, count, mesh, seed):
    model = MODELS[method].from_settings({"num_clusters": CLUSTERS, **settings})
    make = gradient if hasattr(model, "training") else lloyd
    if hasattr(model, "feature_map"):
        make = moments

    def over_devices():
        solver, state, samples, init_memory, others = make(model, drawn(model, count, seed))
        batch = Batch(samples, jnp.ones(count))
        alone = (state, batch, init_memory(count, CLUSTERS, samples.dtype), *others)
        batch = shard_batch(batch, mesh)
        memory = shard_rows(init_memory(len(batch.weight), CLUSTERS, samples.dtype), mesh)
        given = (replicate(state, mesh), batch, memory, *replicate(others, mesh))
        step = getattr(solver, "step", solver)
        return step, alone, given, jax.jit(sharded(step, mesh)).lower(*given).compile()

    *_, (_, batch, memory, *_), compiled = over_devices()
    kinds, size = moved(compiled.as_text())
    per_sample = sum(leaf.nbytes for leaf in jax.tree.leaves((batch, memory))) // len(batch.weight)
    # In double precision: a descent of many steps makes much of the last digit of single.
    with jax.enable_x64(True):
        step, alone, given, compiled = over_devices()
        wanted, _ = eqx.filter_jit(step)(*alone)
        result, _ = compiled(*given)
    # Of a gradient step the moments are compared: Adam's step would hide a factor.
    parts = {
        gradient: lambda s: s.moments,
        lloyd: lambda s: (s.statistics, s.tally),
        moments: lambda s: s,
    }
    part = parts[make]
    return {
        "collectives": kinds,
        "bytes_added": size,
        "bytes_sent_per_device": round(2 * (mesh.size - 1) / mesh.size * size),
        "bytes_per_sample_kept": per_sample,
        "largest_difference_float64": float(f"{apart(part(result), part(wanted)):.1e}"),
    }


def main():
    args = arguments(
        __doc__,
        devices={"type": int, "default": 4, "help": "fake devices, where there is no GPU"},
        samples={"type": int, "default": 126, "help": "samples a step; need not divide"},
        methods={"nargs": "+", "default": list(METHODS), "choices": list(METHODS)},
    )
    if args.quick:
        args.samples, args.methods = 30, ["kmeans", "shape-kmeans", "gmm"]
    if FAKE not in os.environ.get("XLA_FLAGS", ""):
        # Read when the devices are first asked for, which is below.
        flags = f"{os.environ.get('XLA_FLAGS', '')} {FAKE}={args.devices}"
        os.environ["XLA_FLAGS"] = flags.strip()
    mesh = data_mesh()
    fake = jax.default_backend() == "cpu"
    print(f"{mesh.size} {'fake devices: no speed is shown' if fake else 'devices'}", flush=True)
    figures = {}
    for name in args.methods:
        figures[name] = measure(*METHODS[name], args.samples, mesh, args.seed)
        print(name, figures[name], flush=True)
    finish({"benchmark": "scale_out", "devices": mesh.size, "fake": fake, "methods": figures})


if __name__ == "__main__":
    main()
