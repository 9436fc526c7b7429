"""Every experiment and benchmark runs with `--quick` and ends with one line of JSON."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffclust import ProjectedScatteringSpectralClustering
from diffclust.metrics import accuracy
from diffclust.parallel import Data
from diffclust.transforms import ThinPlateSpline
from experiments.default_method import run as pictures
from experiments.dti import model_of
from experiments.dti_ablation import run as dti_ablation
from experiments.gpu import measure, rivals, table
from experiments.gpu import run as gpu
from experiments.lever.run import COMPOSITIONS, run
from experiments.spoken_digits.run import SplineByAxes

ROOT = Path(__file__).parents[2]
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


FIGURES = {
    "rotations": lambda f: f["plain"] < f["turned back"] <= 1.0,
    "series": lambda f: f["K-means"] > 0.8 and f["graph"] > 0.8,
    "Huber": lambda f: min(f["Huber"].values()) > 0.5,
    "sliced Wasserstein": lambda f: min(f["SlicedWasserstein"].values()) > 0.5,
    "trimmed and annealed": lambda f: (
        # The outliers are 40 and more away, a tenth of that for gradient steps.
        f["largest coordinate"] < 10.0
        and 3.0 < f["threshold"] < 12.0
        and sorted(f["annealed"]) == [28, 28, 29]
        and 0.1 < f["threshold by gradients"] < 2.0
    ),
    "aligner and its law": lambda f: 0.0 < f["aligned"] < 0.1 * f["distance"],
    "whole fits under vmap": lambda f: (
        0.5 < f["steadiness"][0] < f["steadiness"][1] <= 1.0 and f["loss and slope"][1] > 0.0
    ),
    "devices": lambda f: f["devices"] == 4 and f["prototypes"] == [10, 28, 28, 1],
    "kind of sample": lambda f: all(
        min(f[name]) > 25 and sum(f[name]) == 90 for name in ("result", "moved")
    ),
    "model": lambda f: 2.0 < f["loss"] < 8.0,
    "learned objective": lambda f: max(f["counts"]) < 10 and sum(f["counts"]) == 60,
}


QUICK = ("aligner and its law", "devices", "model")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in COMPOSITIONS],
)
def test_compositions_of_ones_own(name):
    figures = run(COMPOSITIONS[name], quick=True)
    assert FIGURES[name](figures), figures


def test_rows_of_dti_s_table_3_are_trained_for_as_long() -> None:
    description = Data(np.zeros((1000, 28, 28, 1), np.float32)).description
    args = argparse.Namespace(
        as_published=False, quick=False, steps=1100, ti_steps=400, shortlist=3, no_moves=True
    )
    for args.as_published, total in ((True, 17_000), (False, 1100)):
        shared = [row for row, given in dti_ablation.TRAINING.items() if "shares" in given]
        for row in (*dti_ablation.ROWS, *dti_ablation.MIXTURE, *shared):
            method, settings = dti_ablation.settings_of(args, "mnist-1k", row)
            model = model_of(method, "mnist-1k", as_published=args.as_published, **settings)
            steps = sum(phase.steps for phase in model.training_plan(description).phases)
            assert abs(steps - (400 if row.startswith("TI") and total == 1100 else total)) <= 2
            assert not model.training.split_merge
            if row.startswith("without refills"):
                assert model.training.least_share == 0.0


def test_penalties_along_time_and_pitch_are_the_splines_in_two_parts() -> None:
    spline = ThinPlateSpline((3, 4))
    params = jnp.asarray(np.random.default_rng(0).normal(size=spline.num_params), jnp.float32)
    apart = SplineByAxes(spline).deformation(params)
    np.testing.assert_allclose(apart[:2] + apart[2:], spline.deformation(params), rtol=1e-5)
    time, pitch = jnp.split(params, 2)
    along = SplineByAxes(spline).deformation(jnp.concatenate([time, jnp.zeros_like(pitch)]))
    np.testing.assert_allclose(along, [*apart[:2], 0.0, 0.0], atol=1e-6)


def test_every_measurement_of_the_plan_is_known_and_has_a_row() -> None:
    known = {"measure": measure.MEASUREMENTS, "rivals": rivals.RIVALS}
    assert all(each.name in known[each.module] for each in gpu.PLAN)
    fits = {
        n
        for n in measure.MEASUREMENTS
        if n not in ("dti-step", "pairs", "passes", "passes-as-published", "pmap")
    }
    assert fits == set(table.METHODS)


@pytest.mark.slow
def test_padded_recordings_are_told_apart_by_default() -> None:
    images, labels = pictures.SETS["recordings"](1000, 1)
    result = ProjectedScatteringSpectralClustering(10).fit(images, key=jax.random.key(1))
    # Where the padding counted as the background, it was .87.
    assert accuracy(labels, result.assignments) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dti-kmeans-usps-as-published", "di-kmeans-60000-as-published"])
def test_measurements_as_published(name: str, data_dir: Path) -> None:
    command = [sys.executable, "-m", "experiments.gpu.measure", "--quick", "--name", name]
    environment = {**os.environ, "DIFFCLUST_DATA_DIR": str(data_dir)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.strip().splitlines()[-1])["figures"]
    assert 0.0 < figures["acc"] <= 1.0
    assert figures["n"] == 200
