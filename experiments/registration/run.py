"""One recipe for all sets: every method as it comes, without registration and with `auto`.

    python -m experiments.registration.run [--seed 0] [--seeds 5] [--draw N] [--quick]
        [--results FILE] [--sets mnist-test usps ...] [--methods di-spectral ...]
        [--registers none auto] [--limit N] [--bias-correction fit] [--initial-variance 0.25]
        [--no-variance-curriculum]
        [--source FOLDER|FILE|tfds:NAME [--split all] [--size 28] [--k K]]
    python -m experiments.registration.run --results FILE --table

Nothing differs between sets but the number of clusters. Sets that are made are made anew for every
seed, so that means are over both; with `--draw` they are made once, and only the method's seed
differs. FILE (JSON lines) keeps every run, with date and version, and those that it has are not run
again; `--table` only prints its means. Labels score, and nothing else.
"""

import datetime
import functools
import time

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import MODELS
from experiments.di_spectral_ablation.removed import CLASSES
from experiments.di_spectral_ablation.removed import SETS as SUBSETS
from experiments.dti import CHANGED, changed_of
from experiments.harness import (
    RESULTS,
    SOURCE,
    arguments,
    asked_runs,
    finish,
    kept_runs,
    loaded,
    peak_memory_mb,
    source_name,
)
from experiments.registration.development import SETS as MADE

WHOLE = {
    "mnist": ("mnist", "all"),
    "mnist-test": ("mnist", "test"),
    "usps": ("usps", "all"),
    "mnist-1k": ("mnist-1k", "all"),
    "mnist-color": ("mnist-color", "test"),
    "affnist-like": ("affnist-like", "all"),
    "digits": ("digits", "all"),
}
FROM_TEST = (
    "color-published",
    "cluttered",
    "cut",
    "gradient",
    "textured",
    "white",
    "two-places",
    "two-grounds",
)
CLASSES_OF = {
    f"{name} {','.join(map(str, classes))}": (name, classes)
    for name in SUBSETS
    for classes in CLASSES[1:]
}
SETS = (*WHOLE, *FROM_TEST, *CLASSES_OF)

STEPS = (200, 600, 600, 800, 200)
SETTINGS = {"dti-kmeans": {"steps": STEPS}, "dti-gmm": {"steps": STEPS}}
"""2,400 steps; all else as it comes."""

LIMITS = {"ai-kmeans": 2000, "di-kmeans": 2000}
SEEDS = {"dti-kmeans": 3, "dti-gmm": 3}
METHODS = ("di-spectral", "pssc", "kmeans", "ai-kmeans", "di-kmeans", "dti-kmeans", "dti-gmm")


def data_of(name, seed, limit=None):
    """Images and labels of a set."""
    if name in CLASSES_OF:
        of, classes = CLASSES_OF[name]
        source, split = SUBSETS[of]
        data = load(source, split=split, limit=limit, seed=seed)
        kept = np.isin(data.labels, classes)
        return data.images[kept], data.labels[kept]
    source, split = WHOLE.get(name, ("mnist", "test"))
    data = load(source, split=split, limit=limit, seed=seed)
    images = MADE[name](data.images, data.labels, seed) if name in FROM_TEST else data.images
    return images, data.labels


NAMES = ("set", "method", "register", "seed", "draw", "limit", *CHANGED)
"""What tells runs apart; the last two are None where a method has no such setting."""


def row_of(args, name, method, register, seed, draw, *_):
    """One run, as a line of the results."""
    limit = LIMITS.get(method)
    limit = args.limit if limit is None else min(limit, args.limit or limit)
    if args.source is None:
        images, labels = data_of(name, seed if draw is None else draw, limit)
    else:
        data = loaded(args, args.split, limit)
        images, labels = data.images, data.labels
    count = args.k or len(np.unique(labels))
    settings = {"num_clusters": count, "register": register, **SETTINGS.get(method, {})}
    if method in SETTINGS:
        settings |= changed_of(args, method)
    start = time.perf_counter()
    result = MODELS[method].from_settings(settings).fit(images, key=jax.random.key(seed))
    figures = {"loss": result.loss, **scores(labels, result.assignments), **result.outcome.figures}
    return {
        "n": len(images),
        **{k: round(float(v), 4) for k, v in figures.items()},
        "seconds": round(time.perf_counter() - start, 1),
        "date": datetime.date.today().isoformat(),
        "version": diffclust.__version__,
    }


def source_named(args):
    """What the results call the source, by all that says which images and how many clusters."""
    words = {"split": args.split, "size": args.size, "k": args.k, "limit": args.limit}
    given = [f"{word}={value}" for word, value in words.items() if value not in (None, "all")]
    return " ".join([source_name(args), *given, *(["pad"] * args.pad)])


def table(rows):
    """Mean accuracy, deviation and that of the least loss, for every set and method."""
    result = {}
    for row in rows:
        place = f"{row['set']} | {row['method']} | {row['register']}"
        for name in ("draw", "limit", *CHANGED):
            if row.get(name) is not None:
                place += f" | {name} {row[name]}"
        result.setdefault(place, []).append(row)
    return {
        place: {
            "acc": round(float(np.mean([run["acc"] for run in runs])), 4),
            "std": round(float(np.std([run["acc"] for run in runs])), 4),
            "least_loss": min(runs, key=lambda run: run["loss"])["acc"],
            **{
                name: round(float(np.mean([run[name] for run in runs])), 3)
                for name in ("nmi", "stability")
                if name in runs[0]
            },
            "runs": len(runs),
        }
        for place, runs in result.items()
    }


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": None, "help": "seeds of methods and made sets: 5, of DTI 3"},
        draw={"type": int, "default": None, "help": "one seed of made sets for all of these"},
        limit={"type": int, "default": None, "help": "most images, drawn with the set's seed"},
        sets={"nargs": "+", "default": list(SETS), "choices": SETS, "metavar": "SET"},
        methods={"nargs": "+", "default": ["di-spectral"], "choices": METHODS},
        registers={"nargs": "+", "default": ["none", "auto"], "choices": ["none", "auto"]},
        **CHANGED,
        **SOURCE,
        **RESULTS,
        table={"action": "store_true", "help": "only print the means of the results"},
    )
    if args.quick:
        args.sets, args.registers, args.seeds = ["digits 0,1", "white"], ["auto"], 1
        args.limit = min(150, args.limit or 150)
    # The name of a source says the limit.
    limit = args.limit if args.source is None else None
    asked = [
        (
            *(name, method, register, seed, args.draw, limit),
            *map((changed_of(args, method) if method in SETTINGS else {}).get, CHANGED),
        )
        for method in args.methods
        for name in (args.sets if args.source is None else [source_named(args)])
        for register in args.registers
        for seed in range(args.seed, args.seed + (args.seeds or SEEDS.get(method, 5)))
    ]
    rows = (
        kept_runs(args.results)
        if args.table
        else asked_runs(args.results, NAMES, asked, functools.partial(row_of, args))
    )
    means = table(rows)
    for place, row in means.items():
        print(f"{place:40s} {row}")
    finish({"experiment": "registration", **means, "peak_memory_mb": peak_memory_mb()})


if __name__ == "__main__":
    main()
