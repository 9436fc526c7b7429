"""A report as a person meets it: opened in a real browser, on a desk and on a telephone."""

import base64
import io
import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics.cluster import contingency_matrix

from diffclust.analysis import CommonStart
from diffclust.data import Dataset
from diffclust.metrics import scores
from diffclust.models import AffineInvariantKMeans, KMeans, Result
from diffclust.plotting import Film
from diffclust.prototypes import Clusters, Learned
from diffclust.report import write_report
from diffclust.solvers import Progress
from diffclust.solvers.result import Assignment, Outcome, Status

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CLUSTERS, SIDE, COUNT = 4, 8, 60


def made(model: AffineInvariantKMeans | KMeans, seed: int) -> Result:
    """A result as a fit would give it, without the fit."""
    rng = np.random.default_rng(seed)
    clusters = rng.integers(CLUSTERS, size=COUNT).astype(np.int32)
    assignment = Assignment(
        clusters,
        rng.uniform(size=COUNT).astype(np.float32),
        rng.uniform(size=COUNT).astype(np.float32),
        ((clusters + 1) % CLUSTERS).astype(np.int32),
        rng.normal(scale=0.05, size=(COUNT, model.energy().num_params)).astype(np.float32),
    )
    prototypes = jnp.asarray(rng.uniform(size=(CLUSTERS, SIDE, SIDE, 1)).astype(np.float32))
    learned = Learned(Clusters(prototypes, jnp.zeros((CLUSTERS, len(model.penalty())))))
    outcome = Outcome(learned, assignment, (9.0, 6.5), (6.5,), Status.LOSS, 32, 7.0)
    return Result(model, (SIDE, SIDE, 1), outcome)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with all its sections, and file names that would break one that is careless."""
    rng = np.random.default_rng(0)
    images = rng.uniform(0.1, 1, size=(COUNT, SIDE, SIDE, 1)).astype(np.float32)
    dataset = Dataset(
        images,
        labels=rng.integers(3, size=COUNT),
        label_names=("class 2", "class 10", "<script>throw 1</script>"),
        paths=tuple(f"/data/<img src=x onerror=alert({i})>.png" for i in range(COUNT)),
        name="</title><script>throw 2</script>",
    )
    result, film = made(AffineInvariantKMeans(CLUSTERS), 0), Film()
    for number in range(6):
        prototype = jnp.full((CLUSTERS, SIDE, SIDE, 1), number / 6).at[:, 0].set(1.0)
        learned = Learned(Clusters(prototype, jnp.zeros((CLUSTERS, 0))))
        film(Progress("pass", 0, number, 1, 1, learned=learned))
    others = CommonStart(images[:CLUSTERS], np.arange(CLUSTERS), (made(KMeans(CLUSTERS), 1),))
    path = tmp_path_factory.mktemp("report") / "report.html"
    found = scores(dataset.labels, result.assignments)
    write_report(path, result, dataset, scores=found, film=film, others=others)
    return path


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    program = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if program is None:
        pytest.skip("no Chromium: install your system's chromium to try the report in it")
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=program, args=arguments)
        yield opened
        opened.close()


def opened(browser: "Browser", report: Path, **settings) -> tuple["Page", list[str]]:
    """The page, and everything that went wrong while it loaded."""
    page, wrong = browser.new_context(**settings).new_page(), []
    page.set_default_timeout(20_000)
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("data:", report.as_uri()))
            else wrong.append(request.url)
        ),
    )
    page.goto(report.as_uri())
    return page, wrong


def test_the_film_is_animated_and_its_stills_are_larger(report: Path) -> None:
    source = report.read_text("utf-8")
    film, stills = (
        re.search(rf'{name}="data:image/webp;base64,([^"]+)"', source)[1]
        for name in ("<img src", "srcset")
    )
    with Image.open(io.BytesIO(base64.b64decode(film))) as picture:
        # The prototypes of six passes, and those of the result.
        assert picture.n_frames == 7
        size = picture.size
        assert picture.convert("RGBA").getpixel((size[0] - 1, 0))[3] == 0
    with Image.open(io.BytesIO(base64.b64decode(stills))) as picture:
        assert picture.height > 3 * size[1]


def test_the_table_of_classes_is_scikit_learns(report: Path) -> None:
    table = report.read_text("utf-8").split('<table class="confusion">')[1].split("</table>")[0]
    axes, head, *rows = table.split("<tr>")[1:]
    assert ">cluster<" in axes
    assert head.startswith('<th class="axis">class</th>')
    order = [int(cluster) for cluster in re.findall(r"#cluster-(\d+)", head)]
    cells = [re.findall(r"<td[^>]*>(\d*)</td>", row) for row in rows]
    labels = np.random.default_rng(0)
    labels.uniform(0.1, 1, size=(COUNT, SIDE, SIDE, 1))
    classes = labels.integers(3, size=COUNT)
    clusters = made(AffineInvariantKMeans(CLUSTERS), 0).assignments
    expected = contingency_matrix(classes, clusters)[:, order]
    found = np.array([[int(cell or 0) for cell in row] for row in cells])
    np.testing.assert_array_equal(found, expected)
    matched = [[int("match" in cell) for cell in re.findall("<td[^>]*>", row)] for row in rows]
    share = accuracy_of_matching(expected)
    assert np.sum(found * np.array(matched)) == share
    # The matched clusters come first, in the order of their classes.
    np.testing.assert_array_equal(np.array(matched)[:, :3], np.eye(3))


def accuracy_of_matching(table: np.ndarray) -> int:
    """The best one-to-one match, by trying all of them."""
    columns = range(table.shape[1])
    return max(
        sum(int(table[row, column]) for row, column in enumerate(chosen))
        for chosen in itertools.permutations(columns, table.shape[0])
    )


def test_all_pictures_load_and_nothing_leaves_the_page(browser: "Browser", report: Path) -> None:
    page, wrong = opened(browser, report)
    sizes = page.evaluate(
        "Promise.all([...document.images].map((i) => i.decode().then(() => i)))"
        ".then((all) => all.map((i) => i.naturalWidth))"
    )
    assert len(sizes) > 3 * CLUSTERS
    assert min(sizes) > 0
    drawn = page.evaluate(
        "Promise.all([...document.querySelectorAll('image')].map((i) => { const one = new Image();"
        " one.src = i.getAttribute('href'); return one.decode().then(() => one.naturalWidth); }))"
    )
    assert len(drawn) > 50
    assert min(drawn) > 0
    sections = page.eval_on_selector_all("main > section", "all => all.map((one) => one.id)")
    expected = ["overview", "fit", "film", "starts", "confusion", "maps", "clusters"]
    assert sections == expected
    assert len(page.query_selector_all(".maps svg")) == 2
    # The policy holds: what is tried afterwards is refused.
    refused = "fetch('https://example.invalid/').then(() => false, () => true)"
    assert page.evaluate(refused) is True
    assert [text for text in wrong if "example.invalid" not in text] == []


def test_sorting_clusters_and_samples(browser: "Browser", report: Path) -> None:
    page, wrong = opened(browser, report)
    page.check("#overview .sort input[value=size]")
    sizes = page.eval_on_selector_all(".card", "all => all.map((one) => +one.dataset.size)")
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
    cluster = "#cluster-1 "
    shown = f"{cluster} .sample:visible"
    before = [one.get_attribute("data-position") for one in page.query_selector_all(shown)]
    keys = {"certainty": 1, "distance": -1}
    for key, sign in keys.items():
        page.check(f".order input[value={key}]")
        found = page.query_selector_all(shown)
        values = [sign * float(one.get_attribute(f"data-{key}") or "nan") for one in found]
        assert values == sorted(values)
        positions = [one.get_attribute("data-position") for one in found]
        assert len(set(positions)) == len(positions)
        assert set(positions) == set(before)
        caption = page.query_selector_all(f"{cluster} .every .sample")[0]
        assert caption.query_selector(".sure").is_visible() == (key == "certainty")
    page.check(".order input[value=label]")
    labels = [one.get_attribute("data-label") for one in page.query_selector_all(shown)]
    # As people count: 2 comes before 10.
    order = ["<script>throw 1</script>", "class 2", "class 10"]
    assert labels == sorted(labels, key=order.index)
    page.check(".order input[value=kind]")
    after = [one.get_attribute("data-position") for one in page.query_selector_all(shown)]
    assert after == before
    assert wrong == []


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_is_wider_than_the_screen(browser: "Browser", report: Path, width: int) -> None:
    page, wrong = opened(browser, report, viewport={"width": width, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.check(".order input[value=certainty]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert wrong == []


def test_light_and_dark(browser: "Browser", report: Path) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page, _ = opened(browser, report, color_scheme=scheme)
        colours[scheme] = page.evaluate(
            "[document.body, document.documentElement].map((one) => getComputedStyle(one))"
            ".map((style) => [style.backgroundColor, style.color])[0].map("
            "(text) => text.match(/[0-9]+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0))"
        )
    assert colours["light"][0] > 700 > 100 > colours["dark"][0]
    assert colours["light"][1] < 200 < 600 < colours["dark"][1]


def test_a_film_for_some_and_stills_for_others(browser: "Browser", report: Path) -> None:
    film = ".film img"
    for reduced, stands in (("no-preference", False), ("reduce", True)):
        page, _ = opened(browser, report, reduced_motion=reduced)
        still = (
            "document.querySelector('.film img').currentSrc === "
            "document.querySelector('.film source').srcset"
        )
        page.wait_for_selector(film)
        assert page.evaluate(still) == stands
        page.click("button.stills")
        page.wait_for_function(f"({still}) === {str(not stands).lower()}")
        page.click("button.stills")
        page.wait_for_function(f"({still}) === {str(stands).lower()}")
