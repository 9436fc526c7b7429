"""DI K-means, Fig. 5: which label-free figure should choose grids, penalties and step counts?

    python -m experiments.di_kmeans_selection.run [--seed 0] [--quick] [--limit 300]

Every setting (landmark grid × penalty weights × number of descent steps, the part of the papers'
step sizes) is fitted once from the same start. Beside the accuracy stand three figures that need
no labels: the distortion of Eq. 2 without penalties, the penalised distortion, and the
log-evidence a sample; and the distance of the setting's weights from those that EM steps on the
evidence lead to. Spearman's rank correlations with the accuracy say which of them to trust.
"""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import diffclust
from diffclust.alignment import Descent, Stage
from diffclust.data import load
from diffclust.distances import SquaredEuclidean
from diffclust.energies import em_step, estimate_noise, log_evidence
from diffclust.metrics import accuracy
from diffclust.parallel import Data
from diffclust.solvers import (
    Lloyd,
    LloydPlan,
    LloydProblem,
    SplitMerge,
    Stopping,
    ignore,
    kmeans_plus_plus,
)
from diffclust.solvers.penalty_learning import warp_statistics
from experiments.harness import SOURCE, arguments, datasets, finish


def setting(images, k, side, affine, bending, steps, seed):
    """One fit, and what the label-free figures make of it."""
    model = diffclust.DeformationInvariantKMeans(
        k, landmarks=(side, side), affine_penalty=affine, bending_penalty=bending
    )
    stages = (
        Stage(max(1, round(8 * steps)), blur=1 / 14, affine=True),
        Stage(max(1, round(8 * steps)), blur=1 / 14),
        Stage(max(1, round(12 * steps))),
    )
    solver = Lloyd(model.energy(), Descent(stages), model.family())
    factor = model.coarsening(*images.shape[1:3])
    plan = LloydPlan(k, model.penalty(), 1, Stopping(15, 2e-3), SplitMerge(rounds=5), factor)
    data, key = Data(images, chunk_size=512), jax.random.key(seed)
    finest = LloydProblem(solver, plan).level(data, 1)
    seeds = kmeans_plus_plus(finest, k, SquaredEuclidean().to_all, key=key)
    problem = LloydProblem(solver, plan, ("prototypes", jnp.asarray(images[seeds])))
    state = problem.init(data, key)
    # Without the refinement at full resolution: settings are compared as restarts are.
    while state.position["stage"] == "restarts":
        state = problem.advance(data, state, ignore)
    run = state.arrays.best
    chunks = problem.level(data, factor)
    return run, chunks, warp_statistics(solver, chunks, run)


def main():
    args = arguments(__doc__, limit={"type": int, "default": 300, "help": "images"}, **SOURCE)
    if args.quick:
        args.limit = 60
    named = functools.partial(load, split="test", limit=args.limit, seed=0)
    [(_, data, k)] = datasets(args, named, ["mnist"])
    sides = (4,) if args.quick else (3, 5, 7)
    weights = (
        ((0.5, 0.015), (0.05, 0.0015))
        if args.quick
        else ((0.5, 0.15), (0.5, 0.015), (0.5, 0.0015), (0.05, 0.015), (0.05, 0.0015), (5.0, 0.15))
    )
    rows = []
    for side, (affine, bending), steps in itertools.product(
        sides, weights, (1.0,) if args.quick else (0.5, 1.0)
    ):
        run, chunks, warps = setting(data.images, k, side, affine, bending, steps, args.seed)
        # One number of pixels for all settings, or their likelihoods could not be compared.
        if not rows:
            pixels = warps.pixels
        warps = dataclasses.replace(warps, pixels=pixels)
        given = estimate_noise(warps, run.learned.clusters.penalty)
        better = em_step(warps, given)
        for _ in range(5):
            better = em_step(warps, better)
        drift = np.log(np.asarray(better.weights[0] / given.weights[0]))
        rows.append(
            {
                "landmarks": side**2,
                "affine": affine,
                "bending": bending,
                "steps": steps,
                "acc": accuracy(data.labels, chunks.collect(run.memory).cluster[:, 0]),
                "distortion": float(warps.distance.sum()),
                "penalised": run.loss,
                "log_evidence": float(log_evidence(warps, given)) / len(data),
                "em_drift": float(math.sqrt(np.mean(drift**2))),
            }
        )
        print({k: round(v, 4) for k, v in rows[-1].items()}, flush=True)
    accuracies = [row["acc"] for row in rows]
    correlations = {
        name: round(float(spearmanr([row[name] for row in rows], accuracies).statistic), 3)
        for name in ("distortion", "penalised", "log_evidence", "em_drift")
    }
    chosen = {
        "least distortion": min(rows, key=lambda row: row["distortion"]),
        "greatest evidence": max(rows, key=lambda row: row["log_evidence"]),
        "least em drift": min(rows, key=lambda row: row["em_drift"]),
        "best by labels": max(rows, key=lambda row: row["acc"]),
    }
    finish(
        {
            "experiment": "di_kmeans_selection",
            "n": len(data),
            "seed": args.seed,
            "settings": len(rows),
            "spearman_with_accuracy": correlations,
            "chosen": {k: {n: round(v, 4) for n, v in row.items()} for k, row in chosen.items()},
        }
    )


if __name__ == "__main__":
    main()
