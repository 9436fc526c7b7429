"""Labels for other programs: no formulas, safe folders, and what becomes of moved samples."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffclust.review import formats
from diffclust.review.edits import Edit, Labelling, Mark, Merge, Move, Rename, Review
from tests.review.made import CLUSTERS, fitted

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@given(st.text(max_size=12) | st.sampled_from([*FORMULA, "=1+1", "@x", "a=1", "'=1"]))
def test_no_cell_is_a_formula(text: str) -> None:
    cell = formats.safe_cell(text)
    assert not cell.startswith(FORMULA)
    assert cell in (text, f"'{text}")
    assert (cell == text) == (not text.startswith(FORMULA))


NASTY = [
    "Export.json",
    "..",
    ".",
    "",
    " ",
    "a/b",
    "a\\b",
    "CON",
    "con.txt",
    "lpt1",
    "x" * 500,
    "é" * 150,
    "Cat",
    "cat",
]


@given(st.lists(st.text(max_size=8) | st.sampled_from(NASTY), max_size=8))
def test_every_label_has_a_safe_folder_of_its_own(labels: list[str]) -> None:
    names = formats.folder_names(labels)
    assert names.keys() == set(labels)
    folded = {name.casefold() for name in names.values()}
    assert len(folded) == len(names)
    assert "export.json" not in folded, "which is a file beside them"
    for name in names.values():
        assert Path(name).name == name == PureWindowsPath(name).name
        assert name not in (".", "..")
        assert name == name.strip(". ")
        assert len(name.encode()) < 255
        assert not set(name) & set('<>:"/\\|?*')
        assert name.isprintable()
        assert name.split(".")[0].upper() not in {"CON", "PRN", "AUX", "NUL", "COM1", "LPT1"}


def test_plain_labels_are_folders_as_they_are(tmp_path: Path) -> None:
    labels = ["cats & dogs", "Käse", "cluster 3", "a.b"]
    assert formats.folder_names(labels) == {label: label for label in labels}
    for name in formats.folder_names([*NASTY, *labels]).values():
        (tmp_path / name).mkdir()
    assert len(list(tmp_path.iterdir())) == len({*NASTY, *labels})


def test_label_studio_reads_labels_and_doubts() -> None:
    labels, files = ["cat", '<"dog">'], [Path("data/0-a b.png"), Path("data/1-é.png")]
    written = formats.label_studio(labels, files, [False, True], "audio")
    tasks = json.loads(written["tasks.json"])
    assert tasks[0]["data"] == {"audio": "/data/local-files/?d=data/0-a%20b.png"}
    (annotation,) = tasks[0]["annotations"]
    (actual,) = annotation["result"]
    assert actual["value"] == {"choices": ["cat"]}
    assert "annotations" not in tasks[1]
    assert tasks[1]["predictions"][0]["result"][0]["value"] == {"choices": ['<"dog">']}
    config = ET.fromstring(written["config.xml"])
    assert [one.get("value") for one in config.iter("Choice")] == sorted(labels)
    (choices,), (audio,) = config.iter("Choices"), config.iter("Audio")
    # What a task names is there in the interface.
    assert actual["from_name"] == choices.get("name")
    assert actual["to_name"] == choices.get("toName") == audio.get("name")
    assert audio.get("value") == "$audio"


def test_fiftyone_names_images_without_their_endings() -> None:
    files = [Path("data/0-a.b.png"), Path("data/1-a.jpg"), Path("data/2-a.png")]
    actual = json.loads(formats.fiftyone(["dog", "cat", "dog"], files)["labels.json"])
    assert actual == {"classes": ["cat", "dog"], "labels": {"0-a.b": 1, "1-a": 0, "2-a": 1}}


@pytest.fixture(scope="module")
def result() -> Any:
    return fitted()[0]


def reviewed(result: Any, *edits: Edit) -> Review:
    return Review.replayed(Labelling.of_run(result.assignments, CLUSTERS), edits, len(edits))


def test_the_labels_of_a_model_follow_its_clusters(result: Any, tmp_path: Path) -> None:
    def labels(*edits: Edit) -> tuple[list[str], str]:
        content = formats.cluster_labels(reviewed(result, *edits), result, "images")
        path = tmp_path / "labels.json"
        path.write_text(json.dumps(content))
        return formats.read_cluster_labels(str(path), result)

    actual, note = labels(Rename(0, "cat"), Mark((1,), True))
    assert actual == ["cat", "cluster 1", "cluster 2"]
    assert note == "new ones get the label of the cluster they are assigned to"
    assert labels(Rename(0, "cat"), Merge((1, 2), 0))[0] == ["cat"] * 3
    # What was moved by hand is told of, and changes nothing.
    moved = tuple(np.flatnonzero(result.assignments == 1)[:2].tolist())
    actual, note = labels(Rename(0, "cat"), Move(moved, 0), Move(moved[:1], None))
    assert actual == ["cat", "cluster 1", "cluster 2"]
    assert note.endswith("2 of the images were moved or split off by hand: that changes no cluster")
    # Moved into what their cluster was merged with, they are where they belong.
    assert "by hand" not in labels(Move(moved, 0), Merge((1,), 0))[1]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"labels": [1, 2, 3]}', '{"labels": "abc"}'])
def test_what_holds_no_labels_is_refused(content: str, result: Any, tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="holds no labels of clusters; give labels.json"):
        formats.read_cluster_labels(str(path), result)


def test_labels_of_another_model_are_refused(result: Any, tmp_path: Path) -> None:
    content = formats.cluster_labels(reviewed(result), result, "images")
    for change in ({"prototypes": 0}, {"labels": ["one"]}):
        path = tmp_path / "labels.json"
        path.write_text(json.dumps(content | change))
        with pytest.raises(ValueError, match="another model's clusters"):
            formats.read_cluster_labels(str(path), result)
