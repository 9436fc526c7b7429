"""AI and DI K-means, and the graph, under rotations and reflections."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import (
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
)
from diffclust.alignment import Descent, GridSearch, Sequential
from diffclust.metrics import scores
from diffclust.models import DTIKMeans, TransformationInvariantKMeans
from diffclust.testing import smooth_image
from diffclust.transforms import Rotation


@pytest.fixture(scope="module")
def turned() -> tuple[np.ndarray, np.ndarray]:
    """Three things at any angle, some of them mirrored."""
    keys = jax.random.split(jax.random.key(5), 3)
    kinds = jnp.stack([smooth_image(key, 16, 16, sigma=0.2) for key in keys])
    labels, rng = np.arange(30) % 3, np.random.default_rng(0)
    params = np.stack([rng.uniform(-np.pi, np.pi, 30), rng.integers(0, 2, 30)], axis=1)
    images = jax.vmap(Rotation(reflection=True))(params.astype(np.float32), kinds[labels])
    return np.asarray(images), labels


@pytest.mark.slow
def test_kmeans_sees_through_rotations_and_reflections(turned) -> None:
    images, labels = turned
    model = AffineInvariantKMeans(3, transforms="rot", num_restarts=2, split_merge=False)
    result = model.fit(images, key=jax.random.key(0))
    assert scores(labels, result.assignments)["acc"] == 1.0
    plain = AffineInvariantKMeans(3, num_restarts=2, split_merge=False)
    assert result.loss < 0.2 * plain.fit(images, key=jax.random.key(0)).loss
    # What is remembered of each sample is how it is laid on its prototype.
    params = result.outcome.assignment.params
    assert params.shape == (30, 2)
    assert set(np.unique(params[:, 1])) == {0.0, 1.0}
    aligned = result.align(images, params)
    left = np.sum((aligned[labels == 0] - aligned[labels == 0].mean(0)) ** 2)
    before = np.sum((images[labels == 0] - images[labels == 0].mean(0)) ** 2)
    assert left < 0.1 * before


def test_rotations_come_before_other_transforms() -> None:
    model = DeformationInvariantKMeans(2, transforms="turn-tps", landmarks=(3, 3))
    assert model.energy().num_params == 1 + 18
    assert model.penalty() == (0.0, 0.5, 0.015)
    aligner = model.aligner()
    assert isinstance(aligner, Sequential)
    assert isinstance(aligner.first, GridSearch)
    assert aligner.first.grid.shape == (64, 1)
    assert aligner.first.part == 0
    graph = DeformationInvariantSpectralClustering(2, transforms="rot-tps", num_candidates=7)
    assert graph.aligner().first.grid.shape == (128, 2)
    last = DeformationInvariantKMeans(2, transforms="tps-turn", landmarks=(3, 3))
    assert last.aligner().first.part == 1
    assert isinstance(DeformationInvariantKMeans(2).aligner(), Descent)


@pytest.mark.parametrize("kind", [AffineInvariantKMeans, DeformationInvariantKMeans])
def test_what_means_nothing_is_refused(kind) -> None:
    with pytest.raises(ValueError, match="transforms must be names out of"):
        kind(2, transforms="morpho")
    with pytest.raises(ValueError, match="angles of one rotation are searched, not of several"):
        kind(2, transforms="turn-rot")
    wide = np.ones((4, 12, 16, 1), np.float32)
    with pytest.raises(ValueError, match="would be sheared by rotations"):
        kind(2, transforms="turn").fit(wide, key=jax.random.key(0))


@pytest.mark.parametrize("kind", [TransformationInvariantKMeans, DTIKMeans])
def test_prototypes_that_are_turned_must_be_square(kind) -> None:
    with pytest.raises(ValueError, match="images of 12x16 pixels would be sheared by rotations"):
        kind(2, transforms="turn").check(np.ones((4, 12, 16, 1), np.float32))
