"""The report: one file, whole and harmless, for every kind of result."""

import base64
import dataclasses
import io
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from PIL import Image

from diffclust import models
from diffclust.data import Dataset, load
from diffclust.energies import TransformedDistance
from diffclust.models import (
    AbstractModel,
    AbstractPrototypeModel,
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    DeformationInvariantSpectralClustering,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Result,
    ScatteringKMeans,
)
from diffclust.plotting import Film, Frame
from diffclust.prototypes import Clusters, Learned
from diffclust.report import sections, write_report
from diffclust.report.fit import _settings
from diffclust.report.images import align_samples
from diffclust.report.sections import film_section
from diffclust.report.selection import select, select_bridges
from diffclust.report.text import duration, escape, number
from diffclust.solvers.result import Assignment, Outcome, Status
from diffclust.transforms import AbstractTransform

HOSTILE = (
    "/data/\"quoted' <script>alert(1)</script>.png",
    "/data/new\nline\r\t&amp;.png",
    "/data/not-utf8-\udcff.png",
    "/data/turned-\u202egnp.png",
    '"><img src=x onerror=alert(1)>',
)
VOID = {"meta", "link", "input", "img", "br"}


class Page(HTMLParser):
    """Reads a page, refuses one whose elements are not closed in order, and keeps what it has."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} repeats an attribute"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)

    def all(self, tag: str, **attributes: str) -> list[dict[str, str]]:
        """Attributes of the elements of a kind; a class is given as `class_`."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]


def made(
    model: AbstractPrototypeModel,
    shape: tuple[int, int, int] = (8, 8, 1),
    n: int = 60,
    empty: int | None = None,
) -> tuple[Result, Dataset]:
    """A result as a fit would give it, without the fit."""
    rng = np.random.default_rng(0)
    k = model.num_clusters
    images = rng.uniform(0.1, 1, size=(n, *shape)).astype(np.float32)
    clusters = rng.integers(k, size=n).astype(np.int32)
    if empty is not None:
        clusters[clusters == empty] = (empty + 1) % k
    single = k == 1
    assignment = Assignment(
        clusters=clusters,
        distances=rng.uniform(size=n).astype(np.float32),
        margins=np.full(n, np.inf, np.float32) if single else rng.uniform(size=n).astype("f4"),
        runners_up=np.full(n, -1, np.int32) if single else ((clusters + 1) % k).astype(np.int32),
        params=rng.normal(scale=0.05, size=(n, model.energy().num_params)).astype(np.float32),
    )
    prototypes = rng.uniform(size=(k, *shape)).astype(np.float32)
    learned = Learned(Clusters(jnp.asarray(prototypes), jnp.zeros((k, len(model.penalty())))))
    outcome = Outcome(learned, assignment, (9.0, 7.0, 6.5), (6.6, 6.9), Status.LOSS, 32, 75.0)
    return Result(model, shape, outcome), Dataset(images, name="made")


def written(folder: Path, result: Result, dataset: Dataset, **options) -> tuple[str, Page]:
    write_report(folder / "report.html", result, dataset, **{"map_samples": 0, **options})
    source = (folder / "report.html").read_text("utf-8")
    page = Page(source)
    assert_self_contained(source, page)
    return source, page


def assert_self_contained(source: str, page: Page) -> None:
    assert not re.search(r"https?:(?!//www\.w3\.org/2000/svg\")", source)
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    counts = Counter(a["id"] for _, a in page.elements if "id" in a)
    assert max(counts.values()) == 1
    links = [a[name] for _, a in page.elements for name in ("href", "src") if name in a]
    pictures = [link for link in links if not link.startswith("#")]
    assert pictures
    for link in set(links) - set(pictures):
        assert link[1:] in ids, f"{link} leads nowhere"
    for link in pictures:
        head, _, data = link.partition(",")
        assert head == "data:image/png;base64"
        with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as picture:
            assert picture.format == "PNG"
            picture.load()
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert len(page.all("script")) == 1


