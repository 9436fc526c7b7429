"""The baselines that the papers ran: autoencoder + K-means, DEC and VaDE.

    python -m experiments.baselines.run [--seed 0] [--seeds 3] [--quick] [--limit 10000]
        [--sets ...] [--networks mlp conv] [--methods ...] [--steps 10000] [--results FILE]
        [--source ... --split train --score-split test]

One autoencoder is trained for all three methods of a set, network and seed; DEC and VaDE go on from
it. Affine and Diffeo MNIST are scored on their other part, as in DI K-means' Table 1, other sets on
what was fitted. FILE (JSON lines) keeps every run, and those that it has are not run again. Labels
score, and nothing else: all settings were fixed before anything was run.
"""

import functools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from diffclust.data import Dataset, load
from diffclust.metrics import scores
from experiments.baselines.networks import CODE, NETWORKS, Autoencoder
from experiments.baselines.objectives import (
    Mixture,
    fitted_mixture,
    kullback_leibler,
    student_t,
    target_distribution,
)
from experiments.harness import (
    RESULTS,
    SCORED,
    SOURCE,
    arguments,
    asked_runs,
    finish,
    fitted_and_scored,
    mean_and_std,
    peak_memory_mb,
    source_words,
)

BATCH = 64
RATE = 1e-3
TOLERANCE = 1e-3
"""DEC ends when fewer images than this share have changed cluster between two updates."""

UPDATES = 40
"""Updates of DEC's target, at equal distances, within as many steps as the autoencoder had."""

LOOKED = 500
"""Steps over which a loss is averaged at the beginning and at the end of a training."""

SETS = {
    "affine-mnist": "train",
    "diffeo-mnist": "train",
    "usps": "all",
    "mnist-test": "test",
    "mnist-1k": "all",
    "mnist-color": "all",
}
"""The part of each set that is fitted."""

PAPER = {
    # DI K-means, Table 1, and ST K-means, Table 1: the best of ten runs by labels.
    ("affine-mnist", "mlp"): {"ae-kmeans": (0.726,), "dec": (0.843,), "vade": (0.688,)},
    ("affine-mnist", "conv"): {"dec": (0.704,), "vade": (0.654,)},
    ("diffeo-mnist", "mlp"): {"ae-kmeans": (0.605,), "dec": (0.776,), "vade": (0.654,)},
    ("diffeo-mnist", "conv"): {"dec": (0.682,), "vade": (0.593,)},
    ("mnist", "mlp"): {
        "ae-kmeans": (0.663, 0.64, 0.59),
        "dec": (0.843, 0.83, 0.80),
        "vade": (0.941, 0.89, 0.85),
    },
    ("mnist", "conv"): {"dec": (0.788, 0.74, 0.69), "vade": (0.817, 0.78, 0.80)},
    # DTI clustering, Table 1 (the best of nine and of ten) and Table 2 (the mean of five).
    ("usps", "mlp"): {"dec": (0.762, 0.767), "vade": (0.566, 0.512)},
    ("mnist-test", "mlp"): {"dec": (0.856, 0.830)},
    ("mnist-1k", "mlp"): {"vade": (0.496,)},
    ("mnist-color", "mlp"): {"vade": (0.119,)},
}
"""ACC, and where they are printed NMI and ARI."""


class DeepEmbedding(eqx.Module):
    """DEC: an encoder, and centres among its codes."""

    autoencoder: Autoencoder
    centres: jax.Array


class VariationalEmbedding(eqx.Module):
    """VaDE: an encoder of means and variances of codes, a decoder, and a mixture of codes."""

    autoencoder: Autoencoder
    log_variance: eqx.nn.Linear
    mixture: Mixture


def cross_entropy(logits, images):
    """Mean over images of the cross-entropy of intensities, as Bernoulli's, summed over pixels."""
    return jnp.sum(optax.sigmoid_binary_cross_entropy(logits, images)) / len(images)


def reconstruction_loss(model, state, batch, key):
    """The cross-entropy of images that are decoded from their codes.

    VaDE's; squared errors, which DEC's autoencoder has, do not keep a sigmoid from saturating.
    """
    (images,) = batch
    codes, _, state = model.encode(images, state)
    logits, state = model.decode(codes, state)
    return cross_entropy(logits, images), state


def dec_loss(model, state, batch, key):
    """Divergence of soft assignments from the target."""
    images, target = batch
    codes, _, state = model.autoencoder.encode(images, state)
    return jnp.mean(kullback_leibler(target, student_t(codes, model.centres))), state


def vade_loss(model, state, batch, key):
    """The negative ELBO with one drawn code an image (VaDE, Eq. 12)."""
    (images,) = batch
    means, features, state = model.autoencoder.encode(images, state)
    log_variances = jax.vmap(model.log_variance)(features)
    noise = jax.random.normal(key, means.shape, means.dtype)
    codes = means + jnp.exp(log_variances / 2) * noise
    logits, state = model.autoencoder.decode(codes, state)
    log_responsibilities = model.mixture.log_responsibilities(codes)
    divergence = model.mixture.divergence(means, log_variances, log_responsibilities)
    return cross_entropy(logits, images) + jnp.mean(divergence), state


