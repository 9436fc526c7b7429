"""Every experiment and benchmark runs with `--quick` and ends with one line of JSON."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from diffclust.parallel import Data
from experiments.dti import model_of
from experiments.dti_ablation import run as dti_ablation

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "experiments").glob("*/*.py")
    if "__main__" in path.read_text("utf-8")
)
"""The commands; other files hold what a command imports."""


def test_there_are_experiments():
    assert "experiments.di_kmeans_table1.run" in MODULES
    folders = {path.parent.name for path in (ROOT / "experiments").glob("*/*.py")}
    assert folders == {module.split(".")[1] for module in MODULES}


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_quick(module, data_dir):
    done = subprocess.run(
        [sys.executable, "-m", module, "--quick", "--seed", "1"],
        cwd=ROOT,
        env={**os.environ, "DIFFCLUST_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.strip().splitlines()[-1])
    assert figures["machine"]["jax"]


@pytest.mark.parametrize("module", MODULES)
def test_has_a_readme_with_its_command(module):
    folder = (ROOT / module.replace(".", "/")).parent
    assert f"python -m {module}" in (folder / "README.md").read_text()


def test_rows_of_dti_s_table_3_are_trained_for_as_long() -> None:
    description = Data(np.zeros((1000, 28, 28, 1), np.float32)).description
    args = argparse.Namespace(
        as_published=False, quick=False, steps=1100, ti_steps=400, shortlist=3, no_moves=True
    )
    for args.as_published, total in ((True, 17_000), (False, 1100)):
        for row in dti_ablation.ROWS | dti_ablation.MIXTURE:
            method, settings = dti_ablation.settings_of(args, "mnist-1k", row)
            model = model_of(method, "mnist-1k", as_published=args.as_published, **settings)
            steps = sum(phase.steps for phase in model.training_plan(description).phases)
            assert abs(steps - (400 if row.startswith("TI") and total == 1100 else total)) <= 2
            assert not model.training.split_merge
            if row.startswith("without refills"):
                assert model.training.least_share == 0.0