def said(page: Page) -> str:
    return " ".join(" ".join(page.text).split())


MODELS = {
    "kmeans": KMeans(4),
    "affine": AffineInvariantKMeans(4),
    "tps": DeformationInvariantKMeans(4, landmarks=(3, 3)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(8, 8, 1), (6, 14, 3)], ids=["grey", "wide RGB"])
def test_report_shows_prototypes_and_samples(
    name: str, shape: tuple[int, int, int], tmp_path: Path
) -> None:
    result, dataset = made(MODELS[name], shape)
    _, page = written(tmp_path, result, dataset, seed=17, title="A <title>", samples_per_group=3)
    assert len(page.all("a", class_="card")) == 4
    assert len(page.all("article", class_="cluster")) == 4
    assert len(page.all("figure", class_="sample")) == 4 * 4 * 3
    # The image, and where the method aligns, the aligned one and the grid over the image.
    aligned = name != "kmeans"
    shown = 4 * 4 * 3 + aligned  # one more explains how to read them
    assert len(page.all("image")) == shown * (2 if aligned else 1)
    assert len(page.all("path", class_="grid")) == (shown if aligned else 0)
    text = said(page)
    assert ("It aligns nothing" in text) == (not aligned)
    for fact in (
        "A <title>",
        "17",
        "1 min 15 s",
        "the loss fell by less than the tolerance",
        "6.5",
    ):
        assert fact in text
    assert "labels" not in text


def test_samples_are_the_ones_they_are_said_to_be() -> None:
    result, _ = made(KMeans(3), n=90)
    views = select(result, samples_per_group=5, seed=0)
    assert sum(view.size for view in views) == 90
    for view in views:
        members = np.flatnonzero(result.assignments == view.index)
        groups = {group.kind: group.positions for group in view.groups}
        assert set(groups) == {"nearest", "farthest", "random", "uncertain"}
        for positions in groups.values():
            assert len(set(positions.tolist())) == 5
            assert set(positions) <= set(members)
        ordered = np.sort(result.distances[members])
        np.testing.assert_array_equal(result.distances[groups["nearest"]], ordered[:5])
        np.testing.assert_array_equal(result.distances[groups["farthest"]], ordered[::-1][:5])
        np.testing.assert_array_equal(
            result.margins[groups["uncertain"]], np.sort(result.margins[members])[:5]
        )
        np.testing.assert_allclose(view.mean_distance, ordered.mean(), rtol=1e-6)


def test_another_number_of_samples_finds_its_programs_compiled() -> None:
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: events.append(event)
    )
    compilation = "/jax/core/compile/backend_compile_duration"
    result, dataset = made(AffineInvariantKMeans(4), (9, 7, 1))  # a shape of no other test
    few = align_samples(result, dataset, range(10))
    assert compilation in events
    events.clear()
    more = align_samples(result, dataset, range(13))
    assert compilation not in events
    assert list(more) == list(range(13))
    assert few == {position: more[position] for position in range(10)}


def test_random_samples_follow_the_seed(tmp_path: Path) -> None:
    result, dataset = made(KMeans(2))
    first, _ = written(tmp_path, result, dataset, seed=1)
    again, _ = written(tmp_path, result, dataset, seed=1)
    other, _ = written(tmp_path, result, dataset, seed=2)
    assert first == again
    assert first.replace("<dd>1</dd>", "") != other.replace("<dd>2</dd>", "")


