"""Images aligned by DTI K-means, then clustered by a graph.

    python -m experiments.registration.aligned [--seed 0] [--seeds 1] [--quick] [--limit 2000]
        [--split train] [--sets textured cluttered ...] [--steps 200 600 600 800 200]
        [--results FILE]

Registration cannot tell clutter and strong texture from the object, and a prototype can. So DTI
K-means is fitted with `--register auto`, every image is moved back onto its prototype by the
inverse of the predicted map (`Result.align`), and PSSC and `di-spectral` cluster the result,
without registration. Beside them: DTI K-means itself, and both methods on the images as they came,
registered by `auto`. The sets are those of `experiments.registration.development`, made of digits
of MNIST's training or test set. Labels score, and nothing else.
"""

import time

import jax
import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import MODELS
from experiments.harness import RESULTS, arguments, asked_runs, finish
from experiments.registration.development import SETS
from experiments.registration.run import STEPS

GRAPHS = ("pssc", "di-spectral")


def row_of(name, split, limit, steps, seed):
    """The accuracies, NMIs and stabilities of one set."""
    data = load("mnist", split=split, limit=limit, seed=seed)
    images = np.asarray(SETS[name](data.images, data.labels, seed))
    key, row = jax.random.key(seed), {"n": len(images)}

    def fitted(title, method, given, **settings):
        start = time.perf_counter()
        result = MODELS[method].from_settings({"num_clusters": 10, **settings}).fit(given, key=key)
        found = scores(data.labels, result.assignments)
        found |= {k: v for k, v in result.outcome.figures.items() if k == "stability"}
        row[title] = {k: round(float(v), 4) for k, v in found.items()}
        row[title]["seconds"] = round(time.perf_counter() - start, 1)
        print(name, seed, title, row[title], flush=True)
        return result

    steps = tuple(map(int, steps.split()))
    prototypes = fitted("dti-kmeans", "dti-kmeans", images, register="auto", steps=steps)
    aligned = prototypes.align(images, prototypes.outcome.assignment.params)
    for method in GRAPHS:
        fitted(f"{method}, aligned", method, aligned, register="none")
        fitted(f"{method}, registered", method, images, register="auto")
    return row


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 1, "help": "seeds, of sets and methods"},
        limit={"type": int, "default": 2000, "help": "images of each set"},
        split={"default": "train", "choices": ["train", "test"], "help": "of MNIST"},
        sets={"nargs": "+", "default": ["textured", "cluttered"], "choices": list(SETS)},
        steps={"type": int, "nargs": 5, "default": STEPS, "help": "of DTI K-means' phases"},
        **RESULTS,
    )
    if args.quick:
        args.limit, args.sets, args.steps = 60, ["affnist"], (2, 2, 2, 2, 2)
    steps = " ".join(map(str, args.steps))
    asked = [
        (name, args.split, args.limit, steps, seed)
        for name in args.sets
        for seed in range(args.seed, args.seed + args.seeds)
    ]
    rows = asked_runs(args.results, ("set", "split", "limit", "steps", "seed"), asked, row_of)
    finish({"experiment": "registration_aligned", "runs": rows})


if __name__ == "__main__":
    main()
