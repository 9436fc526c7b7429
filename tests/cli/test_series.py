"""`diffclust fit series.npz --method series-kmeans`, and what follows it."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import diffclust
from diffclust.data import load_series
from diffclust.models import SeriesKMeans
from tests.cli.commands import RUN_FILES, Run, entries, few_warps, runner

FIT = ["-k", "2", "--method", "series-kmeans", "--restarts", "1", "--max-passes", "4"]
FIT += ["--no-split-merge"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SeriesKMeans, "aligner", few_warps)
    np.savez("series.npz", series=waves(), labels=np.arange(20) % 2)
    return runner(capsys)


def waves() -> np.ndarray:
    """One bump or two at warped times; some series end early."""
    rng = np.random.default_rng(0)
    times = np.linspace(0, 1, 24)[None] ** np.exp(rng.normal(0, 0.2, (20, 1)))
    both = [np.sin(np.pi * times[::2]), np.sin(2 * np.pi * times[1::2]) ** 2]
    series = np.stack(both, axis=1).reshape(20, 24) * rng.uniform(1, 9, (20, 1)) + 50.0
    series[3, 22:] = np.nan
    return series


def table(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_fit_predict_and_export(run: Run) -> None:
    status, out, _ = run("fit", "series.npz", *FIT, "--out", "run")
    assert status == 0
    assert "20 series in 2 clusters" in out
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["acc"] == 1.0
    assert summary["source"]["sample_shape"] == [24, 1]
    assert entries("run") == RUN_FILES

    # Shorter ones end with missing values.
    np.savez("others.npz", series=waves()[:7, :23])
    assert run("predict", "run", "others.npz", "--out", "new")[0] == 0
    clusters = [row["cluster"] for row in table("run/assignments.csv")]
    assert [row["cluster"] for row in table("new/assignments.csv")] == clusters[:7]
    assert "7 series in 2 clusters" in Path("new/report.html").read_text().replace("\u00a0", " ")

    status, out, _ = run("export", "run", "--what", "aligned", "--out", "a.npz")
    assert "20 series, aligned" in out
    aligned = np.load("a.npz")["aligned"]
    assert aligned.shape == (20, 24, 1)
    assert np.isnan(aligned[3]).any()
    assert not np.isnan(np.delete(aligned, 3, axis=0)).any()
    assert run("export", "run", "--what", "params", "--out", "p.csv")[0] == 0
    assert len(table("p.csv")[0]) == 3 + diffclust.load("run").model.num_intervals
    assert run("export", "run", "--what", "prototypes", "--out", "p.npz")[0] == 0
    assert np.load("p.npz")["prototypes"].shape == (2, 24, 1)
    # Tables are of the form that fits read.
    for what, expected in (("aligned", aligned), ("prototypes", np.load("p.npz")["prototypes"])):
        assert run("export", "run", "--what", what, "--out", f"{what}.csv")[0] == 0
        np.testing.assert_array_equal(load_series(f"{what}.csv").series, expected)
    for what in ("aligned", "prototypes", "folders"):
        status, _, err = run("export", "run", "--what", what, "--out", "folder")
        assert (status, err.count("\n")) == (2, 1)
        assert "series are no" in err


@pytest.mark.slow
def test_constant_series_are_named(run: Run) -> None:
    series = waves()
    series[7, :] = 3.0
    np.savez("flat.npz", series=series)
    err = run("fit", "flat.npz", *FIT, "--max-passes", "1", "--no-report", "--out", "run")[2]
    assert "warning: 1 of 20 series are constant, at index 7;" in err


def test_a_graph_of_series(run: Run) -> None:
    fit = ("-k", "2", "--method", "di-spectral", "--intervals", "4", "--out", "run")
    status, _, err = run("fit", "series.npz", *fit)
    assert status == 2
    assert "series 3 has missing values, with which series-spectral cannot compare others" in err
    assert entries() == ["series.npz"]
    np.savez("series.npz", series=waves()[:, :22], labels=np.arange(20) % 2)
    status, out, err = run("fit", "series.npz", *fit)
    assert status == 0, err
    assert "series-spectral: 20 series in 2 clusters, normalised cut" in out
    assert json.loads(Path("run/summary.json").read_text())["acc"] == 1.0
    assert "Leading eigenvalues of the graph" in Path("run/report.html").read_text()
    np.savez("others.npz", series=waves()[:7, :22])
    assert run("predict", "run", "others.npz", "--out", "new")[0] == 0
    clusters = [row["cluster"] for row in table("run/assignments.csv")]
    assert [row["cluster"] for row in table("new/assignments.csv")] == clusters[:7]


@pytest.mark.slow
def test_a_sweep_of_graphs_of_series(run: Run) -> None:
    np.savez("series.npz", series=waves()[:, :22])
    sweep = ("sweep", "series.npz", "-k", "2-3", "--method", "series-spectral", "--no-warps")
    status, out, err = run(*sweep, "--out", "swept")
    assert status == 0, err
    assert "eigengap" in out


def test_tables_of_unequal_lengths(run: Run) -> None:
    rows = [",".join(map(str, row[: 24 - i % 3])) for i, row in enumerate(np.nan_to_num(waves()))]
    Path("series.csv").write_text("\n".join(rows))
    options = [*FIT, "--no-warps", "--no-standardise", "--no-report", "--limit", "15"]
    assert run("fit", "series.csv", *options, "--out", "run")[0] == 0
    result = diffclust.load("run")
    assert not result.outcome.assignment.params.any()
    assert len(result.assignments) == 15


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("series.npz", ["--size", "8"], "--size is for images, and these are series"),
        ("series.npz", ["--labels", "x"], "--labels is for a table of landmarks"),
        ("series.npz", ["--mask", "m.png"], "series-kmeans clusters series and takes no --mask"),
        ("series.npz", ["-k", "21"], "series is 20, too few for 21 clusters; give at most -k 20"),
        ("series.npz", ["--intervals", "1"], "num_intervals must be at least 2, not 1"),
        ("series.npz", ["--landmarks", "5"], "series-kmeans has no option --landmarks"),
        (
            "series.npz",
            ["--method", "kmeans"],
            "holds series, not images; series-kmeans clusters them",
        ),
        ("gone.npz", [], "'gone.npz' does not exist; give the path of a file of series"),
        ("images.npz", [], "has no key 'series'"),
        ("short.csv", [], "holds fewer than two values at index 1"),
        ("table.csv", [], "'table.csv' begins with a header ('shape', "),
    ],
)
def test_errors_are_one_line(run: Run, source: str, options: list[str], message: str) -> None:
    np.savez("images.npz", x=np.zeros((4, 8, 8)))
    Path("short.csv").write_text("1,2,3\n4\n")
    Path("table.csv").write_text("shape,landmark,x,y\n")
    known = [word for word in FIT if not (options[:1] == ["--method"] and word in FIT[4:])]
    before = entries()
    status, _, err = run("fit", source, *known, *options, "--out", "run")
    last = err.strip().splitlines()[-1]
    assert status == 2
    assert last.startswith("error: ")
    assert message in last.replace("--intervals", "num_intervals")
    assert entries() == before


def test_series_of_another_length_are_not_predicted(run: Run) -> None:
    assert run("fit", "series.npz", *FIT, "--no-warps", "--no-report", "--out", "run")[0] == 0
    np.savez("long.npz", series=np.random.default_rng(0).normal(size=(3, 30)))
    status, _, err = run("predict", "run", "long.npz", "--out", "new")
    assert status == 2
    assert "samples must have the fitted shape (24, 1), not (30, 1)" in err


@pytest.mark.parametrize(
    "given",
    [
        ("--representation", "srvf"),
        pytest.param(("--method", "di-kmeans", "--intervals", "3"), marks=pytest.mark.slow),
    ],
)
def test_the_method_follows_what_a_file_holds(run: Run, given: tuple[str, ...]) -> None:
    words = ("fit", "series.npz", "-k", "2", "--out", "run", "--dry-run", *given)
    status, out, err = run(*words)
    assert status == 0, err
    assert "series-kmeans" in out
