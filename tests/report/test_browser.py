"""A report as a person meets it: opened in a real browser, on a desk and on a telephone."""

import base64
import io
import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.metrics.cluster import contingency_matrix

from diffclust.analysis import CommonStart
from diffclust.data import Dataset, load
from diffclust.metrics import scores
from diffclust.models import AffineInvariantKMeans, KMeans, Result
from diffclust.plotting import Film
from diffclust.prototypes import Clusters, Learned
from diffclust.report import write_report
from diffclust.solvers import Progress
from diffclust.solvers.result import Assignment, Outcome, Status

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

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
    actual = scores(dataset.labels, result.assignments)
    write_report(path, result, dataset, scores=actual, film=film, others=others)
    return path


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


def eventually(page: "Page", expression: str) -> None:
    """Waits until something holds; the policy lets Playwright's own waiting evaluate nothing."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(expression)


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
    result = np.array([[int(cell or 0) for cell in row] for row in cells])
    np.testing.assert_array_equal(result, expected)
    matched = [[int("match" in cell) for cell in re.findall("<td[^>]*>", row)] for row in rows]
    share = accuracy_of_matching(expected)
    assert np.sum(result * np.array(matched)) == share
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
        result = page.query_selector_all(shown)
        values = [sign * float(one.get_attribute(f"data-{key}") or "nan") for one in result]
        assert values == sorted(values)
        positions = [one.get_attribute("data-position") for one in result]
        assert len(set(positions)) == len(positions)
        assert set(positions) == set(before)
        stops = [one.get_attribute("tabindex") for one in page.query_selector_all(f"{shown} > svg")]
        assert stops == ["0", *["-1"] * (len(result) - 1)]
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_of_the_table_are_legible(
    browser: "Browser", report: Path, scheme: Literal["light", "dark"]
) -> None:
    page, _ = opened(browser, report, color_scheme=scheme)
    ink, ground = page.evaluate(
        "(() => { const cell = document.querySelector('.confusion tbody td');"
        " cell.style.setProperty('--share', '100%'); cell.style.transition = 'none';"
        " const pen = new OffscreenCanvas(1, 1).getContext('2d');"
        " const filled = (colour) => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); };"
        " const seen = () => [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);"
        " filled(getComputedStyle(document.body).backgroundColor);"
        " filled(getComputedStyle(cell).backgroundColor); const ground = seen();"
        " filled(getComputedStyle(cell).color); return [seen(), ground]; })()"
    )

    def luminance(colour: list[int]) -> float:
        share = np.array(colour) / 255
        linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(ink), luminance(ground)])
    # Web Content Accessibility Guidelines 2.2, 1.4.3.
    assert (high + 0.05) / (low + 0.05) >= 4.5
    assert luminance(ground) != pytest.approx(
        luminance([255] * 3 if scheme == "light" else [0] * 3)
    )


def test_printed_numbers_keep_the_ground_they_are_legible_on(
    browser: "Browser", report: Path
) -> None:
    page, _ = opened(browser, report, viewport={"width": 794, "height": 1000})
    page.emulate_media(media="print")
    cells = page.evaluate(
        "[...document.querySelectorAll('.confusion td, .card i, .legend i')]"
        ".map((one) => getComputedStyle(one).printColorAdjust)"
    )
    assert set(cells) == {"exact"}


def test_what_is_folded_up_is_printed(browser: "Browser", report: Path) -> None:
    page, wrong = opened(browser, report)
    assert page.query_selector_all("details")
    page.evaluate("addEventListener('beforeprint', () => count = folds().length)")
    page.evaluate("folds = () => document.querySelectorAll('details:not([open])')")
    before = page.evaluate("folds().length")
    page.pdf()
    assert (before, page.evaluate("count")) == (1, 0)
    assert page.evaluate("folds().length") == before
    assert wrong == []


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


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report of files that are larger than what was fitted, with ten members on a page."""
    monkeypatch.setattr("diffclust.report.members._MOST_ON_PAGE", 10)
    rng = np.random.default_rng(0)
    (tmp_path / "photographs").mkdir()
    for i in range(COUNT):
        pixels = rng.integers(256, size=(50, 50), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photographs/{i:02}.png")
    dataset = load(tmp_path / "photographs", size=SIDE)
    path = tmp_path / "run 1/report.html"
    write_report(path, made(AffineInvariantKMeans(CLUSTERS), 0), dataset)
    return path


def members_of(page: "Page", wrong: list[str], report: Path) -> "Locator":
    """The first cluster's members, after a press on the button that shows them."""
    box = page.locator(".everyone").first
    box.get_by_role("button").click()
    box.locator(".sample").first.wait_for()
    folder = report.with_name("report_files").as_uri()
    assert [text for text in wrong if not text.startswith(folder)] == []
    return box


@pytest.mark.parametrize("width", [360, 1280])
def test_every_member_can_be_shown(browser: "Browser", photographs: Path, width: int) -> None:
    page, wrong = opened(browser, photographs, viewport={"width": width, "height": 700})
    size = int(np.sum(made(AffineInvariantKMeans(CLUSTERS), 0).assignments == 0))
    assert 10 < size < 20
    assert page.get_by_role("button", name=f"Show all {size}\u00a0images").count() == 1
    box = members_of(page, wrong, photographs)
    assert box.locator(".sample").count() == 10
    first = box.locator(".sample").first.get_attribute("data-position")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    loaded = (
        "Promise.all([...document.querySelectorAll('.everyone image')].map((i) => {"
        " const one = new Image(); one.src = i.getAttribute('href');"
        " return one.decode().then(() => one.naturalWidth); }))"
    )
    assert page.evaluate(loaded) == [4 * SIDE] * 10
    box.get_by_role("button", name="Next page").click()
    eventually(page, f"document.querySelectorAll('.everyone .sample').length === {size - 10}")
    assert box.get_by_role("button").count() == 0
    box.locator("select").select_option(index=0)
    eventually(page, "document.querySelectorAll('.everyone .sample').length === 10")
    assert box.locator(".sample").first.get_attribute("data-position") == first
    page.check(".order input[value=certainty]")
    shown = box.locator(".sample").all()
    margins = [float(one.get_attribute("data-certainty") or "nan") for one in shown]
    assert margins == sorted(margins)
    assert box.locator(".bar .soft").inner_text() == "the least certain first, on each page"
    page.check(".order input[value=kind]")
    assert box.locator(".bar .soft").inner_text() == "nearest first"


def test_a_sample_is_shown_at_full_size(browser: "Browser", photographs: Path) -> None:
    page, wrong = opened(browser, photographs)
    box, dialog = members_of(page, wrong, photographs), page.locator("dialog")
    box.locator(".sample > svg").nth(9).focus()
    page.keyboard.press("Enter")
    picture = dialog.locator("img")
    picture.wait_for()
    eventually(page, "document.querySelector('dialog img').naturalWidth === 50")
    assert "cluster 0 · index " in dialog.locator("p").inner_text()
    # A picture of few pixels is enlarged, by a whole number.
    eventually(page, "document.querySelector('dialog img').width === 250")
    here = picture.get_attribute("src")
    # On to the next page, and back.
    page.keyboard.press("ArrowRight")
    eventually(page, f"document.querySelector('dialog img')?.src.endsWith('{here}') === false")
    assert box.locator("select").input_value().startswith("11 to")
    page.keyboard.press("ArrowLeft")
    eventually(page, f"document.querySelector('dialog img').src.endsWith('{here}')")
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    # A sample of the report itself: the original, and how it was aligned.
    page.locator(".group .sample > svg").first.click()
    eventually(page, "document.querySelector('dialog img').naturalWidth === 50")
    assert dialog.locator(".views > svg .grid").count() == 1
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="hidden")


