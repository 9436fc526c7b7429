"""Which tests `make test-quick` runs."""

from pathlib import Path

import pytest

from tests.changed import MOST, ROOT, files_for, git, own_tests, selected


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
    result = files_for("diffclust/alignment/minimisers.py")
    assert [str(path.parent) for path in result] == ["tests/alignment"]
    assert "OptaxMinimiser" in (ROOT / result[0]).read_text("utf-8")


def test_few_files_are_selected_those_that_name_a_module_most() -> None:
    for name in ("diffclust/image_source.py", "diffclust/models/base.py", "diffclust/types.py"):
        assert 1 <= len(files_for(name)) <= MOST
    names = git("ls-files", "diffclust/report", "diffclust/models")
    own = {str(test) for name in names for test in own_tests(Path(name))}
    assert own < set(selected(names))
    assert len(selected(names)) == len(own) + MOST


def test_a_module_that_no_test_names_is_tested_where_it_is_imported() -> None:
    assert "tests/features/test_scattering.py" in map(
        str, files_for("diffclust/features/_filters.py")
    )
    assert "tests/storage/test_checkpoint.py" in map(
        str, files_for("diffclust/storage/orbax_errors.py")
    )


def test_every_file_is_selected_once() -> None:
    names = ["diffclust/linalg.py", "tests/test_linalg.py", "diffclust/metrics.py"]
    assert selected(names) == ["tests/test_linalg.py", "tests/test_metrics.py"]
    assert all(Path(ROOT, path).is_file() for path in selected(names))
