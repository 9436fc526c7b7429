"""The report of shapes: what is drawn and where, in what words, and how much of it."""

import dataclasses
import re
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffclust
from diffclust.data import LandmarkSet, simulated_shapes
from diffclust.models import KMeans, Result, ShapeKMeans
from diffclust.models.shapes import ShapeDistance
from diffclust.prototypes import Clusters, LandmarkGaussians, Learned, gaussians
from diffclust.report import write_report
from diffclust.report.selection import select
from diffclust.report.shapes import ShapeRenderer
from diffclust.solvers.result import Assignment, Outcome, Status
from tests.report.test_report import HOSTILE, Page, said
from tests.report.test_report import made as made_of_images


def turns(rng: np.random.Generator, n: int, dims: int) -> np.ndarray:
    """Random rotations."""
    result, _ = np.linalg.qr(rng.normal(size=(n, dims, dims)))
    result[:, :, 0] *= np.linalg.det(result)[:, None]
    return result


def made(
    model: ShapeKMeans,
    landmarks: int = 6,
    dims: int = 2,
    n: int = 60,
    *,
    empty: int | None = None,
    sizes: tuple[float, float] = (10.0, 20.0),
) -> tuple[Result, LandmarkSet, np.ndarray]:
    """A result as a fit would give it, without the fit; and the registered shapes."""
    rng = np.random.default_rng(0)
    k = model.num_clusters
    means = 0.3 * rng.normal(size=(k, landmarks, dims))
    variances = rng.uniform(1e-4, 4e-3, size=(k, landmarks, dims))
    clusters = np.sort(rng.integers(k, size=n))
    if empty is not None:
        clusters[clusters == empty] = (empty + 1) % k
    registered = means[clusters] + np.sqrt(variances[clusters]) * rng.normal(
        size=(n, landmarks, dims)
    )
    scales, rotations = 1 / rng.uniform(*sizes, size=n), turns(rng, n, dims)
    shifts = rng.normal(size=(n, dims))
    if model.registration == "none":
        scales, rotations, shifts = np.ones(n), np.tile(np.eye(dims), (n, 1, 1)), 0 * shifts
    # registered = scale * rotation @ raw + shift, landmark by landmark.
    raw = np.einsum("nde,nld->nle", rotations, registered - shifts[:, None]) / scales[:, None, None]
    params = np.concatenate([scales[:, None], rotations.reshape(n, -1), shifts], axis=1)
    spread = variances
    if model.covariances == "full":
        spread = variances[..., None] * np.eye(dims)
    single = k == 1
    assignment = Assignment(
        clusters=clusters.astype(np.int32),
        distances=rng.normal(-9.0, 1.0, size=n).astype(np.float32),
        margins=np.full(n, np.inf, np.float32) if single else rng.uniform(size=n).astype("f4"),
        runners_up=np.full(n, -1, np.int32) if single else ((clusters + 1) % k).astype(np.int32),
        params=params.astype(np.float32),
    )
    spread = jnp.asarray(spread, jnp.float32)
    prototype = LandmarkGaussians(gaussians(jnp.asarray(means, jnp.float32), spread), spread)
    outcome = Outcome(
        Learned(Clusters(prototype, jnp.zeros((k, 0)))),
        assignment,
        (-300.0, -390.0, -400.5),
        (-400.5, -380.25),
        Status.ASSIGNMENTS,
        32,
        75.0,
        {"consensus": means.mean(axis=0).astype(np.float32)},
        {"floor": 1.25e-4, "num_clipped": 7.0},
    )
    return Result(model, (landmarks, dims), outcome), LandmarkSet(raw, name="made"), registered


def written(folder: Path, result: Result, dataset: LandmarkSet, **options) -> tuple[str, Page]:
    write_report(folder / "report.html", result, dataset, **options)
    source = (folder / "report.html").read_text("utf-8")
    page = Page(source)
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg\")", source)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for link in [a[name] for _, a in page.elements for name in ("href", "src") if name in a]:
        assert link.startswith("data:image/svg+xml;base64,") or link[1:] in ids, link
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert not page.all("image")
    assert not page.all("img")
    return source, page