def test_scores_and_classes_are_shown_with_what_they_were_used_for(tmp_path: Path) -> None:
    result, dataset = made(KMeans(2), n=30)
    labels = np.arange(30) % 7
    names = ("<b>", *"bcdefg")
    dataset = dataclasses.replace(dataset, labels=labels, label_names=names)
    scores = {"acc": 0.9351, "nmi": 0.5, "ari": -0.012}
    _, page = written(tmp_path, result, dataset, scores=scores)
    text = said(page)
    for fact in (
        "0.935",
        "0.500",
        "−0.012",
        "accuracy, NMI and ARI only",
        "Classes:",
        "and 2 more",
    ):
        assert fact in text
    assert "<b>" in page.text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    result, dataset = made(KMeans(1), n=len(HOSTILE))
    dataset = dataclasses.replace(
        dataset,
        paths=HOSTILE,
        labels=np.arange(len(HOSTILE)),
        label_names=HOSTILE,
        name=HOSTILE[4],
    )
    source, page = written(tmp_path, result, dataset, scores={HOSTILE[0]: 0.5})
    assert page.all("img", src="x") == []
    text = "".join(page.text)
    assert HOSTILE[0] in text
    assert "/data/new\\nline\\r\\t&amp;.png" in text
    assert "\\udcff" in text
    assert "\u202e" not in source


def test_index_is_that_of_the_source(tmp_path: Path) -> None:
    result, dataset = made(KMeans(1), n=5)
    dataset = dataclasses.replace(dataset, indices=np.array([7, 70, 700, 7000, 70000]))
    _, page = written(tmp_path, result, dataset)
    assert "index 70000" in said(page)


def test_one_cluster_has_no_margins(tmp_path: Path) -> None:
    result, dataset = made(DeformationInvariantKMeans(1, landmarks=(2, 2)))
    _, page = written(tmp_path, result, dataset)
    text = said(page)
    assert "Least certain" not in text
    assert "∞" not in text
    assert "Sort" not in text
    assert "margin" not in text


def test_empty_and_small_clusters_are_said_to_be(tmp_path: Path) -> None:
    result, dataset = made(AffineInvariantKMeans(4), n=12, empty=2)
    _, page = written(tmp_path, result, dataset, samples_per_group=12)
    text = said(page)
    assert "no image is nearest to this prototype" in text
    assert "All images" in text
    assert len(page.all("figure", class_="sample")) == 12
    (empty,) = page.all("article", id="cluster-2")
    assert (empty["data-size"], empty["data-distance"]) == ("0", "-1")


def test_many_clusters_are_folded_up(tmp_path: Path) -> None:
    result, dataset = made(KMeans(200), n=2000)
    source, page = written(tmp_path, result, dataset)
    assert len(page.all("details", class_="cluster")) == 200
    assert not [a for a in page.all("details", class_="cluster") if "open" in a]
    assert "each group shows 1" in said(page)
    assert len(source) < 3e6


@pytest.mark.parametrize("channels", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_large_images_do_not_make_a_large_file(channels: int, tmp_path: Path) -> None:
    result, dataset = made(AffineInvariantKMeans(10), (120, 90, channels), n=300)
    source, page = written(tmp_path, result, dataset)
    assert len(page.all("figure", class_="sample")) == 240
    # Noise, which no compression makes smaller, is the worst case.
    assert len(source) < 1.5e6


def test_small_images_are_kept_pixel_for_pixel(tmp_path: Path) -> None:
    result, dataset = made(KMeans(1), n=1)
    _, page = written(tmp_path, result, dataset)
    (image,) = page.all("image")
    with Image.open(io.BytesIO(base64.b64decode(image["href"].split(",")[1]))) as picture:
        np.testing.assert_array_equal(
            np.asarray(picture), np.round(255 * dataset.images[0, :, :, 0]).astype(np.uint8)
        )


class Brightness(AbstractTransform):
    """A transform that is no map of coordinates."""

    @property
    def num_params(self) -> int:
        return 1

    @property
    def deformation_terms(self) -> tuple[str, ...]:
        return ("brightness",)

    def deformation(self, params):
        return params**2

    def bind(self, height, width):
        return lambda params, image: image * (1 + params[0])

    def bind_variance(self, height, width):
        return lambda params, variance: variance * (1 + params[0]) ** 2


def test_alignment_without_a_map_has_no_grid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        KMeans, "energy", lambda self, channels=1: TransformedDistance(Brightness())
    )
    result, dataset = made(KMeans(2))
    _, page = written(tmp_path, result, dataset, samples_per_group=2)
    assert len(page.all("image")) == 2 * (2 * 4 * 2 + 1)
    assert page.all("path", class_="grid") == []


