"""From recordings to clusters: spoken digits as images of time and pitch.

    python -m experiments.spoken_digits.run [--seed 0] [--seeds 3] [--source FOLDER] [--quick]
        [--methods ...] [--results FILE]

Without a source, ten made-up words are synthesised: a buzz whose resonances glide as in speech,
each time by another speaker (pitch, length of the throat), at another pace and moment, with noise,
in WAV and FLAC, mono and stereo, at several rates. They are written as files and loaded as any
recordings are. Beside the three methods, DI K-means with other landmark grids (`di 7x7`: rows of
pitch, columns of time) and with penalties that are four times as high along pitch as along time
(`di time`), or the other way round (`di pitch`). FILE (JSON lines) keeps every run, and those that
it has are not run again. Classes score, and do nothing else.
"""

import functools
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import soundfile

import diffclust
from diffclust.alignment import Descent
from diffclust.data import load
from diffclust.energies import TransformedDistance
from diffclust.metrics import scores
from diffclust.models import Clustering
from diffclust.prototypes import UnitNormImages
from diffclust.sampling import Boundary
from diffclust.solvers import Lloyd
from diffclust.transforms import AbstractSpatialTransform, ThinPlateSpline
from experiments.harness import RESULTS, arguments, asked_runs, finish, mean_and_std

PAPER = {"kmeans": 10.8, "ai-kmeans": 29.8, "di-kmeans": 41.6}
RATES = (16_000, 44_100, 48_000, 96_000)


class SplineByAxes(AbstractSpatialTransform):
    """A thin-plate spline whose displacements along time and pitch have sizes of their own."""

    spline: ThinPlateSpline
    boundary: Boundary = eqx.field(static=True, default="zero")

    @property
    def num_params(self):
        return self.spline.num_params

    @property
    def affine_embedding(self):
        return self.spline.affine_embedding

    @property
    def deformation_terms(self):
        return ("affine time", "bending time", "affine pitch", "bending pitch")

    def deformation(self, params):
        time, pitch = jnp.split(params, 2)
        along = (jnp.concatenate([time, 0 * pitch]), jnp.concatenate([0 * time, pitch]))
        return jnp.concatenate([self.spline.deformation(each) for each in along])

    def bind_map(self, points):
        return self.spline.bind_map(points)


def by_axes(k, *, time=1.0, pitch=1.0, **settings):
    """DI K-means as it comes, with its penalties times these numbers along time and pitch."""
    like = diffclust.DeformationInvariantKMeans(k)
    energy = TransformedDistance(SplineByAxes(ThinPlateSpline(like.landmarks)))
    both = like.penalty()
    penalties = tuple(factor * each for factor in (time, pitch) for each in both)
    lloyd = Lloyd(energy, Descent(), UnitNormImages())
    return Clustering(k, lloyd, penalties=penalties, **settings)


def with_grid(k, *, side, **settings):
    """DI K-means with so many rows and columns of landmarks."""
    return diffclust.DeformationInvariantKMeans(k, landmarks=(side, side), **settings)


MODELS = {
    "kmeans": diffclust.KMeans,
    "ai-kmeans": diffclust.AffineInvariantKMeans,
    "di-kmeans": diffclust.DeformationInvariantKMeans,
    "di time": functools.partial(by_axes, time=0.5, pitch=2.0),
    "di pitch": functools.partial(by_axes, time=2.0, pitch=0.5),
    "di 7x7": functools.partial(with_grid, side=7),
    "di 8x8": functools.partial(with_grid, side=8),
}
"""The last four were fixed before any of them was run."""

NAMES = ("source", "drawn", "each", "limit", "method", "seed")
"""What tells runs apart; words are made up, or recordings drawn, with the seed `drawn`."""


