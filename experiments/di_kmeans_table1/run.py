"""DI K-means, Table 1: K-means, AI and DI K-means from identical starts.

    python -m experiments.di_kmeans_table1.run [--seed 0] [--quick] [--limit 2000] [--sets ...]

Every seed draws ten digits by k-means++ in pixel space, and all three methods start from them.
Labels are used to score and for nothing else.
"""

import time

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.distances import SquaredEuclidean
from diffclust.metrics import scores
from diffclust.parallel.chunks import cut
from diffclust.solvers import kmeans_plus_plus
from experiments.harness import arguments, finish, spread

PAPER = {
    "affine-mnist": {"kmeans": 68.0, "ai-kmeans": 100.0, "di-kmeans": 100.0},
    "diffeo-mnist": {"kmeans": 61.8, "ai-kmeans": 91.7, "di-kmeans": 99.2},
    "mnist": {"kmeans": 53.5, "ai-kmeans": 75.3, "di-kmeans": 92.5},
    "usps": {},
}
MODELS = (
    diffclust.KMeans,
    diffclust.AffineInvariantKMeans,
    diffclust.DeformationInvariantKMeans,
)


def data(name, seed, limit):
    """Images to fit, images to score, and the latter's labels."""
    if name in ("affine-mnist", "diffeo-mnist"):
        # One data set for all seeds: they vary the start alone.
        fitted, scored = (load(name, split=split, seed=0) for split in ("train", "test"))
        return fitted.limit(limit, seed=0), scored
    both = load(name, split="test").limit(limit, seed=0)
    return both, both


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        limit={"type": int, "default": 2000, "help": "most images to fit"},
        sets={"nargs": "+", "default": list(PAPER), "choices": list(PAPER)},
        plain={"action": "store_true", "help": "without split-and-merge moves"},
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 120, ["affine-mnist"]
    figures = {}
    for name in args.sets:
        rows = {model: [] for model in ("kmeans", "ai-kmeans", "di-kmeans")}
        for seed in range(args.seed, args.seed + args.seeds):
            fitted, scored = data(name, seed, args.limit)
            chunks = cut(fitted.images, None, size=512)
            start = chunks.gather(
                kmeans_plus_plus(chunks, 10, SquaredEuclidean().to_all, key=jax.random.key(seed))
            )
            for model in MODELS:
                begun = time.perf_counter()
                result = model(10, split_merge=not args.plain).fit(
                    fitted.images, key=jax.random.key(seed), prototypes=start
                )
                seconds = time.perf_counter() - begun
                clusters = (
                    result.assignments
                    if scored is fitted
                    else result.predict(scored.images).clusters
                )
                row = {
                    "seed": seed,
                    "loss": result.loss,
                    "passes": len(result.history),
                    "seconds": seconds,
                    **scores(scored.labels, clusters),
                }
                rows[result.model.method].append(row)
                print(
                    f"{name:13s} N={len(fitted)} {result.model.method:9s} "
                    + " ".join(
                        f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}"
                        for k, v in row.items()
                    ),
                    flush=True,
                )
        figures[name] = {"n_fitted": len(fitted), "n_scored": len(scored)}
        for method, runs in rows.items():
            least = min(runs, key=lambda run: run["loss"])
            figures[name][method] = {
                **{score: spread([run[score] for run in runs]) for score in ("acc", "nmi", "ari")},
                "least_loss": {k: round(least[k], 4) for k in ("seed", "acc", "nmi", "ari")},
                "paper_acc": PAPER[name].get(method),
            }
        for better, worse in (("di-kmeans", "ai-kmeans"), ("ai-kmeans", "kmeans")):
            paired = [a["acc"] - b["acc"] for a, b in zip(rows[better], rows[worse], strict=True)]
            figures[name][f"{better} - {worse}"] = {
                "mean": round(float(np.mean(paired)), 4),
                "std": round(float(np.std(paired)), 4),
            }
        print(name, figures[name], flush=True)
    finish({"experiment": "di_kmeans_table1", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
