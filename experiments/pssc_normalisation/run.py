"""What to do to scattering coefficients before their principal directions are sought.

    python -m experiments.pssc_normalisation.run [--seed 0] [--quick] [--limit N] [--sets ...]

The four normalisations on several sets, through the default (the mean graph) and through U-SPEC
with n = 2, p = 1,000 and k = 5, both with 300 directions. Labels are used to score and for nothing
else; the normalised cut is printed beside the accuracy, for what can be known without them.
"""

import jax
import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import ProjectedScatteringSpectralClustering, cut_mean_graph
from diffclust.parallel import Data
from experiments.harness import SOURCE, arguments, datasets, finish
from experiments.pssc_table3.run import images_of, uspec

SETS = ("digits", "usps", "mnist-test", "affine-mnist", "diffeo-mnist")


def data_of(name, limit):
    if name in ("usps", "mnist-test"):
        return images_of(name, limit)
    data = load(name)
    return data if limit is None else data.limit(limit, seed=0)


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        sets={"nargs": "+", "default": list(SETS), "choices": SETS},
        **SOURCE,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 300, ["digits"]
    figures = {}
    for name, data, k in datasets(args, lambda name: data_of(name, args.limit), args.sets):
        figures[name] = {"n": len(data)}
        for normalisation in ("none", "largest", "root", "standardise"):
            graph = ProjectedScatteringSpectralClustering(
                k, normalisation=normalisation, register="none"
            )
            published = ProjectedScatteringSpectralClustering(
                k,
                normalisation=normalisation,
                num_removed=(2,),
                num_neighbours=(5,),
                register="none",
            )
            _, coordinates = graph.project(Data(data.images))
            neighbours = graph.neighbours(coordinates)
            result = {"graph": [], "uspec": []}
            for seed in range(args.seed, args.seed + args.seeds):
                key = jax.random.key(seed)
                result["graph"].append(
                    cut_mean_graph(neighbours, graph.neighbour_numbers, k, graph.num_restarts, key)
                )
                result["uspec"].append(uspec(published, coordinates, key))
            row = {}
            for kind, runs in result.items():
                accuracy = [scores(data.labels, run.points.assignments)["acc"] for run in runs]
                row[kind] = {
                    "acc": round(float(np.mean(accuracy)), 4),
                    "std": round(float(np.std(accuracy)), 4),
                    "cut": round(float(np.mean([run.loss for run in runs])), 4),
                }
            figures[name][normalisation] = row
            print(f"{name:13s} N={len(data)} {normalisation:12s} {row}", flush=True)
    finish({"experiment": "pssc_normalisation", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
