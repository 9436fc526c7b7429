"""One measurement that waits for a GPU, in a process of its own.

    python -m experiments.gpu.measure [--name kmeans] [--seed 0] [--state FOLDER] [--quick]

Figures are printed as JSON while they come, so that a run that is stopped has said what it knew,
and all of them in the last line, with the machine and the greatest memory that the device held.
Labels score, and do nothing else. A DTI run keeps its state in FOLDER, and goes on from what is
there. What needs other people's code is in `rivals`.
"""

import argparse
import contextlib
import functools
import itertools
import json
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import diffclust
from diffclust.data import load
from diffclust.metrics import scores
from diffclust.parallel import Data
from diffclust.storage import SnapshotFolder
from experiments.harness import arguments, finish, peak_memory_mb

AUTHORS_STEPS = (2735, 5470, 2735, 8205, 2735)
"""The authors' 40 epochs of 547 batches: 5 without a transform, 10, 5 and 15 with one more each,
and 5 at a tenth of the rate."""

_FORMER = {"steps": (500, 1500, 2000, 2000, 1000), "bias_correction": "fit"}
_FORMER_MIXTURE = {**_FORMER, "initial_variance": 0.25, "variance_curriculum": False}
"""The defaults until 30 November 2026."""

Figures = dict[str, Any]


def note(figures: Figures) -> None:
    """Prints what is known so far."""
    print(json.dumps(figures), flush=True)


def device_peak_mb() -> int | None:
    """The most that this process held on the device, where the backend tells."""
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use")
    return None if peak is None else round(peak / 2**20)


def versions() -> dict[str, str | None]:
    import jaxlib

    driver = None
    if jax.default_backend() == "gpu" and shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        driver = answer.strip().splitlines()[0] if answer.strip() else None
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "platform": jax.devices()[0].client.platform_version.replace("\n", " "),
        "driver": driver,
    }


def scored(labels: np.ndarray, assignments: np.ndarray) -> Figures:
    return {k: round(v, 4) for k, v in scores(labels, assignments).items()}


class Clock:
    """Seconds of the stages of a fit, from what it tells while it goes."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.ends: dict[str, float] = {}

    def __call__(self, progress: Any) -> None:
        self.ends[progress.stage] = time.perf_counter() - self.begun

    def stages(self) -> dict[str, float]:
        """A stage begins with the last report of the one before."""
        ends = sorted(self.ends.items(), key=lambda item: item[1])
        spent = np.diff([0.0, *(end for _, end in ends)]).round(2).tolist()
        return {name: each for (name, _), each in zip(ends, spent, strict=True)}


def repeated(model: Any, data: Any, seed: int, repeats: int = 2) -> Figures:
    """The same fit again and again: only the first one compiles."""
    rows: list[Figures] = []
    for _ in range(repeats):
        clock = Clock()
        result = model.fit(data.images, key=jax.random.key(seed), callback=clock)
        row = {"seconds": round(time.perf_counter() - clock.begun, 2), "stages": clock.stages()}
        figures = getattr(result.outcome, "figures", None) or {}
        row |= {k: round(float(v), 4) for k, v in figures.items() if k in ("stability", "eigengap")}
        row |= {"loss": round(float(result.loss), 5), **scored(data.labels, result.assignments)}
        rows.append(row)
        note(row)
    first, last = rows[0], rows[-1]
    return {
        **last,
        "n": len(data),
        "first_seconds": first["seconds"],
        "all_seconds": [row["seconds"] for row in rows],
    }


def mnist(quick: bool, split: str = "all", limit: int | None = None) -> Any:
    return load("mnist", split=split, limit=200 if quick else limit, seed=0)


def kmeans(seed: int, quick: bool) -> Figures:
    return repeated(diffclust.KMeans(10), mnist(quick), seed, 2 if quick else 4)


def di_spectral(seed: int, quick: bool) -> Figures:
    model = diffclust.DeformationInvariantSpectralClustering(10, register="none")
    return repeated(model, mnist(quick), seed, 1 if quick else 2)


def pssc(seed: int, quick: bool) -> Figures:
    model = diffclust.ProjectedScatteringSpectralClustering(10, affinity="graph", register="none")
    return repeated(model, mnist(quick), seed, 1 if quick else 2)


def pssc_as_published(seed: int, quick: bool) -> Figures:
    model = diffclust.ProjectedScatteringSpectralClustering.as_published(10)
    return repeated(model, mnist(quick), seed, 1 if quick else 2)


def prototypes(model: Any, count: int) -> Callable[[int, bool], Figures]:
    """Fits training digits, scores them and the 10,000 test digits, which it predicts."""

    def measured(seed: int, quick: bool) -> Figures:
        fitted = mnist(quick, "train", count if count < 60_000 else None)
        test = mnist(quick, "test")
        clock = Clock()
        result = model.fit(fitted.images, key=jax.random.key(seed), callback=clock)
        seconds = time.perf_counter() - clock.begun
        row = {
            "n": len(fitted),
            "seconds": round(seconds, 2),
            "passes": len(result.history),
            "loss": round(float(result.loss) / len(fitted), 5),
            "fitted": scored(fitted.labels, result.assignments),
        }
        note(row)
        predicted = []
        for _ in range(2):
            start = time.perf_counter()
            actual = result.predict(test.images).clusters
            predicted.append(round(time.perf_counter() - start, 2))
        return {**row, "predict_seconds": predicted[-1], **scored(test.labels, actual)}

    return measured


def table1_as_published(method: str, name: str) -> Callable[[int, bool], Figures]:
    """DI K-means' Table 1: every rate and landmark grid, of which the least distortion is kept."""

    def measured(seed: int, quick: bool) -> Figures:
        from experiments.di_kmeans_table1 import run

        limit = 120 if quick else 2000
        args = argparse.Namespace(
            source=None,
            limit=limit,
            as_published=True,
            rates=run.PUBLISHED_RATES[-1:] if quick else run.PUBLISHED_RATES,
            grids=run.GRIDS[:1] if quick else run.GRIDS,
            passes=3 if quick else run.PASSES,
        )
        figures = run.runner(args)(name, "as published", limit, method, seed)
        return {"n": figures["n_fitted"], **figures}

    return measured


