"""How much of place, size and lightness lies between clusters: the classes, and plain K-means.

    python -m experiments.registration.nuisances [--seed 0] [--quick] [--limit 2000]

Unregistered images of the sets of `run`. Labels are clusters here: what they explain is what the
threshold of the warning must lie above.
"""

import jax

from diffclust.analysis.nuisances import nuisances_explained
from diffclust.models import KMeans
from experiments.harness import arguments, finish
from experiments.registration.run import FROM_TEST, WHOLE, data_of


def main():
    args = arguments(
        __doc__, limit={"type": int, "default": 2000, "help": "most images, drawn with the seed"}
    )
    sets, limit = [*WHOLE, *FROM_TEST], args.limit
    if args.quick:
        sets, limit = ["digits"], min(200, limit)
    shares = {}
    for name in sets:
        images, labels = data_of(name, args.seed, limit)
        clusters = KMeans(10).fit(images, key=jax.random.key(args.seed)).assignments
        for what, groups in (("classes", labels), ("kmeans", clusters)):
            found = nuisances_explained(images, groups)
            shares[f"{name}, {what}"] = {k: round(v, 2) for k, v in found.items()}
            print(f"{name:18s} {what:8s} {shares[f'{name}, {what}']}", flush=True)
    finish({"experiment": "registration.nuisances", **shares})


if __name__ == "__main__":
    main()
