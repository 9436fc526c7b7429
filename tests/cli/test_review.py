"""`diffclust review`, what it exports, predictions with labels, and labels from file names."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from diffclust.cli.runs import read_run
from diffclust.data import load
from diffclust.review.reviewer import Reviewer
from diffclust.review.server import ReviewServer
from tests.cli.commands import Run, entries, runner, squares

ROOT = Path(__file__).parents[2]
QUICK = ("--method", "kmeans", "--restarts", "1", "--max-passes", "3", "--maps", "0", "--no-report")
COUNT = 18
Serve = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder that has some images; gives status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    np.savez("images.npz", x=squares(COUNT))
    return runner(capsys)


def fitted(run: Run, source: str, *options: str, out: str = "run") -> None:
    status, _, err = run("fit", source, "-k", "3", *QUICK, *options, "--out", out)
    assert (status, err) == (0, "")


@pytest.fixture
def serve(run: Run, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Runs the command, does something with its reviewer, interrupts it; gives stdout."""

    def call(do: Callable[[Reviewer], None], *arguments: str) -> str:
        def served(server: ReviewServer) -> None:
            do(server.reviewer)
            raise KeyboardInterrupt

        monkeypatch.setattr(ReviewServer, "serve_forever", served)
        status, out, err = run("review", *arguments)
        assert (status, err) == (0, "")
        assert re.search("(every edit is saved in '.*review.json'|nothing was edited)\n$", out)
        return out

    return call


def folder_of_images(folder: Path) -> list[str]:
    """Pictures whose names hold their class, in two folders, with names that come twice."""
    names = []
    for number, image in enumerate(squares(COUNT)):
        path = folder / f"part{number % 2}" / f"={'cat' if number % 3 else 'dog'}_{number // 2}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
        names.append(str(path))
    return names


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 0, ""),
        pytest.param(
            signal.SIGTERM, 143, "error: terminated; nothing was edited\n", marks=pytest.mark.slow
        ),
    ],
)
def test_it_serves_until_it_is_ended(run: Run, number: int, status: int, said: str) -> None:
    fitted(run, "images.npz")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "diffclust", "review", "run/"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stdout.readline().removeprefix("open ").strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/\?token=[\w-]{32}", address)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=20) as answer:
            assert b"diffclust review" in answer.read()
        process.send_signal(number)
        ended = process.wait(timeout=30)
        assert (ended, process.stderr.read()) == (status, said)
    assert entries() == ["images.npz", "run"], "nothing is written before something is edited"


def test_edits_are_kept_beside_the_run(run: Run, serve: Serve) -> None:
    fitted(run, "images.npz")
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    edit = {"kind": "name", "cluster": 0, "name": "cat"}
    out = serve(lambda reviewer: reviewer.edit(0, edit), "run")
    assert "open http://127.0.0.1:" in out
    assert entries("run.review") == ["review.json"]

    def look(reviewer: Reviewer) -> None:
        assert reviewer.state()["clusters"][0]["name"] == "cat"
        assert reviewer.title == "run"

    serve(look, "run")
    assert {path: path.read_bytes() for path in before} == before
    serve(lambda reviewer: reviewer.edit(0, edit), "run", "--out", "elsewhere")
    assert entries("elsewhere") == ["review.json"]