def dti_step(seed: int, quick: bool) -> Figures:
    """A step of batch 128 with all transforms, each waited for, as the benchmark on CPUs has it."""
    from diffclust.models import MODELS
    from experiments.benchmarks.dti_step import TRANSFORMS, measure

    images = load("mnist", split="test", limit=128, seed=seed).images
    figures: Figures = {}
    backbones = ("strided", "residual", "residual-batch-norm")
    pairs = [(m, b) for m in ("dti-kmeans", "dti-gmm") for b in backbones]
    for method, backbone in pairs[:1] if quick else pairs:
        settings = {"num_clusters": 10, "transforms": TRANSFORMS, "backbone": backbone}
        model = MODELS[method].from_settings(settings)
        figures[f"{method} {backbone}"] = measure(model, images, 3, 2 if quick else 50)
        note(figures)
    return figures


def dti(
    method: str,
    steps: tuple[int, ...] | None = None,
    *,
    name: str = "mnist",
    as_published: bool = False,
    **settings: Any,
) -> Callable[[int, bool], Figures]:
    """One run of DTI clustering on a set, by default all of MNIST.

    As published, it has batch normalisation and the authors' epochs.
    """

    def measured(seed: int, quick: bool, state: Path | None = None) -> Figures:
        from experiments.dti import data_of, model_of

        data = data_of(name, 200 if quick else None)
        planned = {} if steps is None else {"steps": steps}
        if quick:
            planned = {"steps": (2,) * 5, "epochs": None}
        model = model_of(method, name, as_published=as_published, **planned, **settings)
        times: list[tuple[int, float]] = []

        def clock(progress: Any) -> None:
            if progress.stage == "step":
                times.append((progress.done, time.perf_counter()))

        run = {"method": method, "set": name, "seed": seed, **model.settings()}
        with contextlib.nullcontext() if state is None else SnapshotFolder(state, run=run) as kept:
            result = model.fit(
                data.images, key=jax.random.key(seed), callback=clock, snapshots=kept
            )
        windows = [
            (then - before) / (after - start)
            for (start, before), (after, then) in itertools.pairwise(times)
            if after > start
        ]
        start = time.perf_counter()
        result.predict(data.images)
        return {
            "n": len(data),
            "inference_seconds": round(time.perf_counter() - start, 2),
            "steps": model.training_plan(Data(data.images).description).num_steps,
            "seconds": round(result.outcome.seconds, 1),
            # The last phase has all transforms, and windows that compile are few.
            **({"ms_a_step": round(1e3 * float(np.median(windows[-5:])), 2)} if windows else {}),
            "loss": round(float(result.loss) / len(data), 4),
            **{k: int(result.outcome.figures[k]) for k in ("refills", "moves")},
            **scored(data.labels, result.assignments),
        }

    return measured


