"""The report of models that move prototypes: what of each image is shown, and in what words."""

import base64
import dataclasses
import io
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from diffclust.cli.summary import print_summary
from diffclust.data import Dataset
from diffclust.models import (
    AbstractGradientModel,
    DTIGaussianMixture,
    DTIKMeans,
    GaussianMixture,
    Result,
    Training,
    TransformationInvariantKMeans,
    warped_prototypes,
)
from diffclust.plotting import displayable
from diffclust.prototypes import GaussianImages
from diffclust.report.images import align_samples, has_grids
from diffclust.report.selection import certainties, select
from diffclust.solvers.result import Assignment, Outcome, Status
from tests.report.test_report import said, written

BRIEF = Training(steps=(100, 120, 50), batch_size=20)
LONGER = Training(steps=(100, 120, 60, 50), batch_size=20)
MODELS: dict[str, AbstractGradientModel] = {
    "dti-kmeans": DTIKMeans(3, transforms="col-tps", landmarks=(2, 2), training=LONGER),
    "dti-gmm": DTIGaussianMixture(3, transforms="aff-col", training=LONGER),
    "ti-kmeans": TransformationInvariantKMeans(3, transforms="proj", training=BRIEF),
    "gmm": GaussianMixture(3, training=Training(steps=(100, 60), batch_size=20)),
}
WINDOW = 50


def made(
    model: AbstractGradientModel, shape: tuple[int, int, int] = (8, 8, 1), n: int = 60
) -> tuple[Result, Dataset]:
    """A result as a fit would give it, without the fit."""
    rng = np.random.default_rng(0)
    k = model.num_clusters
    images = rng.uniform(0.1, 1, size=(n, *shape)).astype(np.float32)
    learned = model.init(jnp.asarray(images[:k]), jax.random.key(0))
    assert model.training.steps is not None
    counts = [-(-steps // WINDOW) for steps in model.training.steps]
    num_windows, phases = sum(counts), np.cumsum([0, *counts[:-1]]).astype(np.int32)
    mixture = isinstance(learned.clusters.prototype, GaussianImages)
    if mixture:
        deviation = jnp.asarray(rng.normal(size=(k, *shape)).astype(np.float32))
        learned = eqx.tree_at(lambda t: t.clusters.prototype.deviation, learned, deviation)
        learned = eqx.tree_at(lambda t: t.objective, learned, jnp.log(jnp.array([2.0, 1.0, 5.0])))
    shares = rng.dirichlet(np.full(k, 0.4), size=n).astype(np.float32)
    order = np.argsort(-shares, axis=1).astype(np.int32)
    sorted_shares = np.take_along_axis(shares, order.astype(np.int64), axis=1)
    if not mixture:
        shares = np.eye(k, dtype=np.float32)[order[:, 0]]
    params = rng.normal(scale=0.05, size=(n, model.energy(shape[2]).num_params))
    assignment = Assignment(
        clusters=order[:, 0],
        distances=rng.normal(-3.0 if mixture else 9.0, 1.0, size=n).astype(np.float32),
        margins=(np.log(sorted_shares[:, 0]) - np.log(sorted_shares[:, 1])).astype(np.float32),
        runners_up=order[:, 1],
        params=params.astype(np.float32),
    )
    losses = np.linspace(90.0, 60.0, num_windows + 1)
    outcome = Outcome(
        learned,
        assignment,
        tuple((losses - 75.0 if mixture else losses).tolist()),
        (61.0,),
        Status.MAX_PASSES,
        32,
        3.0,
        {"responsibilities": shares, "phases": phases},
        {"refills": 3.0, "moves": 1.0},
    )
    return Result(model, shape, outcome), Dataset(images, name="made")


def pixels(uri: str) -> np.ndarray:
    with Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))) as image:
        result = np.asarray(image)
    return result[..., None] if result.ndim == 2 else result


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(8, 8, 1), (6, 14, 3)], ids=["grey", "wide RGB"])
def test_every_sample_is_shown_with_what_its_prototype_became(
    name: str, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    model = MODELS[name]
    result, dataset = made(model, shape)
    _, page = written(tmp_path, result, dataset, samples_per_group=3)
    stages = [stage for stage in model.transforms.split("-") if stage]
    shown = 3 * 4 * 3 + bool(stages)  # one more explains how to read them
    assert len(page.all("figure", class_="sample")) == 3 * 4 * 3
    # The prototypes are there once, and each drawing shows its own.
    prototypes = 3 if stages else 0
    assert len(page.all("image")) == shown * (1 + len(stages)) + prototypes
    assert len(page.all("use")) == (shown if stages else 0)
    assert page.all("path", class_="grid") == []
    # One list of names for each group of samples, and one beside the explanation.
    assert len(page.all("div", class_="rows")) == (3 * 4 + 1 if stages else 0)
    text = said(page)
    for stage in stages:
        assert text.count(f" {stage} ") > 3 * 4
    assert ("aligns nothing" in text) == (not stages)
    assert "all steps were done" in text
    assert "Tiny clusters refilled 3\u00a0times" in " ".join(page.text)
    assert "Clusters split and others removed 1\u00a0time" in " ".join(page.text)
    for wrong in ("passes", "Images were not compared with prototypes"):
        assert wrong not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dti-kmeans", "found by DTI K-means."),
        ("dti-gmm", "found by a DTI Gaussian mixture."),
        ("ti-kmeans", "found by TI K-means."),
        ("gmm", "found by a Gaussian mixture."),
    ],
)
def test_words_are_those_of_the_method(name: str, words: str, tmp_path: Path) -> None:
    result, dataset = made(MODELS[name])
    _, page = written(tmp_path, result, dataset)
    text = said(page)
    mixture = name.endswith("gmm")
    assert words in text
    assert ("strided, " in text) == (name in ("dti-kmeans", "dti-gmm"))
    for word in ("mean −log density", "responsibility", "Likeliest", "mixture weight"):
        assert (word in text) == mixture
    for word in ("mean distance", "Nearest"):
        assert (word in text) != mixture
    assert "margin" in text


