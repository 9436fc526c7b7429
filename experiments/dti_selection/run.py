"""DTI clustering, App. C.2 and C.3: loss against accuracy over runs, and loss against K.

    python -m experiments.dti_selection.run [--seed 0] [--runs N] [--set usps] [--clusters ...]
        [--runs-each 2] [--as-published] [--results FILE]

Spearman's correlation over many runs says whether the loss may choose among them; the losses of
several K, their means over runs, have an elbow. FILE (JSON lines) keeps every run, and those that
it has are not run again. Labels are used to score and for nothing else.
"""

import numpy as np
import scipy.stats

from diffclust.analysis import elbow
from experiments.dti import (
    CHANGED,
    SETS,
    changed_of,
    changed_words,
    data_of,
    model_of,
    run,
    summary,
)
from experiments.harness import (
    RESULTS,
    SOURCE,
    arguments,
    asked_runs,
    datasets,
    finish,
    source_words,
)

NAMES = ("set", "settings", "limit", "steps", "k", "seed")
"""What tells runs apart."""


def main():
    args = arguments(
        __doc__,
        runs={"type": int, "default": 20, "help": "runs with the true K"},
        set={"default": "usps", "choices": list(SETS)},
        clusters={"nargs": "*", "type": int, "default": [6, 8, 12, 14], "help": "other K"},
        runs_each={"type": int, "default": 2, "help": "runs with each other K"},
        steps={"nargs": 5, "type": int, "default": [200, 500, 500, 500, 200]},
        limit={"type": int, "default": 3000, "help": "at most so many images"},
        as_published={"action": "store_true", "help": "the authors' settings, steps included"},
        **CHANGED,
        **SOURCE,
        **RESULTS,
    )
    if args.quick:
        args.runs, args.clusters, args.runs_each, args.limit = 3, [2, 4], 1, 120
        args.steps = [10, 10, 10, 10, 10]
    [(name, data, true)] = datasets(args, lambda name: data_of(name, args.limit), [args.set])

    words = changed_words(args, "dti-kmeans") or ["default"]
    words = ["as published"] if args.as_published else words
    label = ", ".join([*words, *source_words(args)])
    steps = None if args.as_published else "-".join(map(str, args.steps))

    def one(name, label, limit, steps, k, seed):
        given = {"steps": tuple(args.steps), **changed_of(args, "dti-kmeans")}
        model = model_of(
            "dti-kmeans",
            name,
            num_clusters=k,
            as_published=args.as_published,
            **({} if args.as_published else given),
        )
        return run(model, data, seed, f"{name} K={k}")

    def fits(clusters, count):
        seeds = range(args.seed, args.seed + count)
        asked = [(name, label, args.limit, steps, clusters, seed) for seed in seeds]
        return asked_runs(args.results, NAMES, asked, one)

    rows = fits(true, args.runs)
    losses, accuracies = ([row[name] for row in rows] for name in ("loss", "acc"))
    correlation = float(scipy.stats.spearmanr(losses, accuracies).statistic)
    by_k = {k: fits(k, args.runs_each) for k in args.clusters} | {true: rows[: args.runs_each]}
    counts = sorted(by_k)
    curve = {k: [round(r["loss"], 4) for r in by_k[k]] for k in counts}
    means = [float(np.mean(curve[k])) for k in counts]
    figures = {
        "set": name,
        "n": len(data),
        "steps": steps,
        "spearman_loss_accuracy": round(correlation, 3),
        **summary(rows),
        "loss_by_k": curve,
        "mean_loss_by_k": dict(zip(counts, means, strict=True)),
        "elbow": elbow(counts, means),
    }
    finish({"experiment": "dti_selection", **figures})


if __name__ == "__main__":
    main()
