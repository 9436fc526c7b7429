"""How long `diffclust fit` takes to its first step: with an empty cache of programs, and again.

Each run is a process of its own that stops at the first chunk or window of steps that is done. The
wall-clock time counts from before the process is started; CPU seconds (user and system, all
threads) tell more than it where the machine is shared.

    python -m experiments.benchmarks.first_step kmeans di-kmeans dti-kmeans pssc
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

_CHILD = """
import os, sys, time
from diffclust.cli import main
from diffclust.progress_bar import ProgressBar

def stop_at_the_first_step(self, progress):
    if progress.done > 0 and progress.stage != "seeding":
        # The clock of the parent: it counts from the start of the machine, not of the process.
        wall, cpu = time.monotonic() - float(sys.argv[1]), os.times()
        print(f"{wall} {cpu.user + cpu.system} {progress.stage}", flush=True)
        os._exit(0)

ProgressBar.__call__ = stop_at_the_first_step
sys.exit(main(sys.argv[2:]))
"""


def to_first_step(arguments: list[str], cache: str) -> tuple[float, float, str]:
    """Runs the command up to its first step.

    Args:
        arguments: What stands after `diffclust` on the command line, without `--out`.
        cache: Folder of compiled programs.

    Returns:
        Seconds on the wall clock, seconds of the processor, and the stage of that step.

    Raises:
        CalledProcessError: If the command fails.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE"))
    }
    environment["XDG_CACHE_HOME"] = cache
    with tempfile.TemporaryDirectory() as out:
        begun = time.monotonic()
        told = subprocess.run(
            [sys.executable, "-c", _CHILD, str(begun), *arguments, "--out", f"{out}/run"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    wall, cpu, stage = told.split()
    return float(wall), float(cpu), stage


def main() -> None:
    """Prints a line for each method and start."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--source", default="digits")
    parser.add_argument("--clusters", default="10")
    parser.add_argument("--starts", type=int, default=2)
    options = parser.parse_args()
    for method in options.methods:
        with tempfile.TemporaryDirectory() as cache:
            for number in range(options.starts):
                wall, cpu, stage = to_first_step(
                    ["fit", options.source, "-k", options.clusters, "--method", method], cache
                )
                kind = "empty cache" if number == 0 else "cached"
                print(f"{method}, {kind}: {wall:.2f} s, {cpu:.2f} s of CPU to the first {stage}")


if __name__ == "__main__":
    main()
