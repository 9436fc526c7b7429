"""Shapes as SVG: where landmarks lie, what an ellipse holds, what a frame holds."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from diffclust.models import KMeans, Result, ShapeKMeans
from diffclust.plotting import (
    ShapeFrame,
    landmark_covariances,
    prototype_sheet,
    save_prototypes,
    shape_frame,
)
from diffclust.plotting.shapes import SIDE, principal_axes
from diffclust.prototypes import Clusters, LandmarkGaussians, Learned, gaussians
from diffclust.solvers.result import Assignment, Outcome, Status

ELLIPSE = re.compile(
    r'<ellipse rx="(\S+)" ry="(\S+)" transform="translate\((\S+) (\S+)\) rotate\((\S+)\)"/>'
)


def covariances_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random covariances of landmarks, the last of `shape` being dimensions."""
    roots = 0.05 * rng.normal(size=(*shape, shape[-1]))
    return roots @ np.swapaxes(roots, -1, -2) + 1e-4 * np.eye(shape[-1])


def result_of(means: np.ndarray, spread: np.ndarray) -> Result:
    """A result with these mean shapes, and six samples in cluster 0."""
    clusters, dims = len(means), means.shape[2]
    prototype = LandmarkGaussians(
        gaussians(jnp.asarray(means), jnp.asarray(spread)), jnp.asarray(spread)
    )
    assignment = Assignment(
        clusters=np.zeros(6, np.int32),
        distances=np.ones(6, means.dtype),
        margins=np.ones(6, means.dtype),
        runners_up=np.full(6, -1, np.int32),
        params=np.zeros((6, 1 + dims * dims + dims), means.dtype),
    )
    learned = Learned(Clusters(prototype, jnp.zeros((clusters, 0), means.dtype)))
    outcome = Outcome(learned, assignment, (2.0, 1.0), (1.0,), Status.ASSIGNMENTS, 16, 0.5)
    return Result(ShapeKMeans(clusters), means.shape[1:], outcome)


def decoded(path: str) -> np.ndarray:
    """Where the dots of a path are."""
    return np.cumsum([[int(n) for n in one.split()] for one in re.findall(r"m(.*?)h0", path)], 0)


@pytest.mark.parametrize("dims", [2, 3, 4])
@pytest.mark.parametrize("deviations", [1.0, 2.0])
def test_an_ellipse_holds_what_lies_so_many_deviations_away(dims: int, deviations: float) -> None:
    rng = np.random.default_rng(dims)
    mean, covariance = rng.normal(size=(5, dims)), covariances_of(rng, 5, dims)
    frame = shape_frame(mean[None], covariance[None])
    drawn = ELLIPSE.findall(frame.ellipses(mean, covariance, deviations=deviations))
    assert len(drawn) == 5
    turns = np.linspace(0.0, 2 * np.pi, 9)
    for values, centre, spread in zip(drawn, mean, covariance, strict=True):
        rx, ry, x, y, angle = map(float, values)
        assert rx >= ry > 0
        a = np.radians(angle)
        turned = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        edge = turned @ np.stack([rx * np.cos(turns), ry * np.sin(turns)])
        # Back from the drawing, whose second axis points down, to the plane that is drawn.
        away = (edge * [[1.0], [-1.0]] / frame.unit).T
        shadow = frame.axes.T @ spread @ frame.axes
        mahalanobis = np.sqrt(np.einsum("ni,ij,nj->n", away, np.linalg.inv(shadow), away))
        np.testing.assert_allclose(mahalanobis, deviations, rtol=5e-3)
        back = np.array([x, -y]) / frame.unit + [frame.left, frame.top]
        np.testing.assert_allclose(back, centre @ frame.axes, atol=0.1 / frame.unit)


