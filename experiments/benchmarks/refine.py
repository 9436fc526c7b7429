"""Judging pairs of neighbours: the project's aligner against the plain way, 40 steps of Adam.

    python -m experiments.benchmarks.refine [--seed 0] [--quick] [--mnist]

Pairs of MNIST digits that are near each other in pixel space (one of the 12 nearest), unit norm,
5² landmarks, one sampler and one penalty for all, in turn in one process. The ratio that counts is
that of pairs a second at equal mean objective. With `--mnist` also the whole of MNIST from pixels
to assignments, stage by stage.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import diffclust
from diffclust.alignment import Descent, OptaxMinimiser, PreconditionedLBFGS, Stage
from diffclust.data import load
from diffclust.graphs import nearest_neighbours, pair_distances
from diffclust.metrics import scores
from diffclust.objectives import InvariantDistance
from diffclust.prototypes import UnitNormImages
from experiments.harness import arguments, finish, peak_memory_mb


def aligners(model):
    adam, short = OptaxMinimiser(optax.adam(1e-2)), PreconditionedLBFGS(history=1)
    return {
        "adam, 40 steps": Descent((Stage(40),), minimiser=adam),
        "default": model.aligner(),
        "default, fewer steps": Descent((Stage(8, blur=1 / 28), Stage(3)), minimiser=short),
        "default, more steps": Descent((Stage(8, blur=1 / 28), Stage(8)), minimiser=short),
        "default, less damping": Descent(
            (Stage(7, blur=1 / 28), Stage(4)), minimiser=short, damping=0.05
        ),
        "default, longer memory": Descent((Stage(8, blur=1 / 28), Stage(4))),
    }


def pairs_of(count, seed):
    images = load("mnist", split="test", limit=4 * count, seed=seed).images
    units = np.asarray(jax.vmap(UnitNormImages().normalise)(jnp.asarray(images)))
    flat = units.reshape(len(units), -1)
    near = nearest_neighbours(flat, flat, 12, exclude_self=True)
    rng = np.random.default_rng(seed)
    sources = rng.integers(0, len(units), count)
    return units, sources, near.index[sources, rng.integers(0, near.num_neighbours, count)]


def compare(count, seed, rounds):
    model = diffclust.DeformationInvariantSpectralClustering(10)
    units, sources, targets = pairs_of(count, seed)
    energy = model.portrait().energy()
    penalty = jnp.asarray(model.portrait().penalty(), dtype=units.dtype)
    seconds, objective, compiling = {}, {}, {}
    distances = {
        name: InvariantDistance(energy, aligner).prepared(jnp.asarray(units[:64]), penalty)
        for name, aligner in aligners(model).items()
    }
    for turn in range(rounds + 1):
        for name, distance in distances.items():
            begun = time.perf_counter()
            found = pair_distances(distance, units, units, sources, targets)
            spent = time.perf_counter() - begun
            if turn == 0:
                compiling[name], objective[name], seconds[name] = spent, float(found.mean()), []
            else:
                seconds[name].append(spent)
    rows = {}
    for name, spent in seconds.items():
        rows[name] = {
            "mean_objective": round(objective[name], 5),
            "pairs_a_second": round(count / min(spent)),
            "seconds": [round(s, 3) for s in spent],
            "first_call_seconds": round(compiling[name], 2),
            # Turn by turn: the machine's load is the same for both then.
            "times_adam": round(
                float(np.median(np.asarray(seconds["adam, 40 steps"]) / np.asarray(spent))), 2
            ),
        }
        print(f"{name:22s} {rows[name]}", flush=True)
    return rows


def whole_mnist(seed):
    data = load("mnist")
    stages = {}
    last = ["start", time.perf_counter()]

    def clock(progress):
        now = time.perf_counter()
        if progress.stage != last[0]:
            stages[last[0]] = stages.get(last[0], 0.0) + now - last[1]
            last[:] = [progress.stage, now]

    begun = time.perf_counter()
    model = diffclust.DeformationInvariantSpectralClustering(10)
    result = model.fit(data.images, key=jax.random.key(seed), callback=clock)
    total = time.perf_counter() - begun
    stages[last[0]] = stages.get(last[0], 0.0) + time.perf_counter() - last[1]
    return {
        "n": len(data),
        "seconds": round(total, 1),
        # A stage's name is told when its first chunk is done, so that chunk counts before it.
        "stages": {name: round(spent, 1) for name, spent in stages.items()},
        **{k: round(v, 4) for k, v in scores(data.labels, result.assignments).items()},
        "normalised_cut": round(result.loss, 5),
        "peak_memory_mb": round(peak_memory_mb()),
    }


def main():
    args = arguments(__doc__, mnist={"action": "store_true", "help": "the whole of MNIST too"})
    figures = compare(256 if args.quick else 4096, args.seed, 1 if args.quick else 5)
    if args.mnist:
        figures["mnist"] = whole_mnist(args.seed)
    finish({"benchmark": "refine", "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
