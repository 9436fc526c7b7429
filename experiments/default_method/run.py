"""Which method of images serves most people: every one, as it comes, on digits, letters and more.

    python -m experiments.default_method.run [--seed 0] [--seeds 1] [--quick] [--limit 1000]
        [--sets mnist usps ...] [--methods di-kmeans ...] [--registers none auto]
        [--results FILE]

A set is of one kind of picture. FILE (JSON lines) keeps every run, and those that it has are not
run again. `--limit` is the number of images of a set. Labels score, and nothing else.
"""

import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import MODELS
from experiments.default_method.clothes import clothes
from experiments.gallery.run import some_letters
from experiments.harness import RESULTS, arguments, asked_runs, finish
from experiments.photographs.sets import SETS as PHOTOGRAPHS
from experiments.spoken_digits.run import write_words

METHODS = ("kmeans", "ai-kmeans", "di-kmeans", "dti-kmeans", "pssc", "di-spectral")


def digits(source, split):
    def read(limit, seed):
        data = load(source, split=split, limit=limit, seed=seed)
        return data.images, data.labels

    return read


def letters(limit, seed):
    images, labels = some_letters(-(-limit // 8), np.random.default_rng(seed))
    return images[:limit], labels[:limit]


def recordings(limit, seed):
    with tempfile.TemporaryDirectory() as folder:
        write_words(Path(folder), limit // 10, np.random.default_rng(seed))
        data = load(folder, rate=48_000, seconds=1.0)
        return data.images, data.labels


SETS = {
    "mnist": digits("mnist", "train"),
    "usps": digits("usps", "train"),
    "letters": letters,
    "recordings": recordings,
    **PHOTOGRAPHS,
}
LIMIT = 1000
"""Images of a set, where nothing else is asked for."""
KINDS = [*SETS]  # the sets of one run; others are read when named
SETS["clothes"] = clothes
SETS["digits"] = digits("digits", "all")


def row_of(name, method, register, seed, limit):
    """One run, as a line of the results."""
    images, labels = SETS[name](limit, seed)
    settings = {"num_clusters": len(np.unique(labels)), "register": register}
    start = time.perf_counter()
    result = MODELS[method].from_settings(settings).fit(images, key=jax.random.key(seed))
    return {
        "n": len(images),
        **{
            key: round(float(value), 4) for key, value in scores(labels, result.assignments).items()
        },
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 1, "help": "number of seeds, of sets and methods"},
        limit={"type": int, "default": LIMIT, "help": "images of a set"},
        sets={"nargs": "+", "default": KINDS, "choices": list(SETS)},
        methods={"nargs": "+", "default": list(METHODS), "choices": METHODS},
        registers={"nargs": "+", "default": ["none", "auto"], "choices": ["none", "auto"]},
        **RESULTS,
    )
    if args.quick:
        args.limit, args.sets, args.methods = 40, ["letters", "recordings"], ["kmeans"]
    asked = [
        (name, method, register, seed)
        for seed in range(args.seed, args.seed + args.seeds)
        for method in args.methods
        for name in args.sets
        for register in args.registers
    ]
    rows = asked_runs(
        args.results,
        ("set", "method", "register", "seed", "limit"),
        [(*each, args.limit) for each in asked],
        row_of,
        {"limit": LIMIT},
    )
    accuracies = {}
    for row in rows:
        place = accuracies.setdefault(f"{row['method']} {row['register']}", {})
        place.setdefault(row["set"], []).append(row["acc"])
    means = {
        place: {name: round(float(np.mean(each)), 4) for name, each in of.items()}
        for place, of in accuracies.items()
    }
    for place, of in means.items():
        print(f"{place:20s} mean {np.mean(list(of.values())):.3f} {of}")
    finish({"experiment": "default_method", **means})


if __name__ == "__main__":
    main()
