"""Estimates of time and memory: their arithmetic, what they say, and whether they come true."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

import diffclust
from diffclust.alignment import NoAlignment
from diffclust.cli import commands as cli_estimate
from diffclust.cli import main
from diffclust.data import load
from diffclust.estimate import Estimate, StageCost, estimate, measure, stages
from diffclust.estimate.measure import Interval, Rehearsal, Watch, rehearse
from diffclust.models import AbstractModel, Clustering, Training
from diffclust.parallel import Data
from diffclust.solvers import Cancelled, Lloyd, Progress
from tests.models.test_own import Pair, PairMeans, pairs

GIGABYTE = 10**9


def cost(name: str, seconds: float) -> StageCost:
    return StageCost(name, seconds, 2 * seconds, seconds, seconds)


def example(**changes) -> Estimate:
    parts = (cost("setup", 5.0), cost("pass", 100.0).scaled(6.0, least=0.5, most=2.0))
    return Estimate(parts, host_bytes=2 * GIGABYTE, **changes)


def test_stages_add_up_with_their_ranges() -> None:
    result = example()
    assert (result.seconds, result.cpu_seconds) == (605.0, 1210.0)
    assert (result.least, result.most) == (305.0, 1205.0)


def test_an_estimate_is_told_in_one_line() -> None:
    assert example().describe() == "about 10 min (5 min to 20 min), 2 GB of memory"
    short = Estimate((cost("step", 7.25),), 10**8, device_bytes=30 * GIGABYTE)
    assert short.describe() == "about 7.2 s, 0.1 GB of memory, 30 GB on the device"
    assert "3 h" in Estimate((cost("step", 10800.0),), 10**8).describe()


def test_memory_that_does_not_suffice_is_told() -> None:
    assert example().shortage is None
    assert example(host_limit=2 * GIGABYTE).shortage is None
    short = example(host_limit=GIGABYTE + 1)
    assert short.shortage == "the fit needs about 2 GB of memory, and there are 1 GB"
    assert not short.is_hopeless
    assert example(host_limit=GIGABYTE - 1).is_hopeless
    device = example(device_bytes=80 * GIGABYTE, device_limit=20 * GIGABYTE)
    assert device.is_hopeless
    assert device.shortage is not None
    assert "on the device" in device.shortage


def test_a_watch_tells_stages_apart_and_ends_the_fit() -> None:
    watch = Watch(seconds=100.0, until=lambda progress: progress.iteration == 1)
    reports = [("seeding", 0, 0), ("pass", 0, 1), ("pass", 0, 2)]
    for stage, iteration, done in reports:
        watch(Progress(stage, 0, iteration, done, 2))
    with pytest.raises(Cancelled):
        watch(Progress("pass", 0, 1, 1, 2))
    # Seeds are drawn after the report of it, and with the first chunk.
    assert [i.stage for i in watch.intervals] == ["setup", "seeding", "pass", "pass"]
    assert all(i.wall >= 0.0 and i.cpu >= 0.0 for i in watch.intervals)


def test_a_watch_waits_for_the_first_step() -> None:
    watch = Watch(seconds=0.0)
    watch(Progress("seeding", 0, 0, 0, 2))
    with pytest.raises(Cancelled):
        watch(Progress("pass", 0, 0, 1, 2))
    assert [i.stage for i in watch.intervals] == ["setup", "seeding"]


def test_a_watch_ends_a_fit_that_takes_too_long() -> None:
    watch = Watch(seconds=0.1)
    watch(Progress("pass", 0, 0, 1, 9))
    # Waiting is no work: another program may have the processor.
    time.sleep(0.2)
    watch(Progress("pass", 0, 0, 2, 9))
    start = time.process_time()
    while time.process_time() < start + 0.2:
        pass
    with pytest.raises(Cancelled):
        watch(Progress("pass", 0, 0, 3, 9))


def test_compiling_is_no_part_of_what_a_stage_takes(key: jax.Array) -> None:
    images = load("digits").images[:96]
    # A number of clusters that no other test has, so that there is something to compile.
    model = diffclust.KMeans(7, num_restarts=1, split_merge=False, max_passes=4)
    seen = rehearse(model, images, key=key, chunk_size=96, seconds=60.0)
    assert seen.result is not None
    first = seen.of("seeding")[0]
    again = [step.wall + step.compiling for step in seen.of("pass")]
    assert first.compiling > 5 * max(again[1:])


def intervals(stage: str, count: int, wall: float, total: int) -> list[Interval]:
    return [
        Interval(stage, Progress(stage, 0, n // total, n % total + 1, total), wall, wall, 0.0, 0.0)
        for n in range(count)
    ]


def test_chunks_passes_and_growth_are_multiplied(
    monkeypatch: pytest.MonkeyPatch, key: jax.Array
) -> None:
    """10 passes were seen on 4,000 of 100,000 images; a chunk of 10,000 takes half a second."""
    images = np.zeros((100_000, 2, 2, 1), np.float32)
    step = intervals("pass", 4, 0.5, 1)
    pilot = intervals("pass", 10, 0.01, 1)
    result = object.__new__(diffclust.Result)
    reported = [Rehearsal(step, None), Rehearsal(pilot, result)]
    sizes = []

    def rehearsed(model: AbstractModel, samples: np.ndarray, **_) -> Rehearsal:
        sizes.append(len(samples))
        return reported[len(sizes) - 1]

    monkeypatch.setattr(stages, "rehearse", rehearsed)
    model = diffclust.KMeans(10, num_restarts=1, split_merge=False)
    settings = {"key": key, "chunk_size": 10_000, "seconds": 20.0, "short": 0.0}
    costs = stages.stage_costs(stages.PlannedFit(model, images, **settings))
    assert sizes == [10_000, 4096]
    actual = {stage.name: stage.seconds for stage in costs}
    growth = (100_000 / 4096) ** 0.35
    assert actual == {"pass": pytest.approx(0.5 * 10 * 10 * growth)}
    # Where a small fall of the loss is enough, passes do not grow; nor beyond their limit.
    sizes.clear()
    reported[1] = Rehearsal(pilot, result)
    model = dataclasses.replace(model, tolerance=1e-3)
    (only,) = stages.stage_costs(stages.PlannedFit(model, images, **settings))
    assert only.seconds == pytest.approx(50.0)
    sizes.clear()
    model = dataclasses.replace(model, tolerance=0.0, max_passes=12)
    (only,) = stages.stage_costs(stages.PlannedFit(model, images, **settings))
    assert only.seconds == pytest.approx(60.0)


def test_every_phase_of_gradient_steps_is_timed(
    monkeypatch: pytest.MonkeyPatch, key: jax.Array
) -> None:
    """Steps are reported in windows of 50: a phase of 51 steps has two reports."""

    def rehearsed(*ends: int, wall: float = 0.01) -> Rehearsal:
        starts = (0, *ends)
        steps = [
            Interval(
                "step", Progress("step", 0, 0, end, ends[-1]), wall * (end - start), 0.0, 0.0, 0.0
            )
            for start, end in zip(starts, ends, strict=False)
        ]
        predicted = Interval("predict", Progress("predict", 0, 0, 1, 1), 0.0, 0.0, 0.0, 0.0)
        return Rehearsal([*steps, predicted], None)

    one = rehearsed(1, 2)
    seen = iter([one, one, rehearsed(50, 51, 101, 102), one, one])
    monkeypatch.setattr(stages, "rehearse", lambda *_, **__: next(seen))
    model = diffclust.GaussianMixture(3, training=diffclust.Training(max_steps=400))
    settings = {"chunk_size": None, "seconds": 20.0, "short": 0.0}
    images = np.zeros((60, 4, 4, 1), np.float32)
    fit = stages.PlannedFit(model, images, key=key, **settings)
    (step,) = (cost for cost in stages.stage_costs(fit) if cost.name == "step")
    assert step.seconds == pytest.approx(0.01 * model.training_plan(fit.description).num_steps)
    assert step.least < 0.8 * step.seconds < 1.2 * step.seconds < step.most


@pytest.mark.slow
def test_directions_of_few_images_are_timed(key: jax.Array) -> None:
    """Fewer images than features: not by the square of what a few images took with their calls."""
    samples = np.random.default_rng(0).uniform(size=(900, 28, 28, 1)).astype(np.float32)
    model = diffclust.ProjectedScatteringSpectralClustering(3, register="none")
    fit = stages.PlannedFit(model, samples, key=key, chunk_size=None, seconds=20.0, short=0.0)
    assert 2 * len(samples) <= model.num_features(fit.shape[1:])
    slow = [Interval("directions", None, 1.0, 1.0, 0.0, 0.0)]
    assert 0.0 < stages._directions(fit, 128, Rehearsal(slow, None), 1).seconds < 20.0


def test_directions_of_three_images_are_timed(key: jax.Array) -> None:
    samples = np.random.default_rng(0).uniform(size=(3, 8, 8, 1)).astype(np.float32)
    model = diffclust.ProjectedScatteringSpectralClustering(2, register="none")
    fit = stages.PlannedFit(model, samples, key=key, chunk_size=None, seconds=20.0, short=0.0)
    assert stages._directions(fit, 3, Rehearsal([], None), 1).seconds > 0.0


def test_a_short_fit_is_not_rehearsed_to_its_end(key: jax.Array) -> None:
    images = load("digits").images[:200]
    model = diffclust.KMeans(4, num_restarts=1)
    start = time.process_time()
    rough = estimate(model, images, key=key, short=3600.0)
    assert [stage.name for stage in rough.stages] == ["setup", "seeding", "pass"]
    # Nobody knows how many passes there will be.
    assert rough.stages[-1].most > 5 * rough.stages[-1].least
    assert time.process_time() - start < 20.0


@pytest.mark.slow
def test_an_estimate_changes_nothing_about_the_fit(key: jax.Array) -> None:
    images = load("digits").images[:120]
    model = diffclust.KMeans(3, num_restarts=1, max_passes=5)
    before = model.fit(images, key=key)
    estimate(model, images, key=key)
    after = model.fit(images, key=key)
    np.testing.assert_array_equal(before.prototypes, after.prototypes)
    np.testing.assert_array_equal(before.distances, after.distances)


FIT = ["fit", "digits", "-k", "3", "--method", "kmeans", "--limit", "120", "--restarts", "1"]


def test_a_dry_run_tells_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = [*FIT, "--dry-run", "--out", str(tmp_path / "run")]
    told = "kmeans of 120 images in 3 clusters would take about "
    with monkeypatch.context() as patched:
        patched.setattr("diffclust.cli.commands.estimate", None)
        assert main(dry) == 0
        assert capsys.readouterr().out.startswith(told + "a minute at most (dry run")
    monkeypatch.setattr(cli_estimate, "_SHORT_FIT_WORK", 0)
    assert main(dry) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(told)
    assert "GB of memory" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_of_a_small_graph_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diffclust.cli.commands.estimate", None)
    graph = [word if word != "kmeans" else "pssc" for word in FIT[:-2]]
    assert main([*graph, "--dry-run", "--out", str(tmp_path / "run")]) == 0
    assert "would take about a minute at most (dry run" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("extra", [["--dry-run"], []], ids=["dry run", "fit"])
def test_a_fit_that_cannot_have_its_memory_is_refused(
    extra: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stages, "installed_memory", lambda: 10**6)
    monkeypatch.setattr(cli_estimate, "_SHORT_FIT_WORK", 0)
    monkeypatch.setattr(cli_estimate, "_read_estimate", lambda *_: None)
    monkeypatch.setattr(cli_estimate, "_save_estimate", lambda *_: None)
    assert main([*FIT, *extra, "--out", str(tmp_path / "run")]) == 2
    reported = capsys.readouterr().err
    assert reported.startswith("error: the fit needs about ")
    assert "try a smaller --limit" in reported
    assert list(tmp_path.iterdir()) == []


def place_in(folder: Path, place: Callable[..., Path | None]) -> Callable[..., Path]:
    """The same names of files, in a folder that no other test has written to."""

    def moved(*asked) -> Path:
        result = place(*asked)
        assert result is not None
        return folder / result.name

    return moved


def test_a_long_fit_is_announced_and_not_rehearsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = []

    def long(*_, **__) -> Estimate:
        calls.append(1)
        return example(host_limit=int(1.5 * GIGABYTE))

    monkeypatch.setattr(cli_estimate, "estimate", long)
    # So small a fit is not rehearsed at all.
    assert main([*FIT, "--no-report", "--out", str(tmp_path / "small")]) == 0
    assert (calls, "this will take" in capsys.readouterr().err) == ([], False)
    monkeypatch.setattr(cli_estimate, "_SHORT_FIT_WORK", 0)
    monkeypatch.setattr(
        cli_estimate, "_estimate_file", place_in(tmp_path / "kept", cli_estimate._estimate_file)
    )
    for name in ("one", "two"):
        assert main([*FIT, "--no-report", "--out", str(tmp_path / name)]) == 0
        reported = capsys.readouterr().err
        assert "this will take about 10 min (5 min to 20 min), 2 GB of memory\n" in reported
        assert "warning: the fit needs about 2 GB of memory, and there are 1.5 GB; try" in reported
    assert len(calls) == 1
    # Another fit is another matter.
    assert main([*FIT, "--no-report", "--max-passes", "3", "--out", str(tmp_path / "c")]) == 0
    assert len(calls) == 2


@pytest.mark.slow
def test_a_graph_without_features_is_estimated(key: jax.Array) -> None:
    samples = np.random.default_rng(0).normal(size=(3000, 12, 1)).astype(np.float32)
    expected = estimate(diffclust.SeriesSpectralClustering(3, warps=False), samples, key=key)
    stages = {stage.name: stage.seconds for stage in expected.stages}
    assert stages["pairs"] > 0.0
    assert "directions" not in stages or stages["directions"] == 0.0


MODELS = {
    "kmeans": diffclust.KMeans(10),
    "di-kmeans": diffclust.DeformationInvariantKMeans(10, num_restarts=1),
    "dti-kmeans": diffclust.DTIKMeans(
        10, transforms="aff", training=diffclust.Training(max_steps=600)
    ),
    "pssc": diffclust.ProjectedScatteringSpectralClustering(10),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_estimates_come_true_within_a_factor_of_two(name: str, key: jax.Array) -> None:
    """By processor seconds: other programs of this machine slow both down, but not alike."""
    digits, rng = load("digits").images, np.random.default_rng(0)
    count = 3000 if name != "di-kmeans" else 1200
    # More than there are, each a little different.
    noisy = digits[np.arange(count) % len(digits)] + rng.normal(0, 0.05, (count, 8, 8, 1))
    images = np.clip(noisy, 0, 1).astype(np.float32)
    expected = estimate(MODELS[name], images, key=jax.random.fold_in(key, 1))
    start = time.process_time()
    MODELS[name].fit(images, key=key)
    took = time.process_time() - start
    assert 0.5 * took < expected.cpu_seconds < 2.0 * took, expected
    assert 0.5 < expected.host_bytes / measure.peak_bytes() < 2.0


def test_chunks_may_hold_fewer_samples_than_there_are_clusters(key: jax.Array) -> None:
    """Then several are rehearsed."""
    model = diffclust.KMeans(6, num_restarts=1, split_merge=False)
    images = np.random.default_rng(0).random((60, 4, 4, 1), np.float32)
    fit = stages.PlannedFit(model, images, key=key, chunk_size=4, seconds=20.0, short=0.0)
    assert stages.stage_costs(fit)


def test_trees_have_no_estimate() -> None:
    model = Clustering(2, Lloyd(Pair(), NoAlignment(), PairMeans()))
    with pytest.raises(ValueError, match="trees of arrays have no estimate"):
        estimate(model, pairs(), key=jax.random.key(0))


def test_rehearsals_of_epochs_and_of_short_phases_have_the_steps_asked_for() -> None:
    images = Data(np.zeros((60, 4, 4, 1), np.float32)).description
    for given in ({"epochs": (30, 0, 3)}, {"steps": (20, 0, 5000)}):
        training = Training(**given)
        few = training.shortened(51, training.plan(1, images), split_merge=False)
        assert (few.steps, few.epochs) == ((51, 0, 51), None)
