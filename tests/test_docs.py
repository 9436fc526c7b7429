"""The pages: their notebooks run, their links lead somewhere, and what they name is there."""

import ast
import contextlib
import dataclasses
import importlib
import io
import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from diffclust import DTIKMeans, Training
from diffclust.cli import entry
from diffclust.cli.options import COMMANDS
from diffclust.distances import SquaredEuclidean
from diffclust.methods import METHODS
from diffclust.models import PrototypeObjective
from diffclust.solvers import GradientPlan
from docs.notebooks import notebook
from tests.test_docstrings import PACKAGE, public_modules
from tests.test_layout import ORDER

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
READMES = sorted((ROOT / "experiments").rglob("*.md"))
EVERYTHING = [*PAGES, *sorted((DOCS / "api").glob("*.md")), *READMES, *sorted(ROOT.glob("*.md"))]
QUICK = {"own-parts": 1, "new-objective": 1, "test-your-transform": 2}
"""How many of a page's blocks run in a few seconds; those of the other pages fit models."""

COMPOSED = [
    "own-parts",
    "own-aligner",
    "own-distance",
    "own-sample",
    "own-reduction",
    "own-model",
    "new-objective",
    "bootstrap",
    "bilevel",
    "devices",
    "series",
]
"""The pages on compositions of one's own."""

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\s*$")
LARGEST_PICTURE = 150_000


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT).with_suffix(""))


def blocks(path: Path, language: str) -> list[str]:
    """The blocks of code on a page, but for those that are said not to run."""
    text = path.read_text("utf-8")
    result = [m for m in FENCE.finditer(text) if m[1] == language]
    return [m[2] for m in result if NOT_RUN.search(text[: m.start()]) is None]


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text("utf-8"))


def run(path: Path, count: int | None = None) -> dict:
    names: dict = {"__name__": path.stem}
    for cell in code_cells(path)[:count]:
        exec(compile(cell, path.name, "exec"), names)
    return names


def cells(path: Path) -> list[dict]:
    """The cells of a page's notebook."""
    content = notebook(path)
    assert content is not None
    return json.loads(content)["cells"]


