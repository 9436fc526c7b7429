"""The commands around runs: compare, export, sweep; and what a fit gathers for its report."""

import contextlib
import csv
import errno
import json
import os
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import adjusted_rand_score

import diffclust
from diffclust.analysis import elbow
from diffclust.cli import commands, compare, samples
from diffclust.cli.choice import Fitter, Trial, fits_of_graphs
from diffclust.cli.compare import compare_runs
from diffclust.cli.options import Fit
from diffclust.cli.runs import partial_folder, read_run
from diffclust.cli.samples import sample_arguments
from diffclust.cli.summary import console, text_table
from diffclust.data import Dataset, load
from diffclust.models import KMeans
from diffclust.progress_bar import ProgressBar
from diffclust.solvers import PointClusters
from diffclust.storage.snapshots import locked
from tests.cli.commands import Run, entries, runner, squares

QUICK = ("--method", "kmeans", "--restarts", "1", "--max-passes", "3", "--maps", "0")
COUNT = 18


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in a folder that has some images; gives status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    np.savez("images.npz", x=squares(COUNT), y=np.arange(COUNT) % 3)
    return runner(capsys)


def fitted(run: Run, out: str, *options: str, source: str = "images.npz", k: int = 3) -> None:
    status, _, err = run("fit", source, "-k", str(k), *QUICK, *options, "--out", out)
    assert (status, err) == (0, "")


def patterns(count: int) -> np.ndarray:
    """Three kinds of images, and hardly anything else."""
    images = np.random.default_rng(0).uniform(0.0, 0.1, (count, 8, 8)).astype(np.float32)
    for i in range(3):
        images[i::3, 2 * i : 2 * i + 3] += 0.9
    return images


def folder_of_images(folder: Path) -> None:
    folder.mkdir()
    for number, image in enumerate(squares(COUNT)):
        Image.fromarray(image).save(folder / f"{number:02}.png")


def refused(run: Run, *arguments: str) -> str:
    """The one line that a command ends with, leaving nothing behind."""
    before = sorted(Path().rglob("*"))
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    return err


@pytest.mark.slow
def test_a_fit_begins_with_the_clusters_of_another(run: Run) -> None:
    fitted(run, "before", "--method", "ai-kmeans", "--no-report")
    fitted(run, "after", "--start", "before", "--no-report")
    given, key = read_run("before"), jax.random.key(0)
    model = KMeans(3, num_restarts=1, max_passes=3)
    images = load("images.npz").images
    expected = model.fit(images, key=key, assignments=given.clusters)
    np.testing.assert_array_equal(diffclust.load("after").assignments, expected.assignments)
    assert json.loads(Path("after", "summary.json").read_text())["source"]["start"] == "before"
    # Of a part of the source the run knows the clusters too.
    fitted(run, "part", "--start", "before", "--limit", "15", "--no-report")
    part = read_run("part").indices
    assert len(part) == 15
    expected = model.fit(images[part], key=key, assignments=given.clusters[part])
    np.testing.assert_array_equal(diffclust.load("part").assignments, expected.assignments)


def test_a_start_must_fit(run: Run) -> None:
    fitted(run, "whole", "--no-report")
    fitted(run, "part", "--limit", "9", "--no-report")
    fitted(run, "more", "--no-report", k=4)

    def refusal(*options: str) -> str:
        return refused(
            run, "fit", "images.npz", "-k", "3", *QUICK, "--no-report", "--out", "new", *options
        )

    assert "'nowhere' holds no run" in refusal("--start", "nowhere")
    assert "the run in 'more' has 4 clusters, not 3; give -k 4" in refusal("--start", "more")
    assert "leave out --restarts" in refusal("--start", "whole", "--restarts", "3")
    first = int(np.setdiff1d(np.arange(COUNT), read_run("part").indices)[0])
    message = f"the run in 'part' has no cluster for image {first} ('images.npz');"
    assert message in refusal("--start", "part")
    shutil.copyfile("images.npz", "others.npz")
    others = ("fit", "others.npz", "-k", "3", *QUICK, "--no-report", "--out", "new")
    assert "no cluster for image 0 ('others.npz');" in refused(run, *others, "--start", "whole")
    folder_of_images(Path("folder"))
    named = ("fit", "folder", "-k", "3", *QUICK, "--no-report", "--out", "new")
    assert "no cluster for image 0 ('00.png');" in refused(run, *named, "--start", "whole")
    message = "pssc cannot begin with clusters; leave out --start"
    graph = ("fit", "images.npz", "-k", "3", "--method", "pssc", "--out", "new")
    assert message in refused(run, *graph, "--start", "whole")
    over = ("fit", "images.npz", "-k", "3", *QUICK, "--out", "whole", "--overwrite")
    assert "'whole' holds 'whole', which is read" in refused(run, *over, "--start", "whole")


def test_images_that_are_made_with_another_seed_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (samples, compare):
        monkeypatch.setattr(module, "MADE_SETS", ("images.npz",))
    for seed in ("0", "1"):
        fitted(run, seed, "--seed", seed, "--no-report")
    assert compare_runs([read_run("0"), read_run("1")]).shared[0, 1] == 0
    begun = ("fit", "images.npz", "-k", "3", *QUICK, "--start", "0", "--out", "new")
    assert "made with --seed 0, not 1; give" in refused(run, *begun, "--seed", "1")
    assert run(*begun)[0] == 0


