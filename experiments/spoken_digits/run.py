"""From recordings to clusters: spoken digits as images of time and pitch.

    python -m experiments.spoken_digits.run [--seed 0] [--seeds 3] [--source FOLDER] [--quick]

Without a source, ten made-up words are synthesised: a buzz whose resonances glide as in speech,
each time by another speaker (pitch, length of the throat), at another pace and moment, with noise,
in WAV and FLAC, mono and stereo, at several rates. They are written as files and loaded as any
recordings are. Classes score, and do nothing else.
"""

import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import soundfile

import diffclust
from diffclust.data import load
from diffclust.metrics import scores
from experiments.harness import arguments, finish, spread

PAPER = {"kmeans": 10.8, "ai-kmeans": 29.8, "di-kmeans": 41.6}
RATES = (16_000, 44_100, 48_000, 96_000)
MODELS = (
    diffclust.KMeans,
    diffclust.AffineInvariantKMeans,
    diffclust.DeformationInvariantKMeans,
)


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
        begun = time.perf_counter()
        dataset = load(source, rate=48_000, seconds=1.0, limit=args.limit, seed=args.seed)
        return dataset, time.perf_counter() - begun


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        source={"default": None, "help": "folder of recordings, a subfolder a class"},
        each={"type": int, "default": 40, "help": "recordings of each word that is made up"},
        limit={"type": int, "default": None, "help": "most recordings to read"},
    )
    if args.quick:
        args.seeds, args.each = 1, 4
    dataset, seconds = read(args)
    clusters = len(dataset.label_names)
    print(
        f"{len(dataset)} recordings as {dataset.images.shape[1:3]} in {seconds:.1f} s", flush=True
    )
    figures = {"n": len(dataset), "classes": clusters, "seconds_reading": round(seconds, 2)}
    for kind in MODELS:
        rows = []
        for seed in range(args.seed, args.seed + args.seeds):
            model = kind(clusters, num_restarts=1 if args.quick else 3)
            begun = time.perf_counter()
            result = model.fit(dataset.images, key=jax.random.key(seed))
            row = {"loss": result.loss, **scores(dataset.labels, result.assignments)}
            rows.append(row)
            told = " ".join(f"{name}={value:.4f}" for name, value in row.items())
            took = time.perf_counter() - begun
            print(f"{model.method:9s} seed={seed} {told} seconds={took:.1f}", flush=True)
        least = min(rows, key=lambda row: row["loss"])
        figures[model.method] = {
            **{score: spread([row[score] for row in rows]) for score in ("acc", "nmi", "ari")},
            "least_loss_acc": round(least["acc"], 4),
            "paper_acc_on_audiomnist": PAPER[model.method],
        }
    finish({"experiment": "spoken_digits", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