EIGENVALUES = np.array([1.0, 0.98, 0.97, 0.96, 0.8, 0.79, 0.78])


def cut(
    model: AbstractModel,
    extras: dict[str, np.ndarray],
    figures: dict[str, float] | None = None,
    n: int = 60,
) -> tuple[Result, Dataset]:
    """A result as a method gives it that makes prototypes of finished clusters."""
    result, dataset = made(DeformationInvariantKMeans(model.num_clusters), n=n)
    outcome = dataclasses.replace(
        result.outcome,
        history=(0.625,),
        restarts=(0.625,),
        status=Status.SOLVED,
        extras=extras,
        figures=figures or {},
    )
    return dataclasses.replace(result, model=model, outcome=outcome), dataset


def bridges_of(result: Result, most: int) -> np.ndarray:
    """Pairs of samples in different clusters."""
    clusters = result.assignments
    every = [(i, i + 1) for i in range(0, len(clusters) - 1, 2) if clusters[i] != clusters[i + 1]]
    return np.array(every[:most], np.int32).reshape(-1, 2)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ProjectedScatteringSpectralClustering(4, register="none"), "PSSC"),
        (
            DeformationInvariantSpectralClustering(4, register="none"),
            "deformation-invariant spectral clustering",
        ),
    ],
    ids=["pssc", "di-spectral"],
)
def test_a_cut_is_told_by_its_eigenvalues(model: AbstractModel, name: str, tmp_path: Path) -> None:
    figures = {"eigengap": 0.16, "stability": 0.875, "least_stability": 0.75, "eigenvectors": 9}
    result, dataset = cut(model, {"eigenvalues": EIGENVALUES}, figures)
    _, page = written(tmp_path, result, dataset, samples_per_group=2)
    text = said(page)
    for fact in (
        f"found by {name}.",
        "normalised cut 0.6250",
        "Leading eigenvalues of the graph",
        "after the first 4, speaks for 4 clusters",
        "0.1600, from eigenvalue 4 to the next",
        "0.875: how alike these clusters are and those of each averaged graph alone",
        "The least is 0.750.",
        "9, more than clusters, and weighted",
        "with the distance in the spectral embedding",
        "Images were not compared with prototypes",
        "centre in the spectral embedding",
    ):
        assert fact in text, fact
    for wrong in ("restart", "Loss", "loss", "passes", "what is compared", "Stopped because"):
        assert wrong not in text.replace("num_restarts", ""), wrong
    assert len(page.all("circle")) == len(EIGENVALUES)
    assert len(page.all("line", **{"stroke-dasharray": "4 4"})) == 1
    # The alignments to the prototypes are shown as ever.
    assert len(page.all("path", class_="grid")) == 4 * 4 * 2 + 1


def test_local_contrast_is_shown_where_features_are_taken_of_it(tmp_path: Path) -> None:
    pictures = []
    for contrast in ("none", "local"):
        model = ProjectedScatteringSpectralClustering(4, register="none", contrast=contrast)
        result, dataset = cut(model, {"eigenvalues": EIGENVALUES}, {})
        _, page = written(tmp_path, result, dataset, samples_per_group=2)
        assert ("Its local contrast" in said(page)) == (contrast == "local")
        pictures.append(len({image["href"] for image in page.all("image")}))
    shown = len({image["id"] for image in page.all("image") if image.get("id")})
    assert pictures[0] < pictures[1] <= pictures[0] + shown