def test_variances_alone_give_upright_ellipses() -> None:
    frame = ShapeFrame(np.eye(2), 0.0, 1.0, 100.0, 100, 100)
    covariance = np.array([[[0.04, 0.0], [0.0, 0.01]], [[0.01, 0.0], [0.0, 0.04]]])
    axes, angles = frame.half_axes(covariance)
    np.testing.assert_allclose(axes, [[20.0, 10.0], [20.0, 10.0]])
    np.testing.assert_allclose(np.abs(np.sin(np.radians(angles))), [0.0, 1.0], atol=1e-12)


def test_the_second_axis_points_upwards_and_both_have_one_scale() -> None:
    mean = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 1.0], [0.0, 2.0]])
    frame = shape_frame(mean[None], np.full((1, 4, 2, 2), 1e-9) * np.eye(2))
    placed = frame.place(mean)
    assert placed[3, 1] < placed[2, 1] < placed[0, 1]
    right, up = placed[1] - placed[0], placed[0] - placed[3]
    np.testing.assert_allclose([right[0], right[1], up[0]], [4 * frame.unit, 0, 0], atol=1e-9)
    np.testing.assert_allclose(up[1], 2 * frame.unit)
    assert frame.width == SIDE > frame.height


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dims", [2, 3])
def test_a_frame_holds_means_ellipses_and_shapes(dims: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    means = (rng.normal(size=(3, 6, dims)) + 1000.0).astype(dtype)
    covariances = covariances_of(rng, 3, 6, dims).astype(dtype)
    shapes = (means[0] + 0.2 * rng.normal(size=(20, 6, dims))).astype(dtype)
    frame = shape_frame(means, covariances, shapes)
    assert max(frame.width, frame.height) == SIDE
    size = np.array([frame.width, frame.height])
    for mean, covariance in zip(means, covariances, strict=True):
        reach = 2 * frame.half_axes(covariance)[0].max(axis=1)[:, None]
        inside = frame.place(mean)
        # An ellipse that lies askew reaches less far than its longer half axis.
        assert (inside >= 0).all()
        assert (inside <= size).all()
        assert reach.max() < SIDE
    assert ((frame.place(shapes) >= 0) & (frame.place(shapes) <= size)).all()


def test_a_shape_far_outside_does_not_shrink_all_others() -> None:
    rng = np.random.default_rng(1)
    means = rng.normal(size=(2, 5, 2))
    covariances = covariances_of(rng, 2, 5, 2)
    shapes = np.concatenate([means, means + 1e6])
    frame, alone = shape_frame(means, covariances, shapes), shape_frame(means, covariances)
    assert alone.unit / 3 < frame.unit < alone.unit
    assert np.abs(frame.place(shapes)).max() <= 10 * SIDE


@pytest.mark.parametrize("dims", [3, 5])
def test_more_dimensions_are_seen_along_the_leading_principal_axes(dims: int) -> None:
    rng = np.random.default_rng(dims)
    points = rng.normal(size=(200, dims)) * np.arange(1.0, dims + 1) + 7.0
    axes = principal_axes(points)
    np.testing.assert_allclose(axes.T @ axes, np.eye(2), atol=1e-12)
    values = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    flat = (points - points.mean(axis=0)) @ axes
    np.testing.assert_allclose(np.linalg.norm(flat, axis=0), values[:2])
    # How the data are turned changes nothing but the signs.
    turn, _ = np.linalg.qr(rng.normal(size=(dims, dims)))
    turned = points @ turn
    again = (turned - turned.mean(axis=0)) @ principal_axes(turned)
    np.testing.assert_allclose(np.abs(again), np.abs(flat), atol=1e-9)


def test_dots_and_outlines_are_where_landmarks_are() -> None:
    rng = np.random.default_rng(2)
    shapes = rng.normal(size=(7, 4, 2))
    frame = shape_frame(shapes, covariances_of(rng, 7, 4, 2))
    placed = frame.place(shapes)
    np.testing.assert_allclose(
        decoded(frame.dots(shapes)), placed.swapaxes(0, 1).reshape(-1, 2), atol=0.51
    )
    start, steps = frame.outline(shapes[0]).removesuffix("z")[1:].split("l")
    moved = np.array(steps.split(), int).reshape(-1, 2)
    points = np.concatenate([[np.array(start.split(), int)], moved]).cumsum(axis=0)
    np.testing.assert_allclose(points, placed[0], atol=0.51)
    assert frame.dots(shapes[:0]) == ""


def test_a_drawing_is_svg_with_two_ellipses_a_landmark_and_its_members() -> None:
    rng = np.random.default_rng(3)
    means, covariances = rng.normal(size=(2, 6, 3)), covariances_of(rng, 2, 6, 3)
    members = means[0] + 0.1 * rng.normal(size=(9, 6, 3))
    frame = shape_frame(means, covariances, members)
    content = frame.dotted(members) + frame.mean_shape(means[0], covariances[0])
    drawn = frame.svg(content, alt="<it>")
    assert len(ELLIPSE.findall(drawn)) == 2 * 6
    assert len(re.findall("h0", drawn)) == (9 + 1) * 6
    assert 'aria-label="&lt;it&gt;"' in drawn
    radii = np.array([float(rx) for rx, *_ in ELLIPSE.findall(drawn)])
    np.testing.assert_allclose(radii[:6], 2 * radii[6:], rtol=2e-3)


@pytest.mark.parametrize("double", [False, True])
def test_covariances_are_those_of_the_prototypes(double: bool) -> None:
    rng = np.random.default_rng(4)
    with jax.enable_x64(double):
        dtype = np.float64 if double else np.float32
        means = rng.normal(size=(2, 5, 3)).astype(dtype)
        full = covariances_of(rng, 2, 5, 3).astype(dtype)
        np.testing.assert_array_equal(landmark_covariances(result_of(means, full)), full)
        variances = np.diagonal(full, axis1=2, axis2=3).copy()
        result = landmark_covariances(result_of(means, variances))
        np.testing.assert_array_equal(np.diagonal(result, axis1=2, axis2=3), variances)
        assert np.count_nonzero(result) == variances.size


def test_images_have_no_mean_shapes() -> None:
    ones = np.ones((2, 3, 2), np.float32)
    assignment = result_of(ones, ones).outcome.assignment
    learned = Learned(Clusters(jnp.zeros((2, 4, 4, 1)), jnp.zeros((2, 0))))
    outcome = Outcome(learned, assignment, (1.0,), (1.0,), Status.LOSS, 16, 0.5)
    with pytest.raises(ValueError, match="kmeans has no mean shapes"):
        landmark_covariances(Result(KMeans(2), (4, 4, 1), outcome))


@pytest.mark.parametrize(("clusters", "dims"), [(1, 3), (8, 2)])
def test_mean_shapes_are_saved_as_a_sheet(clusters: int, dims: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    means = rng.normal(size=(clusters, 6, dims)).astype(np.float32)
    result = result_of(means, np.full_like(means, 0.01))
    save_prototypes(tmp_path / "prototypes.png", result)
    with Image.open(tmp_path / "prototypes.png") as picture:
        assert picture.format == "PNG"
        sheet = np.asarray(picture)
    np.testing.assert_array_equal(sheet, prototype_sheet(result))
    assert sheet.shape[0] * sheet.shape[1] < clusters * 450 * 450
    # Something is drawn in the place of every cluster, and more of it where variances are greater.
    columns = min(clusters, 6)
    rows = -(-clusters // columns)
    height, width = sheet.shape[0] // rows, sheet.shape[1] // columns
    ink = sheet.min(axis=2) < 250
    for cluster in range(clusters):
        row, column = divmod(cluster, columns)
        place = ink[row * height : (row + 1) * height, column * width : (column + 1) * width]
        assert place.sum() > 100


def test_the_greater_the_variances_the_greater_the_ellipses_on_a_sheet() -> None:
    means = np.random.default_rng(6).normal(size=(1, 5, 2)).astype(np.float32)
    inks = [
        (prototype_sheet(result_of(means, np.full_like(means, variance))).min(axis=2) < 250).mean()
        for variance in (1e-4, 0.1)
    ]
    assert inks[1] > 2 * inks[0]
