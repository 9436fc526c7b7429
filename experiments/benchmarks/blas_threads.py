"""Seconds of leading eigenvectors on the host, on free cores and beside other programs.

    python -m experiments.benchmarks.blas_threads [--rows 100 300 1000] [--repeats 7]
        [--beside 0 1 2] [--quick]

With the threads that OpenBLAS takes by itself and with one, while so many other processes a core
compute. The median of the repeats, and all of them.
"""

import contextlib
import os
import subprocess
import sys
import time

import numpy as np
import scipy.linalg

from diffclust.linalg import one_blas_thread
from experiments.harness import arguments, finish

WANTED = 15


@contextlib.contextmanager
def busy_cores(count):
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def seconds(matrix, repeats):
    count, found = len(matrix), []
    for _ in range(repeats):
        start = time.perf_counter()
        scipy.linalg.eigh(matrix, subset_by_index=(count - WANTED, count - 1))
        found.append(round(time.perf_counter() - start, 4))
    return found


def main():
    args = arguments(
        __doc__,
        rows={"type": int, "nargs": "+", "default": [100, 300, 1000], "help": "rows of matrices"},
        repeats={"type": int, "default": 7, "help": "how often each is solved"},
        beside={"type": int, "nargs": "+", "default": [0, 1, 2], "help": "processes on each core"},
    )
    if args.quick:
        args.rows, args.repeats, args.beside = [100], 2, [0, 1]
    figures = {}
    for beside in args.beside:
        with busy_cores(beside * (os.cpu_count() or 1)):
            for rows in args.rows:
                matrix = np.random.default_rng(args.seed).normal(size=(rows, rows))
                matrix = matrix + matrix.T
                for threads, limit in (("all", contextlib.nullcontext), ("one", one_blas_thread)):
                    with limit():
                        found = seconds(matrix, args.repeats)
                    name = f"{beside} beside, {rows} rows, threads: {threads}"
                    figures[name] = {"median": float(np.median(found)), "seconds": found}
                    print(name, figures[name], flush=True)
    finish({"experiment": "blas_threads", **figures})


if __name__ == "__main__":
    main()
