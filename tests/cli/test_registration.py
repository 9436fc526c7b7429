"""Commands on images that are registered first."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diffclust import KMeans, load
from diffclust.data import load as load_images
from diffclust.models import MODELS, of_images, restored
from diffclust.models import images as model_images
from diffclust.parallel import Data
from tests.cli.commands import Run, runner
from tests.models.test_registration import LABELS, moved
from tests.storage.test_snapshots import KEY, assert_same, chained


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


@pytest.mark.slow
def test_coloured_images_are_fitted_predicted_and_exported(run: Run) -> None:
    np.savez("images.npz", x=moved("colours"), y=LABELS)
    words = ["--method", "ai-kmeans", "--register", "upright", "--restarts", "1", "--maps", "0"]
    status, out, _ = run("fit", "images.npz", "-k", "3", *words, "--out", "run")
    assert status == 0
    said = (
        "position, size and slant normalised; "
        "the object is what differs from the colour of the background"
    )
    assert f"registration: {said}" in " ".join(out.split())
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["settings"]["register"], summary["settings"]["ground"]) == ("upright", "colour")
    assert summary["acc"] == 1.0
    page = Path("run/report.html").read_text()
    assert "The image registered" in page
    cards = re.findall(r'<figure class="sample".*?</figure>', page, re.DOTALL)
    for card in cards:
        # One below the other; the warped grid lies on the last.
        came, registered, aligned, below = re.findall(r'<image [^>]*href="([^"]+)"', card)
        assert registered == below
        assert len({came, registered, aligned}) == 3
    assert cards
    assert f"<dt>Registration</dt><dd>{said}" in page
    assert "20 × 20 pixels, RGB; registered: 28 × 28 pixels, grey" in page
    assert run("predict", "run", "images.npz", "--out", "again", "--maps", "0")[0] == 0
    assert json.loads(Path("again/summary.json").read_text())["acc"] == 1.0
    assert run("export", "run", "--what", "aligned", "--out", "aligned.npz")[0] == 0
    with np.load("aligned.npz") as result:
        assert result["aligned"].shape == (len(LABELS), 28, 28, 1)
    again = load_images("aligned.npz")
    assert again.label_names is not None
    np.testing.assert_array_equal(np.asarray(again.label_names)[again.labels], LABELS.astype(str))
    assert run("export", "run", "--what", "restored", "--out", "restored.npz")[0] == 0
    images = load_images("images.npz").images
    fitted = load("run")
    blank = restored(fitted, images, np.zeros((len(images), 28, 28, 1), np.float32))
    with np.load("restored.npz") as result:
        error = np.abs(result["restored"] - images).mean()
        assert error < np.abs(blank - images).mean() / 2
        np.testing.assert_array_equal(result["index"], np.arange(len(LABELS)))
    assert fitted.model.ground == "colour"
    assert run("export", "run", "--what", "registration", "--out", "places.txt")[0] == 2
    for name in ("params.npz", "places.csv"):
        assert run("export", "run", "--what", "registration", "--out", name)[::2] == (0, "")
    with np.load("params.npz") as result:
        frame = of_images(fitted).prototype_frame
        np.testing.assert_allclose(result["params"], frame.params_of(images), atol=1e-6)
    assert Path("places.csv").read_text().startswith("index,path,cluster,x,y,size,slant\n0,")


def doubtful(count: int = 60) -> np.ndarray:
    """Figures on a ground of noise."""
    noise = np.random.default_rng(0).normal(size=(count, 20, 20, 1))
    figures = np.concatenate([moved(), moved()])[:count]
    return (0.3 + 0.6 * figures + 0.1 * noise).clip(0, 1).astype(np.float32)


@pytest.mark.slow
def test_broken_off_where_frames_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of them is best is found again, from the same images and key."""

    def stability(model: Any, register: str, ground: str, *, images: np.ndarray) -> float:
        return 0.9 if register == "place" else 0.5

    monkeypatch.setattr(model_images, "_JUDGES", [stability])
    images = doubtful(40)
    model = KMeans(3, num_restarts=2, register="auto", split_merge=False)

    def fit(snapshots: Any) -> Any:
        with pytest.warns(match="doubtful"):
            return model.fit(images, key=KEY, snapshots=snapshots).outcome

    whole = fit(None)
    result, states = chained(fit, 1)
    assert_same(result, whole)
    assert states.count > 1


