"""Memory of fits of images that are read as they are needed: how much a sample more or less costs.

Images 28×28 are generated into two `.npy` files, one ten times the other. Every fit is the command
line's, in a process of its own, with all that it writes: model, assignments and report. The peak is
that of the whole process, as the operating system knows it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments.harness import arguments, finish

SIDE, KINDS = 28, 10
MOST, MOST_QUICKLY = 64, 256
"""Bytes that a sample may take. Of few samples, the 20 MB by which two runs of one command differ
are more than a hundred bytes each; held as 32-bit numbers, a sample would take 3,136."""

FITS = {
    "kmeans": ["--method", "kmeans", "--restarts", "2", "--max-passes", "2", "--no-split-merge"],
    "gmm": ["--method", "gmm", "--restarts", "2", "--steps", "60,20"],
    "dti-kmeans": ["--method", "dti-kmeans", "--transforms", "aff", "--steps", "30,30,10"],
}


def images(count: int, seed: int, block: int = 10_000) -> Iterator[np.ndarray]:
    """A few blurred kinds and noise, as 8 bits, some at a time."""
    kinds = np.random.default_rng(seed).random((KINDS, SIDE // 4, SIDE // 4), np.float32)
    kinds = 200 * kinds.repeat(4, axis=1).repeat(4, axis=2)
    for start in range(0, count, block):
        rng = np.random.default_rng([seed, start])
        size = min(block, count - start)
        noise = rng.integers(0, 56, (size, SIDE, SIDE), np.uint8)
        yield kinds[rng.integers(0, KINDS, size)].astype(np.uint8) + noise


def write(path: Path, count: int, seed: int) -> None:
    """Writes the file in a process of its own: what this one holds would count in its children."""
    code = (
        "import sys; from pathlib import Path; from diffclust.data import write_stream\n"
        "from experiments.benchmarks.streaming import SIDE, images\n"
        "path, count, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])\n"
        "write_stream(path, images(count, seed), shape=(count, SIDE, SIDE))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(count), str(seed)], check=True)


def peak(source: Path, out: Path, options: list[str]) -> tuple[int, float]:
    """Bytes and seconds of a fit."""
    command = [sys.executable, "-m", "diffclust", "fit", str(source), "-k", str(KINDS), "--stream"]
    start = time.perf_counter()
    with (out.parent / "told").open("wb") as output:
        process = subprocess.Popen(
            [*command, *options, "--out", str(out)], stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit((out.parent / "told").read_text("utf-8"))
    unit = 1 if sys.platform == "darwin" else 1024
    return usage.ru_maxrss * unit, time.perf_counter() - start


def main(options: argparse.Namespace) -> None:
    small = 20_000 if options.quick else 100_000
    counts = (small, 10 * small)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{count}.npy" for count in counts]
        for path, count in zip(files, counts, strict=True):
            write(path, count, options.seed)
        for name in options.fits.split(","):
            peaks = []
            for path, count in zip(files, counts, strict=True):
                held, seconds = peak(path, Path(folder) / f"{name}-{count}", FITS[name])
                print(f"{name} {count:,}: {held / 1e6:.0f} MB, {seconds:.0f} s", flush=True)
                peaks.append(held)
            figures[name] = (peaks[1] - peaks[0]) / (counts[1] - counts[0])
            print(f"{name}: {figures[name]:.1f} bytes a sample", flush=True)
    finish({"counts": counts, "bytes_a_sample": figures})
    most = MOST_QUICKLY if options.quick else MOST
    assert max(figures.values()) <= most, f"more than {most} bytes a sample"


if __name__ == "__main__":
    choice = {"default": "kmeans,gmm", "help": f"which of {', '.join(FITS)}"}
    main(arguments(str(__doc__), fits=choice))
