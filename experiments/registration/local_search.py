"""What it gains to move single samples to other clusters while that lowers the normalised cut.

    python -m experiments.registration.local_search [--seed 0] [--seeds 2] [--quick] [--sets ...]
        [--methods pssc di-spectral] [--results FILE]

On the development sets of `frames`: accuracy and normalised cut of the steadier of two cuts, as
k-means of the eigenvectors leaves it and after `refined_cut`. FILE (JSON lines) keeps every run,
and those that it has are not run again. Labels score, and nothing else.
"""

import string

import jax
import numpy as np

from diffclust._random import split_key
from diffclust.graphs import mean_graph, normalised_cut, refined_cut
from diffclust.metrics import accuracy
from diffclust.models import MODELS
from diffclust.models.mean_graph import cuts_of_mean_graph, steadier_cut
from experiments.gallery.run import some_letters
from experiments.harness import arguments, asked_runs, finish
from experiments.registration import balance, frames


def fonts(seed):
    """The 26 letters in 21 fonts each."""
    return some_letters(21, np.random.default_rng(seed), string.ascii_uppercase)


SETS = {**frames.SETS, "fonts, 546": fonts}


def row_of(name, method, seed):
    images, labels = SETS[name](seed)
    k = len(np.unique(labels))
    ((_, graphs),) = balance.graphs_of(method, images, k, ["as it is"])
    # As the fit with this seed cuts them.
    restarts, key = MODELS[method](k).num_restarts, split_key(jax.random.key(seed), 2, 0)
    graph = mean_graph(graphs)
    cut = steadier_cut(*cuts_of_mean_graph(graph, graphs, k, restarts, key))
    before = cut.points.assignments
    after = refined_cut(graph, before, num_clusters=k)
    each = {"before": before, "after": after}
    return {
        **{f"acc_{name}": round(accuracy(labels, found), 4) for name, found in each.items()},
        **{
            f"cut_{name}": round(normalised_cut(graph, found, num_clusters=k), 4)
            for name, found in each.items()
        },
        "moved": int(np.sum(before != after)),
    }


def main():
    args = arguments(
        __doc__,
        methods={"nargs": "+", "default": frames.METHODS, "choices": frames.METHODS},
        **frames.options(SETS),
    )
    if args.quick:
        args.sets, args.methods, args.seeds = ["letters, 1,000"], ["pssc"], 1
        SETS["letters, 1,000"] = lambda seed: frames.pictures.SETS["letters"](48, seed)
        args.results = None  # where these letters would be taken for 1,000
    rows = asked_runs(args.results, ("set", "method", "seed"), frames.asked(args), row_of)
    means = {}
    for name in args.sets:
        for method in args.methods:
            own = [row for row in rows if (row["set"], row["method"]) == (name, method)]
            both = [float(np.mean([r[f"acc_{n}"] for r in own])) for n in ("before", "after")]
            means[f"{name} | {method}"] = [round(acc, 4) for acc in both]
            print(f"{name:20s} {method:12s}", *means[f"{name} | {method}"])
    finish({"experiment": "registration_local_search", **means})


if __name__ == "__main__":
    main()
