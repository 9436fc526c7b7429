"""The folder beside a report: every member of the clusters, and no larger than asked."""

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from PIL import Image

from diffclust.data import DataError, Dataset, load
from diffclust.image_source import ImageSource
from diffclust.models import AffineInvariantKMeans, KMeans, ShapeKMeans
from diffclust.report import write_report
from tests.report.test_report import HOSTILE, Page, made, said
from tests.report.test_shapes import made as made_of_shapes


def written(folder: Path, result: Any, dataset: Any, **options: Any) -> tuple[Page, Path]:
    path = folder / "report.html"
    write_report(path, result, dataset, **{"map_samples": 0, "samples_per_group": 2, **options})
    return Page(path.read_text("utf-8")), folder / "report_files"


def pages(files: Path) -> dict[tuple[int, int], Page]:
    """The pages by cluster and number; each must be one call with JSON."""
    result = {}
    for path in files.glob("*.js"):
        arguments = re.fullmatch(r"members\((.*)\);\n", path.read_text("ascii"))
        assert arguments, path
        name, html = json.loads(f"[{arguments[1]}]")
        assert name == path.stem
        cluster, number = map(int, name.split("-"))
        result[cluster, number] = Page(html)
    return dict(sorted(result.items()))


def figures(page: Page) -> list[dict[str, str]]:
    return page.all("figure", class_="sample")


def size_of(files: Path) -> int:
    return sum(path.stat().st_size for path in files.iterdir())


