"""Every table's command takes data of one's own, in every form that `diffclust.data.load` reads."""

import argparse
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import jax
import numpy as np
import pytest
import scipy.sparse
from PIL import Image
from scipy.io import wavfile

from diffclust import KMeans
from diffclust.data import DataError, Dataset, load
from diffclust.metrics import scores
from experiments import dti, harness
from experiments.default_method import few
from experiments.registration import balance, frames, local_search, neighbours, window
from experiments.registration import run as registration
from tests.data.test_idx import write
from tests.registry import blobs

ROOT = Path(__file__).parents[2]
TABLES = [
    "baselines.run",
    "benchmarks.pssc_mnist",
    "di_kmeans_selection.published",
    "di_kmeans_selection.run",
    "di_kmeans_table1.run",
    "di_spectral.run",
    "dti_ablation.run",
    "dti_selection.run",
    "dti_table1.run",
    "dti_table2.run",
    "pssc_geometry.run",
    "pssc_normalisation.run",
    "pssc_table3.baselines",
    "pssc_table3.run",
    "pssc_table5.grid",
    "pssc_table5.run",
    "registration.run",
]
PIXELS = (255 * np.clip(blobs(30, 14, 14)[..., 0], 0, 1)).astype(np.uint8)
KINDS = np.arange(30, dtype=np.uint8) % 3


def npz(folder: Path) -> str:
    np.savez(folder / "own.npz", x_train=PIXELS, y_train=KINDS, x_test=PIXELS, y_test=KINDS)
    return str(folder / "own.npz")


def idx(folder: Path) -> str:
    write(folder, "train-labels-idx1-ubyte", KINDS)
    return str(write(folder, "train-images-idx3-ubyte", PIXELS))


def pictures(folder: Path) -> str:
    for number, (pixels, kind) in enumerate(zip(PIXELS, KINDS, strict=True)):
        (folder / "own" / str(kind)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "own" / str(kind) / f"{number}.png")
    return str(folder / "own")


def prepared(folder: Path) -> str:
    pytest.importorskip("tensorflow_datasets")
    from tests.data.test_tfds import prepare

    prepare(folder, "tiny/own", splits={"train": list(PIXELS), "test": list(PIXELS)})
    return "tfds:tiny/own"


FORMS = {"npz": npz, "idx": idx, "folder": pictures, "tfds": prepared}


def test_recordings_are_fitted_and_others_scored(tmp_path: Path) -> None:
    times, draw = np.arange(4000) / 8000, np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 3)):
        for kind, pitch in enumerate((300, 900)):
            (place := tmp_path / split / str(kind)).mkdir(parents=True)
            for number in range(count):
                wave = np.sin(2 * np.pi * pitch * draw.uniform(0.9, 1.1) * times)
                wavfile.write(place / f"{number}.wav", 8000, (2e4 * wave).astype(np.int16))
    words = {"source": str(tmp_path), "split": "train", "size": None, "k": None, "pad": False}
    fitted, scored, k = harness.fitted_and_scored(
        argparse.Namespace(**words, score_split="test"), 20
    )
    row = dti.run(KMeans(k, split_merge=False), fitted, 0, "", scored=scored)
    assert (k, row["n"], row["n_scored"], row["acc"]) == (2, 12, 6, 1.0)


@pytest.mark.parametrize("form", FORMS)
def test_a_source_of_every_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    split = "train" if form in ("npz", "tfds") else "all"
    args = argparse.Namespace(
        source=FORMS[form](tmp_path), split=split, limit=None, size=None, pad=False, k=None
    )
    [(name, data, k)] = harness.datasets(args, lambda name: pytest.fail(name), ["mnist"])
    assert name == "/".join(args.source.split("/")[-2:])
    assert data.images.shape == (30, 14, 14, 1)
    assert k == len(np.unique(data.labels)) == 3
    args.k, args.size, args.limit, args.pad = 5, 7, 20, True
    [(_, data, k)] = harness.datasets(args, lambda name: pytest.fail(name), ["mnist"])
    assert (data.images.shape, k) == ((20, 7, 7, 1), 5)


def test_without_labels_nothing_is_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "own.npy", PIXELS)
    args = argparse.Namespace(source=str(tmp_path / "own.npy"), size=None, pad=False)
    with pytest.raises(SystemExit, match="^2$"):
        harness.loaded(args, "all", None)
    assert "has no labels to score by" in capsys.readouterr().err


def test_data_that_cannot_be_read_end_an_experiment_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(sys, "argv", ["run.py"])
    harness.arguments("An experiment.")
    with pytest.raises(DataError) as caught:
        load("none.npz")
    with pytest.raises(SystemExit, match="^2$"):
        sys.excepthook(caught.type, caught.value, caught.tb)
    assert capsys.readouterr().err == f"error: {caught.value}\n"


