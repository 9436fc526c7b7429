"""How long a first result takes: `diffclust fit` with its report, and `fit` alone from Python.

Every row is a process of its own. The command runs with an empty cache of compiled programs, and
then with the one that it has filled; Python keeps none. Seconds on the wall clock from before the
process starts: to the fit (imports, options, images), to the first chunk or window of steps that is
done, of the fit (with the rehearsal that says how long it will take), and after it (report, model).
Of all of them, what tracing takes, and compiling or reading from the cache; also seconds of the
processor and how many programs were compiled or read.

    python -m experiments.benchmarks.first_result [--methods kmeans di-kmeans] [--counts 300 2000]
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from experiments.harness import arguments, finish

METHODS = ("kmeans", "ai-kmeans", "di-kmeans", "pssc", "di-spectral", "dti-kmeans")
OPTIONS = {"dti-kmeans": ["--max-steps", "200", "--starts", "1"]}
"""Of DTI K-means 200 steps of one run."""

_CHILD = """
import collections, json, os, sys, time
begun, where, kind = float(sys.argv[1]), sys.argv[2], sys.argv[3]
# The clock of the parent: it counts from the start of the machine, not of the process.
now = lambda: time.monotonic() - begun
import jax
seconds, number, at = collections.Counter(), collections.Counter(), {}
def listen(event, duration, **_):
    seconds[event.rsplit("/", 1)[-1]] += duration
    number[event.rsplit("/", 1)[-1]] += 1
jax.monitoring.register_event_duration_secs_listener(listen)
parts = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")
from diffclust.models.base import AbstractModel
fit = AbstractModel.fit
def timed(*args, **kwargs):
    at.setdefault("before_fit", now())  # of the rehearsal, where there is one
    inner = kwargs.get("callback") or (lambda progress: None)
    def callback(progress):
        if progress.done > 0 and progress.stage != "seeding":
            at.setdefault("first_step", now())
        inner(progress)
    result = fit(*args, **{**kwargs, "callback": callback})
    at["fit"] = now() - at["before_fit"]
    return result
AbstractModel.fit = timed
if kind == "python":
    from diffclust.data import load
    from diffclust.models import MODELS
    source, clusters, method, count, options = sys.argv[4:]
    images = load(source, limit=int(count)).images
    settings = {"num_clusters": int(clusters), **json.loads(options)}
    MODELS[method].from_settings(settings).fit(images, key=jax.random.key(0))
else:
    from diffclust.cli import main
    if main(sys.argv[4:]):
        sys.exit("the command failed")
cpu = os.times()
row = {**at, "after_fit": now() - at["before_fit"] - at["fit"], "wall": now(),
       "tracing": seconds[parts[0]] + seconds[parts[1]], "compiling": seconds[parts[2]],
       "cpu": cpu.user + cpu.system, "programs": number[parts[2]]}
open(where, "w").write(json.dumps(row))
"""


def timed(kind: str, given: list[str], cache: str) -> dict[str, float]:
    """Runs one process.

    Args:
        kind: `"command"`, or `"python"` for `fit` alone.
        given: What stands after `diffclust`; or source, clusters, method, count and settings.
        cache: Folder of compiled programs of the command.

    Returns:
        Seconds by the part of the run, and the number of programs.

    Raises:
        CalledProcessError: If the process fails.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE"))
    }
    environment["XDG_CACHE_HOME"] = cache
    with tempfile.TemporaryDirectory() as folder:
        where, begun = f"{folder}/row.json", time.monotonic()
        out = ["--out", f"{folder}/run"] if kind == "command" else []
        subprocess.run(
            [sys.executable, "-c", _CHILD, str(begun), where, kind, *given, *out],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return json.loads(Path(where).read_text())


def main() -> None:
    """Prints a line for each process, and the medians."""
    args = arguments(
        __doc__.splitlines()[0],
        methods={"nargs": "+", "default": METHODS},
        counts={"nargs": "+", "type": int, "default": (300, 2000)},
        source={"default": "digits"},
        k={"type": int, "default": 10},
        starts={"type": int, "default": 3},
    )
    methods, counts = (("kmeans",), (40,)) if args.quick else (args.methods, args.counts)
    rows: dict[str, list[dict[str, float]]] = {}

    def run(name: str, kind: str, given: list[str], cache: str) -> None:
        row = {key: round(value, 2) for key, value in timed(kind, given, cache).items()}
        rows.setdefault(name, []).append(row)
        print(f"{name:40s} " + "  ".join(f"{k} {v:g}" for k, v in row.items()), flush=True)

    for count in counts:
        for method in methods:
            command = ["fit", args.source, "-k", str(args.k), "--method", method]
            command += ["--limit", str(count), *OPTIONS.get(method, [])]
            settings = {"max_steps": 200, "num_starts": 1} if method in OPTIONS else {}
            alone = [args.source, str(args.k), method, str(count), json.dumps(settings)]
            for _ in range(1 if args.quick else args.starts):
                with tempfile.TemporaryDirectory() as cache:
                    run(f"{method}, {count}, empty cache", "command", command, cache)
                    run(f"{method}, {count}, full cache", "command", command, cache)
                    run(f"{method}, {count}, fit from Python", "python", alone, cache)
    medians = {
        name: {key: statistics.median(row[key] for row in runs) for key in runs[0]}
        for name, runs in rows.items()
    }
    finish({"experiment": "first_result", "medians": medians, "runs": rows})


if __name__ == "__main__":
    main()
