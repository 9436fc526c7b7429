"""Fits that are broken off, in every way that we could think of, and go on to the same result."""

import asyncio
import dataclasses
import errno
import functools
import gc
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest

import diffclust
from diffclust.alignment import Descent, NoAlignment, Stage
from diffclust.cli import main, samples
from diffclust.energies import TransformedDistance
from diffclust.models import (
    Clustering,
    DeformationInvariantSpectralClustering,
    GaussianMixture,
    KMeans,
    ProjectedScatteringSpectralClustering,
    Result,
    ScatteringKMeans,
    ShapeKMeans,
    Training,
)
from diffclust.models.identity import identity_of
from diffclust.parallel import Data, data_mesh
from diffclust.progress_bar import ProgressBar
from diffclust.prototypes import Clusters, Learned, MeanImages, UnitNormImages
from diffclust.solvers import (
    Assignment,
    FitStage,
    Lloyd,
    LloydPlan,
    Outcome,
    Progress,
    SplitMerge,
    StagedProblem,
    Status,
    Stopping,
    bounded,
    lloyd_run,
    run,
)
from diffclust.solvers.driver import STATE_FORMAT
from diffclust.storage import snapshots as stored_snapshots
from diffclust.storage.snapshots import SnapshotFolder
from diffclust.transforms import Affine, Identity
from tests.fits import fit_prototypes

ROOT = Path(__file__).parents[2]
KEY = jax.random.key(3)
State = tuple[Any, dict[str, Any]]


class Broken(Exception):
    """What breaks a fit off."""


class Breaking:
    """Snapshots in memory, through JSON and NumPy; the fit is broken off after each `every`-th."""

    def __init__(self, every: int = 0) -> None:
        self.every, self.count = every, 0
        self.newest: tuple[Any, str] | None = None
        self.reported: list[dict[str, Any]] = []

    def save(self, state: Callable[[], State]) -> None:
        arrays, about = state()
        self.newest = jax.tree.map(np.array, arrays), json.dumps(about)
        self.reported.append(about)
        self.count += 1
        if self.every and self.count % self.every == 0:
            raise Broken

    def latest(self, like: Callable[[dict[str, Any]], Any]) -> State | None:
        if self.newest is None:
            return None
        arrays, about = self.newest[0], json.loads(self.newest[1])

        def placed(blank: Any, array: np.ndarray) -> Any:
            assert (blank.shape, blank.dtype) == (array.shape, array.dtype)
            return array if isinstance(blank, np.ndarray) else jnp.asarray(array)

        return jax.tree.map(placed, like(about), arrays), about

    def last(self) -> str | None:
        return None


def arrays_of(outcome: Outcome) -> list[np.ndarray]:
    result = outcome.assignment
    every = [result.clusters, result.distances, result.margins, result.runners_up, result.params]
    every += [outcome.history, outcome.restarts, *jax.tree.leaves(outcome.learned)]
    return [*map(np.asarray, every), *(outcome.extras[name] for name in sorted(outcome.extras))]