def test_an_eigengap_that_is_not_known_is_not_told(tmp_path: Path) -> None:
    result, dataset = cut(
        ProjectedScatteringSpectralClustering(4, register="none"),
        {"eigenvalues": EIGENVALUES[:4]},
        {"eigengap": 0.0},
    )
    _, page = written(tmp_path, result, dataset)
    text = said(page)
    assert "Leading eigenvalues" in text
    for unknown in ("Eigengap", "Stability", "dashed line"):
        assert unknown not in text
    assert not [a for a in page.all("line") if "stroke-dasharray" in a]


@pytest.mark.parametrize(
    ("model", "history", "is_told"),
    [
        (KMeans(3), (9.0, 7.0, 8.0, 6.5), True),
        (KMeans(3), (9.0, 7.0, 6.8, 6.5), False),
        (KMeans(3, split_merge=False), (9.0, 7.0, 8.0, 6.5), False),
        (AffineInvariantKMeans(3, penalty_rounds=1), (9.0, 7.0, 8.0, 6.5), False),
    ],
)
def test_losses_that_rise_by_moves_are_explained(
    model: AbstractPrototypeModel, history: tuple[float, ...], is_told: bool, tmp_path: Path
) -> None:
    result, dataset = made(model)
    outcome = dataclasses.replace(result.outcome, history=history)
    _, page = written(tmp_path, dataclasses.replace(result, outcome=outcome), dataset)
    assert ("Where the loss rises, a cluster was split in two" in said(page)) == is_told


def test_of_restarts_that_differ_by_rounding_the_first_is_said_to_be_kept(tmp_path: Path) -> None:
    result, dataset = made(KMeans(3))
    outcome = dataclasses.replace(result.outcome, restarts=(7.0, 6.50001, 6.5))
    _, page = written(tmp_path, dataclasses.replace(result, outcome=outcome), dataset)
    assert "3 restarts 7.000 6.500 (kept) 6.500 The one of least" in said(page)


def test_a_single_run_on_coarser_images_says_so(tmp_path: Path) -> None:
    result, dataset = made(AffineInvariantKMeans(3), (28, 28, 1))
    outcome = dataclasses.replace(result.outcome, restarts=(6.5,))
    _, page = written(tmp_path, dataclasses.replace(result, outcome=outcome), dataset)
    assert "One run, so there are no restarts to choose from. It began on images 2 times" in said(
        page
    )


def test_kmeans_in_feature_space_has_no_curve(tmp_path: Path) -> None:
    result, dataset = cut(ScatteringKMeans(4), {"centres": np.zeros((4, 2))})
    _, page = written(tmp_path, result, dataset)
    text = said(page)
    assert "loss 0.6250" in text
    assert "K-means in scattering space" in text
    assert "with the distance in the feature space" in text
    assert page.all("circle") == []
    for wrong in ("Loss after each pass", "One run", "eigenvalue", "yet in different clusters"):
        assert wrong not in text


def test_bridges_are_pairs_with_their_clusters_and_classes(tmp_path: Path) -> None:
    model = DeformationInvariantSpectralClustering(4, register="none")
    result, dataset = cut(model, {"eigenvalues": EIGENVALUES})
    pairs = bridges_of(result, most=5)
    extras = {"eigenvalues": EIGENVALUES, "bridges": pairs}
    outcome = dataclasses.replace(result.outcome, extras=extras)
    result = dataclasses.replace(result, outcome=outcome)
    labels = np.arange(len(dataset)) % 3
    dataset = dataclasses.replace(dataset, labels=labels, label_names=("<i>", "b", "c"))
    source, page = written(tmp_path, result, dataset, samples_per_group=2)
    assert "its cluster and its class" in said(page)
    section = source.split('<section id="bridges">')[1].split("</section>")[0]
    cards = section.split("<li>")[1:]
    assert len(cards) == len(pairs) == 5
    for card, pair in zip(cards, pairs.tolist(), strict=True):
        actual = re.findall(r"<title>index (\d+)\n.*?#cluster-(\d+).*?>class (.*?)<", card, re.S)
        # The lower cluster stands on the left.
        assert [int(cluster) for _, cluster, _ in actual] == sorted(result.assignments[pair])
        assert sorted(int(index) for index, _, _ in actual) == sorted(pair)
        for index, cluster, label in actual:
            assert int(cluster) == result.assignments[int(index)]
            assert label == ("&lt;i&gt;", "b", "c")[labels[int(index)]]
    without = dataclasses.replace(dataset, labels=None, label_names=None)
    assert "its class" not in said(written(tmp_path, result, without)[1])


