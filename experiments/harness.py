"""What every experiment shares: arguments, the machine's description, and the last line of JSON."""

import argparse
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np


def arguments(description: str, **extra: dict[str, Any]) -> argparse.Namespace:
    """`--seed` and `--quick`, and what an experiment adds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes, for CI")
    for name, options in extra.items():
        parser.add_argument("--" + name.replace("_", "-"), **options)
    args = parser.parse_args()
    sys.excepthook = _one_line_of_data
    without = {}
    if extra.get("source") is SOURCE["source"] and args.source is None:
        without |= dict.fromkeys((*SOURCE, *SCORED), "is for the data of --source; give both")
    if getattr(args, "as_published", False):
        ours = ("no_moves", "shortlist", "starts")
        without |= dict.fromkeys(ours, "changes nothing of --as-published; give one of them")
    for name, why in without.items():
        if getattr(args, name, None) != parser.get_default(name):
            parser.error(f"--{name.replace('_', '-')} {why}")
    return args


SOURCE: dict[str, dict[str, Any]] = {
    "source": {
        "default": None,
        "help": "in the place of the sets: a folder of pictures, an IDX, .npy or .npz file with "
        "labels, or tfds:NAME",
    },
    "split": {"default": "all", "help": "which part of that source"},
    "size": {"type": int, "default": None, "help": "pixels a side that its images are brought to"},
    "pad": {"action": "store_true", "help": "show its pictures whole where they would be cropped"},
    "k": {"type": int, "default": None, "help": "clusters of it, if not as many as kinds"},
}
"""Options of the tables whose rows can be run on other data; see `datasets`."""


def datasets(
    args: argparse.Namespace, named: Callable[[str], Any], names: Iterable[str]
) -> Iterator[tuple[str, Any, int]]:
    """Name, data and number of clusters of every set, or of the source that was given alone."""
    if args.source is None:
        for name in names:
            yield name, named(name), 10
        return
    data = loaded(args, args.split, args.limit)
    yield source_name(args), data, args.k or len(np.unique(data.labels))


def source_name(args: argparse.Namespace) -> str:
    """The source's name in results, with its folder, as many folders are called "test"."""
    return "/".join(Path(args.source).parts[-2:])


SCORED: dict[str, dict[str, Any]] = {
    "score_split": {"default": None, "help": "part of the source to score, if not the fitted"}
}
"""The option of tables whose fits can be scored on other images; see `fitted_and_scored`."""


def fitted_and_scored(args: argparse.Namespace, limit: int | None) -> tuple[Any, Any, int]:
    """Images of the source to fit, those to score, and the number of clusters.

    What is not scored needs no labels: a fit may be on labelled and unlabelled images together, and
    scored on the labelled ones.
    """
    if not args.score_split:
        fitted = scored = loaded(args, args.split, limit)
    else:
        fitted = loaded(args, args.split, limit, labels=False)
        scored = loaded(args, args.score_split, None)
    kinds = scored.labels if fitted.labels is None else fitted.labels
    return fitted, scored, args.k or len(np.unique(kinds))


def source_words(args: argparse.Namespace) -> list[str]:
    """What was taken of the source and how, in words that tell runs apart; none without one."""
    if args.source is None:
        return []
    split = getattr(args, "score_split", None)
    scored = [f"scored on {split}"] * (split is not None)
    size = [f"size {args.size}"] * (args.size is not None) + ["pad"] * args.pad
    return [f"split {args.split}", *scored, *size, *[f"k {args.k}"] * (args.k is not None)]


