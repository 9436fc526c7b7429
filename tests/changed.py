"""Prints the test files of what has changed since the last commit, or where nothing has, in it.

`make test-quick` runs these.
"""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 4
"""How many test files stand for modules without one of their own."""


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def changed() -> list[str]:
    """Files that have changed, as git names them."""
    new = git("ls-files", "--others", "--exclude-standard")
    return git("diff", "--name-only", "HEAD") + new or git("diff", "--name-only", "HEAD~1", "HEAD")


def own_tests(path: Path) -> list[Path]:
    """The test file of a module's own name, or a test file itself."""
    if path.parts[0] == "tests":
        test = path if path.match("test_*.py") else None
    elif path.parts[0] == "diffclust" and path.suffix == ".py":
        test = Path("tests", *path.parts[1:-1], f"test_{path.stem.strip('_')}.py")
    else:
        test = None
    return [test] if test is not None and (ROOT / test).is_file() else []


def files_for(name: str) -> list[Path]:
    """The test file of a module; where none has its name, those closest to it, `MOST` at most."""
    path = Path(name)
    module = path.parts[0] == "diffclust" and path.suffix == ".py" and path.name != "__init__.py"
    if own_tests(path) or not module or not (ROOT / path).is_file():
        return own_tests(path)
    folder = Path("tests", *path.parts[1:-1])
    tests = closest(path) or {test for user in users(path) for test in files_for(str(user))}
    return sorted(tests, key=lambda test: (test.parent != folder, test))[:MOST]


def closest(path: Path) -> list[Path]:
    """The test files that name most often what a module defines: beside it, or else anywhere."""
    defined = re.findall(r"^(?:class|def) ([A-Za-z]\w+)", (ROOT / path).read_text("utf-8"), re.M)
    # A plain word after a dot may be anybody's: `random.uniform`.
    names = [name if "_" in name or name[0].isupper() else rf"(?<!\.){name}" for name in defined]
    uses = re.compile(rf"\b(?:{'|'.join([path.stem, *names])})\b")
    for place in (Path("tests", *path.parts[1:-1]), Path("tests")):
        files = sorted((ROOT / place).rglob("test_*.py"))
        counts = {f.relative_to(ROOT): len(uses.findall(f.read_text("utf-8"))) for f in files}
        counts.pop(Path("tests/test_changed.py"), None)  # it names them as examples
        result = [f for f in sorted(counts, key=counts.__getitem__, reverse=True) if counts[f]]
        if result:
            return sorted(result[:MOST])
    return []


def users(path: Path) -> list[Path]:
    """The modules that import this one."""
    imports = re.compile(rf"^ *(?:from|import) .*\b{path.stem}\b", re.M)
    files = sorted((ROOT / "diffclust").rglob("*.py"))
    return [f.relative_to(ROOT) for f in files if imports.search(f.read_text("utf-8"))]


def selected(names: Sequence[str]) -> list[str]:
    """Test files of changed modules' own, and of the others `MOST`, those of the most modules."""
    own = {test for name in names for test in own_tests(Path(name))}
    others = Counter(test for name in names for test in files_for(name) if test not in own)
    return sorted(map(str, [*own, *(test for test, _ in others.most_common(MOST))]))


if __name__ == "__main__":
    print(" ".join(selected(changed())))
