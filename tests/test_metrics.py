"""The metrics against scikit-learn, brute force, and what must hold for any partition."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from diffclust import metrics

METRICS = [
    metrics.accuracy,
    metrics.normalized_mutual_information,
    metrics.adjusted_rand_index,
]


@st.composite
def partitions(draw):
    """Labels and assignments of the same samples, with numbers of groups of their own."""
    n = draw(st.integers(1, 20))
    return tuple(
        np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)))
        for most in (draw(st.integers(0, 4)), draw(st.integers(0, 4)))
    )


def brute_force_accuracy(labels, assignments):
    """The best over all one-to-one mappings, tried one by one."""
    classes, clusters = sorted(set(labels)), sorted(set(assignments))
    if len(classes) > len(clusters):
        classes, clusters, labels, assignments = clusters, classes, assignments, labels
    return max(
        np.mean([cluster == dict(zip(classes, chosen, strict=True))[label]
                 for label, cluster in zip(labels, assignments, strict=True)])
        for chosen in itertools.permutations(clusters, len(classes))
    )  # fmt: skip


@given(partitions())
def test_agrees_with_brute_force_and_scikit_learn(pair):
    labels, assignments = pair
    got = metrics.scores(labels, assignments)
    assert got["acc"] == pytest.approx(brute_force_accuracy(*(p.tolist() for p in pair)))
    assert got["nmi"] == pytest.approx(normalized_mutual_info_score(labels, assignments), abs=1e-9)
    assert got["ari"] == pytest.approx(adjusted_rand_score(labels, assignments), abs=1e-9)
    assert all(type(value) is float for value in got.values())


@given(partitions(), st.permutations(range(5)), st.randoms(use_true_random=False))
def test_names_of_clusters_and_order_of_samples_do_not_matter(pair, renaming, random):
    labels, assignments = pair
    order = list(range(len(labels)))
    random.shuffle(order)
    renamed = np.array([f"cluster {renaming[a]}" for a in assignments])
    for metric in METRICS:
        assert metric(labels[order], renamed[order]) == pytest.approx(metric(labels, assignments))


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20), st.permutations(range(7)))
def test_renamed_truth_scores_one(labels, renaming):
    renamed = [renaming[label + 3] for label in labels]
    assert metrics.scores(labels, renamed) == pytest.approx({"acc": 1.0, "nmi": 1.0, "ari": 1.0})
    mapping = metrics.best_mapping(labels, renamed)
    assert [mapping[a] for a in renamed] == labels


def test_contingency_table_and_mapping_with_more_clusters_than_classes():
    labels = ["cat", "cat", "cat", "dog", "dog"]
    assignments = [7, 7, 2, -1, -1]
    np.testing.assert_array_equal(
        metrics.contingency_table(labels, assignments), [[0, 1, 2], [2, 0, 0]]
    )
    assert metrics.best_mapping(labels, assignments) == {7: "cat", -1: "dog"}
    assert metrics.accuracy(labels, assignments) == pytest.approx(0.8)


def test_fewer_clusters_than_classes():
    assert metrics.accuracy([0, 0, 1, 2], ["a", "a", "b", "b"]) == pytest.approx(0.75)
    assert set(metrics.best_mapping([0, 0, 1, 2], ["a", "a", "b", "b"])) == {"a", "b"}


def test_takes_object_arrays_of_strings_and_jax_arrays():
    import jax.numpy as jnp

    for dtype in (object, np.dtypes.StringDType()):
        labels = np.array(["a", "b"], dtype=dtype)
        assert metrics.scores(labels, jnp.array([1, 0]))["acc"] == 1.0
        assert metrics.best_mapping(labels, [1, 0]) == {0: "b", 1: "a"}


def test_many_samples_do_not_overflow():
    labels = np.repeat([0, 1], 200_000)
    assert metrics.adjusted_rand_index(labels, 1 - labels) == 1.0
    assert metrics.adjusted_rand_index(labels, np.tile([0, 1], 200_000)) == pytest.approx(
        0.0, abs=1e-5
    )


@pytest.mark.parametrize("metric", [*METRICS, metrics.scores, metrics.best_mapping])
@pytest.mark.parametrize(
    ("labels", "assignments", "message"),
    [
        ([0, 1], [0, 1, 1], "2 labels and 3 assignments"),
        ([], [], "labels must not be empty"),
        ([0], [], "assignments must not be empty"),
        ([[0, 1]], [0, 1], r"labels must be one-dimensional.*\(1, 2\).*argmax"),
        ([0, "0"], [0, 1], "labels must be all integers or all strings: got int too"),
        ([[0], [0, 1]], [0, 1], "labels must be one-dimensional: "),
        (np.ma.array([0, 1], mask=[0, 1]), [0, 1], "labels must not be masked"),
        ([0, 1], [0.5, 1.0], "assignments must be integers or strings.*float64.*astype"),
    ],
)
def test_bad_input(metric, labels, assignments, message):
    with pytest.raises(ValueError, match=message):
        metric(labels, assignments)


def test_importing_pulls_in_no_scikit_learn():
    code = (
        "import sys, diffclust.metrics, diffclust.data;"
        "sys.exit(any(name.split('.')[0] in ('sklearn', 'matplotlib') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_as_many_clusters_as_samples_need_no_table_of_all_pairs() -> None:
    singles = np.arange(300_000)
    halves = singles // 2
    assert metrics.adjusted_rand_index(singles, singles) == 1.0
    assert metrics.adjusted_rand_index(halves, singles) == 0.0
    wanted = 2 * np.log(150_000) / (np.log(150_000) + np.log(300_000))
    assert metrics.normalized_mutual_information(halves, singles) == pytest.approx(wanted, rel=1e-9)
