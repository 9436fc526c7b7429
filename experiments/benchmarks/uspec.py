"""U-SPEC against the exact graph as the number of samples grows.

    python -m experiments.benchmarks.uspec [--seed 0] [--quick] [--plot FIGURE.png]

Ten blobs of 50 features. U-SPEC (p = 1,000, k = 5) at 10⁴, 10⁵ and 10⁶ samples is linear in N; the
exact self-tuning graph at 10⁴, 3·10⁴ and 10⁵ is quadratic. Compilation is kept out by a first run
on few samples.
"""

import time

import jax
import numpy as np

from diffclust.graphs import (
    gaussian_affinity,
    nearest_neighbours,
    self_tuning_affinity,
    spectral_embedding,
    transfer_cut,
)
from diffclust.metrics import accuracy
from diffclust.solvers import kmeans, representatives
from experiments.harness import arguments, finish, peak_memory_mb


def blobs(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    centres = rng.normal(size=(10, 50)) * 0.6
    points = centres[labels] + rng.normal(size=(count, 50))
    return points.astype(np.float32), labels


def uspec(points, key):
    chosen = representatives(points, 1000, key=key)
    near = nearest_neighbours(points, chosen, 5)
    embedding = transfer_cut(gaussian_affinity(near, len(chosen)), 10)
    return kmeans(embedding.vectors, 10, key=key).assignments


def graph(points, key):
    near = nearest_neighbours(points, points, 5, exclude_self=True)
    embedding = spectral_embedding(self_tuning_affinity(near), 10, key=key)
    return kmeans(embedding.vectors, 10, key=key).assignments


def main():
    args = arguments(__doc__, plot={"default": None, "help": "draw times against N"})
    sizes = {
        "uspec": (uspec, (1000, 3000) if args.quick else (10_000, 100_000, 1_000_000)),
        "graph": (graph, (1000, 2000) if args.quick else (10_000, 30_000, 100_000)),
    }
    figures = {}
    for name, (method, counts) in sizes.items():
        rows = []
        for count in counts:
            points, labels = blobs(count, args.seed)
            key = jax.random.key(args.seed)
            if not rows:
                method(points, key)
            start = time.perf_counter()
            result = method(points, key)
            seconds = time.perf_counter() - start
            rows.append(
                {
                    "n": count,
                    "seconds": round(seconds, 2),
                    "acc": round(accuracy(labels, result), 4),
                    "peak_memory_mb": round(peak_memory_mb()),
                }
            )
            print(name, rows[-1], flush=True)
        logs = np.log([[row["n"], max(row["seconds"], 1e-3)] for row in rows])
        figures[name] = {
            "rows": rows,
            "slope_in_n": round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 2),
        }
    if args.plot:
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
        for name, result in figures.items():
            axis.loglog(*zip(*[(r["n"], r["seconds"]) for r in result["rows"]], strict=True), "o-")
            axis.annotate(name, (result["rows"][-1]["n"], result["rows"][-1]["seconds"]))
        axis.set(xlabel="samples", ylabel="seconds")
        figure.savefig(args.plot, dpi=120)
    finish({"benchmark": "uspec", "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