@pytest.mark.slow
def test_frames_that_are_tried_are_told_and_are_those_of_a_whole_sweep(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def stability(model: Any, register: str, ground: str, *, images: np.ndarray) -> float:
        asked.append(model.num_clusters)
        # Of two clusters alone the frame that was found would do.
        return 0.9 if register == "place" or model.num_clusters == 2 else 0.5

    monkeypatch.setattr(model_images, "_JUDGES", [stability])
    np.savez("images.npz", x=doubtful())
    words = ["--method", "kmeans", "--register", "auto", "--restarts", "1", "--maps", "0"]
    with pytest.warns(match="doubtful"):
        status, out, _ = run("fit", "images.npz", "-k", "3", *words, "--out", "run")
    said = "stability: background removed 0.50, background kept 0.90, no registration 0.50"
    assert status == 0
    assert said in " ".join(out.split())
    assert (
        f"doubtful whether the background is plain; {said}" in Path("run/report.html").read_text()
    )
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["stability_found"], summary["stability_kept"]) == (0.5, 0.9)
    # The check of the images, the fit and its estimate ask for the same once.
    assert asked == [3, 3, 3]

    frames, fit = [], KMeans.fit

    def recorded(self: KMeans, *args: Any, **more: Any) -> Any:
        frames.append((self.register, self.ground))
        return fit(self, *args, **more)

    monkeypatch.setattr(KMeans, "fit", recorded)
    with pytest.warns(match="doubtful"):
        assert run("sweep", "images.npz", "-k", "2-4", *words, "--out", "sweep")[0] == 0
    assert set(frames) == {("place", "keep")}


def test_grounds_and_methods_that_there_are_not_are_refused(run: Run) -> None:
    np.savez("images.npz", x=moved(), y=LABELS)
    status, _, err = run("fit", "images.npz", "-k", "3", "--ground", "red", "--out", "run")
    assert (status, Path("run").exists()) == (2, False)
    assert "red" in err
    assert "light" in err
    words = ["--method", "series-kmeans", "--register", "place", "--out", "run"]
    status, _, err = run("fit", "images.npz", "-k", "3", *words)
    assert status == 2
    assert "series-kmeans has no option --register" in err


@pytest.mark.slow
def test_recordings_are_placed_along_time(run: Run) -> None:
    soundfile = pytest.importorskip("soundfile", reason="no soundfile is installed")
    draw = np.random.default_rng(0)
    for kind, pitch in (("low", 500), ("high", 1500)):
        folder = Path("words", kind)
        folder.mkdir(parents=True)
        for number in range(8):
            wave = np.zeros(8000)
            start, time = draw.integers(500, 5500), np.arange(2000) / 8000
            # A tone that rises, at any time of a second.
            wave[start : start + 2000] = np.sin(2 * np.pi * (pitch + 600 * time) * time)
            soundfile.write(folder / f"{number}.wav", 0.5 * wave, 8000)
    words = ["--method", "kmeans", "--restarts", "2", "--maps", "0", "--out", "run"]
    assert run("fit", "words", "-k", "2", "--register", "place", *words)[0] == 0
    assert run("export", "run", "--what", "registration", "--out", "places.csv")[0] == 0
    found = np.loadtxt("places.csv", delimiter=",", skiprows=1, usecols=3)
    assert np.ptp(found) > 10  # columns, which are times
    images = load_images("words").images
    registered = load("run").registered(images)
    columns = np.arange(registered.shape[2])
    mass = registered[..., 0].sum(axis=1)
    centres = (mass * columns).sum(axis=1) / mass.sum(axis=1)
    np.testing.assert_allclose(centres, (registered.shape[2] - 1) / 2, atol=0.5)


@pytest.mark.slow
def test_small_figures_in_large_pictures(run: Run) -> None:
    images = np.pad(moved(), ((0, 0), (40, 0), (0, 60), (0, 0)))
    np.savez("images.npz", x=images, y=LABELS)
    words = ["--method", "kmeans", "--register", "place", "--restarts", "3", "--maps", "0"]
    assert run("fit", "images.npz", "-k", "3", *words, "--out", "run")[0] == 0
    assert run("export", "run", "--what", "registration", "--out", "places.csv")[0] == 0
    found = np.loadtxt("places.csv", delimiter=",", skiprows=1, usecols=(3, 4))
    ink = images[..., 0] / images.sum((1, 2, 3))[:, None, None]
    rows, columns = np.indices(ink.shape[1:])
    centres = [(ink * columns).sum((1, 2)), (ink * rows).sum((1, 2))]
    np.testing.assert_allclose(found, np.transpose(centres), atol=0.5)
    assert "60 × 80 pixels, grey; registered: 28 × 37 pixels" in Path("run/report.html").read_text()
    summary = json.loads(Path("run/summary.json").read_text())
    assert (summary["settings"]["canvas"], summary["acc"]) == (28, 1.0)
    np.savez("larger.npz", x=images.repeat(2, 1).repeat(2, 2), y=LABELS)
    assert run("predict", "run", "larger.npz", "--out", "again", "--maps", "0")[0] == 0
    assert json.loads(Path("again/summary.json").read_text())["acc"] > 0.95
    assert run("fit", "images.npz", "-k", "3", *words, "--canvas", "40", "--out", "large")[0] == 0
    assert load("large").prototypes.shape == (3, 40, 53, 1)
    status, _, err = run("fit", "images.npz", "-k", "3", *words, "--canvas", "4", "--out", "no")
    assert (status, Path("no").exists()) == (2, False)
    assert "canvas must be" in err


