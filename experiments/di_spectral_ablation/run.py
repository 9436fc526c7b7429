"""Which part of di-spectral gives how much, on USPS and MNIST-test.

    python -m experiments.di_spectral_ablation.run [--seed 0] [--quick] [--limit N] [--plot FIGURE]

One setting at a time is moved away from the default: where candidates come from, whether and how
they are judged, landmarks, penalties over two decades, candidates, directions, kept neighbours.
Features are computed once for each set. Each line also prints what can be known without labels,
the normalised cut and the eigengap; at the end their rank correlations with accuracy tell whether
they order the settings as accuracy does. Labels are used to score and for nothing else.
"""

import dataclasses
import time

import jax
import numpy as np
import scipy.stats

import diffclust
from diffclust.alignment import InvariantDistance
from diffclust.distances import SquaredEuclidean
from diffclust.energies import TransformedDistance
from diffclust.features.orthogonal_complement import fit_projection
from diffclust.graphs import candidate_distances, reranked
from diffclust.metrics import scores
from diffclust.models import cut_mean_graph
from diffclust.models.di_spectral import unit_norm
from diffclust.parallel import Data
from diffclust.transforms import Affine
from experiments.harness import arguments, finish
from experiments.pssc_table3.run import images_of

MODEL = diffclust.DeformationInvariantSpectralClustering(10)

SETTINGS = {
    **{f"landmarks {n}x{n}": {"landmarks": (n, n)} for n in (3, 4, 6)},
    **{
        f"penalties x {factor:g}": {
            "affine_penalty": MODEL.affine_penalty * factor,
            "bending_penalty": MODEL.bending_penalty * factor,
        }
        for factor in (0.1, 0.3, 3.0, 10.0)
    },
    **{f"{n} candidates": {"num_candidates": n} for n in (8, 12, 20, 30)},
    **{f"direction {name}": {"direction": name} for name in ("min", "mean")},
    **{f"keep {k}": {"num_neighbours": (k,)} for k in (3, 4, 5, 7, 10)},
    "candidates from n = 2 alone": {"num_removed": (2,)},
}


def changed(**settings):
    return dataclasses.replace(MODEL, **settings)


def pixels(images):
    """Coordinates of the images themselves, no direction removed."""
    flat = images.reshape(len(images), 1, 1, -1)
    count = flat.shape[-1]
    return fit_projection(
        lambda image: image.reshape(-1), flat, num_directions=count, normalisation="none"
    )[1]


def affine_only(model, images, candidates):
    """Candidates judged by the distance after an affine map, no bending."""
    units = unit_norm(images)
    energy = TransformedDistance(Affine())
    penalty = jax.numpy.asarray([model.affine_penalty], dtype=units.dtype)
    distance = InvariantDistance(energy, model.aligner()).prepared(units[:64], penalty)
    return judged_by(distance, units, candidates)


def judged_by(distance, samples, candidates, *, squared=True):
    """Candidates ranked by a distance, or by its root where it is a squared one."""
    judged = []
    for near, result in zip(
        candidates, candidate_distances(candidates, distance, samples), strict=True
    ):
        lengths = np.sqrt(np.maximum(result, 0)) if squared else result
        judged.append(reranked(near, lengths, near.num_neighbours))
    return judged


def variants(images):
    """Each setting's name and its neighbours, one after another."""
    _, coordinates = MODEL.project(Data(images))
    candidates = MODEL.neighbours(coordinates)
    yield "default", MODEL, MODEL.rerank(candidates, images)
    yield "no refinement", MODEL, candidates
    raw = pixels(images)
    plain = changed(num_removed=(0,), num_dimensions=raw.shape[1])
    in_pixels = plain.neighbours(raw)
    yield "pixel candidates, no refinement", plain, in_pixels
    yield "pixel candidates, refined", plain, plain.rerank(in_pixels, images)
    units = unit_norm(images)
    yield "judged by pixels", MODEL, judged_by(SquaredEuclidean(), units, candidates)
    yield "affine only", MODEL, affine_only(MODEL, images, candidates)
    for name, settings in SETTINGS.items():
        model = changed(**settings)
        near = candidates
        if {"num_candidates", "num_removed"} & settings.keys():
            near = model.neighbours(coordinates)
        yield name, model, model.rerank(near, images)


def main():
    args = arguments(
        __doc__,
        seeds={"type": int, "default": 3, "help": "number of seeds"},
        limit={"type": int, "default": None, "help": "most images, drawn with seed 0"},
        sets={"nargs": "+", "default": ["usps", "mnist-test"], "choices": ["usps", "mnist-test"]},
        plot={"default": None, "help": "draw accuracy of every setting into this file"},
    )
    if args.quick:
        args.seeds, args.limit, args.sets = 1, 300, ["usps"]
    figures = {}
    for name in args.sets:
        data = images_of(name, args.limit)
        rows = {}
        start = time.perf_counter()
        for label, model, neighbours in variants(data.images):
            runs = []
            for seed in range(args.seed, args.seed + args.seeds):
                key = jax.random.key(seed)
                result = cut_mean_graph(
                    neighbours, model.neighbour_numbers, 10, model.num_restarts, key
                )
                runs.append(
                    {
                        **scores(data.labels, result.points.assignments),
                        "cut": result.loss,
                        "eigengap": result.figures["eigengap"],
                    }
                )
            rows[label] = {
                **{k: round(float(np.mean([run[k] for run in runs])), 5) for k in runs[0]},
                "acc_std": round(float(np.std([run["acc"] for run in runs])), 5),
            }
            spent = time.perf_counter() - start
            print(f"{name:10s} N={len(data)} {label:32s} {rows[label]} {spent:.0f}s", flush=True)
            start = time.perf_counter()
        figures[name] = {"n": len(data), "rows": rows}
        accuracy = [row["acc"] for row in rows.values()]
        for known in ("cut", "eigengap"):
            result = scipy.stats.spearmanr(accuracy, [row[known] for row in rows.values()])
            figures[name][f"spearman of accuracy and {known}"] = round(float(result.statistic), 3)
    if args.plot:
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(
            1, len(figures), figsize=(7 * len(figures), 7), layout="constrained", squeeze=False
        )
        for axis, (name, result) in zip(axes[0], figures.items(), strict=True):
            labels = list(result["rows"])[::-1]
            axis.barh(labels, [result["rows"][label]["acc"] for label in labels])
            least = min(row["acc"] for row in result["rows"].values())
            axis.set(xlim=(max(0.0, least - 0.02), 1.0), xlabel="accuracy", title=name)
        figure.savefig(args.plot, dpi=110)
    finish({"experiment": "di_spectral_ablation", "seeds": args.seeds, **figures})


if __name__ == "__main__":
    main()