def unlabelled(folder: Path) -> str:
    """All images to fit, without labels, and a third of them with labels, to score."""
    kept = slice(None, None, 3)
    np.savez(folder / "part.npz", x_train=PIXELS, x_test=PIXELS[kept], y_test=np.arange(10) % 5)
    return str(folder / "part.npz")


def test_what_is_fitted_needs_no_labels_where_other_images_are_scored(tmp_path: Path) -> None:
    words = {"source": unlabelled(tmp_path), "split": "train", "size": None, "k": None}
    args = argparse.Namespace(**words, pad=False, score_split="test")
    fitted, scored, k = harness.fitted_and_scored(args, 20)
    assert (len(fitted), fitted.labels, len(scored), k) == (20, None, 10, 5)
    once = {"num_restarts": 1, "split_merge": False}
    row = dti.run(KMeans(k, **once), fitted, 0, "", every=0.0, scored=scored)
    result = KMeans(k, **once).fit(fitted.images, key=jax.random.key(0))
    clusters = result.predict(scored.images).clusters
    assert row["acc"] == scores(scored.labels, clusters)["acc"]
    assert (row["n"], row["n_scored"]) == (20, 10)
    args.score_split = None
    with pytest.raises(SystemExit, match="^2$"):
        harness.fitted_and_scored(args, 20)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["dti_table1", "di_kmeans_table1", "baselines"])
