import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
import sklearn.cluster
import sklearn.datasets

from diffclust.graphs import (
    SpectralEmbedding,
    affinity_to_references,
    eigengap,
    embedding,
    nearest_neighbours,
    normalised_cut,
    self_tuning_affinity,
    self_tuning_scales,
    spectral_embedding,
    transfer_cut,
    weighted_graph,
)
from diffclust.metrics import scores
from diffclust.solvers import kmeans, nearest_centres
from tests.solvers.odd_points import each_odd_case, odd_points


def moons(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    points, labels = sklearn.datasets.make_moons(count, noise=0.06, random_state=seed)
    return points.astype(np.float32), labels


def graph_of(points: np.ndarray, neighbours: int = 8) -> scipy.sparse.csr_array:
    near = nearest_neighbours(points, points, neighbours, exclude_self=True)
    return self_tuning_affinity(near, num_neighbours=neighbours)


def parts(number: int, size: int) -> scipy.sparse.csr_array:
    """Complete graphs side by side."""
    return side_by_side(*[scipy.sparse.csr_array(np.ones((size, size)) - np.eye(size))] * number)


def side_by_side(*graphs: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    return scipy.sparse.block_diag(graphs, format="csr")


def dense_eigenproblem(graph: scipy.sparse.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """W v = λ D v: the random walk's eigenvectors."""
    weights = graph.toarray()
    values, vectors = scipy.linalg.eigh(weights, np.diag(weights.sum(1)))
    return values[::-1], vectors[:, ::-1]


def test_leading_vectors_are_those_of_a_smaller_embedding() -> None:
    points, _ = moons(60)
    graph, key = graph_of(points), jax.random.key(0)
    large, small = (spectral_embedding(graph, count, key=key) for count in (6, 3))
    np.testing.assert_allclose(large.leading(3), small.vectors, atol=1e-9)
    of_basis = embedding.SpectralEmbedding.of_basis(large.eigenvalues, large.basis)
    np.testing.assert_allclose(of_basis.leading(6), large.vectors, atol=1e-9)


@pytest.mark.parametrize("weight", [1e-6, 1e-10, 0.0])
def test_parts_that_next_to_nothing_joins_are_all_found(weight: float, key) -> None:
    """Their eigenvalues agree to many digits, in more samples than are solved as a whole."""
    number, size = (3, 2500) if weight == 1e-10 else (6, 260)
    ring = scipy.sparse.diags_array(
        [1.0] * 4, offsets=(1, 2, 1 - size, 2 - size), shape=(size, size)
    )
    inner = scipy.sparse.block_diag([ring] * number, format="coo")
    bridges = size * np.arange(number - 1)
    rows, columns = np.append(inner.row, bridges), np.append(inner.col, bridges + size)
    values = np.append(inner.data, np.full(number - 1, weight))
    both = np.tile(values, 2), (np.append(rows, columns), np.append(columns, rows))
    graph = scipy.sparse.csr_array(scipy.sparse.coo_array(both, shape=inner.shape))
    # Zeros that are stored join nothing, and stay in what was given.
    assert graph.nnz == len(both[0])
    result = spectral_embedding(graph, number, key=key)
    if size == 260:
        values = dense_eigenproblem(graph)[0]
        # Those of equal parts agree too; only the first of them is needed, for the gap.
        found = result.eigenvalues[: number + 1]
        np.testing.assert_allclose(found, values[: number + 1], atol=1e-5)
    assert graph.nnz == len(both[0])
    found = kmeans(result.vectors, number, key=key, num_restarts=4).assignments
    expected = np.repeat(np.arange(number), size)
    assert scores(expected, found)["ari"] == 1.0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_paths_have_all_their_eigenvectors(count: int, key) -> None:
    graph = scipy.sparse.diags_array([np.ones(count - 1)] * 2, offsets=(-1, 1), format="csr")
    result = spectral_embedding(graph, count, key=key)
    values, vectors = dense_eigenproblem(graph)  # 1 and -1 among them
    np.testing.assert_allclose(result.eigenvalues, values, atol=1e-12)
    rows = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(np.abs(result.vectors), np.abs(rows), atol=1e-9)


def test_diffused_vectors_are_those_of_so_many_steps(key) -> None:
    graph = graph_of(moons(60)[0])
    result = spectral_embedding(graph, 6, key=key)
    np.testing.assert_allclose(result.diffused(6, 0.0).vectors, result.vectors, atol=1e-9)
    several = result.diffused(6, 3.0)
    # A step of the walk multiplies each eigenvector by its eigenvalue.
    walk = scipy.sparse.diags_array(1.0 / graph.sum(axis=1)) @ graph
    stepped = walk @ (walk @ (walk @ (result.basis * result.eigenvalues[:6])))
    rows = stepped / np.linalg.norm(stepped, axis=1, keepdims=True)
    np.testing.assert_allclose(several.vectors, rows, atol=1e-6)
    np.testing.assert_allclose(several.extend(graph), several.vectors, atol=1e-6)


@pytest.fixture
def no_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_DENSE", 0)


@pytest.fixture(params=["dense", "lanczos", "lobpcg"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """All three ways to solve the eigenproblem."""
    if request.param != "dense":
        monkeypatch.setattr(embedding, "_DENSE", 0)
    if request.param == "lobpcg":

        def stuck(*_, **__):
            raise scipy.sparse.linalg.ArpackNoConvergence("stuck", np.empty(0), np.empty((0, 0)))

        monkeypatch.setattr(scipy.sparse.linalg, "eigsh", stuck)
    return request.param


def test_eigenvectors_are_those_of_the_random_walk(way: str, key) -> None:
    graph = graph_of(sklearn.datasets.make_blobs(240, random_state=2)[0].astype(np.float32), 30)
    result = spectral_embedding(graph, 4, key=key, num_extra=2, tolerance=1e-10)
    values, vectors = dense_eigenproblem(graph)
    np.testing.assert_allclose(result.eigenvalues, values[:6], atol=1e-5)
    # Rows are settled up to a rotation: compare the angles between them.
    rows = vectors[:, :4] / np.linalg.norm(vectors[:, :4], axis=1, keepdims=True)
    atol = 1e-2 if way == "lobpcg" else 1e-5
    np.testing.assert_allclose(result.vectors @ result.vectors.T, rows @ rows.T, atol=atol)
    assert (result.vectors.shape[1], result.basis.shape) == (4, (240, 4))


def test_moons_come_apart_as_with_scikit_learn(key) -> None:
    points, labels = moons(240)
    graph = graph_of(points, 14)  # connected, or scikit-learn warns
    result = kmeans(spectral_embedding(graph, 2, key=key).vectors, 2, key=key)
    witness = sklearn.cluster.SpectralClustering(2, affinity="precomputed", random_state=0)
    theirs = witness.fit_predict(graph.toarray())
    assert scores(labels, result.assignments)["acc"] > 0.98
    assert scores(theirs, result.assignments)["acc"] > 0.99
    assert (
        scores(labels, sklearn.cluster.KMeans(2, random_state=0).fit_predict(points))["acc"] < 0.9
    )
    assert normalised_cut(graph, result.assignments) <= normalised_cut(graph, labels) + 1e-9


@pytest.mark.usefixtures("no_dense")
def test_same_key_gives_the_same_rows(key) -> None:
    graph = graph_of(moons(240)[0])
    first, second = (spectral_embedding(graph, 3, key=key) for _ in range(2))
    np.testing.assert_array_equal(first.vectors, second.vectors)
    np.testing.assert_array_equal(first.eigenvalues, second.eigenvalues)


def test_new_samples_go_where_their_neighbours_are(key) -> None:
    points, labels = moons(320)
    old, new = points[:240], points[240:]
    near = nearest_neighbours(old, old, 8, exclude_self=True)
    embedding = spectral_embedding(self_tuning_affinity(near, num_neighbours=8), 2, key=key)
    clusters = kmeans(embedding.vectors, 2, key=key)
    scales = self_tuning_scales(near, num_neighbours=8)

    def extended(samples: np.ndarray) -> np.ndarray:
        affinities = affinity_to_references(
            nearest_neighbours(samples, old, 8), scales, num_neighbours=8
        )
        return embedding.extend(affinities)

    again = nearest_centres(extended(old), clusters.centres)
    assert np.mean(again.assignments == clusters.assignments) > 0.99
    placed = nearest_centres(extended(new), clusters.centres).assignments
    joined = np.concatenate([clusters.assignments, placed])
    assert scores(labels, joined)["acc"] > 0.98


def test_eigenvalues_below_zero_do_not_turn_new_samples_round(key) -> None:
    points = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    near = nearest_neighbours(points, points, 8, exclude_self=True)
    embedding = spectral_embedding(self_tuning_affinity(near, num_neighbours=8), 24, key=key)
    assert embedding.eigenvalues[23] < -0.01
    clusters = kmeans(embedding.vectors, 24, key=key)
    scales = self_tuning_scales(near, num_neighbours=8)
    own = affinity_to_references(nearest_neighbours(points, points, 8), scales, num_neighbours=8)
    again = nearest_centres(embedding.extend(own), clusters.centres)
    assert np.mean(again.assignments == clusters.assignments) > 0.9


def test_extension_by_the_graph_itself_reproduces_the_rows(way: str, key) -> None:
    # y = D⁻¹ W v / λ is the eigenvalue equation.
    graph = graph_of(moons(240)[0])
    result = spectral_embedding(graph, 3, key=key, tolerance=1e-10)
    atol = 5e-2 if way == "lobpcg" else 1e-5
    np.testing.assert_allclose(result.extend(graph), result.vectors, atol=atol)


# Graphs that are not connected.


def test_every_part_has_a_vector(way: str, key) -> None:
    del way
    result = spectral_embedding(parts(3, 80), 3, key=key)
    np.testing.assert_allclose(result.eigenvalues[:4], [1, 1, 1, -1 / 79], atol=1e-6)
    assert eigengap(result.eigenvalues, 3) > 1
    clusters = kmeans(result.vectors, 3, key=key)
    np.testing.assert_array_equal(np.unique(clusters.assignments, return_counts=True)[1], 80)
    assert normalised_cut(parts(3, 80), clusters.assignments) == 0
    np.testing.assert_allclose(clusters.distances, 0, atol=1e-6)


def test_more_parts_than_clusters(way: str, key) -> None:
    del way
    result = spectral_embedding(parts(40, 6), 3, key=key)
    assert np.isfinite(result.vectors).all()
    assert np.isfinite(result.basis).all()
    np.testing.assert_allclose(result.eigenvalues, 1.0)
    clusters = kmeans(result.vectors, 3, key=key)
    assert set(clusters.assignments) == {0, 1, 2}


def test_large_parts_come_before_small_ones(way: str, key) -> None:
    del way
    graph = side_by_side(parts(20, 2), parts(2, 50))
    result = spectral_embedding(graph, 2, key=key)
    assert not result.vectors[:40].any()
    clusters = kmeans(result.vectors[40:], 2, key=key)
    np.testing.assert_array_equal(np.bincount(clusters.assignments), [50, 50])


def test_samples_without_any_affinity(way: str, key) -> None:
    del way
    graph = side_by_side(parts(3, 78), scipy.sparse.csr_array((6, 6)))
    result = spectral_embedding(graph, 3, key=key)
    assert np.isfinite(result.vectors).all()
    assert not result.vectors[234:].any()
    clusters = kmeans(result.vectors, 3, key=key)
    assert np.isfinite(clusters.distances).all()
    empty = spectral_embedding(scipy.sparse.csr_array((5, 5)), 2, key=key)
    np.testing.assert_array_equal(empty.vectors, np.zeros((5, 2)))


@each_odd_case
def test_no_sample_is_lost(case: str, key) -> None:
    common = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    points = odd_points(case, common)
    result = spectral_embedding(graph_of(points), 3, key=key)
    assert np.isfinite(result.vectors).all()
    np.testing.assert_allclose(np.linalg.norm(result.vectors, axis=1).max(), 1.0)
    clusters = kmeans(result.vectors, 3, key=key)
    assert clusters.assignments.shape == (len(points),)
    assert ((clusters.assignments >= 0) & (clusters.assignments < 3)).all()
    assert np.isfinite(clusters.distances).all()
    assert not np.isnan(clusters.margins).any()


# What a cut costs.


def test_normalised_cut_is_the_formula(key) -> None:
    graph = graph_of(moons(80)[0])
    labels = np.asarray(jax.random.randint(key, (80,), 0, 3))
    dense, expected = graph.toarray(), 0.0
    for cluster in range(3):
        inside = labels == cluster
        expected += dense[inside][:, ~inside].sum() / dense[inside].sum()
    np.testing.assert_allclose(normalised_cut(graph, labels), expected, rtol=1e-10)
    # A cluster without samples is no way to a better cut.
    np.testing.assert_allclose(
        normalised_cut(graph, labels, num_clusters=5), expected + 2, rtol=1e-10
    )
    parted = scipy.sparse.csr_array(dense * (labels[:, None] == labels))
    assert normalised_cut(parted, labels) == 0.0  # without rounding


def test_relaxation_bounds_the_cut_from_below(key) -> None:
    # Ky Fan: no assignment cuts less than K less the sum of the K leading eigenvalues.
    graph = graph_of(moons(240)[0])
    result = spectral_embedding(graph, 3, key=key)
    clusters = kmeans(result.vectors, 3, key=key)
    bound = 3 - result.eigenvalues[:3].sum()
    assert bound - 1e-9 <= normalised_cut(graph, clusters.assignments) < 10 * bound + 0.1


def test_eigengap() -> None:
    values = np.array([1.0, 0.9, 0.5])
    assert eigengap(values, 2) == pytest.approx(0.4)
    assert eigengap(values, 3) == 0.0


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (np.ones((3, 3)), "sparse"),
        (scipy.sparse.csr_array(np.ones((2, 3))), "2, 3"),
        (scipy.sparse.csr_array(-np.ones((2, 2))), "negative"),
        (scipy.sparse.csr_array(np.full((2, 2), np.nan)), "finite"),
        (scipy.sparse.csr_array(np.tri(3)), "symmetric"),
    ],
)
def test_bad_graphs_are_named(graph, message: str, key) -> None:
    # The import hook's own check comes first where it is no sparse array at all.
    with pytest.raises(Exception, match=message):
        spectral_embedding(graph, 2, key=key)


def test_graphs_that_are_symmetric_up_to_rounding_are_taken() -> None:
    graph, labels = graph_of(moons(60)[0]).toarray(), np.arange(60) % 2
    # As of squared distances from norms and products in single precision, far from the origin.
    rounded = scipy.sparse.csr_array(graph * (1.0 + 5e-4 * np.tri(60)))
    wanted = normalised_cut(scipy.sparse.csr_array(graph), labels)
    assert normalised_cut(rounded, labels) == pytest.approx(wanted, rel=1e-3)


def test_centres_are_placed_as_new_samples_are(key: jax.Array) -> None:
    """Without the vectors of eigenvalue zero or below, of which pairs in one cluster have many."""
    pairs = parts(4, 2)
    paths = scipy.sparse.diags_array([np.ones(7), np.ones(7)], offsets=[1, -1], shape=(8, 8))
    embedding = spectral_embedding(scipy.sparse.csr_array(pairs + paths), 6, key=key)
    extends = embedding.eigenvalues[:6] > 0
    assert 1 < extends.sum() < 6
    placed = embedding.as_extended(embedding.vectors)
    assert not placed[:, ~extends].any()
    kept = embedding.vectors[:, extends].any(axis=1)
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), kept, atol=1e-9)
    whole = spectral_embedding(parts(3, 9), 3, key=key)
    assert whole.as_extended(whole.vectors) is whole.vectors


@pytest.mark.parametrize("weight", [0.0, 1e-310])
def test_affinities_whose_inverses_overflow_do_not_count(weight: float, key) -> None:
    graph = side_by_side(parts(2, 5), scipy.sparse.csr_array([[0.0]])).tolil()
    graph[0, 10] = graph[10, 0] = weight
    graph = scipy.sparse.csr_array(graph)
    vectors = spectral_embedding(graph, 2, key=key).vectors
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1.0] * 10 + [0.0], atol=1e-9)
    labels = np.array([0] * 5 + [1] * 5 + [2])
    assert normalised_cut(graph, labels, num_clusters=3) == 1.0
    affinities = scipy.sparse.csr_array(np.concatenate([np.eye(3), [[weight, 0.0, 0.0]]]))
    rows = transfer_cut(affinities, 3).vectors
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [1.0, 1.0, 1.0, 0.0], atol=1e-9)