def test_all_exports_of_a_folder_of_images(run: Run, serve: Serve) -> None:
    names = folder_of_images(Path("photos"))
    fitted(run, "photos")
    saved, reported = read_run("run"), {}
    labels = {0: "=cat()", 1: "a/b", 2: "a:b"}
    moved, doubtful = int(np.flatnonzero(saved.clusters == 0)[0]), 5

    def do(reviewer: Reviewer) -> None:
        for cluster, label in labels.items():
            reviewer.edit(cluster, {"kind": "name", "cluster": cluster, "name": label})
        reviewer.edit(3, {"kind": "mark", "samples": [doubtful], "doubtful": True})
        reviewer.edit(4, {"kind": "move", "samples": [moved], "to": 1})
        for name in reviewer.state()["exports"]:
            # An export replaces the one before.
            for _ in range(2):
                reported[name] = reviewer.export(name)["message"]

    serve(do, "run")
    out = Path("run.review")
    assert entries(out) == [
        *("fiftyone", "folders", "label-studio", "labels.csv", "labels.json", "review.json"),
    ]
    clusters = saved.clusters.copy()
    clusters[moved] = 1
    rows = table(out / "labels.csv")
    assert [row["index"] for row in rows] == [str(i) for i in saved.indices]
    cells = {label: f"'{label}" if label[0] == "=" else label for label in labels.values()}
    assert [row["label"] for row in rows] == [cells[labels[k]] for k in clusters]
    assert [row["cluster"] for row in rows] == [str(k) for k in saved.clusters]
    assert [row["doubtful"] for row in rows] == [str(int(i == doubtful)) for i in range(COUNT)]
    assert {row["path"] for row in rows} == set(names)

    folders = {"=cat()": "=cat()", "a/b": "a_b", "a:b": "a_b-2"}
    assert entries(out / "folders") == sorted([*folders.values(), "export.json"])
    for name, cluster in zip(saved.places, clusters, strict=True):
        there = out / "folders" / folders[labels[int(cluster)]]
        assert any(path.read_bytes() == Path(name).read_bytes() for path in there.iterdir())
    assert len(list((out / "folders").rglob("*.png"))) == COUNT
    # What was exported is not read as a part of what lies around it.
    assert len(load(out / "folders").images) == COUNT
    assert len(load(".", split="all").images) == COUNT

    fiftyone = json.loads((out / "fiftyone" / "labels.json").read_text())
    assert fiftyone["classes"] == sorted(labels.values())
    files = {path.stem: path for path in (out / "fiftyone" / "data").iterdir()}
    assert files.keys() == fiftyone["labels"].keys()
    for index, name, cluster in zip(saved.indices, saved.places, clusters, strict=True):
        stem = f"{index}-{Path(name).stem}"
        assert files[stem].read_bytes() == Path(name).read_bytes()
        assert fiftyone["classes"][fiftyone["labels"][stem]] == labels[int(cluster)]

    tasks = json.loads((out / "label-studio" / "tasks.json").read_text())
    assert [("predictions" in task) for task in tasks] == [i == doubtful for i in range(COUNT)]
    for task in tasks:
        place = urllib.request.unquote(task["data"]["image"].removeprefix("/data/local-files/?d="))
        assert (out / "label-studio" / place).is_file()
    assert "=cat()" in (out / "label-studio" / "config.xml").read_text()
    assert "document root" in reported["Label Studio"]
    assert (
        "1 of the images was moved or split off by hand"
        in reported["Labels of the model's clusters"]
    )


