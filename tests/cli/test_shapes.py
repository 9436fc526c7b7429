import csv
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import diffclust
from diffclust.cli import main
from diffclust.data import load, load_landmarks, simulated_shapes
from diffclust.models import ShapeKMeans
from tests.cli.commands import RUN_FILES, entries


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    means = jax.random.normal(jax.random.key(0), (2, 5, 2))
    shapes, group = simulated_shapes(means, 0.1, per_group=9, key=jax.random.key(1))
    return np.asarray(shapes), np.asarray(group)


@pytest.fixture
def folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: tuple[np.ndarray, np.ndarray]
) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("shapes.npz", landmarks=drawn[0], kind=drawn[1])
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before = sorted(Path.cwd().iterdir())
    assert main(arguments) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("error: ")
    assert sorted(Path.cwd().iterdir()) == before
    return message


def test_fit_and_predict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["-k", "2", "--method", "shape-kmeans", "--restarts", "2", "--labels", "kind"]
    assert main(["fit", "shapes.npz", *options, "--out", "run"]) == 0
    assert "18 shapes in 2 clusters" in capsys.readouterr().out
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["acc"] == 1.0
    assert summary["source"]["sample_shape"] == [5, 2]
    assert entries("run") == RUN_FILES
    with Path("run/assignments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [str(i) for i in range(18)]

    # The source may stand behind options.
    behind = ["fit", "-k", "2", "--dry-run", "--skip-bad", "shapes.npz", "--out", "other"]
    assert "--skip-bad" in refused(capsys, *behind)

    assert main(["predict", "run", "shapes.npz", "--out", "again"]) == 0
    with Path("again/assignments.csv").open(newline="") as file:
        again = list(csv.DictReader(file))
    assert [row["cluster"] for row in again] == [row["cluster"] for row in rows]
    assert diffclust.load("run").sample_shape == (5, 2)
    # Tables are of the form that fits read.
    for what, count in (("aligned", 18), ("prototypes", 2)):
        for ending in ("npz", "csv"):
            assert main(["export", "run", "--what", what, "--out", f"{what}.{ending}"]) == 0
        read = load_landmarks(f"{what}.csv", labels="cluster")
        exact = np.load(f"{what}.npz")[what]
        np.testing.assert_array_equal(read.landmarks.astype(exact.dtype), exact)
        assert len(read.names) == count
    # Shapes of one name stay apart.
    np.savez("twins.npz", landmarks=np.load("shapes.npz")["landmarks"], names=["a", "b"] * 9)
    assert main(["predict", "run", "twins.npz", "--out", "twins", "--no-report"]) == 0
    assert main(["export", "twins", "--what", "aligned", "--out", "twins.csv"]) == 0
    assert load_landmarks("twins.csv").names[:3] == ("a-0", "b-1", "a-2")
    clusters = load_landmarks("aligned.csv").columns["cluster"]
    assert [int(row["cluster"]) for row in rows] == clusters.astype(int).tolist()
    capsys.readouterr()
    assert main(["export", "run", "--what", "folders", "--out", "folders"]) == 2
    assert "shapes are no files of their own" in capsys.readouterr().err


def test_curves_and_scales_of_tps_are_read_as_asked(
    folder: Path, capsys: pytest.CaptureFixture[str], drawn: tuple[np.ndarray, np.ndarray]
) -> None:
    def written(scale: float) -> str:
        points = [["{} {}".format(*point) for point in shape] for shape in drawn[0].tolist()]
        return "".join(
            "\n".join(
                ["LM=4", *p[:4], "CURVES=1", "POINTS=1", p[4], f"ID={i}", f"SCALE={scale}", ""]
            )
            for i, p in enumerate(points)
        )

    Path("a.tps").write_text(written(3.0), "utf-8")
    Path("b.tps").write_text(written(-1.0), "utf-8")
    fit = ("-k", "2", "--method", "shape-kmeans", "--restarts", "1", "--no-report", "--out", "run")
    assert "--append-curves" in refused(capsys, "fit", "a.tps", *fit)
    assert "is for a .tps file" in refused(capsys, "fit", "shapes.npz", "--no-scale", *fit)
    assert "is for a table of landmarks" in refused(
        capsys, "fit", "digits", "--append-curves", "-k", "2", "--out", "run"
    )
    rigid = ("--append-curves", "--registration", "rigid")
    assert "--no-scale" in refused(capsys, "fit", "b.tps", *rigid, *fit)
    sizes = {}
    for scaled in (True, False):
        options = rigid if scaled else (*rigid, "--no-scale", "--overwrite")
        assert main(["fit", "a.tps", *options, *fit]) == 0
        assert main(["export", "run", "--what", "aligned", "--out", f"{scaled}.csv"]) == 0
        aligned = load_landmarks(f"{scaled}.csv").landmarks
        assert aligned.shape == (18, 5, 2)
        sizes[scaled] = float(np.sqrt(np.mean(aligned**2)))
    assert sizes[True] == pytest.approx(3.0 * sizes[False], rel=1e-4)
    # New shapes are read as the fitted ones were.
    assert main(["predict", "run", "b.tps", "--out", "new", "--no-report"]) == 0
    assert main(["predict", "run", "shapes.npz", "--out", "plain", "--no-report"]) == 0


def test_landmarks_are_those_of_the_fit_by_their_names(
    folder: Path, capsys: pytest.CaptureFixture[str], drawn: tuple[np.ndarray, np.ndarray]
) -> None:
    names, order = np.array(["nose", "chin", "ear", "eye", "brow"]), [3, 0, 4, 1, 2]
    np.savez("named.npz", landmarks=drawn[0], landmark_names=names)
    np.savez("turned.npz", landmarks=drawn[0][:, order], landmark_names=names[order])
    np.savez("others.npz", landmarks=drawn[0], landmark_names=[*names[:4], "lip"])
    # Names that are not each one's own tell no order.
    np.savez("twice.npz", landmarks=drawn[0], landmark_names=["ear", *names[1:]])
    options = ["--restarts", "1", "--no-report", "--out", "run"]
    assert main(["fit", "named.npz", "-k", "2", *options]) == 0
    for name in ("named", "turned", "twice"):
        assert main(["predict", "run", f"{name}.npz", "--no-report", "--out", name]) == 0
    tables = [
        Path(name, "assignments.csv").read_text("utf-8") for name in ("named", "turned", "twice")
    ]
    assert tables[0] == tables[1] == tables[2]
    message = refused(capsys, "predict", "run", "others.npz", "--out", "no")
    assert "has no landmarks 'brow', which were fitted" in message


def test_settings_reach_the_model(folder: Path) -> None:
    options = ["-k", "2", "--method", "shape-kmeans", "--restarts", "1", "--no-report"]
    given = ["--distance", "fisher-rao", "--variances", "isotropic", "--registration", "rigid"]
    assert main(["fit", "shapes.npz", *options, *given, "--reflection", "--out", "run"]) == 0
    settings = json.loads(Path("run/summary.json").read_text())["settings"]
    assert settings["distance"] == "fisher-rao"
    assert settings["registration"] == "rigid"
    assert settings["reflection"] is True


def test_settings_as_published_but_for_those_given(folder: Path) -> None:
    options = ["-k", "2", "--method", "shape-kmeans", "--as-published", "--no-report"]
    assert main(["fit", "shapes.npz", *options, "--variances", "isotropic", "--out", "run"]) == 0
    settings = json.loads(Path("run/summary.json").read_text())["settings"]
    expected = ShapeKMeans.as_published(2, variances="isotropic").settings()
    assert {name: settings[name] for name in expected} == expected


def test_bad_input(
    folder: Path, capsys: pytest.CaptureFixture[str], drawn: tuple[np.ndarray, np.ndarray]
) -> None:
    def fit(source: str, *more: str) -> str:
        options = ["-k", "2", "--method", "shape-kmeans", "--out", "run", *more]
        return refused(capsys, "fit", source, *options)

    assert "does not exist" in fit("nowhere.csv")
    assert "'digits' holds images, and shape-kmeans clusters shapes" in fit("digits")
    assert "--size is for images" in fit("shapes.npz", "--size", "8")
    assert "--split is for images" in fit("shapes.npz", "--split", "test")
    assert "no option --landmarks" in fit("shapes.npz", "--landmarks", "3")
    assert "kind" in fit("shapes.npz", "--labels", "age")
    assert "at most -k 18" in fit("shapes.npz", "-k", "19")
    broken = drawn[0].copy()
    broken[4, 1, 0] = np.nan
    np.savez("missing.npz", landmarks=broken)
    assert "4" in fit("missing.npz")
    broken = drawn[0].copy()
    broken[7, :, 1] = 2.0 * broken[7, :, 0] + 1.0
    np.savez("line.npz", landmarks=broken)
    assert "they do in 1 of 18 shapes, at '7'" in fit("line.npz")
    labelled = np.array([f"skull {i}" for i in range(18)])
    np.savez("named.npz", landmarks=broken, names=labelled)
    # Seed 1 draws shape 7 to another place.
    assert "at 'skull 7'" in fit("named.npz", "--limit", "12", "--seed", "1")
    np.savez("same.npz", landmarks=np.repeat(drawn[0][:1], 4, axis=0))
    assert "all shapes are the same" in fit("same.npz")
    frechet = ("--centres", "frechet", "--distance", "fisher-rao", "--variances", "isotropic")
    assert "centres='frechet' needs" in fit("shapes.npz", *frechet)
    images = refused(
        capsys, "fit", "digits", "-k", "2", "--method", "kmeans", "--labels", "x", "--out", "run"
    )
    assert "--labels is for a table of landmarks" in images


def test_a_model_of_images_predicts_no_shapes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = diffclust.KMeans(2, num_restarts=1, max_passes=2).fit(
        np.random.default_rng(0).uniform(size=(9, 4, 4)), key=jax.random.key(0)
    )
    diffclust.save("model", fitted)
    message = refused(capsys, "predict", "model", "shapes.npz", "--out", "out")
    assert "holds landmarks, not images" in message


def test_landmarks_under_a_method_of_images_are_sent_to_shape_kmeans(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("ok.csv").write_text("shape,landmark,x,y\na,1,0,0\na,2,1,0\na,3,0,1\n", "utf-8")
    Path("ok.tps").write_text("LM=3\n0 0\n1 0\n0 1\n", "utf-8")
    for source in ("ok.csv", "ok.tps", "shapes.npz"):
        message = refused(capsys, "fit", source, "-k", "2", "--method", "kmeans", "--out", "run")
        assert "holds landmarks, not images; shape-kmeans clusters them" in message
    # What else is no image is told as before.
    assert "does not exist" in refused(capsys, "fit", "gone.tps", "-k", "2", "--out", "run")
    np.savez("both.npz", images=np.eye(4)[None].repeat(3, 0), landmarks=np.ones((3, 3, 2)))
    assert len(load("both.npz")) == 3


def test_one_of_something_is_in_the_singular(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--method", "shape-kmeans", "--restarts", "1", "--no-report"]
    assert main(["fit", "shapes.npz", "-k", "1", *options, "--out", "run"]) == 0
    assert "18 shapes in 1 cluster," in capsys.readouterr().out
    assert main(["predict", "run", "shapes.npz", "--limit", "1", "--no-report", "--out", "p"]) == 0
    assert "1 shape in 1 cluster," in capsys.readouterr().out


def test_help_speaks_of_shapes_too(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("fit", "predict"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert "images, shapes or series" in text
        assert "At most this many images, shapes or series" in text


def test_the_column_of_classes_is_read_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    points = np.random.default_rng(0).normal(size=(8, 6)).round(3)
    # A column of a name that would be taken for the classes, and has gaps.
    lines = ["name,label,species," + ",".join(f"{a}{i}" for i in (1, 2, 3) for a in "xy")]
    lines += [f"s{i},{'' if i else 'a'},{i % 2}," + ",".join(map(str, points[i])) for i in range(8)]
    Path("shapes.csv").write_text("\n".join(lines))
    words = ["fit", "shapes.csv", "-k", "2", "--method", "shape-kmeans", "--labels", "species"]
    assert main([*words, "--restarts", "1", "--no-report", "--out", "run"]) == 0
    assert main(["export", "run", "--what", "aligned", "--out", "aligned.csv"]) == 0
