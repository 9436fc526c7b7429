"""Registration before unchanged methods: place, slant and colours taken out in closed form.

    python -m experiments.registration.development [--seed 0] [--seeds 1] [--quick] [--limit 2000]
        [--sets mnist affnist color ...] [--frames as-it-is none place upright auto]
        [--methods di-spectral ...] [--settings '{"num_candidates": 20}']

All sets are made of MNIST's 60,000 training digits. `as-it-is` is the method alone; `none`, `place`
and `upright` give it registered images, from which the ground's colour is taken out too, where the
set has a plain one; `auto` is the method's own `register="auto"`. Labels score, and nothing else.
"""

import json
import time

import jax
import numpy as np
import scipy.ndimage

from diffclust.data import affnist_like, load, mnist_color
from diffclust.metrics import scores
from diffclust.models import MODELS
from diffclust.parallel import Data
from diffclust.registration import Frame, ink_of
from experiments.harness import arguments, finish, mean_and_std, peak_memory_mb


def as_they_are(images, labels, seed):
    return images


def moved(images, labels, seed):
    """At any place of a canvas of 40×40 pixels, under affine maps."""
    return affnist_like(images, labels, seed=seed).images


def in_colours(images, labels, seed):
    """A random colour on another."""
    return mnist_color(images, labels, seed=seed).images


def in_published_colours(images, labels, seed):
    """|a x + b| / its largest, as the code of DTI clustering's authors draws colours."""
    draw, shape = np.random.default_rng(seed), (len(images), 1, 1, 3)
    a, b = draw.uniform(-1, 1, shape), draw.uniform(0, 1, shape)
    made = np.abs(a * images + b)
    return (made / made.max(axis=(1, 2, 3), keepdims=True)).astype(np.float32)


def cluttered(images, labels, seed):
    """With four scraps of 4×4 pixels of other digits on the canvas of 40×40."""
    draw, made = np.random.default_rng(seed), moved(images, labels, seed).copy()
    for image in made:
        for _ in range(4):
            other = images[draw.integers(len(images))]
            y, x = draw.integers(8, 16, 2)
            top, left = draw.integers(0, 36, 2)
            part = image[top : top + 4, left : left + 4]
            np.maximum(part, other[y : y + 4, x : x + 4], out=part)
    return made


def cut(images, labels, seed):
    """Shifted by up to a third of the canvas of 28×28, and cut where they leave it."""
    draw = np.random.default_rng(seed)
    made = np.zeros_like(images)
    for image, to in zip(images, made, strict=True):
        y, x = draw.integers(-9, 10, 2)
        to[max(y, 0) : 28 + y, max(x, 0) : 28 + x] = image[max(-y, 0) : 28 - y, max(-x, 0) : 28 - x]
    return made


def on_gradients(images, labels, seed):
    """Moved, dark or light, on a ground that changes linearly."""
    made, draw = moved(images, labels, seed), np.random.default_rng(seed)
    axis = np.linspace(-1, 1, made.shape[1], dtype=np.float32)
    level = draw.uniform(0.3, 0.7, (len(made), 1, 1, 1))
    across, down = draw.uniform(-0.15, 0.15, (2, len(made), 1, 1, 1))
    ground = level + across * axis[None, None, :, None] + down * axis[None, :, None, None]
    ink = np.where(draw.uniform(size=level.shape) < 0.5, 0.0, 1.0)
    return (made * ink + (1 - made) * ground).astype(np.float32)


def on_textures(images, labels, seed):
    """Moved, on smoothed noise about a third as bright as the digits."""
    made, draw = moved(images, labels, seed), np.random.default_rng(seed)
    noise = scipy.ndimage.gaussian_filter(draw.normal(size=made.shape), (0, 1.5, 1.5, 0))
    noise = np.clip(0.15 + 0.1 * noise / noise.std(), 0.0, 1.0)
    return np.maximum(made, noise).astype(np.float32)


def as_bytes(images):
    """Rounded as a file of 8 bits holds them, and cut at black and white."""
    return (np.round(255 * np.clip(images, 0.0, 1.0)) / 255).astype(np.float32)


def almost_black(images, labels, seed):
    """Moved, on a ground of 10 of 255 levels."""
    return as_bytes((10 + 245 * moved(images, labels, seed)) / 255)


def noisy(images, labels, seed):
    """Moved, with noise of a standard deviation of a twentieth, cut at black."""
    made = moved(images, labels, seed)
    return as_bytes(made + np.random.default_rng(seed).normal(scale=0.05, size=made.shape))


def on_white(images, labels, seed):
    return 1.0 - images


