"""Compositions that none of the papers has, each a few lines.

    python -m experiments.compositions.run [--seed 0] [--quick] [--limit 2000]

On USPS: the flagship's graph with other distances in the place of the thin-plate-spline one, a
clustering in scattering space after an affine alignment, and DI K-means started from the
flagship's assignments. Labels are used to score and for nothing else.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import diffclust
from diffclust.alignment import Descent, Stage
from diffclust.data import load
from diffclust.distances import FeatureDistance
from diffclust.graphs import judged_candidates, rejudged
from diffclust.metrics import scores
from diffclust.models.cuts import cut_mean_graph
from diffclust.models.di_spectral import unit_norm
from diffclust.objectives import AfterAlignment, InvariantDistance, TransformedDistance
from diffclust.solvers.progress import ignore
from diffclust.transforms import Affine
from experiments.harness import arguments, finish


def graph_with(model, candidates, distance, images, key):
    """The flagship with another distance: everything else is as it was."""
    squared = judged_candidates(candidates, distance, unit_norm(images))
    judged = [
        rejudged(near, np.sqrt(np.maximum(found, 0)), near.num_neighbours)
        for near, found in zip(candidates, squared, strict=True)
    ]
    return cut_mean_graph(judged, model.num_neighbours, 10, model.num_restarts, key)


def main():
    args = arguments(
        __doc__, limit={"type": int, "default": 2000, "help": "most images, drawn with seed 0"}
    )
    data = load("usps").limit(200 if args.quick else args.limit, seed=0)
    images, key = data.images, jax.random.key(args.seed)
    model = diffclust.DeformationInvariantSpectralClustering(10)
    _, coordinates = model.project(images, max(model.num_removed), ignore)
    candidates = model.candidates(coordinates)
    figures = {"experiment": "compositions", "n": len(data), "seed": args.seed}

    def tell(name, assignments, begun):
        found = {k: round(v, 4) for k, v in scores(data.labels, assignments).items()}
        figures[name] = {**found, "seconds": round(time.perf_counter() - begun, 1)}
        print(f"{name:44s} {figures[name]}", flush=True)

    def graph(name, distance):
        begun = time.perf_counter()
        tell(name, graph_with(model, candidates, distance, images, key).rows.assignments, begun)

    typical = jnp.asarray(unit_norm(images[:64]))
    bent = model.distance(typical)
    graph("graph: thin-plate splines (the flagship)", bent)
    affine = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(12),)))
    graph("graph: affine maps only", affine.prepared(typical, jnp.asarray([0.5])))
    seen = FeatureDistance(model.feature_map(*images.shape[1:3]))
    graph("graph: scattering distance after alignment", AfterAlignment(bent, seen))

    begun = time.perf_counter()
    ai = diffclust.AffineInvariantKMeans(10).fit(images, key=key)
    tell("AI K-means", ai.assignments, begun)
    aligned = ai.align(images, ai.outcome.assignment.params)
    for name, given in (
        ("scattering K-means", images),
        ("scattering K-means after affine alignment", aligned),
    ):
        begun = time.perf_counter()
        found = diffclust.ScatteringKMeans(10).fit(given, key=key)
        tell(name, found.assignments, begun)

    di = diffclust.DeformationInvariantKMeans(10)
    begun = time.perf_counter()
    flagship = model.fit(images, key=key)
    tell("di-spectral", flagship.assignments, begun)
    begun = time.perf_counter()
    tell("DI K-means", di.fit(images, key=key).assignments, begun)
    begun = time.perf_counter()
    started = di.fit(images, key=key, assignments=flagship.assignments)
    tell("DI K-means from di-spectral's assignments", started.assignments, begun)
    finish(figures)


if __name__ == "__main__":
    main()
