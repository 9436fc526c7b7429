"""DI K-means and the cut of a graph of neighbours, by any distance."""

import jax
import jax.numpy as jnp
import numpy as np

from diffclust.alignment import Descent, InvariantDistance, Stage
from diffclust.data import load
from diffclust.distances import SquaredEuclidean
from diffclust.energies import TransformedDistance
from diffclust.graphs import (
    candidate_distances,
    mean_graph,
    nearest_neighbours,
    reranked,
    self_tuning_affinity,
    spectral_embedding,
)
from diffclust.metrics import scores
from diffclust.models import Clustering
from diffclust.solvers import Lloyd, kmeans
from diffclust.transforms import ThinPlateSpline

digits, key = load("digits", limit=500), jax.random.key(0)
salt = np.random.default_rng(0).uniform(size=digits.images.shape) < 0.05
clean = digits.images
broken = np.where(salt, 1.0, clean).astype(np.float32)
transform, compared = ThinPlateSpline((3, 3)), (SquaredEuclidean(),)
aligner = Descent((Stage(8, affine=True), Stage(8)))


def by_kmeans(energy, images, penalties):
    lloyd = Lloyd(energy, aligner)  # the distance names the prototypes
    model = Clustering(10, lloyd, penalties=penalties, num_restarts=2, max_passes=10)
    return model.fit(images, key=key).assignments


def by_graph(energy, images, penalties):
    flat = images.reshape(len(images), -1)
    near = nearest_neighbours(flat, flat, 15, exclude_self=True)
    distance = InvariantDistance(energy, aligner).prepared(images[:64], jnp.asarray(penalties))
    (squared,) = candidate_distances([near], distance, images)
    near = reranked(near, squared**0.5, 15)
    graph = mean_graph([self_tuning_affinity(near, num_neighbours=k) for k in (4, 5, 6, 7)])
    vectors = spectral_embedding(graph, 10, key=key).vectors
    return kmeans(vectors, 10, key=key, num_restarts=10).assignments


def accuracy(distance, images):
    # As in DI K-means, whose images have unit norm.
    apart = float(jnp.mean(jax.vmap(distance)(images[1:], images[:-1])))
    penalties = tuple(apart * weight for weight in (0.5, 0.015))
    energy = TransformedDistance(transform, distance)
    return {
        way.__name__: round(scores(digits.labels, way(energy, images, penalties))["acc"], 3)
        for way in (by_kmeans, by_graph)
    }
