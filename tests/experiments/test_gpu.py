"""Measurements that wait for a GPU: time limits, failures, what is known, and the table."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import pytest

from experiments.gpu import run as gpu
from experiments.gpu import table

ROW = {
    "machine": {"device": "cpu", "cores": 2},
    "versions": {"python": "3", "jax": "0", "jaxlib": "0", "platform": "cpu", "driver": ""},
    "figures": {"loss": 1.0, "acc": 0.4321, "nmi": 0.4},
}
PROGRAMS = {
    "kmeans": f"print({json.dumps(ROW)!r})",
    "pssc": "import time; print('{\"acc\": 0.25}', flush=True); time.sleep(600)",
    "pairs": "raise SystemExit('out of memory')",
}
PLAN = tuple(gpu.Measurement(name, 1 if name == "pssc" else 30) for name in PROGRAMS)


@pytest.fixture
def args(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    monkeypatch.setattr(gpu, "PLAN", PLAN)
    monkeypatch.setattr(gpu, "LEAST", 0)
    monkeypatch.setattr(
        gpu.Runner, "command", lambda self, each, seed: [sys.executable, "-c", PROGRAMS[each.name]]
    )
    out = tmp_path / "results.jsonl"
    return argparse.Namespace(out=out, budget=1.0, only=[], seeds=10, seed=0, quick=False, beside=2)


def measured(args: argparse.Namespace) -> list[str]:
    runner = gpu.Runner(args, str(args.out.parent / "programs"))
    rows = [runner(*pair) for group in gpu.groups(args) for pair in group]
    return [row["name"] for row in rows if row is not None]


def test_each_is_one_line_and_one_that_hangs_is_stopped(args: argparse.Namespace) -> None:
    start = time.monotonic()
    assert measured(args) == ["kmeans", "pssc", "pairs"]
    assert time.monotonic() - start < 30
    rows = {row["name"]: row for row in map(json.loads, args.out.read_text().splitlines())}
    assert "failed" not in rows["kmeans"]
    assert rows["kmeans"]["figures"] == ROW["figures"]
    # What it had found until then is kept.
    assert rows["pssc"]["failed"].startswith("stopped after 1")
    assert rows["pssc"]["figures"] == {"acc": 0.25}
    assert rows["pairs"]["failed"] == "exit status 1: out of memory"


def test_what_is_stopped_may_save_its_state(args: argparse.Namespace) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('saved'))\n"
        "time.sleep(600)"
    )
    # Python must have begun by then.
    status, _, error = gpu.watched([sys.executable, "-c", program], dict(os.environ), 4.0)
    assert status is None
    assert error.strip() == "saved"


def test_each_dti_run_has_a_folder_for_its_state(tmp_path: Path) -> None:
    args = argparse.Namespace(
        out=tmp_path / "results.jsonl", state=tmp_path, budget=1.0, quick=False, authors=None
    )
    runner = gpu.Runner(args, str(tmp_path / "programs"))
    whole, shared = gpu.Measurement("kmeans", 1), gpu.Measurement("dti-gmm", 1, alone=False)
    assert runner.command(shared, 3)[-2:] == ["--state", str(tmp_path / "dti-gmm-3")]
    assert "--state" not in runner.command(whole, 3)


def test_what_is_known_is_not_measured_again_and_failures_are(args: argparse.Namespace) -> None:
    args.only = ["kmeans", "pairs"]
    assert measured(args) == ["kmeans", "pairs"]
    assert measured(args) == ["pairs"]
    args.budget = 0.0
    assert measured(args) == []


def test_the_table_stands_between_its_marks(args: argparse.Namespace) -> None:
    args.only = ["kmeans"]
    measured(args)
    readme = args.out.parent / "README.md"
    readme.write_text(f"above\n{table.BEGIN}\nold\n{table.END}\nbelow\n")
    table.fill(readme, args.out)
    text = readme.read_text()
    assert text.startswith(f"above\n{table.BEGIN}\n")
    assert text.endswith(f"{table.END}\nbelow\n")
    assert "old" not in text
    assert "43.21" in text
    table.fill(readme, args.out)
    assert readme.read_text() == text