@pytest.mark.parametrize("extras", [{}, {"bridges": np.empty((0, 2), np.int32)}])
def test_no_bridges_no_section(extras: dict[str, np.ndarray], tmp_path: Path) -> None:
    model = ProjectedScatteringSpectralClustering(4, register="none")
    result, dataset = cut(model, {"eigenvalues": EIGENVALUES, **extras})
    _, page = written(tmp_path, result, dataset)
    assert page.all("section", id="bridges") == []
    assert page.all("ol", class_="bridges") == []


def test_only_the_strongest_bridges_are_shown() -> None:
    result, _ = cut(ProjectedScatteringSpectralClustering(4, register="none"), {}, n=100)
    pairs = bridges_of(result, most=24)
    assert len(pairs) == 24
    outcome = dataclasses.replace(result.outcome, extras={"bridges": pairs})
    chosen = select_bridges(dataclasses.replace(result, outcome=outcome))
    assert [sorted(pair) for pair in chosen] == pairs[:12].tolist()


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    result, dataset = made(KMeans(2))
    with pytest.raises(ValueError, match="images that were fitted"):
        write_report(tmp_path / "r.html", result, dataset.take(range(5)))
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=r"needs a data set|dataset"):
        write_report(tmp_path / "r.html", result, dataset.images)
    with pytest.raises(ValueError, match="samples_per_group must be at least 1"):
        write_report(tmp_path / "r.html", result, dataset, samples_per_group=0)
    with pytest.raises(ValueError, match="members_bytes must be at least 0"):
        write_report(tmp_path / "r.html", result, dataset, members_bytes=-1)
    assert list(tmp_path.iterdir()) == []


def test_texts() -> None:
    assert escape("<a href=\"x\" id='y'>&") == "&lt;a href=&quot;x&quot; id=&#x27;y&#x27;&gt;&amp;"
    values = (0.1, 0.012345, 12.0, 999.9, 12345.6, -0.5, float("inf"), float("nan"))
    assert [number(value) for value in values] == [
        "0.1000",
        "0.01235",
        "12.00",
        "999.9",
        "12\u202f346",
        "−0.5000",
        "∞",
        "–",
    ]
    assert [duration(s) for s in (0.51, 59.94, 75.0, 3600.0, 7505.0)] == [
        "0.5 s",
        "59.9 s",
        "1 min 15 s",
        "1 h 0 min",
        "2 h 5 min",
    ]


