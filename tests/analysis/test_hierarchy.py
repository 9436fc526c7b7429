import io

import jax
import numpy as np
import pytest
import scipy.cluster.hierarchy
from scipy.spatial.distance import pdist, squareform

from diffclust import ShapeKMeans
from diffclust.analysis import Hierarchy, shape_hierarchy
from diffclust.data import simulated_shapes
from diffclust.metrics import scores
from diffclust.plotting import dendrogram


@pytest.fixture(scope="module")
def drawn():
    means = jax.random.normal(jax.random.key(0), (3, 6, 2))
    shapes, group = simulated_shapes(means, 0.08, per_group=8, key=jax.random.key(1))
    return np.asarray(shapes), np.asarray(group)


@pytest.mark.parametrize("distance", ["fisher-rao", "wasserstein"])
def test_the_last_joins_part_the_groups(drawn, distance):
    model = ShapeKMeans(1, distance=distance, variances="per_landmark")
    result = shape_hierarchy(drawn[0], model=model)
    assert scores(drawn[1], result.cut(3))["acc"] == 1.0
    assert result.cut(3)[0] == 0
    assert len(np.unique(result.cut(24))) == 24


def test_wasserstein_of_equal_variances_is_the_distance_of_landmarks(drawn):
    model = ShapeKMeans(1, distance="wasserstein", variances="per_landmark")
    result = shape_hierarchy(drawn[0], model=model, linkage="complete")
    moved = result.registered[:, None] - result.registered[None]
    expected = np.sqrt((moved**2).sum(-1)).sum(-1)
    np.testing.assert_allclose(result.distances, expected, atol=1e-3)
    condensed = expected[np.triu_indices(24, 1)]
    np.testing.assert_allclose(
        result.linkage[:, 2], scipy.cluster.hierarchy.complete(condensed)[:, 2], rtol=1e-3
    )


def test_draws_every_shape(drawn):
    figure = dendrogram(shape_hierarchy(drawn[0]), names=[f"{n} a$^$" for n in drawn[1]])
    figure.savefig(io.BytesIO())
    figure = dendrogram(shape_hierarchy(drawn[0]), names=drawn[1])
    (axes,) = figure.axes
    labels = axes.get_xticklabels()
    assert len(labels) == 24
    # Right below their leaves.
    assert {label.get_rotation() for label in labels} == {90.0}


def test_refuses_what_is_no_distance(drawn):
    with pytest.raises(ValueError, match="no distance between two shapes"):
        shape_hierarchy(drawn[0], model=ShapeKMeans(1))
    with pytest.raises(ValueError, match="at least 2"):
        shape_hierarchy(drawn[0][:1])
    with pytest.raises(ValueError, match="number of shapes is 24"):
        shape_hierarchy(drawn[0]).cut(25)


def test_copies_of_one_shape_are_refused(drawn):
    angles, one = np.array([0.0, 0.4, 2.0]), drawn[0][0]
    turned = one @ np.moveaxis(
        np.array([[np.cos(angles), np.sin(angles)], [-np.sin(angles), np.cos(angles)]]), 2, 0
    )
    for copies in (np.stack([one, one, one]), turned + 3.0):
        with pytest.raises(ValueError, match="all shapes are the same once they are registered"):
            shape_hierarchy(copies)


def test_cuts_are_those_of_scipy_in_the_order_of_the_shapes() -> None:
    for seed in range(10):
        points = np.random.default_rng(seed).normal(size=(12, 2))
        linkage = scipy.cluster.hierarchy.average(pdist(points))
        hierarchy = Hierarchy(points[:, :, None], squareform(pdist(points)), linkage)
        for k in (2, 3, 4, 6):
            labels = hierarchy.cut(k)
            wanted = scipy.cluster.hierarchy.fcluster(linkage, k, "maxclust")
            assert list(dict.fromkeys(labels.tolist())) == list(range(k))
            np.testing.assert_array_equal(labels[:, None] == labels, wanted[:, None] == wanted)
