"""How many directions PSSC should remove where there are few clusters.

    python -m experiments.default_method.few [--seed 0] [--seeds 4] [--quick] [--each 60]
        [--sets mnist usps ...] [--clusters 2 3 ...] [--method pssc] [--results FILE]

Of each set some kinds are drawn by the seed, `--each` images of each. Registration and scattering
features are computed once; the graph is cut without 0, 1, 2, ... leading directions, and so is the
mean of graphs. Labels draw the kinds and score, and do nothing else.
"""

import dataclasses

import jax
import numpy as np

from diffclust.metrics import accuracy
from diffclust.models import (
    DeformationInvariantSpectralClustering,
    ProjectedScatteringSpectralClustering,
    cut_mean_graph,
)
from diffclust.solvers import ignore
from experiments.default_method.run import SETS
from experiments.harness import RESULTS, arguments, asked_runs, finish

EACH = 60
"""Images of a kind, where nothing else is asked for."""
REMOVED = {
    f"{first}-{last}": tuple(range(first, last + 1))
    for first in range(5)
    for last in range(first, 5)
}


def drawn(name, count, each, seed):
    """Images of some kinds, and their labels."""
    images, labels = SETS[name](max(1000, 10 * each), seed)
    rng = np.random.default_rng(seed)
    kinds = rng.choice(np.unique(labels), count, replace=False)
    index = np.concatenate([np.flatnonzero(labels == kind)[:each] for kind in kinds])
    index = np.sort(index)
    return images[index], labels[index]


def row_by_bending(name, count, seed, each):
    """Accuracies of `di-spectral` on one draw; every setting is a fit of its own."""
    images, labels = drawn(name, count, each, seed)
    row = {"n": len(images)}
    for numbers in ("0-0", "0-3", "1-4"):
        model = DeformationInvariantSpectralClustering(count, num_removed=REMOVED[numbers])
        result = model.fit(images, key=jax.random.key(seed), callback=ignore)
        row[numbers] = round(float(accuracy(labels, result.assignments)), 4)
    return row


def row_of(name, count, seed, each):
    """Accuracies of all mean graphs on one draw."""
    images, labels = drawn(name, count, each, seed)
    model = ProjectedScatteringSpectralClustering(count, num_removed=(0, 1, 2, 3, 4))
    fitted = model.fit(images, key=jax.random.key(seed), callback=ignore)
    coordinates = fitted.outcome.extras["coordinates"]
    row = {"n": len(images)}
    for numbers, removed in REMOVED.items():
        one = dataclasses.replace(model, num_removed=removed)
        near = one.neighbours(coordinates)
        key = jax.random.key(seed)
        cut = cut_mean_graph(near, one.neighbour_numbers, count, one.num_restarts, key)
        row[numbers] = round(float(accuracy(labels, cut.points.assignments)), 4)
    return row


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 4, "help": "number of seeds"},
        each={"type": int, "default": EACH, "help": "images of a kind"},
        sets={"nargs": "+", "default": list(SETS), "choices": list(SETS)},
        clusters={"nargs": "+", "type": int, "default": [2, 3, 4, 5, 6, 8, 10]},
        method={"default": "pssc", "choices": ["pssc", "di-spectral"]},
        **RESULTS,
    )
    runs = {"pssc": row_of, "di-spectral": row_by_bending}
    if args.quick:
        args.seeds, args.each, args.sets, args.clusters = 1, 12, ["letters"], [2]
    asked = [
        (name, count, seed)
        for seed in range(args.seed, args.seed + args.seeds)
        for name in args.sets
        for count in args.clusters
        if name != "letters" or count <= 8  # there are eight kinds of letters
    ]
    rows = asked_runs(
        args.results,
        ("set", "clusters", "seed", "each", "method"),
        [(*each, args.each, args.method) for each in asked],
        lambda *each: runs[each[-1]](*each[:-1]),
        {"each": EACH, "method": "pssc"},
    )
    table = {}
    for count in sorted({row["clusters"] for row in rows}):
        of = [row for row in rows if row["clusters"] == count]
        table[count] = {
            w: round(float(np.mean([row[w] for row in of])), 3) for w in REMOVED if w in of[0]
        }
        best = sorted(table[count].items(), key=lambda item: -item[1])
        print(count, len(of), " ".join(f"{numbers}: {mean}" for numbers, mean in best))
    finish({"experiment": "default_method.few", **table})


if __name__ == "__main__":
    main()