def test_recordings_have_axes_and_can_be_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile = pytest.importorskip("soundfile")
    random = np.random.default_rng(0)
    for i in range(12):
        wave = np.sin((0.2 + 0.4 * (i % 2)) * np.arange(3200))
        soundfile.write(tmp_path / f"{i:02}.wav", wave * random.uniform(0.3, 0.5, 3200), 8000)
    dataset = load(tmp_path)
    model = KMeans(2, num_restarts=1, max_passes=3, split_merge=False)
    result = model.fit(dataset.images, key=jax.random.key(0))
    write_report(tmp_path / "all.html", result, dataset, map_samples=0)
    text = (tmp_path / "all.html").read_text("utf-8")
    page, seen = Page(text), " ".join(Page(text).text)
    players = [about for tag, about in page.elements if tag == "audio"]
    assert len(players) == 12
    assert "12 of these 12 recordings can be played" in seen
    sound, rate = soundfile.read(io.BytesIO(base64.b64decode(players[0]["src"].split(",")[1])))
    assert (len(sound), rate) == (3200, 8000)
    assert "12\u00a0recordings in 2\u00a0clusters" in seen
    assert {"2 kHz", "0.4 s"} <= set(page.text)
    assert "8 kHz" not in page.text
    assert not [text for text in page.text if "images" in text]
    monkeypatch.setattr("diffclust.report.sounds._MOST_CHARACTERS", 30_000)
    write_report(tmp_path / "few.html", result, dataset, map_samples=0)
    text = (tmp_path / "few.html").read_text("utf-8")
    assert 0 < text.count("<audio") < 12
    assert "a page holds 0.03 MB of sound" in text


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_settings_say_what_was_used(name: str) -> None:
    """None is Python, and tells nobody which number was taken."""
    model = models.MODELS[name].from_settings({"num_clusters": 3})
    shape = {"shape": (5, 2), "series": (20, 1)}.get(model.descriptor.sample_kind, (32, 32, 1))
    count, none = 200, np.zeros(200, np.int32)
    assignment = Assignment(none, none * 1.0, none * 1.0, none, np.zeros((count, 0)))
    learned = Learned(Clusters(jnp.zeros((3, 2)), jnp.zeros((3, 0))))
    outcome = Outcome(learned, assignment, (1.0,), (1.0,), Status.SOLVED, 16)
    used = _settings(Result(model, shape, outcome))
    assert used.keys() == model.settings().keys()
    assert None not in used.values()
    for setting, value in model.settings().items():
        assert value is None or setting == "mask" or used[setting] == value
    expected = {"num_scales": 3, "num_candidates": 15, "batch_size": 128, "refill_every": 50}
    for setting in expected.keys() & used.keys():
        if model.settings()[setting] is None:
            assert used[setting] == expected[setting]


class Recorded(Film):
    """Four moments of so many prototypes."""

    def __init__(self, count: int) -> None:
        super().__init__()
        pictures = np.random.default_rng(0).integers(0, 255, (count, 4, 4, 1), np.uint8)
        self.recorded = tuple(Frame(done, pictures) for done in range(4))

    def frames(self, result: models.Result) -> tuple[Frame, ...]:
        del result
        return self.recorded


@pytest.mark.parametrize("count", [3, 300])
def test_a_film_is_no_larger_than_a_picture_may_be(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).uniform(size=(4, 2, 2, 1))
    result = KMeans(2, num_restarts=1, max_passes=1).fit(images, key=jax.random.key(0))
    assert 'class="film"' in film_section(result, Recorded(count))
    monkeypatch.setattr(sections, "LARGEST_WEBP", 400)
    assert film_section(result, Recorded(count)) == ""


def test_matches_count_what_the_fit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((8, 3, 3, 1), np.float32)
    images[4:] = 1.0
    images[:, 0, 0, 0] = np.linspace(0.1, 0.2, 8)
    # Those that are labelled otherwise weigh nothing.
    dataset = Dataset(images, labels=np.array([0, 0, 0, 1, 1, 1, 1, 0]), label_names=("a", "b"))
    weight = np.array([1, 1, 1, 0, 1, 1, 1, 0])
    model = KMeans(2, num_restarts=1, split_merge=False)
    key = jax.random.key(0)
    weighed = model.fit(images, key=key, sample_weight=weight)
    assert "6 of 6\N{NO-BREAK SPACE}images" in sections.confusion_table(weighed, dataset)
    assert "6 of 8\N{NO-BREAK SPACE}images" in sections.confusion_table(
        model.fit(images, key=key), dataset
    )
    monkeypatch.setattr(sections, "_MOST_COLUMNS", 1)
    assert "at most 40 classes and 1 clusters; there are 2 and 2." in sections.confusion_table(
        weighed, dataset
    )
