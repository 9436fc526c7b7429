"""Time and accuracy of the code on the documentation's page for users of other libraries.

    python -m experiments.comparison.run [--seed 0] [--seeds 3] [--quick]

Runs the blocks of docs/comparison.md as they stand there, in one process and in turn. A block that
begins with a comment is a competitor, which the comment names: it leaves its clusters in `labels`,
which are scored by `kinds`. The other blocks make the data. The first run of each imports and
compiles; its seconds stand apart. Blocks whose libraries (experiments/comparison/
requirements.txt) are not installed are passed over, and said to be.
"""

import re
import time
from pathlib import Path

from diffclust.metrics import scores
from experiments.harness import arguments, finish, mean_and_std

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
BLOCK = re.compile(r"^## (.*?)$|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def competitors():
    """Section, name and code of each block; data have no name."""
    section = ""
    for match in BLOCK.finditer(PAGE.read_text("utf-8")):
        section = match[1] or section
        if match[2]:
            named = re.match(r"# (.*)\n", match[2])
            yield section, named[1] if named else None, compile(match[2], PAGE.name, "exec")


def main():
    args = arguments(__doc__, seeds={"type": int, "default": 3})
    seeds = range(args.seed, args.seed + (1 if args.quick else args.seeds))
    names, rows = {}, {}
    for section, name, code in competitors():
        if name is None:
            exec(code, names)
            continue
        start = time.perf_counter()
        try:
            exec(code, names)
        except ModuleNotFoundError as error:
            rows[f"{section}: {name}"] = f"{error.name} is not installed"
            print(name, rows[f"{section}: {name}"], flush=True)
            continue
        first, result = time.perf_counter() - start, []
        for seed in seeds:
            names["seed"] = seed
            start = time.perf_counter()
            exec(code, names)
            seconds = time.perf_counter() - start
            row = {**scores(names["kinds"], names["labels"]), "seconds": seconds}
            result.append({key: round(float(row[key]), 3) for key in ("acc", "nmi", "seconds")})
            print(f"{name:48s} seed={seed} {result[-1]}", flush=True)
        means = {key: mean_and_std([row[key] for row in result]) for key in result[0]}
        rows[f"{section}: {name}"] = {**means, "first_seconds": round(first, 2)}
    finish({"experiment": "comparison", "seeds": len(seeds), **rows})


if __name__ == "__main__":
    main()