def test_the_pictures_are_the_prototype_after_each_transform_in_turn() -> None:
    result, dataset = made(MODELS["dti-gmm"])
    clusters, params = result.assignments, result.outcome.assignment.params
    samples = align_samples(result, dataset, [4, 7])
    for position in (4, 7):
        sample, one = samples[position], slice(position, position + 1)
        assert sample.cluster == clusters[position]
        np.testing.assert_array_equal(pixels(sample.picture), displayable(dataset.images[position]))
        assert len(sample.stages) == 2
        after = [
            warped_prototypes(result, clusters[one], params[one], transforms=number)[0]
            for number in (1, 2)
        ]
        for uri, image in zip(sample.stages, after, strict=True):
            np.testing.assert_array_equal(pixels(uri), displayable(image))
        assert (displayable(after[0]) != displayable(after[1])).any()


def test_params_of_zero_leave_the_prototype_as_it_is() -> None:
    result, dataset = made(MODELS["dti-kmeans"], (6, 10, 3))
    assignment = result.outcome.assignment
    still = dataclasses.replace(assignment, params=np.zeros_like(assignment.params))
    outcome = dataclasses.replace(result.outcome, assignment=still)
    result = dataclasses.replace(result, outcome=outcome)
    for position, sample in align_samples(result, dataset, range(5)).items():
        prototype = result.prototypes[result.assignments[position]]
        for uri in sample.stages:
            close = np.abs(pixels(uri).astype(int) - displayable(prototype).astype(int))
            assert close.max() <= 1


def test_a_mixture_shows_its_deviations_and_weights(tmp_path: Path) -> None:
    result, dataset = made(MODELS["gmm"])
    _, page = written(tmp_path, result, dataset)
    prototype = result.outcome.learned.clusters.prototype
    shown = [a for a in page.all("img") if a["alt"].startswith("Deviation of cluster")]
    assert len(shown) == 3
    for attributes, deviation in zip(shown, np.asarray(prototype.deviation), strict=True):
        stretched = displayable(np.abs(deviation), own_range=True)
        np.testing.assert_array_equal(pixels(attributes["src"]), stretched)
    text = said(page)
    actual = re.findall(r"mixture weight ([\d.]+)\s%", text)
    assert [float(value) for value in actual] == [25.0, 12.5, 62.5]


