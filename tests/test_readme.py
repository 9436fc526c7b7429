"""The README's example runs as it stands, and what it names is there."""

import re
from pathlib import Path

import pytest

import diffclust
from diffclust.models import MODELS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def python_example() -> str:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    return example


def test_example_has_ten_lines_at_most() -> None:
    assert len([line for line in python_example().splitlines() if line]) <= 10


def test_commands_come_first_then_the_example_then_a_picture() -> None:
    places = [README.index(mark) for mark in ("make demo", "make test", "```python", "![")]
    assert places == sorted(places)


def test_every_method_is_named() -> None:
    for name, model in MODELS.items():
        assert f"`{name}`" in README
        assert f"`{model.__name__}`" in README


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing


@pytest.mark.slow
def test_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(python_example(), "README.md", "exec"), {})
    assert "acc" in capsys.readouterr().out
    assert len(diffclust.load("digits-model").assignments) == 300
