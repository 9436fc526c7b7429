"""Plain K-means against scikit-learn's Lloyd: 70,000 × 784, the same start.

    python -m experiments.benchmarks.kmeans [--k 10 100] [--limit N] [--quick]
        [--bounds | --default]

Both run until no image changes its cluster, on the same images in the same process, in turn. The
median of the runs' ratios, and that of the seconds that all cores together worked, which other
jobs touch less. The same without the bounds of `diffclust.solvers.bounded`. `--bounds` instead
tells which share of the images each pass reads; `--default` times fits by `KMeans(k)` as it comes,
without and with bounds, the first of each of which compiles what the one before has not.
"""

import contextlib
import time
from unittest import mock

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.solvers import bounded
from experiments.harness import arguments, finish, peak_memory_mb


@contextlib.contextmanager
def without_bounds():
    """Passes that read all images."""
    with mock.patch.object(bounded, "bounds_for", return_value=None):
        yield


def default_fits(images, k, seed, runs):
    """Seconds of fits by the model as it comes, each of which begins with the first key."""
    seconds = {}
    for name, way in {
        "without bounds": without_bounds,
        "diffclust": contextlib.nullcontext,
    }.items():
        for _ in range(1 + runs):
            started = time.perf_counter()
            with way():
                diffclust.KMeans(k).fit(images, key=jax.random.key(seed))
            seconds.setdefault(name, []).append(round(time.perf_counter() - started, 2))
    return seconds


def compared(images, k, seed, runs):
    """Seconds, worked seconds, passes and inertia of both, and in how many labels they differ."""
    from sklearn.cluster import KMeans

    flat = images.reshape(len(images), -1)
    start = images[np.random.default_rng(seed).choice(len(images), k, replace=False)]

    def ours():
        model = diffclust.KMeans(k, num_restarts=1, split_merge=False, max_passes=1000)
        result = model.fit(images, key=jax.random.key(seed), prototypes=start)
        return len(result.history), result.assignments, result.prototypes.reshape(k, -1)

    def plain():
        with without_bounds():
            return ours()

    def theirs():
        model = KMeans(
            k, init=start.reshape(k, -1), n_init=1, algorithm="lloyd", tol=0, max_iter=1000
        ).fit(flat)
        return model.n_iter_, model.labels_, model.cluster_centers_

    ours(), plain()  # compile
    fits = {"diffclust": ours, "without bounds": plain, "sklearn": theirs}
    seconds, worked, inertia, labels = ({name: [] for name in fits} for _ in range(4))
    for _ in range(runs):
        for name, fit in fits.items():
            started, working = time.perf_counter(), time.process_time()
            passes, labels[name], centres = fit()
            seconds[name].append(time.perf_counter() - started)
            worked[name].append(time.process_time() - working)
            # Double precision: the inertias of both are summed in the same way.
            residual = flat - centres.astype(np.float64)[labels[name]]
            inertia[name] = float((residual**2).sum())
            print(
                f"K = {k} {name:14s} {seconds[name][-1]:.3f} s ({worked[name][-1]:.3f} worked), "
                f"{passes} passes, inertia {inertia[name]:.4f}",
                flush=True,
            )
    ratios = {
        f"{kind}_ratio {name}": round(float(np.median(np.divide(each[name], each["sklearn"]))), 3)
        for kind, each in {"time": seconds, "worked": worked}.items()
        for name in ("diffclust", "without bounds")
    }
    return {
        "seconds": {name: np.round(each, 3).tolist() for name, each in seconds.items()},
        "worked": {name: np.round(each, 3).tolist() for name, each in worked.items()},
        **ratios,
        "relative_inertia_difference": inertia["diffclust"] / inertia["sklearn"] - 1,
        "labels_differ": int(np.sum(labels["diffclust"] != labels["sklearn"])),
    }


def shares_read(images, k, seed):
    """Which share of the images each pass reads, in a fit from the same start."""
    start = images[np.random.default_rng(seed).choice(len(images), k, replace=False)]
    counts, sums = [], bounded.sum_over_chunks

    def counted(*args, **settings):
        (state, read), memory = sums(*args, **settings)
        counts.append(int(read))
        return (state, read), memory

    with mock.patch.object(bounded, "sum_over_chunks", counted):
        model = diffclust.KMeans(k, num_restarts=1, split_merge=False, max_passes=1000)
        passes = len(model.fit(images, key=jax.random.key(seed), prototypes=start).history)
    shares = np.round(np.divide(counts, len(images)), 3)
    # Passes without bounds read all; so does the one that computes energies after the last.
    whole = passes - len(counts) + 1
    mean = np.append(shares, np.ones(whole)).mean()
    return {"passes": passes, "read whole": whole, "mean": mean, "shares": shares.tolist()}


def main():
    args = arguments(
        __doc__,
        k={"nargs": "+", "type": int, "default": [10], "help": "numbers of clusters"},
        limit={"type": int, "default": None, "help": "images; all if not given"},
        default={"action": "store_true", "help": "time default fits instead"},
        bounds={"action": "store_true", "help": "count what is read instead"},
        runs={"type": int, "default": 3, "help": "of each, in turn"},
    )
    if args.quick:
        args.limit, args.runs = 2000, 1
    images = load("mnist", limit=args.limit, seed=args.seed).images
    figures = {
        f"k={k}": shares_read(images, k, args.seed)
        if args.bounds
        else (default_fits if args.default else compared)(images, k, args.seed, args.runs)
        for k in args.k
    }
    finish(
        {
            "benchmark": "kmeans",
            "n": len(images),
            "seed": args.seed,
            **figures,
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
