"""DI K-means, Table 1: K-means, AI and DI K-means from identical starts.

    python -m experiments.di_kmeans_table1.run [--seed 0] [--quick] [--limit 2000] [--sets ...]
        [--as-published] [--source ... --split train --score-split test]

Every seed draws ten digits by k-means++ in pixel space, and all three methods start from them. As
published, a method is fitted with every learning rate and landmark grid, and the fit of least
distortion is kept. Labels are used to score and for nothing else.
"""

import itertools
import time

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.distances import SquaredEuclidean
from diffclust.metrics import scores
from diffclust.models import PUBLISHED_LANDMARKS, PUBLISHED_RATES
from diffclust.parallel.chunks import cut
from diffclust.solvers import kmeans_plus_plus
from experiments.harness import SOURCE, arguments, finish, loaded, spread

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


def data(args, name):
    """Images to fit, and images to score, with labels."""
    limit = args.limit
    if args.source is not None:
        fitted = loaded(args, args.split, limit)
        return fitted, loaded(args, args.score_split, None) if args.score_split else fitted
    if name in ("affine-mnist", "diffeo-mnist"):
        # One data set for all seeds: they vary the start alone.
        fitted, scored = (load(name, split=split, seed=0) for split in ("train", "test"))
        return fitted.limit(limit, seed=0), scored
    both = load(name, split="test").limit(limit, seed=0)
    return both, both


def models(kind, k, args):
    """The models of a method, of which the fit of least loss is kept."""
    if not args.as_published:
        return [kind(k, split_merge=not args.plain)]
    if kind is diffclust.KMeans:
        return [kind(k, split_merge=False, num_restarts=1)]
    choices = {"learning_rate": args.rates}
    if kind is diffclust.DeformationInvariantKMeans:
        choices["landmarks"] = [(side, side) for side in args.grids]
    every = itertools.product(*choices.values())
    settings = [dict(zip(choices, chosen, strict=True)) for chosen in every]
    made = [kind.as_published(k, **chosen).settings() for chosen in settings]
    return [kind.from_settings({**each, "max_passes": args.passes}) for each in made]


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        limit={"type": int, "default": 2000, "help": "most images to fit"},
        sets={"nargs": "+", "default": list(PAPER), "choices": list(PAPER)},
        plain={"action": "store_true", "help": "without split-and-merge moves"},
        as_published={"action": "store_true", "help": "the paper's settings"},
        rates={"type": float, "nargs": "+", "default": list(PUBLISHED_RATES)},
        grids={"type": int, "nargs": "+", "default": [grid[0] for grid in PUBLISHED_LANDMARKS]},
        passes={"type": int, "default": 150, "help": "most passes of a published fit"},
        score_split={"default": None, "help": "part of the source to score, if not the fitted"},
        **SOURCE,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 120, ["affine-mnist"]
        args.rates, args.grids, args.passes = [1e-2], [4], 3
    figures = {}
    for name in args.sets if args.source is None else [args.source]:
        rows = {model: [] for model in ("kmeans", "ai-kmeans", "di-kmeans")}
        for seed in range(args.seed, args.seed + args.seeds):
            fitted, scored = data(args, name)
            k = args.k or (10 if args.source is None else len(np.unique(fitted.labels)))
            chunks = cut(fitted.images, None, size=512)
            start = chunks.gather(
                kmeans_plus_plus(chunks, k, SquaredEuclidean().to_all, key=jax.random.key(seed))
            )
            for model in MODELS:
                begun = time.perf_counter()
                key = jax.random.key(seed)
                fits = [
                    m.fit(fitted.images, key=key, prototypes=start) for m in models(model, k, args)
                ]
                result = min(fits, key=lambda fit: fit.loss)
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
                "paper_acc": PAPER.get(name, {}).get(method),
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
