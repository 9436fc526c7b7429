"""PSSC, Table 5: the six ablations on MNIST, ACC, NMI and time.

    python -m experiments.pssc_table5.run [--seed 0] [--quick] [--limit N]

Settings as published: each path divided by its largest norm, PCA to 1,000, n = 2, p = 1,000,
k = 5; rows without POC keep all 1,000 directions, rows without scattering take the pixels of the
28×28 images. Beside them the same six with the library's normalisation (square root). Times hold
features, directions and clustering; compilation is in the first seed's.
"""

import functools
import time

import jax
import numpy as np

from diffclust.data import load
from diffclust.features import drop_leading
from diffclust.features.orthogonal_complement import fit_projection
from diffclust.metrics import scores
from diffclust.models import ProjectedScatteringSpectralClustering
from diffclust.parallel import Data
from diffclust.solvers import kmeans
from experiments.harness import SOURCE, arguments, datasets, finish, mean_and_std
from experiments.pssc_table3.run import uspec

PAPER = {
    "scattering + POC + U-SPEC": (0.965, 0.913, 182),
    "POC + U-SPEC": (0.750, 0.687, 107),
    "scattering + U-SPEC": (0.942, 0.881, 121),
    "U-SPEC": (0.757, 0.711, 43),
    "scattering + POC + k-means": (0.838, 0.718, 173),
    "scattering + k-means": (0.601, 0.538, 187),
}


def published(k, num_removed, normalisation):
    return ProjectedScatteringSpectralClustering(
        k,
        affinity="representatives",
        num_removed=(num_removed,),
        num_neighbours=(5,),
        num_dimensions=1000 - num_removed,
        normalisation=normalisation,
        register="none",
    )


def coordinates_of(model, images, scattering):
    if scattering:
        return model.project(Data(images))[1]
    pixels = images.reshape(len(images), 1, 1, -1)
    most = min(1000, pixels.shape[-1])
    return fit_projection(
        lambda image: image.reshape(-1), pixels, num_directions=most, normalisation="none"
    )[1]


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        **SOURCE,
    )
    if args.quick:
        args.seeds, args.limit = 1, 400
    named = functools.partial(load, limit=args.limit, seed=0)
    [(_, data, k)] = datasets(args, named, ["mnist"])
    figures = {}
    for normalisation in ("largest", "root"):
        features = {}
        for scattering in (True, False):
            start = time.perf_counter()
            result = coordinates_of(published(k, 2, normalisation), data.images, scattering)
            features[scattering] = result, time.perf_counter() - start
        for name, paper in PAPER.items():
            coordinates, before = features["scattering" in name]
            n = 2 if "POC" in name else 0
            rows = []
            for seed in range(args.seed, args.seed + args.seeds):
                start, key = time.perf_counter(), jax.random.key(seed)
                if "U-SPEC" in name:
                    model = published(k, n, normalisation)
                    clusters = uspec(model, coordinates, key).points
                else:
                    window = np.ascontiguousarray(drop_leading(coordinates, n))
                    clusters = kmeans(window, k, key=key, num_restarts=1)
                seconds = before + time.perf_counter() - start
                rows.append({"seconds": seconds, **scores(data.labels, clusters.assignments)})
                words = " ".join(f"{k}={v:.4f}" for k, v in rows[-1].items())
                print(f"{normalisation:8s} {name:27s} seed={seed} {words}", flush=True)
            figures[f"{normalisation}: {name}"] = {
                **{score: mean_and_std([row[score] for row in rows]) for score in ("acc", "nmi")},
                "seconds": [round(row["seconds"], 1) for row in rows],
                "paper": paper,
            }
    finish({"experiment": "pssc_table5", "n": len(data), "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
