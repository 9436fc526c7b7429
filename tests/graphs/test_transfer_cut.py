import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import sklearn.datasets

from diffclust.graphs import gaussian_affinity, nearest_neighbours, transfer_cut, weighted_graph
from diffclust.metrics import scores
from diffclust.solvers import kmeans, nearest_centres, representatives
from tests.solvers.odd_points import each_odd_case, odd_points


def blobs(count: int = 240, seed: int = 2) -> tuple[np.ndarray, np.ndarray]:
    points, labels = sklearn.datasets.make_blobs(count, 3, random_state=seed)[:2]
    return points.astype(np.float32), labels


def affinities(points: np.ndarray, centres: np.ndarray, neighbours: int = 5, **settings):
    near = nearest_neighbours(points, centres, neighbours)
    return gaussian_affinity(near, len(centres), **settings)


@pytest.mark.parametrize("neighbours", [5, 20])
def test_transfer_cut_solves_the_bipartite_graph(neighbours: int) -> None:
    # Witness: W = [[0, A], [Aᵀ, 0]] in full, W v = λ D v.
    points, _ = blobs()
    graph = affinities(points, points[::12], neighbours)
    # The same to all: without it the blobs are apart, and eigenvalues meet.
    graph = scipy.sparse.csr_array(graph.toarray() + 1e-3 * np.arange(1, 21)[None] / 20)
    result = transfer_cut(graph, 4)
    dense = graph.toarray()
    count, p = dense.shape
    whole = np.block([[np.zeros((count, count)), dense], [dense.T, np.zeros((p, p))]])
    values, vectors = scipy.linalg.eigh(whole, np.diag(whole.sum(1)))
    values, vectors = values[::-1], vectors[:, ::-1]
    np.testing.assert_allclose(np.sqrt(result.eigenvalues), values[:9], atol=1e-9)
    rows = vectors[:count, :4]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(result.vectors @ result.vectors.T, rows @ rows.T, atol=1e-6)
    # And the representatives' part, up to the norm of a vector.
    scale = vectors[count:, :4] / result.basis
    np.testing.assert_allclose(np.abs(scale), np.abs(scale[:1]).repeat(p, axis=0), rtol=1e-5)


def test_whole_of_u_spec_finds_blobs(key) -> None:
    points, labels = blobs(300)
    old, new = points[:240], points[240:]
    centres = representatives(old, 60, key=key, num_candidates=200)
    assert centres.shape == (60, 3)
    near = nearest_neighbours(old, centres, 5)
    sigma = float(near.distance.mean())
    embedding = transfer_cut(gaussian_affinity(near, 60, sigma=sigma), 3)
    clusters = kmeans(embedding.vectors, 3, key=key)
    again = embedding.extend(affinities(old, centres, sigma=sigma))
    np.testing.assert_allclose(again, embedding.vectors, atol=1e-12)
    placed = nearest_centres(
        embedding.extend(affinities(new, centres, sigma=sigma)), clusters.centres
    ).assignments
    assert scores(labels, np.concatenate([clusters.assignments, placed]))["acc"] > 0.99


# Representatives.


def test_representatives_are_better_than_random_samples(key) -> None:
    points = np.random.default_rng(0).normal(size=(2000, 2)).astype(np.float32)

    def distortion(centres: np.ndarray) -> float:
        return float(np.mean(nearest_neighbours(points, centres, 1).distance ** 2))

    result = representatives(points, 40, key=key, num_candidates=500)
    assert distortion(result) < 0.8 * distortion(points[:40])
    np.testing.assert_array_equal(result, representatives(points, 40, key=key, num_candidates=500))
    other = representatives(points, 40, key=jax.random.key(1), num_candidates=500)
    assert np.abs(result - other).max() > 0.01


def test_few_samples_represent_themselves(key) -> None:
    points, _ = blobs(12)
    np.testing.assert_array_equal(representatives(points, key=key), points)


def test_bad_input_is_named(key) -> None:
    with pytest.raises(ValueError, match="shape"):
        representatives(np.ones(3), key=key)
    with pytest.raises(ValueError, match="num_candidates must be at least 10"):
        representatives(np.ones((30, 2)), 10, key=key, num_candidates=5)
    with pytest.raises(ValueError, match="negative"):
        transfer_cut(scipy.sparse.csr_array(-np.ones((3, 2))), 2)
    with pytest.raises(ValueError, match="num_vectors"):
        transfer_cut(scipy.sparse.csr_array(np.ones((3, 2))), 0)


# Never NaN.


@each_odd_case
def test_no_sample_is_lost(case: str, key) -> None:
    points = odd_points(case, blobs(60)[0])
    centres = representatives(points, 8, key=key, num_candidates=20)
    embedding = transfer_cut(affinities(points, centres), 3)
    assert np.isfinite(embedding.vectors).all()
    assert np.isfinite(embedding.eigenvalues).all()
    np.testing.assert_allclose(np.linalg.norm(embedding.vectors, axis=1), 1.0)
    clusters = kmeans(embedding.vectors, 3, key=key)
    assert ((clusters.assignments >= 0) & (clusters.assignments < 3)).all()
    assert np.isfinite(clusters.distances).all()


def test_representatives_and_samples_without_affinities() -> None:
    graph = scipy.sparse.csr_array(np.array([[1.0, 0.5, 0], [0, 1.0, 0], [0, 0, 0]]))
    result = transfer_cut(graph, 2)
    assert np.isfinite(result.vectors).all()
    np.testing.assert_array_equal(result.vectors[2], 0.0)
    np.testing.assert_array_equal(result.basis[2], 0.0)


def test_weighed_samples_lie_where_as_many_copies_do() -> None:
    x = blobs(60)[0]
    graph, weight = affinities(x, x[::4], 8), np.random.default_rng(0).integers(1, 4, 60)
    of = np.repeat(np.arange(60), weight)
    weighed = transfer_cut(weighted_graph(graph, rows=weight), 3)
    copies = transfer_cut(scipy.sparse.csr_array(graph.toarray()[of]), 3)
    np.testing.assert_allclose(weighed.eigenvalues, copies.eigenvalues, atol=1e-12)
    np.testing.assert_allclose(weighed.vectors[of], copies.vectors, atol=1e-7)
    assert np.abs(weighed.eigenvalues - transfer_cut(graph, 3).eigenvalues).max() > 1e-3
