"""The commands, from arguments to files."""

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import diffclust
from diffclust._signals import signals_deferred
from diffclust.alignment import NoAlignment
from diffclust.cli.entry import condense, interruptions
from diffclust.cli.options import method_options, parse_grid
from diffclust.cli.runs import write_assignments
from diffclust.cli.summary import print_summary
from diffclust.data import Dataset, load
from diffclust.models import MODELS
from diffclust.progress_bar import ProgressBar
from diffclust.report import text as report_text
from diffclust.solvers import Assignment, Progress
from tests.cli.commands import RUN_FILES, Run, entries, runner, squares
from tests.models.cuts import quick_aligner

ROOT = Path(__file__).parents[2]
QUICK = ["--method", "kmeans", "-k", "2", "--restarts", "1", "--max-passes", "2"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder that has some images; gives status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", x=squares(12), y=np.arange(12) % 2)
    return runner(capsys)


def summary(folder: str) -> dict:
    return json.loads(Path(folder, "summary.json").read_text("utf-8"))


def rows(folder: str) -> list[dict[str, str]]:
    with Path(folder, "assignments.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_that_alignment_did_nothing_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(MODELS["ai-kmeans"], "aligner", lambda _: NoAlignment())
    options = ["-k", "2", "--method", "ai-kmeans", "--restarts", "1", "--max-passes", "2"]
    status, out, _ = run("fit", "images.npz", *options, "--out", "run")
    assert (status, summary("run")["gain"]) == (0, 0.0)
    for said in (out, Path("run/report.html").read_text("utf-8")):
        assert "took away 0% of their distances. That is next to nothing:" in " ".join(said.split())


def test_fit_writes_a_run(run: Run) -> None:
    status, out, err = run("fit", "images.npz", *QUICK, "--out", "deep/run")
    assert (status, err) == (0, "")
    assert str(Path("deep/run/report.html")) in out
    assert entries("deep") == ["run"]
    assert entries("deep/run") == RUN_FILES
    result = summary("deep/run")
    assert {"acc", "nmi", "ari", "loss", "iterations", "status", "peak_memory_mb"} <= set(result)
    assert (result["method"], result["n"], result["k"], result["seed"]) == ("kmeans", 12, 2, 0)
    assert result["settings"]["max_passes"] == 2
    assert result["source"]["source"] == "images.npz"
    assert set(result["versions"]) == {"diffclust", "jax", "python"}
    assert 10 < result["peak_memory_mb"] < 100_000
    assert len(result["restarts"]) == 1
    assert result["seconds"] > 0


def test_table_and_model_say_the_same(run: Run) -> None:
    assert run("fit", "images.npz", *QUICK, "--out", "run")[0] == 0
    result = diffclust.load("run/model")
    table = rows("run")
    assert [int(row["index"]) for row in table] == list(range(12))
    assert [row["path"] for row in table] == [""] * 12
    np.testing.assert_array_equal([int(row["cluster"]) for row in table], result.assignments)
    # The digits in the table give the very same floats back.
    distances = np.array([row["distance"] for row in table], np.float32)
    np.testing.assert_array_equal(distances, result.distances)
    margins = np.array([row["margin"] for row in table], np.float32)
    np.testing.assert_array_equal(margins, result.margins)


def test_a_seed_gives_the_same_run(run: Run) -> None:
    for out in ("one", "two"):
        assert run("fit", "images.npz", *QUICK, "--seed", "3", "--out", out)[0] == 0
    assert rows("one") == rows("two")
    assert summary("one")["loss"] == summary("two")["loss"]


def test_index_is_that_of_the_source(run: Run) -> None:
    assert run("fit", "images.npz", *QUICK, "--limit", "5", "--out", "run")[0] == 0
    indices = [int(row["index"]) for row in rows("run")]
    assert len(indices) == 5
    assert indices != list(range(5))
    assert indices == sorted(set(indices))


def test_a_fit_never_sees_labels(run: Run) -> None:
    np.savez("unlabelled.npz", x=squares(12))
    for source, out in (("images.npz", "one"), ("unlabelled.npz", "two")):
        assert run("fit", source, *QUICK, "--out", out)[0] == 0
    assert rows("one") == rows("two")
    assert not {"acc", "nmi", "ari"} & set(summary("two"))


def test_folder_with_odd_names(run: Run) -> None:
    for number, pixels in enumerate(squares(6)):
        path = Path("photos", f'a,"{number}"\n.png')
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(pixels).save(path)
    assert run("fit", "photos", *QUICK, "--out", "run")[0] == 0
    assert [row["path"] for row in rows("run")] == sorted(map(str, Path("photos").iterdir()))


def test_names_that_are_no_unicode_come_out_as_they_are(tmp_path: Path) -> None:
    odd = os.fsdecode(b"caf\xe9.png")
    dataset = Dataset(np.zeros((1, 2, 2, 1), np.float32), paths=(odd,))
    zero, whole = np.zeros(1, np.float32), np.zeros(1, np.int32)
    result = Assignment(whole, zero, zero + np.inf, whole, np.zeros((1, 0), np.float32))
    write_assignments(tmp_path, dataset, result)
    assert b"0,caf\xe9.png,0,0.0,inf" in (tmp_path / "assignments.csv").read_bytes()


def test_skipped_files_are_named_and_counted(run: Run) -> None:
    Path("photos").mkdir()
    for number, pixels in enumerate(squares(4)):
        Image.fromarray(pixels).save(Path("photos", f"{number}.png"))
    Path("photos", "2.png").write_bytes(b"no picture")
    status, _, err = run("fit", "photos", *QUICK, "--skip-bad", "--out", "run")
    assert status == 0
    assert err == f"skipped 1 unreadable or blank: {str(Path('photos', '2.png'))!r}\n"
    assert summary("run")["source"]["skipped"] == [str(Path("photos", "2.png"))]
    assert [row["index"] for row in rows("run")] == ["0", "1", "3"]


def test_what_was_written_is_not_read_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS["ai-kmeans"], "aligner", quick_aligner)
    Path("photos").mkdir()
    for number, pixels in enumerate(squares(6)):
        Image.fromarray(pixels).save(f"photos/{number}.png")
    fit = ("fit", "photos", *QUICK, "--no-report", "--out")
    assert run(*fit, "photos/run")[0] == 0
    assert run("export", "photos/run", "--what", "folders", "--out", "photos/sorted")[0] == 0
    quick = ("--method", "ai-kmeans", "--out", "photos/aligned")
    assert run("align", "photos", *quick)[0] == 0
    assert run(*fit, "photos/again")[0] == 0
    assert summary("photos/again")["n"] == 6


def test_a_folder_may_change_while_it_is_clustered(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("photos").mkdir()
    for number, pixels in enumerate(squares(6)):
        Image.fromarray(np.kron(pixels, np.ones((20, 20), np.uint8))).save(f"photos/{number}.png")

    def read(*arguments: Any, **options: Any) -> Dataset:
        dataset = load(*arguments, **options)
        Path("photos/0.png").unlink()
        Path("photos/1.png").write_bytes(b"no picture")
        Image.new("L", (8, 8)).save("photos/9.png")
        return dataset

    monkeypatch.setattr("diffclust.cli.samples.load", read)
    fit = ("fit", "photos", *QUICK, "--size", "8", "--out", "run")
    status, _, err = run(*fit)
    assert status == 0, err
    assert [Path(row["path"]).name for row in rows("run")] == [f"{n}.png" for n in range(6)]
    assert "6 images" in Path("run/report.html").read_text("utf-8").replace("\u00a0", " ")
    # Only what is still there is shown as it is; what asks for other files is told of them.
    originals = {path.name for path in Path("run/report_files").iterdir()}
    assert {"2.png", "5.png"} <= originals
    assert not {"0.png", "1.png", "9.png"} & originals
    status, _, err = run("export", "run", "--what", "folders", "--out", "sorted")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "photos" in err
    assert not Path("sorted").exists()


def test_blank_images_are_named_and_left_out_on_request(run: Run) -> None:
    images = squares(8)
    images[3], images[5] = 0, 255
    np.save("blank.npy", images)
    fit = ("fit", "blank.npy", *QUICK, "--no-report", "--out")
    status, _, err = run(*fit, "all")
    assert (status, summary("all")["n"]) == (0, 8)
    assert "2 of 8 images are blank (of a single colour), at index 3, 5;" in err
    status, _, err = run(*fit, "some", "--skip-bad")
    assert (status, summary("some")["n"]) == (0, 6)
    assert [row["index"] for row in rows("some")] == ["0", "1", "2", "4", "6", "7"]
    assert "skipped 2" in err
    assert run("predict", "some", "blank.npy", "--out", "new", "--skip-bad", "--no-report")[0] == 0
    assert summary("new")["source"]["skipped"] == ["image 3", "image 5"]
    # What a mask hides is not there.
    images[4], images[4, :, :4] = 0, np.arange(4)
    np.save("blank.npy", images)
    hidden = np.ones(images.shape[1:3])
    hidden[:, :4] = 0
    np.save("mask.npy", hidden)
    assert run(*fit, "few", "--skip-bad", "--mask", "mask.npy")[0] == 0
    assert [row["index"] for row in rows("few")] == ["0", "1", "2", "6", "7"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C is not ignored, as it is in a process that was started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_that_a_destructor_swallows_comes_again() -> None:
    class Dies:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def swallow() -> None:
        with interruptions():
            Dies()
            # One long sleep would not be woken.
            for _ in range(500):
                time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        swallow()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_waits_for_the_import_of_jax(number: signal.Signals) -> None:
    passed = []

    def import_and_go_on() -> None:
        with interruptions():
            with signals_deferred():
                signal.raise_signal(number)
                passed.append("imported")
            passed.append("ran")

    with pytest.raises(KeyboardInterrupt):
        import_and_go_on()
    assert passed == ["imported"]


@pytest.mark.parametrize(
    ("number", "status"), [("SIGINT", 130), pytest.param("SIGTERM", 143, marks=pytest.mark.slow)]
)
def test_an_interruption_ends_the_process_while_programs_compile(number: str, status: int) -> None:
    """XLA's threads, which nothing interrupts, crashed about half of such processes."""
    script = f"""
import signal, sys, threading, time, jax
from diffclust.cli import entry
def long(x):
    for step in range(3000):
        x = jax.numpy.sort(x + step)
    return x
def command(options):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lowered = jax.jit(long).lower(jax.numpy.ones(99))
    threading.Thread(target=lowered.compile).start()
    time.sleep(0.5)
    signal.raise_signal(signal.{number})
entry._command = lambda options: command
sys.argv = ["diffclust", "fit", "x.npy", "-k", "2", "--out", "run"]
print("written")
sys.exit(entry.main())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (status, "written\n")
    assert done.stderr.startswith("error: ")


@pytest.mark.slow
def test_options_reach_the_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS["di-kmeans"], "aligner", quick_aligner)
    status, _, err = run(
        *("fit", "images.npz", "-k", "2", "--out", "run", "--no-report", "--size", "10x9"),
        *(
            "--method",
            "di-kmeans",
            "--restarts",
            "1",
            "--max-passes",
            "1",
            "--no-split-merge",
            "--landmarks",
            "2x3",
        ),
        *("--bending-penalty", "0.5", "--boundary", "edge", "--channels", "1"),
    )
    assert (status, err) == (0, "")
    result = diffclust.load("run/model")
    assert result.sample_shape == (10, 9, 1)
    assert result.model == MODELS["di-kmeans"](
        2,
        landmarks=(2, 3),
        num_restarts=1,
        max_passes=1,
        split_merge=False,
        bending_penalty=0.5,
        boundary="edge",
    )
    assert "report.html" not in entries("run")


CUT = ["-k", "2", "--dimensions", "6", "--angles", "2", "--restarts", "1"]


@pytest.mark.slow
def test_lists_of_options_reach_the_model(run: Run) -> None:
    status, _, err = run(
        *("fit", "images.npz", *CUT, "--method", "pssc", "--out", "run", "--no-report"),
        *("--neighbours", "3,4", "--removed", "0,1", "--affinity", "graph"),
        *("--normalisation", "none", "--scales", "2", "--register", "none"),
    )
    assert (status, err) == (0, "")
    given = {
        "num_dimensions": 6,
        "num_angles": 2,
        "register": "none",
        "num_restarts": 1,
        "num_neighbours": (3, 4),
        "num_removed": (0, 1),
        "affinity": "graph",
        "normalisation": "none",
        "num_scales": 2,
    }
    assert given.items() <= diffclust.load("run/model").model.settings().items()


@pytest.mark.slow
def test_a_cut_is_told_and_its_bridges_are_those_of_the_fit(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = [*CUT, "--method", "pssc", "--neighbours", "4", "--removed", "0,1"]
    status, out, err = run("fit", "images.npz", *options, "--out", "run")
    assert (status, err) == (0, "")
    result = summary("run")
    assert f"normalised cut {result['loss']:.6g}, " in out
    assert (result["status"], result["iterations"]) == ("solved", 1)
    assert result["eigengap"] > 0
    assert f"stability {result['stability']:.2f}" in out
    # What movement and the graph added, on the terminal and in the report.
    moved = "between these clusters and those of plain K-means is "
    moved += f"{result['raw_kmeans_ari']:.2f} ("
    assert moved in out
    assert moved in Path("run/report.html").read_text("utf-8")
    again = diffclust.load("run"), load("images.npz")
    for stability, hint in ((0.79, ". These clusters are uncertain: slightly"), (0.8, "\n")):
        print_summary("run", *again, {**result, "stability": stability})
        assert f"stability {stability:.2f}{hint}" in capsys.readouterr().out
    bridges = diffclust.load("run").outcome.extras["bridges"]
    assert len(bridges)
    page = Path("run/report.html").read_text("utf-8")
    assert '<section id="bridges">' in page
    assert ("These clusters are uncertain" in page) == (result["stability"] < 0.8)
    # Fewer images than the bridges' positions reach: they would name others, or none.
    np.save("more.npy", squares(int(bridges.max())))
    status, out, err = run("predict", "run", "more.npy", "--out", "one")
    assert (status, err) == (0, "")
    assert "summed distance" in out
    assert "stability" not in out
    assert '<section id="bridges">' not in Path("one/report.html").read_text("utf-8")


@pytest.mark.parametrize("name", ["neighbours", "removed"])
@pytest.mark.parametrize("text", ["", "5,", ",5", "5;8", "5, 8", "-1", "1.5", "five", "9999999"])
def test_lists_that_are_none_are_refused_in_one_line(run: Run, name: str, text: str) -> None:
    before = entries(".")
    status, out, err = run(
        *("fit", "images.npz", "-k", "2", "--method", "pssc", "--out", "run", f"--{name}={text}")
    )
    assert (status, out) == (2, "")
    assert err == f"error: --{name} must be like 5 or 5,8, not {text!r}\n"
    assert entries(".") == before


def test_one_number_where_a_method_takes_no_list(run: Run) -> None:
    method = ("--method", "scattering-kmeans", "--out", "run")
    status, _, err = run("fit", "images.npz", "-k", "2", *method, "--removed", "1,2")
    assert status == 2
    assert err.startswith("error: --removed must be one number for scattering-kmeans")
    assert err.count("\n") == 1


def test_options_of_other_methods_are_refused(run: Run) -> None:
    for method, written in (("di-spectral", "--affinity=graph"), ("pssc", "--direction=min")):
        status, _, err = run(
            "fit", "images.npz", "-k", "2", "--method", method, "--out", "run", written
        )
        option = written.partition("=")[0]
        refused, _, own = err.removesuffix("\n").partition(", or take of its own: ")
        assert (status, refused) == (2, f"error: {method} has no option {option}; leave it out")
        assert own.split(", ") == [*method_options()[method]]


def test_predict_assigns_new_images_of_another_size(run: Run) -> None:
    assert run("fit", "images.npz", *QUICK, "--out", "run")[0] == 0
    np.save("more.npy", np.kron(squares(5), np.ones((1, 2, 2), np.uint8)))
    for model, out in (("run", "one"), ("run/model", "two")):
        status, _, err = run("predict", model, "more.npy", "--out", out)
        assert (status, err) == (0, "")
    assert rows("one") == rows("two")
    assert entries("one") == [name for name in RUN_FILES if name != "model"]
    result = summary("one")
    assert (result["n"], result["status"], result["command"]) == (5, "predicted", "predict")
    distances = [float(row["distance"]) for row in rows("one")]
    assert result["loss"] == pytest.approx(sum(distances), rel=1e-6)


def test_padded_pictures_are_read_alike_by_predict_and_export(
    run: Run,
) -> None:
    generator, folder = np.random.default_rng(0), Path("pictures")
    folder.mkdir()
    for number in range(6):
        pixels = generator.integers(1, 255, (8, 8 + 4 * (number % 2)), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    status, _, err = run("fit", "pictures", *QUICK, "--out", "run")
    assert status == 2
    assert "--size and --pad (size=PaddedSize(...)) to show all of them whole" in err
    assert run("fit", "pictures", *QUICK, "--pad", "--out", "run")[::2] == (
        2,
        "error: --pad brings pictures to a --size; give one, such as --size 64\n",
    )
    assert run("fit", "pictures", *QUICK, "--size", "12", "--pad", "--out", "run")[0] == 0
    assert run("fit", "pictures", *QUICK, "--size", "12", "--out", "cropped")[0] == 0
    assert run("predict", "run", "pictures", "--out", "new")[::2] == (0, "")
    assert run("predict", "run/model", "pictures", "--out", "by-model")[::2] == (0, "")
    names = ("run", "new", "by-model")
    fitted, *new = [[float(row["distance"]) for row in rows(name)] for name in names]
    np.testing.assert_allclose(new, [fitted] * 2, rtol=1e-5)
    assert summary("run")["source"]["pad"] is summary("new")["source"]["pad"] is True
    assert summary("cropped")["loss"] != summary("run")["loss"]
    assert run("export", "run", "--what", "folders", "--out", "sorted")[0] == 0


def test_a_prediction_has_figures_of_its_own_and_says_what_belongs_to_no_cluster(run: Run) -> None:
    np.save("many.npy", squares(60))
    assert run("fit", "many.npy", *QUICK, "--out", "run")[0] == 0
    strangers = squares(10)
    strangers[4:] = 255 - strangers[4:]
    np.save("more.npy", strangers)
    status, out, _ = run("predict", "run", "more.npy", "--out", "new")
    assert status == 0
    # 30 in each were fitted, so that those are far that are farther than all of them.
    assert "6 of 10 images are farther from their cluster than 97% of those" in out
    assert summary("new")["far"] == 6
    assert [float(row["p_value"]) <= 0.05 for row in rows("new")] == [False] * 4 + [True] * 6
    fitted, page = (Path(name, "report.html").read_text("utf-8") for name in ("run", "new"))
    # Not the passes, the curve, the restarts or the reasons of the fit.
    for words in ("<dt>passes</dt>", "after each pass", "Stopped because"):
        assert words in fitted
        assert words not in page
    assert f"<dt>summed distance</dt><dd>{report_text.number(summary('new')['loss'])}</dd>" in page
    assert "<dt>far from their cluster</dt><dd>6 (60.0" in page
    one = squares(1)
    np.save("one.npy", one)
    assert run("predict", "run", "one.npy", "--out", "alone")[0] == 0
    assert "clusters is empty" not in Path("alone/report.html").read_text("utf-8")
    assert run("compare", "run", "new")[0] == 0
    assert run("predict", "run", "many.npy", "--out", "same")[0] == 0
    assert summary("same")["far"] <= 4


def test_a_single_picture_is_predicted(run: Run) -> None:
    Path("pictures").mkdir()
    for number, image in enumerate(squares(12)):
        Image.fromarray(image).save(f"pictures/{number:02}.png")
    assert run("fit", "pictures", *QUICK, "--out", "run")[0] == 0
    assert run("predict", "run", "pictures/03.png", "--out", "one")[0] == 0
    (one,), fitted = rows("one"), rows("run")[3]
    assert (one["path"], one["cluster"]) == ("pictures/03.png", fitted["cluster"])
    # It is not a set that can be clustered.
    assert run("fit", "pictures/03.png", *QUICK, "--out", "other")[0] == 2


def test_predicting_what_was_fitted_gives_the_fit(run: Run) -> None:
    assert run("fit", "images.npz", *QUICK, "--out", "run")[0] == 0
    assert run("predict", "run", "images.npz", "--out", "again")[0] == 0
    again = rows("again")
    # All are as far as themselves.
    assert all(float(row.pop("p_value")) > 1 / 13 for row in again)
    assert again == rows("run")


def test_overwrite_replaces_a_run(run: Run) -> None:
    assert run("fit", "images.npz", *QUICK, "--out", "run")[0] == 0
    Path("run", "left-over").touch()
    status, _, err = run("fit", "images.npz", *QUICK, "--seed", "7", "--overwrite", "--out", "run")
    assert (status, err) == (0, "")
    assert summary("run")["seed"] == 7
    assert entries("run") == RUN_FILES


@pytest.mark.slow
def test_demo_replaces_only_a_demo(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(source: str, **options: object) -> Dataset:
        return diffclust.data.load(source, limit=20)

    monkeypatch.setattr("diffclust.cli.samples.load", few)
    monkeypatch.setitem(MODELS, "di-kmeans", MODELS["kmeans"])
    for _ in range(2):
        status, out, err = run("demo")
        assert (status, err.count("\n")) == (0, err.count("restart"))
        assert "diffclust-demo" in out
        assert "accuracy" in out
    assert summary("diffclust-demo")["command"] == "demo"
    assert run("fit", "images.npz", *QUICK, "--out", "run")[0] == 0
    before = entries("run")
    status, _, err = run("demo", "--out", "run")
    assert status == 2
    assert "run of 'diffclust demo'" in err
    assert entries("run") == before


def test_interruption_leaves_nothing_but_what_was_fitted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    before = entries(".")
    command = ("fit", "images.npz", *QUICK, "--out", "deep/run")
    with monkeypatch.context() as patched:
        patched.setattr("diffclust.cli.samples.load", interrupt)
        result = run(*command)
    assert result == (130, "", "error: interrupted; nothing was written\n")
    assert entries(".") == before
    with monkeypatch.context() as patched:
        patched.setattr("diffclust.cli.runs.write_summary", interrupt)
        result = run(*command)
    # What was fitted is kept, and no run is there.
    message = "error: interrupted; go on with the same command and --resume\n"
    assert (result[0], result[1], result[2][-len(message) :]) == (130, "", message)
    assert entries("deep") == ["run.partial"]
    assert run(*command, "--resume")[0] == 0
    assert entries("deep") == ["run"]


def test_a_fault_of_our_own_is_not_called_bad_input(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise TypeError("ours")

    monkeypatch.setattr("diffclust.cli.runs.write_summary", fail)
    with pytest.raises(TypeError, match="ours"):
        run("fit", "images.npz", *QUICK, "--out", "run")
    # What was fitted is there to go on with when it is mended.
    assert entries(".") == ["images.npz", "run.partial"]


def test_help_is_lean() -> None:
    code = (
        "import sys\nfrom diffclust.cli import main\n"
        "try:\n    main(['fit', '--method', 'di-kmeans', '--help'])\n"
        "except SystemExit as done:\n    assert not done.code\n"
        "slow = ['matplotlib', 'sklearn', 'orbax', 'PIL', 'scipy.stats', 'diffclust.report']\n"
        "print('pulled in:', [name for name in slow if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert "--landmarks" in out
    assert out.splitlines()[-1] == "pulled in: []"


@pytest.mark.parametrize(
    "given", [None, *(pytest.param(g, marks=pytest.mark.slow) for g in ("xdg", "own"))]
)
def test_compiled_programs_are_kept_in_the_users_cache(tmp_path: Path, given: str | None) -> None:
    code = (
        "import jax\nfrom diffclust.cli.entry import _use_compilation_cache\n"
        "before = jax.config.jax_compilation_cache_dir\n_use_compilation_cache()\n"
        "print(before, jax.config.jax_compilation_cache_dir)\n"
    )
    kept = ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    environment |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    expected = f"None {tmp_path / '.cache' / 'diffclust' / 'jax'}"
    if given == "xdg":
        environment["XDG_CACHE_HOME"] = str(tmp_path / "elsewhere")
        expected = f"None {tmp_path / 'elsewhere' / 'diffclust' / 'jax'}"
    elif given == "own":
        environment["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "own")
        expected = f"{tmp_path / 'own'} {tmp_path / 'own'}"
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == expected


def test_progress_without_a_terminal_is_a_line_a_restart(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressBar(3) as bar:
        for restart in range(3):
            least = None if restart == 0 else 10.0 / restart
            for stage in ("seeding", "pass", "split"):
                bar(Progress(stage, restart, 0, 1, 2, 5.0, least))
        bar(Progress("refine", 1, 0, 1, 2, 5.0, 4.0))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "restart 1 of 3 done, least loss so far 10",
        "restart 2 of 3 done, least loss so far 5",
        "restart 3 of 3 done, least loss so far 4",
        "now the best restart at full size (another loss)",
    ]


def test_progress_on_a_terminal_is_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    with ProgressBar(3) as bar:
        bar(Progress("pass", 1, 4, 1, 2, 5.0, 4.0))
        bar._bar.refresh()
    out, err = capsys.readouterr()
    assert out == ""
    assert "restart 2 of 3, pass 5, loss 5, least 4" in err


def windows(restart: int, least: float | None = None) -> list[Progress]:
    """What a fit tells of three phases of 100, 50 and 120 steps."""
    ends = [(0, 50), (1, 100), (2, 150), (2, 200), (2, 250), (3, 270)]
    return [
        Progress("step", restart, i, n, 270, 5.0 - i, least, sizes=(0.1, 0.9), samples=128 * n)
        for i, n in ends
    ]


def test_steps_without_a_terminal_are_a_line_a_phase(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        for progress in [*windows(0), Progress("predict", 0, 0, 1, 1)]:
            bar(progress)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "1 phase done, step 100 of 270, loss 4 an image, clusters 10 to 90 %",
        "2 phases done, step 150 of 270, loss 3 an image, clusters 10 to 90 %",
        "3 phases done, step 270 of 270, loss 2 an image, clusters 10 to 90 %",
    ]
    with ProgressBar(2) as bar:
        for progress in [*windows(0), *windows(1, 7.5), Progress("predict", 1, 0, 1, 1)]:
            bar(progress)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("restart 1 of 2, 1 phase done, step 100 of 270, ")
    assert lines[3] == "restart 1 of 2 done, least loss so far 7.5"
    assert lines[4].endswith(", least of a restart 7.5")
    assert len(lines) == 8


@pytest.mark.parametrize(("columns", "speed"), [("76", False), ("120", True)])
def test_steps_leave_room_for_the_bar(
    columns: str,
    speed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    clock = itertools.count(0, 100)
    watch = types.SimpleNamespace(monotonic=lambda: float(next(clock)))
    monkeypatch.setattr("diffclust.progress_bar.time", watch)
    with ProgressBar() as bar:
        for progress in windows(0)[:5]:
            bar(progress)
        bar._bar.refresh()
    err = capsys.readouterr().err
    # The last phase alone tells how fast it is: 50 steps in 100 s.
    assert "step 250 of 270, loss 3 an image, 0:40 left or more" in err
    assert (", 64 images/s, clusters 10 to 90 %" in err) == speed
    assert "…" not in err
    assert "━" in err


@pytest.mark.parametrize(
    ("text", "grid"), [("28", (28, 28)), ("28x32", (28, 32)), ("6X4", (6, 4)), ("6×4", (6, 4))]
)
def test_grid(text: str, grid: tuple[int, int]) -> None:
    assert parse_grid(text, "size", "28") == grid


@pytest.mark.parametrize("text", ["", "x", "3x", "-3", "3.5", "1x2x3", "٣", "99999999999"])
def test_no_grid(text: str) -> None:
    with pytest.raises(ValueError, match="--size must be like 28"):
        parse_grid(text, "size", "28")


def test_condense() -> None:
    box = (
        "╭─ Title ───────────────────────╮\n"
        "│ Missing from diffclust fit:   │\n"
        "│     -k K, --k K               │\n"
        "│         Number of clusters.   │\n"
        "│     --out DIR                 │\n"
        "│ ───────────────────────────── │\n"
        "│ For full helptext, run:       │\n"
        "│     diffclust fit --help      │\n"
        "╰───────────────────────────────╯\n"
    )
    assert condense(box) == "Missing from diffclust fit: -k K, --k K, --out DIR"
    assert condense("something\nelse") == "something else"
