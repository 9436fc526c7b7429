"""Spectral clustering on a graph judged by deformation-invariant distances.

    python -m experiments.di_spectral.run [--seed 0] [--quick] [--limit N] [--sets ...]

One recipe for all sets: the library's default, without registration. Features, neighbours and
judged pairs involve no chance, so they are computed once; each seed draws its own starting vectors
and k-means seeds. Also the graph before it is refined (the candidates' own distances), as the
trial's table has it. Labels are used to score and for nothing else.
"""

import time

import jax

import diffclust
from diffclust.models import cut_mean_graph
from diffclust.parallel import Data
from experiments.harness import SOURCE, arguments, datasets, finish, peak_memory_mb, scored
from experiments.pssc_table3.run import images_of

BEST_IN_PAPERS = {
    "mnist": {"acc": 0.986, "nmi": 0.961},
    "mnist-test": {"acc": 0.985, "nmi": 0.957},
    "usps": {"acc": 0.981, "nmi": 0.948},
}


def graphs_of(model, images):
    """Candidates by scattering and the same judged anew, and the seconds of each stage."""
    start = time.perf_counter()
    _, coordinates = model.project(Data(images))
    features = time.perf_counter()
    candidates = model.neighbours(coordinates)
    searched = time.perf_counter()
    judged = model.rerank(candidates, images)
    ended = time.perf_counter()
    seconds = {
        "features": round(features - start, 1),
        "neighbours": round(searched - features, 1),
        "pairs": round(ended - searched, 1),
    }
    return candidates, judged, seconds


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        sets={
            "nargs": "+",
            "default": ["usps", "mnist-test", "mnist"],
            "choices": list(BEST_IN_PAPERS),
        },
        **SOURCE,
        removed={"nargs": "+", "type": int, "default": None, "help": "numbers of directions"},
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 400, ["usps"]
    settings = {} if args.removed is None else {"num_removed": tuple(args.removed)}
    figures = {}
    for name, data, k in datasets(args, lambda name: images_of(name, args.limit), args.sets):
        model = diffclust.DeformationInvariantSpectralClustering(k, **settings)
        candidates, judged, seconds = graphs_of(model, data.images)
        print(name, seconds, flush=True)
        figures[name] = {"n": len(data), "seconds": seconds, "papers": BEST_IN_PAPERS.get(name)}
        for label, neighbours in (("scattering graph", candidates), ("refined", judged)):
            runs = []
            for seed in range(args.seed, args.seed + args.seeds):
                start = time.perf_counter()
                result = cut_mean_graph(
                    neighbours,
                    model.neighbour_numbers,
                    model.num_clusters,
                    model.num_restarts,
                    jax.random.key(seed),
                )
                runs.append((seed, result, time.perf_counter() - start))
            prefix = f"{name:10s} N={len(data)} {label:16s}"
            figures[name][label] = scored(prefix, runs, data.labels)
        print(name, figures[name], flush=True)
    finish(
        {
            "experiment": "di_spectral",
            "seeds": args.seeds,
            **figures,
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
