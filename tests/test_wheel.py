"""Wheel and source distribution hold all that the package needs, away from the checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from diffclust._version import __version__

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


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with diffclust.

    With the wheel come the dependencies that it names, as the index has them today; with the source
    distribution those of the environment that runs, which is quicker.
    """
    directory = tmp_path_factory.mktemp(request.param)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    venv.create(directory / "tools")
    tools = directory / "tools" / "bin" / "python"
    run(*pip, "--python", tools, "install", "--quiet", "hatchling>=1.26", cwd=directory)
    run(tools, "-m", "hatchling", "build", "-t", request.param, "-d", directory, cwd=ROOT)
    (built,) = directory.glob("diffclust-*")

    environment = directory / "venv"
    venv.create(environment)
    python = environment / "bin" / "python"
    if request.param == "wheel":
        run(*pip, "--python", python, "install", "--quiet", built, cwd=directory)
        return environment
    run(*pip, "--python", python, "install", "--quiet", "--no-deps", built, cwd=directory)
    # After the wheel, or pip would find the checkout's own installation there. The files that
    # make that one editable are not read from here.
    purelib = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=directory
    )
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(purelib.strip(), "dependencies.pth").write_text("\n".join(sorted(paths)), "utf-8")
    return environment


def test_command_line_runs(installed: Path, tmp_path: Path) -> None:
    diffclust = installed / "bin" / "diffclust"
    assert run(diffclust, "--version", cwd=tmp_path) == f"diffclust {__version__}\n"
    quick = ("-k", "2", "--method", "kmeans", "--limit", "40", "--restarts", "1", "--maps", "0")
    assert "2 clusters" in run(diffclust, "fit", "digits", *quick, "--out", "run", cwd=tmp_path)
    assert (tmp_path / "run" / "report.html").is_file()


def test_what_it_needs_is_there_and_fits(installed: Path, tmp_path: Path) -> None:
    """`pip check` of the wheel's own environment: every dependency, in a version that does."""
    if Path(installed).parent.name.startswith("sdist"):
        return
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    python = installed / "bin" / "python"
    assert "No broken requirements" in run(*pip, "--python", python, "check", cwd=tmp_path)
    where = run(python, "-c", "import jax; print(jax.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(installed)


def test_package_is_the_installed_one_and_typed(installed: Path, tmp_path: Path) -> None:
    code = "import diffclust; print(diffclust.__file__)"
    package = Path(run(installed / "bin" / "python", "-c", code, cwd=tmp_path).strip()).parent
    assert package.is_relative_to(installed)
    assert (package / "py.typed").is_file()
