"""The page of a review as a person meets it: in a real browser, on a desk and on a telephone."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from diffclust.review.server import ReviewServer
from tests.review.made import COUNT, EVIL, fitted, reviewer_of
from tests.review.webdriver import Browser, browser, programs


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program, driver = programs()
    if program is None:
        pytest.skip("no Chromium: install your system's chromium to try the page in it")
    if driver is None:
        pytest.skip("no chromedriver: install your system's to try the page in Chromium")
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def result_and_data() -> tuple:
    return fitted()


@pytest.fixture
def page(chromium: Browser, result_and_data: tuple, tmp_path: Path) -> Iterator[Browser]:
    """The page, opened by its address, on a desk."""
    with ReviewServer(reviewer_of(*result_and_data, tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        chromium.emulate(1280, 900)
        chromium.open(server.address)
        chromium.wait(lambda: chromium.count(".sample"))
        yield chromium
        chromium.open("about:blank")
        server.shutdown()
        thread.join()


def ids(page: Browser, selector: str = ".sample") -> list[int]:
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => +one.dataset.sample)"
    return page.run(script, selector)


def sizes(page: Browser) -> dict[str, int]:
    """Number of samples by the name of the cluster, as the list shows them."""
    result = page.run(
        "return [...document.querySelectorAll('.cluster-card')].map((one) =>"
        " [one.querySelector('b').textContent, parseInt(one.lastChild.lastChild.textContent)])"
    )
    return dict(result)


def test_a_whole_review(page: Browser, tmp_path: Path) -> None:
    before = sizes(page)
    assert sum(before.values()) == COUNT
    assert page.run("return location.pathname + location.search") == "/"
    # A name is text, whatever it looks like.
    name = "<img src=x onerror=document.title='broken'>"
    page.type("#name", f"{name}\ue007")  # and the Enter key
    page.wait_for("#message", "Saved")
    page.wait_for("h2", name)
    page.click(".cluster-card:nth-child(2)")
    page.wait_for("h2", "Cluster 1")
    # Two samples are moved to a new cluster, and one of them is doubtful.
    first, _, third, *_ = ids(page)
    page.click(".sample:nth-child(1)")
    page.click(".sample:nth-child(3)")
    assert ids(page, "[aria-pressed=true]") == [first, third]
    page.wait_for("#actions", "2 images selected")
    page.choose("#move", "a new cluster")
    page.wait_for("#message", "New: Cluster 3, 2 images")
    assert sizes(page) == {
        name: before["Cluster 0"],
        "Cluster 1": before["Cluster 1"] - 2,
        "Cluster 2": before["Cluster 2"],
        "Cluster 3": 2,
    }
    page.click("[data-cluster='3']")
    page.wait_for("h2", "Cluster 3")
    assert set(ids(page)) == {first, third}
    page.click(f"[data-sample='{third}']")
    page.click("#doubtful")
    page.wait_for(".cluster-card", "Doubtful")
    assert ids(page, ".sample.doubtful") == [third]
    # The new cluster goes into the first one; undone, all is as it was.
    page.choose("#merge", name[:5])
    page.wait_for("#message", "is merged into")
    assert sizes(page)[name] == before["Cluster 0"] + 2
    page.click("[data-cluster='1']")
    page.wait_for("h2", "Cluster 1")
    page.click("#split")
    page.wait_for("#message", "is split")
    assert sum(sizes(page).values()) == COUNT + 1  # the doubtful one counts twice
    for undone in ("move", "merge 3", "mark 1", "move 2", "name"):
        page.click("#undo")
        page.wait_for("#message", f"Undone: {undone}")
    assert sizes(page) == before
    assert page.run("return document.getElementById('undo').disabled")
    assert page.run("return document.title") == "<b>run</b>: diffclust review"
    assert page.errors() == []
    assert len(list(tmp_path.iterdir())) == 1


def test_more_like_one_and_exports(page: Browser) -> None:
    page.click(".sample:nth-child(2)")
    chosen = ids(page, "[aria-pressed=true]")
    page.click("#like")
    page.wait_for("h2", "Most like")
    assert ids(page)[:1] == chosen
    assert len(ids(page)) == COUNT
    assert "pixels" in page.text("#about")
    assert "Cluster" in page.text(".sample span")
    page.click("#back")
    page.wait_for("h2", "Cluster 0")
    page.choose("#export", "Names")
    page.wait_for("#message", "Written:")
    assert page.errors() == []


def test_evil_names_of_files_are_text(page: Browser) -> None:
    page.click("[data-cluster='0']")
    titles = []
    for cluster in range(3):
        page.click(f"[data-cluster='{cluster}']")
        page.wait_for("h2", f"Cluster {cluster}")
        titles += page.run("return [...document.querySelectorAll('.sample')].map((x) => x.title)")
    assert EVIL in titles
    assert page.run("return document.title") == "<b>run</b>: diffclust review"
    assert page.count("h1 b") == 0


def test_a_stale_page_says_so_and_shows_what_is_there(page: Browser) -> None:
    page.run(
        "fetch('edit', {method: 'POST', headers: {'Content-Type': 'application/json'}, body:"
        " JSON.stringify({revision: 0, edit: {kind: 'name', cluster: 2, name: 'elsewhere'}})})"
    )
    page.wait(
        lambda: page.run("return fetch('state').then((x) => x.json()).then((x) => x.revision)") == 1
    )
    page.type("#name", "mine\ue007")
    page.wait_for("#message", "changed elsewhere")
    page.wait_for("#clusters", "elsewhere")
    assert "mine" not in page.text("#clusters")
    page.type("#name", "mine\ue007")
    page.wait_for("#clusters", "mine")


def test_keys_and_ranges(page: Browser) -> None:
    page.click(".sample:nth-child(2)")
    page.run(
        "document.querySelector('.sample:nth-child(5)').dispatchEvent("
        "new MouseEvent('click', {bubbles: true, shiftKey: true}))"
    )
    assert len(ids(page, "[aria-pressed=true]")) == 4
    page.click("#doubtful")
    page.wait_for("#clusters", "Doubtful")
    page.run(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'z', ctrlKey: true,"
        " bubbles: true}))"
    )
    page.wait_for("#message", "Undone")
    assert "Doubtful" not in page.text("#clusters")
    page.click(".sample:nth-child(2)")
    page.click("#closer")
    assert page.count("dialog[open] img") == 1
    page.click("dialog")
    page.wait(lambda: page.count("dialog") == 0)
    assert len(ids(page, "[aria-pressed=true]")) == 1
    escape = "new KeyboardEvent('keydown', {key: 'Escape', bubbles: true})"
    page.run(f"document.body.dispatchEvent({escape})")
    assert ids(page, "[aria-pressed=true]") == []


def test_nothing_leaves_the_page(page: Browser) -> None:
    refused = "return fetch('https://example.invalid/').then(() => false, () => true)"
    assert page.run(refused) is True
    script = "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
    assert page.run(f"{script} document.body.append(s); return window.ran ?? null") is None
    assert len(page.errors()) >= 2


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (320, "dark")])
def test_on_any_screen(page: Browser, width: int, scheme: str) -> None:
    page.emulate(width, 800, scheme)
    assert page.run("return document.documentElement.scrollWidth") <= width
    page.click(".sample:nth-child(1)")
    assert page.run("return document.documentElement.scrollWidth") <= width
    colour = page.run("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, colour[4:-1].split(", ")))
    assert brightness > 700 if scheme == "light" else brightness < 100
    loaded = (
        "return [...document.querySelectorAll('.sample img')].slice(0, 4)"
        ".every((one) => one.complete && one.naturalWidth === 8)"
    )
    page.wait(lambda: page.run(loaded))
    assert page.errors() == []