def test_a_report_without_its_folder_says_so(browser: "Browser", photographs: Path) -> None:
    alone = photographs.rename(photographs.parent.parent / "sent.html")
    page, _ = opened(browser, alone)
    page.locator(".everyone button").first.click()
    page.get_by_text(
        "They are in the folder report_files, which is not beside this file"
    ).wait_for()
    page.locator(".group .sample > svg").first.click()
    page.locator("dialog .views > svg .grid").wait_for()
    eventually(page, "document.querySelector('dialog img') === null")


def test_one_cluster_alone_on_the_maps(browser: "Browser", report: Path) -> None:
    page, _ = opened(browser, report)
    button = page.locator(".legend button").nth(2)
    dim = "document.querySelectorAll('.maps .dim').length"
    button.click()
    # On both maps, with their numbers.
    assert page.evaluate(dim) == 4 * (CLUSTERS - 1)
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert page.evaluate(dim) == 0


def test_contents_lead_to_every_section(browser: "Browser", report: Path) -> None:
    page, _ = opened(browser, report, viewport={"width": 360, "height": 700})
    sections = page.eval_on_selector_all("main > section", "all => all.map((one) => '#' + one.id)")
    links = page.eval_on_selector_all("nav a", "all => all.map((one) => one.getAttribute('href'))")
    assert links == sections
    heights = page.eval_on_selector_all("nav a", "all => all.map((one) => one.offsetHeight)")
    assert min(heights) >= 40
    page.get_by_role("link", name="Clusters", exact=True).click()
    eventually(page, "scrollY > 1000")
    # They stay in sight.
    assert page.locator("nav").bounding_box()["y"] == 0
