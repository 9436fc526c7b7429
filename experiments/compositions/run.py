"""Compositions that none of the papers has, each a few lines.

    python -m experiments.compositions.run [--seed 0] [--quick] [--limit 2000]

On USPS, not registered: the graph of di-spectral with other distances in the place of the
thin-plate-spline one, a clustering in scattering space after an affine alignment, and K-means and
mixtures started from the assignments of di-spectral. On the skulls of rats: the same graph, judged
by the Fisher–Rao distance of landmarks. Labels are used to score and for nothing else.
"""

import dataclasses
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import diffclust
from diffclust.alignment import AfterAlignment, Descent, InvariantDistance, Prediction, Stage
from diffclust.analysis import registered_gaussians
from diffclust.data import load, load_landmarks
from diffclust.distances import (
    AbstractDistance,
    FeatureDistance,
    LandmarkDistance,
    SquaredEuclidean,
)
from diffclust.energies import TransformedDistance
from diffclust.graphs import nearest_neighbours
from diffclust.linalg import safe_norm
from diffclust.metrics import scores
from diffclust.models import Training, cut_mean_graph
from diffclust.models.di_spectral import unit_norm
from diffclust.parallel import Data
from diffclust.transforms import Affine
from experiments.di_spectral_ablation.run import judged_by
from experiments.harness import arguments, data_file, finish

NEIGHBOURS = (4, 5, 6, 7)
"""As di-spectral: one graph for each, of which the mean is cut."""


class Seen(NamedTuple):
    """An image, and how a network moves every prototype onto it."""

    image: Array
    params: Array
    cluster: Array


class ThroughPrototype(AbstractDistance):
    """How far the second image is from the first, once it is moved by predictions alone.

    Its prototype was moved onto it, and is moved onto the first: so it is moved back along the one
    way and on along the other.
    """

    transform: Affine

    def __call__(self, sample, prototype, weight=None):
        there = sample.params[prototype.cluster]
        back = self.transform.inverse(prototype.params[prototype.cluster])
        moved = self.transform(self.transform.compose(back, there), prototype.image)
        return SquaredEuclidean()(sample.image, moved, weight)


def graph_rows(candidates, distance, samples, clusters, key, *, squared=True):
    """The graph and cut of di-spectral, with candidates judged by any distance."""
    judged = judged_by(distance, samples, candidates, squared=squared)
    return cut_mean_graph(judged, NEIGHBOURS, clusters, 4, key).points


def table(labels, rows):
    """A function that clusters, times and scores, prints, and gives back what was found."""

    def tell(name, cluster):
        start = time.perf_counter()
        result = cluster()
        seconds = round(time.perf_counter() - start, 1)
        figures = {k: round(v, 4) for k, v in scores(labels, result.assignments).items()}
        rows[name] = {**figures, "seconds": seconds}
        print(f"{name:52s} {rows[name]}", flush=True)
        return result

    return tell


