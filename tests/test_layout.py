"""The shape of the repository: who imports whom, what importing costs, names and sizes of files."""

import ast
import graphlib
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from diffclust.methods import METHODS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "diffclust"

# From the bottom up: a module imports only from lines above its own.
ORDER = [
    "types",
    "_version",
    "_signals",
    "_renamed",
    "_random",
    "_sharding",
    "_precision",
    "methods",
    "image_source",
    "_validation",
    "linalg",
    "sampling",
    "masks",
    "metrics",
    "parallel",
    "transforms",
    "features",
    "distances",
    "networks",
    "registration",
    "prototypes",
    "energies",
    "alignment",
    "graphs",
    "solvers",
    "progress_bar",
    "models",
    "analysis",
    "storage",
    "estimate",
    "testing",
    "sklearn",
    "data",
    "plotting",
    "report",
    "review",
    "cli",
    "__init__",
    "__main__",
]


def module_name(path: Path) -> str:
    """`diffclust/solvers/lloyd.py` is `diffclust.solvers.lloyd`, a package its own folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module_name(path): path for path in FILES}


def line_of(module: str) -> str:
    """The entry of `ORDER` that a module belongs to."""
    return module.split(".")[1] if "." in module else "__init__"


def imports(path: Path) -> Iterator[str]:
    """The modules of diffclust that a file imports, also within functions."""
    inside = [*path.relative_to(ROOT).parent.parts]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from diffclust.solvers import lloyd` may name a module or something in the package.
            names = [
                name if (name := f"{source}.{alias.name}") in MODULES else source
                for alias in node.names
            ]
        else:
            continue
        yield from (
            name for name in names if name.split(".")[0] in ("diffclust", "experiments", "tests")
        )


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_module_imports_only_from_lines_above_its_own(path: Path) -> None:
    own = module_name(path)
    line = line_of(own)
    assert line in ORDER, f"{own} has no place in the order of the layout"
    for imported in imports(path):
        assert imported in MODULES, f"{own} imports {imported}, which is not in the package"
        if line_of(imported) != line:
            assert ORDER.index(line_of(imported)) < ORDER.index(line), (
                f"{own} imports {imported}, which stands on or below its own line"
            )
        elif path.name != "__init__.py":
            is_package = MODULES[imported].name == "__init__.py"
            assert not is_package or not own.startswith(f"{imported}."), (
                f"{own} imports from the package that it is in; import from the module that has it"
            )


def test_modules_import_each_other_in_no_circle() -> None:
    graph = {module_name(path): set(imports(path)) for path in FILES}
    graphlib.TopologicalSorter(graph).prepare()


def test_import_is_lean() -> None:
    lazy = ["matplotlib", "sklearn", "orbax", "tensorflow_datasets"]
    code = f"import sys, diffclust; print([m for m in {lazy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.strip()
    assert result == "[]", f"import diffclust pulls in {result}"


def lines_of_code(path: Path) -> int:
    """Lines that hold code: neither blank, nor comments, nor docstrings."""
    text = path.read_text("utf-8")
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped | {tokenize.ENDMARKER}:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_file_has_one_subject_and_a_bounded_length(path: Path) -> None:
    parts = {part.strip("_") for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not parts & {"utils", "misc", "tools", "helpers"}
    assert lines_of_code(path) <= 350


def test_a_methods_name_stands_in_one_place() -> None:
    # `kmeans` is the name of functions, too; papers are cited as (`di-kmeans`).
    names = "|".join(name for name in METHODS if name != "kmeans")
    name = re.compile(rf"(?<!\(`)(?<![\w-])(?:{names})(?![\w-])")
    assert [m for m, p in MODULES.items() if name.search(p.read_text("utf-8"))] == [
        "diffclust.methods"
    ]


def repository_files() -> list[Path]:
    """What git has or would add; without git, everything outside hidden folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        paths = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = [
            path
            for path in ROOT.rglob("*")
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file()]


def test_no_file_names_a_path_of_one_machine() -> None:
    # Put together here, so that this file does not contain them.
    folders = "|".join(["work", "root", "home", "Users", "tmp/v"])
    absolute = re.compile(rf"(?<![\w.~])/({folders})/".encode())
    result = {}
    for path in repository_files():
        content = path.read_bytes()
        if b"\0" not in content and (match := absolute.search(content)):
            result[str(path.relative_to(ROOT))] = match[0].decode()
    assert not result