def code_cells(path: Path) -> list[str]:
    return ["".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code"]


WITH_CODE = [path for path in PAGES if blocks(path, "python")]


@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_notebook_has_the_code_of_the_page(path: Path) -> None:
    assert code_cells(path) == [block.strip("\n") for block in blocks(path, "python")]


@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_notebook_is_of_format_4_5(path: Path) -> None:
    whole = json.loads(notebook(path) or "")
    assert (whole.pop("nbformat"), whole.pop("nbformat_minor")) == (4, 5)
    assert set(whole) == {"metadata", "cells"}
    assert set(whole["metadata"]["kernelspec"]) >= {"name", "display_name"}
    identities = [cell["id"] for cell in whole["cells"]]
    assert len(set(identities)) == len(identities)
    for cell in whole["cells"]:
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"], re.ASCII)
        assert all(isinstance(line, str) for line in cell["source"])
        keys = {"id", "cell_type", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert set(cell) == keys | {"execution_count", "outputs"}
        else:
            assert cell["cell_type"] == "markdown"
            assert set(cell) - {"attachments"} == keys
            shown = re.findall(r"\(attachment:([^)]+)\)", "".join(cell["source"]))
            assert set(shown) == set(cell.get("attachments", {}))


def test_notebook_needs_no_other_file() -> None:
    for path in WITH_CODE:
        text = "".join("".join(c["source"]) for c in cells(path) if c["cell_type"] == "markdown")
        targets = re.findall(r"\]\(\s*([^)\s]+)\s*\)", FENCE.sub("", text))
        assert all(re.match(r"(https?|attachment):", target) for target in targets), path.name


def test_page_without_code_has_no_notebook() -> None:
    assert notebook(DOCS / "gallery.md") is None


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_code_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Training.plan

    def short(self: Training, *args: Any, **settings: Any) -> GradientPlan:
        plan = whole(self, *args, **settings)
        phases = [dataclasses.replace(phase, steps=min(phase.steps, 5)) for phase in plan.phases]
        return dataclasses.replace(plan, phases=tuple(phases))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Training, "plan", short)
    run(path)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_code_is_python(path: Path) -> None:
    for block in blocks(path, "python"):
        ast.parse(block)


@pytest.mark.parametrize("name", COMPOSED)
def test_a_page_on_parts_of_ones_own_is_a_screen_of_code(name: str) -> None:
    assert sum(len(cell.splitlines()) for cell in code_cells(DOCS / f"{name}.md")) <= 60


@pytest.mark.parametrize("path", WITH_CODE, ids=name_of)
def test_code_imports_what_is_exported(path: Path) -> None:
    for cell in code_cells(path):
        for node in ast.walk(ast.parse(cell)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("diffclust"):
                assert str(node.module).count(".") <= 1, node.module
                exported = getattr(importlib.import_module(str(node.module)), "__all__", None)
                names = {alias.name for alias in node.names}
                assert exported is None or names <= set(exported), node.module


@pytest.mark.parametrize("name", QUICK)
def test_quick_code_runs(name: str) -> None:
    run(DOCS / f"{name}.md", QUICK[name])


def three_kinds() -> tuple[np.ndarray, np.ndarray]:
    """Bars at three heights; the last two kinds resemble each other more than the first."""
    kinds = np.zeros((3, 6, 6, 1), np.float32)
    kinds[0, :2] = kinds[1, 2:4, 3:] = kinds[2, 4:, 3:] = 1
    labels = np.repeat(np.arange(3), 20)
    noise = 0.1 * np.random.default_rng(0).standard_normal((60, 6, 6, 1))
    return np.clip(kinds[labels] + noise, 0, 1).astype(np.float32), labels


def test_the_new_objective_finds_what_the_old_one_misses() -> None:
    names = run(DOCS / "new-objective.md", 1)
    images, labels = three_kinds()
    # Two prototypes begin in one kind, and the third between the other two.
    start = np.stack([images[0], images[1], (images[20] + images[40]) / 2])
    training = Training(max_steps=100, split_merge=False, least_share=0.0, learning_rate=1e-2)
    plain = DTIKMeans(3, transforms="", training=training)
    balanced = PrototypeObjective(SquaredEuclidean(), names["Balanced"](), followed=3)
    key = jax.random.key(0)
    stuck = plain.fit(images, key=key, prototypes=start)
    assert stuck.counts.max() == 40
    model = dataclasses.replace(plain, own_objective=balanced)
    result = model.fit(images, key=key, prototypes=start)
    np.testing.assert_array_equal(result.counts, [20, 20, 20])
    assert len(set(zip(labels.tolist(), result.assignments.tolist(), strict=True))) == 3
    np.testing.assert_array_equal(result.predict(images).clusters, result.assignments)


@pytest.mark.slow
def test_trimmed_prototypes_are_not_among_the_outliers() -> None:
    names = run(DOCS / "own-reduction.md")
    assert names["result"].prototypes.max() < 10
    assert 10 * names["again"].prototypes.max() < 10


def test_the_new_objective_has_fifteen_lines() -> None:
    (block, *_) = blocks(DOCS / "new-objective.md", "python")
    assert len([line for line in block.splitlines() if line]) <= 15


def links(path: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(\s*([^)\s]+)\s*\)", prose(path)):
        if not re.match(r"[a-z+]+:", target):
            yield target


@pytest.mark.parametrize("path", EVERYTHING, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    missing = []
    for link in links(path):
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in headings(file)):
            missing.append(link)
    assert not missing


def headings(path: Path) -> set[str]:
    """Anchors as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_pictures_are_small_and_used() -> None:
    used = {(p.parent / link).resolve() for p in EVERYTHING for link in links(p)}
    for picture in sorted((DOCS / "images").iterdir()):
        assert picture.stat().st_size < LARGEST_PICTURE, picture.name
        assert picture.resolve() in used, f"no page shows {picture.name}"


def test_every_page_is_in_the_navigation_and_every_entry_there() -> None:
    listed = set(re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    there = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert there <= listed
    assert all((ROOT / name).exists() for name in listed - there)


def test_every_public_module_is_in_the_api() -> None:
    pages = [path.read_text("utf-8") for path in (DOCS / "api").glob("*.md")]
    listed = {name for page in pages for name in re.findall(r"^::: (\S+)$", page, re.MULTILINE)}
    tops = {"diffclust", "diffclust.__main__", "diffclust.types"}
    for name in {".".join(name.split(".")[:2]) for name in public_modules()} - tops:
        assert name in listed, f"no page of docs/api has ::: {name}"
    assert listed <= set(public_modules())


def test_every_experiment_is_listed() -> None:
    listed = set(links(ROOT / "experiments" / "README.md"))
    there = {f"{p.parent.name}/README.md" for p in (ROOT / "experiments").glob("*/README.md")}
    pages = {link for link in listed if link.endswith("README.md")}
    assert there == {link for link in pages if not link.startswith("..")}


def names_in(path: Path) -> set[str]:
    """What stands in backticks on a page and begins with the package's name."""
    code = re.findall(r"`([^`\n]+)`", prose(path))
    return {m[0] for text in code if (m := re.fullmatch(r"diffclust(\.\w+)+", text))}


def is_there(name: str) -> bool:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        with contextlib.suppress(ImportError):
            thing = importlib.import_module(".".join(parts[:end]))
            for part in parts[end:]:
                if not hasattr(thing, part):
                    return False
                thing = getattr(thing, part)
            return True
    return False


# Former names, which warn, have a test of their own.
CURRENT = [path for path in PAGES if path.name != "renamed.md"]


@pytest.mark.parametrize("path", [*CURRENT, ROOT / "README.md"], ids=name_of)
def test_names_exist(path: Path) -> None:
    assert [name for name in names_in(path) if not is_there(name)] == []


def table_rows(path: Path, column: str) -> list[list[str]]:
    """The cells of a page's table whose header begins as given."""
    head, *_, rows = re.split(
        rf"^{re.escape(column)}.*\n\|[-|]+\n", path.read_text("utf-8"), flags=re.M
    )
    assert head
    rows = itertools.takewhile(lambda line: line.startswith("|"), rows.splitlines())
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]


def table_names(path: Path, column: str) -> list[str]:
    """The names in backticks in the first column of a page's table whose header is given."""
    rows = table_rows(path, column)
    return [name for first, *_ in rows for name in re.findall(r"`([^`]+)`", first)]


def test_tables_of_methods_have_all_of_them() -> None:
    assert table_names(DOCS / "architecture.md", "| method |") == list(METHODS)
    assert sorted(table_names(DOCS / "how-to-choose.md", "| method | invariant")) == sorted(METHODS)


def test_table_of_methods_says_what_their_descriptors_say() -> None:
    words = {"nothing": "–", "samples": "sample", "prototypes": "prototype"}
    solvers = {"lloyd": ("Lloyd",), "gradient": ("gradient", "gradient EM")}
    rows = table_rows(DOCS / "architecture.md", "| method | transform | moves |")
    for method, row in zip(METHODS.values(), rows, strict=True):
        assert row[2] == words[method.moves], method.name
        assert row[-1] in solvers.get(method.solver, ("spectral", "Lloyd, of features"))
        assert (row[5] == "likelihood") == method.is_mixture


def test_the_layout_has_the_order_of_imports() -> None:
    names = table_names(DOCS / "architecture.md", "| | what is there |")
    assert names == [name for name in ORDER if not name.startswith("_")]


def test_functions_of_the_walk_exist() -> None:
    """`module.name` without the package's name, or `Class.method`."""
    modules = map(importlib.import_module, public_modules())
    things = {
        (name, thing)
        for module in modules
        for name, thing in vars(module).items()
        if isinstance(thing, type)
    }
    code = re.findall(r"`([^`\n]+)`", prose(DOCS / "architecture.md"))
    names = {name for name in code if re.fullmatch(r"\w+(\.\w+)+", name)}
    assert len(names) > 20
    for name in names - {"methods.py", "run.py"}:
        first, _, rest = name.partition(".")
        result = any(hasattr(thing, rest) for kind, thing in things if kind == first)
        assert result or is_there(name) or is_there(f"diffclust.{name}"), name


def commands(path: Path) -> Iterator[list[str]]:
    """What stands after `diffclust` in the blocks of commands on a page."""
    for block in blocks(path, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["diffclust"]:
                yield words[1:]


@pytest.mark.parametrize("path", [*PAGES, *READMES, ROOT / "README.md"], ids=name_of)
def test_commands_are_understood(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    monkeypatch.setattr(entry, "_command", lambda _: parsed.append)
    for words in commands(path):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            if "--help" in words:
                with pytest.raises(SystemExit), contextlib.redirect_stdout(io.StringIO()):
                    entry.main(words)
            else:
                assert entry.main(words) == 0, printed.getvalue()


def options() -> set[str]:
    """Every option of the command line, as the help prints it."""
    result = set()
    of_methods = [["fit", "--method", method] for method in METHODS]
    for command in [*([name] for name in COMMANDS), *of_methods]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            entry.main([*command, "--help"])
        result |= set(re.findall(r"(?<!\w)--[a-z][a-z-]*", printed.getvalue()))
    return result


def test_options_exist() -> None:
    known = options()
    assert "--restarts" in known
    for path in PAGES:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(inline(path))))
        assert named <= known, f"{path.name} names {sorted(named - known)}"


def inline(path: Path) -> list[str]:
    """Code within lines that begins with an option, or with the program."""
    code = re.findall(r"`([^`\n]+)`", prose(path))
    return [text for text in code if text.startswith(("--", "diffclust "))]


@pytest.mark.parametrize("path", [*PAGES, *READMES, ROOT / "README.md"], ids=name_of)
def test_modules_that_are_run_exist(path: Path) -> None:
    for module in re.findall(r"python -m (experiments(?:\.\w+)+)", path.read_text("utf-8")):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), module


def cited() -> Iterator[tuple[str, str]]:
    """The first author and the year of each paper that docstrings name, where they give one."""
    for path in PACKAGE.rglob("*.py"):
        for section in re.findall(
            r"References:\n(.*?)(?:\n\n|\"\"\")", path.read_text(), re.DOTALL
        ):
            for citation in " ".join(section.split()).split(";"):
                author = re.match(r"\s*(?:ten |van der |von )?([^\W\d_][\w-]+)", citation)
                year = re.search(r"\((\d{4})\)", citation)
                if author and year:
                    yield author[1], year[1]


def test_every_paper_is_in_the_bibliography() -> None:
    entries = re.findall(r"^[-|] (.*?)(?=^[-|] |\Z)", prose(DOCS / "references.md"), re.M | re.S)
    result = set(cited())
    assert len(result) > 20
    missing = [
        f"{author} ({year})"
        for author, year in sorted(result)
        if not any(author in entry and f"({year})" in entry for entry in entries)
    ]
    assert not missing
