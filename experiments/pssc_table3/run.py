"""PSSC, Table 3: MNIST, MNIST-test and USPS, the paper's preset beside the library's default.

    python -m experiments.pssc_table3.run [--seed 0] [--quick] [--limit N] [--sets ...]

Images are laid on a 32×32 canvas. One recipe for all sets. Features and neighbours involve no
chance, so they are computed once; each seed draws its own representatives (the paper's preset),
starting vectors and k-means seeds. Labels are used to score and for nothing else.
"""

import time

import jax

from diffclust.data import load
from diffclust.models import ProjectedScatteringSpectralClustering, cut_mean_graph
from diffclust.parallel import Data
from experiments.harness import SOURCE, arguments, datasets, finish, peak_memory_mb, scored

PAPER = {
    "mnist": {"acc": 0.965, "nmi": 0.913},
    "mnist-test": {"acc": 0.967, "nmi": 0.919},
    "usps": {"acc": 0.957, "nmi": 0.898},
}


def images_of(name, limit):
    data = load("mnist", split="test") if name == "mnist-test" else load(name)
    return data if limit is None else data.limit(limit, seed=0)


def uspec(model, coordinates, key):
    """U-SPEC, with representatives of its own for each number of removed directions."""
    near = [model.near_representatives(coordinates, n, key) for n in model.removed]
    return model.cut_through_representatives(near, key)


def runs_of(model, images, seeds):
    """Seconds of what is common to all seeds, and each seed's findings and seconds."""
    start = time.perf_counter()
    _, coordinates = model.project(Data(images))
    by_graph = model.affinity == "graph"
    neighbours = model.neighbours(coordinates) if by_graph else None
    common = time.perf_counter() - start
    runs = []
    for seed in seeds:
        start = time.perf_counter()
        key = jax.random.key(seed)
        if neighbours is None:
            result = uspec(model, coordinates, key)
        else:
            result = cut_mean_graph(
                neighbours, model.neighbour_numbers, model.num_clusters, model.num_restarts, key
            )
        runs.append((seed, result, time.perf_counter() - start))
    return common, runs


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        sets={"nargs": "+", "default": ["usps", "mnist-test", "mnist"], "choices": list(PAPER)},
        **SOURCE,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 400, ["usps"]
    figures = {}
    for name, data, k in datasets(args, lambda name: images_of(name, args.limit), args.sets):
        models = {
            "as published": ProjectedScatteringSpectralClustering.as_published(k),
            "default": ProjectedScatteringSpectralClustering(k, affinity="graph", register="none"),
        }
        figures[name] = {"n": len(data), "paper": PAPER.get(name)}
        for label, model in models.items():
            seeds = range(args.seed, args.seed + args.seeds)
            common, runs = runs_of(model, data.images, seeds)
            prefix = f"{name:10s} N={len(data)} {label:12s} common={common:.0f}s"
            figures[name][label] = scored(prefix, runs, data.labels)
        print(name, figures[name], flush=True)
    finish(
        {
            "experiment": "pssc_table3",
            "seeds": args.seeds,
            **figures,
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
