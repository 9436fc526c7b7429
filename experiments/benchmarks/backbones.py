"""Backbones that predict alignments: time of a gradient, and how well they learn to align.

    python -m experiments.benchmarks.backbones [--seed 0] [--quick]

Time: value and gradient of the mean square of the features in the weights, jitted, all backbones in
turn. Learning: ten MNIST digits, one of each class, are prototypes with a head each; samples are
random warps of them (affine, standard deviation 0.15; 4×4 landmarks, 0.05), new ones at every
step. The loss is the mean ‖x − T c‖² between a sample and its own prototype, moved by what its head
predicts, on warps held out; no label and no warp's params are told. Adam, learning rate 1e-3, the
same warps for all. Told are the loss after a number of steps, and after the same seconds.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from diffclust.data import load
from diffclust.networks import AbstractBackbone, StridedBackbone, make_heads, residual_backbone
from diffclust.networks.backbones import Convolution, GroupNormalisation, he_normal
from diffclust.transforms import Affine, ThinPlateSpline, compose
from experiments.harness import arguments, finish

BATCH = "batch"
"""The batch's axis, over which batch normalisation takes its statistics."""

TRANSFORM = compose(Affine("edge"), ThinPlateSpline((4, 4), boundary="edge"))
SPREAD = np.where(np.arange(TRANSFORM.num_params) < 6, 0.15, 0.05).astype(np.float32)


class BatchNormalisation(eqx.Module):
    """Statistics of the batch, in training and after: an image's features depend on the others."""

    gain: Array
    shift: Array

    def __call__(self, image):
        mean = jax.lax.pmean(jnp.mean(image, axis=(0, 1)), BATCH)
        square = jax.lax.pmean(jnp.mean(image**2, axis=(0, 1)), BATCH)
        factor = self.gain * jax.lax.rsqrt(jnp.maximum(square - mean**2, 0) + 1e-5)
        return image * factor[None, None] + (self.shift - mean * factor)[None, None]


def batch_normalised(height, width, channels, *, key):
    def is_norm(node):
        return isinstance(node, GroupNormalisation)

    grouped = residual_backbone(height, width, channels, key=key, normalisation="group")
    return jax.tree.map(
        lambda n: BatchNormalisation(n.gain, n.shift) if is_norm(n) else n, grouped, is_leaf=is_norm
    )


class Averaged(AbstractBackbone):
    """The strided backbone's convolutions, more channels in the last, averaged over the grid."""

    layers: tuple[Convolution, ...]

    def __init__(self, height, width, channels, *, key):
        *layers, last = StridedBackbone(height, width, channels, key=key).layers
        wide = Convolution(64, 256, size=3, stride=last.stride, key=jax.random.fold_in(key, 1))
        self.layers = (*layers, wide)

    @property
    def num_features(self):
        return self.layers[-1].bias.shape[-1]

    def __call__(self, image):
        for layer in self.layers:
            image = jax.nn.relu(layer(image))
        return jnp.mean(image, axis=(0, 1))


class Centred(AbstractBackbone):
    """The strided backbone on intensities in [-1, 1]."""

    inner: AbstractBackbone

    def __init__(self, height, width, channels, *, key):
        self.inner = StridedBackbone(height, width, channels, key=key)

    @property
    def num_features(self):
        return self.inner.num_features

    def __call__(self, image):
        return self.inner(2 * image - 1)


class Dense(AbstractBackbone):
    """Two dense layers on the pixels."""

    weights: tuple[Array, Array]

    def __init__(self, height, width, channels, *, key):
        one, two = jax.random.split(key)
        pixels = height * width * channels
        self.weights = he_normal(one, (pixels, 512), pixels), he_normal(two, (512, 256), 512)

    @property
    def num_features(self):
        return 256

    def __call__(self, image):
        hidden = jax.nn.relu(image.reshape(-1) @ self.weights[0])
        return jax.nn.relu(hidden @ self.weights[1])


def group_normalised(height, width, channels, *, key):
    return residual_backbone(height, width, channels, key=key, normalisation="group")


MAKERS = {
    "strided": StridedBackbone,
    "strided, centred": Centred,
    "strided, averaged": Averaged,
    "dense": Dense,
    "residual, none": residual_backbone,
    "residual, group": group_normalised,
    "residual, batch": batch_normalised,
}


