"""DI K-means, Table 1: K-means, AI and DI K-means from identical starts.

    python -m experiments.di_kmeans_table1.run [--seed 0] [--quick] [--limit 2000] [--sets ...]
        [--as-published] [--source ... --split train --score-split test] [--displacements [...]]
        [--results FILE]

Every seed draws ten digits by k-means++ in pixel space, and all three methods start from them. As
published, a method is fitted with every learning rate and landmark grid, and the fit of least
distortion is kept. `--displacements` makes Diffeo MNIST with each of these largest shifts of
landmarks, in the place of the sets. FILE (JSON lines) keeps every run, and those that it has are
not run again. Labels are used to score and for nothing else.
"""

import functools
import itertools
import time

import jax
import numpy as np

import diffclust
from diffclust.data import diffeo_mnist, load
from diffclust.distances import SquaredEuclidean
from diffclust.metrics import scores
from diffclust.models import PUBLISHED_LANDMARKS, PUBLISHED_RATES
from diffclust.parallel.chunks import cut
from diffclust.solvers import kmeans_plus_plus
from experiments.harness import (
    RESULTS,
    SCORED,
    SOURCE,
    arguments,
    asked_runs,
    finish,
    fitted_and_scored,
    mean_and_std,
    source_words,
)

PAPER = {
    "affine-mnist": {"kmeans": 68.0, "ai-kmeans": 100.0, "di-kmeans": 100.0},
    "diffeo-mnist": {"kmeans": 61.8, "ai-kmeans": 91.7, "di-kmeans": 99.2},
    "mnist": {"kmeans": 53.5, "ai-kmeans": 75.3, "di-kmeans": 92.5},
    "usps": {},
}
MODELS = {
    "kmeans": diffclust.KMeans,
    "ai-kmeans": diffclust.AffineInvariantKMeans,
    "di-kmeans": diffclust.DeformationInvariantKMeans,
}
DISPLACEMENTS = (0.06, 0.12, 0.18, 0.24, 0.3)
"""The curve's, in [-1, 1] units: multiples of half the default's, as far as images can be made
without most maps folding. They were fixed before anything was run."""

GRIDS, PASSES = tuple(rows for rows, _ in PUBLISHED_LANDMARKS), 150
"""Landmarks along each axis, and most passes of a fit, as published."""

NAMES = ("set", "settings", "limit", "method", "seed")
"""What tells runs apart."""


def data(args, name):
    """Images to fit, images to score, and the number of clusters."""
    limit = args.limit
    if args.source is not None:
        return fitted_and_scored(args, limit)
    if " " in name:
        stored = load("mnist", split="train")
        shift = float(name.split()[1])
        fitted, scored = diffeo_mnist(stored.images, stored.labels, seed=0, displacement=shift)
        return fitted.limit(limit, seed=0), scored, 10
    if name in ("affine-mnist", "diffeo-mnist"):
        # One data set for all seeds: they vary the start alone.
        fitted, scored = (load(name, split=split, seed=0) for split in ("train", "test"))
        return fitted.limit(limit, seed=0), scored, 10
    both = load(name, split="test").limit(limit, seed=0)
    return both, both, 10


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


def words(args):
    """What the models' settings are, in words that tell runs apart."""
    if not args.as_published:
        return ["no moves" if args.plain else "default"]
    grid = [("rates", args.rates, PUBLISHED_RATES), ("grids", args.grids, GRIDS)]
    every = [
        f"{name} {' '.join(map(str, chosen))}"
        for name, chosen, published in grid
        if tuple(chosen) != tuple(published)
    ]
    return ["as published", *every, *[f"{args.passes} passes"] * (args.passes != PASSES)]


def runner(args):
    """A function that makes one run."""

    read = functools.lru_cache(maxsize=1)(functools.partial(data, args))

    @functools.lru_cache(maxsize=1)
    def start(name, seed):
        fitted, _, k = read(name)
        chunks = cut(fitted.images, None, size=512)
        distances = SquaredEuclidean().to_all
        return chunks.gather(kmeans_plus_plus(chunks, k, distances, key=jax.random.key(seed)))

    def run(name, settings, limit, method, seed):
        fitted, scored, k = read(name)
        prototypes, key = start(name, seed), jax.random.key(seed)
        started = time.perf_counter()
        candidates = models(MODELS[method], k, args)
        fits = [each.fit(fitted.images, key=key, prototypes=prototypes) for each in candidates]
        result = min(fits, key=lambda fit: fit.loss)
        seconds = time.perf_counter() - started
        actual = result.assignments if scored is fitted else result.predict(scored.images).clusters
        figures = scores(scored.labels, actual)
        return {
            "n_fitted": len(fitted),
            "n_scored": len(scored),
            "loss": float(result.loss),
            "passes": len(result.history),
            "seconds": round(seconds, 2),
            **{score: round(float(value), 4) for score, value in figures.items()},
        }

    return run


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        limit={"type": int, "default": 2000, "help": "most images to fit"},
        sets={"nargs": "+", "default": list(PAPER), "choices": list(PAPER)},
        displacements={"type": float, "nargs": "*", "help": "Diffeo MNIST with these, or the five"},
        methods={"nargs": "+", "default": list(MODELS), "choices": list(MODELS)},
        plain={"action": "store_true", "help": "without split-and-merge moves"},
        as_published={"action": "store_true", "help": "the paper's settings"},
        rates={"type": float, "nargs": "+", "default": PUBLISHED_RATES},
        grids={"type": int, "nargs": "+", "default": GRIDS},
        passes={"type": int, "default": PASSES, "help": "most passes of a published fit"},
        **SOURCE,
        **SCORED,
        **RESULTS,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 120, ["affine-mnist"]
        args.rates, args.grids, args.passes = [1e-2], [4], 3
    names = args.sets if args.source is None else [args.source]
    if args.source is None and args.displacements is not None:
        names = [f"diffeo-mnist {shift:g}" for shift in args.displacements or DISPLACEMENTS]
    settings = ", ".join([*words(args), *source_words(args)])
    asked = [
        (name, settings, args.limit, method, seed)
        for name in names
        for seed in range(args.seed, args.seed + args.seeds)
        for method in args.methods
    ]
    rows = asked_runs(args.results, NAMES, asked, runner(args))
    figures = {}
    for name in names:
        runs = {
            method: [row for row in rows if (row["set"], row["method"]) == (name, method)]
            for method in args.methods
        }
        first = runs[args.methods[0]][0]
        figures[name] = {count: first[count] for count in ("n_fitted", "n_scored")}
        for method, of in runs.items():
            least = min(of, key=lambda run: run["loss"])
            figures[name][method] = {
                **{
                    score: mean_and_std([run[score] for run in of])
                    for score in ("acc", "nmi", "ari")
                },
                "least_loss": {k: round(least[k], 4) for k in ("seed", "acc", "nmi", "ari")},
                "paper_acc": PAPER.get(name, {}).get(method),
            }
        for better, worse in (("di-kmeans", "ai-kmeans"), ("ai-kmeans", "kmeans")):
            if not {better, worse} <= set(runs):
                continue
            of = [{run["seed"]: run["acc"] for run in runs[method]} for method in (better, worse)]
            paired = [of[0][seed] - of[1][seed] for seed in of[0]]
            figures[name][f"{better} - {worse}"] = {
                "mean": round(float(np.mean(paired)), 4),
                "std": round(float(np.std(paired)), 4),
            }
        print(name, figures[name], flush=True)
    finish({"experiment": "di_kmeans_table1", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
