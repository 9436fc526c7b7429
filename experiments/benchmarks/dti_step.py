"""Seconds of a training step of DTI K-means: batch 128, K = 10, 28×28, aff-morpho-tps.

    python -m experiments.benchmarks.dti_step [--methods ...] [--transforms ...] [--steps N]
        [--inference N]

For the default backbone and the paper's, with no, one, two and all transforms on, judging all
clusters after all transforms (the default) or only the three best after the first (`shortlist`).
The least and the median of the steps measured, one after the other, each waited for, and the
median of the seconds that all cores together worked, which other jobs touch less; the first call,
which compiles, apart. `ti-kmeans` optimises params at every step and has no backbone. With
`--inference`, instead, the seconds in which a model with all transforms assigns N images, the
second time.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from diffclust.data import load
from diffclust.models import MODELS
from diffclust.parallel import Batch
from experiments.harness import arguments, finish

TRANSFORMS = "aff-morpho-tps"
METHODS = ("dti-kmeans", "dti-gmm")


def model_of(method, **settings):
    """A model of ten clusters with the paper's transforms, and those settings that it has."""
    given = {"num_clusters": 10, "transforms": TRANSFORMS, **settings}
    kind = MODELS[method]
    return kind.from_settings({k: v for k, v in given.items() if k in kind.setting_types()})


@eqx.filter_jit
def step(solver, state, memory, batch, rate):
    return solver.step(state, batch, memory, rate)


def measure(model, images, transforms, steps):
    """Seconds of the first step, and the least and the median of the others."""
    solver = model.solver(transforms, images.shape[3])
    batch = Batch(jnp.asarray(images[:128]), jnp.ones(len(images[:128])))
    learned = model.init(jnp.asarray(images[: model.num_clusters]), jax.random.key(0))
    state = solver.init(learned)
    memory = solver.init_memory(len(batch.weight), model.num_clusters, batch.weight.dtype)
    seconds, worked = [], []
    for _ in range(steps + 1):
        start, working = time.perf_counter(), time.process_time()
        state, _ = jax.block_until_ready(step(solver, state, memory, batch, jnp.float32(1e-3)))
        seconds.append(time.perf_counter() - start)
        worked.append(time.process_time() - working)
    assert int(state.failed) == -1
    return {
        "first": round(seconds[0], 2),
        "least": round(min(seconds[1:]), 4),
        "median": round(float(np.median(seconds[1:])), 4),
        "worked": round(float(np.median(worked[1:])), 4),
    }


def inference(model, images):
    """Seconds to assign images for the second time, after a fit of one step a phase."""
    result = model.fit(images[:256], key=jax.random.key(0))
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        result.predict(images)
        seconds.append(time.perf_counter() - start)
    return {"images": len(images), "first": round(seconds[0], 2), "second": round(seconds[1], 2)}


def main():
    args = arguments(
        __doc__,
        methods={"nargs": "+", "default": METHODS, "choices": [*METHODS, "ti-kmeans"]},
        backbones={"nargs": "+", "default": ["strided", "residual"]},
        transforms={"nargs": "+", "type": int, "default": [0, 1, 2, 3], "help": "how many are on"},
        steps={"type": int, "default": 20, "help": "steps measured"},
        inference={"type": int, "default": None, "help": "assign so many images instead"},
    )
    if args.quick:
        args.steps, args.methods, args.backbones = 2, ["dti-kmeans"], ["strided"]
    count = args.inference or 128
    images = load("mnist", split="all", limit=count, seed=args.seed).images
    figures, least = {}, {}
    for method in args.methods:
        for backbone in args.backbones:
            if args.inference is not None:
                model = model_of(method, backbone=backbone, steps=(1,) * 5, num_restarts=1)
                name = f"{method} {backbone} inference"
                figures[name] = inference(model, images)
                print(name, figures[name], flush=True)
                continue
            for transforms in (3,) if args.quick else args.transforms:
                for shortlist in (None, 3) if transforms == 3 else (None,):
                    model = model_of(method, backbone=backbone, shortlist=shortlist)
                    short = "" if shortlist is None else f"shortlist={shortlist} "
                    name = f"{method} {backbone} {short}transforms={transforms}"
                    figures[name] = measure(model, images, transforms, args.steps)
                    print(name, figures[name], flush=True)
            all_on = figures.get(f"{method} {backbone} transforms=3", {})
            least[f"{method} {backbone}"] = all_on.get("median")
    finish({"experiment": "dti_step", "seconds_per_step": least, **figures})


if __name__ == "__main__":
    main()
