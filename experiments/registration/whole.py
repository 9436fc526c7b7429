"""One recipe for all sets: every method as it comes, without registration and with `auto`.

    python -m experiments.registration.whole [--seed 0] [--seeds 5] [--quick] [--results FILE]
        [--sets mnist-test usps ...] [--methods di-spectral ...] [--registers none auto]
    python -m experiments.registration.whole --results FILE --table

Nothing differs between sets but the number of clusters. Sets that are made are made anew for every
seed. FILE (JSON lines) keeps every run, and those that it has are not run again; `--table` only
prints its means. Labels score, and nothing else.
"""

import time

import jax
import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import MODELS
from experiments.di_spectral_ablation.removed import CLASSES
from experiments.di_spectral_ablation.removed import SETS as SUBSETS
from experiments.harness import RESULTS, arguments, finish, missing_runs, peak_memory_mb
from experiments.registration.run import SETS as MADE

WHOLE = {
    "mnist": ("mnist", "all"),
    "mnist-test": ("mnist", "test"),
    "usps": ("usps", "all"),
    "mnist-1k": ("mnist-1k", "all"),
    "mnist-color": ("mnist-color", "test"),
    "affnist-like": ("affnist-like", "all"),
    "digits": ("digits", "all"),
}
FROM_TEST = ("color-published", "cluttered", "cut", "gradient", "textured", "white", "two-places")
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


def row_of(name, method, register, seed, limit):
    """One run, as a line of the results."""
    images, labels = data_of(name, seed, limit)
    count = len(np.unique(labels))
    settings = {"num_clusters": count, "register": register, **SETTINGS.get(method, {})}
    begun = time.perf_counter()
    result = MODELS[method].from_settings(settings).fit(images, key=jax.random.key(seed))
    figures = {"loss": result.loss, **scores(labels, result.assignments), **result.outcome.figures}
    return {
        "n": len(images),
        **{k: round(float(v), 4) for k, v in figures.items()},
        "seconds": round(time.perf_counter() - begun, 1),
    }


def table(rows):
    """Mean accuracy, deviation and that of the least loss, for every set and method."""
    found = {}
    for row in rows:
        place = f"{row['set']} | {row['method']} | {row['register']}"
        found.setdefault(place, []).append(row)
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
        for place, runs in found.items()
    }


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "seeds, of made sets and methods"},
        sets={"nargs": "+", "default": list(SETS), "choices": SETS, "metavar": "SET"},
        methods={"nargs": "+", "default": ["di-spectral"], "choices": METHODS},
        registers={"nargs": "+", "default": ["none", "auto"], "choices": ["none", "auto"]},
        **RESULTS,
        table={"action": "store_true", "help": "only print the means of the results"},
    )
    if args.quick:
        args.sets, args.registers, args.seeds = ["digits 0,1", "white"], ["auto"], 1
    asked = [
        (name, method, register, seed)
        for method in args.methods
        for name in args.sets
        for register in args.registers
        for seed in range(args.seed, args.seed + min(args.seeds, SEEDS.get(method, args.seeds)))
    ]
    rows = missing_runs(
        args.results,
        ("set", "method", "register", "seed"),
        [] if args.table else asked,
        lambda *each: row_of(*each, 150 if args.quick else LIMITS.get(each[1])),
    )
    means = table(rows)
    for place, row in means.items():
        print(f"{place:40s} {row}")
    finish({"experiment": "registration_whole", **means, "peak_memory_mb": peak_memory_mb()})


if __name__ == "__main__":
    main()
