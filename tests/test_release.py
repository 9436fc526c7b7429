"""What a package index, a citation and the workflow are told: the same, and only what there is."""

import re
import tomllib
from pathlib import Path

import pytest

from diffclust._version import __version__
from diffclust.cli import main
from tests.lowest import constraints

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOW = (ROOT / ".github" / "workflows" / "test.yml").read_text("utf-8")


def test_the_version_stands_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"diffclust {__version__}\n"
    assert "version:" not in (ROOT / "CITATION.cff").read_text("utf-8").replace("cff-version:", "")


def test_every_python_is_said_and_tried() -> None:
    prefix = "Programming Language :: Python :: 3."
    said = [c.removeprefix(prefix) for c in PROJECT["classifiers"] if c.startswith(prefix)]
    assert [f"3.{minor}" for minor in said] == re.findall(r'"(3\.\d+)"', WORKFLOW)[: len(said)]
    assert PROJECT["requires-python"] == f">=3.{said[0]}"


def test_the_workflow_calls_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    called = set(re.findall(r"target: \[?([a-z-]+)", WORKFLOW))
    assert called == {"test", "test-lowest", "test-wheel", "dist"}
    assert called <= targets


def test_every_dependency_has_a_lowest_version() -> None:
    result = constraints((ROOT / "pyproject.toml").read_text("utf-8"))
    names = [re.match(r"[\w-]+", each)[0] for each in PROJECT["dependencies"]]
    assert [each.split("==")[0] for each in result][: len(names)] == names
    assert {"jax==0.10.2", "aeon==1.1", "mkdocstrings==1.0"} <= set(result)
