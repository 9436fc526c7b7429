"""Every table's command takes data of one's own, in every form that `diffclust.data.load` reads."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from scipy.io import wavfile

from diffclust import KMeans
from diffclust.metrics import scores
from experiments import dti, harness
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
    [(_, data, k)] = harness.datasets(args, lambda name: pytest.fail(name), ["mnist"])
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
    args.source = str(tmp_path / "none.npz")
    with pytest.raises(SystemExit, match="^2$"):
        harness.loaded(args, "all", None)
    assert capsys.readouterr().err.startswith("error: ")


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
