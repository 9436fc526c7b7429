"""Neighbour descent: recall as a function of judged pairs, under distances without features.

    python -m experiments.neighbour_descent.run [--seed 0] [--images 10000] [--queries 500]
        [--skulls 2000] [--neighbours 20] [--recall-at 15] [--sample-rate 0.4] [--max-pairs 300]
        [--exact FILE] [--sets digits skulls] [--quick]

MNIST test digits under di-spectral's penalised invariant distance, one way, some of them compared
with all; and skulls simulated as in shape K-means, Eq. 15, under the Fisher-Rao distance, all
compared with all. First neighbours are random, the distance is all that is used. Last comes the
normalised cut of the digits' graph; labels score it, and do nothing else.
"""

import time
from pathlib import Path

import jax
import numpy as np

from diffclust import DeformationInvariantSpectralClustering, ShapeKMeans
from diffclust.analysis.hierarchy import registered_gaussians
from diffclust.data import load, simulated_shapes
from diffclust.graphs import nearest_neighbour_descent, pair_distances
from diffclust.metrics import scores
from diffclust.models import cut_mean_graph
from diffclust.models.di_spectral import unit_norm
from diffclust.models.graph import by_root
from experiments.harness import arguments, finish, peak_memory_mb
from experiments.shape_kmeans_simulation.run import entries, mean_skulls


def digits(count):
    """Images of unit norm, the distance of one to another, and labels."""
    data = load("mnist", split="test")
    images, model = unit_norm(data.images[:count]), DeformationInvariantSpectralClustering(10)
    return images, model.distance(images[:64]), data.labels[:count]


def skulls(count, case, seed):
    """Registered shapes whose landmarks are Gaussians, and their Fisher-Rao distance."""
    of_entries, of_shapes = jax.random.split(jax.random.key(seed))
    sigma = entries(case, "swapped", of_entries)
    shapes, _ = simulated_shapes(mean_skulls(), sigma, per_group=count // 2, key=of_shapes)
    model = ShapeKMeans(2, distance="fisher-rao", variances="per_landmark", registration="rigid")
    gaussians = registered_gaussians(model, np.asarray(shapes))
    return jax.tree.map(np.asarray, gaussians), model.dissimilarity()


def exact_distances(samples, distance, queries, path):
    """The distances of some samples to all, kept in a file where one is given."""
    if path is not None and Path(path).is_file():
        with np.load(path) as stored:
            if np.array_equal(stored["q"], queries):
                return stored["d"]
    count = jax.tree.leaves(samples)[0].shape[0]
    sources, targets = np.repeat(queries, count), np.tile(np.arange(count), len(queries))
    result = pair_distances(distance, samples, samples, sources, targets)
    result = result.reshape(len(queries), count)
    if path is not None:
        np.savez(path, q=queries, d=result)
    return result


def curve(name, samples, distance, args, *, num_queries=None, path=None, **settings):
    """Recall after every round, and what it cost."""
    count = jax.tree.leaves(samples)[0].shape[0]
    rng = np.random.default_rng(0)
    queries = np.arange(count)
    if num_queries is not None:
        queries = rng.choice(count, min(num_queries, count), replace=False)
    start = time.perf_counter()
    exact = exact_distances(samples, distance, queries, path).copy()
    exact[np.arange(len(queries)), queries] = np.inf
    nearest = np.argsort(exact, axis=1, kind="stable")[:, : args.recall_at]
    exact_seconds, start, rows = time.perf_counter() - start, time.perf_counter(), []

    def report(result):
        actual = result.neighbours.index[queries, : args.recall_at]
        hits = [np.isin(near, row).mean() for near, row in zip(nearest, actual, strict=True)]
        rows.append((round(result.pairs_per_sample, 1), round(float(np.mean(hits)), 4)))
        print(name, f"pairs a sample {rows[-1][0]:6.1f} recall {rows[-1][1]:.4f}", flush=True)

    result = nearest_neighbour_descent(
        distance,
        samples,
        args.neighbours,
        key=jax.random.key(args.seed),
        sample_rate=args.sample_rate,
        max_pairs=args.max_pairs,
        callback=report,
        **settings,
    )
    return result.neighbours, {
        "n": count,
        "exact_seconds": round(exact_seconds, 1),
        "seconds": round(time.perf_counter() - start, 1),
        "converged": result.converged,
        "pairs_at_95": next((pairs for pairs, recall in rows if recall >= 0.95), None),
        "pairs": rows[-1][0],
        "recall": rows[-1][1],
        "curve": rows,
    }


def main():
    args = arguments(
        __doc__,
        images={"type": int, "default": 10000},
        queries={"type": int, "default": 500, "help": "images compared with all"},
        skulls={"type": int, "default": 2000},
        neighbours={"type": int, "default": 20, "help": "K of the descent"},
        recall_at={"type": int, "default": 15, "help": "how many of these are counted"},
        sample_rate={"type": float, "default": 0.4},
        max_pairs={"type": int, "default": 300, "help": "most evaluations a sample"},
        exact={"default": None, "help": "file that keeps the digits' exact distances"},
        sets={"nargs": "+", "default": ["skulls", "digits"], "choices": ["skulls", "digits"]},
    )
    if args.quick:
        args.images, args.queries, args.skulls, args.exact = 200, 20, 200, None
    figures = {}
    if "skulls" in args.sets:
        for case in ("isotropic", "heteroscedastic", "anisotropic"):
            samples, distance = skulls(args.skulls, case, args.seed)
            name = f"skulls {case}"
            settings = {"symmetric": True, "chunk_size": 2048}
            _, figures[name] = curve(name, samples, distance, args, **settings)
    if "digits" in args.sets:
        images, distance, labels = digits(args.images)
        settings = {"num_queries": args.queries, "path": args.exact}
        near, figures["digits"] = curve("digits", images, distance, args, **settings)
        # Self-tuning scales take distances that are not squared.
        (near,) = by_root([near], [near.distance])
        result = cut_mean_graph([near], (4, 5, 6, 7), 10, 10, jax.random.key(args.seed))
        figures["digits"]["scores"] = scores(labels, result.points.assignments)
        print("digits, the graph's cut:", figures["digits"]["scores"], flush=True)
    finish(
        {
            "experiment": "neighbour_descent",
            "seed": args.seed,
            **figures,
            "peak_memory_mb": round(peak_memory_mb()),
        }
    )


if __name__ == "__main__":
    main()
