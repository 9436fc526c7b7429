"""How long a first result takes: `diffclust fit` with its report, and `fit` alone from Python.

Every row is a process of its own. The command runs with an empty cache of compiled programs, and
then with the one that it has filled; Python keeps none. Seconds on the wall clock from before the
process starts: to the fit (imports, options, samples), to the first chunk or window of steps that
is done, of the fit (with a rehearsal of it, and another fit that it is compared with, where there
are such), and after it (report, model). Of all of them, what tracing takes, and compiling
or reading from the cache; computing is what is left of the fit, the report what is left of the
rest. Also seconds of the processor, which say more where other work goes on, and how many programs
were compiled or read. Methods of shapes and series have samples that are drawn here.

    python -m experiments.benchmarks.first_result [--methods kmeans di-kmeans] [--counts 300 2000]
    python -m experiments.benchmarks.first_result --demo
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from diffclust.methods import METHODS as DESCRIPTORS
from experiments.harness import arguments, finish

METHODS = tuple(DESCRIPTORS)

COLUMNS = ("before_fit", "tracing", "compiling", "computing", "report", "wall", "cpu", "programs")
"""What the table shows."""


def options_of(method: str) -> dict[str, int]:
    """Of methods by gradient steps 200 steps of one run."""
    steps = DESCRIPTORS[method].solver == "gradient"
    return {"max_steps": 200, "num_starts": 1} if steps else {}


def drawn_samples(kind: str, count: int, clusters: int, folder: str) -> str:
    """A file of shapes or series, each a variation of one of the clusters' own."""
    rng, of = np.random.default_rng(0), np.arange(count) % clusters
    if kind == "shape":
        turns = rng.uniform(0, 2 * np.pi, count)
        turned = np.stack([np.cos(turns), -np.sin(turns), np.sin(turns), np.cos(turns)], axis=1)
        shapes = rng.normal(size=(clusters, 8, 2))[of] + rng.normal(0, 0.1, (count, 8, 2))
        arrays = {"landmarks": shapes @ turned.reshape(-1, 2, 2)}
    else:
        times = np.linspace(0, 1, 64)[None] ** np.exp(rng.normal(0, 0.2, (count, 1)))
        waves = np.sin(np.pi * times[..., None] * np.arange(1, 5))
        arrays = {"series": np.sum(waves * rng.normal(size=(clusters, 1, 4))[of], axis=2)}
    file = f"{folder}/{kind}.npz"
    np.savez(file, allow_pickle=False, **arrays, labels=of)
    return file


_CHILD = """
import collections, json, os, sys, time
begun, where, kind = float(sys.argv[1]), sys.argv[2], sys.argv[3]
# The clock of the parent: it counts from the start of the machine, not of the process.
now = lambda: time.monotonic() - begun
import jax
spans, number, at = collections.defaultdict(list), collections.Counter(), {}
parts = {"jaxpr_trace_duration": "tracing", "jaxpr_to_mlir_module_duration": "tracing",
         "backend_compile_duration": "compiling"}
def listen(event, duration, **_):
    name = event.rsplit("/", 1)[-1]
    number[name] += 1
    if name in parts:
        spans[parts[name]].append((now() - duration, now()))
def seconds(name):
    # What is traced within something else counts once.
    total, last = 0.0, 0.0
    for start, end in sorted(spans[name]):
        total, last = total + max(0.0, end - max(start, last)), max(last, end)
    return total
jax.monitoring.register_event_duration_secs_listener(listen)
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
    at["others"] = seconds("tracing") + seconds("compiling")
    at["computing"] = at["fit"] - at["others"]
    return result
AbstractModel.fit = timed
if kind == "python":
    import numpy as np
    from diffclust.data import load
    from diffclust.models import MODELS
    source, clusters, method, count, options = sys.argv[4:]
    if source.endswith(".npz"):
        images = np.load(source)[np.load(source).files[0]]
    else:
        images = load(source, limit=int(count)).images
    settings = {"num_clusters": int(clusters), **json.loads(options)}
    MODELS[method].from_settings(settings).fit(images, key=jax.random.key(0))
else:
    from diffclust.cli import main
    if main(sys.argv[4:]):
        sys.exit("the command failed")
cpu, tracing, compiling = os.times(), seconds("tracing"), seconds("compiling")
after = now() - at["before_fit"] - at["fit"]
row = {**at, "after_fit": after, "wall": now(), "tracing": tracing, "compiling": compiling,
       "report": after - (tracing + compiling - at.pop("others")),
       "cpu": cpu.user + cpu.system, "programs": number["backend_compile_duration"]}
row.pop("others")
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
        where, start = f"{folder}/row.json", time.monotonic()
        out = ["--out", f"{folder}/run"] if kind == "command" else []
        subprocess.run(
            [sys.executable, "-c", _CHILD, str(start), where, kind, *given, *out],
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
        methods={"nargs": "+", "default": METHODS, "choices": METHODS},
        counts={"nargs": "+", "type": int, "default": (300, 2000)},
        source={"default": "digits"},
        k={"type": int, "default": 10},
        starts={"type": int, "default": 3},
        demo={"action": "store_true", "help": "the demo instead"},
    )
    methods, counts = (("kmeans",), (40,)) if args.quick else (args.methods, args.counts)
    rows: dict[str, list[dict[str, float]]] = {}

    def run(name: str, kind: str, given: list[str], cache: str) -> None:
        row = {key: round(value, 2) for key, value in timed(kind, given, cache).items()}
        rows.setdefault(name, []).append(row)
        print(f"{name:40s} " + "  ".join(f"{k} {v:g}" for k, v in row.items()), flush=True)

    def run_command(name: str, command: list[str], cache: str) -> None:
        for state in ("empty", "full"):
            run(f"{name}, {state} cache", "command", command, cache)

    for _ in range(args.starts if args.demo else 0):
        with tempfile.TemporaryDirectory() as cache:
            run_command("demo", ["demo"], cache)
    methods = () if args.demo else methods
    samples = tempfile.TemporaryDirectory()
    for count in counts:
        for method in methods:
            kind, settings = DESCRIPTORS[method].sample_kind, options_of(method)
            source = args.source
            if kind != "image":
                source = drawn_samples(kind, count, args.k, samples.name)
            command = ["fit", source, "-k", str(args.k), "--method", method]
            command += ["--limit", str(count)] if kind == "image" else []
            if settings:
                command += ["--max-steps", "200", "--starts", "1"]
            alone = [source, str(args.k), method, str(count), json.dumps(settings)]
            for _ in range(1 if args.quick else args.starts):
                with tempfile.TemporaryDirectory() as cache:
                    run_command(f"{method}, {count}", command, cache)
                    run(f"{method}, {count}, fit from Python", "python", alone, cache)
    medians = {
        name: {key: statistics.median(row[key] for row in runs) for key in runs[0]}
        for name, runs in rows.items()
    }
    print("| | " + " | ".join(COLUMNS) + " |\n" + "|---" * (1 + len(COLUMNS)) + "|")
    for name, row in medians.items():
        print(f"| {name} | " + " | ".join(f"{row[column]:.3g}" for column in COLUMNS) + " |")
    finish({"experiment": "first_result", "medians": medians, "runs": rows})


if __name__ == "__main__":
    main()
