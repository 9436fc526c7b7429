"""The pictures of a result: their sizes, what they show, and where a grid leads."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from diffclust.models import (
    AbstractPrototypeModel,
    AffineInvariantKMeans,
    DeformationInvariantKMeans,
    KMeans,
    Result,
)
from diffclust.plotting import (
    displayable,
    eigenvalue_chart,
    loss_curve,
    prototype_sheet,
    save_prototypes,
    warped_grids,
)
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers.progress import Status
from diffclust.solvers.result import Assignment, Outcome


def result_of(model: AbstractPrototypeModel, shape: tuple[int, int, int]) -> Result:
    """A result with random prototypes and six samples, all in cluster 0."""
    rng = np.random.default_rng(0)
    clusters = model.num_clusters
    prototypes = rng.uniform(size=(clusters, *shape)).astype(np.float32)
    penalty = jnp.zeros((clusters, len(model.penalty())))
    assignment = Assignment(
        clusters=np.zeros(6, np.int32),
        distances=np.ones(6, np.float32),
        margins=np.ones(6, np.float32),
        runners_up=np.full(6, -1, np.int32),
        params=np.zeros((6, model.energy().num_params), np.float32),
    )
    learned = Learned(Clusters(jnp.asarray(prototypes), penalty))
    return Result(
        model, shape, Outcome(learned, assignment, (2.0, 1.0), (1.0,), Status.LOSS, 16, 0.5)
    )


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_displayable_is_grey_or_rgb(channels: int) -> None:
    image = np.random.default_rng(0).normal(size=(4, 6, channels))
    pixels = displayable(image, own_range=True)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (4, 6, 1 if channels < 3 else 3)
    assert (pixels.min(), pixels.max()) == (0, 255)


def test_displayable_clips_and_leaves_constant_images_as_they_are() -> None:
    assert displayable(np.array([-1.0, 0.0, 0.5, 2.0]).reshape(1, 4, 1)).ravel().tolist() == [
        0,
        0,
        128,
        255,
    ]
    assert (displayable(np.full((2, 2, 1), 0.2), own_range=True) == 51).all()


@pytest.mark.parametrize("clusters", [1, 5, 10, 200])
@pytest.mark.parametrize("shape", [(8, 8, 1), (10, 30, 3), (120, 100, 1)])
def test_prototype_sheet_holds_every_prototype(clusters: int, shape: tuple[int, int, int]) -> None:
    result = result_of(KMeans(clusters), shape)
    sheet = prototype_sheet(result)
    assert sheet.dtype == np.uint8
    assert sheet.shape[2] == 3
    factor = max(1, -(-96 // max(shape[:2])))
    # What is not white: at least the prototypes' pixels, and room for all tiles.
    assert (sheet < 255).any(axis=2).sum() >= 0.9 * clusters * shape[0] * shape[1] * factor**2
    assert sheet.shape[0] * sheet.shape[1] < 3 * clusters * 200 * 200


def test_prototypes_are_saved_as_png(tmp_path: Path) -> None:
    result = result_of(KMeans(3), (8, 8, 1))
    save_prototypes(tmp_path / "prototypes.png", result)
    with Image.open(tmp_path / "prototypes.png") as picture:
        assert picture.format == "PNG"
        np.testing.assert_array_equal(np.asarray(picture), prototype_sheet(result))


def endpoints(path: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """First and last point of every line of a path."""
    lines = []
    for line in path.split("M")[1:]:
        start, steps = line.split("l")
        first = tuple(int(n) for n in start.split())
        last = np.array(first) + np.array(steps.split(), dtype=int).reshape(-1, 2).sum(axis=0)
        lines.append((first, tuple(last.tolist())))
    return lines


def test_identity_gives_the_regular_grid() -> None:
    result = result_of(DeformationInvariantKMeans(2, landmarks=(3, 4)), (10, 20, 1))
    params = np.zeros((2, result.model.energy().num_params), np.float32)
    first, second = warped_grids(result, params, lines=3)
    assert first == second
    # Straight lines are two points, and the longer side has 1000 units.
    assert re.fullmatch(r"(M-?\d+ -?\d+l-?\d+ -?\d+){6}", first)
    assert set(endpoints(first)) == {
        *(((0, y), (1000, y)) for y in (0, 250, 500)),
        *(((x, 0), (x, 500)) for x in (0, 500, 1000)),
    }


def test_grid_shows_where_the_aligned_image_is_read() -> None:
    result = result_of(AffineInvariantKMeans(2), (10, 10, 1))
    transform = result.model.energy().transform
    params = np.array([[0.2, 0.1, 0.0, -0.1, 0.3, -0.2]], np.float32)
    corners = jnp.array([[-1.0, 1.0], [-1.0, 1.0]])
    read = np.asarray(transform.warp(jnp.asarray(params[0]), corners))
    (path,) = warped_grids(result, params, longest=200)
    drawn = endpoints(path)
    np.testing.assert_allclose(drawn[0][0], (read[:, 0] + 1) * 100, atol=0.51)
    np.testing.assert_allclose(drawn[-1][1], (read[:, 1] + 1) * 100, atol=0.51)


def test_kmeans_has_the_regular_grid() -> None:
    (path,) = warped_grids(result_of(KMeans(2), (4, 4, 1)), np.zeros((1, 0), np.float32), lines=2)
    assert endpoints(path)[0] == ((0, 0), (1000, 0))


def test_a_grid_needs_lines() -> None:
    result = result_of(AffineInvariantKMeans(2), (4, 4, 1))
    with pytest.raises(ValueError, match="at least 2 lines"):
        warped_grids(result, np.zeros((1, 6), np.float32), lines=1)
    assert warped_grids(result, np.zeros((0, 6), np.float32)) == []


@pytest.mark.parametrize(
    "history",
    [(3.0,), (3.0, 1.0), (5.0, 5.0, 5.0), (0.0,), (1e6, 999_999.0), tuple(np.geomspace(9, 1, 300))],
)
def test_loss_curve_is_svg_with_every_pass(history: tuple[float, ...]) -> None:
    svg = ET.fromstring(loss_curve(history))
    space = "{http://www.w3.org/2000/svg}"
    dots = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in svg.iter(f"{space}circle")]
    assert len(dots) == len(history)
    assert all(0 <= x <= 440 and 0 <= y <= 210 for x, y in dots)
    assert [x for x, _ in dots] == sorted(x for x, _ in dots)
    labels = [text.text or "" for text in svg.iter(f"{space}text")]
    assert len(labels) == len(set(labels)) or len(history) <= 8


def test_loss_curve_falls_where_the_loss_falls() -> None:
    svg = ET.fromstring(loss_curve((4.0, 3.0, 1.0)))
    heights = [float(c.attrib["cy"]) for c in svg.iter("{http://www.w3.org/2000/svg}circle")]
    assert heights == sorted(heights)


@pytest.mark.parametrize("history", [(), (1.0, float("nan")), (float("inf"),)])
def test_loss_curve_refuses_what_is_no_loss(history: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="finite losses"):
        loss_curve(history)


@pytest.mark.parametrize("clusters", [1, 3, 4])
def test_eigenvalue_chart_marks_the_gap_after_the_clusters(clusters: int) -> None:
    svg = ET.fromstring(eigenvalue_chart([1.0, 0.98, 0.97, 0.6, 0.59], clusters))
    space = "{http://www.w3.org/2000/svg}"
    dots = [float(c.attrib["cx"]) for c in svg.iter(f"{space}circle")]
    (mark,) = [a.attrib for a in svg.iter(f"{space}line") if "stroke-dasharray" in a.attrib]
    assert mark["x1"] == mark["x2"]
    assert dots[clusters - 1] < float(mark["x1"]) < dots[clusters]
    assert f"the gap between number {clusters} and the next is marked" in svg.attrib["aria-label"]


@pytest.mark.parametrize("eigenvalues", [(1.0,), (1.0, 1.0), (1.0, 0.4)])
def test_eigenvalue_chart_without_a_gap_marks_none(eigenvalues: tuple[float, ...]) -> None:
    svg = ET.fromstring(eigenvalue_chart(eigenvalues, 2))
    space = "{http://www.w3.org/2000/svg}"
    assert len(list(svg.iter(f"{space}circle"))) == len(eigenvalues)
    assert not [a for a in svg.iter(f"{space}line") if "stroke-dasharray" in a.attrib]


@pytest.mark.parametrize("eigenvalues", [(), (1.0, float("nan"))])
def test_eigenvalue_chart_refuses_what_is_no_eigenvalue(eigenvalues: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="needs finite ones"):
        eigenvalue_chart(eigenvalues, 2)
