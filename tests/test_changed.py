"""Which tests `make test-quick` runs."""

from pathlib import Path

import pytest

from tests.changed import ROOT, files_for, selected


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("diffclust/linalg.py", ["tests/test_linalg.py"]),
        ("diffclust/_validation.py", ["tests/test_validation.py"]),
        ("diffclust/graphs/embedding.py", ["tests/graphs/test_embedding.py"]),
        ("tests/test_linalg.py", ["tests/test_linalg.py"]),
        ("tests/test_that_is_gone.py", []),
        ("diffclust/that_is_gone.py", []),
        ("diffclust/cli/options.json", []),
        ("README.md", []),
    ],
)
def test_a_file_has_tests(name: str, tests: list[str]) -> None:
    assert [str(test) for test in files_for(name)] == tests


def test_modules_without_a_test_file_are_tested_where_they_are_used() -> None:
    found = files_for("diffclust/alignment/minimisers.py")
    assert [str(path.parent) for path in found] == ["tests/alignment"]
    assert "OptaxMinimiser" in (ROOT / found[0]).read_text("utf-8")


def test_every_file_is_selected_once() -> None:
    names = ["diffclust/linalg.py", "tests/test_linalg.py", "diffclust/metrics.py"]
    assert selected(names) == ["tests/test_linalg.py", "tests/test_metrics.py"]
    assert all(Path(ROOT, path).is_file() for path in selected(names))