def pairs(seed: int, quick: bool) -> Figures:
    """Judged pairs a second, against 40 steps of Adam; chunks as the library chooses them."""
    from experiments.benchmarks.refine import compare

    return compare(64 if quick else 65_536, seed, 1 if quick else 3)


def passes(seed: int, quick: bool, *, as_published: bool = False) -> Figures:
    """Seconds of a Lloyd pass and the greatest memory so far, over N and over landmarks."""
    from experiments.benchmarks.scaling import models, seconds_per_pass

    del seed
    images = mnist(quick).images
    rows = []
    sizes = (64, 128) if quick else (10_000, 35_000, 70_000)
    for size in sizes:
        row: Figures = {"n": size}
        for model in models(6, as_published=as_published):
            row[model.method], _ = seconds_per_pass(model, images[:size])
        rows.append({**row, "device_peak_mb": device_peak_mb()})
        note({"by_n": rows})
    sides = (3,) if quick else (3, 4, 5, 6, 7, 8)
    landmarks: Figures = {}
    for side in sides:
        _, model = models(side, as_published=as_published)
        landmarks[str(side**2)], _ = seconds_per_pass(model, images[: sizes[0]])
        note({"by_n": rows, "by_landmarks": landmarks, "landmarks_n": sizes[0]})
    return {"by_n": rows, "by_landmarks": landmarks, "landmarks_n": sizes[0]}


def pmap(seed: int, quick: bool) -> Figures:
    """The experiment on `jax.pmap`, on the devices that there are."""
    command = [sys.executable, "-m", "experiments.pmap.run", "--seed", str(seed)]
    printed = subprocess.run(
        [*command, *(["--quick"] * quick)], capture_output=True, text=True, check=True
    )
    return json.loads(printed.stdout.splitlines()[-1])


MEASUREMENTS: dict[str, Callable[..., Figures]] = {
    "kmeans": kmeans,
    "di-spectral": di_spectral,
    "pssc": pssc,
    "pssc-as-published": pssc_as_published,
    "di-kmeans-10000": prototypes(diffclust.DeformationInvariantKMeans(10), 10_000),
    "di-kmeans-60000": prototypes(diffclust.DeformationInvariantKMeans(10), 60_000),
    "ai-kmeans-60000": prototypes(diffclust.AffineInvariantKMeans(10), 60_000),
    "kmeans-60000": prototypes(diffclust.KMeans(10), 60_000),
    "dti-step": dti_step,
    "dti-kmeans": dti("dti-kmeans"),
    "dti-gmm": dti("dti-gmm"),
    "dti-kmeans-authors-steps": dti("dti-kmeans", AUTHORS_STEPS),
    "dti-gmm-authors-steps": dti("dti-gmm", AUTHORS_STEPS),
    "dti-kmeans-residual": dti("dti-kmeans", AUTHORS_STEPS, backbone="residual"),
    "dti-kmeans-fit": dti("dti-kmeans", **_FORMER),
    "dti-gmm-fit": dti("dti-gmm", **_FORMER_MIXTURE),
    **{
        f"{method}{'' if name == 'mnist' else '-' + name}-as-published": dti(
            method, name=name, as_published=True
        )
        for method in ("dti-kmeans", "dti-gmm")
        for name in ("mnist", "usps", "mnist-1k", "mnist-test", "color-published", "affnist-like")
    },
    **{
        f"{method}-{name}-as-published": table1_as_published(method, name)
        for name in ("affine-mnist", "diffeo-mnist", "mnist")
        for method in ("ai-kmeans", "di-kmeans")
    },
    "ai-kmeans-60000-as-published": prototypes(
        diffclust.AffineInvariantKMeans.as_published(10), 60_000
    ),
    "di-kmeans-60000-as-published": prototypes(
        diffclust.DeformationInvariantKMeans.as_published(10), 60_000
    ),
    "pairs": pairs,
    "passes": passes,
    "passes-as-published": functools.partial(passes, as_published=True),
    "pmap": pmap,
}


def main() -> None:
    args = arguments(
        __doc__,
        name={"default": "kmeans", "choices": list(MEASUREMENTS)},
        state={"type": Path, "default": None, "help": "where a DTI run keeps its state"},
    )
    # What is stopped ends by an exception, and saves its state.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    kept = {} if args.state is None else {"state": args.state}
    figures = MEASUREMENTS[args.name](args.seed, args.quick, **kept)
    finish(
        {
            "measurement": args.name,
            "seed": args.seed,
            "figures": {
                **figures,
                "device_peak_mb": device_peak_mb(),
                "host_peak_mb": round(peak_memory_mb()),
            },
            "versions": versions(),
        }
    )


if __name__ == "__main__":
    main()
