"""Edits of a labelling: pure, replayed, undone, and read from JSON."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffclust.review.edits import (
    LONGEST_NAME,
    Edit,
    Labelling,
    Mark,
    Merge,
    Move,
    Rename,
    Review,
    parse_edit,
    to_json,
)

FOUND = np.array([0, 0, 1, 2, 2, 2], np.int32)
NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=9)
SAMPLES = st.lists(st.integers(-1, len(FOUND)), max_size=4).map(tuple)
CLUSTERS = st.integers(-1, 6)
# Beartype, which checks what the edits are made of, draws at random: not within a strategy.
EDITS = st.one_of(
    st.tuples(st.just(Rename), CLUSTERS, NAMES),
    st.tuples(st.just(Merge), st.lists(CLUSTERS, max_size=3).map(tuple), CLUSTERS),
    st.tuples(st.just(Move), SAMPLES, CLUSTERS | st.none()),
    st.tuples(st.just(Mark), SAMPLES, st.booleans()),
)


def started() -> Labelling:
    return Labelling.of_run(FOUND, 3)


def contents(labelling: Labelling) -> tuple[Any, ...]:
    names = sorted(labelling.names.items())
    return labelling.clusters.tolist(), names, labelling.doubtful.tolist(), labelling.homes


def after(*edits: Edit) -> Labelling:
    return Review.replayed(started(), edits, 0).labelling


def test_what_each_edit_does() -> None:
    assert after(Rename(1, " cat ")).label(1) == "cat"
    assert after(Rename(1, "cat"), Rename(1, "")).label(1) == "cluster 1"
    assert after(Move((0, 2), 2)).clusters.tolist() == [2, 0, 2, 2, 2, 2]
    new = after(Move((3,), None), Rename(3, "new"))
    assert new.labels() == ["cluster 0", "cluster 0", "cluster 1", "new", "cluster 2", "cluster 2"]
    # No new cluster is called what another one has been named.
    split = after(Rename(0, "cluster 3"), Move((3,), None))
    assert split.labels() == ["cluster 3"] * 2 + ["cluster 1", "cluster 4"] + ["cluster 2"] * 2
    # New samples of cluster 2 are still of cluster 2.
    assert new.homes == (0, 1, 2)
    assert after(Mark((1, 4), True), Mark((4,), False)).doubtful.nonzero()[0].tolist() == [1]


def test_no_cluster_is_called_what_the_page_shows_of_another() -> None:
    review = Review.replayed(started(), (), 0)
    for name in ("Cluster 1", "CLUSTER 7"):
        with pytest.raises(ValueError, match=f"{name} is how clusters without a name are shown"):
            review.edited(Rename(0, name))
        # As earlier versions let one.
        assert Review.replayed(started(), (Rename(0, name),), 1).labelling.label(0) == name
    assert review.edited(Rename(0, "Cluster 0")).labelling.label(0) == "Cluster 0"


def test_merged_clusters_are_gone_and_the_fit_s_clusters_follow() -> None:
    merged = after(Rename(1, "cat"), Merge((0, 2), 1))
    assert merged.clusters.tolist() == [1] * 6
    assert dict(merged.names) == {1: "cat"}
    assert merged.homes == (1, 1, 1)
    # No cluster of the fit comes to life again by its number.
    assert max(after(Merge((2,), 0), Move((5,), None)).names) == 3
    # A new cluster may take over those of the fit.
    assert after(Move((0,), None), Merge((0, 1, 2), 3)).homes == (3, 3, 3)


@given(st.lists(EDITS, max_size=12))
def test_edits_are_pure_and_undone_step_by_step(edits: list[tuple]) -> None:
    reviews = [Review.replayed(started(), (), 0)]
    before = [contents(reviews[0].labelling)]
    for kind, *values in edits:
        try:
            reviews.append(reviews[-1].edited(kind(*values)))
        except (LookupError, ValueError):
            continue
        labelling = reviews[-1].labelling
        before.append(contents(labelling))
        # All samples are in clusters that there are, and so are the clusters of the fit.
        assert {*labelling.clusters.tolist(), *labelling.homes} <= {*labelling.names}
        assert len(labelling.labels()) == len(FOUND)
        # No earlier one has changed.
        assert [contents(review.labelling) for review in reviews] == before
    last = reviews[-1]
    again = [parse_edit(json.loads(json.dumps(to_json(edit)))) for edit in last.edits]
    assert tuple(again) == last.edits
    assert contents(Review.replayed(started(), again, 0).labelling) == before[-1]
    for expected in reversed(before[:-1]):
        revision, last = last.revision, last.undone()
        assert contents(last.labelling) == expected
        assert last.revision == revision + 1
    with pytest.raises(ValueError, match="nothing to undo"):
        last.undone()


@pytest.mark.parametrize(
    ("edit", "kind", "message"),
    [
        (Rename(3, "x"), LookupError, "no cluster 3"),
        (Rename(0, "two\nlines"), ValueError, "at most"),
        (Rename(0, "\ud800"), ValueError, "at most"),
        (Rename(0, "\u202eright to left"), ValueError, "at most"),
        (Rename(0, " cluster 1"), ValueError, "cluster 1 is what another one is called"),
        (Rename(0, "x" * (LONGEST_NAME + 1)), ValueError, f"at most {LONGEST_NAME}"),
        (Merge((0, 1), 1), ValueError, "into another"),
        (Merge((), 1), ValueError, "into another"),
        (Merge((7,), 1), LookupError, "no cluster 7"),
        (Move((6,), 0), LookupError, "no sample 6"),
        (Move((-1,), 0), LookupError, "no sample -1"),
        (Move((10**30,), 0), LookupError, "no sample 1000"),
        (Move((), 0), ValueError, "one sample or more"),
        (Move((1,), 9), LookupError, "no cluster 9"),
        (Mark((6,), True), LookupError, "no sample 6"),
    ],
)
def test_what_makes_no_sense_is_refused(edit: Edit, kind: type, message: str) -> None:
    labelling = started()
    with pytest.raises(kind, match=message):
        labelling.apply(edit)
    assert contents(labelling) == contents(started())


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"kind": "delete"},
        {"kind": ["name"]},
        {"kind": "name", "cluster": 0},
        {"kind": "name", "cluster": "0", "name": "x"},
        {"kind": "move", "samples": "01", "to": 0},
        {"kind": "move", "samples": [0.0], "to": 0},
        {"kind": "move", "samples": [True], "to": 0},
        {"kind": "move", "samples": [0], "to": "0"},
        {"kind": "mark", "samples": [0], "doubtful": 1},
        {"kind": "merge", "clusters": [[0]], "into": 1},
    ],
)
def test_what_is_no_edit_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match="an edit"):
        parse_edit(content)


def test_a_labelling_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        started().homes = ()  # pyright: ignore[reportAttributeAccessIssue]