def test_images_that_are_no_files_are_written(run: Run, serve: Serve) -> None:
    fitted(run, "images.npz")
    serve(lambda reviewer: [reviewer.export(name) for name in reviewer.state()["exports"]], "run")
    labels = json.loads(Path("run.review/fiftyone/labels.json").read_text())["labels"]
    assert sorted(labels, key=int) == [str(i) for i in range(COUNT)]
    with Image.open("run.review/fiftyone/data/7.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), squares(COUNT)[7])


def test_an_export_of_one_image(run: Run, serve: Serve) -> None:
    assert run("fit", "images.npz", "-k", "1", *QUICK, "--limit", "1", "--out", "run")[0] == 0
    messages: list[str] = []

    def do(reviewer: Reviewer) -> None:
        reviewer.edit(0, {"kind": "name", "cluster": 0, "name": "export.json"})
        for name in ("Table (CSV)", "Folders"):
            messages.append(reviewer.export(name)["message"])

    serve(do, "run")
    table, folders = messages
    assert table.startswith("1 image: ")
    assert folders.startswith("1 image in 1 folder: ")
    assert entries("run.review/folders") == ["export.json", "export.json-2"]


def test_an_export_replaces_nothing_else(run: Run, serve: Serve) -> None:
    fitted(run, "images.npz")
    Path("run.review/folders").mkdir(parents=True)
    Path("run.review/folders/mine.txt").write_text("mine")

    def do(reviewer: Reviewer) -> None:
        with pytest.raises(ValueError, match="holds files that are no export"):
            reviewer.export("Folders")

    serve(do, "run")
    assert Path("run.review/folders/mine.txt").read_text() == "mine"


def test_a_prediction_with_labels(run: Run, serve: Serve) -> None:
    fitted(run, "images.npz")
    saved = read_run("run")
    moved = [int(np.flatnonzero(saved.clusters == 1)[0])]

    def do(reviewer: Reviewer) -> None:
        reviewer.edit(0, {"kind": "name", "cluster": 0, "name": "=cat"})
        reviewer.edit(1, {"kind": "merge", "clusters": [2], "into": 0})
        reviewer.edit(2, {"kind": "move", "samples": moved, "to": 0})
        reviewer.export("Labels of the model's clusters")

    serve(do, "run")
    words = ("predict", "run", "images.npz", "--no-report", "--cluster-labels")
    status, out, err = run(*words, "run.review/labels.json", "--out", "new")
    assert (status, err) == (0, "")
    reported = (
        "labels: in assignments.csv; new ones get the label of the cluster they are assigned to;"
    )
    assert f"{reported} 1 of the images was moved" in out
    rows = table(Path("new/assignments.csv"))
    expected = {0: "'=cat", 1: "cluster 1", 2: "'=cat"}
    assert [row["label"] for row in rows] == [expected[k] for k in read_run("new").clusters]
    assert {row["label"] for row in rows} == set(expected.values())
    about = json.loads(Path("new/summary.json").read_text())
    assert about["cluster_labels"] == "run.review/labels.json"
    # A prediction can be reviewed too.
    exports = ["Labels of the model's clusters"]
    serve(lambda reviewer: [reviewer.export(name) for name in exports], "new")
    status, _, err = run(*words, "new.review/labels.json", "--out", "newer")
    assert (status, err) == (0, "")
    fitted(run, "images.npz", "--seed", "1", "--limit", "12", out="other")
    status, out, err = run(
        "predict", "other", "images.npz", "--cluster-labels", "run.review/labels.json", "--out", "x"
    )
    assert (status, out) == (2, "")
    assert "'run.review/labels.json' holds labels of another model's clusters" in err
    assert not Path("x").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "'nowhere' holds no run"),
        (("run", "--source", "nothing.npz"), "'nothing.npz' is no file"),
        (("run", "--source", "others.npz"), "does not hold the images of this run"),
        (("run", "--out", "damaged"), "is damaged"),
        (("run", "--out", "images.npz"), "Not a directory"),
        (("run", "--out", "run/review"), "lies in the folder of a run"),
    ],
)
def test_what_cannot_be_reviewed(run: Run, arguments: tuple[str, ...], message: str) -> None:
    fitted(run, "images.npz")
    np.savez("others.npz", x=squares(COUNT - 1))
    Path("damaged").mkdir()
    Path("damaged/review.json").write_text("{")
    before = entries()
    status, out, err = run("review", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert entries() == before


def check_samples(reviewer: Reviewer, kind: str) -> None:
    """Pictures of all samples, and what is done with them."""
    samples = reviewer.samples
    for sample in range(len(samples)):
        result, content = samples.picture(sample)
        assert result == kind
        assert content.startswith(b"\x89PNG" if kind == "image/png" else b"<svg color=")
    assert reviewer.similar(1)["samples"][0]["id"] == 1
    state = reviewer.state()
    largest = max(state["clusters"], key=lambda one: one["size"])
    split = reviewer.edit(0, {"kind": "split", "cluster": largest["id"]})
    assert len(split["clusters"]) == len(state["clusters"]) + 1
    for name in state["exports"]:
        assert str(Path("run.review")) in reviewer.export(name)["message"]


def test_shapes(run: Run, serve: Serve) -> None:
    rng = np.random.default_rng(0)
    kinds = np.stack([np.array([[0, 0], [2, 0], [2, 1], [0, 1]]), rng.normal(size=(4, 2))])
    shapes = kinds[np.arange(12) % 2] + 0.05 * rng.normal(size=(12, 4, 2))
    np.savez("shapes.npz", landmarks=shapes)
    shape_fit = ("fit", "shapes.npz", "-k", "2", "--method", "shape-kmeans", "--no-report")
    assert run(*shape_fit, "--restarts", "1", "--out", "run")[0] == 0
    serve(lambda reviewer: check_samples(reviewer, "image/svg+xml"), "run")
    assert entries("run.review") == ["labels.csv", "labels.json", "review.json"]
    assert table(Path("run.review/labels.csv"))[3]["name"] == "3"
    # A prediction keeps no alignments; they are made anew.
    run("predict", "run", "shapes.npz", "--no-report", "--out", "new")

    def look(reviewer: Reviewer) -> None:
        assert reviewer.samples.picture(3)[1].startswith(b"<svg color=")

    serve(look, "new")


@pytest.mark.slow
def test_series(run: Run, serve: Serve) -> None:
    times = np.linspace(0, 1, 24)
    rng = np.random.default_rng(0)
    series = np.stack([np.sin((6 + 6 * (i % 2)) * times) for i in range(12)])
    np.savez("series.npz", series=series + 0.05 * rng.normal(size=series.shape))
    words = ("fit", "series.npz", "-k", "2", "--method", "series-kmeans", "--no-report")
    assert run(*words, "--out", "run")[0] == 0
    serve(lambda reviewer: check_samples(reviewer, "image/svg+xml"), "run")
    # New ones, fewer than were fitted, of which some did not count.
    np.save("weights.npy", np.arange(12.0))
    np.savez("new.npz", series=series[:8])
    assert run(*words, "--weights", "weights.npy", "--out", "weighted")[0] == 0
    assert run("predict", "weighted", "new.npz", "--no-report", "--out", "few")[0] == 0
    serve(lambda reviewer: [reviewer.samples.picture(i) for i in range(8)], "few")


@pytest.mark.slow
def test_features_that_a_fit_has_kept_are_compared(run: Run, serve: Serve) -> None:
    np.savez("images.npz", x=squares(60))
    assert (
        run("fit", "images.npz", "-k", "3", "--method", "pssc", "--no-report", "--out", "run")[0]
        == 0
    )
    run("predict", "run", "images.npz", "--no-report", "--out", "new")

    def compared(what: str) -> Callable[[Reviewer], None]:
        def look(reviewer: Reviewer) -> None:
            assert what in reviewer.similar(3)["compared"]

        return look

    serve(compared("scattering coefficients"), "run")
    # Those are of the fitted images, not of these.
    serve(compared("pixels"), "new")


def test_recordings_can_be_played(run: Run, serve: Serve) -> None:
    soundfile = pytest.importorskip("soundfile", reason="no soundfile is installed")
    Path("words").mkdir()
    rng = np.random.default_rng(0)
    for number in range(6):
        wave = np.sin(np.arange(4000) * (0.3 + number % 2)) + 0.01 * rng.normal(size=4000)
        soundfile.write(f"words/{number}.wav", 0.5 * wave, 8000)
    status, _, err = run("fit", "words", "-k", "2", *QUICK, "--out", "run")
    assert (status, err) == (0, "")

    def do(reviewer: Reviewer) -> None:
        check_samples(reviewer, "image/png")
        assert reviewer.state()["noun"] == "recording"
        assert reviewer.samples.sound(2).startswith(b"fLaC")
        Path("words/2.wav").unlink()
        with pytest.raises(LookupError, match="recording 2 cannot be read"):
            reviewer.samples.sound(2)

    serve(do, "run")
    assert "fiftyone" not in entries("run.review")
    tasks = json.loads(Path("run.review/label-studio/tasks.json").read_text())
    assert tasks[4]["data"] == {"audio": "/data/local-files/?d=data/4-4.wav"}


def test_labels_from_file_names(run: Run) -> None:
    folder_of_images(Path("photos"))
    fitted(run, "photos", "--label-pattern", "^=([a-z]+)_")
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["source"]["label_pattern"] == "^=([a-z]+)_"
    expected = load("photos")
    assert expected.paths is not None
    kinds = np.array(["cat" in Path(path).name for path in expected.paths])
    from diffclust.metrics import scores

    result = scores(kinds.astype(int), read_run("run").clusters)
    assert {name: summary[name] for name in result} == result
    words = ("predict", "run", "photos", "--no-report", "--label-pattern", "(dog|cat)")
    status, out, err = run(*words, "--out", "new")
    assert (status, err) == (0, "")
    assert "accuracy" in out
    # It never reaches the fit.
    fitted(run, "photos", out="plain")
    np.testing.assert_array_equal(read_run("plain").clusters, read_run("run").clusters)


@pytest.mark.parametrize(
    ("source", "pattern", "message"),
    [
        ("photos", "([a-z", "'([a-z' is no regular expression: unterminated character set"),
        ("photos", "cat", "has 0 groups; put the class, and nothing else, in parentheses"),
        ("photos", "(c)(a)t", "has 2 groups"),
        ("photos", "(cat)_", "finds no class in the names of 6 of 18 files: '=dog_0.png'"),
        ("photos", "cat()|dog()", "has 2 groups"),
        ("photos", "(x?)cat", "finds no class in the names of 18 of 18 files"),
        ("images.npz", "(.)", "is for a folder of files; leave it out"),
    ],
)
def test_patterns_that_will_not_do(run: Run, source: str, pattern: str, message: str) -> None:
    folder_of_images(Path("photos"))
    words = ("fit", source, "-k", "3", *QUICK, "--out", "run", "--label-pattern", pattern)
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert err.startswith("error: --label-pattern ")
    assert err.count("\n") == 1
    assert message in err
    assert not Path("run").exists()