def with_images(data, key, steps):
    """The graph of di-spectral judged in other ways, and other clusterings started from it."""
    images, rows = data.images, {}
    tell = table(data.labels, rows)
    model = diffclust.DeformationInvariantSpectralClustering(10, register="none")
    _, coordinates = model.project(Data(images))
    candidates, units = model.neighbours(coordinates), unit_norm(images)
    exemplars = jnp.asarray(units[:64])

    def graph(name, distance, samples=units):
        tell(f"graph: {name}", lambda: graph_rows(candidates, distance, samples, 10, key))

    bent = model.distance(exemplars)
    graph("thin-plate splines (di-spectral)", bent)
    weighed = dataclasses.replace(model.alignment_model().energy(), pixel_weights="jacobian")
    both_ways = InvariantDistance(weighed, model.aligner()).prepared(exemplars, bent.penalty)
    graph("splines, pixels weighed by the Jacobian", both_ways)
    affine = InvariantDistance(TransformedDistance(Affine()), Descent((Stage(12),)))
    graph("affine maps only", affine.prepared(exemplars, jnp.asarray([0.5])))
    seen = FeatureDistance(model.feature_map(*images.shape[1:3]))
    graph("scattering distance after alignment", AfterAlignment(bent, seen))

    training = Training(steps=(steps, 4 * steps, steps))
    moving = diffclust.DTIKMeans(10, transforms="aff", boundary="zero", training=training)
    moved = tell("DTI K-means, affine", lambda: moving.fit(images, key=key))
    learned = moved.outcome.learned
    look = jax.jit(jax.vmap(Prediction().predict, in_axes=(0, None, None)))
    params = look(jnp.asarray(images), learned.clusters, learned.shared)
    predicted = Seen(images, np.asarray(params), moved.assignments)
    graph("affine maps predicted by DTI K-means", ThroughPrototype(Affine()), predicted)

    ai = diffclust.AffineInvariantKMeans(10)
    straight = tell("AI K-means", lambda: ai.fit(images, key=key))
    aligned = straight.align(images, straight.outcome.assignment.params)
    scattering = diffclust.ScatteringKMeans(10)
    tell("scattering K-means", lambda: scattering.fit(images, key=key))
    tell("scattering K-means after affine alignment", lambda: scattering.fit(aligned, key=key))

    start = tell("di-spectral", lambda: model.fit(images, key=key)).assignments
    training = Training(steps=(steps, *[2 * steps] * 3, steps))
    dti = {"transforms": "col-aff-tps", "boundary": "zero", "training": training}
    for name, started in (
        ("DI K-means", diffclust.DeformationInvariantKMeans(10)),
        ("DTI K-means", diffclust.DTIKMeans(10, **dti)),
        ("DTI GMM", diffclust.DTIGaussianMixture(10, **dti)),
    ):
        tell(name, lambda model=started: model.fit(images, key=key))
        again = f"{name} from di-spectral's assignments"
        tell(again, lambda model=started: model.fit(images, key=key, assignments=start))
    return rows


def with_skulls(ages, key, restarts):
    """The same graph of landmarks, by the Fisher–Rao distance."""
    rats = load_landmarks(data_file("rats.npz"))
    age = np.asarray(rats.columns["age_days"], np.int64)
    chosen = np.isin(age, ages) if ages else np.ones(len(age), bool)
    count, rows = len(set(age[chosen].tolist())), {}
    tell = table(age[chosen], rows)
    model = diffclust.ShapeKMeans(
        count,
        distance="fisher-rao",
        variances="per_landmark",
        registration="rigid",
        num_restarts=restarts,
    )
    skulls = registered_gaussians(model, rats.landmarks[chosen])
    flat = np.asarray(skulls.mean).reshape(len(skulls.mean), -1)
    near = nearest_neighbours(flat, flat, 15, exclude_self=True)
    tell(
        f"skulls, {count} ages: shape K-means, Fisher-Rao",
        lambda: model.fit(rats.landmarks[chosen], key=key),
    )
    for name, distance in (
        ("Euclidean", LandmarkDistance(lambda p, q: safe_norm(p.mean - q.mean))),
        ("Fisher-Rao", model.dissimilarity()),
    ):
        tell(
            f"skulls, {count} ages: graph, {name}",
            lambda distance=distance: graph_rows(
                [near], distance, skulls, count, key, squared=False
            ),
        )
    return rows


def main():
    args = arguments(
        __doc__, limit={"type": int, "default": 2000, "help": "most images, drawn with seed 0"}
    )
    key = jax.random.key(args.seed)
    data = load("usps").limit(200 if args.quick else args.limit, seed=0)
    figures = {
        "images": with_images(data, key, 10 if args.quick else 100),
        "skulls": [with_skulls(ages, key, 2 if args.quick else 20) for ages in ((7, 14), ())],
    }
    finish({"experiment": "compositions", "n": len(data), "seed": args.seed, **figures})


if __name__ == "__main__":
    main()
