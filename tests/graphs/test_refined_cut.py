"""Moves of single samples that lower the normalised cut."""

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy

from diffclust.graphs import normalised_cut, refined_cut, strongest_bridges


def drawn(seed: int, count: int, clusters: int, loops: bool) -> tuple[scipy.sparse.csr_array, ...]:
    """A sparse graph of groups, and clusters that are mostly the groups."""
    draw = np.random.default_rng(seed)
    groups = draw.integers(0, clusters, count)
    groups[:clusters] = np.arange(clusters)
    same = groups[:, None] == groups
    weight = draw.uniform(size=(count, count)) * (draw.uniform(size=same.shape) < 0.1 + 0.5 * same)
    weight = np.maximum(weight, weight.T)
    if not loops:
        np.fill_diagonal(weight, 0.0)
    assignments = np.where(
        draw.uniform(size=count) < 0.2, draw.integers(0, clusters, count), groups
    )
    assignments[:clusters] = np.arange(clusters)
    return scipy.sparse.csr_array(weight), assignments


@hypothesis.given(st.integers(0, 1000), st.integers(6, 24), st.integers(1, 4), st.booleans())
def test_ends_where_no_move_of_one_sample_lowers_the_cut(seed, count, clusters, loops):
    graph, assignments = drawn(seed, count, clusters, loops)
    refined = refined_cut(graph, assignments, num_clusters=clusters)
    end = normalised_cut(graph, refined, num_clusters=clusters)
    assert end <= normalised_cut(graph, assignments, num_clusters=clusters)
    assert set(refined) == set(assignments)
    for sample in range(count):
        if np.sum(refined == refined[sample]) == 1:
            continue
        for other in set(refined[graph[[sample]].indices]):
            moved = refined.copy()
            moved[sample] = other
            assert normalised_cut(graph, moved, num_clusters=clusters) > end - 1e-6


def test_brings_samples_back_to_their_group():
    groups = np.repeat(np.arange(3), 30)
    weight = np.where(groups[:, None] == groups, 1.0, 0.02)
    assignments = groups.copy()
    assignments[[3, 35, 36, 71]] = [1, 2, 0, 0]
    refined = refined_cut(scipy.sparse.csr_array(weight), assignments, num_clusters=3)
    np.testing.assert_array_equal(refined, groups)
    assert refined.dtype == assignments.dtype


@pytest.mark.parametrize("assignments", [[0, 1, 2], [0, 1]])
def test_assignments_are_checked(assignments):
    with pytest.raises(ValueError, match="assignments"):
        refined_cut(scipy.sparse.csr_array(np.ones((3, 3))), np.array(assignments), num_clusters=2)


@pytest.mark.parametrize("cut", [normalised_cut, refined_cut])
def test_masked_assignments_are_refused(cut):
    hidden = np.ma.masked_equal([0, 1, 1], 0)
    with pytest.raises(ValueError, match="assignments has masked values"):
        cut(scipy.sparse.csr_array(np.ones((3, 3))), hidden, num_clusters=2)


@pytest.mark.parametrize("clusters", [1, 5])
def test_leaves_what_cannot_be_better(clusters):
    nothing = scipy.sparse.csr_array((5, 5))
    own = np.arange(5) % clusters
    np.testing.assert_array_equal(refined_cut(nothing, own, num_clusters=clusters), own)
    full = scipy.sparse.csr_array(np.ones((5, 5)))
    np.testing.assert_array_equal(refined_cut(full, own, num_clusters=clusters), own)


def test_bridges_are_the_strongest_edges_between_clusters():
    draw = np.random.default_rng(0)
    weight = draw.uniform(size=(70, 70)) * (draw.uniform(size=(70, 70)) < 0.4)
    weight = np.maximum(weight, weight.T)
    assignments = draw.integers(0, 3, 70)
    seen, expected = set(), []
    pairs = itertools.combinations(range(70), 2)
    for i, j in sorted(pairs, key=lambda pair: -weight[pair]):
        if assignments[i] != assignments[j] and weight[i, j] > 0 and not seen & {i, j}:
            seen |= {i, j}
            expected.append([i, j])
    bridges = strongest_bridges(scipy.sparse.csr_array(weight), assignments)
    assert bridges.tolist() == expected[:24]
    none = strongest_bridges(scipy.sparse.csr_array(weight), np.zeros(70, int))
    with pytest.raises(ValueError, match="a cluster for each sample; got"):
        strongest_bridges(scipy.sparse.csr_array(weight), np.zeros(71, int))
    assert none.shape == (0, 2)
