"""Plain K-means against scikit-learn's Lloyd: 70,000 × 784, K = 10, the same start.

    python -m experiments.benchmarks.kmeans [--seed 0] [--quick]

Both run until no image changes its cluster, on the same images in the same process, in turn.
"""

import time

import jax
import numpy as np

import diffclust
from diffclust.data import load
from experiments.harness import arguments, finish, peak_memory_mb


def main():
    args = arguments(__doc__)
    data = load("mnist", limit=2000 if args.quick else None, seed=args.seed)
    from sklearn.cluster import KMeans

    flat = data.images.reshape(len(data), -1)
    rng = np.random.default_rng(args.seed)
    start = data.images[rng.choice(len(data), 10, replace=False)]

    def ours():
        model = diffclust.KMeans(10, num_restarts=1, split_merge=False, max_passes=1000)
        result = model.fit(data.images, key=jax.random.key(args.seed), prototypes=start)
        return len(result.history), result.assignments, result.prototypes.reshape(10, -1)

    def theirs():
        model = KMeans(
            10, init=start.reshape(10, -1), n_init=1, algorithm="lloyd", tol=0, max_iter=1000
        ).fit(flat)
        return model.n_iter_, model.labels_, model.cluster_centers_

    ours()  # compiles
    seconds = {"diffclust": [], "sklearn": []}
    for _ in range(1 if args.quick else 3):
        for name, fit in (("diffclust", ours), ("sklearn", theirs)):
            begun = time.perf_counter()
            passes, labels, centres = fit()
            seconds[name].append(time.perf_counter() - begun)
            # Double precision: the inertias of both are summed in the same way.
            residual = flat.astype(np.float64) - centres.astype(np.float64)[labels]
            inertia = float((residual**2).sum())
            print(f"{name:9s} {seconds[name][-1]:.3f} s, {passes} passes, inertia {inertia:.4f}")
            if name == "diffclust":
                mine = inertia, labels
    finish(
        {
            "benchmark": "kmeans",
            "n": len(data),
            "seed": args.seed,
            "diffclust_seconds": [round(s, 3) for s in seconds["diffclust"]],
            "sklearn_seconds": [round(s, 3) for s in seconds["sklearn"]],
            "time_ratio": round(
                float(np.median(seconds["diffclust"]) / np.median(seconds["sklearn"])), 3
            ),
            "relative_inertia_difference": (mine[0] - inertia) / inertia,
            "labels_differ": int(np.sum(mine[1] != labels)),
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
