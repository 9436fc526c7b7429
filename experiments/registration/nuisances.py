"""How much of place, size and lightness lies between clusters: the classes, and those of methods.

    python -m experiments.registration.nuisances [--seed 0] [--quick] [--limit 2000] [--sets ...]
        [--methods kmeans ...]

Unregistered images of the sets of `run`. Labels are clusters here: what they explain is what the
threshold of the warning must lie above.
"""

import jax

from diffclust.analysis.nuisances import nuisances_explained
from diffclust.models import MODELS
from experiments.harness import arguments, finish
from experiments.registration.run import FROM_TEST, METHODS, WHOLE, data_of


def main():
    every = [*WHOLE, *FROM_TEST]
    args = arguments(
        __doc__,
        limit={"type": int, "default": 2000, "help": "most images, drawn with the seed"},
        sets={"nargs": "+", "default": every, "choices": every},
        methods={"nargs": "+", "default": ["kmeans"], "choices": METHODS},
    )
    if args.quick:
        args.sets, args.limit = ["digits"], min(200, args.limit)
    shares = {}
    for name in args.sets:
        images, labels = data_of(name, args.seed, args.limit)
        clusters = {"classes": labels}
        for method in args.methods:
            model = MODELS[method].from_settings({"num_clusters": 10, "register": "none"})
            fit = model.fit(images, key=jax.random.key(args.seed))
            clusters[method] = fit.assignments
        for what, groups in clusters.items():
            found = nuisances_explained(images, groups)
            shares[f"{name}, {what}"] = {k: round(v, 2) for k, v in found.items()}
            print(f"{name:18s} {what:12s} {shares[f'{name}, {what}']}", flush=True)
    finish({"experiment": "registration.nuisances", **shares})


if __name__ == "__main__":
    main()
