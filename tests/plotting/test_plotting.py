"""The pictures of a result: their sizes, what they show, and where a grid leads."""

import base64
import io
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
    LossHistory,
    criterion_chart,
    criterion_curve,
    displayable,
    eigenvalue_chart,
    loss_curve,
    prototype_sheet,
    save_prototypes,
    training_curve,
    warped_grids,
)
from diffclust.plotting.charts import ratio_ticks, round_ticks, tick_labels
from diffclust.plotting.training import phase_names, shown_top
from diffclust.prototypes import Clusters, Learned
from diffclust.solvers import Phase
from diffclust.solvers.result import Assignment, Outcome, Status


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


def test_a_notebook_shows_the_prototypes() -> None:
    result = result_of(KMeans(3), (8, 8, 1))
    html = result._repr_html_()
    text, source = html.split("</p>")
    assert text == "<p>kmeans: 6 samples in 3 clusters of 0 to 6, loss 1"
    encoded = re.search('src="data:image/png;base64,([^"]*)"', source)
    assert encoded is not None
    with Image.open(io.BytesIO(base64.b64decode(encoded[1]))) as picture:
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


SVG = "{http://www.w3.org/2000/svg}"
PHASES = ((0, "identity"), (100, "+aff"), (250, "+morpho"), (400, "+tps"), (550, "lower rate"))


def course(losses: tuple[float, ...], final: float, phases=PHASES) -> LossHistory:
    ends = tuple(50 * (i + 1) for i in range(len(losses)))
    return LossHistory("step", ends, losses, final, phases, 128, 50)


def drawn(svg: ET.Element) -> list[tuple[float, float]]:
    """The places of the windows' dots."""
    circles = [c.attrib for c in svg.iter(f"{SVG}circle") if "fill" not in c.attrib]
    return [(float(c["cx"]), float(c["cy"])) for c in circles]


@pytest.mark.parametrize(
    ("losses", "final", "logarithmic"),
    [
        ((90.0, 60.0, 50.0, 45.0, 40.0, 39.0), 38.0, False),
        ((900.0, 60.0, 50.0, 45.0, 40.0, 39.0), 38.0, True),
        ((90.0, 10.0, -50.0, -60.0, -80.0, -82.0), -90.0, False),
    ],
    ids=["linear", "ratios", "negative"],
)
def test_training_curve_is_to_scale(
    losses: tuple[float, ...], final: float, logarithmic: bool
) -> None:
    svg = ET.fromstring(training_curve(course(losses, final)))
    dots = drawn(svg)
    assert len(dots) == len(losses)
    (ring,) = [c.attrib for c in svg.iter(f"{SVG}circle") if c.attrib.get("fill") == "none"]
    values = np.array([*losses, final])
    values = np.log(values) if logarithmic else values
    heights = np.array([y for _, y in dots] + [float(ring["cy"])])
    slope, offset = np.polyfit(values, heights, 1)
    np.testing.assert_allclose(slope * values + offset, heights, atol=0.1)
    assert slope < 0
    np.testing.assert_allclose(np.diff([x for x, _ in dots], n=2), 0.0, atol=0.21)
    texts = [text.text or "" for text in svg.iter(f"{SVG}text")]
    assert any("logarithmic" in text for text in texts) == logarithmic
    assert float(ring["cx"]) == dots[-1][0]


def test_marks_stand_where_phases_begin_and_their_names_apart() -> None:
    losses = tuple(np.linspace(9.0, 5.0, 12).tolist())
    svg = ET.fromstring(training_curve(course(losses, 4.9)))
    marks = [a.attrib for a in svg.iter(f"{SVG}line") if "stroke-dasharray" in a.attrib]
    dots = dict(zip(range(50, 601, 50), drawn(svg), strict=True))
    for (start, _), mark in zip(PHASES[1:], marks[1:], strict=True):
        assert float(mark["x1"]) == float(mark["x2"]) == dots[start][0]
    names = {name for _, name in PHASES}
    boxes = []
    for text in svg.iter(f"{SVG}text"):
        if text.text in names:
            x, width = float(text.attrib["x"]), 6.2 * len(text.text)
            left = x if text.attrib["text-anchor"] == "start" else x - width
            boxes.append((float(text.attrib["y"]), left, left + width))
    assert len(boxes) == len(PHASES)
    for row, left, right in boxes:
        assert left > 0
        assert right < 440
        assert not [b for b in boxes if b[0] == row and left < b[1] < right]
    assert max(row for row, *_ in boxes) < float(marks[0]["y1"])