def section(source: str, name: str) -> str:
    return source.split(f'<section id="{name}">')[1].split("</section>")[0]


def dots(markup: str) -> np.ndarray:
    """Where the dots of a drawing are, in the order in which they are written."""
    return np.cumsum(
        [[int(n) for n in one.split()] for one in re.findall(r"m(\S+ \S+?)h0", markup)], 0
    )


def test_the_report_speaks_of_shapes(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(3))
    dataset = dataclasses.replace(
        dataset,
        labels=np.arange(60) % 2,
        label_names=("female", "male"),
        names=tuple(f"skull {i}" for i in range(60)),
    )
    _, page = written(tmp_path, result, dataset, scores={"acc": 0.5})
    text = said(page)
    for words in (
        "60 shapes in 3 clusters, found by shape K-means.",
        "no shape changed its cluster",
        "Mean shapes",
        "Mean shapes laid over each other",
        "6 in 2 dimensions",
        "takes out place, rotation and scale",
        "of each landmark in each cluster, each coordinate by itself",
        "0.0001250, to which 7 of 36 were raised",
        "Negative log-likelihood after each pass",
        "Final negative log-likelihood of 2 restarts −400.5 (kept) −380.2",
        "The one of least negative log-likelihood is kept.",
        "Shapes in memory at once 32",
        "Likeliest with the negative log density",
        "of all shapes",
        "The shape as it came, all on one scale.",
        "the density of a shape in its cluster",
        "Point at a shape for its index, name, −log density and margin; click it",
        "skull 17 class male −log density",
        "Classes:",
        "mean deviation of a landmark",
    ):
        assert words in text, words
    for wrong in ("image", "pixel", "intensit", "coarse", "Prototype", "responsibilit", "mixture"):
        assert wrong not in text, wrong


@pytest.mark.parametrize(
    ("distance", "words"),
    [
        ("fisher-rao", "Fisher–Rao distance to the mean shape"),
        ("squared-wasserstein", "squared Wasserstein distance to the mean shape"),
    ],
)
def test_a_distance_is_called_by_its_name(
    distance: ShapeDistance, words: str, tmp_path: Path
) -> None:
    result, dataset, _ = made(ShapeKMeans(3, distance=distance), empty=1)
    _, page = written(tmp_path, result, dataset)
    text = said(page)
    assert f"Nearest with the {words}" in text
    assert "Loss after each pass" in text
    assert "Empty: no shape is nearest to this mean shape." in text
    assert "density" not in text


def test_images_are_still_called_images(tmp_path: Path) -> None:
    result, dataset = made_of_images(KMeans(2))
    write_report(tmp_path / "report.html", result, dataset)
    text = said(Page((tmp_path / "report.html").read_text("utf-8")))
    assert "60 images in 2 clusters, found by K-means." in text
    assert "shape" not in text


@pytest.mark.parametrize("covariances", ["diagonal", "full"])
@pytest.mark.parametrize("dims", [2, 3])
def test_every_cluster_shows_all_its_members_where_they_are(
    dims: int, covariances: Literal["diagonal", "full"], tmp_path: Path
) -> None:
    result, dataset, registered = made(ShapeKMeans(3, covariances=covariances), dims=dims)
    source, page = written(tmp_path, result, dataset)
    behind = re.findall(r'<g class="members"><path d="(.*?)"', source)
    assert len(behind) == 3
    renderer = ShapeRenderer(result, dataset, seed=0)
    for cluster, path in enumerate(behind):
        own = registered[result.assignments == cluster]
        placed = renderer.frame.place(own).swapaxes(0, 1).reshape(-1, 2)
        # Half a unit of rounding, and what float32 loses on the way.
        np.testing.assert_allclose(dots(path), placed, atol=0.6)
    text = said(page)
    assert text.count("Small dots are the landmarks of its registered shapes.") == 3
    assert ("leading principal axes" in text) == (dims == 3)
    assert ("seen along the same axes" in text) == (dims == 3)
    # Of each mean shape there is one drawing, which all others refer to.
    kept = re.findall(r'<g id="mean-(\d)"><g class="ellipses"', source)
    assert kept == ["0", "1", "2"]
    assert len(page.all("ellipse")) == 3 * 2 * 6
    shown = 3 * 4 * 6 + 1  # one more explains how to read them
    assert len(page.all("use", class_="mean")) == 3 + 3 + shown