def test_bad_arguments_are_named(key) -> None:
    embedding = spectral_embedding(parts(2, 5), 2, key=key)
    with pytest.raises(ValueError, match="one column for each of the 10"):
        embedding.extend(parts(1, 3))
    with pytest.raises(ValueError, match="one for each sample"):
        normalised_cut(parts(2, 5), np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="assignments must lie in 0 to 1; got 0 to 2"):
        normalised_cut(parts(2, 5), np.arange(10) % 3, num_clusters=2)
    with pytest.raises(ValueError, match="num_vectors"):
        spectral_embedding(parts(2, 5), 0, key=key)


def test_weighed_samples_lie_where_as_many_copies_do(key: jax.Array) -> None:
    x = moons(60)[0]
    graph, weight = graph_of(x, 20), np.random.default_rng(0).integers(1, 4, 60)
    of = np.repeat(np.arange(60), weight)
    weighed = weighted_graph(graph, rows=weight, columns=weight)
    copied = scipy.sparse.csr_array(graph.toarray()[of][:, of])
    result, copies = (spectral_embedding(each, 3, key=key) for each in (weighed, copied))
    plain = spectral_embedding(graph, 3, key=key)
    np.testing.assert_allclose(result.eigenvalues[:4], copies.eigenvalues[:4], atol=1e-9)
    np.testing.assert_allclose(result.vectors[of], copies.vectors, atol=1e-7)
    assert np.abs(result.vectors - plain.vectors).max() > 1e-2
    labels = np.arange(60) % 3
    cut = normalised_cut(weighed, labels)
    assert cut == pytest.approx(normalised_cut(copied, labels[of]), rel=1e-12)
    # And new samples, by affinities to those that count.
    extended = result.extend(weighted_graph(graph, columns=weight))
    np.testing.assert_allclose(extended, result.vectors, atol=1e-7)


def test_extended_points_keep_their_length_without_weak_vectors() -> None:
    embedding = SpectralEmbedding.of_basis(np.array([1.0, 0.5, -0.2]), np.eye(3))
    points = np.array([[0.3, 0.4, 0.2], [0.1, -0.2, 0.0]])
    placed = embedding.as_extended(points)
    np.testing.assert_array_equal(placed[:, 2], 0.0)
    length = np.linalg.norm(points, axis=1)
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), length)
