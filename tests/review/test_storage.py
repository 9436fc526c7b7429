"""The file of a review: whole or as it was, of one run, and never trusted."""

import contextlib
import json
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from diffclust.review.edits import Labelling, Mark, Merge, Move, Rename, Review
from diffclust.review.reviewer import Reviewer, StaleError
from diffclust.review.samples import ReviewSamples
from diffclust.review.storage import ReviewFile
from tests.data.test_fuzz import damaged

FOUND = np.array([0, 0, 1, 2, 2, 2], np.int32)
EDITS = (Rename(0, "Käse"), Move((0, 5), None), Mark((1,), True), Merge((1,), 3))


def labelling(found: np.ndarray = FOUND) -> Labelling:
    return Labelling.of_run(found, 3)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = ReviewFile(tmp_path / "new" / "review.json", labelling())
    review = file.read()
    assert (review.edits, review.revision) == ((), 0)
    assert list(tmp_path.iterdir()) == []
    for edit in EDITS:
        review = review.edited(edit)
        file.write(review)
    read = ReviewFile(tmp_path / "new" / "review.json", labelling()).read()
    assert (read.edits, read.revision) == (EDITS, len(EDITS))
    np.testing.assert_array_equal(read.labelling.clusters, review.labelling.clusters)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["review.json"]


def test_it_is_seen_when_another_process_has_written(tmp_path: Path) -> None:
    one, two = (ReviewFile(tmp_path / "review.json", labelling()) for _ in range(2))
    review = one.read()
    two.write(two.read().edited(EDITS[0]))
    assert one.has_changed()
    assert not two.has_changed()
    assert one.read().edits == EDITS[:1]
    assert not one.has_changed()
    assert review.edits == ()


class Samples(ReviewSamples):
    """Names for those that a reviewer shows, and no pictures."""

    def __init__(self) -> None:
        self.noun, self.names, self.compared = "image", [*"abcdef"], "pixels"


def edits_in_a_process(path: Path, started: Any, last: int) -> None:
    """Renames a cluster as often as it takes to have done it a few times, and says so."""
    orders = {"as they came": np.arange(len(FOUND))}
    reviewer = Reviewer("run", Samples(), ReviewFile(path, labelling()), orders, {})
    started.wait()
    done = 0
    while done < last:
        # Somebody else was first: look again, as the page does.
        with contextlib.suppress(StaleError):
            revision = reviewer.review().revision
            reviewer.edit(revision, {"kind": "name", "cluster": 0, "name": f"{done}"})
            done += 1


@pytest.mark.slow
def test_two_processes_lose_no_edit(tmp_path: Path) -> None:
    """Each edit of one revision counts once: the other process is told that it came too late."""
    path, each = tmp_path / "review.json", 15
    context = multiprocessing.get_context("spawn")
    started = context.Barrier(2)
    others = [
        context.Process(target=edits_in_a_process, args=(path, started, each)) for _ in range(2)
    ]
    for process in others:
        process.start()
    for process in others:
        process.join(300)
        assert process.exitcode == 0
    review = ReviewFile(path, labelling()).read()
    assert review.revision == 2 * each == len(review.edits)
    assert [entry.name for entry in tmp_path.iterdir()] == ["review.json"]


def test_an_edit_waits_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = {"as they came": np.arange(len(FOUND))}
    one, two = (
        Reviewer("run", Samples(), ReviewFile(tmp_path / "r.json", labelling()), orders, {})
        for _ in range(2)
    )
    writing, write = threading.Event(), ReviewFile.write

    def slow(file: ReviewFile, review: Review) -> None:
        writing.set()
        time.sleep(0.3)
        write(file, review)

    monkeypatch.setattr(ReviewFile, "write", slow)
    rename = {"kind": "name", "cluster": 0, "name": "one"}
    thread = threading.Thread(target=one.edit, args=(0, rename))
    thread.start()
    writing.wait()
    # The other has read nothing new yet; the revision that it edits is gone when it may.
    with pytest.raises(StaleError):
        two.edit(0, {**rename, "name": "two"})
    thread.join()
    assert one.review().labelling.names[0] == two.review().labelling.names[0] == "one"


def test_a_review_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "review.json"
    ReviewFile(path, labelling()).write(Review.replayed(labelling(), EDITS, 4))
    with pytest.raises(ValueError, match=r"review.json' is of another run; move it away"):
        ReviewFile(path, labelling(FOUND[::-1].copy())).read()


def test_a_failed_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ReviewFile(tmp_path / "review.json", labelling())
    file.write(Review.replayed(labelling(), EDITS[:2], 2))
    before = file.path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        file.write(Review.replayed(labelling(), EDITS, 4))
    assert file.path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["review.json"]


def test_damaged_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "review.json"
    ReviewFile(path, labelling()).write(Review.replayed(labelling(), EDITS, 4))
    whole, refused = path.read_bytes(), []

    @hypothesis.settings(max_examples=200)
    @hypothesis.given(damaged(whole) | st.just(b"[" * 100_000) | st.just(b'{"run": 1e999}'))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        try:
            ReviewFile(path, labelling()).read()
        except ValueError as error:
            refused.append(str(error))
        assert path.read_bytes() == content

    check()
    assert len(refused) > 50
    assert not any("\n" in message for message in refused)


@pytest.mark.parametrize(
    "change",
    [
        {"edits": [{"kind": "move", "samples": [99], "to": 0}]},
        {"edits": 5},
        {"edits": [5]},
        {"revision": None},
        {"revision": 1e400},
        {"run": None},
    ],
)
def test_what_cannot_be_is_refused(change: dict, tmp_path: Path) -> None:
    path = tmp_path / "review.json"
    ReviewFile(path, labelling()).write(Review.replayed(labelling(), EDITS, 4))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    file = ReviewFile(path, labelling())
    for _ in range(2):  # what could not be read was not seen
        with pytest.raises(ValueError, match="is damaged|of another run"):
            file.read()
        assert file.has_changed()