def test_ellipses_are_two_and_one_deviations_of_the_cluster(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(2))
    source, _ = written(tmp_path, result, dataset)
    radii = np.array(re.findall(r'<ellipse rx="(\S+)" ry="(\S+)"', source), float)
    unit = ShapeRenderer(result, dataset, seed=0).frame.unit
    variances = np.asarray(result.outcome.learned.clusters.prototype.covariance, np.float64)
    expected = unit * np.sort(np.sqrt(variances), axis=2)[:, None, :, ::-1] * [[[[2.0]], [[1.0]]]]
    np.testing.assert_allclose(radii.reshape(2, 2, 6, 2), expected, rtol=2e-3)


def test_samples_are_drawn_as_they_came_and_over_their_mean(tmp_path: Path) -> None:
    result, dataset, registered = made(ShapeKMeans(3))
    source, page = written(tmp_path, result, dataset, samples_per_group=3, seed=4)
    assert len(page.all("figure", class_="sample")) == 3 * 4 * 3
    views = select(result, samples_per_group=3, seed=4)
    positions = [p for view in views for group in view.groups for p in group.positions.tolist()]
    renderer = ShapeRenderer(result, dataset, seed=4)
    drawn = re.findall(
        r'<figure class="sample"[^>]*>(.*?)<figcaption>', section(source, "clusters"), re.S
    )
    units = set()
    for markup, position in zip(drawn, positions, strict=True):
        assert f"<title>index {position}\n" in markup
        assert f'href="#mean-{result.assignments[position]}"' in markup
        raw, over = markup.split('<g class="over">')
        np.testing.assert_allclose(dots(over), renderer.frame.place(registered[position]), atol=0.6)
        frame = renderer.frames[position]
        units.add(round(frame.unit, 9))
        placed = (dataset.landmarks[position] - [frame.left, frame.top]) * [frame.unit, -frame.unit]
        np.testing.assert_allclose(dots(raw), placed, atol=0.51)
        assert (placed >= 0).all()
        assert (placed <= [frame.width, frame.height]).all()
    assert len(units) == 1


def test_shapes_of_very_unlike_sizes_are_drawn_each_on_its_own_scale(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(2), sizes=(1.0, 1000.0))
    _, page = written(tmp_path, result, dataset)
    assert "The shape as it came, each on its own scale." in said(page)
    renderer = ShapeRenderer(result, dataset, seed=0)
    for frame, shape in zip(renderer.frames, dataset.landmarks, strict=True):
        extent = np.ptp(frame.place(shape), axis=0)
        assert extent.max() > 0.4 * min(frame.width, frame.height)
        assert (extent <= [frame.width, frame.height]).all()


def test_shapes_that_are_not_registered_are_drawn_once(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(2, registration="none"))
    source, page = written(tmp_path, result, dataset, samples_per_group=2)
    assert "The shape as it came, over the mean shape of its cluster" in said(page)
    assert "none, shapes are compared where they lie" in said(page)
    drawn = re.findall(r'<figure class="sample"[^>]*>(.*?)<figcaption>', source, re.S)
    assert {len(dots(markup)) for markup in drawn} == {6}


def test_members_of_a_large_cluster_are_a_draw(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(1), landmarks=4, n=1500)
    source, page = written(tmp_path, result, dataset)
    (path,) = re.findall(r'<g class="members"><path d="(.*?)"', source)
    assert len(dots(path)) == 300 * 4
    assert "300 registered shapes of its 1 500, drawn at random" in said(page)
    assert "Mean shapes laid over each other" not in said(page)
    assert "Least certain" not in said(page)


