"""Reports on clusters of series: means over members, medoids, warps."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

from diffclust.data import SeriesSet
from diffclust.models import KMeans, Result, SeriesKMeans
from diffclust.plotting import CurveFrame, prototype_sheet
from diffclust.report import write_report
from diffclust.solvers import Status
from tests.cli.commands import few_warps


def fitted(channels: int = 1, **settings) -> tuple[Result, SeriesSet]:
    rng = np.random.default_rng(0)
    bases = rng.normal(size=(2, 30, channels)).cumsum(axis=1)
    series = bases[np.arange(16) % 2] + 0.1 * rng.normal(size=(16, 30, channels))
    series[5, 20:] = np.nan
    dataset = SeriesSet(series.astype(np.float32), labels=np.arange(16) % 2)
    model = SeriesKMeans(2, num_restarts=1, max_passes=3, split_merge=False, **settings)
    return model.fit(dataset.series, key=jax.random.key(0)), dataset


@pytest.fixture(scope="module")
def warped() -> Iterator[tuple[Result, SeriesSet]]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SeriesKMeans, "aligner", few_warps)
        yield fitted()


@pytest.fixture(scope="module")
def html(warped: tuple[Result, SeriesSet], tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("report"), *warped)


def page(folder: Path, result: Result, dataset: SeriesSet) -> str:
    write_report(folder / "report.html", result, dataset)
    return (folder / "report.html").read_text()


@pytest.mark.slow
def test_means_end_where_no_series_of_their_cluster_goes_on(tmp_path: Path) -> None:
    result, dataset = fitted(warps=False)
    series = dataset.series.copy()
    series[0::2, 20:] = np.nan
    dataset = SeriesSet(series)
    result = result.model.fit(series, key=jax.random.key(0), assignments=np.arange(16) % 2)
    short, long = result.assignments[0], result.assignments[1]
    assert short != long
    html = page(tmp_path, result, dataset)

    def points(html: str) -> list[int]:
        drawn = re.findall(r'<g (?:id="mean|class="colour)-[01]"><path d="([^"]*)"', html)
        return [len(re.findall(r"-?[0-9]+ ?-?[0-9]+", path)) for path in drawn]

    # Laid over each other, and each by itself.
    ends = points(html)
    assert len(ends) == 4
    assert max(ends[short], ends[2 + short]) < 0.75 * min(ends[long], ends[2 + long])
    # What new series lack says nothing about the means.
    outcome = dataclasses.replace(result.outcome, status=Status.PREDICTED)
    predicted = dataclasses.replace(result, outcome=outcome)
    (tmp_path / "new").mkdir()
    assert len(set(points(page(tmp_path / "new", predicted, dataset)))) <= 2
    assert min(points(page(tmp_path / "new", predicted, dataset))) > ends[short]


def test_single_values_between_missing_ones_are_drawn() -> None:
    series = np.sin(np.arange(400) / 50.0)[:, None]
    series[1::2] = np.nan
    frame = CurveFrame.around(series[None])
    assert len(re.findall("M", frame.path(series[:40]))) == 20
    # Of four values that share a place the first that is there is drawn.
    assert frame.path(series).count("M") == 1
    assert frame.path(np.roll(series, 1, axis=0)) != ""


def test_means_members_medoids_and_warps_are_drawn(
    warped: tuple[Result, SeriesSet], html: str
) -> None:
    result, _ = warped
    assert "seriess" not in html
    assert "Mean series laid over each other" in html
    assert "Warps of time in cluster 1" in html
    figures = re.findall(r'<figure class="centroid">.*?</figure>', html)
    assert len(figures) == 2
    counts = result.counts.tolist()
    for figure, count in zip(figures, counts, strict=True):
        curves, warps = re.findall(r"<svg.*?</svg>", figure)
        # The members and the medoid; the members' warps and the straight line.
        assert curves.count("<path") == count + 1
        assert warps.count("<path") == count + 1
        assert 'class="mean"' in curves
        assert f"Grey, {count}\u00a0warped series; blue, their mean; orange, the medoid" in figure


def test_means_of_finished_clusters_are_not_what_is_compared(
    warped: tuple[Result, SeriesSet],
    html: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = "over the mean series of its cluster: this is what is compared."
    assert told in html
    method = dataclasses.replace(warped[0].model.descriptor, has_prototypes=False)
    monkeypatch.setattr(SeriesKMeans, "descriptor", method)
    html = page(tmp_path, *warped)
    assert "Series were not compared with prototypes" in html
    assert told not in html
    assert "the ground of an image" not in html


def test_without_warps_there_are_none_to_be_seen(tmp_path: Path) -> None:
    html = page(tmp_path, *fitted(channels=3, warps=False))
    assert "Warps of time" not in html
    assert "warped series" not in html
    assert "channel below channel" in html
    assert "30\u00a0values of 3\u00a0channels" in html


def test_curves_have_gaps_and_few_points() -> None:
    series = np.linspace(0.0, 1.0, 1000)[:, None]
    series[400:600] = np.nan
    frame = CurveFrame.around(series[None])
    path = frame.path(series)
    assert path.count("M") == 2
    assert len(re.findall(r"-?\d+ -?\d+", path)) <= 120
    assert path.startswith(f"M0 {round(frame.height * 0.94)}")
    both = CurveFrame.around(np.concatenate([series, series], axis=1)[None])
    assert both.path(np.concatenate([series, series], axis=1)).count("M") == 4


def test_medoid_is_the_member_nearest_to_the_mean(
    warped: tuple[Result, SeriesSet], html: str
) -> None:
    result, dataset = warped
    nearest = min(np.flatnonzero(result.assignments == 0), key=result.distances.item)
    registered = np.asarray(result.registered(dataset.series))
    # Of series with missing values that of whole ones is estimated.
    norm = np.sqrt(registered.shape[1] * np.nanmean(registered**2, axis=(1, 2)))
    aligned = result.align(dataset.series, result.outcome.assignment.params) / norm[:, None, None]
    frame = CurveFrame.around(np.concatenate([result.prototypes, aligned]))
    figure = re.search(r'<figure class="centroid">.*?</figure>', html)
    assert figure is not None
    over = re.search(r'<g class="over"><path d="([^"]*)"', figure[0])
    assert over is not None
    assert over[1] == frame.path(aligned[nearest])


def test_sheet_and_times(warped: tuple[Result, SeriesSet]) -> None:
    result, _ = warped
    assert prototype_sheet(result).ndim == 3
    times = result.model.warped_times(result.outcome.assignment.params, np.linspace(0, 1, 9))
    assert times is not None
    assert times.shape == (16, 9, 1)
    assert np.all(np.diff(times[..., 0], axis=1) > 0)
    np.testing.assert_allclose(times[:, [0, -1], 0], [[0.0, 1.0]] * 16, atol=1e-6)
    images = KMeans(1, num_restarts=1).fit(np.eye(4)[None].repeat(2, 0), key=jax.random.key(0))
    assert images.model.warped_times(images.outcome.assignment.params, np.zeros(1)) is None
