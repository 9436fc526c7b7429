"""`diffclust align`: pictures aligned to their common mean."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import diffclust
from tests.cli.commands import Run, runner
from tests.registry import blobs


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").mkdir()
    picture = np.pad(blobs(1)[0, :, :, 0], 4)
    for number in range(8):
        moved = np.roll(picture, number % 3 - 1, axis=1)
        Image.fromarray((255 * moved).astype(np.uint8)).save(f"pictures/{number}.png")
    return runner(capsys)


@pytest.mark.slow
def test_align_writes_the_mean_and_every_picture(run: Run) -> None:
    command = ["align", "pictures", "--out", "out", "--method", "ai-kmeans"]
    status, _, error = run(*command)
    assert (status, error) == (0, "")
    mean, first = (np.asarray(Image.open(f)) for f in ("out/mean.png", "pictures/0.png"))
    assert mean.shape == first.shape
    aligned = sorted(Path("out/aligned").rglob("*.png"))
    assert len(aligned) == 8

    def spread(files: list[Path]) -> float:
        return float(np.stack([np.asarray(Image.open(f), float) for f in files]).std(0).mean())

    assert spread(aligned) < 0.5 * spread(sorted(Path("pictures").iterdir()))
    status, _, error = run(*command)
    assert status == 2
    assert "give --overwrite" in error
    assert run(*command, "--overwrite")[0] == 0


@pytest.mark.slow
def test_align_takes_the_options_of_its_method(run: Run) -> None:
    Image.fromarray(np.pad(np.full((12, 16), 255, np.uint8), ((4, 0), (0, 0)))).save("mask.png")
    options = ["--register", "place", "--mask", "mask.png", "--transforms", "turn-aff"]
    status, out, error = run("align", "pictures", "--out", "out", "--method", "ai-kmeans", *options)
    assert (status, error) == (
        0,
        "now the best restart at full size (another loss)\n",
    )
    assert "registration: position and size normalised" in out
    settings = diffclust.load("out/run").model.settings()
    assert settings["transforms"] == "turn-aff"
    assert settings["mask"] is not None


def test_align_refuses_options_of_other_methods(run: Run) -> None:
    command = ["align", "pictures", "--out", "out"]
    assert (
        "ai-kmeans has no option --landmarks"
        in run(*command, "--method", "ai-kmeans", "--landmarks", "3")[2]
    )
    assert "invalid choice 'pssc'" in run(*command, "--method", "pssc")[2]
    assert not Path("out").exists()


def test_align_refuses_a_folder_of_something_else(run: Run) -> None:
    def refused(out: str) -> str:
        status, _, error = run("align", "pictures", "--out", out, "--overwrite")
        assert status == 2
        return error

    assert "give another --out" in refused("pictures")
    # With a run of one's own among them they are pictures still.
    Path("pictures/run").mkdir()
    assert "give another --out" in refused("pictures")
    # One of its own, and what is read lies in it.
    Path("own").mkdir()
    Path("pictures").rename("own/pictures")
    Path("pictures").symlink_to("own/pictures")
    Path("own/export.json").write_text('{"what": "align", "run": "own/run"}')
    assert "'own' holds 'pictures', which is read" in refused("own")
    assert len(list(Path("own/pictures").glob("*.png"))) == 8