def test_the_least_certain_have_the_least_responsibility(tmp_path: Path) -> None:
    result, dataset = made(MODELS["dti-gmm"], n=90)
    shares = result.outcome.extras["responsibilities"]
    own = certainties(result)
    assert own is not None
    np.testing.assert_array_equal(own, shares.max(axis=1))
    for view in select(result, samples_per_group=5, seed=0):
        (unsure,) = [group for group in view.groups if group.kind == "uncertain"]
        members = np.flatnonzero(result.assignments == view.index)
        np.testing.assert_array_equal(own[unsure.positions], np.sort(own[members])[:5])
    _, page = written(tmp_path, result, dataset, samples_per_group=5)
    least = 100 * own[result.assignments == 0].min()
    assert f"{least:.1f}\u00a0%" in "".join(page.text)


def test_responsibilities_of_other_images_are_not_told(tmp_path: Path) -> None:
    result, dataset = made(MODELS["dti-gmm"])
    shares = result.outcome.extras["responsibilities"]
    for other in (shares[:30], shares[::-1]):
        extras = {**result.outcome.extras, "responsibilities": other}
        changed = dataclasses.replace(
            result, outcome=dataclasses.replace(result.outcome, extras=extras)
        )
        assert certainties(changed) is None
        _, page = written(tmp_path, changed, dataset)
        assert "responsibility" not in said(page)
        assert "margin" in said(page)


def test_moved_prototypes_have_no_grid_of_the_image() -> None:
    assert not has_grids(made(MODELS["ti-kmeans"])[0])


def test_an_empty_cluster_of_a_mixture_is_sorted_last(tmp_path: Path) -> None:
    result, dataset = made(MODELS["gmm"])
    assignment = result.outcome.assignment
    clusters = np.where(assignment.clusters == 1, 2, assignment.clusters).astype(np.int32)
    moved = dataclasses.replace(assignment, clusters=clusters)
    outcome = dataclasses.replace(result.outcome, assignment=moved)
    _, page = written(tmp_path, dataclasses.replace(result, outcome=outcome), dataset)
    articles: dict[str, dict[str, str]] = {a["id"]: a for a in page.all("article")}
    distances = {name: float(a["data-distance"]) for name, a in articles.items()}
    assert min(distances, key=distances.__getitem__) == "cluster-1"
    assert "Empty: no image is likeliest in it." in said(page)


@pytest.mark.slow
def test_large_images_do_not_make_a_large_file(tmp_path: Path) -> None:
    model = DTIKMeans(10, transforms="col-aff-tps", training=Training(steps=(9,) * 5, batch_size=9))
    result, dataset = made(model, (96, 72, 3), n=300)
    source, page = written(tmp_path, result, dataset)
    assert len(page.all("figure", class_="sample")) == 240
    # Noise, which no compression makes smaller, is the worst case.
    assert len(source) < 1.6e6


def test_curves_are_in_steps_with_marks_of_phases(tmp_path: Path) -> None:
    result, dataset = made(MODELS["dti-kmeans"])
    _, page = written(tmp_path, result, dataset)
    text = said(page)
    assert "steps 330 time" in text
    for mark in ("identity", "+col", "+tps", "lower rate", "the mean over at most 50"):
        assert mark in text
    lines = [a for a in page.all("line") if a.get("stroke-dasharray") == "2 3"]
    assert len(lines) == 4
    assert len(page.all("circle")) == len(result.history)


@pytest.mark.parametrize("name", ["dti-kmeans", "dti-gmm"])
def test_the_terminal_is_told_the_same(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result, dataset = made(MODELS[name])
    print_summary(str(tmp_path), result, dataset, result.summary())
    lines = capsys.readouterr().out.splitlines()
    measure = "-log density" if name == "dti-gmm" else "distance"
    assert lines[0].split(maxsplit=2)[2].strip() == f"mean {measure}"
    steps = sum(MODELS[name].training.steps or ())
    assert f" in 3 clusters, loss {result.loss:.6g} after {steps} steps, 3.0 s" in lines[4]
    assert lines[5] == "tiny clusters refilled 3 times, clusters split and others removed once"
    outcome = dataclasses.replace(result.outcome, status=Status.PREDICTED)
    print_summary(
        str(tmp_path), dataclasses.replace(result, outcome=outcome), dataset, result.summary()
    )
    out = capsys.readouterr().out
    assert f"summed {measure} " in out
    assert "steps" not in out
    assert "refilled" not in out
