"""Are splines worth their price where place, size and slant are taken out already?

    python -m experiments.registration.splines [--seed 0] [--seeds 3] [--quick] [--limit 2000]

On MNIST's training digits, as they are and moved: candidates among upright images, judged upright
and placed by splines (the default) and by affine maps alone. Labels score, and nothing else.
"""

import time

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import cut_mean_graph
from diffclust.parallel import Data
from diffclust.registration import Frame
from experiments.di_spectral_ablation.run import affine_only
from experiments.harness import arguments, finish, mean_and_std
from experiments.registration.development import SETS

MODEL = diffclust.DeformationInvariantSpectralClustering(10, register="none")
FRAMES = ("upright", "place")


def row_of(images, labels, key):
    """Accuracy by each way of judging and the seconds of both, compiling included."""
    framed = [np.asarray(Frame(place).registered(images)) for place in FRAMES]
    _, coordinates = MODEL.project(Data(framed[0]))
    candidates = MODEL.neighbours(coordinates)
    judges = {
        "splines": lambda each: MODEL.rerank(candidates, each),
        "affine": lambda each: affine_only(MODEL, each, candidates),
    }
    row = {}
    for name, judge in judges.items():
        start = time.perf_counter()
        near = [result for each in framed for result in judge(each)]
        row[f"{name} seconds"] = round(time.perf_counter() - start, 1)
        cut = cut_mean_graph(near, MODEL.neighbour_numbers, 10, MODEL.num_restarts, key)
        row[name] = round(scores(labels, cut.points.assignments)["acc"], 4)
    return row


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "draws of digits"},
        limit={"type": int, "default": 2000, "help": "digits a draw"},
    )
    if args.quick:
        args.seeds, args.limit = 1, 200
    figures = {}
    for name in ("mnist", "affnist"):
        rows = []
        for seed in range(args.seed, args.seed + args.seeds):
            digits = load("mnist", split="train", limit=args.limit, seed=seed)
            images = SETS[name](digits.images, digits.labels, seed)
            rows.append(row_of(images, digits.labels, jax.random.key(seed)))
            print(name, "seed", seed, rows[-1], flush=True)
        figures[name] = {each: mean_and_std([row[each] for row in rows]) for each in rows[0]}
    finish({"experiment": "registration_splines", "limit": args.limit, **figures})


if __name__ == "__main__":
    main()
