"""DI K-means, Fig. 5 and Sec. 4.3, on the paper's own axes: landmark grid and learning rate.

    python -m experiments.di_kmeans_selection.published --results FILE [--seed 0] [--quick]
        [--limit 300] [--sides 3 4 5 6 7 8] [--rates 1e-4 5e-4 1e-3 5e-3 1e-2 5e-2] [--source ...]

Every setting of `DeformationInvariantKMeans.as_published` (Adam, no penalties, no moves) is fitted
once, 150 passes. Of all, the fit of least distortion is the one that the paper keeps. FILE (JSON
lines) keeps every run, and those that it has are not run again. Labels score, and nothing else.
"""

import functools
import itertools
import time

import jax
from scipy.stats import spearmanr

from diffclust import DeformationInvariantKMeans
from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models.kmeans import PUBLISHED_LANDMARKS, PUBLISHED_RATES
from experiments.harness import (
    RESULTS,
    SOURCE,
    arguments,
    asked_runs,
    datasets,
    finish,
    source_words,
)

NAMES = ("set", "limit", "landmarks", "rate", "seed")


def row_of(data, k, side, rate, seed):
    """One fit."""
    model = DeformationInvariantKMeans.as_published(k, landmarks=(side, side), learning_rate=rate)
    start = time.perf_counter()
    result = model.fit(data.images, key=jax.random.key(seed))
    figures = {"distortion": result.loss, **scores(data.labels, result.assignments)}
    return {
        **{name: round(float(value), 4) for name, value in figures.items()},
        "passes": len(result.history),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    args = arguments(
        __doc__,
        limit={"type": int, "default": 300, "help": "images of MNIST's test set"},
        sides={"nargs": "+", "type": int, "default": [rows for rows, _ in PUBLISHED_LANDMARKS]},
        rates={"nargs": "+", "type": float, "default": PUBLISHED_RATES},
        **SOURCE,
        **RESULTS,
    )
    if args.quick:
        args.limit, args.sides, args.rates = 30, [3], [1e-2, 5e-2]
    named = functools.partial(load, "mnist", split="test", limit=args.limit, seed=0)
    [(name, data, k)] = datasets(args, lambda _: named(), ["mnist-test"])
    name = ", ".join([name, *source_words(args)])
    grid = itertools.product(args.sides, args.rates)
    asked = [(name, args.limit, *each, args.seed) for each in grid]
    rows = asked_runs(args.results, NAMES, asked, lambda *run: row_of(data, k, *run[2:]))
    distortion, accuracy = ([row[name] for row in rows] for name in ("distortion", "acc"))
    least = min(rows, key=lambda row: row["distortion"])
    best = max(rows, key=lambda row: row["acc"])
    correlation = round(float(spearmanr(distortion, accuracy)[0]), 3)
    print("Spearman's correlation of distortion and accuracy:", correlation)
    print("least distortion, which the paper keeps:", least)
    print("most accurate, by labels, for comparison:", best)
    figures = {"spearman": correlation, "least_distortion": least, "best_by_labels": best}
    finish({"experiment": "di_kmeans_selection, published", "runs": len(rows), **figures})


if __name__ == "__main__":
    main()
