"""PSSC, Table 5: what the paper leaves open in rows 2, 3, 4 and 6, over a grid, every cell printed.

    python -m experiments.pssc_table5.grid [--seed 0] [--quick] [--limit N]

The grid was declared before it was run: σ a quarter, a half, one and two times the mean distance to
the five representatives; 100, 300 and 1,000 directions (784 pixels have no more); scattering
coefficients as they are, each path divided by its largest norm, or their square root; and, for
k-means, the same without σ. Rows with POC leave out n = 2 directions. One seed a cell. Labels
score, and choose no cell: the paper's figure is held against the range over all.
"""

import functools
import time

import jax
import numpy as np

from diffclust.data import load
from diffclust.features import drop_leading
from diffclust.graphs import gaussian_affinity, transfer_cut
from diffclust.graphs.neighbours import neighbours_of
from diffclust.metrics import scores
from diffclust.solvers import kmeans
from experiments.harness import SOURCE, arguments, datasets, finish
from experiments.pssc_table5.run import PAPER, coordinates_of, published

SIGMAS = (0.25, 0.5, 1.0, 2.0)
DIRECTIONS = (100, 300, 1000)
NORMALISATIONS = ("none", "largest", "root")
ROWS = ("POC + U-SPEC", "scattering + U-SPEC", "U-SPEC", "scattering + k-means")


def uspec(model, coordinates, n, directions, k, key):
    """Clusters by U-SPEC, for each σ."""
    near = dict(model.near_representatives(coordinates[:, : n + directions], n, key))
    chosen = near.pop("chosen")
    (neighbours,) = neighbours_of(near)
    mean = neighbours.distance[:, :5].mean(dtype=np.float64)
    for factor in SIGMAS:
        sigma = factor * mean
        graph = gaussian_affinity(neighbours, len(chosen), num_neighbours=5, sigma=sigma)
        embedding = transfer_cut(graph, k)
        yield factor, kmeans(embedding.vectors, k, key=key, num_restarts=10)


def cells(row, coordinates, model, k, key):
    """Every cell of a row, for one normalisation."""
    n = 2 if "POC" in row else 0
    for directions in sorted({min(count, coordinates.shape[1]) for count in DIRECTIONS}):
        if row.endswith("k-means"):
            kept = drop_leading(coordinates, n, directions)
            yield f"{directions} directions", kmeans(kept, k, key=key, num_restarts=1)
            continue
        for factor, result in uspec(model, coordinates, n, directions, k, key):
            yield f"{directions} directions, σ {factor}", result


def main():
    args = arguments(
        __doc__,
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        **SOURCE,
    )
    if args.quick:
        args.limit = 400
    named = functools.partial(load, limit=args.limit, seed=0)
    [(_, data, k)] = datasets(args, named, ["mnist"])
    key, figures = jax.random.key(args.seed), {row: {} for row in ROWS}
    for scattering in (True, False):
        for normalisation in NORMALISATIONS[:1] if args.quick or not scattering else NORMALISATIONS:
            model = published(k, 0, normalisation)
            coordinates = coordinates_of(model, data.images, scattering)
            for row in ROWS:
                if ("scattering" in row) != scattering:
                    continue
                start = time.perf_counter()
                for cell, result in cells(row, coordinates, model, k, key):
                    scored = scores(data.labels, result.assignments)
                    place = f"{normalisation}, {cell}"
                    figures[row][place] = {s: round(float(scored[s]), 4) for s in ("acc", "nmi")}
                    print(f"{row:22s} {place:38s} {figures[row][place]}", flush=True)
                print(f"{row:22s} {time.perf_counter() - start:.0f} s", flush=True)
    for row, result in figures.items():
        accuracies = sorted(cell["acc"] for cell in result.values())
        least, most, middle = accuracies[0], accuracies[-1], float(np.median(accuracies))
        print(f"{row:22s} least {least} median {middle:.4f} most {most} paper {PAPER[row][:2]}")
    finish({"experiment": "pssc_table5_grid", "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
