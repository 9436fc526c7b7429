"""Twice as many neighbours where clusters are not steady, and steadier so.

    python -m experiments.registration.neighbours [--seed 0] [--seeds 2] [--quick] [--sets ...]
        [--methods pssc di-spectral] [--results FILE]

On the development sets of `frames`: stability and accuracy by the usual numbers of neighbours, and
by what a fit takes where none are given. FILE (JSON lines) keeps every run, and those that it has
are not run again. Labels score, and nothing else.
"""

import jax
import numpy as np

from diffclust.metrics import accuracy
from diffclust.models import MODELS
from experiments.harness import arguments, asked_runs, finish
from experiments.registration import frames


def row_of(name, method, seed):
    images, labels = frames.SETS[name](seed)
    kind, k = MODELS[method], len(np.unique(labels))

    def figures(result):
        acc, steady = accuracy(labels, result.assignments), result.outcome.figures["stability"]
        return {"acc": round(acc, 4), "stability": round(steady, 4)}

    result = kind(k, register="auto").fit(images, key=jax.random.key(seed))
    taken, usual = result.outcome.extras["num_neighbours"].tolist(), kind.usual_neighbours
    before = result
    if taken != list(usual):
        model = kind(k, register="auto", num_neighbours=usual)
        before = model.fit(images, key=jax.random.key(seed))
    return {"taken": taken, "usual": figures(before), "found": figures(result)}


def main():
    args = arguments(
        __doc__,
        methods={"nargs": "+", "default": frames.METHODS, "choices": frames.METHODS},
        **frames.options(frames.SETS),
    )
    if args.quick:
        args.sets, args.methods, args.seeds = ["letters, 1,000"], ["pssc"], 1
        frames.SETS["letters, 1,000"] = lambda seed: frames.pictures.SETS["letters"](48, seed)
        args.results = None  # where these letters would be taken for 1,000
    rows = asked_runs(args.results, ("set", "method", "seed"), frames.asked(args), row_of)
    changed = [row for row in rows if row["usual"] != row["found"]]
    finish({"experiment": "registration_neighbours", "runs": len(rows), "changed": changed})


if __name__ == "__main__":
    main()