def on_two_grounds(images, labels, seed):
    """Half of them dark on light, in grey."""
    dark = np.random.default_rng(seed).uniform(size=(len(images), 1, 1, 1)) < 0.5
    return np.where(dark, 0.8 - 0.7 * images, 0.2 + 0.7 * images).astype(np.float32)


def at_two_places(images, labels, seed):
    """In the left or the right half of a canvas of 28×56: a nuisance that is stable itself."""
    right = np.random.default_rng(seed).uniform(size=(len(images), 1, 1, 1)) < 0.5
    blank = np.zeros_like(images)
    return np.concatenate([np.where(right, blank, images), np.where(right, images, blank)], axis=2)


def filling(images, labels, seed):
    """What is within the bounding box, or a little less, on the whole canvas: ink at the border."""
    draw, made = np.random.default_rng(seed), np.zeros_like(images)
    for image, to in zip(images[..., 0], made, strict=True):
        rows, columns = (np.flatnonzero(image.max(axis) > 0.3) for axis in (1, 0))
        cut = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        inset = draw.uniform(0.0, 0.1, 4) * (cut.shape * 2)
        ends = [(inset[i], cut.shape[i] - 1 - inset[i + 2]) for i in (0, 1)]
        grid = np.meshgrid(*(np.linspace(*each, 28) for each in ends), indexing="ij")
        to[..., 0] = scipy.ndimage.map_coordinates(cut, grid, order=1, mode="nearest")
    return made


SETS = {
    "mnist": as_they_are,
    "affnist": moved,
    "color": in_colours,
    "color-published": in_published_colours,
    "cluttered": cluttered,
    "cut": cut,
    "gradient": on_gradients,
    "textured": on_textures,
    "almost-black": almost_black,
    "noisy": noisy,
    "white": on_white,
    "two-places": at_two_places,
    "two-grounds": on_two_grounds,
    "filling": filling,
}


def registered(images, frame):
    """Images in a frame, what ink was taken to be, and the seconds that took."""
    start = time.perf_counter()
    if frame in ("as-it-is", "auto"):
        return images, None, 0.0
    ink = ink_of(images)
    result = Frame(frame, "none" if ink is None else ink).registered(images)
    return result, ink, time.perf_counter() - start


def row_of(method, images, labels, frame, seed, settings):
    framed, ink, registering = registered(images, frame)
    start = time.perf_counter()
    register = "auto" if frame == "auto" else "none"
    model = MODELS[method].from_settings({"num_clusters": 10, "register": register, **settings})
    result = model.fit(framed, key=jax.random.key(seed))
    figures = result.outcome.figures
    if frame == "auto" and "stability" not in figures:
        # What the command line prints of methods without a graph.
        steady = result.model.stability_when_registered(Data(framed))
        figures = figures if steady is None else {**figures, "registered_stability": steady}
    shown = ("stability", "registered_stability", "refills")
    return {
        **{name: round(value, 4) for name, value in scores(labels, result.assignments).items()},
        **{name: round(figures[name], 4) for name in shown if name in figures},
        "loss": round(float(result.loss) / len(labels), 3),
        "least_cluster": int(result.counts.min()),
        "ink": ink,
        "registration_seconds": round(registering, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main():
    frames = ["as-it-is", "none", "place", "upright", "auto"]
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 1, "help": "number of seeds, of sets and methods"},
        limit={"type": int, "default": 2000, "help": "digits, drawn with the seed"},
        sets={"nargs": "+", "default": ["mnist", "affnist", "color"], "choices": list(SETS)},
        frames={"nargs": "+", "default": frames, "choices": frames},
        methods={"nargs": "+", "default": ["di-spectral"], "choices": list(MODELS)},
        settings={"type": json.loads, "default": {}, "help": "of the methods, as a JSON object"},
    )
    if args.quick:
        args.limit, args.sets, args.frames = 200, ["color"], ["upright"]
    figures = {}
    for name in args.sets:
        for method in args.methods:
            for frame in args.frames:
                rows = []
                for seed in range(args.seed, args.seed + args.seeds):
                    digits = load("mnist", split="train", limit=args.limit, seed=seed)
                    images = SETS[name](digits.images, digits.labels, seed)
                    rows.append(row_of(method, images, digits.labels, frame, seed, args.settings))
                    print(f"{name:16s} {method:12s} {frame:9s} seed {seed}", rows[-1], flush=True)
                figures[f"{name} {method} {frame}"] = {
                    "acc": mean_and_std([row["acc"] for row in rows]),
                    "runs": rows,
                }
    finish(
        {
            "experiment": "registration_development",
            "limit": args.limit,
            "settings": args.settings,
            **figures,
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
