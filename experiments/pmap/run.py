"""DTI K-means on several GPUs by `jax.pmap` over the library's pure step, with a loop of one's own.

    python -m experiments.pmap.run [--seed 0] [--steps 1500] [--batch 128] [--quick]

The step is that of `DTIKMeans`, with `axis_name`: every device takes its share of a batch, the
gradients are added over all, and all devices go on with the same state. On a machine without GPUs,
fake devices show that it is right (see the README), not how fast it is.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from diffclust.models import DTIKMeans
from diffclust.parallel import Batch, Data
from diffclust.solvers import assign_softly
from experiments.harness import arguments, finish

AXIS = "gpus"


def stacked(tree, devices):
    """A copy for every device, as `pmap` wants it."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * devices), tree)


def shares(array, devices):
    return array.reshape(devices, len(array) // devices, *array.shape[1:])


def train(solver, learned, images, args, devices):
    """Gradient steps over random batches; the share of a device is its part of each."""
    rate = jnp.float32(args.rate)

    def step(state, samples):
        batch = Batch(samples, jnp.ones(len(samples)))
        return solver.step(state, batch, None, rate, axis_name=AXIS)[0]

    mapped = jax.pmap(step, axis_name=AXIS, donate_argnums=0)
    state = stacked(solver.init(learned), devices)
    rng = np.random.default_rng(args.seed)
    start, losses = time.perf_counter(), []
    for number in range(args.steps):
        chosen = rng.choice(len(images), args.batch, replace=False)
        state = mapped(state, shares(images[chosen], devices))
        if number == 0 or jax.default_backend() == "cpu":
            # Steps queued on fake devices take each other's threads, and XLA ends the process.
            jax.block_until_ready(state)
        if number == 0:
            start = time.perf_counter()
        if (number + 1) % max(1, args.steps // 5) == 0:
            tally = jax.tree.map(lambda leaf: leaf[0], state.tally)
            losses.append(round(float(tally.loss / jnp.sum(tally.count)), 3))
            print(f"step {number + 1}: mean loss so far {losses[-1]}", flush=True)
    jax.block_until_ready(state)
    seconds = (time.perf_counter() - start) / max(1, args.steps - 1)
    apart = max(float(jnp.max(jnp.abs(leaf - leaf[:1]))) for leaf in jax.tree.leaves(state.learned))
    assert apart == 0.0, "devices went on with different states"
    return jax.tree.map(lambda leaf: leaf[0], state), losses, seconds


def main():
    args = arguments(
        __doc__,
        steps={"type": int, "default": 1500},
        batch={"type": int, "default": 128, "help": "images a step, over all devices"},
        rate={"type": float, "default": 1e-3, "help": "Adam's learning rate"},
    )
    if args.quick:
        args.steps, args.batch = 5, 16
    devices = jax.local_device_count()
    args.batch -= args.batch % devices
    data = load("digits", limit=200 if args.quick else None)
    images = data.images
    model = DTIKMeans(10, transforms="aff")
    key = jax.random.key(args.seed)
    solver = model.solver(1, images.shape[3])
    first = jax.random.choice(key, len(images), (10,), replace=False)
    learned = model.init(jnp.asarray(images)[first], key)
    state, losses, seconds = train(solver, learned, images, args, devices)
    assert int(state.failed) == -1
    result, each, _ = assign_softly(solver, state.learned, Data(images, chunk_size=256))
    finish(
        {
            "experiment": "pmap",
            "devices": devices,
            "batch": args.batch,
            "steps": args.steps,
            "mean_losses": losses,
            "loss": round(float(np.mean(each)), 3),
            "seconds_per_step": round(seconds, 4),
            **{k: round(v, 3) for k, v in scores(data.labels, result.clusters).items()},
        }
    )


if __name__ == "__main__":
    main()
