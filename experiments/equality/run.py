"""Whether this version finds what another one found, to the last bit.

    python -m experiments.equality.run --write FILE
    python -m experiments.equality.run --against FILE

The demo, and one fit of every method on 500 USPS digits (shape K-means: the rat skulls), seed 0.
Compared are assignments and distances (CRC-32 of their bytes), the loss and its history (as
hexadecimal floats). Equal bits can be asked for on one machine with the same JAX and Python only.
"""

import json
import zlib
from pathlib import Path

import jax
import numpy as np

import diffclust
from diffclust import Training
from diffclust.data import load, load_landmarks
from experiments.harness import arguments, data_file, finish

SHORT = Training(max_steps=200)


def fits():
    """The name of every fit, its model and what it clusters."""
    usps = load("usps", limit=500).images
    yield "demo", diffclust.DeformationInvariantKMeans(10), load("digits").images
    yield "kmeans", diffclust.KMeans(10), usps
    yield "ai-kmeans", diffclust.AffineInvariantKMeans(10), usps
    yield "di-kmeans", diffclust.DeformationInvariantKMeans(10), usps
    learned = diffclust.AffineInvariantKMeans(10, penalty_rounds=2, num_restarts=1)
    yield "ai-kmeans, learned penalties", learned, usps
    yield "scattering-kmeans", diffclust.ScatteringKMeans(10), usps
    yield "pssc", diffclust.ProjectedScatteringSpectralClustering(10), usps
    published = diffclust.ProjectedScatteringSpectralClustering.as_published(10)
    yield "pssc, as published", published, usps
    yield "di-spectral", diffclust.DeformationInvariantSpectralClustering(10), usps
    yield "dti-kmeans", diffclust.DTIKMeans(10, training=SHORT), usps
    yield "dti-gmm", diffclust.DTIGaussianMixture(10, training=SHORT), usps
    yield "ti-kmeans", diffclust.TransformationInvariantKMeans(10, training=SHORT), usps
    yield "gmm", diffclust.GaussianMixture(10, training=SHORT), usps
    skulls = load_landmarks(str(data_file("rats.npz"))).landmarks
    yield "shape-kmeans", diffclust.ShapeKMeans(8), skulls
    fisher = diffclust.ShapeKMeans(8, distance="fisher-rao", num_restarts=5)
    yield "shape-kmeans, Fisher-Rao", fisher, skulls


def fingerprint(result):
    actual = result.outcome.assignment
    arrays = {name: np.ascontiguousarray(getattr(actual, name)) for name in ("clusters", "params")}
    arrays |= {"distances": np.ascontiguousarray(actual.distances)}
    return {
        "loss": float(result.loss).hex(),
        "history": [float(loss).hex() for loss in result.history],
        **{name: zlib.crc32(array.tobytes()) for name, array in arrays.items()},
    }


def main():
    files = {"default": None, "metavar": "FILE"}
    args = arguments(__doc__, write=files, against=files)
    known = None if args.against is None else json.loads(Path(args.against).read_text("utf-8"))
    actual, differing = {}, []
    for name, model, samples in fits():
        if args.quick and name not in ("kmeans", "shape-kmeans"):
            continue
        result = model.fit(samples, key=jax.random.key(args.seed))
        actual[name] = fingerprint(result)
        printed = f"loss {result.loss:.6f}"
        if known is not None:
            other = known[name]
            parts = [part for part in other if other[part] != actual[name][part]]
            printed += " equal" if not parts else f" DIFFERS in {', '.join(parts)}"
            differing += [name] if parts else []
        print(f"{name:30s} {printed}", flush=True)
    if args.write is not None:
        Path(args.write).write_text(json.dumps(actual, indent=1) + "\n", "utf-8")
    finish({"experiment": "equality", "fits": len(actual), "differing": differing})


if __name__ == "__main__":
    main()
