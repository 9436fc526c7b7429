"""Whether fits take as long as estimates say: true times against the ranges, `least..most`.

    python -m experiments.estimates.run [--seed 0] [--quick] [--methods kmeans ...]
        [--source mnist] [--limits 500 2000] [--results FILE]

Each fit is estimated and then fitted; what the estimate compiled serves the fit.
FILE (JSON lines) keeps every run, and those that it has are not run again. Ranges are meant for an
idle machine: `load` is how many programs wanted a core, per core, in the minute before.
"""

import os
import time

import jax
import numpy as np

from diffclust.data import load
from diffclust.estimate import estimate
from diffclust.models import MODELS
from experiments.harness import RESULTS, arguments, asked_runs, finish

METHODS = (
    "kmeans",
    "ai-kmeans",
    "di-kmeans",
    "dti-kmeans",
    "ti-kmeans",
    "gmm",
    "pssc",
    "di-spectral",
)


def row_of(source, method, limit, seed):
    """One fit, as a line of the results."""
    data = load(source, limit=limit, seed=seed)
    settings = {"num_clusters": 10}
    if "max_steps" in MODELS[method].setting_types():
        settings["max_steps"] = 400
    model, key = MODELS[method].from_settings(settings), jax.random.key(seed)
    jax.clear_caches()
    load_now, start = os.getloadavg()[0] / (os.cpu_count() or 1), time.perf_counter()
    expected = estimate(model, data.images, key=jax.random.fold_in(key, 1))
    looked, start = time.perf_counter() - start, time.perf_counter()
    model.fit(data.images, key=key)
    seconds = time.perf_counter() - start
    return {
        "seconds": round(seconds, 2),
        "expected": round(expected.seconds, 2),
        "least": round(expected.least, 2),
        "most": round(expected.most, 2),
        "inside": bool(expected.least <= seconds <= expected.most),
        "estimating": round(looked, 2),
        "load": round(load_now, 1),
    }


def main():
    args = arguments(
        __doc__,
        methods={"nargs": "+", "default": list(METHODS), "choices": METHODS},
        source={"default": "digits", "help": "the images"},
        limits={"type": int, "nargs": "+", "default": [400, 1700], "help": "numbers of images"},
        **RESULTS,
    )
    if args.quick:
        args.methods, args.limits = ["kmeans"], [100]
    asked = [
        (args.source, method, limit, args.seed) for method in args.methods for limit in args.limits
    ]
    rows = asked_runs(args.results, ("source", "method", "limit", "seed"), asked, row_of)
    for row in rows:
        print("{method:12s} {limit:5d} {seconds:8.1f} s of {least:.1f} to {most:.1f}".format(**row))
    inside = float(np.mean([row["inside"] for row in rows]))
    finish({"experiment": "estimates", "fits": len(rows), "inside": round(inside, 3)})


if __name__ == "__main__":
    main()