def test_labelled_and_unlabelled_images_are_fitted_and_the_labelled_scored(
    table: str, tmp_path: Path
) -> None:
    words = ["--quick", "--source", unlabelled(tmp_path), "--split", "train", "--k", "3"]
    words += ["--score-split", "test", "--results", str(tmp_path / "runs.jsonl")]
    command = [sys.executable, "-m", f"experiments.{table}.run", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert {row["n_scored"] for row in rows} == {10}


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_table_takes_one(table: str, tmp_path: Path) -> None:
    words = ["--quick", "--source", npz(tmp_path), "--split", "train"]
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{table}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    name = figures.get("experiment", figures.get("benchmark"))
    assert any(part in name for part in table.split("."))


def test_runs_of_a_file_are_those_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    rows = [{"seed": 0, "acc": 0.5}, {"seed": 0, "limit": 5, "acc": 0.1}, {"seed": 7, "acc": 0.2}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(seed: int, limit: int) -> dict[str, float]:
        assert (seed, limit) == (1, 1000), "the file has it"
        return {"acc": 0.9}

    # Earlier rows have no limit: it was 1,000.
    asked = [(0, 1000), (1, 1000)]
    for _ in range(2):
        found = harness.asked_runs(str(file), ("seed", "limit"), asked, run, {"limit": 1000})
        assert [row["acc"] for row in found] == [0.5, 0.9]
    assert len(harness.kept_runs(str(file))) == 4


def test_a_run_that_is_asked_for_or_kept_twice_counts_once(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "results.jsonl"

    def run(seed: int) -> dict[str, float]:
        assert file.parent.is_dir(), "a run of hours could not be kept"
        return {"acc": 0.5 + seed}

    asked = [(1,), (0,), (1,)]
    expected = [{"seed": 1, "acc": 1.5}, {"seed": 0, "acc": 0.5}]
    assert harness.asked_runs(str(file), ("seed",), asked, run) == expected
    assert harness.kept_runs(str(file)) == expected
    # As two processes that write to one file may leave it.
    file.write_text("".join(f'{{"seed": {seed}, "acc": 0.{seed}}}\n' for seed in (0, 1, 1)))
    assert [row["acc"] for row in harness.asked_runs(str(file), ("seed",), asked, run)] == [0.1, 0]


def test_a_line_that_is_cut_off_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results.jsonl").write_text('{"seed": 0}\n{"se')
    with pytest.raises(SystemExit, match="^2$"):
        harness.kept_runs(str(tmp_path / "results.jsonl"))
    assert "error: line 2 of" in capsys.readouterr().err


REFUSED = {
    "di_kmeans_table1.run --sets usps --k 8": "--k is for the data of --source",
    "dti_table1.run --score-split test": "--score-split is for the data of --source",
    "pssc_table5.run --split test": "--split is for the data of --source",
    "baselines.run --pad": "--pad is for the data of --source",
    "registration.run --size 20": "--size is for the data of --source",
    "dti_table1.run --as-published --starts 4": "--starts changes nothing of --as-published",
    "dti_table1.run --sets nothing": "invalid choice: 'nothing'",
    "dti_table2.run --methods pssc": "invalid choice: 'pssc'",
    "dti_selection.run --set nothing": "invalid choice: 'nothing'",
    "pssc_table3.baselines --sets nothing": "invalid choice: 'nothing'",
    "shape_kmeans_simulation.run --readings deviaton": "invalid choice: 'deviaton'",
}


@pytest.mark.parametrize("command", REFUSED)
def test_options_that_would_do_nothing_are_refused(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, *words = command.split()
    monkeypatch.setattr(sys, "argv", [module, *words])
    with pytest.raises(SystemExit, match="^2$"):
        importlib.import_module(f"experiments.{module}").main()
    assert REFUSED[command] in capsys.readouterr().err


def test_remedies_that_a_file_lacks_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def row_of(name: str, draw: int, method: str, remedies: list[str], quick: bool) -> dict:
        tried.append((draw, *remedies))
        return {"n": 1, "remedies": {remedy: {"acc": 0.1 * draw} for remedy in remedies}}

    monkeypatch.setattr(balance, "row_of", row_of)
    args = argparse.Namespace(results=str(tmp_path / "runs.jsonl"), quick=False)
    for args.remedies, draws in ((["a"], 1), (["a", "b"], 2), (["b"], 2)):
        rows = balance.rows_of(args, [("plain", draw, "pssc") for draw in range(draws)])
    assert tried == [(0, "a"), (0, "b"), (1, "a", "b")]
    means = balance.table(rows)
    assert means == {f"pssc | plain | {remedy}": {"acc": 0.05} for remedy in "ab"}


def test_a_cut_is_tried_without_the_graph_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = blobs(30, 8, 8), np.arange(30) % 3
    monkeypatch.setitem(balance.SETS, "plain", lambda draw, quick: (images, labels))
    graph = scipy.sparse.csr_array(1.0 * (labels[:, None] == labels) + 0.01)
    graphs = [("as it is", [graph])]
    monkeypatch.setattr(balance, "graphs_of", lambda *of: graphs if "as it is" in of[3] else [])
    row = balance.row_of("plain", 0, "pssc", ["degrees + 0.3"], True)
    assert row["remedies"]["degrees + 0.3"]["acc"] == 1.0
    assert list(row["remedies"]) == ["degrees + 0.3"]


def test_means_are_of_one_limit() -> None:
    row = {"set": "usps", "method": "kmeans", "register": "none", "loss": 1.0}
    rows = [{**row, "acc": 0.5, "limit": None}, {**row, "acc": 0.1, "limit": 100}]
    means = {place: each["acc"] for place, each in registration.table(rows).items()}
    assert means == {"usps | kmeans | none": 0.5, "usps | kmeans | none | limit 100": 0.1}


def run_main(module: ModuleType, words: str, results: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["", *words.split(), "--results", str(results)])
    module.main()
    return harness.kept_runs(str(results))


@pytest.mark.parametrize("module", [frames, local_search, neighbours])
def test_quick_rows_are_not_taken_for_whole_ones(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"acc": 1.0, "acc_before": 1.0, "acc_after": 1.0, "usual": 0, "found": 0}
    monkeypatch.setattr(module, "row_of", lambda *_: figures)
    sets = getattr(module, "SETS", frames.SETS)
    monkeypatch.setitem(sets, "letters, 1,000", sets["letters, 1,000"])
    assert run_main(module, "--quick", tmp_path / "runs.jsonl", monkeypatch) == []


def test_methods_and_phases_tell_runs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few, "row_of", lambda *_: {"0-0": 0.1})
    monkeypatch.setattr(few, "row_by_bending", lambda *_: {"0-0": 0.2})
    for method in ("pssc", "di-spectral"):
        words = f"--seeds 1 --sets usps --clusters 2 --method {method}"
        rows = run_main(few, words, tmp_path / "few.jsonl", monkeypatch)
    assert [row["0-0"] for row in rows] == [0.1, 0.2]
    figures = {"acc": 0.5, "nmi": 0.5, "loss": 1.0, "seconds": 1.0}
    monkeypatch.setattr(window, "run", lambda *_: figures)
    monkeypatch.setattr(window, "load", lambda *_, **__: few_digits())
    for steps in ("100 400 100", "200 200 200"):
        words = f"--seeds 1 --sets street --windows none --steps {steps}"
        rows = run_main(window, words, tmp_path / "window.jsonl", monkeypatch)
    assert [row["phases"] for row in rows] == ["100 400 100", "200 200 200"]


def few_digits() -> Dataset:
    return Dataset(blobs(6, 28, 28), np.arange(6) % 2, ("0", "1"), name="digits")
