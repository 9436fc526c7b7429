"""Commands on images that are registered first."""

import json
from pathlib import Path

import numpy as np
import pytest

from diffclust import load
from tests.cli.commands import Run, runner
from tests.models.test_registration import LABELS, moved


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


def test_coloured_images_are_fitted_predicted_and_exported(run: Run) -> None:
    np.savez("images.npz", x=moved("colours"), y=LABELS)
    words = ["--method", "ai-kmeans", "--register", "upright", "--restarts", "1", "--maps", "0"]
    assert run("fit", "images.npz", "-k", "3", *words, "--out", "run")[0] == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["settings"]["register"], summary["settings"]["ground"]) == ("upright", "colour")
    assert summary["acc"] == 1.0
    assert "The image registered" in Path("run/report.html").read_text()
    assert run("predict", "run", "images.npz", "--out", "again", "--maps", "0")[0] == 0
    assert json.loads(Path("again/summary.json").read_text())["acc"] == 1.0
    assert run("export", "run", "--what", "aligned", "--out", "aligned.npz")[0] == 0
    with np.load("aligned.npz") as found:
        assert found["aligned"].shape == (len(LABELS), 28, 28, 1)
    assert load("run").model.ground == "colour"


def test_landmarks_take_no_register(run: Run) -> None:
    words = ["--method", "shape-kmeans", "--register", "place", "--out", "run"]
    status, _, err = run("fit", "shapes.csv", "-k", "2", *words)
    assert status == 2
    assert err.startswith("error: shape-kmeans has no option --register;")
    assert err.count("\n") == 1
