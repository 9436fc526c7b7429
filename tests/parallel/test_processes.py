"""Two processes of two devices each find what one process of four does, and end together."""

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from diffclust.cli.options import ProcessOptions
from diffclust.data.folder import load_folder
from diffclust.parallel import data_mesh, start_processes
from diffclust.parallel.data import Data
from diffclust.parallel.processes import (
    allgather_rows,
    own_rows,
    own_share,
    raise_everywhere,
    row_counts,
    take_rows,
)
from diffclust.solvers import gradient_problem
from diffclust.solvers.gradient import BatchOrder
from tests.parallel.processes_main import COUNT, TOLD, fitted
from tests.registry import blobs

PROCESSES = 2
PROGRAM = Path(__file__).with_name("processes_main.py")
LIMIT = 500
"""Seconds after which a test gives up, and its processes are killed."""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def started(commands: Sequence[Sequence[str]]) -> list[subprocess.Popen]:
    two = re.sub(r"(device_count)=\d+", r"\1=2", os.environ["XLA_FLAGS"])
    path = os.pathsep.join([str(PROGRAM.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": two, "PYTHONPATH": path}
    return [
        subprocess.Popen(
            [sys.executable, *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]


def ended(processes: Sequence[subprocess.Popen], limit: float = LIMIT) -> list[tuple]:
    """Exit status, standard output and errors of each."""
    stop = time.monotonic() + limit
    try:
        return [
            (process.returncode, out, errors)
            for process in processes
            for out, errors in [process.communicate(timeout=max(1.0, stop - time.monotonic()))]
        ]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def by_processes(tmp_path: Path, names: Sequence[str]) -> dict[str, list[dict[str, np.ndarray]]]:
    port = str(free_port())
    commands = [
        [str(PROGRAM), str(number), str(PROCESSES), port, str(tmp_path / "found"), *names]
        for number in range(PROCESSES)
    ]
    for status, _, errors in ended(started(commands)):
        assert status == 0, errors[-2000:]
    return {
        name: [dict(np.load(tmp_path / f"found.{name}.{i}.npz")) for i in range(PROCESSES)]
        for name in names
    }


KINKS = {("di-spectral-registered", "params"): 0.01}
"""Where a descent begins at a kink of an image that is read bilinearly, rounding decides to which
side it goes; what was compiled before in a process decides rounding."""


def compare(fit: str, actual: list[dict[str, np.ndarray]], wanted: dict[str, np.ndarray]) -> None:
    for name, first in actual[0].items():
        np.testing.assert_array_equal(first, actual[1][name], err_msg=f"processes part in {name}")
        want = wanted[name]
        if want.dtype.kind == "f":
            assert first.dtype == want.dtype
            scale = np.max(np.abs(want), initial=1e-9)
            atol = KINKS.get((fit, name), 1e-6 * scale)
            np.testing.assert_allclose(first, want, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(first, want, err_msg=name)


# One pair of processes for several fits: starting takes longer than fitting. Batches by gradient,
# which compile as long, are drawn from every share by `test_batches_are_drawn_from_every_share`.
QUICK = ("kmeans",)
SLOW = (
    "kmeans-registered",
    "gmm",
    "shape-kmeans",
    "di-kmeans",
    "dti-kmeans",
    "ti-kmeans",
    "pssc",
    "di-spectral-registered",
)


@pytest.mark.parametrize(
    "names", [QUICK, pytest.param(SLOW, marks=pytest.mark.slow)], ids=["quick", "slow"]
)
def test_two_processes_are_one(
    tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = by_processes(tmp_path, (TOLD, *names))
    words = [str(each["words"]) for each in result[TOLD]]
    assert words == ["process 1: cannot be read", "cannot be read"]
    # Each draws its part of a batch from its own samples; so does the one process here.
    shares = (COUNT // 2, COUNT - COUNT // 2)

    def order(_: tuple[int, ...], *rest: Any) -> BatchOrder:
        return BatchOrder(shares, *rest)

    monkeypatch.setattr(gradient_problem, "BatchOrder", order)
    with jax.enable_x64(True):
        for name in names:
            compare(name, result[name], fitted(name, data_mesh()))


def test_batches_are_drawn_from_every_share() -> None:
    key, counts = jax.random.key(0), (5, 7)
    stream = BatchOrder(counts, 4, key)
    batches = np.stack([stream.batch(step) for step in range(35)])
    assert batches.shape == (35, 4)
    assert set(batches[:, :2].ravel()) == set(range(5))
    assert set(batches[:, 2:].ravel()) == set(range(5, 12))
    # Every sample comes as often as any other of its process: 70 draws of 5, and of 7.
    np.testing.assert_array_equal(np.bincount(batches.ravel()), [14] * 5 + [10] * 7)
    alone = BatchOrder((5,), 2, key)
    np.testing.assert_array_equal(batches[:, :2], [alone.batch(step) for step in range(35)])


def test_one_process_has_everything() -> None:
    mesh, rows = data_mesh(), np.arange(6.0)
    assert row_counts(6, mesh) == (6,)
    assert own_share(6, mesh) == own_rows((6,)) == slice(0, 6)
    assert allgather_rows(rows, mesh) is rows
    index = np.asarray([4, 0])
    np.testing.assert_array_equal(take_rows(lambda own: rows[own], index, (6,), mesh), [4.0, 0.0])
    with pytest.raises(ValueError, match="mine"), raise_everywhere(mesh):
        raise ValueError("mine")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a:1", None, 0), "go together; give all three"),
        (("a:1", 2, 2), "process_id must be from 0 to 1 of 2 processes; got 2"),
        (("a:1", 0, 0), "num_processes must be at least 1"),
    ],
)
def test_what_means_nothing_is_refused(given: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        start_processes(*given)


def test_starting_late_is_refused() -> None:
    jax.devices()
    with pytest.raises(ValueError, match="cannot be started together: .*must be called before"):
        start_processes("127.0.0.1:1", 2, 0, timeout=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ProcessOptions(processes=2), "--processes, --process-id and --coordinator go together"),
        (ProcessOptions(processes=2, distributed=True), "--distributed takes the processes"),
        (ProcessOptions(2, 0, "here"), "--coordinator must be like 10.0.0.1:1234, not 'here'"),
    ],
)
def test_options_that_do_not_go_together(options: ProcessOptions, message: str) -> None:
    assert options.is_distributed
    with pytest.raises(ValueError, match=message):
        options.check()
    assert not ProcessOptions().is_distributed


def pictures(folder: Path) -> Path:
    from PIL import Image

    for number, image in enumerate(blobs(COUNT)[..., 0]):
        place = folder / "ab"[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * image / image.max()).astype(np.uint8)).save(
            place / f"{number:02}.png"
        )
    return folder


def test_a_part_of_a_folder_is_read(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    whole = load_folder(folder)
    parts = [load_folder(folder, part=(number, 3)) for number in range(3)]
    assert [len(part) for part in parts] == [12, 12, 13]
    for name in ("images", "labels", "indices"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(whole, name))
    assert {part.label_names for part in parts} == {whole.label_names}
    with pytest.raises(ValueError, match="37 images, which 38 processes cannot share"):
        load_folder(folder, part=(0, 38))


def command(out: Path, process: int, port: int, source: str, *more: str) -> list[str]:
    sharing = ["--processes", "2", "--process-id", str(process), "--process-timeout", "60"]
    where = ["--coordinator", f"127.0.0.1:{port}", "--out", str(out)]
    return ["-m", "diffclust", "fit", source, "-k", "3", *sharing, *where, *more]


def fit(out: Callable[[int], Path], source: str, *more: str) -> list[tuple]:
    port = free_port()
    return ended(started([command(out(i), i, port, source, *more) for i in range(PROCESSES)]))


@pytest.mark.slow
def test_process_0_writes_and_speaks(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    (folder / "b" / "zz.png").write_bytes(b"no picture")
    kmeans = ("--method", "kmeans", "--restarts", "1", "--no-split-merge")
    kmeans = (*kmeans, "--no-report", "--skip-bad")
    outs = [tmp_path / "first", tmp_path / "second"]
    first, second = fit(lambda number: outs[number], str(folder), *kmeans)
    assert (first[0], second[0]) == (0, 0), first[2] + second[2]
    assert second[1:] == ("", "")
    assert not outs[1].exists()
    assert "37 images in 3 clusters" in first[1]
    assert "Gloo" not in first[1]
    assert "skipped 1 unreadable or blank" in first[2]
    summary = json.loads((outs[0] / "summary.json").read_text())
    assert (summary["n"], summary["processes"], summary["devices"]) == (37, 2, 4)
    assert {"acc", "nmi", "ari"} <= summary.keys()
    with (outs[0] / "assignments.csv").open() as file:
        rows = list(csv.DictReader(file))
    wanted = load_folder(folder, skip_bad=True)
    assert wanted.paths == tuple(row["path"] for row in rows)
    again = [tmp_path / "third", tmp_path / "fourth"]
    result = fit(lambda number: again[number], str(folder), *kmeans, "--start", str(outs[0]))
    assert [status for status, *_ in result] == [0, 0], result
    with (again[0] / "assignments.csv").open() as file:
        assert [row["cluster"] for row in csv.DictReader(file)] == [row["cluster"] for row in rows]
    assert not list(tmp_path.glob("*.partial"))


# That an error in one is an error in all, `test_two_processes_are_one` checks too.
@pytest.mark.slow
def test_what_one_process_cannot_read_all_tell(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures")
    (folder / "b" / "zz.png").write_bytes(b"no picture")
    out = tmp_path / "run"
    first, second = fit(lambda number: out, str(folder), "--method", "kmeans")
    for status, spoken, errors in (first, second):
        assert status == 2
        assert not spoken
        assert errors.count("\n") == 1, errors
        assert errors.startswith("error: process 1: 1 of 19 images in folder")
    assert {path.name for path in tmp_path.iterdir()} == {"pictures"}


def saved(folder: Path) -> bool:
    """Whether the fit is well under way: its third state is there."""
    return any(path.name.isdigit() and int(path.name) > 2 for path in folder.glob("states/*"))


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_all_and_the_fit_goes_on(tmp_path: Path, victim: int) -> None:
    out = tmp_path / "run"
    long = ("--method", "kmeans", "--restarts", "12", "--limit", "400", "--checkpoint-every", "0")
    long = (*long, "--no-report")
    port = free_port()
    running = started([command(out, i, port, "digits", *long) for i in range(PROCESSES)])
    stop = time.monotonic() + LIMIT
    while not saved(tmp_path / "run.partial") and time.monotonic() < stop:
        assert all(process.poll() is None for process in running)
        time.sleep(0.05)
    running[victim].send_signal(signal.SIGKILL)
    killed = time.monotonic()
    result = ended(running)
    assert result[victim][0] == -signal.SIGKILL
    status, _, errors = result[1 - victim]
    assert status not in (0, None)
    # In the middle of an exchange it is noticed at once. Else JAX's heartbeat ends the process,
    # in its own words.
    if status == 2:
        where = "process 1: " if victim == 0 else ""
        assert f"error: {where}another process has ended" in errors
    else:
        assert "Terminating process because the JAX distributed service" in errors
    assert time.monotonic() - killed < 120
    assert not out.exists()
    resumed: list[Any] = fit(lambda number: out, "digits", *long, "--resume")
    assert [each[0] for each in resumed] == [0, 0], resumed
    assert "going on from" in resumed[0][2]
    assert len(json.loads((out / "summary.json").read_text())["restarts"]) == 12


def test_samples_of_small_shares_weigh_less_in_batches() -> None:
    class Share(Data):
        counts = property(lambda self: self.shares)
        own = property(lambda self: self.place)
        all_weights = property(lambda self: np.ones(sum(self.shares)))

    # Each process gives two samples to a batch, of 9 and of 3.
    for shares, places, wanted in (
        ((9, 3), (slice(0, 9), slice(9, 12)), (1.5, 0.5)),
        ((5, 4), (slice(0, 5), slice(5, 9)), (1.0, 1.0)),
    ):
        Share.shares = shares
        for place, weight in zip(places, wanted, strict=True):
            Share.place = place
            batch = Share(np.zeros((place.stop - place.start, 2), np.float32)).take(
                np.arange(place.start, place.start + 2)
            )
            np.testing.assert_allclose(batch.weight, weight)


def test_orders_of_processes_and_passes_differ() -> None:
    order = BatchOrder((30, 30), 60, jax.random.key(0))
    passes = [order.batch(number) for number in range(3)]
    orders = {tuple(half % 30) for each in passes for half in (each[:30], each[30:])}
    assert len(orders) == 6