def assert_same(one: Outcome, other: Outcome) -> None:
    for a, b in zip(arrays_of(one), arrays_of(other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.figures == other.figures
    assert one.status is other.status


def shapes(count: int, side: int = 8) -> np.ndarray:
    """Images of bars and squares that are moved a little."""
    random = np.random.default_rng(1)
    images = random.uniform(0, 0.2, (count, side, side, 1)).astype(np.float32)
    for i in range(count):
        place = 1 + (i // 4) % 3
        if i % 4 == 0:
            images[i, place] += 0.7
        elif i % 4 == 1:
            images[i, :, place] += 0.7
        elif i % 4 == 2:
            images[i, place : place + 4, place : place + 4] += 0.7
        else:
            images[i, -1 - place] += 0.7
    return images


def aligned(snapshots: Any, *, mesh: Any = None, images: np.ndarray | None = None) -> Outcome:
    """A small fit with everything: restarts on coarse images, moves, weights, a fine run."""
    solver = Lloyd(TransformedDistance(Affine()), Descent((Stage(2),)), UnitNormImages())
    size = 16 if mesh is None else 16 // mesh.size
    moves = SplitMerge(attempts=1)
    plan = LloydPlan(3, (0.5,), 2, Stopping(3, 1e-4), moves, 2, penalty_rounds=2)
    images = shapes(38) if images is None else images
    options = {"snapshots": snapshots, "chunk_size": size, "mesh": mesh}
    return fit_prototypes(solver, plan, images, None, key=KEY, **options)


def plain(snapshots: Any, *, mesh: Any = None) -> Outcome:
    """A fit from a poor start, which several moves repair."""
    groups = np.where(np.arange(70) % 4 == 3, np.arange(70) // 4 % 4, 4)
    model = KMeans(5)
    return model.fit(
        shapes(70), key=KEY, assignments=groups, chunk_size=16, snapshots=snapshots, mesh=mesh
    ).outcome


def of_landmarks(snapshots: Any) -> Outcome:
    points = np.random.default_rng(0).normal(size=(3, 6, 2))[np.arange(40) % 3]
    points = points + 0.1 * np.random.default_rng(1).normal(size=(40, 6, 2))
    model, weight = ShapeKMeans(3, num_restarts=3), np.arange(40) % 3
    return model.fit(
        points, key=KEY, sample_weight=weight, chunk_size=16, snapshots=snapshots
    ).outcome


FITS = {"aligned": aligned, "plain": plain, "shapes": of_landmarks}


def chained(
    fit: Callable[..., Outcome], every: int, meshes: Sequence[Any] = (None,)
) -> tuple[Outcome, Breaking]:
    """The result of many processes, each of which is broken off; no state is reached twice."""
    states, broken = Breaking(every), 0
    while True:
        mesh = meshes[broken % len(meshes)]
        try:
            return (fit(states) if mesh is None else fit(states, mesh=mesh)), states
        except Broken:
            broken += 1
            assert broken == states.count // every
            assert broken < 100


@pytest.mark.parametrize(
    "name", ["shapes", *(pytest.param(n, marks=pytest.mark.slow) for n in ("aligned", "plain"))]
)
def test_broken_off_after_every_pass_it_goes_on_bit_for_bit(name: str) -> None:
    fit, watched = FITS[name], Breaking()
    whole = fit(None)
    assert_same(fit(watched), whole)
    result, states = chained(fit, 1)
    assert_same(result, whole)
    # Whatever an unbroken fit would have saved was saved, and no more.
    for one in (*states.reported, *watched.reported):
        one.pop("seconds")
    assert states.reported == watched.reported
    positions = [about["position"] for about in states.reported]
    if name == "aligned":
        assert {at["stage"] for at in positions} == {"restarts", "penalties", "refine", "done"}
        assert {at["restart"] for at in positions} == {0, 1, 2}
    if name == "plain":
        going = [at for at in positions if at["history"] and at["run"]]
        assert {at["round"] for at in going} >= {0, 1}


@pytest.fixture(scope="module")
def whole_plain() -> Outcome:
    return plain(None)


def test_broken_off_now_and_then(whole_plain: Outcome) -> None:
    assert_same(chained(plain, 5)[0], whole_plain)


@pytest.mark.slow
def test_another_number_of_devices_goes_on(whole_plain: Outcome) -> None:
    result, states = chained(plain, 3, [None, data_mesh(jax.devices()[:2])])
    assert states.count > 15
    np.testing.assert_array_equal(result.assignment.clusters, whole_plain.assignment.clusters)
    np.testing.assert_allclose(result.history, whole_plain.history, rtol=1e-5)


@pytest.mark.slow
def test_another_number_of_devices_goes_on_with_everything() -> None:
    images = shapes(38).astype(np.float64)
    with jax.enable_x64(True):
        fit = functools.partial(aligned, images=images)
        whole = fit(None)
        meshes = [data_mesh(jax.devices()[:number]) for number in (2, 4)]
        result, states = chained(fit, 5, [None, *meshes])
    assert states.count > 15
    for one, other in zip(arrays_of(result), arrays_of(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


NOTHING = Learned(Clusters(jnp.zeros((1, 1)), jnp.zeros((1, 0))))
NO_SAMPLES = Assignment(*[np.zeros(0, kind) for kind in ("i4", "f4", "f4", "i4")], np.zeros((0, 0)))


def test_stages_are_read_not_computed() -> None:
    computed: list[str] = []

    def fit(snapshots: Any) -> list[np.ndarray]:
        def first(context: Any) -> dict[str, np.ndarray]:
            computed.append("first")
            return {"a": np.arange(3.0), "b": np.zeros((0, 2), np.int32)}

        def chunks(begin: int) -> Iterator[np.ndarray]:
            for start in range(begin, 10, 4):
                computed.append(f"rows {start}")
                yield np.arange(start, min(start + 4, 10))

        def outcome(context: Any) -> Outcome:
            first, rows = context.results["first"], context.results["second"]["rows"]
            extras = {"a": first["a"], "b": first["b"], "rows": rows}
            return Outcome(NOTHING, NO_SAMPLES, (0.0,), (0.0,), Status.SOLVED, 1, extras=extras)

        stages = (FitStage("first", first), FitStage("second", chunks=lambda context: chunks))
        problem, data = StagedProblem(stages, outcome), Data(np.zeros((1, 1)))
        result = run((problem,), data, KEY, snapshots=snapshots).extras
        return [result["a"], result["b"], result["rows"]]

    whole = fit(None)
    steps = ["first", "rows 0", "rows 4", "rows 8"]
    assert computed == steps
    computed.clear()
    states = Breaking(1)
    while True:
        try:
            result = fit(states)
            break
        except Broken:
            continue
    assert computed == steps
    for one, other in zip(result, whole, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


STAGED = {
    "pssc": ProjectedScatteringSpectralClustering(
        4, affinity="representatives", num_removed=(1, 2), num_representatives=12
    ),
    "di-spectral": DeformationInvariantSpectralClustering(4, landmarks=(2, 2), direction="mean"),
    "scattering-kmeans": ScatteringKMeans(4, num_scales=1, num_angles=2, num_restarts=2),
}


@pytest.mark.parametrize(
    "method",
    [
        name if name == "scattering-kmeans" else pytest.param(name, marks=pytest.mark.slow)
        for name in STAGED
    ],
)
def test_broken_off_after_every_stage_and_chunk(method: str) -> None:
    model, images = STAGED[method], shapes(40, 10)

    def fit(snapshots: Any) -> Outcome:
        weight = np.arange(40) % 8 / 4
        return model.fit(
            images, key=KEY, sample_weight=weight, chunk_size=16, snapshots=snapshots
        ).outcome

    whole = fit(None)
    result, states = chained(fit, 1)
    assert_same(result, whole)
    assert len(result.assignment) == 40
    positions = [about["position"] for about in states.reported]
    start = {at["rows"]["stage"] for at in positions if at["rows"]}
    # Pairs come in chunks of 256, in each frame of `register="auto"`.
    pairs = {"pairs", "pairs place"} if method == "di-spectral" else set()
    assert start == pairs | {"alignments"}
    assert set(positions[-1]["stages"]) >= {"features", "means", "alignments"}


@pytest.mark.parametrize(
    ("noise", "every"),
    [(0.05, 7), *[pytest.param(noise, 1, marks=pytest.mark.slow) for noise in (2.0, 5.0)]],
)
def test_passes_that_read_few_samples_go_on(
    noise: float, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "_LEAST_WORK", 0)
    monkeypatch.setattr(bounded, "LEAST_PASSES", 2)
    monkeypatch.setattr(lloyd_run, "_LARGE", 0)
    draw = np.random.default_rng(0)
    points, axes = draw.normal(size=(200, 6)), draw.normal(size=(6, 12, 12))
    images = np.tensordot(points, axes, axes=1) + noise * draw.normal(size=(200, 12, 12))

    def fit(snapshots: Any) -> Outcome:
        return KMeans(6).fit(images.astype(np.float32), key=KEY, snapshots=snapshots).outcome

    result, states = chained(fit, every)
    assert_same(result, fit(None))
    # After passes that read much noise some are made without bounds, and that is remembered.
    backoff = {about["position"]["backoff"][0] for about in states.reported}
    assert (max(backoff) > 0) == (noise > 1.0)


def test_a_folder_gives_back_what_it_was_given(tmp_path: Path) -> None:
    state = {
        "host": np.arange(4.0),
        "number": np.asarray(2.5),
        "none": np.zeros((0, 3), np.int64),
        "device": jnp.ones(3),
    }
    with SnapshotFolder(tmp_path, run={}, every=1e9, save_last=False) as folder:
        folder.save(lambda: (state, {"at": 1}))
    with SnapshotFolder(tmp_path, run={}, every=1e9) as folder:
        assert folder.latest(lambda _: state) is None
    # What ends the block by an exception saves the newest state first.
    folder = SnapshotFolder(tmp_path, run={}, every=1e9)
    folder.save(lambda: (state, {"at": 1}))
    folder.save(lambda: (state, {"at": 2**100}))
    with pytest.raises(SystemExit), folder:
        raise SystemExit(143)
    reported: list[str] = []
    with SnapshotFolder(tmp_path, run={}, every=1e9, log=reported.append) as folder:
        latest = folder.latest(lambda _: jax.tree.map(np.zeros_like, state))
    assert latest is not None
    result, about = latest
    assert about == {"at": 2**100}
    assert [line[:24] for line in reported] == ["going on from snapshot 1"]
    for name, array in state.items():
        np.testing.assert_array_equal(result[name], array)
        assert result[name].dtype == array.dtype


def test_a_finished_fit_that_is_repeated_returns_its_result(tmp_path: Path) -> None:
    images, seen = np.random.default_rng(0).random((12, 4, 4), np.float32), []
    model = KMeans(2, num_restarts=1, max_passes=3)
    with SnapshotFolder(tmp_path) as folder:
        first = model.fit(images, key=KEY, snapshots=folder)
    with SnapshotFolder(tmp_path, log=lambda _: None) as folder:
        again = model.fit(images, key=KEY, snapshots=folder, callback=seen.append)
    assert not [progress for progress in seen if progress.stage == "pass"]
    assert_same(again.outcome, first.outcome)
    with SnapshotFolder(tmp_path) as folder, pytest.raises(ValueError, match="another key"):
        model.fit(images, key=jax.random.key(7), snapshots=folder)
    with SnapshotFolder(tmp_path / "none", save_last=False) as folder:
        model.fit(images, key=KEY, snapshots=folder)
    assert not any((tmp_path / "none" / "states").iterdir())


def test_states_of_a_fit_by_another_key_are_refused(tmp_path: Path) -> None:
    images, model = np.random.default_rng(0).random((12, 4, 4), np.float32), KMeans(2)
    with SnapshotFolder(tmp_path, run={}, every=0.0) as folder:
        first = model.fit(images, key=jax.random.key(0), snapshots=folder)
        with pytest.raises(
            ValueError, match="snapshot .* began with another key; ask for the same"
        ):
            model.fit(images, key=jax.random.key(1), snapshots=folder)
        again = model.fit(images, key=jax.random.key(0), snapshots=folder)
    np.testing.assert_array_equal(again.assignments, first.assignments)


def test_states_of_a_fit_of_other_samples_or_settings_are_refused(tmp_path: Path) -> None:
    images, key = np.random.default_rng(0).random((12, 4, 4), np.float32), jax.random.key(0)

    def fit(kind: type[Any] = KMeans, /, given: Any = images, **arguments: Any) -> Any:
        settings = {n: arguments.pop(n) for n in ("tolerance", "lloyd") if n in arguments}
        model = kind(2, split_merge=False, **settings)
        with SnapshotFolder(tmp_path, every=0.0) as folder:
            return model.fit(given, key=key, snapshots=folder, **arguments)

    first = fit()
    start = np.arange(12) % 2
    for arguments, message in (
        ({"given": images[::-1]}, "is of other samples"),
        ({"sample_weight": np.arange(1.0, 13.0)}, "is of other weights"),
        ({"assignments": start}, "began with another start"),
        ({"tolerance": 0.5}, "had tolerance 0.0, not 0.5"),
    ):
        with pytest.raises(ValueError, match=f"snapshot .* {message}; ask for the same"):
            fit(**arguments)
    np.testing.assert_array_equal(fit(chunk_size=8).assignments, first.assignments)
    lloyd = Lloyd(TransformedDistance(Identity()), NoAlignment(), MeanImages())
    with pytest.raises(ValueError, match="had model 'KMeans', not 'Clustering"):
        fit(Clustering, given=images[..., None], lloyd=lloyd)


def test_what_tells_a_fit_from_others_is_what_earlier_versions_wrote() -> None:
    data = Data(np.zeros((6, 4, 4, 1), np.float32))
    settings = identity_of(GaussianMixture(2), data, None)["settings"]
    assert settings["batch_size"] is None
    assert (settings["bias_correction"], settings["curriculum_start"]) == ("array", "spatial")
    before = Training(bias_correction="fit", curriculum_start="identity")
    was = identity_of(GaussianMixture(2, training=before), data, None)["settings"]
    assert not {"bias_correction", "curriculum_start"} & was.keys()


def test_a_folder_that_nothing_is_saved_in_needs_no_orbax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("orbax.checkpoint")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    with SnapshotFolder(tmp_path, run={}, every=1e9, save_last=False) as folder:
        assert folder.latest(lambda _: {}) is None
        folder.save(lambda: ({"device": jnp.ones(3)}, {"at": 1}))
        assert folder.last() is None
    folder = SnapshotFolder(tmp_path, run={}, every=0.0)
    with folder, pytest.raises(OSError, match="cannot be saved"):
        folder.save(lambda: ({"device": jnp.ones(3)}, {"at": 1}))


def test_a_folder_belongs_to_one_fit_at_a_time(tmp_path: Path) -> None:
    in_use = "is in use by another fit; wait until that one ends, or give another folder"
    with SnapshotFolder(tmp_path, run={}), pytest.raises(ValueError, match=in_use):
        SnapshotFolder(tmp_path, run={})
    with pytest.raises(Broken), SnapshotFolder(tmp_path, run={}):
        raise Broken
    # One that is refused, or is dropped, holds no lock.
    with pytest.raises(ValueError, match="had seed None, not 1"):
        SnapshotFolder(tmp_path, run={"seed": 1})
    SnapshotFolder(tmp_path, run={})
    gc.collect(1)
    with SnapshotFolder(tmp_path, run={}):
        pass


def test_a_folder_that_is_removed_before_it_is_locked_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lock_file = tmp_path / "run", stored_snapshots.lock_file
    folder.mkdir()

    def late(*args: Any, **settings: Any) -> None:
        folder.rename(tmp_path / "removed")
        lock_file(*args, **settings)

    monkeypatch.setattr(stored_snapshots, "lock_file", late)
    with pytest.raises(ValueError, match="is in use"), stored_snapshots.locked(folder):
        pass


def test_snapshots_of_an_older_format_are_refused(tmp_path: Path) -> None:
    for mark in ({"diffclust": "0.1.0", "run": {}}, {"format": STATE_FORMAT - 1, "run": {}}):
        (tmp_path / "snapshots.json").write_text(json.dumps(mark), "utf-8")
        with pytest.raises(ValueError, match="another format; go on with that one, or remove"):
            SnapshotFolder(tmp_path, run={})


# The command line.


@dataclasses.dataclass(frozen=True)
class Case:
    options: list[str]
    most: int
    """It is killed before so many snapshots were taken."""


_DTI = ["--transforms", "aff", "--batch-size", "8", "--steps", "200,400,200"]
CASES = {
    "di-kmeans": Case(["--landmarks", "2", "--max-passes", "8", "--tolerance", "0"], 14),
    "dti-kmeans": Case(_DTI, 13),
    "pssc": Case(["--chunk-size", "4", "--removed", "1,2", "--dimensions", "20"], 9),
    "kmeans": Case(["--restarts", "2", "--max-passes", "8", "--tolerance", "0"], 14),
}
QUICK = "kmeans"
"""Of all methods the quickest to compile."""
EVERY = ["--checkpoint-every", "0"]


def arguments(method: str, out: str = "run") -> list[str]:
    options = CASES[method].options
    return ["images.npz", "-k", "4", "--method", method, *options, "--no-report", "--out", out]


Fit = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    np.savez(folder / "images.npz", x=(255 * shapes(40, 10)[..., 0]).clip(0, 255).astype(np.uint8))
    return folder


@pytest.fixture
def fit(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fit:
    """Runs a fit in this process; gives its status and what it had to say of errors."""
    monkeypatch.chdir(home)

    def call(*options: str) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["fit", *options])
        lines = capsys.readouterr().err.splitlines()
        return status, "\n".join(line for line in lines if " done" not in line)

    return call


def whole(fit: Fit, method: str) -> Result:
    """The result of a fit that nothing disturbed; once for all tests."""
    if not Path(f"whole-{method}").exists():
        assert fit(*arguments(method, f"whole-{method}")) == (0, "")
    return diffclust.load(f"whole-{method}")


def snapshots_in(out: Path) -> list[int]:
    result = (path.name for path in Path(f"{out}.partial").glob("states/*"))
    return sorted(int(name) for name in result if name.isdigit())


def environment() -> dict[str, str]:
    """That of a process that comes to grief: JAX would leave half an entry in its cache."""
    unwritten = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1000000"}
    return {**os.environ, "PYTHONPATH": str(ROOT), **unwritten}


def killed(
    options: list[str],
    when: Callable[[], bool],
    number: int = signal.SIGKILL,
    meanwhile: Callable[[], None] | None = None,
) -> str:
    """Starts a fit in another process, which gets a signal; what it wrote to stderr.

    `meanwhile` is called before that, while the process stands still.
    """
    command = [sys.executable, "-m", "diffclust", "fit", *options]
    with Path("child.log").open("w") as log:
        child = subprocess.Popen(command, env=environment(), stdout=log, stderr=log)
        deadline = time.monotonic() + 240
        while child.poll() is None and time.monotonic() < deadline and not when():
            time.sleep(0.002)
        try:
            if meanwhile is not None:
                child.send_signal(signal.SIGSTOP)
                os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                meanwhile()
        finally:
            child.send_signal(number)
        child.wait(60)
    text = Path("child.log").read_text("utf-8")
    expected = -number if number == signal.SIGKILL else 128 + number
    assert child.returncode == expected, text
    return text


def resumed(fit: Fit, method: str, out: str) -> None:
    """Goes on, from a state, to what an undisturbed fit gives bit for bit."""
    assert not Path(out).exists()
    status, err = fit(*arguments(method, out), "--resume")
    assert status == 0
    assert re.fullmatch(r"going on from snapshot [1-9]\d* in '.*'", err)
    assert_same(diffclust.load(out).outcome, whole(fit, method).outcome)
    folders = f"{out} whole-{method}".split()
    files = ["assignments.csv", "prototypes.png"]
    for name in files:
        assert len({Path(folder, name).read_bytes() for folder in folders}) == 1
    assert [name for name in os.listdir(".") if re.match(rf"\.?{out}\b", name)] == [out]


@pytest.mark.parametrize(
    "method",
    [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_killed_it_goes_on_bit_for_bit(fit: Fit, method: str) -> None:
    whole(fit, method)
    kill_and_resume(fit, method, list(CASES).index(method))
    # The lock of a process that was killed is gone with it: another went on.


def refused(fit: Fit, options: list[str], out: str) -> None:
    """A second fit in a folder in which another process fits harms nothing."""
    before = snapshots_in(Path(out))
    assert before
    for more in (["--resume"], ["--overwrite"], ["--resume", "--overwrite"], []):
        status, err = fit(*options, *more)
        assert (status, err.count("\n")) == (2, 0)
        assert f"{out}.partial' is in use by another fit; wait until" in err
        assert snapshots_in(Path(out)) == before


def kill_and_resume(fit: Fit, method: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    out, least = f"killed-{method}-{seed}", int(random.integers(1, CASES[method].most))
    until: list[float] = []

    def when() -> bool:
        if not until and max(snapshots_in(Path(out)), default=0) >= least:
            until.append(time.monotonic() + random.uniform(0, 0.05))
        return bool(until) and time.monotonic() >= until[0]

    options = arguments(method, out)
    killed([*options, *EVERY], when, meanwhile=lambda: refused(fit, options, out))
    resumed(fit, method, out)


@pytest.mark.slow
@pytest.mark.parametrize("method", CASES)
def test_killed_at_random_moments(fit: Fit, method: str) -> None:
    whole(fit, method)
    for seed in range(100, 107):
        kill_and_resume(fit, method, seed)


@pytest.mark.slow
def test_killed_in_the_middle_of_a_save(fit: Fit) -> None:
    for attempt in range(5):
        out = f"saving-{attempt}"
        states = Path(f"{out}.partial", "states")

        def half() -> list[Path]:
            return list(states.glob("*.orbax-checkpoint-tmp"))  # noqa: B023

        killed(
            [*arguments("dti-kmeans", out), *EVERY],
            lambda: len(snapshots_in(Path(out))) > 1 and bool(half()),  # noqa: B023
        )
        was_half = bool(half())
        resumed(fit, "dti-kmeans", out)
        if was_half:
            return
    pytest.fail("no save was caught in the middle")


def interrupted_by(
    monkeypatch: pytest.MonkeyPatch, number: int, stage: str, at: int
) -> list[Progress]:
    """Signals this process at the `at`-th report of a stage; the reports, as they come."""
    show, seen = ProgressBar.__call__, []

    def call(self: ProgressBar, progress: Progress) -> None:
        seen.append(progress)
        if [p.stage for p in seen].count(stage) == at and progress.stage == stage:
            signal.raise_signal(number)
        show(self, progress)

    monkeypatch.setattr(ProgressBar, "__call__", call)
    return seen


@pytest.mark.parametrize(
    ("number", "status", "method", "stage"),
    [
        (signal.SIGTERM, 143, "kmeans", "pass"),
        pytest.param(signal.SIGTERM, 143, "di-kmeans", "pass", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "pssc", "alignments", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "dti-kmeans", "step", marks=pytest.mark.slow),
        (signal.SIGINT, 130, "kmeans", "pass"),
    ],
)
def test_asked_to_stop_it_saves_the_newest_state(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, number: int, status: int, method: str, stage: str
) -> None:
    out = f"{status}-{method}"
    whole(fit, method)
    with monkeypatch.context() as patch:
        # Nothing is due within an hour: the state is saved because of the signal.
        seen = interrupted_by(patch, number, stage, 5)
        result = fit(*arguments(method, out), "--checkpoint-every", "3600")
    word = "terminated" if status == 143 else "interrupted"
    assert result == (status, f"error: {word}; go on with the same command and --resume")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert snapshots_in(Path(out)) == [1]
    last = seen[-1]
    with monkeypatch.context() as patch:
        seen = interrupted_by(patch, number, stage, 10**6)
        resumed(fit, method, out)
    first = next(p for p in seen if p.stage == stage)
    # No more is done again than the chunk, pass or window that the signal came in.
    before = (last.restart, last.iteration, last.done)
    assert (first.restart, first.iteration, first.done) >= (
        before if stage != "pass" else (last.restart, last.iteration, 0)
    )


def test_terminated_before_anything_was_saved(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    interrupted_by(monkeypatch, signal.SIGTERM, "seeding", 1)
    before = sorted(os.listdir(home))
    result = fit(*arguments(QUICK, "early"), *EVERY)
    assert result == (143, "error: terminated; nothing was written")
    assert sorted(os.listdir(home)) == before


@pytest.mark.slow
def test_terminated_from_outside(fit: Fit) -> None:
    whole(fit, "di-kmeans")
    text = killed(
        [*arguments("di-kmeans", "outside"), *EVERY],
        lambda: bool(snapshots_in(Path("outside"))),
        signal.SIGTERM,
    )
    assert text == "error: terminated; go on with the same command and --resume\n"
    resumed(fit, "di-kmeans", "outside")


def break_off(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, out: str, *more: str, at: int = 12
) -> list[str]:
    """A fit of a few states, broken off; its arguments. Only the first of equal ones is run."""
    whole(fit, QUICK)
    options = [*arguments(QUICK, out), *more]
    first = Path("broken-off", "-".join([*more, str(at)]).replace("/", "-"))
    if not first.exists():
        with monkeypatch.context() as patch:
            interrupted_by(patch, signal.SIGINT, "pass", at)
            assert fit(*options, *EVERY)[0] == 130
        shutil.copytree(f"{out}.partial", first)
    else:
        shutil.copytree(first, f"{out}.partial")
    assert len(snapshots_in(Path(out))) == 2
    return options


def test_a_damaged_state_is_told_of_and_passed_over(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = break_off(fit, monkeypatch, "damaged")
    older, newer = snapshots_in(Path("damaged"))
    for path in Path("damaged.partial", "states", str(newer)).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    status, err = fit(*options, "--resume")
    assert status == 0
    first, second = err.splitlines()
    assert re.match(
        rf"snapshot {newer} in .* cannot be read \(.*\); the one before is taken", first
    )
    assert second.startswith(f"going on from snapshot {older} in ")
    assert_same(diffclust.load("damaged").outcome, whole(fit, QUICK).outcome)


def test_where_all_states_are_damaged_it_says_what_to_do(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = break_off(fit, monkeypatch, "ruined")
    for path in Path("ruined.partial", "states").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    status, err = fit(*options, "--resume")
    assert status == 2
    assert "remove that folder to start anew" in err.splitlines()[-1]
    status, err = fit(*options, "--overwrite")
    assert (status, err) == (0, "")
    assert_same(diffclust.load("ruined").outcome, whole(fit, QUICK).outcome)


def by_another(command: list[str]) -> tuple[int, str]:
    """Fits in a process that may write nothing but to pipes, which have no such limit."""
    script = " ".join(["ulimit -f 0; exec", sys.executable, "-m diffclust fit", *command])
    run = ["bash", "-c", script]
    result = subprocess.run(run, env=environment(), capture_output=True, text=True, check=False)
    return result.returncode, result.stderr


def while_saves_fail(fit: Fit, command: list[str]) -> tuple[int, str]:
    """The same in this process: what saves a state says what the system would."""

    def save(*_: Any, **__: Any) -> None:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orbax.checkpoint.CheckpointManager, "save", save)
        return fit(*command)


@pytest.mark.parametrize(
    "own", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["own", "another"]
)
def test_a_full_disk_stops_it_and_harms_nothing(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    out = f"full-{own}"
    options = break_off(fit, monkeypatch, out)
    before = snapshots_in(Path(out))
    command = [*options, "--resume", *EVERY]
    status, err = while_saves_fail(fit, command) if own else by_another(command)
    assert status == 2, err
    assert "Traceback" not in err, err
    # Between them a slow machine tells how long it will take and how far it is.
    first, *_, second = err.splitlines()
    assert first.startswith("going on from snapshot ")
    assert second.startswith("error: the fit's state cannot be saved in ")
    assert "(File too large); what was saved before is complete" in second
    assert snapshots_in(Path(out)) == before
    resumed(fit, QUICK, out)


def test_writes_that_fail_late_are_not_told_of_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for log in map(logging.getLogger, ("absl", "asyncio")):
        monkeypatch.setattr(log, "filters", [])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def full() -> tuple[Any, dict[str, Any]]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def lost_tasks(path: str) -> int:
        """How many lines asyncio writes of a task defined there whose error nobody asked for."""
        there: dict[str, Any] = {}
        code = compile("async def write():\n    raise OSError('File too large')", path, "exec")
        exec(code, there)
        loop, before = asyncio.new_event_loop(), len(caplog.records)
        task = loop.create_task(there["write"]())
        loop.run_until_complete(asyncio.wait([task]))
        loop.close()
        del task
        gc.collect(1)  # what is young, of which the task is
        return len(caplog.records) - before

    writer = "packages/orbax/checkpoint/type_handlers.py"
    with SnapshotFolder(tmp_path / "run", run={}):
        assert lost_tasks(writer) == 0
        assert lost_tasks("somebody/else.py") == 1
    assert lost_tasks(writer) == 1
    with (
        pytest.raises(OSError, match="No space left on device"),
        SnapshotFolder(tmp_path / "full", run={}, every=0.0) as folder,
    ):
        folder.save(full)
    del folder
    gc.collect(1)
    assert lost_tasks(writer) == 0


def test_states_of_another_fit_are_refused(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    options = break_off(fit, monkeypatch, "other")
    status, err = fit(*options)
    assert status == 2
    assert "was broken off; go on with it by --resume, or replace it with --overwrite" in err
    for more, message in (
        (["--seed", "1"], "had seed 0, not 1"),
        (["--restarts", "3"], "had num_restarts 2, not 3;"),
        (["--limit", "39"], "is of other samples"),
    ):
        status, err = fit(*options, "--resume", *more)
        assert (status, err.count("\n")) == (2, 0)
        assert message in err
    resumed(fit, QUICK, "other")


def test_a_second_fit_is_refused_while_the_first_reads(
    fit: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, said = arguments("di-kmeans", "reading"), list[tuple[int, str]]()

    def load_samples(*_: Any) -> Any:
        if not said:
            said.append((0, ""))
            said[0] = fit(*options)
        raise ValueError("nothing to read")

    monkeypatch.setattr(samples, "load_samples", load_samples)
    status, err = fit(*options)
    assert status == 2
    assert "nothing to read" in err
    ((status, err),) = said
    assert status == 2
    assert "reading.partial' is in use by another fit" in err
    assert not Path("reading.partial").exists()


@pytest.mark.slow
def test_states_of_other_weights_are_refused(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        np.save(f"weights-{number}.npy", np.arange(40) % 3 + number)
    one, other = (["--weights", f"weights-{number}.npy"] for number in range(2))
    options = break_off(fit, monkeypatch, "weighed", *one, at=6)
    for more in ([], other):
        status, err = fit(*arguments(QUICK, "weighed"), *more, "--resume")
        assert (status, err.count("\n")) == (2, 0)
        assert "is of other weights" in err
    assert fit(*options, "--resume")[0] == 0


def test_states_of_another_start_are_refused(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in ("1", "2"):
        model = ("--method", "kmeans", "--restarts", "1", "--max-passes", "1", "--seed", seed)
        started = ("images.npz", "-k", "4", *model, "--no-report", "--out", f"start-{seed}")
        assert fit(*started)[0] == 0
    one = ["--restarts", "1"]
    options = break_off(fit, monkeypatch, "started", "--start", "start-1", *one, at=3)
    for more in (one, ["--start", "start-2", *one]):
        status, err = fit(*arguments(QUICK, "started"), *more, "--resume")
        assert (status, err.count("\n")) == (2, 0)
        assert "began with another start" in err
    assert fit(*options, "--resume")[0] == 0


@pytest.mark.slow
def test_a_finished_run_is_left_alone(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    options = break_off(fit, monkeypatch, "finished")
    resumed(fit, QUICK, "finished")
    before = {path: path.stat().st_mtime_ns for path in Path("finished").rglob("*")}
    assert fit(*options, "--resume") == (0, "")
    assert {path: path.stat().st_mtime_ns for path in Path("finished").rglob("*")} == before
    # One that shall replace it is broken off, and goes on.
    with monkeypatch.context() as patch:
        interrupted_by(patch, signal.SIGTERM, "pass", 12)
        assert fit(*options, "--overwrite", *EVERY)[0] == 143
    assert {path: path.stat().st_mtime_ns for path in Path("finished").rglob("*")} == before
    status, err = fit(*options, "--overwrite", "--resume")
    assert status == 0
    assert "going on from snapshot" in err
    assert fit(*options, "--overwrite", "--resume") == (0, "")


@pytest.mark.parametrize(
    ("option", "value"), [("--checkpoints-kept", "0"), ("--checkpoint-every", "-1")]
)
def test_options_that_mean_nothing(fit: Fit, option: str, value: str) -> None:
    status, err = fit(*arguments(QUICK, "nothing"), option, value)
    assert status == 2
    assert re.fullmatch(rf"error: {option} must be at least .*, not {value}.*", err)
    assert not Path("nothing").exists()
