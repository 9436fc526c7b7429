"""Which of two cuts of a mean graph is taken."""

import dataclasses

import jax
import numpy as np
import pytest
import sklearn.datasets

from diffclust.graphs import mean_graph, nearest_neighbours, normalised_cut, refined_cut
from diffclust.metrics import adjusted_rand_index
from diffclust.models import Cut, cut_mean_graph, cuts_of_mean_graph, self_tuning_graphs
from diffclust.models.mean_graph import steadier_cut

KEY = jax.random.key(0)
NEIGHBOURS = (4, 6)


def of(*indices: float) -> Cut:
    points, _ = sklearn.datasets.make_blobs(30, 2, centers=3, random_state=0)
    near = nearest_neighbours(points, points, 5, exclude_self=True)
    (graph,) = self_tuning_graphs([near], (5,))
    return cuts_of_mean_graph(graph, [graph], 3, 1, KEY)[0]._replace(indices=np.array(indices))


@pytest.mark.parametrize(
    ("indices", "mean", "trimmed"),
    [((), 0.0, 0.0), ((0.4, 0.8), 0.6, 0.6), ((0.9, 0.3, 0.6), 0.6, 0.75)],
)
def test_the_least_of_three_or_more_is_left_out(
    indices: tuple[float, ...], mean: float, trimmed: float
) -> None:
    cut = of(*indices)
    assert cut.stability == pytest.approx(mean)
    assert cut.trimmed_stability == pytest.approx(trimmed)


@pytest.mark.parametrize(("more", "taken"), [(0.79, 0), (0.8, 0), (0.801, 0), (0.81, 1)])
def test_a_cut_by_more_vectors_must_be_clearly_steadier(more: float, taken: int) -> None:
    cuts = of(0.8, 0.8, 0.1), of(more, more, 0.1)
    assert steadier_cut(*cuts) is cuts[taken]


def test_one_cluster_of_all_is_not_steadier() -> None:
    # In a nearly complete graph all later eigenvalues are near 0, and so are their 16th powers.
    plain, more = of(0.5, 0.5), of(1.0, 1.0)
    alike = np.zeros_like(more.points.assignments)
    points = dataclasses.replace(more.points, assignments=alike)
    assert steadier_cut(plain, more._replace(points=points)) is plain


@pytest.mark.parametrize("count", [90, 480])
def test_the_steadier_cut_is_taken_and_its_indices_are_those_with_each_graph(count: int) -> None:
    points, labels = sklearn.datasets.make_blobs(count, 4, centers=3, random_state=1)
    views = [points[:, columns] for columns in ([0, 1], [1, 2], [0, 3])]
    near = [nearest_neighbours(view, view, 6, exclude_self=True) for view in views]
    graphs = self_tuning_graphs(near, NEIGHBOURS)
    assert len(graphs) == len(views)
    cuts = cuts_of_mean_graph(mean_graph(graphs), graphs, 3, 4, KEY)
    taken = cut_mean_graph(near, NEIGHBOURS, 3, 4, KEY)
    best = steadier_cut(*cuts)
    refined = best.points.assignments
    if count > 450:
        # Of fewer no sample is moved.
        refined = refined_cut(mean_graph(graphs), refined, num_clusters=3)
    np.testing.assert_array_equal(taken.points.assignments, refined)
    assert taken.loss == pytest.approx(normalised_cut(mean_graph(graphs), refined))
    assert taken.figures["stability"] == pytest.approx(best.stability)
    assert taken.figures["least_stability"] == pytest.approx(best.indices.min())
    assert taken.figures["eigenvectors"] == (3 if best is cuts[0] else 8)
    assert adjusted_rand_index(labels, taken.points.assignments) > 0.9
    for cut in cuts:
        assert cut.indices.shape == (3,)
        assert (cut.indices > 0.5).all()


def test_weights_of_samples_count_in_k_means_and_in_moves():
    points, _ = sklearn.datasets.make_blobs(480, 4, centers=3, cluster_std=3.0, random_state=1)
    views = [points[:, columns] for columns in ([0, 1], [1, 2], [0, 3])]
    near = [nearest_neighbours(view, view, 6, exclude_self=True) for view in views]
    weight = np.random.default_rng(0).choice([0.02, 1.0, 8.0], 480)
    graphs = self_tuning_graphs(near, NEIGHBOURS)
    for cut in cuts_of_mean_graph(mean_graph(graphs), graphs, 3, 4, KEY, weight=weight):
        for k in range(3):
            mine = cut.points.assignments == k
            mean = np.average(cut.embedding.vectors[mine], axis=0, weights=weight[mine])
            np.testing.assert_allclose(cut.points.centres[k], mean, atol=1e-4)
    taken = cut_mean_graph(near, NEIGHBOURS, 3, 4, KEY, weight=weight)
    labels, dense = (
        taken.points.assignments,
        mean_graph(graphs).toarray() * np.outer(weight, weight),
    )

    def cost(labels):
        member = np.eye(3)[labels]
        return 3.0 - np.sum(np.einsum("ik,ik->k", member, dense @ member) / (dense.sum(0) @ member))

    assert taken.loss == pytest.approx(cost(labels), rel=1e-6)
    links = dense @ np.eye(3)[labels]
    for sample, other in np.argwhere(links > 0).tolist():
        moved = labels.copy()
        moved[sample] = other
        assert cost(moved) > taken.loss - 1e-6


def test_equal_samples_have_no_groups():
    points = np.full((12, 3), 0.7, np.float32)
    near = nearest_neighbours(points, points, 5, exclude_self=True)
    with pytest.warns(UserWarning, match="all samples are equal"):
        clustering = cut_mean_graph([near], (3, 4, 5), 2, 2, jax.random.key(0))
    assert clustering.figures["stability"] == 0.0