def gradient_seconds(names, size, batch, rounds, seed):
    """Least seconds of a gradient for each backbone, and median ratios to the strided one."""
    images = jax.random.uniform(jax.random.key(seed), (batch, *size))
    compiled = {}
    for name in names:
        backbone = MAKERS[name](*size, key=jax.random.key(seed))
        arrays, static = eqx.partition(backbone, eqx.is_array)

        def loss(arrays, images, static=static):
            return jnp.mean(jax.vmap(eqx.combine(arrays, static), axis_name=BATCH)(images) ** 2)

        run = jax.jit(jax.value_and_grad(loss)).lower(arrays, images).compile()
        compiled[name] = lambda run=run, arrays=arrays: jax.block_until_ready(run(arrays, images))
    spent = {name: [] for name in names}
    for _ in range(rounds):
        for name, run in compiled.items():
            start = time.perf_counter()
            run()
            spent[name].append(time.perf_counter() - start)
    return {
        name: {
            "ms": round(1e3 * min(times), 1),
            "times_strided": round(float(np.median(np.divide(times, spent["strided"]))), 1),
        }
        for name, times in spent.items()
    }


def learning_problem(prototypes, each):
    """The random warps, the loss and one step of Adam, all jitted where they are used."""
    move = TRANSFORM.bind(*prototypes.shape[1:3])
    optimiser = optax.adam(1e-3)
    moved = jax.vmap(lambda params, prototype: jax.vmap(lambda p: move(p, prototype))(params))

    def warps(key, each):
        shape = (len(prototypes), each, TRANSFORM.num_params)
        return moved(jax.random.normal(key, shape) * SPREAD, prototypes)

    @eqx.filter_jit
    def loss(networks, samples):
        backbone, heads = networks
        flat = samples.reshape(-1, *samples.shape[2:])
        features = jax.vmap(backbone, axis_name=BATCH)(flat)
        features = features.reshape(*samples.shape[:2], -1)
        params = jax.vmap(lambda head, own: jax.vmap(head)(own))(heads, features)
        return jnp.mean(jnp.sum((samples - moved(params, prototypes)) ** 2, axis=(2, 3, 4)))

    @eqx.filter_jit
    def step(networks, state, key):
        gradient = eqx.filter_grad(loss)(networks, warps(key, each))
        updates, state = optimiser.update(gradient, state)
        return eqx.apply_updates(networks, updates), state

    return warps, loss, step, optimiser


def learn(maker, prototypes, seed, *, each, steps, seconds):
    """Losses on held-out warps after `steps` steps and after `seconds` seconds of steps."""
    warps, loss, step, optimiser = learning_problem(prototypes, each)
    one, two, three, four = jax.random.split(jax.random.key(seed), 4)
    backbone = maker(*prototypes.shape[1:], key=one)
    heads = make_heads(len(prototypes), backbone.num_features, TRANSFORM.num_params, key=two)
    networks = (backbone, heads)
    state = optimiser.init(eqx.filter(networks, eqx.is_array))
    held_out = warps(three, 4 * each)
    jax.block_until_ready(step(networks, state, four))  # compiles
    count, spent, result = 0, 0.0, {"start": float(loss(networks, held_out))}
    while count < steps or spent < seconds:
        start = time.perf_counter()
        networks, state = jax.block_until_ready(
            step(networks, state, jax.random.fold_in(four, count))
        )
        count, spent = count + 1, spent + time.perf_counter() - start
        if count == steps:
            result["after_steps"] = float(loss(networks, held_out))
            result["ms_a_step"] = 1e3 * spent / count
        if spent >= seconds and "after_seconds" not in result:
            result["after_seconds"] = float(loss(networks, held_out))
            result["steps_in_seconds"] = count
    return {name: round(value, 2) for name, value in result.items()}


def digits(seed):
    """One digit of each class."""
    data = load("mnist", split="test")
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(data.labels == label)) for label in range(10)]
    return jnp.asarray(data.images[np.asarray(chosen)])


def main():
    args = arguments(__doc__)
    settings = [((28, 28, 1), 128), ((16, 16, 1), 128), ((32, 32, 3), 128), ((128, 128, 3), 64)]
    times = {}
    for size, batch in [((8, 8, 1), 4)] if args.quick else settings:
        names = MAKERS if size[0] == 28 else ["strided", "residual, none", "residual, group"]
        rounds = 3 if size[0] > 100 or args.quick else 8
        label = "×".join(map(str, (batch, *size)))
        times[label] = gradient_seconds(names, size, batch, rounds, args.seed)
        print(label, times[label], flush=True)
    effort = {"each": 8, "steps": 200, "seconds": 20.0}
    if args.quick:
        effort = {"each": 2, "steps": 2, "seconds": 0.0}
    learned = {name: [] for name in MAKERS}
    for seed in range(args.seed, args.seed + (1 if args.quick else 3)):
        prototypes = digits(seed)
        for name, maker in MAKERS.items():
            if args.quick and name not in ("strided", "strided, averaged", "residual, batch"):
                continue
            learned[name].append(learn(maker, prototypes, seed, **effort))
            print(seed, name, learned[name][-1], flush=True)
    finish(
        {
            "benchmark": "backbones",
            "seed": args.seed,
            **effort,
            "gradient": times,
            "learning": {name: runs for name, runs in learned.items() if runs},
        }
    )


if __name__ == "__main__":
    main()
