"""How invariant and how symmetric a spline distance of digits is, with Jacobian weights or not.

    python -m experiments.invariance.run [--seed 0] [--quick] [--pairs 500]

Pairs of MNIST digits that are among each other's nearest in pixel space, unit norm, 5² landmarks. A
digit x, x bent by a drawn spline T, and a neighbour c: what is left of d(T x, x) and d(x, T x), how
much d(T x, c) differs from d(x, c), and d(x, c) from d(c, x), all in the mean (ST K-means, Props. 4
and 5, where splines are taken for a group). No labels are read.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import diffclust
from diffclust.alignment import Descent, InvariantDistance, Stage
from diffclust.data import load
from diffclust.graphs import nearest_neighbours
from diffclust.models.di_spectral import unit_norm
from diffclust.transforms import ThinPlateSpline
from experiments.harness import arguments, finish

SPLINE = ThinPlateSpline((5, 5))
LONG = Descent((Stage(20, blur=1 / 14), Stage(60)))
"""Three times as long as the models' descents, so that little is left to the optimiser."""


def pairs_of(count, seed):
    """Digits, and for each one of its five nearest in pixel space."""
    images = unit_norm(load("mnist", split="train", limit=4 * count, seed=seed).images)
    flat = images.reshape(len(images), -1)
    near = nearest_neighbours(flat, flat, 5, exclude_self=True)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(images), count, replace=False)
    return images[chosen], images[near.index[chosen, rng.integers(0, 5, count)]]


def relative(change, scale):
    return round(float(jnp.mean(jnp.abs(change)) / jnp.mean(scale)), 3)


def row(x, c, bends, weights, penalty):
    """Figures of one distance."""
    energy = diffclust.DeformationInvariantKMeans(10).energy()
    energy = dataclasses.replace(energy, pixel_weights=weights)
    distance = InvariantDistance(energy, LONG).prepared(x[:64], jnp.asarray(penalty))
    measure = jax.jit(
        lambda a, b: jax.lax.map(lambda pair: distance(*pair), (a, b), batch_size=128)
    )
    bent = jax.vmap(SPLINE)(bends, x)
    before = jnp.sum((bent - x) ** 2, axis=(1, 2, 3))
    there, back, moved = measure(x, c), measure(c, x), measure(bent, c)
    return {
        "left of d(Tx, x)": relative(measure(bent, x), before),
        "left of d(x, Tx)": relative(measure(x, bent), before),
        "d(Tx, c) against d(x, c)": relative(moved - there, there),
        "d(x, c) against d(c, x)": relative(there - back, 0.5 * (there + back)),
        "d(x, c) against no alignment": relative(there, jnp.sum((x - c) ** 2, axis=(1, 2, 3))),
    }


def main():
    args = arguments(__doc__, pairs={"type": int, "default": 500})
    x, c = map(jnp.asarray, pairs_of(20 if args.quick else args.pairs, args.seed))
    drawn = jax.random.normal(jax.random.key(args.seed), (len(x), SPLINE.num_params))
    default = diffclust.DeformationInvariantKMeans(10).penalty()
    figures = {}
    for amount in (0.04,) if args.quick else (0.02, 0.04, 0.08):
        for name, penalty in (("free", (0.0,) * len(default)), ("penalised", default)):
            for weights in ("uniform", "jacobian"):
                place = f"bent by {amount}, {name}, {weights}"
                figures[place] = row(x, c, amount * drawn, weights, penalty)
                print(f"{place:34s} {figures[place]}", flush=True)
    finish({"experiment": "invariance", "pairs": len(x), "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
