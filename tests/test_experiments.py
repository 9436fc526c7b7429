"""Every experiment and benchmark runs with `--quick` and ends with one line of JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