def refuse(message: str) -> NoReturn:
    """Ends the process with one line and the status of bad input, as the command does."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def _one_line_of_data(kind: type[BaseException], error: BaseException, *rest: Any) -> None:
    """Prints an error of data in one line; leaves all others to Python."""
    from diffclust.data import DataError

    if issubclass(kind, DataError):
        refuse(str(error))
    sys.__excepthook__(kind, error, *rest)


def loaded(args: argparse.Namespace, split: str, limit: int | None, *, labels: bool = True) -> Any:
    """Images of the source; ends the process with one line where labels are missing."""
    from diffclust.data import PaddedSize, load

    size = PaddedSize(args.size, args.size) if args.pad else args.size
    data = load(args.source, split=split, size=size, limit=limit, seed=0)
    if labels and data.labels is None:
        refuse(f"{args.source} has no labels to score by")
    return data


def data_file(name: str) -> Path:
    """A file of the data folder; ends the process with one line where it is not there."""
    folder = os.environ.get("DIFFCLUST_DATA_DIR")
    if not folder or not (Path(folder) / name).is_file():
        refuse(f"set DIFFCLUST_DATA_DIR to a folder that holds {name}")
    return Path(folder) / name


def machine() -> dict[str, Any]:
    import jax

    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def peak_memory_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def timed(function: Callable[[], Any], repeats: int = 3) -> tuple[float, float, Any]:
    """Seconds of the first call, the least seconds of the later ones, and the last result."""
    import jax

    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        result = jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return seconds[0], min(seconds[1:]), result


def mean_and_std(values: list[float]) -> dict[str, float]:
    return {
        "mean": round(float(np.mean(values)), 4),
        "std": round(float(np.std(values)), 4),
        "best": round(float(np.max(values)), 4),
    }


def scored(prefix: str, runs: list[tuple[int, Any, float]], labels: np.ndarray) -> dict[str, Any]:
    """Prints every run of a spectral clustering, and gives mean, deviation and the least cut's."""
    from diffclust.metrics import scores

    rows = []
    for seed, result, seconds in runs:
        row = {"seed": seed, "cut": result.loss, **scores(labels, result.points.assignments)}
        rows.append(row)
        printed = {**row, **result.figures, "seconds": seconds}
        words = [f"{k}={v:.4f}" if isinstance(v, float) else f"{k}={v}" for k, v in printed.items()]
        print(prefix, *words, flush=True)
    least = min(rows, key=lambda row: row["cut"])
    return {
        **{score: mean_and_std([row[score] for row in rows]) for score in ("acc", "nmi", "ari")},
        "least_cut": {k: round(least[k], 4) for k in ("seed", "acc", "nmi", "ari")},
    }


RESULTS: dict[str, dict[str, Any]] = {
    "results": {"help": "keeps every run; those that it has are not run again"}
}
"""The option of experiments that take hours; see `asked_runs`."""


def asked_runs(
    results: str | None,
    names: tuple[str, ...],
    asked: Iterable[tuple[Any, ...]],
    run: Callable[..., dict[str, Any]],
    lacking: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The rows of the runs asked for, which are made where the file of results does not have them.

    Args:
        results: A file of JSON lines, to which every run is added as it ends; None for none.
        names: What tells runs apart.
        asked: Values of these names, for each run.
        run: Makes one run from its values.
        lacking: Values that rows of the file have where they lack a name; None for the others.

    Returns:
        One row for each run, in the order in which they were asked for. If the file has several
        rows of one run, the first of them counts.
    """
    asked, lacking = list(dict.fromkeys(asked)), lacking or {}
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in kept_runs(results):
        rows.setdefault(tuple(row.get(name, lacking.get(name)) for name in names), row)
    if results:
        # Before the first run, which may take hours.
        Path(results).parent.mkdir(parents=True, exist_ok=True)
    for each in asked:
        if each in rows:
            continue
        rows[each] = {**dict(zip(names, each, strict=True)), **run(*each)}
        print(json.dumps(rows[each]), flush=True)
        if results:
            with Path(results).open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[each]) + "\n")
    return [rows[each] for each in asked]


def kept_runs(results: str | None) -> list[dict[str, Any]]:
    """All rows of a file of results; none of None, or of one that is not there yet."""
    if results is None or not Path(results).is_file():
        return []
    rows = []
    for number, line in enumerate(Path(results).read_text("utf-8").splitlines(), start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            refuse(f"line {number} of {results} is no JSON, as if cut off; delete the line")
    return rows


def finish(figures: dict[str, Any]) -> None:
    """Prints the figures as the last line."""
    print(json.dumps({**figures, "machine": machine()}), flush=True)
