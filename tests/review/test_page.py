"""The page of a review as a person meets it: in a real browser, on a desk and on a telephone."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from diffclust.review.server import ReviewServer
from tests.review.made import COUNT, EVIL, fitted, reviewer_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def result_and_data() -> tuple:
    return fitted()


@pytest.fixture
def errors() -> list[str]:
    """What the console says of errors."""
    return []


@pytest.fixture
def page(
    browser: "Browser", result_and_data: tuple, errors: list[str], tmp_path: Path
) -> "Iterator[Page]":
    """The page, opened by its address, on a desk."""
    with ReviewServer(reviewer_of(*result_and_data, tmp_path)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
            opened = context.new_page()
            opened.set_default_timeout(20_000)
            opened.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
            opened.on("pageerror", lambda error: errors.append(str(error)))
            opened.goto(server.address)
            opened.locator(".sample").first.wait_for()
            yield opened
        server.shutdown()
        thread.join()


def wait(page: "Page", condition: Callable[[], Any]) -> None:
    for _ in range(400):
        if condition():
            return
        page.wait_for_timeout(50)
    pytest.fail("what was waited for is not there")


def wait_for(page: "Page", selector: str, text: str) -> None:
    wait(page, lambda: text in page.locator(selector).first.inner_text())


def rename(page: "Page", name: str) -> None:
    page.fill("#name", name)
    page.press("#name", "Enter")


def choose(page: "Page", selector: str, text: str) -> None:
    """Chooses the option of a select that begins with a text."""
    options = page.locator(f"{selector} option").all_inner_texts()
    page.select_option(selector, label=next(one for one in options if one.startswith(text)))


def ids(page: "Page", selector: str = ".sample") -> list[int]:
    script = "(selector) => [...document.querySelectorAll(selector)].map((x) => +x.dataset.sample)"
    return page.evaluate(script, selector)


def sizes(page: "Page") -> dict[str, int]:
    """Number of samples by the name of the cluster, as the list shows them."""
    result = page.evaluate(
        "[...document.querySelectorAll('.cluster-card')].map((one) =>"
        " [one.querySelector('b').textContent, parseInt(one.lastChild.lastChild.textContent)])"
    )
    return dict(result)


def test_a_whole_review(page: "Page", tmp_path: Path, errors: list[str]) -> None:
    before = sizes(page)
    assert sum(before.values()) == COUNT
    assert page.evaluate("location.pathname + location.search") == "/"
    # A name is text, whatever it looks like.
    name = "<img src=x onerror=document.title='broken'>"
    rename(page, name)
    wait_for(page, "#message", "Saved")
    wait_for(page, "h2", name)
    page.click(".cluster-card:nth-child(2)")
    wait_for(page, "h2", "Cluster 1")
    # Two samples are moved to a new cluster, and one of them is doubtful.
    first, _, third, *_ = ids(page)
    page.click(".sample:nth-child(1)")
    page.click(".sample:nth-child(3)")
    assert ids(page, "[aria-pressed=true]") == [first, third]
    wait_for(page, "#actions", "2 images selected")
    choose(page, "#move", "a new cluster")
    wait_for(page, "#message", "New: Cluster 3, 2 images")
    assert sizes(page) == {
        name: before["Cluster 0"],
        "Cluster 1": before["Cluster 1"] - 2,
        "Cluster 2": before["Cluster 2"],
        "Cluster 3": 2,
    }
    page.click("[data-cluster='3']")
    wait_for(page, "h2", "Cluster 3")
    assert set(ids(page)) == {first, third}
    page.click(f"[data-sample='{third}']")
    page.click("#doubtful")
    wait_for(page, ".cluster-card", "Doubtful")
    assert ids(page, ".sample.doubtful") == [third]
    # The new cluster goes into the first one; undone, all is as it was.
    choose(page, "#merge", name[:5])
    wait_for(page, "#message", "is merged into")
    assert sizes(page)[name] == before["Cluster 0"] + 2
    page.click("[data-cluster='1']")
    wait_for(page, "h2", "Cluster 1")
    page.click("#split")
    wait_for(page, "#message", "is split")
    assert sum(sizes(page).values()) == COUNT + 1  # the doubtful one counts twice
    for undone in ("move", "merge 3", "mark 1", "move 2", "name"):
        page.click("#undo")
        wait_for(page, "#message", f"Undone: {undone}")
    assert sizes(page) == before
    assert page.evaluate("document.getElementById('undo').disabled")
    assert page.evaluate("document.title") == "<b>run</b>: diffclust review"
    assert errors == []
    assert len(list(tmp_path.iterdir())) == 1


def test_more_like_one_and_exports(page: "Page", errors: list[str]) -> None:
    page.click(".sample:nth-child(2)")
    chosen = ids(page, "[aria-pressed=true]")
    page.click("#like")
    wait_for(page, "h2", "Most like")
    assert ids(page)[:1] == chosen
    assert len(ids(page)) == COUNT
    assert "pixels" in page.inner_text("#about")
    assert "Cluster" in page.locator(".sample span").first.inner_text()
    page.click("#back")
    wait_for(page, "h2", "Cluster 0")
    choose(page, "#export", "Names")
    wait_for(page, "#message", "Written:")
    assert errors == []


def test_evil_names_of_files_are_text(page: "Page") -> None:
    page.click("[data-cluster='0']")
    titles = []
    for cluster in range(3):
        page.click(f"[data-cluster='{cluster}']")
        wait_for(page, "h2", f"Cluster {cluster}")
        titles += page.evaluate("[...document.querySelectorAll('.sample')].map((x) => x.title)")
    assert EVIL in titles
    assert page.evaluate("document.title") == "<b>run</b>: diffclust review"
    assert page.locator("h1 b").count() == 0


def test_a_stale_page_says_so_and_shows_what_is_there(page: "Page") -> None:
    page.evaluate(
        "fetch('edit', {method: 'POST', headers: {'Content-Type': 'application/json'}, body:"
        " JSON.stringify({revision: 0, edit: {kind: 'name', cluster: 2, name: 'elsewhere'}})})"
    )
    wait(
        page,
        lambda: page.evaluate("fetch('state').then((x) => x.json()).then((x) => x.revision)") == 1,
    )
    rename(page, "mine")
    wait_for(page, "#message", "changed elsewhere")
    wait_for(page, "#clusters", "elsewhere")
    assert "mine" not in page.inner_text("#clusters")
    rename(page, "mine")
    wait_for(page, "#clusters", "mine")


def test_keys_and_ranges(page: "Page") -> None:
    page.click(".sample:nth-child(2)")
    page.click(".sample:nth-child(5)", modifiers=["Shift"])
    assert len(ids(page, "[aria-pressed=true]")) == 4
    page.click("#doubtful")
    wait_for(page, "#clusters", "Doubtful")
    page.keyboard.press("Control+z")
    wait_for(page, "#message", "Undone")
    assert "Doubtful" not in page.inner_text("#clusters")
    page.click(".sample:nth-child(2)")
    page.click("#closer")
    assert page.locator("dialog[open] img").count() == 1
    page.click("dialog")
    wait(page, lambda: page.locator("dialog").count() == 0)
    assert len(ids(page, "[aria-pressed=true]")) == 1
    page.keyboard.press("Escape")
    assert ids(page, "[aria-pressed=true]") == []


def test_edits_wait_for_each_other(page: "Page") -> None:
    for name in ("one", "two"):
        rename(page, name)
        wait_for(page, "#clusters", name)
    page.dblclick("#undo")
    wait(page, lambda: page.evaluate("document.getElementById('undo').disabled"))
    assert "Undone" in page.inner_text("#message")
    # A name that is being typed is saved when something else is pressed, and that is clicked too.
    before = page.locator(".cluster-card").count()
    page.fill("#name", "typed")
    page.click("#split", delay=300)
    wait(page, lambda: page.locator(".cluster-card").count() == before + 1)
    assert "typed" in page.inner_text("#clusters")


def test_exports_wait_for_edits(page: "Page") -> None:
    page.evaluate(
        "(() => { const real = fetch; window.asked = []; window.fetch = async (path, ...given) => {"
        " if (path === 'edit') await new Promise((done) => setTimeout(done, 300));"
        " const answer = await real(path, ...given); asked.push(path); return answer; }; })()"
    )
    rename(page, "before")
    choose(page, "#export", "Names")
    wait_for(page, "#message", "Written:")
    asked = page.evaluate("asked")
    assert asked.index("edit") < asked.index("export")


def test_a_range_begins_where_it_is_seen(page: "Page") -> None:
    page.click(".sample:nth-child(4)")
    page.click("[data-cluster='1']")
    wait(page, lambda: page.get_attribute("[data-cluster='1']", "aria-current") == "true")
    page.click(".sample:nth-child(2)", modifiers=["Shift"])
    assert len(ids(page, "[aria-pressed=true]")) == 1


def test_nothing_leaves_the_page(page: "Page", errors: list[str]) -> None:
    refused = "fetch('https://example.invalid/').then(() => false, () => true)"
    assert page.evaluate(refused) is True
    script = "s = document.createElement('script'); s.textContent = 'window.ran = 1';"
    assert (
        page.evaluate(f"() => {{ const {script} document.body.append(s); return window.ran; }}")
        is None
    )
    assert len(errors) >= 2


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark"), (320, "dark")])
def test_on_any_screen(page: "Page", width: int, scheme: str, errors: list[str]) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click(".sample:nth-child(1)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, colour[4:-1].split(", ")))
    assert brightness > 700 if scheme == "light" else brightness < 100
    loaded = (
        "[...document.querySelectorAll('.sample img')].slice(0, 4)"
        ".every((one) => one.complete && one.naturalWidth === 8)"
    )
    wait(page, lambda: page.evaluate(loaded))
    # Whole pictures, as what tells tall ones apart may be at their ends.
    fit = "getComputedStyle(document.querySelector('.cover img')).objectFit"
    assert page.evaluate(fit) == "contain"
    assert errors == []
