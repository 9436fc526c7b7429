"""How many leading directions to remove: one number, or the mean graph over several?

    python -m experiments.di_spectral_ablation.removed [--seed 0] [--quick]

On USPS, the MNIST test digits and the bundled digits, and on some of their classes alone: with two
or three groups the leading directions may be what tells them apart. Labels choose the classes, and
score.
"""

import dataclasses

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import cut_mean_graph
from diffclust.parallel import Data
from experiments.harness import arguments, finish

SETS = {"usps": ("usps", "all"), "mnist-test": ("mnist", "test"), "digits": ("digits", "all")}
CLASSES = (
    range(10),
    (0, 1),
    (1, 7),
    (3, 5, 8),
    (4, 7, 9),
    (0, 6, 8),
    (2, 3, 5, 6),
    range(5),
    range(5, 10),
)
REMOVED = ((2,), (1, 2, 3, 4), (0, 1, 2, 3, 4))


def main():
    args = arguments(__doc__)
    sets, classes = list(SETS), CLASSES
    if args.quick:
        sets, classes = ["digits"], ((0, 1),)
    key, rows = jax.random.key(args.seed), {}
    for name in sets:
        source, split = SETS[name]
        whole = load(source, split=split)
        for chosen in classes:
            kept = np.isin(whole.labels, chosen)
            images, labels = whole.images[kept], whole.labels[kept]
            model = diffclust.DeformationInvariantSpectralClustering(len(chosen))
            _, coordinates = model.project(Data(images))
            result = {}
            for removed in REMOVED:
                model = dataclasses.replace(model, num_removed=removed)
                judged = model.rerank(model.neighbours(coordinates), images)
                settings = (model.neighbour_numbers, len(chosen), model.num_restarts, key)
                cut = cut_mean_graph(judged, *settings)
                result[str(removed)] = {
                    "acc": round(scores(labels, cut.points.assignments)["acc"], 4),
                    **{k: round(v, 3) for k, v in cut.figures.items() if k == "stability"},
                }
            row = f"{name} {','.join(map(str, chosen))}"
            rows[row] = {"n": len(images), **result}
            print(f"{row:32s} {rows[row]}", flush=True)
    means = {
        str(removed): round(float(np.mean([row[str(removed)]["acc"] for row in rows.values()])), 4)
        for removed in REMOVED
    }
    finish({"experiment": "di_spectral_removed", "seed": args.seed, "mean_acc": means, **rows})


if __name__ == "__main__":
    main()
