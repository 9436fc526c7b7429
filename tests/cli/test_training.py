"""Commands that train by gradient steps: they save their state as they go, and go on from it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from diffclust import load
from diffclust.data import load as load_images
from diffclust.progress_bar import ProgressBar
from diffclust.solvers import Progress
from tests.cli.commands import Run, entries, runner

ROOT = Path(__file__).parents[2]
TINY = ["-k", "2", "--method", "dti-kmeans", "--transforms", "", "--batch-size", "8"]


def stripes(count: int, channels: int = 1) -> np.ndarray:
    random = np.random.default_rng(0)
    images = random.integers(0, 40, (count, 8, 9, channels), dtype=np.uint8)
    for i in range(count):
        if i % 2:
            images[i, 2 + i % 3] += 200
        else:
            images[i, :, 3 + i % 3] += 200
    return images


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder that has some images; gives status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", x=stripes(16)[..., 0], y=np.arange(16) % 2)
    np.savez("colour.npz", x=stripes(12, 3))
    command = runner(capsys)

    def call(*arguments: str) -> tuple[int, str, str]:
        status, out, err = command(*arguments)
        # Without a terminal a line tells of each phase that is done.
        message = [line for line in err.splitlines(keepends=True) if " done, step " not in line]
        return status, out, "".join(message)

    return call


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("dti-gmm", marks=pytest.mark.slow),
        pytest.param("gmm", marks=pytest.mark.slow),
        "dti-kmeans",
        pytest.param("ti-kmeans", marks=pytest.mark.slow),
    ],
)
def test_every_method_writes_a_run_that_predicts(run: Run, method: str) -> None:
    # Moves are in the other tests.
    steps = "20,10" if method == "gmm" else "10,10,5"
    options = ["--method", method, "-k", "2", "--steps", steps, "--batch-size", "8"]
    if method != "gmm":
        options += ["--transforms", "aff"]
    else:
        options += ["--no-split-merge"]
    status, out, err = run("fit", "images.npz", *options, "--out", "run")
    assert (status, err) == (0, "")
    assert "accuracy" in out
    assert entries() == ["colour.npz", "images.npz", "run"]
    summary = json.loads(Path("run/summary.json").read_text("utf-8"))
    assert summary["method"] == method
    assert summary["settings"]["batch_size"] == 8
    status, _, err = run("predict", "run", "images.npz", "--out", "again")
    assert (status, err) == (0, "")
    first, second = (Path(f, "assignments.csv").read_text("utf-8") for f in ("run", "again"))
    assert [line.split(",")[2] for line in first.splitlines()] == [
        line.split(",")[2] for line in second.splitlines()
    ]
    # Of fewer images than a batch has, too.
    assert run("predict", "run", "images.npz", "--limit", "5", "--out", "few")[0] == 0
    shutil.rmtree("few")
    status, _, err = run("export", "run", "--what", "aligned", "--out", "aligned.npz")
    if method == "gmm":
        assert (status, "moves nothing" in err) == (2, True)
        return
    assert (status, err) == (0, "")
    result, found = load("run"), load_images("aligned.npz")
    expected = result.align(load_images("images.npz").images, result.outcome.assignment.params)
    np.testing.assert_allclose(found.images, expected, atol=1e-5)
    np.testing.assert_array_equal(found.labels, np.arange(16) % 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["colour.npz", "--transforms", "aff-morpho"], "no rule for images of 3 channels"),
        (["images.npz", "--transforms", "tps", "--landmarks", "12"], "landmarks"),
        (["images.npz", "--batch-size", "17"], "batch_size must be at most the number of images"),
        (["images.npz", "--steps", "10,10"], "steps must be 5 numbers"),
        (["images.npz", "--transforms", "warp"], "names joined by hyphens"),
        (["images.npz", "--checkpoint-every", "-1"], "--checkpoint-every"),
        (["images.npz", "--learning-rate", "0"], "learning_rate must be positive"),
    ],
)
def test_bad_input_is_one_line(run: Run, options: list[str], message: str) -> None:
    status, out, err = run("fit", *options, "-k", "2", "--method", "dti-kmeans", "--out", "run")
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert entries() == ["colour.npz", "images.npz"]


def test_resume_where_there_is_nothing_or_all(run: Run) -> None:
    steps = ["--steps", "10,5", "--no-report"]
    status, _, err = run("fit", "images.npz", *TINY, *steps, "--out", "run", "--resume")
    assert (status, err) == (0, "")
    before = Path("run/summary.json").read_bytes()
    status, out, err = run("fit", "images.npz", *TINY, *steps, "--out", "run", "--resume")
    assert (status, err) == (0, "")
    assert "finished run" in out
    assert Path("run/summary.json").read_bytes() == before


def test_interrupted_fits_say_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    show, seen = ProgressBar.__call__, []

    def interrupt(self: ProgressBar, progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == stop:
            raise KeyboardInterrupt
        show(self, progress)

    monkeypatch.setattr(ProgressBar, "__call__", interrupt)
    options = ["images.npz", *TINY, "--steps", "60,60", "--no-report", "--out", "run"]
    stop = 1
    status, out, err = run("fit", *options, "--checkpoint-every", "0")
    assert (status, out, err) == (130, "", "error: interrupted; nothing was written\n")
    assert entries() == ["colour.npz", "images.npz"]
    seen, stop = [], 3
    status, out, err = run("fit", *options, "--checkpoint-every", "0")
    assert (status, out) == (130, "")
    assert err == "error: interrupted; go on with the same command and --resume\n"
    assert entries() == ["colour.npz", "images.npz", "run.partial"]
    seen, stop = [], 100
    status, _, err = run("fit", *options, "--resume")
    assert status == 0
    assert err.startswith("going on from snapshot ")
    assert err.count("\n") == 1
    assert min(p.done for p in seen if p.stage == "step") > 60
    assert entries() == ["colour.npz", "images.npz", "run"]


def test_broken_off_fits_are_replaced_on_request(run: Run) -> None:
    Path("run.partial", "states", "1").mkdir(parents=True)
    Path(".run.01234567.tmp").mkdir()
    options = ["images.npz", *TINY, "--steps", "10,5", "--no-report", "--out", "run"]
    status, _, err = run("fit", *options)
    assert status == 2
    assert "--resume, or replace it with --overwrite" in err
    status, _, err = run("fit", *options, "--overwrite")
    assert (status, err) == (0, "")
    assert entries() == ["colour.npz", "images.npz", "run"]


def test_a_fit_that_was_killed_while_it_read_is_begun_anew(run: Run) -> None:
    Path("run.partial").mkdir()
    Path("run.partial", "lock").touch()
    given = ("fit", "images.npz", "-k", "2", "--method", "kmeans", "--restarts", "1")
    assert run(*given, "--no-report", "--out", "run")[::2] == (0, "")
    assert "run.partial" not in entries()


def test_another_run_is_replaced_though_it_is_finished(run: Run) -> None:
    given = ("fit", "images.npz", "--method", "kmeans", "--restarts", "1", "--out", "run")
    assert run(*given, "-k", "2")[0] == 0
    status, out, err = run(*given, "-k", "3", "--overwrite", "--resume")
    assert (status, "finished run" in out, err) == (0, False, "")
    assert json.loads(Path("run/summary.json").read_text())["k"] == 3
    status, out, _ = run(*given, "-k", "3", "--overwrite", "--resume")
    assert (status, "finished run" in out) == (0, True)


def test_a_set_is_not_the_folder_of_its_name(run: Run) -> None:
    given = ("fit", "digits", "--limit=20", "-k=2", "--method=kmeans", "--restarts=1")
    for more in ((), ("--overwrite",)):
        status, _, err = run(*given, "--out", "digits", *more)
        assert (status, err) == (0, "")
