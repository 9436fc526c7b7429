"""DI K-means, Fig. 2: the time of a Lloyd pass, and the memory of a pass over all of MNIST.

    python -m experiments.benchmarks.scaling [--seed 0] [--quick] [--no-memory] [--as-published]

AI and DI K-means on MNIST padded to 32×32, K = 10: against N with 7² landmarks, and against the
number of landmarks. Then one DI pass over 70,000 images of 28×28 with 6² landmarks, for the peak
memory of the whole process. Writes scaling.png beside this file. With `--as-published` the
passes are those of the papers' Adam, without the picture and the 70,000.
"""

import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.parallel import Data
from diffclust.parallel.chunks import cut
from diffclust.prototypes import Clusters
from diffclust.solvers.lloyd_run import sum_over_chunks
from experiments.harness import arguments, finish, peak_memory_mb


def seconds_per_pass(model, images, repeats=2):
    """Least seconds of a pass after the first, and what compiling added to the first."""
    solver = model.solver()
    size = model.chunk_size_for(Data(images).description)
    chunks = cut(images, None, size=size, normalise=solver.family.normalise)
    prototype = jax.tree.map(jnp.asarray, chunks.gather(np.arange(10)))
    penalty = jnp.tile(jnp.asarray([model.penalty()], dtype=prototype.dtype), (10, 1))
    state = solver.init(Clusters(prototype, penalty))
    memory = tuple(solver.init_memory(chunks.size, 10, prototype.dtype) for _ in chunks.batches)
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        out = sum_over_chunks(solver.step, chunks, state, memory)
        jax.block_until_ready(eqx.filter(out, eqx.is_array))
        times.append(time.perf_counter() - start)
    best = min(times[1:]) if repeats else times[0]
    return round(best, 3), round(times[0] - best, 2)


def draw(by_n, by_landmarks, path):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for method in ("ai-kmeans", "di-kmeans"):
        left.plot([r["n"] for r in by_n], [r[method] for r in by_n], "o-", label=method)
    sides = [r["landmarks"] for r in by_landmarks]
    right.plot(sides, [r["di-kmeans"] for r in by_landmarks], "o-", color="C1", label="di-kmeans")
    left.set(xlabel="N", ylabel="seconds a pass", xlim=(0, None), ylim=(0, None))
    right.set(xlabel="landmarks ℓ", ylim=(0, None))
    left.legend()
    right.legend()
    figure.savefig(path, dpi=120)


def models(side, *, as_published=False):
    """AI and DI K-means of ten clusters, with `side`² landmarks."""
    kinds = diffclust.AffineInvariantKMeans, diffclust.DeformationInvariantKMeans
    make = [kind.as_published if as_published else kind for kind in kinds]
    return make[0](10), make[1](10, landmarks=(side, side))


def main():
    args = arguments(
        __doc__,
        no_memory={"action": "store_true", "help": "skip the 70,000"},
        as_published={"action": "store_true", "help": "with the papers' Adam"},
    )
    sizes = (64, 128) if args.quick else (500, 1000, 2000, 4000)
    sides = (3, 4) if args.quick else (3, 4, 5, 6, 7, 8)
    few = 64 if args.quick else 1000
    data = load("mnist", split="test", limit=max(sizes), seed=args.seed).images
    padded = np.pad(data, ((0, 0), (2, 2), (2, 2), (0, 0)))
    by_n, by_landmarks = [], []
    for n in sizes:
        row = {"n": n}
        for model in models(7, as_published=args.as_published):
            row[model.method], row[f"{model.method}_compile"] = seconds_per_pass(model, padded[:n])
        by_n.append(row)
        print(row, flush=True)
    for side in sides:
        _, model = models(side, as_published=args.as_published)
        best, compiling = seconds_per_pass(model, padded[:few])
        by_landmarks.append({"landmarks": side**2, "n": few, "di-kmeans": best})
        print(by_landmarks[-1], f"compile {compiling} s", flush=True)
    figures = {"by_n": by_n, "by_landmarks": by_landmarks}
    if not (args.quick or args.as_published):
        draw(by_n, by_landmarks, Path(__file__).with_name("scaling.png"))
    if not (args.quick or args.as_published or args.no_memory):
        everything = load("mnist").images
        _, model = models(6)
        best, _ = seconds_per_pass(model, everything, repeats=0)
        figures["pass_over_70000"] = {"seconds_with_compiling": best}
    slopes = {
        m: round(float(np.polyfit(np.log(sizes), np.log([r[m] for r in by_n]), 1)[0]), 3)
        for m in ("ai-kmeans", "di-kmeans")
    }
    finish(
        {
            "benchmark": "scaling",
            "seed": args.seed,
            "log_log_slope_in_n": slopes,
            "peak_memory_mb": round(peak_memory_mb()),
            **figures,
        }
    )


if __name__ == "__main__":
    main()
