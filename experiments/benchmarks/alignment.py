"""Alignment: mean final objective against wall time, for Adam and for the project's default.

    python -m experiments.benchmarks.alignment [--seed 0] [--quick]

512 pairs of MNIST digits (unit norm), 4², 6² and 8² landmarks, one sampler, one penalty and one
loop for all. A point of a curve is a whole descent with that many steps, run by itself. Adam has
learning rate 1e-2 (the papers' way), once on the images alone and once on the same coarse-to-fine
stages as the default. Compilation is timed apart.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from diffclust.alignment import Alignment, Descent, OptaxMinimiser, Stage
from diffclust.data import load
from diffclust.energies import TransformedDistance
from diffclust.prototypes import Clusters, UnitNormImages
from diffclust.transforms import ThinPlateSpline
from experiments.harness import arguments, finish, timed

PENALTY = (0.5, 0.015)


def stages(share, *, coarse=True):
    """The default's stages with a share of its steps."""
    if not coarse:
        return (Stage(max(1, round(300 * share))),)
    steps = [max(1, round(share * n)) for n in (8, 8, 12)]
    return (
        Stage(steps[0], blur=1 / 14, affine=True),
        Stage(steps[1], blur=1 / 14),
        Stage(steps[2]),
    )


def curve(energy, aligner_of, shares, samples, prototypes):
    """Points of (seconds, mean objective, seconds to compile)."""
    points = []
    penalty = jnp.asarray([PENALTY], dtype=samples.dtype)
    blank = Alignment(
        jnp.full((1,), -1, dtype=jnp.int32),
        jnp.zeros((1, energy.num_params), dtype=samples.dtype),
        jnp.full((1,), jnp.inf, dtype=samples.dtype),
    )
    for share in shares:
        aligner = aligner_of(share)

        @jax.jit
        def descend(samples, prototypes, aligner=aligner):
            # One cluster a sample: pairs. The preconditioner is computed once, in the timing too.
            typical = Clusters(prototypes[:32], jnp.repeat(penalty, 32, axis=0))
            prepared = aligner.prepare(energy, typical, None)

            def pair(sample, prototype):
                clusters = Clusters(prototype[None], penalty)
                return aligner.align(energy, sample, clusters, None, blank, prepared).energy[0]

            return jnp.mean(jax.vmap(pair)(samples, prototypes))

        first, best, value = timed(lambda run=descend: run(samples, prototypes))
        points.append((round(best, 4), round(float(value), 5), round(first - best, 2)))
        print(f"  share {share:<6} {points[-1]}", flush=True)
    return points


def main():
    args = arguments(__doc__)
    pairs = 32 if args.quick else 512
    images = load("mnist", split="test", limit=2 * pairs, seed=args.seed).images
    units = jax.vmap(UnitNormImages().normalise)(jnp.asarray(images))
    samples, prototypes = units[:pairs], units[pairs:]
    adam = OptaxMinimiser(optax.adam(1e-2))
    few = (0.1, 1.0) if args.quick else None
    figures = {}
    for side in (4,) if args.quick else (4, 6, 8):
        energy = TransformedDistance(ThinPlateSpline((side, side)))
        kinds = {
            "adam": (
                lambda share: Descent(stages(share, coarse=False), minimiser=adam),
                few or (0.03, 0.1, 0.2, 0.33, 0.66, 1.0),
            ),
            "adam coarse-to-fine": (
                lambda share: Descent(stages(share * 300 / 28), minimiser=adam),
                few or (0.1, 0.33, 1.0),
            ),
            "default": (lambda share: Descent(stages(share)), few or (0.25, 0.5, 0.75, 1.0, 2.0)),
        }
        curves = {}
        for kind, (aligner_of, shares) in kinds.items():
            print(f"landmarks {side}x{side}, {kind}: (seconds, mean objective, compile seconds)")
            curves[kind] = curve(energy, aligner_of, shares, samples, prototypes)
        target = curves["adam"][-1]
        reached = [point for point in curves["default"] if point[1] <= target[1]]
        ratio = min(point[0] for point in reached) / target[0] if reached else float("inf")
        default = dict(zip(kinds["default"][1], curves["default"], strict=True))[1.0]
        figures[f"{side}x{side}"] = {
            **{kind: [list(point) for point in points] for kind, points in curves.items()},
            "adam_seconds": target[0],
            "adam_objective": target[1],
            "default_seconds": default[0],
            "default_objective": default[1],
            "time_to_adams_objective_ratio": round(ratio, 4),
            "default_time_ratio": round(default[0] / target[0], 4),
        }
    ratios = [f["default_time_ratio"] for f in figures.values()]
    finish(
        {
            "benchmark": "alignment",
            "pairs": pairs,
            "seed": args.seed,
            "worst_default_time_ratio": float(np.max(ratios)),
            **figures,
        }
    )


if __name__ == "__main__":
    main()
