"""One frame or the mean graph of several: `di-spectral` with `register="upright"` and `"auto"`.

    python -m experiments.registration.frames [--seed 0] [--seeds 2] [--quick] [--sets ...]
        [--methods di-spectral pssc] [--registers upright auto three] [--results FILE]

For PSSC, whose `"auto"` is upright, `auto` is here the cut of the mean graph of upright and placed
images, `three` that of these and unregistered ones, and `upright` that of upright ones alone.

Development sets: MNIST's and USPS's training images, as they are, moved, coloured, shrunk, with
near-duplicates, with groups of unequal size; letters, recordings and drawn clothes. FILE (JSON
lines) keeps every run, and those that it has are not run again. Labels score, and nothing else.
"""

import time

import jax
import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import MODELS
from experiments.default_method import run as pictures
from experiments.harness import RESULTS, arguments, asked_runs, finish
from experiments.photographs.views import cut_of_views
from experiments.registration import balance, development


def digits(limit, change):
    def made(seed):
        given = load("mnist", split="train", limit=limit, seed=seed)
        return change(given.images, given.labels, seed), given.labels

    return made


def of_balance(name):
    return lambda seed: balance.SETS[name](seed, False)


def of_pictures(name):
    return lambda seed: pictures.SETS[name](1000, seed)


SETS = {
    "mnist, 1,000": digits(1000, development.as_they_are),
    **{
        f"{name}, 2,000": digits(2000, development.SETS[name])
        for name in ("mnist", "affnist", "color", "cut", "gradient")
    },
    **{name: of_balance(name) for name in ("plain 8×8", "planted 0.2 8×8", "unequal")},
    **{f"{name}, 1,000": of_pictures(name) for name in ("usps", "letters", "recordings")},
    "clothes, 1,000": of_pictures("clothes"),
    "mnist, 10,000": digits(10_000, development.as_they_are),
}


METHODS = ["pssc", "di-spectral"]

VIEWS = {
    "upright": ("upright",),
    "auto": ("upright", "place"),
    "three": ("upright", "place", "none"),
}
"""Of PSSC: in which frames images are compared."""

NAMES = ("set", "method", "register", "seed")
"""What tells runs apart."""


def options(sets):
    """What the experiments on these sets are told."""
    return {
        "seeds": {"type": int, "default": 2, "help": "number of seeds, of sets and methods"},
        "sets": {"nargs": "+", "default": list(SETS), "choices": list(sets), "metavar": "SET"},
        **RESULTS,
    }


def asked(args):
    """Set, method and seed of every run."""
    return [
        (name, method, seed)
        for seed in range(args.seed, args.seed + args.seeds)
        for name in args.sets
        for method in args.methods
    ]


def row_of(name, method, register, seed):
    images, labels = SETS[name](seed)
    count, key, start = len(np.unique(labels)), jax.random.key(seed), time.perf_counter()
    if method == "pssc":
        views = [{"register": each} for each in VIEWS[register]]
        cut = cut_of_views(images, count, views, key)
        assignments, figures = cut.points.assignments, cut.figures
    else:
        result = MODELS[method](count, register=register).fit(images, key=key)
        assignments, figures = result.assignments, result.outcome.figures
    return {
        **{k: round(float(value), 4) for k, value in scores(labels, assignments).items()},
        "stability": round(figures["stability"], 4),
        "least_cluster": int(np.bincount(assignments, minlength=count).min()),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    args = arguments(
        __doc__,
        methods={"nargs": "+", "default": ["di-spectral"], "choices": METHODS},
        registers={"nargs": "+", "default": ["upright", "auto"], "choices": list(VIEWS)},
        **options(SETS),
    )
    if args.quick:
        args.sets, args.seeds, args.registers = ["letters, 1,000"], 1, ["upright"]
        SETS["letters, 1,000"] = lambda seed: pictures.SETS["letters"](48, seed)
        args.results = None  # where these letters would be taken for 1,000
    if "three" in args.registers and args.methods != ["pssc"]:
        raise SystemExit("three frames: give --methods pssc")
    runs = [
        (name, method, register, seed)
        for seed in range(args.seed, args.seed + args.seeds)
        for name in args.sets
        for method in args.methods
        for register in args.registers
    ]
    rows = asked_runs(args.results, NAMES, runs, row_of, {"method": "di-spectral"})
    means = {f"{name}, {method}": {} for _, method, _, _ in runs for name in args.sets}
    for row in rows:
        of = means[f"{row['set']}, {row['method']}"]
        of.setdefault(row["register"], []).append(row["acc"])
    for name, of in means.items():
        print(f"{name:32s}", {register: round(float(np.mean(of[register])), 4) for register in of})
    finish({"experiment": "registration_frames", **means})


if __name__ == "__main__":
    main()
