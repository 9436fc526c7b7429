"""Where EM steps on the evidence lead the penalty weights: from what the defaults were rounded.

    python -m experiments.di_kmeans_selection.learn [--seed 0] [--quick]

DI K-means with `penalty_rounds=6` on up to 600 images of three sets, from one pair of weights. No
labels are read.
"""

import jax
import numpy as np

import diffclust
from diffclust.data import load
from experiments.harness import arguments, finish


def main():
    args = arguments(__doc__)
    model = diffclust.DeformationInvariantKMeans(
        10,
        affine_penalty=0.3,
        bending_penalty=0.016,
        num_restarts=1,
        max_passes=2 if args.quick else 8,
        penalty_rounds=1 if args.quick else 6,
    )
    figures = {}
    for name in ("digits",) if args.quick else ("digits", "mnist", "usps"):
        split = "all" if name == "digits" else "test"
        data = load(name, split=split).limit(60 if args.quick else 600, seed=0)
        result = model.fit(data.images, key=jax.random.key(args.seed))
        weights = np.asarray(result.outcome.learned.clusters.penalty)[0]
        figures[name] = [round(float(w), 4) for w in weights]
        print(name, "affine, bending:", figures[name], flush=True)
    finish(
        {
            "experiment": "di_kmeans_selection.learn",
            "seed": args.seed,
            "start": list(model.penalty()),
            "learned": figures,
        }
    )


if __name__ == "__main__":
    main()
