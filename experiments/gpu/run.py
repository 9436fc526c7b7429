"""Every measurement that waits for a GPU, the most important first, as far as the minutes go.

    python -m experiments.gpu.run --budget MINUTES [--only ...] [--out FILE] [--state DIR]
        [--authors DIR]
    python -m experiments.gpu.run --table README [--out FILE]
    python -m experiments.gpu.run --quick

Each is a process with a time limit of its own, so that one which fails or hangs ends no other. What
FILE (JSON lines) has already is not measured again; failures are. DTI runs keep their states in
DIR, from which those that were stopped go on. `--table` writes the tables of a README between its
marks, from FILE.
"""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments.gpu.table import RESULTS, fill, results
from experiments.harness import arguments, finish

LEAST = 20
"""Seconds under which no measurement is begun."""

GRACE = 15
"""Seconds that a measurement has to save its state when its time is over."""


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What is measured, and how.

    Attributes:
        name: Its name in its module.
        limit: Seconds that it may take.
        seeds: How many runs, each with a seed of its own.
        module: Which module measures it.
        alone: Whether its seconds count, so that nothing runs beside it; of the others `--beside`
            run at a time, and find each other's compiled programs.
    """

    name: str
    limit: int
    seeds: int = 1
    module: str = "measure"
    alone: bool = True


PLAN = (
    Measurement("kmeans", 120),
    Measurement("di-spectral", 200),
    Measurement("pssc", 200),
    Measurement("pssc-as-published", 200),
    Measurement("di-kmeans-10000", 240),
    Measurement("di-kmeans-60000", 400),
    Measurement("dti-step", 240),
    Measurement("authors-step", 120, module="rivals"),
    Measurement("dti-kmeans", 500, seeds=10, alone=False),
    Measurement("dti-gmm", 500, seeds=10, alone=False),
    Measurement("pairs", 240),
    Measurement("scattering", 120, module="rivals"),
    Measurement("kymatio-jax", 120, module="rivals"),
    Measurement("kymatio-torch", 120, module="rivals"),
    *(
        Measurement(f"{method}-{name}-as-published", 580)
        for name in ("affine-mnist", "diffeo-mnist", "mnist")
        for method in ("ai-kmeans", "di-kmeans")
    ),
    Measurement("passes", 240),
    Measurement("passes-as-published", 400),
    Measurement("pmap", 90),
    Measurement("kmeans-60000", 60, seeds=3),
    Measurement("ai-kmeans-60000", 300, seeds=3),
    Measurement("di-kmeans-10000", 240, seeds=3),
    Measurement("di-kmeans-60000", 400, seeds=3),
    *(
        Measurement(f"{method}{name}-as-published", 580, seeds=10, alone=False)
        for name in ("-mnist-test", "-mnist-1k", "-usps", "", "-color-published", "-affnist-like")
        for method in ("dti-kmeans", "dti-gmm")
    ),
    Measurement("dti-kmeans-authors-steps", 580, seeds=10, alone=False),
    Measurement("dti-gmm-authors-steps", 580, seeds=10, alone=False),
    Measurement("dti-kmeans-residual", 580, seeds=10, alone=False),
    Measurement("dti-kmeans-fit", 500, seeds=10, alone=False),
    Measurement("dti-gmm-fit", 500, seeds=10, alone=False),
    Measurement("ai-kmeans-60000-as-published", 580, seeds=3),
    Measurement("di-kmeans-60000-as-published", 580, seeds=3),
)
QUICK = ("kmeans",)


def known(path: Path) -> set[tuple[str, int]]:
    """What the file has, by name and seed; failures do not count."""
    return {(row["name"], row["seed"]) for row in results(path) if "failed" not in row}


def last_json(text: str) -> dict[str, Any] | None:
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                continue
    return None


def watched(
    command: list[str], environment: dict[str, str], limit: float
) -> tuple[int | None, str, str]:
    """Exit status, None where the limit was met, and what a command wrote until then."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        process = subprocess.Popen(
            command, env=environment, stdout=out, stderr=error, start_new_session=True
        )
        status = None
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            pass
        finally:
            try:
                if process.poll() is None:
                    process.terminate()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(GRACE)
            finally:
                # Its own processes too: they would keep the device.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        error.seek(0)
        return status, out.read(), error.read()