@pytest.mark.parametrize("channels", [1, 3])
def test_every_member_is_there_pixel_for_pixel_the_nearest_first(
    channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffclust.report.members._MOST_ON_PAGE", 7)
    result, dataset = made(AffineInvariantKMeans(3), (9, 6, channels))
    _, files = written(tmp_path, result, dataset)
    seen = []
    for (cluster, number), page in pages(files).items():
        positions = [int(figure["data-position"]) for figure in figures(page)]
        order = np.flatnonzero(result.assignments == cluster)
        order = order[np.argsort(result.distances[order], kind="stable")]
        assert positions == order[7 * number : 7 * number + 7].tolist()
        seen += positions
        boxes = [drawing["viewbox"] for drawing in page.all("svg", role="img")]
        (href,) = {image["href"] for image in page.all("image")}
        with Image.open(tmp_path / href) as sheet:
            size = {(image["width"], image["height"]) for image in page.all("image")}
            assert size == {tuple(map(str, sheet.size))}
            for position, box in zip(positions, boxes, strict=True):
                left, top, width, height = map(int, box.split())
                assert (height, width) == (9, 6)
                part = np.asarray(sheet.crop((left, top, left + width, top + height)))
                expected = np.round(255 * np.asarray(dataset.images[position]))
                np.testing.assert_array_equal(part, np.broadcast_to(expected, (9, 6, 3)))
    assert sorted(seen) == list(range(60))


def test_the_report_knows_where_its_own_samples_are_at_full_size(tmp_path: Path) -> None:
    result, dataset = made(KMeans(2))
    page, files = written(tmp_path, result, dataset)
    shown = figures(page)
    assert len(shown) == 2 * 4 * 2
    for figure in shown:
        name, left, top, width, height, *whole = figure["data-full"].split()
        with Image.open(files / name) as sheet:
            assert sheet.size == tuple(map(int, whole))
            corner = int(left), int(top)
            part = sheet.crop((*corner, corner[0] + int(width), corner[1] + int(height)))
        image = dataset.images[int(figure["data-position"])]
        np.testing.assert_array_equal(np.asarray(part)[..., :1], np.round(255 * np.asarray(image)))
    boxes = page.all("div", class_="group everyone")
    assert [int(box["data-shown"]) for box in boxes] == result.counts.tolist()
    assert all("hidden" in box for box in boxes)
    assert f"Show all {result.counts[0]}\u00a0images" in page.text


@pytest.mark.parametrize("cap", [9_000, 24_000])
def test_the_folder_is_no_larger_than_asked_and_the_report_says_what_is_left_out(
    cap: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffclust.report.members._MOST_ON_PAGE", 5)
    result, dataset = made(KMeans(2), n=90)
    page, files = written(tmp_path, result, dataset, members_bytes=cap)
    assert size_of(files) <= cap
    actual = pages(files)
    # Page by page, in all clusters alike.
    numbers = [[number for k, number in actual if k == cluster] for cluster in range(2)]
    assert 0 <= len(numbers[0]) - len(numbers[1]) <= 1
    count = sum(len(figures(one)) for one in actual.values())
    assert 0 < count < 90
    text = said(page)
    assert f"{count} of 90\u00a0images, the nearest first, as many as {cap / 1e6:g} MB hold" in (
        "".join(page.text)
    )
    assert "diffclust export RUN --what folders --out DIR" in text
    shown = [int(box["data-shown"]) for box in page.all("div", class_="group everyone")]
    assert sum(shown) == count
    assert f"Show {shown[0]} of {result.counts[0]}\u00a0images" in page.text
    everything, _ = written(tmp_path, result, dataset)
    assert "diffclust export" not in said(everything)


def test_without_a_folder_the_report_stands_alone(tmp_path: Path) -> None:
    result, dataset = made(KMeans(2))
    page, files = written(tmp_path, result, dataset, members_bytes=0)
    assert not files.exists()
    assert page.all("div", class_="group everyone") == []
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert "file:" not in policy["content"]
    assert "'self'" not in policy["content"]
    assert "loads nothing from elsewhere" in said(page)


def test_the_policy_lets_only_the_pages_own_script_load_files(tmp_path: Path) -> None:
    page, _ = written(tmp_path, *made(KMeans(2)))
    policies = [
        {rule.split()[0]: rule.split()[1:] for rule in meta["content"].split("; ")}
        for meta in page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    ]
    first, second = policies
    (own,) = [source for source in second["script-src"] if source.startswith("'sha256-")]
    assert second == {"script-src": [own, "'strict-dynamic'"]}
    assert first["default-src"] == first["base-uri"] == first["form-action"] == ["'none'"]
    assert first["script-src"] == [own, "'self'", "file:"]
    assert first["img-src"] == first["media-src"] == ["data:", "'self'", "file:"]


def test_hostile_names_stay_text_on_pages_of_members(tmp_path: Path) -> None:
    result, dataset = made(KMeans(1), n=len(HOSTILE))
    labels = np.arange(len(HOSTILE))
    dataset = dataclasses.replace(dataset, paths=HOSTILE, labels=labels, label_names=HOSTILE)
    _, files = written(tmp_path, result, dataset)
    (page,) = pages(files).values()
    assert {tag for tag, _ in page.elements} == {
        "figure", "svg", "title", "image", "figcaption", "span", "b",
    }  # fmt: skip
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert HOSTILE[0] in "".join(page.text)


def test_odd_names_of_reports_are_quoted(tmp_path: Path) -> None:
    result, dataset = made(KMeans(2))
    path = tmp_path / "50% \"a' <b>.html"
    write_report(path, result, dataset, map_samples=0)
    page, files = Page(path.read_text("utf-8")), tmp_path / "50% \"a' <b>_files"
    assert page.all("body")[0]["data-files"] == "50%25%20%22a%27%20%3Cb%3E_files"
    (href, *_) = {image["href"] for image in pages(files)[0, 0].all("image")}
    assert href == "50%25%20%22a%27%20%3Cb%3E_files/0-0.webp"
    assert files.name in "".join(page.text)


def photographs(folder: Path, size: tuple[int, int] = (60, 40)) -> None:
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(12):
        pixels = rng.integers(0, 120, size=(size[1], size[0], 3)) + 120 * (i % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:02}.jpg")


def test_originals_larger_than_what_was_fitted_are_copied(tmp_path: Path) -> None:
    photographs(tmp_path / "photos")
    dataset = load(tmp_path / "photos", size=16)
    result, _ = made(KMeans(2), (16, 16, 3), n=12)
    page, files = written(tmp_path, result, dataset)
    assert dataset.paths is not None
    listed = [figure for one in pages(files).values() for figure in figures(one)]
    assert len(listed) == 12
    for figure in [*listed, *figures(page)]:
        original = Path(dataset.paths[int(figure["data-position"])])
        assert (files / figure["data-full"]).read_bytes() == original.read_bytes()
    # No more of them than there is room for.
    size = Path(dataset.paths[0]).stat().st_size
    _, files = written(tmp_path, result, dataset, members_bytes=5 * size)
    assert 1 <= len(list(files.glob("*.jpg"))) <= 2
    # Where they are as large as what was fitted, the pages are all there is to show.
    same = load(tmp_path / "photos")
    result, _ = made(KMeans(2), (40, 60, 3), n=12)
    _, files = written(tmp_path, result, same)
    assert list(files.glob("*.jpg")) == []


def test_large_images_that_are_no_files_are_written_at_full_size(tmp_path: Path) -> None:
    result, dataset = made(KMeans(1), (300, 280, 1), n=5)
    _, files = written(tmp_path, result, dataset)
    (page,) = pages(files).values()
    for figure in figures(page):
        with Image.open(files / figure["data-full"]) as picture:
            assert picture.size == (280, 300)
    assert all(drawing["viewbox"].endswith(" 239 256") for drawing in page.all("svg"))


class Watched(ImageSource):
    """Images that remember how many of them were in memory at once."""

    def __init__(self, images: np.ndarray) -> None:
        self.images, self.most = images, 0

    @property
    def shape(self) -> tuple[int, int, int, int]:
        count, height, width, channels = self.images.shape
        return count, height, width, channels

    def read(self, index: np.ndarray) -> np.ndarray:
        self.most = max(self.most, len(index))
        return self.images[index]


def test_images_are_read_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diffclust.report.members._READ_BYTES", 10 * 4 * 64)
    result, dataset = made(KMeans(2), n=500)
    images = Watched(np.asarray(dataset.images))
    page, files = written(tmp_path, result, Dataset(images, name="made"))
    assert sum(len(figures(one)) for one in pages(files).values()) == 500
    # The report itself shows 16.
    assert images.most <= 16
    assert len(figures(page)) == 16


def test_shapes_are_drawn_as_in_the_report(tmp_path: Path) -> None:
    result, dataset, _ = made_of_shapes(ShapeKMeans(3))
    page, files = written(tmp_path, result, dataset)
    actual = pages(files)
    listed = [figure for one in actual.values() for figure in figures(one)]
    assert sorted(int(figure["data-position"]) for figure in listed) == list(range(60))
    assert {f"#mean-{k}" for k, _ in actual} == {
        use["href"] for one in actual.values() for use in one.all("use")
    }
    assert list(files.glob("*.webp")) == []
    assert not [figure for figure in [*listed, *figures(page)] if "data-full" in figure]


def test_recordings_can_all_be_played(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    rng, folder = np.random.default_rng(0), tmp_path / "sounds"
    folder.mkdir()
    for i in range(12):
        wave = np.sin((0.2 + 0.4 * (i % 2)) * np.arange(3200))
        soundfile.write(folder / f"{i:02}.wav", wave * rng.uniform(0.3, 0.5, 3200), 8000)
    dataset = load(folder)
    model = KMeans(2, num_restarts=1, max_passes=3, split_merge=False)
    result = model.fit(dataset.images, key=jax.random.key(0))
    _, files = written(tmp_path, result, dataset)
    for page in pages(files).values():
        for figure in figures(page):
            content = io.BytesIO((files / figure["data-full"]).read_bytes())
            sound, rate = soundfile.read(content)
            assert (len(sound), rate) == (3200, 8000)
    assert len(list(files.glob("*.flac"))) == 12


def test_the_folder_is_replaced_whole_and_nobody_elses_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, dataset = made(KMeans(2))
    _, files = written(tmp_path, result, dataset)
    (files / "9-9.js").write_text("of an earlier report")
    written(tmp_path, result, dataset)
    assert not (files / "9-9.js").exists()
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    page = (tmp_path / "report.html").read_bytes()

    def fail(*_: Any, **__: Any) -> str:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("diffclust.report.write.document", fail)
        with pytest.raises(OSError, match="full"):
            written(tmp_path, result, dataset, seed=3)
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before
    assert (tmp_path / "report.html").read_bytes() == page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report_files"]

    own = tmp_path / "other_files"
    own.mkdir()
    (own / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="never replaced"):
        write_report(tmp_path / "other.html", result, dataset, map_samples=0)
    assert (own / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "other.html").exists()


def test_the_folder_is_never_read_as_data(tmp_path: Path) -> None:
    photographs(tmp_path / "photos")
    dataset = load(tmp_path / "photos", size=16)
    result, _ = made(KMeans(2), (16, 16, 3), n=12)
    _, files = written(tmp_path / "photos", result, dataset)
    assert list(files.glob("*.jpg"))
    assert len(load(tmp_path / "photos", size=16)) == 12
    with pytest.raises(DataError, match="what diffclust wrote"):
        load(files, size=16)
