"""Prints the test files of what has changed since the last commit, or where nothing has, in it.

`make test-quick` runs these.
"""

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def git(*arguments: str) -> list[str]:
    """The lines that git prints; none where it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def changed() -> list[str]:
    """Files that have changed, as git names them."""
    new = git("ls-files", "--others", "--exclude-standard")
    return git("diff", "--name-only", "HEAD") + new or git("diff", "--name-only", "HEAD~1", "HEAD")


def files_for(name: str) -> list[Path]:
    """The test file of a module; where none has its name, those that use what it defines."""
    path = Path(name)
    if path.parts[0] == "tests" and path.match("test_*.py"):
        return [path] if (ROOT / path).is_file() else []
    if path.parts[0] != "diffclust" or path.suffix != ".py" or path.name == "__init__.py":
        return []
    folder = Path("tests", *path.parts[1:-1])
    own = folder / f"test_{path.stem.strip('_')}.py"
    if (ROOT / own).is_file():
        return [own]
    if not (ROOT / path).is_file():
        return []
    defined = re.findall(r"^(?:class|def) ([A-Za-z]\w+)", (ROOT / path).read_text("utf-8"), re.M)
    uses = re.compile(rf"\b(?:{'|'.join([path.stem, *defined])})\b")
    # Beside it, or if there are none anywhere.
    for place in (folder, Path("tests")):
        files = sorted((ROOT / place).rglob("test_*.py"))
        found = [f.relative_to(ROOT) for f in files if uses.search(f.read_text("utf-8"))]
        if found:
            return found
    return []


def selected(names: Iterable[str]) -> list[str]:
    """The test files of these files, each once."""
    return sorted({str(test) for name in names for test in files_for(name)})


if __name__ == "__main__":
    print(" ".join(selected(changed())))