class Runner:
    """Runs measurements in processes, and writes a line for each to a file."""

    def __init__(self, args: Any, cache: str) -> None:
        self.args, self.cache = args, cache
        self.until = time.monotonic() + 60 * args.budget
        self.writing = threading.Lock()
        self.log = args.out.with_suffix(".log")

    @property
    def left(self) -> float:
        """Seconds until the last measurement must stop, to save its state in time."""
        return self.until - GRACE - time.monotonic()

    def command(self, measurement: Measurement, seed: int) -> list[str]:
        module = f"experiments.gpu.{measurement.module}"
        given = ["--name", measurement.name, "--seed", str(seed)]
        if measurement.name == "authors-step" and self.args.authors is not None:
            given += ["--authors", str(self.args.authors)]
        if not measurement.alone and self.args.state is not None:
            given += ["--state", str(self.args.state / f"{measurement.name}-{seed}")]
        return [sys.executable, "-m", module, *given, *(["--quick"] * self.args.quick)]

    def environment(self, measurement: Measurement) -> dict[str, str]:
        if measurement.alone:
            return dict(os.environ)
        return {
            "JAX_COMPILATION_CACHE_DIR": self.cache,
            **os.environ,
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / self.args.beside:.3f}",
        }

    def __call__(self, measurement: Measurement, seed: int) -> dict[str, Any] | None:
        limit = min(measurement.limit, self.left)
        if limit < LEAST:
            return None
        start = time.monotonic()
        command, environment = self.command(measurement, seed), self.environment(measurement)
        status, out, error = watched(command, environment, limit)
        row: dict[str, Any] = {
            "name": measurement.name,
            "seed": seed,
            "quick": self.args.quick,
            "seconds": round(time.monotonic() - start, 1),
        }
        result = last_json(out) or {}
        if "machine" in result:
            machine = {name: result["machine"][name] for name in ("device", "cores")}
            row |= {**machine, "versions": result["versions"], "figures": result["figures"]}
        else:
            # What it had found when it ended.
            row["figures"] = result
        if not measurement.alone:
            row["beside"] = self.args.beside
        failed = ""
        if status is None:
            failed = f"stopped after {limit:.0f} s"
        elif status:
            failed = f"exit status {status}: {(error.strip().splitlines() or [''])[-1][:300]}"
        if failed:
            row["failed"] = failed
        with self.writing:
            with self.args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            with self.log.open("a") as file:
                file.write(f"== {row['name']} {seed} {failed}\n{out}\n{error[-8000:]}\n")
            print(json.dumps(row), flush=True)
        return row


def groups(args: Any) -> Iterator[list[tuple[Measurement, int]]]:
    """What is not known yet: one at a time where its seconds count, else several."""
    tried = known(args.out)
    for measurement in PLAN:
        if args.only and measurement.name not in args.only:
            continue
        count = 1 if args.quick else min(measurement.seeds, args.seeds)
        wanted = [(measurement, seed) for seed in range(args.seed, args.seed + count)]
        wanted = [pair for pair in wanted if (pair[0].name, pair[1]) not in tried]
        tried |= {(measurement.name, seed) for _, seed in wanted}
        if measurement.alone:
            yield from ([pair] for pair in wanted)
        elif wanted:
            yield wanted


def main() -> None:
    args = arguments(
        __doc__,
        budget={"type": float, "default": 60.0, "help": "minutes in all"},
        out={"type": Path, "default": RESULTS, "help": "JSON lines of the results"},
        only={"nargs": "+", "default": [], "choices": sorted({each.name for each in PLAN})},
        seeds={"type": int, "default": 10, "help": "at most so many runs of each"},
        beside={"type": int, "default": 5, "help": "runs at a time whose seconds do not count"},
        state={"type": Path, "default": None, "help": "where DTI runs keep their states"},
        authors={"type": Path, "default": None, "help": "a checkout of DTI clustering's code"},
        table={"type": Path, "default": None, "metavar": "README", "help": "fill its tables"},
    )
    if args.table is not None:
        fill(args.table, args.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        if args.quick:
            args.out, args.only = Path(folder) / "results.jsonl", args.only or list(QUICK)
        runner, rows = Runner(args, str(Path(folder) / "programs")), []
        for group in groups(args):
            with ThreadPoolExecutor(1 if len(group) == 1 else args.beside) as pool:
                rows += [row for row in pool.map(lambda pair: runner(*pair), group) if row]
        finish(
            {
                "experiment": "gpu",
                "measured": [f"{row['name']} {row['seed']}" for row in rows],
                "failed": {
                    f"{row['name']} {row['seed']}": row["failed"] for row in rows if "failed" in row
                },
            }
        )


if __name__ == "__main__":
    main()