@functools.cache
def adam(steps):
    """Adam whose rate rises from zero over the first tenth of the steps."""
    return optax.adam(optax.linear_schedule(0.0, RATE, steps // 10))


@eqx.filter_jit
def update(loss, optimizer, model, state, moments, batch, key):
    """One step of Adam."""
    gradient = eqx.filter_value_and_grad(loss, has_aux=True)
    (value, state), slopes = gradient(model, state, batch, key)
    steps, moments = optimizer.update(slopes, moments)
    return eqx.apply_updates(model, steps), state, moments, value


def train(loss, model, state, images, *, steps, key, extra=None):
    """Trains a model, and returns it with its state and the loss of every step.

    Args:
        loss: Takes model, state, batch and key; returns loss and new state.
        model: What is trained.
        state: Running means of its batch normalisation.
        images: All images, `[n, height, width, channels]`.
        steps: How many.
        key: Randomness.
        extra: Takes the step, model and state, and returns one more array of a row an image for
            the batches that follow; or None, which ends the training.
    """
    optimizer = adam(steps)
    moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    shuffles = np.random.default_rng(int(jax.random.bits(key) >> 1))
    order, losses = np.zeros(0, int), []
    for step in range(steps):
        more = () if extra is None else extra(step, model, state)
        if more is None:
            break
        while len(order) < BATCH:
            order = np.concatenate([order, shuffles.permutation(len(images))])
        rows, order = order[:BATCH], order[BATCH:]
        batch = tuple(jnp.asarray(array[rows]) for array in (images, *more))
        each = jax.random.fold_in(key, step)
        model, state, moments, value = update(loss, optimizer, model, state, moments, batch, each)
        losses.append(value)
    return model, state, [float(value) for value in losses]


@eqx.filter_jit
def _codes(network, state, images):
    return network.encode(images, state)[0]


def codes_of(network, state, images):
    """Codes of all images, `[n, CODE]`, with running means in batch normalisation."""
    network = eqx.nn.inference_mode(network)
    blocks = [images[i : i + 1024] for i in range(0, len(images), 1024)]
    return np.concatenate([_codes(network, state, jnp.asarray(block)) for block in blocks])


def data_of(name, limit):
    """Images to fit and images to score."""
    if name == "two-groups":
        made = two_groups(limit)
        return made, made
    split = SETS[name]
    fitted = load(name.removesuffix("-test"), split=split, limit=limit, seed=0)
    return fitted, load(name, split="test", seed=0) if split == "train" else fitted


def two_groups(limit, side=12):
    """Squares in opposite corners, with noise: what every method must tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(limit) % 2
    images = rng.uniform(0.0, 0.2, (limit, side, side, 1)).astype(np.float32)
    images[labels == 0, 1 : side // 2, 1 : side // 2] += 0.8
    images[labels == 1, side // 2 : -1, side // 2 : -1] += 0.8
    return Dataset(images, labels, ("upper", "lower"), name="two-groups")


def pretrained(network, images, seed, steps):
    """A trained autoencoder with its state, the losses of its steps, and its seconds."""
    start = time.perf_counter()
    key, first = jax.random.split(jax.random.key(seed))
    model, state = eqx.nn.make_with_state(NETWORKS[network])(images.shape[1:], first)
    trained = train(reconstruction_loss, model, state, images, steps=steps, key=key)
    return *trained, time.perf_counter() - start


def rescaled(network, factors):
    """The same autoencoder with each number of its codes multiplied by a factor."""
    code, first = network.code, network.decoder.layers[0]
    return eqx.tree_at(
        lambda net: (net.code.weight, net.code.bias, net.decoder.layers[0].weight),
        network,
        (code.weight * factors[:, None], code.bias * factors, first.weight / factors[None]),
    )


def ae_kmeans(network, state, images, scored, k, seed, steps):
    """K-means of the codes, the best of 20 starts."""
    from sklearn.cluster import KMeans

    result = KMeans(k, n_init=20, random_state=seed).fit(codes_of(network, state, images))
    return result.predict(codes_of(network, state, scored)), [float(result.inertia_)]


def dec(network, state, images, scored, k, seed, steps):
    """DEC: encoder and centres follow a target that is made anew now and then."""
    from sklearn.cluster import KMeans

    result = KMeans(k, n_init=20, random_state=seed).fit(codes_of(network, state, images))
    model = DeepEmbedding(network, jnp.asarray(result.cluster_centers_))
    latest = {}

    def assignments(model, state, images):
        codes = codes_of(model.autoencoder, state, images)
        return student_t(jnp.asarray(codes), model.centres)

    def target(step, model, state):
        if step % max(1, steps // UPDATES) == 0:
            soft = assignments(model, state, images)
            clusters = np.asarray(soft.argmax(axis=1))
            if step and np.mean(clusters != latest["clusters"]) < TOLERANCE:
                return None
            latest.update(clusters=clusters, target=np.asarray(target_distribution(soft)))
        return (latest["target"],)

    key = jax.random.fold_in(jax.random.key(seed), 1)
    model, state, losses = train(dec_loss, model, state, images, steps=steps, key=key, extra=target)
    return np.asarray(assignments(model, state, scored).argmax(axis=1)), losses


def vade(network, state, images, scored, k, seed, steps):
    """VaDE: an ELBO, from a mixture that is fitted to the codes.

    Codes are scaled to unit variance first, and their own variances begin as the mixture's mean
    ones, which VaDE leaves open: where codes lie closer together than one, steps of the usual rate
    and variances of one would tear the mixture apart.
    """
    codes = codes_of(network, state, images)
    network = rescaled(network, 1.0 / (codes.std(axis=0) + 1e-6))
    mixture = fitted_mixture(codes_of(network, state, images), k, seed)
    within = jnp.exp(mixture.logits) @ jnp.exp(mixture.log_variances)
    head = eqx.nn.Linear(network.code.in_features, CODE, key=jax.random.key(0))
    head = eqx.tree_at(
        lambda layer: (layer.weight, layer.bias),
        head,
        (jnp.zeros_like(head.weight), jnp.log(within)),
    )
    model = VariationalEmbedding(network, head, mixture)
    key = jax.random.fold_in(jax.random.key(seed), 2)
    model, state, losses = train(vade_loss, model, state, images, steps=steps, key=key)
    codes = jnp.asarray(codes_of(model.autoencoder, state, scored))
    return np.asarray(model.mixture.log_responsibilities(codes).argmax(axis=1)), losses


METHODS = {"ae-kmeans": ae_kmeans, "dec": dec, "vade": vade}


def ends(losses):
    """A loss at the beginning and at the end, averaged."""
    few = max(1, min(LOOKED, len(losses) // 4))
    return [round(float(np.mean(part)), 4) for part in (losses[:few], losses[-few:])]


def runner(read):
    """A function that makes one run; of the autoencoder the latest one is kept.

    Args:
        read: Takes name and limit; returns images to fit and to score, and the number of clusters.
    """

    @functools.lru_cache(maxsize=1)
    def shared(name, network, seed, limit, steps):
        return pretrained(network, read(name, limit)[0].images, seed, steps)

    def run(name, network, method, seed, limit, steps):
        fitted, scored, k = read(name, limit)
        trained, state, losses, before = shared(name, network, seed, limit, steps)
        start = time.perf_counter()
        fit = METHODS[method]
        clusters, own = fit(trained, state, fitted.images, scored.images, k, seed, steps)
        seconds = time.perf_counter() - start
        figures = scores(scored.labels, clusters)
        return {
            "n": len(fitted),
            "n_scored": len(scored),
            **{score: round(float(figures[score]), 4) for score in ("acc", "nmi", "ari")},
            "autoencoder_loss": ends(losses),
            "loss": ends(own),
            "steps_done": len(own) if method != "ae-kmeans" else 0,
            "seconds": round(seconds, 1),
            "seconds_of_autoencoder": round(before, 1),
        }

    return run


NAMES = ("set", "network", "method", "seed", "limit", "steps")


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        limit={"type": int, "default": 10_000, "help": "most images to fit"},
        sets={"nargs": "+", "default": list(SETS), "choices": list(SETS)},
        networks={"nargs": "+", "default": list(NETWORKS), "choices": list(NETWORKS)},
        methods={"nargs": "+", "default": list(METHODS), "choices": list(METHODS)},
        steps={"type": int, "default": 10_000, "help": "steps of each training"},
        **SOURCE,
        **SCORED,
        **RESULTS,
    )
    if args.quick:
        args.sets, args.seeds, args.limit, args.steps = ["two-groups"], 1, 128, 80

    @functools.lru_cache(maxsize=1)
    def read(name, limit):
        if args.source is None:
            fitted, scored = data_of(name, limit)
            return fitted, scored, len(np.unique(fitted.labels))
        return fitted_and_scored(args, limit)

    source = [str(args.source), *source_words(args)]
    asked = [
        (name, network, method, seed, args.limit, args.steps)
        for seed in range(args.seed, args.seed + args.seeds)
        for name in (args.sets if args.source is None else [", ".join(source)])
        for network in args.networks
        for method in args.methods
    ]
    rows = asked_runs(args.results, NAMES, asked, runner(read))
    figures = {}
    for each in dict.fromkeys((row["set"], row["network"], row["method"]) for row in rows):
        runs = [row for row in rows if each == (row["set"], row["network"], row["method"])]
        name, network, method = each
        figures[" ".join(each)] = {
            "seeds": len(runs),
            **{
                score: mean_and_std([run[score] for run in runs]) for score in ("acc", "nmi", "ari")
            },
            "seconds": round(float(np.mean([run["seconds"] for run in runs])), 1),
            "autoencoder_loss": runs[-1]["autoencoder_loss"],
            "paper (acc, nmi, ari)": PAPER.get((name, network), {}).get(method),
        }
        print(*each, figures[" ".join(each)], flush=True)
    finish({"experiment": "baselines", **figures, "peak_memory_mb": round(peak_memory_mb())})


if __name__ == "__main__":
    main()
