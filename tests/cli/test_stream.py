"""`--stream` on the command line: the same run, and a line that says how images are read."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from diffclust.cli import main
from tests.registry import blobs


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "images.npy"
    np.save(path, np.round(blobs(60) * 255).astype(np.uint8))
    return str(path)


def rows(folder: Path) -> list[list[str]]:
    return list(csv.reader((folder / "assignments.csv").read_text("utf-8").splitlines()))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(arguments)
    return status, capsys.readouterr().err


@pytest.mark.parametrize(
    "frame", [[], pytest.param(["--register", "upright"], marks=pytest.mark.slow)]
)
def test_streamed_run_is_the_run(
    frame: list[str], source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["fit", source, "-k", "3", "--method", "kmeans", "--restarts", "1", "--maps", "0"]
    options += frame
    folders = [tmp_path / "resident", tmp_path / "streamed"]
    for folder, extra in zip(folders, ([], ["--stream"]), strict=True):
        status, message = run(capsys, *options, *extra, "--out", str(folder))
        assert status == 0, message
        assert message.count("images are read as they are needed: 60 of them") == len(extra)
    assert rows(folders[1]) == rows(folders[0])
    assert len(rows(folders[1])) == 61
    losses = [json.loads((f / "summary.json").read_text("utf-8"))["loss"] for f in folders]
    assert losses[0] == losses[1]
    pages = [(folder / "report.html").read_text("utf-8") for folder in folders]
    pictures = [page.count("data:image/png") for page in pages]
    assert pictures[0] == pictures[1] > 20
    assert all('<section id="film">' in page for page in pages)
    assert all((" registered: " in page) == bool(frame) for page in pages)
    status, message = run(
        capsys, "predict", str(folders[0]), source, "--stream", "--no-report",
        "--out", str(tmp_path / "predicted"),
    )  # fmt: skip
    assert status == 0, message
    predicted = rows(tmp_path / "predicted")
    assert [row[:3] for row in predicted] == [row[:3] for row in rows(folders[1])]


def test_streamed_by_itself_where_memory_is_short(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffclust.cli.samples.outgrows_memory", lambda *_, **__: True)
    for method, is_streamed in (("kmeans", True), ("pssc", False)):
        out = str(tmp_path / "run")
        status, message = run(capsys, "fit", source, "-k", "61", "--method", method, "--out", out)
        assert status == 2
        assert ("images are read as they are needed: 60 of them" in message) is is_streamed
        assert "too few for 61 clusters" in message.splitlines()[-1]
    pssc = ("fit", source, "-k", "3", "--method", "pssc", "--stream")
    status, message = run(capsys, *pssc, "--out", str(tmp_path / "run"))
    assert status == 2
    assert "take another method" in message.splitlines()[-1]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("source", "said"), [("digits", "leave out --stream"), ("there-is-none.npy", "does not exist")]
)
def test_what_cannot_be_streamed_is_refused(
    source: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = run(
        capsys, "fit", source, "-k", "2", "--stream", "--out", str(tmp_path / "run")
    )
    assert status == 2
    assert said in message
    assert len(message.splitlines()) == 1
    assert not (tmp_path / "run").exists()