def word(resonances, rate, rng):
    """One second in which someone says a word: `resonances` are in Hz, `[targets, 3]`."""
    seconds, pitch, throat = rng.uniform(0.4, 0.8), rng.uniform(90, 220), rng.uniform(0.88, 1.14)
    count = round(rate * seconds)
    place = np.linspace(0, 1, count)
    # A pace of its own: the second half may come early or late.
    pace = place + rng.uniform(-0.12, 0.12) * np.sin(np.pi * place)
    targets = np.linspace(0, 1, len(resonances))
    tracks = throat * np.stack([np.interp(pace, targets, track) for track in resonances.T])
    glide = pitch * (1 + rng.uniform(-0.15, 0.15) * place)
    phase = 2 * np.pi * np.cumsum(glide) / rate
    wave = np.zeros(count)
    for harmonic in range(1, int(min(5000, rate / 2.2) / pitch)):
        heights = np.exp(-0.5 * ((harmonic * glide - tracks) / (60 + 0.06 * tracks)) ** 2)
        wave += np.sin(harmonic * phase) * heights.sum(axis=0)
    wave *= np.minimum(1.0, 6 * np.minimum(place, 1 - place))
    whole = np.zeros(rate)
    begin = int(rng.uniform(0, rate - count))
    whole[begin : begin + count] = wave / np.abs(wave).max()
    return rng.uniform(0.1, 0.8) * (whole + 10 ** rng.uniform(-3.0, -2.0) * rng.normal(size=rate))


def write_words(folder, each, rng):
    """Ten words, each said so many times, in a subfolder a word."""
    low, high = np.array([250, 800, 2200]), np.array([850, 2400, 3400])
    for digit in range(10):
        resonances = rng.uniform(low, high, (rng.integers(2, 5), 3))
        (folder / str(digit)).mkdir()
        for take in range(each):
            rate = int(rng.choice(RATES))
            wave = word(resonances, rate, rng)
            if take % 3 == 0:
                wave = np.stack([wave, 0.7 * wave], axis=1)
            suffix = ".flac" if take % 2 else ".wav"
            soundfile.write(folder / str(digit) / f"{take:03d}{suffix}", wave, rate)


def read(args):
    """The recordings as images, and how many seconds reading took."""
    with tempfile.TemporaryDirectory() as made:
        source = args.source or made
        if not args.source:
            write_words(Path(made), args.each, np.random.default_rng(args.seed))
        start = time.perf_counter()
        dataset = load(source, rate=48_000, seconds=1.0, limit=args.limit, seed=args.seed)
        return dataset, time.perf_counter() - start


def runner(dataset, quick):
    """A function that makes one run."""

    def run(source, drawn, each, limit, method, seed):
        del source, drawn, each, limit
        model = MODELS[method](len(dataset.label_names), num_restarts=1 if quick else 3)
        start = time.perf_counter()
        result = model.fit(dataset.images, key=jax.random.key(seed))
        figures = {"loss": result.loss, **scores(dataset.labels, result.assignments)}
        row = {name: round(float(value), 4) for name, value in figures.items()}
        return {**row, "seconds": round(time.perf_counter() - start, 1)}

    return run


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        source={"default": None, "help": "folder of recordings, a subfolder a class"},
        each={"type": int, "default": 40, "help": "recordings of each word that is made up"},
        limit={"type": int, "default": None, "help": "most recordings to read"},
        methods={"nargs": "+", "default": list(PAPER), "choices": list(MODELS)},
        **RESULTS,
    )
    if args.quick:
        args.seeds, args.each, args.methods = 1, 4, ["kmeans", "di-kmeans", "di time"]
    dataset, seconds = read(args)
    print(
        f"{len(dataset)} recordings as {dataset.images.shape[1:3]} in {seconds:.1f} s", flush=True
    )
    figures = {
        "n": len(dataset),
        "classes": len(dataset.label_names),
        "seconds_reading": round(seconds, 2),
    }
    asked = [
        (args.source, args.seed, args.each, args.limit, method, seed)
        for method in args.methods
        for seed in range(args.seed, args.seed + args.seeds)
    ]
    rows = asked_runs(args.results, NAMES, asked, runner(dataset, args.quick))
    for method in args.methods:
        runs = [row for row in rows if row["method"] == method]
        figures[method] = {
            **{
                score: mean_and_std([row[score] for row in runs]) for score in ("acc", "nmi", "ari")
            },
            "least_loss_acc": min(runs, key=lambda row: row["loss"])["acc"],
            "paper_acc_on_audiomnist": PAPER.get(method),
        }
        print(f"{method:9s} {figures[method]}", flush=True)
    finish({"experiment": "spoken_digits", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