@pytest.mark.parametrize("landmarks", [20, 60, 200, 900])
def test_many_landmarks_do_not_make_a_large_file(landmarks: int, tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(10), landmarks=landmarks, n=400)
    source, page = written(tmp_path, result, dataset)
    # Landmarks in no order, which no path makes shorter, are the worst case.
    assert len(source) < 1.5e6
    limited = re.search(r"With so many landmarks, each group shows (\d)", said(page))
    shown = len(page.all("figure", class_="sample"))
    assert shown == 10 * 4 * (6 if limited is None else int(limited[1]))
    assert (limited is None) == (landmarks <= 60)
    ellipses = {20: 20 * 2, 60: 60 * 2, 200: 200, 900: 0}[landmarks]
    assert len(page.all("ellipse")) == 10 * ellipses
    assert ("too many landmarks to draw how they vary" in said(page)) == (ellipses == 0)


def test_many_clusters_are_folded_up(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(60), n=240)
    source, page = written(tmp_path, result, dataset)
    assert len(page.all("details", class_="cluster")) == 60
    assert "With so many clusters, each group shows 4" in said(page)
    assert "laid over each other" not in said(page)
    assert len(source) < 1.5e6


def test_an_empty_cluster_is_sorted_last_and_has_no_members(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(3), empty=1)
    source, page = written(tmp_path, result, dataset)
    articles = {a["id"]: float(a["data-distance"]) for a in page.all("article")}
    assert min(articles, key=articles.__getitem__) == "cluster-1"
    assert "Empty: no shape is likeliest in it." in said(page)
    assert (
        "1 of 3 clusters is empty: ask for fewer; or there may be fewer different shapes"
        in said(page)
    )
    assert source.count('<g class="members">') == 2


def test_names_of_landmarks_are_short_or_told_on_pointing(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(1), landmarks=5)
    assert "landmark 4 standard deviations 0." in said(written(tmp_path, result, dataset)[1])
    short = dataclasses.replace(dataset, landmark_names=("A", "B", "C", "D", "E"))
    source, page = written(tmp_path, result, short)
    assert "landmark 4, E standard deviations" in said(page)
    assert ">E</text>" in source
    hostile = dataclasses.replace(dataset, landmark_names=HOSTILE, names=(*HOSTILE, *"a" * 55))
    source, page = written(tmp_path, result, hostile)
    assert ">4</text>" in source
    assert page.all("img", src="x") == []
    assert HOSTILE[0] in "".join(page.text)
    assert "\u202e" not in source


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    result, dataset, _ = made(ShapeKMeans(2))
    with pytest.raises(ValueError, match="the shapes that were fitted"):
        write_report(tmp_path / "r.html", result, dataset.take(range(5)))
    images = made_of_images(KMeans(2))[1]
    with pytest.raises(ValueError, match="this data set has images of shape"):
        write_report(tmp_path / "r.html", result, images)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_a_fit_and_its_predictions_are_reported(double: bool, tmp_path: Path) -> None:
    with jax.enable_x64(double):
        means = jax.random.normal(jax.random.key(0), (2, 7, 3))
        shapes, groups = simulated_shapes(means, 0.05, per_group=25, key=jax.random.key(1))
        dataset = LandmarkSet(
            np.asarray(shapes, np.float64),
            labels=np.asarray(groups, np.int64),
            label_names=("left", "right"),
        )
        fitted = ShapeKMeans(2, covariances="full", num_restarts=1).fit(
            dataset.landmarks, key=jax.random.key(0)
        )
        _, page = written(tmp_path, fitted, dataset)
        assert "50 shapes in 2 clusters" in said(page)
        few = dataset.take(range(20, 30))
        outcome = dataclasses.replace(fitted.outcome, assignment=fitted.predict(few.landmarks))
        predicted = dataclasses.replace(fitted, outcome=outcome)
        source, page = written(tmp_path, predicted, few)
        assert "10 shapes in 2 clusters" in said(page)
        assert len(page.all("figure", class_="sample")) == 10
        assert (
            sum(len(dots(p)) for p in re.findall(r'class="members"><path d="(.*?)"', source)) == 70
        )
        diffclust.save(tmp_path / "model", fitted)
        again, _ = written(tmp_path, diffclust.load(tmp_path / "model"), dataset)
        assert again == written(tmp_path, fitted, dataset)[0]
