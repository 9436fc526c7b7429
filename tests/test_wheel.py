"""The wheel holds all that the package needs, away from the checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    # Whatever puts the checkout on the path would hide what the wheel lacks.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel, and the dependencies of the one that runs."""
    directory = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "wheel", "--quiet", "--no-deps", ROOT, "-w", directory, cwd=directory)
    (wheel,) = directory.glob("diffclust-*.whl")

    environment = directory / "venv"
    venv.create(environment)
    python = environment / "bin" / "python"
    run(*pip, "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=directory)
    # After the wheel, or pip would find the checkout's own installation there. The files that
    # make that one editable are not read from here.
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory
    )
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(purelib.strip(), "dependencies.pth").write_text("\n".join(sorted(paths)), "utf-8")
    return environment


def test_command_line_runs(installed: Path, tmp_path: Path) -> None:
    assert "fit" in run(installed / "bin" / "diffclust", "--help", cwd=tmp_path)


def test_package_is_the_installed_one_and_typed(installed: Path, tmp_path: Path) -> None:
    code = "import diffclust; print(diffclust.__file__)"
    package = Path(run(installed / "bin" / "python", "-c", code, cwd=tmp_path).strip()).parent
    assert package.is_relative_to(installed)
    assert (package / "py.typed").is_file()
