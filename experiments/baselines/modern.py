"""Modern baselines from other packages, beside our graphs: accuracy, seconds and memory in one run.

    pip install -r experiments/baselines/requirements.txt
    python -m experiments.baselines.modern [--seed 0] [--seeds 3] [--quick] [--limit N]
        [--sets usps mnist-test mnist] [--methods ...] [--results FILE]

`umap-mixture` is N2D without its autoencoder: UMAP of pixels (20 neighbours, no least distance,
as many dimensions as clusters), then a mixture with full covariances. `n2d`, which has the
autoencoder (and t-SNE in UMAP's place), and `subkmeans` are ClustPy's, as they come. Every run is
a process of its own, so that the greatest memory is its own; seconds leave out reading the data,
and hold compilation. FILE (JSON lines) keeps every run, and those that it has are not run again.
Labels score, and nothing else: all settings were fixed before any run. Without the packages their
methods are skipped, with a line that says so.
"""

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from diffclust.data import load
from diffclust.metrics import scores
from experiments.harness import (
    RESULTS,
    arguments,
    asked_runs,
    finish,
    mean_and_std,
    peak_memory_mb,
)

SETS = {"usps": ("usps", "all"), "mnist-test": ("mnist", "test"), "mnist": ("mnist", "all")}


def umap_mixture(images: np.ndarray, k: int, seed: int) -> np.ndarray:
    """A mixture of reduced pixels, like McConville et al. (2021)."""
    from sklearn.mixture import GaussianMixture
    from umap import UMAP

    reduced = UMAP(n_components=k, n_neighbors=20, min_dist=0.0, random_state=seed)
    codes = reduced.fit_transform(images.reshape(len(images), -1))
    return GaussianMixture(k, random_state=seed).fit_predict(codes)


def n2d(images: np.ndarray, k: int, seed: int) -> np.ndarray:
    from clustpy.deep import N2D

    flat = images.reshape(len(images), -1)
    return N2D(n_clusters=k, random_state=seed).fit(flat).labels_


def subkmeans(images: np.ndarray, k: int, seed: int) -> np.ndarray:
    from clustpy.centroid import SubKmeans

    flat = images.reshape(len(images), -1).astype(np.float64)
    return SubKmeans(n_clusters=k, random_state=seed).fit(flat).labels_


def ours(method: str) -> Callable[[np.ndarray, int, int], np.ndarray]:
    """A graph of the library, as it comes."""

    def cluster(images: np.ndarray, k: int, seed: int) -> np.ndarray:
        import jax

        from diffclust.models import MODELS

        return MODELS[method](k).fit(images, key=jax.random.key(seed)).assignments

    return cluster


METHODS = {
    "umap-mixture": ("umap", umap_mixture),
    "n2d": ("clustpy", n2d),
    "subkmeans": ("clustpy", subkmeans),
    "pssc": ("jax", ours("pssc")),
    "di-spectral": ("jax", ours("di-spectral")),
}
"""Each with the package that it needs."""

NAMES = ("set", "method", "limit", "seed")
"""What tells runs apart."""


def measured(name: str, method: str, limit: int | None, seed: int) -> dict[str, float]:
    """One run in this process."""
    source, split = SETS[name]
    data = load(source, split=split, limit=limit, seed=0)
    before = peak_memory_mb()
    start = time.perf_counter()
    clusters = METHODS[method][1](np.asarray(data.images), 10, seed)
    seconds = time.perf_counter() - start
    figures = scores(data.labels, np.asarray(clusters))
    return {
        "n": len(data),
        **{score: round(float(value), 4) for score, value in figures.items()},
        "seconds": round(seconds, 1),
        "memory_mb": round(peak_memory_mb()),
        "memory_before_mb": round(before),
    }


def apart(name: str, method: str, limit: int | None, seed: int) -> dict[str, float]:
    """One run in a process of its own."""
    each = json.dumps([name, method, limit, seed])
    command = [sys.executable, "-m", "experiments.baselines.modern", "--one", each]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {name} {method}: {(done.stderr.strip().splitlines() or [''])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        sets={"nargs": "+", "default": ["usps", "mnist-test"], "choices": list(SETS)},
        methods={"nargs": "+", "default": list(METHODS), "choices": list(METHODS)},
        one={"default": None, "help": "a single run, as JSON of set, method, limit and seed"},
        **RESULTS,
    )
    if args.one is not None:
        print(json.dumps(measured(*json.loads(args.one))), flush=True)
        return
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 300, ["usps"]
        args.methods = ["umap-mixture", "subkmeans", "pssc"]
    missing = [m for m in args.methods if importlib.util.find_spec(METHODS[m][0]) is None]
    for method in missing:
        print(f"{method} is skipped: the package {METHODS[method][0]} is not here", flush=True)
    methods = [method for method in args.methods if method not in missing]
    asked = [
        (name, method, args.limit, seed)
        for seed in range(args.seed, args.seed + args.seeds)
        for name in args.sets
        for method in methods
    ]
    rows = asked_runs(args.results, NAMES, asked, apart)
    figures = {}
    for name, method in dict.fromkeys((row["set"], row["method"]) for row in rows):
        runs = [row for row in rows if (row["set"], row["method"]) == (name, method)]
        figures[f"{name} {method}"] = {
            "n": runs[0]["n"],
            **{
                score: mean_and_std([run[score] for run in runs]) for score in ("acc", "nmi", "ari")
            },
            "seconds": [run["seconds"] for run in runs],
            "memory_mb": [run["memory_mb"] for run in runs],
        }
        print(name, method, figures[f"{name} {method}"], flush=True)
    finish({"experiment": "baselines_modern", **figures, "skipped": missing})


if __name__ == "__main__":
    main()