def test_a_few_huge_first_losses_are_drawn_at_the_edge_and_told() -> None:
    rest = np.linspace(9.0, -5.0, 40)
    losses = (1e5, 3e4, *rest.tolist())
    assert shown_top(np.array(losses)) == rest[0]
    svg = ET.fromstring(training_curve(course(losses, -6.0)))
    heights = [y for _, y in drawn(svg)]
    assert heights[0] == heights[1] == min(heights)
    assert heights[-1] - heights[5] > 80
    assert any("up to 100\u202f000" in (text.text or "") for text in svg.iter(f"{SVG}text"))
    # A plain fall is not cut, however steep.
    plain = np.linspace(100.0, 0.0, 40)
    assert shown_top(plain) == 100.0
    assert shown_top(np.array([3.0, 3.0])) == 3.0


@pytest.mark.parametrize("losses", [(), (float("nan"),), (1.0, float("inf"))])
def test_training_curve_refuses_what_is_no_loss(losses: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="finite losses"):
        training_curve(course(losses, 1.0, ()))


def test_phases_are_named_for_what_they_add() -> None:
    names = ["aff", "morpho", "tps"]

    def named(*phases: tuple[int, float], transforms: list[str] = names) -> list[str]:
        return phase_names([Phase(s, 10, rate) for s, rate in phases], transforms)

    assert named((0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (3, 0.1)) == [
        *("identity", "+aff", "+morpho", "+tps", "lower rate")
    ]
    assert named((3, 1.0), (3, 0.1)) == ["aff-morpho-tps", "lower rate"]
    assert named((1, 1.0), (3, 0.1)) == ["aff", "+morpho+tps, lower rate"]
    assert named((0, 1.0), (0, 0.1), transforms=[]) == ["", "lower rate"]


@pytest.mark.parametrize("low_high", [(3.2, 41.0), (0.02, 900.0), (821.0, 8700.0), (1.0, 1e7)])
def test_ticks_enclose_a_range_of_ratios(low_high: tuple[float, float]) -> None:
    ticks = ratio_ticks(*low_high)
    assert ticks[0] <= low_high[0] < ticks[1]
    assert ticks[-2] < low_high[1] <= ticks[-1]
    assert 2 < len(ticks) < 15


def test_tick_labels_tell_ticks_apart() -> None:
    assert tick_labels(round_ticks(0.0, 100_000.0))[1] == "25\u202f000"
    assert tick_labels(round_ticks(-40_000.0, 0.0))[0] == "−40\u202f000"
    assert tick_labels(np.array([0.0, 2.5])) == ("0", "2.5")


def test_a_criterion_is_drawn_with_its_choice() -> None:
    drawn = {
        "names": ["2×2", "<b>", "4×4"],
        "chosen": 2.0,
        "axis": "landmarks",
    }
    chart = criterion_chart([1.0, 2.0, 4.0], [3.0, 5.0, 4.0], measure="evidence", **drawn)
    assert chart.count("<circle") == 3
    assert chart.count('stroke-dasharray="4 4"') == 1
    assert "<b>" not in chart
    assert "&lt;b&gt; was chosen" in chart
    positions = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', chart)]
    assert (positions[2] - positions[1]) == pytest.approx(2 * (positions[1] - positions[0]), abs=1)
    figure = criterion_curve([1.0, 2.0, 4.0], [3.0, 5.0, 4.0], label="evidence", **drawn)
    (panel,) = figure.axes
    np.testing.assert_array_equal(panel.lines[0].get_xdata(), [1, 2, 4])
    assert panel.lines[1].get_xdata()[0] == 2.0
    unchosen = criterion_chart(
        [1.0, 2.0], [1.0, 2.0], names=["1", "2"], chosen=None, axis="k", measure="loss"
    )
    assert "stroke-dasharray" not in unchosen


def test_values_of_two_groups_are_not_joined() -> None:
    drawn = {"names": ["2", "3", "4", "5"], "chosen": None, "axis": "k", "groups": [0, 0, 1, 1]}
    chart = criterion_chart([2.0, 3.0, 4.0, 5.0], [0.3, 0.1, 0.8, 0.2], measure="eigengap", **drawn)
    lines = [len(points.split()) for points in re.findall(r'<polyline points="([^"]+)"', chart)]
    assert lines == [2, 2]
    (panel,) = criterion_curve(
        [2.0, 3.0, 4.0, 5.0], [0.3, 0.1, 0.8, 0.2], label="gap", **drawn
    ).axes
    assert [len(line.get_xdata()) for line in panel.lines] == [2, 2]
