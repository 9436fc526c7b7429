"""Coloured photographs of objects: every method as it comes, and with registration.

    python -m experiments.photographs.run [--seed 0] [--seeds 1] [--quick] [--limit 1000]
        [--sets plain grounds paper] [--methods pssc ...] [--registers none auto place upright]
        [--grounds auto colour keep]

The sets are made anew for every seed, which is also that of the method. `--limit` is the number of
images. Labels score, and nothing else.
"""

import time

import jax
import numpy as np

from diffclust.metrics import scores
from diffclust.models import MODELS
from diffclust.registration import choose_ink, votes_of
from experiments.harness import arguments, finish, mean_and_std, peak_memory_mb
from experiments.photographs.sets import SETS


def row_of(method, images, labels, register, ground, seed):
    start = time.perf_counter()
    model = MODELS[method](10, register=register, ground=ground)
    result = model.fit(images, key=jax.random.key(seed))
    figures = result.outcome.figures
    return {
        **{name: round(value, 4) for name, value in scores(labels, result.assignments).items()},
        **{name: round(figures[name], 4) for name in ("stability",) if name in figures},
        "least_cluster": int(result.counts.min()),
        "register": result.model.register,
        "ground": result.model.ground,
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    registers = ["none", "auto", "place", "upright"]
    grounds = ["auto", "none", "dark", "light", "colour", "keep"]
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 1, "help": "number of seeds, of sets and methods"},
        limit={"type": int, "default": 1000, "help": "images of a set"},
        sets={"nargs": "+", "default": ["plain", "grounds"], "choices": list(SETS)},
        methods={"nargs": "+", "default": ["kmeans", "pssc"], "choices": list(MODELS)},
        registers={"nargs": "+", "default": ["none", "auto"], "choices": registers},
        grounds={"nargs": "+", "default": ["auto"], "choices": grounds},
    )
    if args.quick:
        args.limit, args.sets, args.methods, args.registers = 40, ["plain"], ["kmeans"], ["auto"]
    figures = {}
    for name in args.sets:
        made = {}
        for seed in range(args.seed, args.seed + args.seeds):
            made[seed] = SETS[name](args.limit, seed)
            votes = votes_of(made[seed][0])
            share = np.quantile(votes[:, 4], 0.1)
            ink = choose_ink(votes, made[seed][0].shape[3])
            print(name, "seed", seed, "ink", ink, "main axis", round(share, 3), flush=True)
        for method in args.methods:
            for register in args.registers:
                for ground in args.grounds:
                    if register == "none" and ground != args.grounds[0]:
                        continue
                    rows = []
                    for seed, (images, labels) in made.items():
                        rows.append(row_of(method, images, labels, register, ground, seed))
                        print(f"{name:8s} {method:12s} {register:8s} {ground:7s}", seed, rows[-1])
                    figures[f"{name} {method} {register} {ground}"] = {
                        "acc": mean_and_std([row["acc"] for row in rows]),
                        "runs": rows,
                    }
    finish(
        {
            "experiment": "photographs",
            "limit": args.limit,
            **figures,
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