def test_runs_are_compared(run: Run) -> None:
    fitted(run, "one", "--no-report")
    fitted(run, "two", "--seed", "1", "--no-report")
    fitted(run, "four", "--no-report", k=4)
    fitted(run, "some", "--limit", "9", "--no-report")
    names = ("one", "two", "four", "some")
    status, out, err = run("compare", *names, "--out", "deep/all.html")
    assert (status, err) == (0, "")
    assert "Losses are compared within a letter only" in out
    result = compare_runs([read_run(name) for name in names])
    assert result.groups == ("A", "A", "", "")
    losses = [json.loads(Path(n, "summary.json").read_text())["loss"] for n in names[:2]]
    assert result.best[:2] == tuple(loss == min(losses) for loss in losses)
    clusters = {name: diffclust.load(name).assignments for name in names}
    assert result.similarity[0, 2] == pytest.approx(
        adjusted_rand_score(clusters["one"], clusters["four"])
    )
    kept = read_run("some").indices
    assert result.similarity[3, 2] == pytest.approx(
        adjusted_rand_score(clusters["four"][kept], clusters["some"])
    )
    np.testing.assert_array_equal(np.diag(result.similarity), 1.0)
    assert result.shared.tolist()[3] == [9, 9, 9, 9]
    page = Path("deep/all.html").read_text("utf-8")
    assert page.count("data:image/png;base64") == 4
    assert "default-src 'none'" in page
    assert entries("deep") == ["all.html"]
    assert run("compare", "one", "two", "--out", "both.csv")[0] == 0
    with Path("both.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == ["one", "two"]
    assert float(rows[0]["ARI with two"]) == pytest.approx(result.similarity[0, 1], abs=1e-5)
    assert run("compare", "one", "two", "--out", "both.png")[0] == 0
    with Image.open("both.png") as picture:
        assert picture.width > 600


def test_a_comparison_has_the_stability(run: Run) -> None:
    fitted(run, "one", "--no-report")
    fitted(run, "two", "--no-report")
    assert "stability" not in run("compare", "one", "two")[1].lower()
    summary = json.loads(Path("two/summary.json").read_text())
    Path("two/summary.json").write_text(json.dumps({**summary, "stability": 0.71234}))
    status, out, _ = run("compare", "one", "two", "--out", "both.csv")
    assert status == 0
    assert "Below 0.8 clusters are uncertain" in " ".join(out.split())
    with Path("both.csv").open(newline="") as file:
        assert [row["stability"] for row in csv.DictReader(file)] == ["", "0.712"]


def test_runs_of_other_samples_have_no_agreement(run: Run) -> None:
    np.savez("other.npz", x=squares(COUNT), y=np.arange(COUNT) % 3)
    fitted(run, "one")
    Path("one").rename("[b]one")
    fitted(run, "two", source="other.npz")
    status, out, _ = run("compare", "[b]one", "two")
    assert status == 0
    assert "[b]one" in out
    assert "share no samples" in out
    assert "No two losses can be compared" in out


def test_losses_of_streamed_and_resident_fits_are_compared(run: Run) -> None:
    fitted(run, "one")
    fitted(run, "two")
    summary = json.loads(Path("two/summary.json").read_text())
    # What was not read whole has no checksum.
    for crc, word in ((None, "compared within a letter"), (1, "No two losses")):
        summary["source"]["crc32"] = crc
        Path("two/summary.json").write_text(json.dumps(summary))
        assert word in " ".join(run("compare", "one", "two")[1].split())


def test_what_cannot_be_compared_is_refused(run: Run) -> None:
    fitted(run, "one")
    Path("empty").mkdir()
    assert "at least two runs" in refused(run, "compare", "one")
    assert "given twice" in refused(run, "compare", "one", "./one")
    assert "holds no run" in refused(run, "compare", "one", "empty")
    fitted(run, "two")
    assert "must end in .html, .png or .csv" in refused(
        run, "compare", "one", "two", "--out", "all.pdf"
    )
    Path("there.csv").write_text("kept")
    message = refused(run, "compare", "one", "two", "--out", "there.csv")
    assert "--overwrite" in message
    assert Path("there.csv").read_text() == "kept"
    with Path("two", "assignments.csv").open("a") as file:
        file.write("5,,1,0,0\n")
    assert "'two' is damaged" in refused(run, "compare", "one", "two")


def test_tables_and_arrays_are_exported(run: Run) -> None:
    fitted(run, "one")
    assert run("export", "one", "--what", "assignments", "--out", "a.csv")[0] == 0
    assert Path("a.csv").read_bytes() == Path("one/assignments.csv").read_bytes()
    assert run("export", "one", "--what", "assignments", "--out", "a.npz")[0] == 0
    result = diffclust.load("one")
    with np.load("a.npz") as arrays:
        np.testing.assert_array_equal(arrays["cluster"], result.assignments)
        np.testing.assert_array_equal(arrays["distance"].astype("f4"), result.distances)
    assert run("export", "one", "--what", "prototypes", "--out", "p.npz")[0] == 0
    with np.load("p.npz") as arrays:
        np.testing.assert_array_equal(arrays["prototypes"], result.prototypes)
        np.testing.assert_array_equal(arrays["counts"], result.counts)
    assert run("export", "one", "--what", "prototypes", "--out", "p.png")[0] == 0
    status, out, _ = run("export", "one", "--what", "prototypes", "--out", "p.d")
    assert (status, out) == (0, "3 prototypes: p.d\n")
    assert entries("p.d") == [*(f"cluster-{i}.png" for i in range(3)), "export.json"]
    with Image.open("p.d/cluster-1.png") as picture:
        assert picture.size == (8, 8)


def test_images_are_sorted_into_folders(run: Run) -> None:
    for folder in ("left", "right"):
        Path("photos", folder).mkdir(parents=True)
    for i, pixels in enumerate(squares(COUNT)):
        # The same name twice, and twice the same but for its case.
        name = ("same.png", "Same.PNG")[i // 2 % 2] if i < 4 else f"{i}.png"
        Image.fromarray(pixels).save(Path("photos", ("left", "right")[i % 2], name))
    fitted(run, "one", source="photos")
    assert run("export", "one", "--what", "folders", "--out", "sorted")[0] == 0
    result = read_run("one")
    copies = [path for path in Path("sorted").rglob("*") if path.suffix.lower() == ".png"]
    assert len(copies) == COUNT
    for cluster in range(3):
        wanted = sorted(
            Path(place).read_bytes()
            for place, one in zip(result.places, result.clusters, strict=True)
            if one == cluster
        )
        here = sorted(path.read_bytes() for path in Path("sorted", f"cluster-{cluster}").iterdir())
        assert here == wanted
    lowered = [(path.parent, path.name.lower()) for path in copies]
    assert len(set(lowered)) == COUNT
    assert run("export", "one", "--what", "folders", "--link", "--out", "linked")[0] == 0
    links = [path for path in Path("linked").rglob("*") if path.is_symlink()]
    assert len(links) == COUNT
    assert {str(link.resolve()) for link in links} == {
        str(Path(p).resolve()) for p in result.places
    }
    # A picture that is another one by now is told of.
    later = Path("one/summary.json").stat().st_mtime + 5
    os.utime("photos/left/4.png", (later, later))
    err = run("export", "one", "--what", "folders", "--out", "later")[2]
    assert "warning: 1 of 18 files are newer than the run, such as" in err
    # Replaced only where it is an earlier export.
    assert "--overwrite" in refused(run, "export", "one", "--what", "folders", "--out", "sorted")
    assert run("export", "one", "--what", "folders", "--out", "sorted", "--overwrite")[0] == 0
    message = refused(run, "export", "one", "--what", "folders", "--out", "photos", "--overwrite")
    assert "never replaced" in message
    # Nor are files of a run, whichever it is, and alignments.
    fitted(run, "two", "--no-report")
    table = ("export", "one", "--what", "assignments", "--out", "two/assignments.csv")
    assert "lies in the folder of a run" in refused(run, *table, "--overwrite")
    assert "lies in the folder of a run" in refused(run, *table[:-1], "two/other.csv")
    assert "lies in the folder of a run" in refused(
        run, "export", "one", "--what", "folders", "--out", "one/sorted"
    )
    # What runs were fitted to is no comparison's either.
    picture = ("compare", "one", "two", "--out", "photos/left/4.png", "--overwrite")
    assert "'photos/left/4.png' is read" in refused(run, *picture)
    Path("aligned").mkdir()
    Path("aligned/export.json").write_text('{"what": "align", "run": "aligned/run"}')
    message = refused(run, "export", "one", "--what", "folders", "--out", "aligned", "--overwrite")
    assert "never replaced" in message
    # Moved since: the new place is asked for, and checked.
    Path("photos").rename("moved")
    message = refused(run, "export", "one", "--what", "folders", "--out", "again")
    assert "18 of 18 files are gone" in message
    again = ("export", "one", "--what", "folders", "--out", "again", "--source", "moved")
    assert run(*again)[0] == 0
    Path("moved/left/4.png").unlink()
    assert "does not hold the images of this run" in refused(run, *again, "--overwrite")


def test_images_of_arrays_are_written(run: Run) -> None:
    fitted(run, "one", "--limit", "7")
    assert run("export", "one", "--what", "folders", "--out", "sorted")[0] == 0
    result = read_run("one")
    for index, cluster in zip(result.indices, result.clusters, strict=True):
        with Image.open(f"sorted/cluster-{cluster}/{index}.png") as picture:
            np.testing.assert_array_equal(np.asarray(picture), squares(COUNT)[index])
    message = refused(run, "export", "one", "--what", "folders", "--link", "--out", "no")
    assert "could be linked" in message


def test_what_cannot_be_exported_is_refused(run: Run) -> None:
    fitted(run, "one")

    def refusal(*arguments: str) -> str:
        return refused(run, "export", *arguments)

    assert "holds no run" in refusal("images.npz", "--what", "params", "--out", "a.npz")
    assert "moves nothing" in refusal("one", "--what", "params", "--out", "a.npz")
    assert "moves nothing" in refusal("one", "--what", "aligned", "--out", "a.npz")
    assert "written as .csv or .npz" in refusal("one", "--what", "params", "--out", "a.png")
    assert "written as a folder" in refusal("one", "--what", "folders", "--out", "a.npz")
    assert "not as a table" in refusal("one", "--what", "prototypes", "--out", "a.csv")
    assert "--link is for" in refusal("one", "--what", "prototypes", "--link", "--out", "a")
    Path("one/model/model.json").write_text("{}")
    assert "damaged" in refusal("one", "--what", "prototypes", "--out", "a.npz")


@pytest.mark.slow
def test_aligned_images_and_a_film_from_one_start(run: Run) -> None:
    options = ("--method", "ai-kmeans", "--restarts", "1", "--max-passes", "3")
    status, _, err = run(
        *("fit", "images.npz", "-k", "3", *options, "--compare-with", "kmeans", "--out", "one")
    )
    assert (status, err) == (0, "")
    page = Path("one/report.html").read_text("utf-8")
    assert '<section id="film">' in page
    assert '<section id="starts">' in page
    assert '<section id="confusion">' in page
    result = diffclust.load("one")
    params = result.outcome.assignment.params
    aligned = result.align(squares(COUNT), params)
    assert run("export", "one", "--what", "aligned", "--out", "a.npz")[0] == 0
    with np.load("a.npz") as arrays:
        np.testing.assert_allclose(arrays["aligned"], aligned, atol=1e-6)
    assert run("export", "one", "--what", "restored", "--out", "r.npz")[0] == 0
    with np.load("r.npz") as arrays:
        own = result.prototypes[result.assignments]
        images = squares(COUNT)[..., None] / 255
        norms = np.sqrt((images**2).sum((1, 2, 3), keepdims=True))
        error = np.abs(arrays["restored"] - images).mean()
        assert error < np.abs(norms * own - images).mean()
    assert run("export", "one", "--what", "params", "--out", "p.csv")[0] == 0
    with Path("p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_array_equal(
        [[row[f"param_{i}"] for i in range(6)] for row in rows], params.astype(str)
    )
    # A prediction keeps no alignments, and is made again.
    assert run("predict", "one", "images.npz", "--maps", "0", "--out", "two")[0] == 0
    assert run("export", "two", "--what", "aligned", "--out", "pictures")[0] == 0
    actual = read_run("two")
    with Image.open(f"pictures/cluster-{actual.clusters[5]}/5.png") as picture:
        difference = np.asarray(picture) / 255 - aligned[5, :, :, 0]
    assert np.abs(difference).max() < 0.1


def test_other_methods_that_cannot_begin_there_are_refused(run: Run) -> None:
    fit = ("fit", "images.npz", "-k", "2", "--out", "run", "--method")
    assert "not for pssc" in refused(run, *fit, "pssc", "--compare-with", "kmeans")
    assert "with kmeans, once each" in refused(run, *fit, "kmeans", "--compare-with", "kmeans")
    message = refused(run, *fit, "kmeans", "--compare-with", "ai-kmeans", "--no-report")
    assert "leave out --no-report" in message
    assert "between 0 (no maps) and 2,000" in refused(run, *fit, "kmeans", "--maps", "2001")


def test_a_sweep_chooses_the_elbow(run: Run) -> None:
    np.savez("images.npz", x=patterns(COUNT), y=np.arange(COUNT) % 3)
    status, out, err = run("sweep", "images.npz", "-k", "1-3,5", *QUICK, "--out", "sweep")
    assert status == 0
    assert err.count(" done, loss ") == 4
    assert entries("sweep") == ["chosen", "curve.png", "report.html", "summary.json", "sweep.csv"]
    with Path("sweep/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    counts, losses = [int(r["clusters"]) for r in rows], [float(r["loss"]) for r in rows]
    assert counts == [1, 2, 3, 5]
    (best,) = (int(row["clusters"]) for row in rows if row["chosen"] == "1")
    assert best == elbow(counts, losses)
    # The run is the one that a fit of that many clusters gives.
    fitted(run, "alone", "--no-report", k=best)
    own, alone = read_run("sweep/chosen"), read_run("alone")
    np.testing.assert_array_equal(own.clusters, alone.clusters)
    assert own.summary["loss"] == alone.summary["loss"] == losses[counts.index(best)]
    page = Path("sweep/report.html").read_text("utf-8")
    assert f"At K = {best} the loss lies farthest below" in page
    assert 'href="chosen/report.html"' in page
    assert "sweep/chosen" in out
    assert "give its run, 'sweep/chosen'" in refused(run, "compare", "sweep", "alone")
    again = ("sweep", "images.npz", "-k", "2,3", *QUICK, "--out")
    assert "--overwrite" in refused(run, *again, "sweep")
    assert "never replaced" in refused(run, *again, "alone", "--overwrite")
    # Two numbers have no elbow: that is said, and no run is written.
    assert run(*again, "sweep", "--overwrite")[0] == 0
    assert "chosen" not in entries("sweep")
    assert json.loads(Path("sweep/summary.json").read_text())["chosen"] is None


def test_samples_between_two_equal_prototypes_belong_to_neither() -> None:
    zeros = np.zeros(2)
    clusters = PointClusters(
        zeros.astype(int), zeros, np.array([0.0, 1.0]), np.ones(2, int), zeros[None]
    )
    trial = Trial("2", 2.0, Fit(source="", clusters=2), 0.0, clusters)
    assert trial.silhouette == 0.5


@pytest.mark.slow
def test_no_clear_choice_is_an_answer(run: Run) -> None:
    """Noise has no clusters: over 2 to 6 a loss like 1 / K bends by 25 % of its fall."""
    np.save("noise.npy", np.random.default_rng(0).uniform(size=(60, 2, 1)).astype(np.float32))
    status, out, _ = run("sweep", "noise.npy", "-k", "2-6", *QUICK, "--out", "sweep")
    assert status == 0
    assert "No clear choice. At K = " in out
    share = out.split("data without any clusters would have up to ")[1].split("%")[0]
    assert 20 <= int(share) < 40
    assert "<h2>The choice</h2>" in Path("sweep/report.html").read_text("utf-8")
    with Path("sweep/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(0 < float(row["silhouette"]) < 1 for row in rows)
    assert all(-0.5 < float(row["stability"]) <= 1 for row in rows)


@pytest.mark.slow
def test_a_sweep_of_equal_images_has_no_elbow(run: Run) -> None:
    image = np.random.default_rng(0).random((8, 8))
    np.save("equal.npy", np.repeat(image[None], 12, axis=0).astype(np.float32))
    status, out, _ = run("sweep", "equal.npy", "-k", "1-4", *QUICK, "--out", "swept")
    assert status == 0
    assert "No clear choice: the losses of these K differ by rounding alone." in out


def test_a_set_that_is_drawn_from_another_takes_the_weights_of_that(tmp_path: Path) -> None:
    weights = str(tmp_path / "weights.npy")
    np.save(weights, np.arange(50.0))
    images = np.zeros((2, 8, 8, 1), np.float32)
    dataset = Dataset(images, indices=np.array([3, 40]))
    for limit in (None, 2):
        options = Fit("mnist-1k", 2, weights=weights, limit=limit)
        given = sample_arguments(options, dataset)
        assert given["sample_weight"].tolist() == [3.0, 40.0]


def test_a_fit_whose_results_fill_the_disk_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = ("fit", "images.npz", "-k", "2", *QUICK, "--checkpoint-every", "0", "--out", "runs/full")

    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(commands, "write_run", full)
        status, _, err = run(*fit)
    where = repr(str(Path("runs/full").absolute()))
    assert err.endswith(
        f"No space left on device: {where}; go on with the same command and --resume\n"
    )
    assert (status, entries("runs")) == (2, ["full.partial"])
    status, _, err = run(*fit, "--resume")
    assert status == 0
    assert "going on from snapshot" in err
    assert entries("runs") == ["full"]


def test_a_sweep_that_was_broken_off_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save("weights.npy", np.ones(COUNT))
    sweep = ("sweep", "images.npz", "-k", "2-4", *QUICK, "--weights", "weights.npy", "--out", "s")
    fit, done = KMeans.fit, []

    def counted(model: KMeans, *arguments: object, **options: object) -> object:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(model.num_clusters)
        return fit(model, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(KMeans, "fit", counted)
        status, _, err = run(*sweep)
    assert (status, done) == (130, [2, 2, 3])
    assert "go on with the same command and --resume" in err
    assert "--resume" in refused(run, *sweep)
    assert "other samples or settings" in refused(run, *sweep, "--resume", "--seed", "1")
    # A single fit has nothing to go on with here, and must not remove the sweep's.
    single = ("fit", "images.npz", "-k", "3", *QUICK, "--out", "s", "--resume")
    assert "holds fits of a sweep that was broken off" in refused(run, *single)
    done.clear()
    monkeypatch.setattr(
        KMeans, "fit", lambda *a, **o: done.append(a[0].num_clusters) or fit(*a, **o)
    )
    assert run(*sweep, "--resume")[0] == 0
    assert done == [3, 4, 4]
    assert "s.partial" not in entries()
    before = entries()
    status, out, _ = run(*sweep[:-2], "--dry-run")
    assert status == 0
    assert "3 fits by kmeans of 18 images would take " in out
    assert "and second fits for the stability" in out
    assert entries() == before


def test_a_kept_fit_is_of_its_settings_whatever_it_is_called(run: Run) -> None:
    fits = [Fit("images.npz", count, "s", method="kmeans") for count in (2, 3)]
    with ProgressBar() as bar, contextlib.ExitStack() as stack:
        fitter = Fitter(fits, load("images.npz"), bar, stack)
        for options in (*fits, *fits):
            assert len(fitter.fit(options, "grid 3x3", 0, 1).prototypes) == options.clusters
    kept = list(Path("s.partial").iterdir())
    assert len(kept) == 4, "two fits, what they are of, and a lock"


def test_a_sweep_is_made_by_one_process_at_a_time(run: Run) -> None:
    sweep, left = ("sweep", "images.npz", "-k", "2-3", *QUICK, "--out", "s"), Path("s.partial")
    (left / "fit").mkdir(parents=True)
    with locked(left):
        for more in ((), ("--resume",), ("--overwrite",)):
            assert "s.partial' is in use by another fit" in refused(run, *sweep, *more)
    assert left.joinpath("fit").is_dir()
    # One that was killed before its first fit has left nothing to go on with.
    left.joinpath("fit").rename(left / ".fit.01234567.tmp")
    assert run(*sweep)[0] == 0
    assert not left.exists()


def test_a_folder_has_a_default(run: Run) -> None:
    fit = ("fit", "images.npz", "-k", "3", *QUICK)
    before = entries()
    assert run(*fit, "--dry-run")[0] == 0
    assert entries() == before
    status, out, _ = run(*fit)
    assert status == 0
    assert "report: diffclust-run/report.html" in out
    assert "'diffclust-run' holds another run" in refused(run, *fit)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("-k", "5"), "at least two numbers"),
        (("-k", "5-2"), "must go up, as in 2-5"),
        (("-k", "1-1000"), "at most 100 numbers"),
        (("-k", "two"), "like 2-12 or 2,4,8"),
        (("-k", "2-30"), "images is 18, too few for 30 clusters"),
        (("-k", "2", "--grids", "3,5"), "kmeans has no landmark grids"),
    ],
)
def test_sweeps_of_nothing_are_refused(run: Run, given: tuple[str, ...], message: str) -> None:
    assert message in refused(run, "sweep", "images.npz", *given, *QUICK, "--out", "sweep")


def test_grids_are_checked(run: Run) -> None:
    sweep = ("sweep", "images.npz", "--method", "di-kmeans", "--out", "sweep", "--grids")
    assert "must be one number" in refused(run, *sweep, "3,5", "-k", "2-4")
    assert "at least two grids" in refused(run, *sweep, "3,3x3", "-k", "2")
    assert "must be like 3,5,7x5" in refused(run, *sweep, "3,five", "-k", "2")
    message = refused(run, *sweep, "3,5", "-k", "2", "--landmarks", "4")
    assert "--grids or --landmarks" in message


@pytest.mark.slow
def test_a_spectral_sweep_takes_the_widest_gap(run: Run) -> None:
    np.savez("many.npz", x=patterns(4 * COUNT))
    options = ("--method", "pssc", "--neighbours", "5", "--removed", "1,2", "--dimensions", "4")
    status, _, err = run(
        *("sweep", "many.npz", "-k", "2-5", *options, "--maps", "0", "--out", "sweep")
    )
    assert status == 0, err
    with Path("sweep/sweep.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    gaps = {row["clusters"]: float(row["eigengap"]) for row in rows}
    widest, second = sorted(gaps, key=gaps.__getitem__, reverse=True)[:2]
    # Chosen or not, the one for which most speaks is fitted and has a stability.
    (steady,) = (row for row in rows if row["stability"])
    assert steady["clusters"] == widest
    # Every K has its clusters, from the one graph that was fitted, and so a silhouette.
    assert all(-1.0 <= float(row["silhouette"]) <= 1.0 for row in rows)
    clear = widest != "5" and gaps[widest] >= 1.5 * gaps[second]
    assert [row["clusters"] for row in rows if row["chosen"] == "1"] == [widest] * clear
    reason = json.loads(Path("sweep/summary.json").read_text())["reason"]
    assert reason.startswith("No clear choice") != clear
    if clear:
        own = diffclust.load("sweep/chosen")
        moved = f"of plain K-means is {own.outcome.figures['raw_kmeans_ari']:.2f}"
        assert moved in Path("sweep/chosen/report.html").read_text("utf-8")
        assert own.outcome.figures["eigengap"] == pytest.approx(gaps[widest], abs=1e-5)


def test_graphs_of_a_sweep_are_those_of_its_fits() -> None:
    def graphs(**settings: object) -> list[list[int]]:
        every = {"source": "x", "out": "o", "method": "pssc", "settings": settings}
        fits = [Fit(clusters=count, **every) for count in range(3, 11)]
        return [[fit.clusters for fit in of] for of in fits_of_graphs(fits)]

    assert graphs() == [[3, 4], [5, 6, 7], [8, 9, 10]]
    assert graphs(num_removed=(2,)) == [[*range(3, 11)]]


@pytest.mark.slow
def test_a_sweep_of_grids_takes_the_greatest_evidence(run: Run) -> None:
    options = ("--restarts", "1", "--max-passes", "2", "--no-split-merge", "--maps", "0")
    status, _, err = run(
        *("sweep", "images.npz", "-k", "3", "--method", "di-kmeans", "--grids", "3,2x3"),
        *(*options, "--out", "sweep"),
    )
    assert status == 0, err
    summary = json.loads(Path("sweep/summary.json").read_text())
    assert list(summary["values"]) == ["2×3", "3×3"]
    # The finest grid ends the range: then nothing is chosen.
    best = max(summary["values"], key=summary["values"].get)
    assert summary["chosen"] == (None if best == "3×3" else best)
    assert summary["criterion"] == "evidence"


def test_states_of_version_0_1_are_found(tmp_path: Path) -> None:
    assert partial_folder(tmp_path / "run").name == "run.partial"
    (tmp_path / "run.unfinished").mkdir()
    assert partial_folder(tmp_path / "run").name == "run.unfinished"


def test_names_of_any_kind_are_read_again(run: Run) -> None:
    folder_of_images(Path("odd"))
    Path("odd", "00.png").rename(Path("odd", "x\r0.png"))
    fitted(run, "names", "--no-report", source="odd")
    assert Path("odd", "x\r0.png") in map(Path, read_run("names").places)


def test_a_run_in_the_way_is_not_replaced_from_within(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty").mkdir()
    monkeypatch.chdir("empty")
    assert "is the current folder" in refused(run, "fit", "digits", "-k", "3", "--out", ".")
    assert "no valid UTF-8" in refused(run, "fit", "digits", "-k", "3", "--out", "o\udcff")


def test_what_a_damaged_summary_lacks_is_named(run: Run) -> None:
    fitted(run, "whole", "--no-report")
    file = Path("whole", "summary.json")
    summary = json.loads(file.read_text())
    file.write_text(json.dumps({"method": summary["method"], "n": summary["n"]}))
    assert "damaged (summary.json has no valid 'k')" in refused(run, "review", "whole")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", None),
        ("source", {}),
        ("source", []),
        ("settings", None),
        ("loss", None),
        ("method", "none"),
        ("model", 5),
    ],
)
def test_a_summary_that_was_edited_is_damaged(run: Run, name: str, value: object) -> None:
    fitted(run, "whole", "--no-report")
    file = Path("whole", "summary.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    export = ("export", "whole", "--what", "folders", "--out", "out")
    assert "the run in 'whole' is damaged" in refused(run, *export)


@pytest.mark.parametrize("edited", ["3,,99,", "99999999999999999999,,0,"])
def test_a_table_that_was_edited_is_damaged(run: Run, edited: str) -> None:
    fitted(run, "whole", "--no-report")
    file = Path("whole", "assignments.csv")
    lines = file.read_text().splitlines()
    lines[4] = edited + lines[4].split(",", 3)[3]
    file.write_text("\n".join(lines) + "\n")
    export = ("export", "whole", "--what", "folders", "--out", "out")
    assert "the run in 'whole' is damaged" in refused(run, *export)


def test_a_sweep_of_too_few_weights_leaves_nothing(run: Run) -> None:
    np.save("few.npy", np.r_[1.0, 1.0, np.zeros(COUNT - 2)])
    given = ("sweep", "images.npz", "-k", "2-4", *QUICK, "--weights", "few.npy", "--out", "swept")
    assert "images of positive weight is 2" in refused(run, *given)
    assert "images of positive weight is 2" in refused(run, *given, "--dry-run")
    given = ("fit", "images.npz", "-k", "2", *QUICK, "--weights", "none.npy", "--dry-run")
    assert "none.npy" in refused(run, *given)


def test_a_closed_standard_output_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    console().print("nobody reads this")


def test_a_sweep_warns_of_blank_images_once(run: Run) -> None:
    np.save("blank.npy", np.stack([np.zeros((8, 8)), *patterns(5)]))
    status, _, err = run("sweep", "blank.npy", "-k", "1-2", *QUICK, "--dry-run")
    assert (status, err.count("1 of 6 images are blank")) == (0, 1)


def test_a_table_in_a_file_loses_nothing(capsys: pytest.CaptureFixture) -> None:
    names = [f"a-folder-with-a-{'very-' * 5}long-name-{number}" for number in range(16)]
    columns = {"run": names, **{name: ["0.98765"] * 16 for name in names}}
    console().print(text_table(columns, left=1))
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[1:]] == names
    assert out.count("0.98765") == 16 * 16


@pytest.mark.slow
def test_a_sweep_counts_samples_that_have_weight(run: Run) -> None:
    images = patterns(12)
    noise = np.random.default_rng(1).uniform(size=(9, 8, 8)).astype(np.float32)
    np.savez("all.npz", x=np.concatenate([images, noise]), y=np.arange(21) % 3)
    np.savez("part.npz", x=images, y=np.arange(12) % 3)
    np.save("weights.npy", np.repeat([1.0, 0.0], [12, 9]))
    tables = []
    for name, more in (("all", ["--weights", "weights.npy"]), ("part", [])):
        sweep = ("sweep", f"{name}.npz", "-k", "2-3", *QUICK, *more)
        assert run(*sweep, "--out", name)[0] == 0
        with Path(name, "sweep.csv").open(newline="") as file:
            tables.append(list(csv.DictReader(file)))
    assert {"silhouette", "stability", "acc"} <= tables[0][0].keys()
    for every, counted in zip(*tables, strict=True):
        for column in ("loss", "silhouette", "stability", "acc", "nmi", "ari"):
            assert float(every[column]) == pytest.approx(float(counted[column]), rel=1e-4), column


@pytest.mark.slow
def test_a_sweep_of_a_graph_leaves_out_what_weighs_nothing(run: Run) -> None:
    np.save("few.npy", np.r_[0.0, np.ones(COUNT - 1)])
    status, out, _ = run(
        *("sweep", "images.npz", "-k", "2-3", "--method", "pssc", "--register", "none"),
        *("--weights", "few.npy", "--out", "swept"),
    )
    assert status == 0
    assert " accuracy " in out


def test_a_prediction_is_exported_from_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted(run, "model", "--no-report")
    assert run("predict", "model", "images.npz", "--out", "more", "--no-report")[0] == 0
    Path("below").mkdir()
    monkeypatch.chdir("below")
    status, _, err = run("export", "../more", "--what", "prototypes", "--out", "p.npz")
    assert (status, err) == (0, "")
    monkeypatch.chdir("..")
    fitted(run, "model", "--no-report", "--overwrite", "--seed", "5")
    err = refused(run, "export", "more", "--what", "prototypes", "--out", "p.npz")
    assert "was fitted anew since 'more' was predicted by it; predict again" in err


def test_another_run_is_not_taken_for_a_finished_one(run: Run) -> None:
    fitted(run, "one", "--no-report")
    again = ("fit", "images.npz", "-k", "3", *QUICK, "--no-report", "--out", "one", "--resume")
    assert run(*again)[0] == 0
    other = [*again[:3], "4", *again[4:]]
    assert "holds another run, whose k is 3, not 4;" in refused(run, *other)
    assert "whose seed is 0, not 5;" in refused(run, *again, "--seed", "5")
    assert "whose limit is None, not 9;" in refused(run, *again, "--limit", "9")
    assert "whose size is None, not '9';" in refused(run, *again, "--size", "9")
    assert "whose channels is None, not 3;" in refused(run, *again, "--channels", "3")
    assert "whose max_passes is 3, not 77;" in refused(run, *again, "--max-passes", "77")
    # A fit that is to replace it was broken off.
    state = Path("one.partial", "states", "1")
    state.mkdir(parents=True)
    Path("one.partial", "lock").touch()
    assert "go on with it by --overwrite --resume" in refused(run, *again)


def test_a_sweep_that_fails_keeps_its_fits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = ("sweep", "images.npz", "-k", "2-4", *QUICK, "--out", "s")
    fit = Fitter.fit

    def broken(self: Fitter, options: Fit, *about: object, **changed: object) -> object:
        if options.clusters == 4:
            raise ValueError("no")
        return fit(self, options, *about, **changed)

    with monkeypatch.context() as patch:
        patch.setattr(Fitter, "fit", broken)
        assert run(*sweep)[0] == 2
    kept = [path for path in partial_folder(Path("s").absolute()).iterdir() if path.is_dir()]
    assert kept
    next(path for path in kept[0].rglob("*.json")).write_text("{")
    assert run(*sweep, "--resume")[0] == 0


def test_a_finished_sweep_has_nothing_to_go_on_with(run: Run) -> None:
    sweep = ("sweep", "images.npz", "-k", "2-3", *QUICK, "--maps", "0", "--out", "swept")
    assert run(*sweep)[0] == 0
    before = Path("swept", "summary.json").read_bytes()
    # What is left where it was broken off while the fits were removed.
    left = partial_folder(Path("swept").absolute())
    fit = left / "0123456789abcdef"
    fit.mkdir(parents=True)
    # Of a sweep that is to replace it.
    assert "go on with it by --overwrite --resume" in refused(run, *sweep, "--resume")
    assert fit.is_dir()
    os.utime(fit, (0, 0))
    status, out, _ = run(*sweep, "--resume")
    assert not left.exists()
    assert (status, out) == (0, "swept holds a finished sweep; there is nothing to go on with\n")
    assert "whose seed is 0, not 1;" in refused(run, *sweep, "--resume", "--seed", "1")
    assert "whose size is None, not '9';" in refused(run, *sweep, "--resume", "--size", "9")
    assert Path("swept", "summary.json").read_bytes() == before
    err = refused(run, *sweep, "--no-report")
    assert err == "error: Unrecognized options: --no-report; see diffclust sweep --help\n"


def test_an_export_replaces_nothing_that_is_read(run: Run) -> None:
    folder_of_images(Path("images"))
    fitted(run, "run", "--no-report", source="images")
    assert run("export", "run", "--what", "folders", "--out", "sorted")[0] == 0
    Path("images").rename("elsewhere")
    again = ("export", "run", "--what", "folders", "--out", "sorted", "--source", "sorted")
    assert "holds 'sorted', which is read" in refused(run, *again, "--overwrite", "--link")
    fitted(run, "of-arrays", "--no-report")
    arrays = ("export", "of-arrays", "--what", "assignments", "--out", "images.npz", "--overwrite")
    assert "'images.npz' is read; give another path" in refused(run, *arrays)


def test_an_export_is_of_the_samples_that_were_fitted(run: Run) -> None:
    fitted(run, "run", "--no-report")
    sort = ("export", "run", "--what", "folders", "--out")
    assert run(*sort, "sorted")[0] == 0
    np.savez("images.npz", x=squares(COUNT)[::-1], y=np.arange(COUNT) % 3)
    assert "no longer holds the images of this run" in refused(run, *sort, "again")


def test_endings_in_capitals(run: Run) -> None:
    fitted(run, "run", "--no-report")
    before = entries()
    for what in ("assignments", "prototypes"):
        assert run("export", "run", "--what", what, "--out", f"{what}.NPZ")[0] == 0
        assert np.load(f"{what}.NPZ").files
    assert entries() == sorted([*before, "assignments.NPZ", "prototypes.NPZ"])


def test_a_fit_without_the_mask_of_the_finished_one_is_another(run: Run) -> None:
    Image.fromarray(np.full((8, 8), 255, np.uint8)).save("mask.png")
    fitted(run, "run", "--no-report", "--mask", "mask.png")
    again = ("fit", "images.npz", "-k", "3", *QUICK, "--no-report", "--out", "run", "--resume")
    assert "whose mask is 'mask.png'" in refused(run, *again)
    assert run(*again, "--mask", "mask.png")[0] == 0


def test_staged_folders_of_others_are_left_alone(run: Run) -> None:
    left = [Path(f".{name}.0123abcd.tmp") for name in ("run1", "run")]
    for folder in left:
        folder.mkdir()
    fitted(run, "run", "--no-report")
    fitted(run, "run", "--no-report", "--overwrite", "--resume")
    assert [folder.exists() for folder in left] == [True, False]


def test_links_that_lead_nowhere_are_no_runs(run: Run) -> None:
    Path("a").symlink_to("b")
    Path("b").symlink_to("a")
    assert "holds no run" in refused(run, "compare", "a", "images.npz")


@pytest.mark.parametrize("out", ["run [1]", "back\\slash", "a**b", "of [1]/run"])
def test_a_path_that_nothing_can_be_read_from_is_refused(run: Run, out: str) -> None:
    fit = ("fit", "images.npz", "-k", "3", *QUICK, "--no-report", "--out", out)
    assert "nothing can be saved in" in refused(run, *fit)
    sweep = ("sweep", "images.npz", "-k", "2-3", *QUICK, "--out", out)
    assert "nothing can be saved in" in refused(run, *sweep)


def test_a_relative_source_is_that_of_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, images in (("a", squares(COUNT)), ("b", squares(COUNT)[::-1])):
        Path(name).mkdir()
        monkeypatch.chdir(name)
        Path("photos").mkdir()
        for number, image in enumerate(images):
            Image.fromarray(image).save(f"photos/{number:02}.png")
        fitted(run, "run", "--no-report", source="photos")
        monkeypatch.chdir("..")
    assert compare_runs([read_run("a/run"), read_run("b/run")]).shared[0, 1] == 0
    monkeypatch.chdir("b")
    sort = ("export", "../a/run", "--what", "folders", "--out")
    assert run(*sort, "sorted")[0] == 0
    for file in Path("sorted").rglob("*.png"):
        assert file.read_bytes() == Path("..", "a", "photos", file.name).read_bytes()
    # Moved together, they are found from where one is.
    monkeypatch.chdir("..")
    Path("a").rename("c")
    monkeypatch.chdir("c")
    assert run("export", "run", "--what", "folders", "--out", "sorted")[0] == 0


def test_no_file_of_a_run_that_is_read_is_replaced(run: Run) -> None:
    for name in ("one", "two"):
        fitted(run, name, "--no-report")
    compare = ("compare", "one", "two", "--out", "one/assignments.csv", "--overwrite")
    assert "lies in the folder of a run" in refused(run, *compare)
    export = ("export", "one", "--what", "assignments", "--out", "one/assignments.csv")
    assert "lies in the folder of a run" in refused(run, *export, "--overwrite")


def test_an_interruption_after_all_is_written_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("diffclust.cli.commands.print_summary", interrupted)
        fit = ("fit", "images.npz", "-k", "3", *QUICK, "--no-report", "--out", "run")
        assert run(*fit) == (130, "", "error: interrupted; 'run' is written\n")
        predict = ("predict", "run", "images.npz", "--no-report", "--out", "more")
        assert run(*predict) == (130, "", "error: interrupted; 'more' is written\n")
    monkeypatch.setattr("diffclust.cli.compare._print", interrupted)
    compare = run("compare", "run", "more", "--out", "c.csv")
    assert compare == (130, "", "error: interrupted; 'c.csv' is written\n")


def test_a_finished_run_of_another_setting_is_another_though_it_is_the_default(run: Run) -> None:
    fit = ("fit", "images.npz", "-k", "3", *QUICK, "--no-report", "--out", "run")
    assert run(*fit, "--ground", "dark")[0] == 0
    assert run(*fit, "--ground", "dark", "--resume")[0] == 0
    assert "whose ground is 'dark', not" in refused(run, *fit, "--resume")
    Path("run", "assignments.csv").unlink()
    error = refused(run, *fit, "--ground", "dark", "--resume")
    assert "the run in 'run' lacks 'assignments.csv'" in error


def test_a_sweep_that_was_killed_before_its_first_fit_goes_on(run: Run) -> None:
    left = partial_folder(Path("swept").absolute())
    left.mkdir()
    (left / "about.json").touch()
    sweep = ("sweep", "images.npz", "-k", "2-3", *QUICK, "--out", "swept", "--resume")
    assert run(*sweep)[0] == 0


def test_numbers_that_64_bits_cannot_hold_are_refused(run: Run) -> None:
    huge = str(10**20)
    fit = ("fit", "images.npz", *QUICK, "--no-report", "--out", "run")
    assert "-k must be a number that 64 bits hold" in refused(run, *fit, "-k", huge)
    assert "chunk_size must be" in refused(run, *fit, "-k", "2", "--chunk-size", huge)
