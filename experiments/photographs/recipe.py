"""PSSC on photographs as it comes, with coefficients relative to contrast, and by the recipe.

    python -m experiments.photographs.recipe [--seed 0] [--seeds 1] [--quick] [--limit 1000]
        [--sets plain grounds paper]

The graph's cut alone: prototypes, which decide nothing, are not made. Labels score, and nothing
else.
"""

import time

import jax
import numpy as np

from diffclust.metrics import scores
from diffclust.models import ProjectedScatteringSpectralClustering, cut_mean_graph
from diffclust.parallel import Data
from experiments.harness import arguments, finish, mean_and_std
from experiments.photographs.sets import SETS

SIDE = 48
RECIPES = {
    "as it comes": (64, {}),
    "relative": (SIDE, {"relative": True, "num_scales": 3}),
    "recipe": (
        SIDE,
        {"relative": True, "num_scales": 3, "register": "place", "ground": "keep"},
    ),
}


def row_of(images, labels, side, settings, seed):
    start = time.perf_counter()
    shape = (len(images), side, side, images.shape[3])
    if shape != images.shape:
        images = np.asarray(jax.image.resize(images, shape, "linear", antialias=True))
    model = ProjectedScatteringSpectralClustering(10, **{"register": "none", **settings})
    data = Data(model.prepared(images))
    _, coordinates = model.without_registration.project(data)
    cut = cut_mean_graph(
        model.neighbours(coordinates), model.neighbour_numbers, 10, 4, jax.random.key(seed)
    )
    return {
        **{k: round(v, 4) for k, v in scores(labels, cut.points.assignments).items()},
        "stability": round(cut.figures["stability"], 4),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 1, "help": "number of seeds, of sets and methods"},
        limit={"type": int, "default": 1000, "help": "images of a set"},
        sets={"nargs": "+", "default": ["plain", "grounds"], "choices": list(SETS)},
    )
    if args.quick:
        args.limit, args.sets = 60, ["plain"]
    figures = {}
    for name in args.sets:
        rows = {recipe: [] for recipe in RECIPES}
        for seed in range(args.seed, args.seed + args.seeds):
            images, labels = SETS[name](args.limit, seed)
            for recipe, (side, settings) in RECIPES.items():
                rows[recipe].append(row_of(images, labels, side, settings, seed))
                print(f"{name:8s} {recipe:12s} seed {seed}", rows[recipe][-1], flush=True)
        figures[name] = {
            recipe: {"acc": mean_and_std([row["acc"] for row in runs]), "runs": runs}
            for recipe, runs in rows.items()
        }
    finish({"experiment": "photographs_recipe", "limit": args.limit, **figures})


if __name__ == "__main__":
    main()
