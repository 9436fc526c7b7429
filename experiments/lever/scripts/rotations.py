"""Digits at any angle: an aligner that tries all angles by FFT, then descends; its laws."""

import jax
import jax.numpy as jnp

from diffclust import KMeans
from diffclust.alignment import Descent, GridSearch, Sequential, Stage
from diffclust.data import load
from diffclust.energies import TransformedDistance
from diffclust.metrics import scores
from diffclust.models import Clustering
from diffclust.solvers import Lloyd
from diffclust.testing import check_aligner, check_transform
from diffclust.transforms import Rotation

digits, key = load("digits", limit=500), jax.random.key(0)
angles = jax.random.uniform(key, (len(digits), 1), minval=-jnp.pi, maxval=jnp.pi)
turned = jax.jit(jax.vmap(Rotation()))(angles, digits.images)

energy, grid = TransformedDistance(Rotation()), Rotation().grid(32)
search = GridSearch(grid)
aligner = Sequential(search, Descent((Stage(4),)))
check_transform(Rotation(), key=key)
check_aligner(GridSearch(grid, fourier=False), energy, key=key, grid=grid)  # exact on the grid
check_aligner(aligner, energy, key=key)

settings = {"max_passes": 10, "num_restarts": 2, "split_merge": False}
plain = KMeans(10, **settings).fit(turned, key=key)
model = Clustering(10, Lloyd(energy, aligner), **settings)
result = model.fit(turned, key=key)
accuracy = {
    name: scores(digits.labels, each.assignments)["acc"]
    for name, each in {"plain": plain, "turned back": result}.items()
}