@pytest.mark.slow
def test_registered_images_are_exported_where_nothing_else_moves(run: Run) -> None:
    np.savez("images.npz", x=moved())
    words = ["--method", "kmeans", "--register", "place", "--restarts", "1", "--no-report"]
    assert run("fit", "images.npz", "-k", "3", *words, "--out", "run")[0] == 0
    assert run("export", "run", "--what", "aligned", "--out", "a.npz")[0] == 0
    fitted = load("run")
    expected = fitted.registered(load_images("images.npz").images)
    np.testing.assert_allclose(np.load("a.npz")["aligned"], expected, atol=1e-6)


def test_what_was_not_registered_is_not_restored(run: Run) -> None:
    np.savez("images.npz", x=moved(), y=LABELS)
    words = ["--method", "kmeans", "--restarts", "1", "--maps", "0", "--no-report"]
    assert run("fit", "images.npz", "-k", "3", *words, "--out", "run")[0] == 0
    status, _, err = run("export", "run", "--what", "restored", "--out", "restored.npz")
    assert (status, err) == (
        2,
        "error: no images were registered or aligned, so nothing is to be restored\n",
    )
    status, _, err = run("export", "run", "--what", "registration", "--out", "places.csv")
    assert (status, err) == (
        2,
        "error: no images were registered; register them with fit --register\n",
    )
    assert not Path("places.csv").exists()


def test_where_colours_alone_were_evened_out_there_are_no_places(run: Run) -> None:
    np.savez("images.npz", x=moved("white"), y=LABELS)
    words = ["--method", "kmeans", "--restarts", "1", "--maps", "0", "--no-report"]
    assert run("fit", "images.npz", "-k", "3", *words, "--ground", "light", "--out", "run")[0] == 0
    status, _, err = run("export", "run", "--what", "registration", "--out", "places.csv")
    assert (status, err.count("\n")) == (2, 1)
    assert "colours alone" in err
    assert run("export", "run", "--what", "registration", "--out", "params.npz")[0] == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, None),
        ({"register": "place", "ground": "none"}, "position and size normalised"),
        ({"register": "auto", "ground": "light"}, "the object is darker than a light background"),
        (
            {"ground": "dark"},
            "position and size as they are; the object is brighter than a dark background",
        ),
    ],
)
def test_models_say_what_is_taken_out(settings: dict, said: str | None) -> None:
    described = MODELS["ai-kmeans"](2, **settings).describe()
    assert described.keys() == ({"Registration"} if said else set())
    assert said is None or said in described["Registration"]


def test_what_has_no_plain_ground_is_said_to_stay_as_it_is() -> None:
    noise = np.random.default_rng(0).random((6, 32, 32, 1), np.float32)
    resolved = MODELS["ai-kmeans"](2, register="auto").resolved(Data(noise))
    assert resolved.describe()["Registration"].startswith(
        "none, as the images have no plain background"
    )


def test_where_no_ground_was_looked_for_none_is_missed() -> None:
    noise = np.random.default_rng(0).random((6, 32, 32, 1), np.float32)
    model = MODELS["ai-kmeans"](2, register="none", ground="none")
    assert model.resolved(Data(noise)).describe() == {}
    assert model.resolved(Data(noise)).frame.is_identity


def test_landmarks_take_no_register(run: Run) -> None:
    words = ["--method", "shape-kmeans", "--register", "place", "--out", "run"]
    status, _, err = run("fit", "shapes.csv", "-k", "2", *words)
    assert status == 2
    assert err.startswith("error: shape-kmeans has no option --register;")
    assert err.count("\n") == 1


def test_a_mask_of_images_that_registration_enlarges(run: Run) -> None:
    images = moved()
    np.savez("images.npz", x=images, y=LABELS)
    np.save("mask.npy", np.ones(images.shape[1:3], bool))
    words = ["--method", "kmeans", "--restarts", "1", "--register", "place", "--mask", "mask.npy"]
    assert run("fit", "images.npz", "-k", "3", *words, "--no-report", "--out", "run")[0] == 0
    assert load("run").sample_shape[:2] != images.shape[1:3]
    assert run("export", "run", "--what", "restored", "--out", "restored.npz")[::2] == (0, "")
    assert run("predict", "run", "images.npz", "--no-report", "--out", "again")[0] == 0


def test_predicting_small_images_that_were_fitted_gives_the_fit(run: Run) -> None:
    np.savez("images.npz", x=moved(), y=LABELS)
    words = ["--method", "kmeans", "--restarts", "1", "--register", "place", "--no-report"]
    assert run("fit", "images.npz", "-k", "3", *words, "--out", "run")[0] == 0
    assert load("run").given_shape == moved().shape[1:] != load("run").sample_shape
    assert run("predict", "run", "images.npz", "--no-report", "--out", "again")[0] == 0
    fitted, again = (
        np.loadtxt(Path(name, "assignments.csv"), delimiter=",", skiprows=1, usecols=(2, 3, 4))
        for name in ("run", "again")
    )
    np.testing.assert_array_equal(again, fitted)
