"""Plain K-means against scikit-learn's Lloyd: 70,000 × 784, the same start.

    python -m experiments.benchmarks.kmeans [--k 10 100] [--limit N] [--bounds] [--quick]

Both run until no image changes its cluster, on the same images in the same process, in turn. The
median of the runs' ratios, and that of the seconds that all cores together worked, which other
jobs touch less. `--bounds` instead counts in how many samples Hamerly's bounds fail, pass by pass:
those whose distances to all centres an algorithm with these bounds must compute, before and after
that to the own centre is computed. Then those in how many no cluster is surely the nearest by the
leading 96, and 160, principal coordinates and the norms of what is left.
"""

import time

import jax
import numpy as np

import diffclust
from diffclust.data import load
from experiments.harness import arguments, finish, peak_memory_mb


def compared(images, k, seed, runs):
    """Seconds, worked seconds, passes and inertia of both, and in how many labels they differ."""
    from sklearn.cluster import KMeans

    flat = images.reshape(len(images), -1)
    start = images[np.random.default_rng(seed).choice(len(images), k, replace=False)]

    def ours():
        model = diffclust.KMeans(k, num_restarts=1, split_merge=False, max_passes=1000)
        result = model.fit(images, key=jax.random.key(seed), prototypes=start)
        return len(result.history), result.assignments, result.prototypes.reshape(k, -1)

    def theirs():
        model = KMeans(
            k, init=start.reshape(k, -1), n_init=1, algorithm="lloyd", tol=0, max_iter=1000
        ).fit(flat)
        return model.n_iter_, model.labels_, model.cluster_centers_

    ours()  # compiles
    fits = {"diffclust": ours, "sklearn": theirs}
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
                f"K = {k} {name:9s} {seconds[name][-1]:.3f} s ({worked[name][-1]:.3f} worked), "
                f"{passes} passes, inertia {inertia[name]:.4f}",
                flush=True,
            )
    ratios = (np.divide(each["diffclust"], each["sklearn"]) for each in (seconds, worked))
    time_ratio, worked_ratio = (round(float(np.median(each)), 3) for each in ratios)
    return {
        "seconds": {name: np.round(each, 3).tolist() for name, each in seconds.items()},
        "worked": {name: np.round(each, 3).tolist() for name, each in worked.items()},
        "time_ratio": time_ratio,
        "worked_ratio": worked_ratio,
        "relative_inertia_difference": inertia["diffclust"] / inertia["sklearn"] - 1,
        "labels_differ": int(np.sum(labels["diffclust"] != labels["sklearn"])),
    }


COORDINATES = (96, 160)


def doubtful(within, left, axes, centres):
    """The share of samples whose nearest centre some coordinates leave open."""
    own = centres @ axes
    others = np.sqrt(np.maximum((centres**2).sum(1) - (own**2).sum(1), 0))
    squared, slack = (own**2).sum(1) + others**2 - 2 * within @ own.T, 2 * left[:, None] * others
    return ((squared - slack <= (squared + slack).min(1)[:, None]).sum(1) > 1).mean()


def principal(flat, count):
    """Leading principal axes, coordinates along them, and norms of what is left."""
    axes = np.linalg.eigh(flat.T @ flat)[1][:, ::-1][:, :count]
    within = flat @ axes
    return within, np.sqrt(np.maximum((flat**2).sum(1) - (within**2).sum(1), 0)), axes


def bounds_failed(images, k, seed):
    """Mean shares of the passes after the first, and those of some passes."""
    flat = images.reshape(len(images), -1)
    flat = flat - flat.mean(axis=0)
    views = [principal(flat, count) for count in COORDINATES]
    every = np.arange(len(flat))
    centres = flat[np.random.default_rng(seed).choice(len(flat), k, replace=False)]
    norms, cluster, before, failed = (flat**2).sum(1), None, centres, []
    while True:
        squared = norms[:, None] - 2 * flat @ centres.T + (centres**2).sum(1)
        distance = np.sqrt(np.maximum(squared, 0))
        nearest, two = distance.argmin(1), np.partition(distance, 1, axis=1)[:, :2]
        if cluster is None:
            upper, lower = two.T.copy()
        else:
            shift = np.linalg.norm(centres - before, axis=1)
            others = np.where(np.arange(k) == shift.argmax(), np.sort(shift)[-2], shift.max())
            lower, upper = lower - others[cluster], upper + shift[cluster]
            apart = np.linalg.norm(centres[:, None] - centres[None], axis=2)
            half = (apart + np.diag(np.full(k, np.inf))).min(1)[cluster] / 2
            first = upper > np.maximum(lower, half)
            upper = np.where(first, distance[every, cluster], upper)
            second = upper > np.maximum(lower, half)
            upper, lower = np.where(second[:, None], two, np.stack([upper, lower], 1)).T
            open_by = (doubtful(*view, centres) for view in views)
            failed.append((first.mean(), second.mean(), *open_by))
            if (nearest == cluster).all():
                break
        cluster, before = nearest, centres
        members = (flat[cluster == j] for j in range(k))
        centres = np.stack(
            [m.mean(0) if len(m) else c for m, c in zip(members, before, strict=True)]
        )
    shares = np.round(failed, 3)
    some = {f"pass {i + 2}": shares[i].tolist() for i in (0, 5, 10, 20, 30, 40) if i < len(shares)}
    return {"mean": np.round(np.mean(failed, axis=0), 3).tolist(), **some}


def main():
    args = arguments(
        __doc__,
        k={"nargs": "+", "type": int, "default": [10], "help": "numbers of clusters"},
        limit={"type": int, "default": None, "help": "images; all if not given"},
        bounds={"action": "store_true", "help": "count what bounds would save instead"},
        runs={"type": int, "default": 3, "help": "of each, in turn"},
    )
    if args.quick:
        args.limit, args.runs = 2000, 1
    images = load("mnist", limit=args.limit, seed=args.seed).images
    figures = {
        f"k={k}": bounds_failed(images, k, args.seed)
        if args.bounds
        else compared(images, k, args.seed, args.runs)
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
