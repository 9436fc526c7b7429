"""Digits that lie at any angle, clustered with and without a search over angles.

    python -m experiments.rotations.run [--seed 0] [--limit 2000] [--only NAME ...] [--quick]

MNIST digits turned by random angles about the centre: K-means, DI K-means and di-spectral as they
come, which also see the digits as they were; K-means under rotations, under rotations and
reflections, and under rotations followed by splines, each of them by `GridSearch` by FFT over
angles, then by descent; and the graph of neighbours that are nearest after a rotation.
Turned, a 6 is a 9: accuracy is given with the two told apart, and with the two as one class that
may have two clusters. Labels score, and do nothing else.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment

import diffclust
from diffclust.alignment import Descent, GridSearch, InvariantDistance, Sequential, Stage
from diffclust.data import load
from diffclust.energies import TransformedDistance
from diffclust.graphs import Neighbours
from diffclust.metrics import scores
from diffclust.models import cut_mean_graph
from diffclust.parallel import Data
from diffclust.prototypes import Clusters, UnitNormImages
from diffclust.solvers import Lloyd, LloydPlan, LloydProblem, SplitMerge, Stopping, run
from diffclust.transforms import Rotation, ThinPlateSpline, compose
from experiments.di_spectral_ablation.run import judged_by, unit_norm
from experiments.harness import arguments, data_file, finish

BENT = compose(Rotation(), ThinPlateSpline((5, 5)))
PENALTIES = {"turned": (0.0,), "turned, mirrored": (0.0, 0.0), "turned, bent": (0.0, 0.5, 0.015)}
"""Rotations and reflections cost nothing; splines what they cost in DI K-means."""

TRANSFORMS = {
    "turned": Rotation(),
    "turned, mirrored": Rotation(reflection=True),
    "turned, bent": BENT,
}


def aligner(transform, num_angles, steps):
    """All angles, then descent from the best."""
    if transform is BENT:
        search = GridSearch(Rotation().grid(num_angles), part=0)
    else:
        search = GridSearch(transform.grid(num_angles))
    return Sequential(search, Descent((Stage(steps),)))


def turned(images, key):
    """Each image turned by an angle of its own."""
    angles = jax.random.uniform(key, (len(images), 1), minval=-jnp.pi, maxval=jnp.pi)
    return np.asarray(jax.jit(jax.vmap(Rotation()))(angles, jnp.asarray(images)))


def lloyd(name, images, key, quick):
    """K-means under a transform."""
    transform = TRANSFORMS[name]
    search = aligner(transform, 64, 6)
    solver = Lloyd(TransformedDistance(transform), search, UnitNormImages())
    restarts, passes = (1, 2) if quick else (2, 15)
    moves = SplitMerge(rounds=0) if quick else SplitMerge()
    plan = LloydPlan(10, PENALTIES[name], restarts, Stopping(passes, 1e-3), moves, coarsening=2)
    data = Data(images, chunk_size=min(256, len(images)))
    return run((LloydProblem(solver, plan),), data, key).assignment.clusters


@eqx.filter_jit
def squared_distances(energy, grid, sample, others):
    """The squared distance of a sample to all others, each at its best angle."""
    clusters = Clusters(others, jnp.zeros((len(others), energy.num_penalties)))
    return jnp.min(energy.correlated(grid, sample, clusters), axis=0)


def nearest_turned(images, count):
    """The nearest of all other images, each at its best angle, by FFT."""
    energy, grid, every = TransformedDistance(Rotation()), Rotation().grid(64), jnp.asarray(images)
    index, distance = [], []
    for number, image in enumerate(every):
        squared = np.array(squared_distances(energy, grid, image, every))
        squared[number] = np.inf
        order = np.argsort(squared, kind="stable")[:count]
        index.append(order)
        distance.append(np.sqrt(np.maximum(squared[order], 0.0)))
    return Neighbours(np.stack(index).astype(np.int32), np.stack(distance))


def graph(images, key):
    """The cut of neighbours that are sought and judged under rotations."""
    units = unit_norm(images)
    near = nearest_turned(units, 15)
    energy = TransformedDistance(BENT)
    invariant = InvariantDistance(energy, aligner(BENT, 64, 6))
    penalty = jnp.asarray(PENALTIES["turned, bent"])
    judged = judged_by(invariant.prepared(jnp.asarray(units[:64]), penalty), units, [near])
    return cut_mean_graph(judged, (4, 5, 6, 7), 10, 4, key).points.assignments


def accuracy(labels, assignments, same=()):
    """The best matching of clusters to classes; classes that are the same may have two clusters."""
    table = np.zeros((10, 10))
    np.add.at(table, (assignments, labels), 1)
    together = table.copy()
    for one, other in same:
        together[:, one] = together[:, other] = table[:, one] + table[:, other]
    return together[linear_sum_assignment(-together)].sum() / len(labels)


def main():
    only = {
        "nargs": "+",
        "metavar": "NAME",
        "help": "rows to run, by their names; all if not given",
    }
    args = arguments(__doc__, limit={"type": int, "default": 2000}, only=only)
    digits = load(str(data_file("mnist.npz")), limit=200 if args.quick else args.limit)
    labels, key = digits.labels, jax.random.key(args.seed)
    given = {"upright": digits.images, "turned": turned(digits.images, key)}
    plain = {
        "K-means": lambda x: diffclust.KMeans(10).fit(x, key=key).assignments,
        "DI K-means": lambda x: (
            diffclust.DeformationInvariantKMeans(10).fit(x, key=key).assignments
        ),
        "di-spectral": lambda x: (
            diffclust.DeformationInvariantSpectralClustering(10).fit(x, key=key).assignments
        ),
    }
    searched = {
        **{f"K-means, {n}": lambda x, n=n: lloyd(n, x, key, args.quick) for n in TRANSFORMS},
        "graph, turned, bent": lambda x: graph(x, key),
        **{
            f"di-spectral, {transforms}, {register}": lambda x, t=transforms, register=register: (
                diffclust.DeformationInvariantSpectralClustering(
                    10, transforms=t, register=register
                )
                .fit(x, key=key)
                .assignments
            )
            for transforms in ("turn-tps", "rot-tps")
            for register in ("none", "auto")
        },
    }
    rows = {}
    every = {**searched, **plain}
    for name in args.only or every:
        cluster = every[name]
        for how in ("turned", *(["upright"] if name in plain else [])):
            images, start = given[how], time.perf_counter()
            result = np.asarray(cluster(images))
            row = {
                "acc": accuracy(labels, result),
                "acc 6=9": accuracy(labels, result, [(6, 9)]),
                "nmi": scores(labels, result)["nmi"],
                "nmi 6=9": scores(np.where(labels == 9, 6, labels), result)["nmi"],
            }
            seconds = round(time.perf_counter() - start, 1)
            rows[f"{name}: {how}"] = {k: round(float(v), 3) for k, v in row.items()}
            print(f"{name:26s} {how:8s} {rows[f'{name}: {how}']} {seconds} s", flush=True)
    finish({"experiment": "rotations", "images": len(labels), **rows})


if __name__ == "__main__":
    main()
