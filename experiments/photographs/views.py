"""Photographs seen in several ways: placed or not, scattering coefficients relative or not.

    python -m experiments.photographs.views [--seed 0] [--seeds 3] [--quick] [--limit 1000]
        [--sets plain grounds paper ...] [--results FILE]

The mean graph of every choice of four views is cut: registered as `--register auto` does it (F),
the same with coefficients relative to contrast (f), not registered (R), and that with relative ones
(r). The sets are those of `experiments.default_method`. Labels score, and nothing else.
"""

import itertools

import jax
import numpy as np

from diffclust.graphs import mean_graph, self_tuning_affinity, spectral_embedding
from diffclust.metrics import scores
from diffclust.models import ProjectedScatteringSpectralClustering, cut_mean_graph
from diffclust.parallel import Data
from diffclust.solvers import kmeans
from experiments.default_method.run import SETS
from experiments.harness import RESULTS, arguments, asked_runs, finish

VIEWS = {
    "F": {"relative": False},
    "f": {"relative": True},
    "R": {"register": "none", "relative": False},
    "r": {"register": "none", "relative": True},
}
CHOICES = ["".join(c) for n in range(1, 5) for c in itertools.combinations(VIEWS, n)]
LIMIT = 1000
"""Images of a set, where nothing else is asked for."""
OF_SETS = {
    "seeds": {"type": int, "default": 3, "help": "number of seeds, of sets and methods"},
    "limit": {"type": int, "default": LIMIT, "help": "images of a set"},
    "sets": {"nargs": "+", "default": ["plain", "grounds", "paper"], "choices": list(SETS)},
}
"""Options of the commands that cluster the sets."""


def neighbours_of(images, count, settings):
    """PSSC with a view's settings, and the neighbours that it finds."""
    model = ProjectedScatteringSpectralClustering(count, **settings).resolved(Data(images))
    data = model.data_in_prototype_frame(Data(np.asarray(model.frame.registered(images))))
    return model, model.neighbours(model.project(data)[1])


def cut_of_views(images, count, views, key):
    """The cut of the mean graph of several views, each with settings of its own."""
    near = []
    for settings in views:
        model, every = neighbours_of(images, count, settings)
        near += every
    return cut_mean_graph(near, model.neighbour_numbers, count, model.num_restarts, key)


def graph_of(images, count, settings):
    """The mean graph of one view, and the ground that was found."""
    model, every = neighbours_of(images, count, settings)
    graphs = [
        mean_graph([self_tuning_affinity(near, num_neighbours=k) for k in model.neighbour_numbers])
        for near in every
    ]
    return mean_graph(graphs), model.ground


def row_of(name, seed, limit):
    """Accuracy and NMI by every choice of views."""
    images, labels = SETS[name](limit, seed)
    count, key = len(np.unique(labels)), jax.random.key(seed)
    result = {view: graph_of(images, count, settings) for view, settings in VIEWS.items()}
    row = {"ground": result["F"][1]}
    for choice in CHOICES:
        graph = mean_graph([result[view][0] for view in choice])
        vectors = spectral_embedding(graph, count, key=key).vectors
        points = kmeans(vectors, count, num_restarts=4, key=key)
        figures = scores(labels, points.assignments)
        row[choice] = [round(float(figures[each]), 4) for each in ("acc", "nmi")]
    return row


def main():
    args = arguments(
        __doc__,
        **OF_SETS,
        **RESULTS,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 60, ["plain"]
    asked = [(n, s) for s in range(args.seed, args.seed + args.seeds) for n in args.sets]
    rows = asked_runs(
        args.results,
        ("set", "seed", "limit"),
        [(*each, args.limit) for each in asked],
        row_of,
        {"limit": LIMIT},
    )
    means = {}
    for name in dict.fromkeys(row["set"] for row in rows):
        of = [row for row in rows if row["set"] == name]
        mean = {c: np.mean([row[c] for row in of], axis=0).round(3).tolist() for c in CHOICES}
        print(name, len(of), *(f"{c}: {acc:.3f} {nmi:.3f}" for c, (acc, nmi) in mean.items()))
        means[name] = mean
    finish({"experiment": "photographs_views", "limit": args.limit, **means})


if __name__ == "__main__":
    main()
