"""Compositions of one's own, as the docs' pages have them: lines of code, seconds, what they print.

python -m experiments.lever.run [--quick]  # the pages have seeds of their own
"""

import contextlib
import io
import os
import re
import tempfile
import time
from pathlib import Path

from experiments.harness import arguments, finish

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    "aligner": "own-aligner",
    "distance and family": "own-distance",
    "sample": "own-sample",
    "reductions": "own-reduction",
    "model": "own-model",
    "learned objective": "new-objective",
    "bootstrap and gradient": "bilevel",
    "devices": "devices",
}
QUICK = ("sample", "reductions")


def composition(page: str) -> tuple[int, float, str]:
    """Lines of code of a page, the seconds that they take, and the last line that they print."""
    text = (DOCS / f"{page}.md").read_text("utf-8")
    # But for what is said not to run: it needs a second process.
    blocks = re.findall(r"(?<!-->\n)(?<!-->\n\n)```python\n(.*?)```", text, re.DOTALL)
    code, printed = "\n".join(blocks), io.StringIO()
    lines = sum(bool(line.strip()) for line in code.splitlines())
    start, here = time.perf_counter(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed):
        os.chdir(folder)
        try:
            exec(compile(code, page, "exec"), {"__name__": page})
        finally:
            os.chdir(here)
    said = printed.getvalue().strip().splitlines()
    return lines, time.perf_counter() - start, said[-1] if said else ""


def main() -> None:
    """Runs all, or a few that take seconds."""
    quick, figures = arguments(__doc__ or "").quick, {}
    for name in QUICK if quick else PAGES:
        lines, seconds, said = composition(PAGES[name])
        print(f"{name:24} {lines:4} lines {seconds:7.1f} s   {said}", flush=True)
        figures[name] = {"lines": lines, "seconds": round(seconds, 1), "prints": said}
    finish({"experiment": "lever", **figures})


if __name__ == "__main__":
    main()
