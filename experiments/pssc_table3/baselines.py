"""PSSC, Table 3: the rows of k-means, spectral clustering and DBSCAN, by scikit-learn, on pixels.

    python -m experiments.pssc_table3.baselines [--seed 0] [--seeds 5] [--quick] [--sets ...]

k-means has ten restarts. Spectral clustering cuts the graph of the ten nearest neighbours, up to
20,000 images (on MNIST the paper's ran out of memory). DBSCAN, which knows no number of clusters,
has `min_samples=5` and as `eps` the median distance to the fifth neighbour, since the paper names
neither; what it calls noise counts as one cluster more. Labels score, and do nothing else.
"""

import time
import warnings

import numpy as np
from sklearn.cluster import DBSCAN, KMeans, SpectralClustering
from sklearn.neighbors import NearestNeighbors

from diffclust.metrics import scores
from experiments.harness import SOURCE, arguments, datasets, finish, mean_and_std, peak_memory_mb
from experiments.pssc_table3.run import PAPER as SETS
from experiments.pssc_table3.run import images_of

PAPER = {
    "k-means": {"mnist": (0.584, 0.497), "mnist-test": (0.596, 0.505), "usps": (0.735, 0.613)},
    "spectral clustering": {"mnist-test": (0.705, 0.715), "usps": (0.818, 0.819)},
    "DBSCAN": {"mnist-test": (0.114, 0.167), "usps": (0.0, 0.0)},
}
MOST = {"spectral clustering": 20_000, "DBSCAN": 20_000}


def by_kmeans(pixels, k, seed):
    return KMeans(k, n_init=10, random_state=seed).fit_predict(pixels)


def by_spectral_clustering(pixels, k, seed):
    with warnings.catch_warnings():
        # That a graph is in several parts is no fault.
        warnings.simplefilter("ignore")
        return SpectralClustering(
            k, affinity="nearest_neighbors", n_neighbors=10, random_state=seed
        ).fit_predict(pixels)


def by_dbscan(pixels, k, seed):
    del k, seed
    distance = NearestNeighbors(n_neighbors=5).fit(pixels).kneighbors()[0]
    return DBSCAN(eps=float(np.median(distance[:, -1])), min_samples=5).fit_predict(pixels)


METHODS = {
    "k-means": by_kmeans,
    "spectral clustering": by_spectral_clustering,
    "DBSCAN": by_dbscan,
}


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 5, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        sets={"nargs": "+", "default": ["usps", "mnist-test", "mnist"], "choices": list(SETS)},
        **SOURCE,
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 400, ["usps"]
    figures = {}
    for name, data, k in datasets(args, lambda name: images_of(name, args.limit), args.sets):
        pixels = np.asarray(data.images).reshape(len(data), -1)
        for method, cluster in METHODS.items():
            if len(data) > MOST.get(method, len(data)):
                continue
            rows = []
            for seed in range(args.seed, args.seed + (1 if method == "DBSCAN" else args.seeds)):
                start = time.perf_counter()
                assignments = cluster(pixels, k, seed)
                # Noise is -1.
                rows.append(scores(data.labels, assignments - assignments.min()))
                seconds = round(time.perf_counter() - start, 1)
                rounded = {name: round(float(score), 4) for name, score in rows[-1].items()}
                print(f"{name:10s} {method:20s} seed={seed} {rounded} {seconds} s", flush=True)
            result = {score: mean_and_std([row[score] for row in rows]) for score in ("acc", "nmi")}
            figures[f"{name}: {method}"] = {**result, "paper": PAPER[method].get(name)}
    for row, result in figures.items():
        print(f"{row:34s} {result}")
    finish({"experiment": "pssc_table3_baselines", **figures, "peak_memory_mb": peak_memory_mb()})


if __name__ == "__main__":
    main()
