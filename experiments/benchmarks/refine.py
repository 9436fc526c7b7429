"""Judging pairs of neighbours: the project's aligner against the plain way, 40 steps of Adam.

    python -m experiments.benchmarks.refine [--seed 0] [--quick] [--mnist [none upright auto]]

Pairs of MNIST digits that are near each other in pixel space (one of the 12 nearest), unit norm,
5² landmarks, one penalty for all, in turn in one process. The plain way samples images as JAX's own
`map_coordinates` does; Adam is also given this project's sampler. The ratio that counts is that of
pairs a second at equal mean objective. With `--mnist` also the whole of MNIST from pixels to
assignments, stage by stage, without registration, with `upright` and with `auto`.
"""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.ndimage import map_coordinates

import diffclust
from diffclust.alignment import (
    Descent,
    InvariantDistance,
    OptaxMinimiser,
    PreconditionedLBFGS,
    Stage,
)
from diffclust.data import load
from diffclust.graphs import nearest_neighbours, pair_distances
from diffclust.metrics import scores
from diffclust.prototypes import UnitNormImages
from diffclust.sampling import pixel_grid, to_pixels
from diffclust.transforms import AbstractSpatialTransform, AbstractTransform
from experiments.harness import arguments, finish, peak_memory_mb

PLAIN, SAMPLED = "adam, 40 steps, map_coordinates", "adam, 40 steps"


class PlainSampling(AbstractTransform):
    """A spatial transform whose images are read by `jax.scipy.ndimage.map_coordinates`."""

    transform: AbstractSpatialTransform

    @property
    def num_params(self):
        return self.transform.num_params

    @property
    def deformation_terms(self):
        return self.transform.deformation_terms

    def deformation(self, params):
        return self.transform.deformation(params)

    def bind(self, height, width):
        coordinates = self.transform.bind_map(pixel_grid(height, width))

        def apply(params, image):
            columns, rows = to_pixels(coordinates(params), height, width)
            return map_coordinates(image[..., 0], [rows, columns], order=1)[..., None]

        return apply

    def bind_variance(self, height, width):
        return self.bind(height, width)


def distances(model):
    """The distances to compare, by name; the first is the plain way."""
    energy = model.alignment_model().energy()
    plain = dataclasses.replace(energy, transform=PlainSampling(energy.transform))
    adam = Descent((Stage(40),), minimiser=OptaxMinimiser(optax.adam(1e-2)))
    default = model.aligner()

    def other(coarse, fine, **changed):
        stages = (Stage(coarse, blur=default.stages[0].blur), Stage(fine))
        return dataclasses.replace(default, stages=stages, **changed)

    return {
        PLAIN: InvariantDistance(plain, adam),
        SAMPLED: InvariantDistance(energy, adam),
        "default": InvariantDistance(energy, default),
        "default, fewer steps": InvariantDistance(energy, other(7, 3)),
        "default, more steps": InvariantDistance(energy, other(7, 8)),
        "default, more damping": InvariantDistance(energy, other(8, 4, damping=0.1)),
        "default, longer memory": InvariantDistance(
            energy, other(7, 4, minimiser=PreconditionedLBFGS(history=3))
        ),
    }


def times(theirs, ours):
    return round(float(np.median(np.asarray(theirs) / np.asarray(ours))), 2)


def pairs_of(count, seed):
    images = load("mnist", split="test", limit=4 * count, seed=seed).images
    units = np.asarray(jax.vmap(UnitNormImages().normalise)(jnp.asarray(images)))
    flat = units.reshape(len(units), -1)
    near = nearest_neighbours(flat, flat, 12, exclude_self=True)
    rng = np.random.default_rng(seed)
    sources = rng.integers(0, len(units), count)
    return units, sources, near.index[sources, rng.integers(0, near.num_neighbours, count)]


def compare(count, seed, rounds):
    model = diffclust.DeformationInvariantSpectralClustering(10)
    units, sources, targets = pairs_of(count, seed)
    penalty = jnp.asarray(model.alignment_model().penalty(), dtype=units.dtype)
    seconds, objective, compiling = {}, {}, {}
    prepared = {
        name: distance.prepared(jnp.asarray(units[:64]), penalty)
        for name, distance in distances(model).items()
    }
    for turn in range(rounds + 1):
        for name, distance in prepared.items():
            start = time.perf_counter()
            result = pair_distances(distance, units, units, sources, targets)
            spent = time.perf_counter() - start
            if turn == 0:
                compiling[name], objective[name], seconds[name] = spent, float(result.mean()), []
            else:
                seconds[name].append(spent)
    rows = {}
    for name, spent in seconds.items():
        rows[name] = {
            "mean_objective": round(objective[name], 5),
            "pairs_a_second": round(count / min(spent)),
            "seconds": [round(s, 3) for s in spent],
            "first_call_seconds": round(compiling[name], 2),
            # Turn by turn: the machine's load is the same for both then.
            "times_plain": times(seconds[PLAIN], spent),
            "times_sampled": times(seconds[SAMPLED], spent),
        }
        print(f"{name:30s} {rows[name]}", flush=True)
    return rows


def whole_mnist(seed, register):
    data = load("mnist")
    stages = {}
    last = ["start", time.perf_counter()]

    def clock(progress):
        now = time.perf_counter()
        if progress.stage != last[0]:
            stages[last[0]] = stages.get(last[0], 0.0) + now - last[1]
            last[:] = [progress.stage, now]

    start = time.perf_counter()
    model = diffclust.DeformationInvariantSpectralClustering(10, register=register)
    result = model.fit(data.images, key=jax.random.key(seed), callback=clock)
    total = time.perf_counter() - start
    stages[last[0]] = stages.get(last[0], 0.0) + time.perf_counter() - last[1]
    return {
        "n": len(data),
        "seconds": round(total, 1),
        # A stage's name is told when its first chunk is done, so that chunk counts before it.
        "stages": {name: round(spent, 1) for name, spent in stages.items()},
        **{k: round(v, 4) for k, v in scores(data.labels, result.assignments).items()},
        "normalised_cut": round(result.loss, 5),
        "peak_memory_mb": round(peak_memory_mb()),
    }


def main():
    registers = ["none", "upright", "auto"]
    options = {"nargs": "*", "choices": registers, "help": "the whole of MNIST too, so registered"}
    args = arguments(__doc__, mnist=options)
    figures = compare(256 if args.quick else 16384, args.seed, 1 if args.quick else 5)
    if args.mnist is not None:
        for register in args.mnist or registers:
            figures[f"mnist {register}"] = whole_mnist(args.seed, register)
            print(register, figures[f"mnist {register}"], flush=True)
    finish({"benchmark": "refine", "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
