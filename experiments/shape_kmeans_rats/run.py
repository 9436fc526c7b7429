"""Shape K-means on the real skulls: do the clusters find the ages?

    python -m experiments.shape_kmeans_rats.run [--seed 0] [--seeds 3] [--ages 7 14] [--quick]
        [--tree tree.png]

The skulls of 18 rats, at the ages given and at all eight, with K the number of ages. Ages score,
and do nothing else. Beside K-means: hierarchical clustering from the pairwise distances.
"""

import jax
import numpy as np

from diffclust.analysis import shape_hierarchy
from diffclust.data import load_landmarks
from diffclust.metrics import scores
from diffclust.models import ShapeKMeans
from experiments.harness import arguments, data_file, finish

METHODS = {
    "dr": {"distance": "fisher-rao", "variances": "isotropic"},
    "dd1": {"distance": "fisher-rao", "variances": "per_landmark"},
    "dd2": {"distance": "fisher-rao", "variances": "per_cluster"},
    "dw": {"distance": "wasserstein", "variances": "per_landmark"},
    "likelihood": {},
    "full likelihood": {"covariances": "full"},
}


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3},
        ages={"type": int, "nargs": "+", "default": [7, 14]},
        tree={"default": None, "help": "where to draw the hierarchy of all skulls"},
    )
    if args.quick:
        args.seeds = 1
    rats = load_landmarks(data_file("rats.npz"))
    age = np.asarray(rats.columns["age_days"], np.int64)
    figures = {}
    for ages in (args.ages, sorted(set(age.tolist()))):
        chosen = np.isin(age, ages)
        skulls, truth = rats.landmarks[chosen], age[chosen]
        for registration in ("similarity", "rigid"):
            name = f"{len(ages)} ages {registration}"
            figures[name] = {}
            for method, settings in METHODS.items():
                restarts = 4 if args.quick else 20
                model = ShapeKMeans(
                    len(ages), registration=registration, num_restarts=restarts, **settings
                )
                rows = []
                for seed in range(args.seed, args.seed + args.seeds):
                    result = model.fit(skulls, key=jax.random.key(seed))
                    rows.append((result.loss, scores(truth, result.assignments)))
                least = min(rows, key=lambda row: row[0])[1]
                figures[name][method] = {
                    "acc": [round(row["acc"], 3) for _, row in rows],
                    "ari": round(float(np.mean([row["ari"] for _, row in rows])), 3),
                    "least_loss_ari": round(least["ari"], 3),
                }
                print(name, method, figures[name][method], flush=True)
            for linkage in ("average", "complete", "ward"):
                model = ShapeKMeans(
                    1, distance="fisher-rao", variances="per_landmark", registration=registration
                )
                tree = shape_hierarchy(skulls, model=model, linkage=linkage)
                actual = scores(truth, tree.cut(len(ages)))
                figures[name][f"hierarchy, {linkage}"] = round(actual["ari"], 3)
                print(name, "hierarchy", linkage, round(actual["ari"], 3), flush=True)
    if args.tree is not None:
        from diffclust.plotting import dendrogram

        dendrogram(tree, names=truth).savefig(args.tree, dpi=100)
    finish({"experiment": "shape_kmeans_rats", **figures})


if __name__ == "__main__":
    main()
